"""What models of chorales know: nats a cell, of all voices and of those to a melody; and whether they recall a motif.

    python recipes/chorale_scores.py DATA runs/relative-0 runs/relative-1 runs/sinusoids-0 …

Protocol: every test piece is read behind the token that begins a piece; a cell is one voice in one 16th note, and
nothing else is counted (neither the end of a piece nor that of a melody). A piece that is longer than the model's context
is read in windows that overlap by half, of which the later half is counted. `A T B` are the cells of the three lower
voices: a model whose soprano runs ahead has seen the coming melody, one whose soprano does not has not.

Motif: a passage of two bars, four bars of another piece, and the passage again: nats a cell when it comes
the first time, the second time, and how much was gained.

Behind the models come those that differ by their seed alone (NAME-1, NAME-2 …): the mean, the lowest and the highest.
"""

import argparse
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from chorales import read_chorales

import glassformer as gf
from glassformer.generation.sampling import log_softmax
from glassformer.tasks.compose import Composer
from glassformer.tokenizers.music import Chorale, Grid

SEED = re.compile(r"-\d+/?$")
MOTIF, BETWEEN, MOTIFS = 32, 64, 40  # steps of a passage and between, and how many are measured


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure models of chorales on the test set.")
    parser.add_argument("data", type=Path, help="the folder of the raw chorales")
    parser.add_argument("models", nargs="+", help="folders of models")
    parser.add_argument("--pieces", type=int, default=0, help="only so many of the test pieces")
    asked = parser.parse_args()
    pieces = read_chorales(asked.data)["test"][: asked.pieces or None]
    print("| model | positions | ahead | nats a cell | A T B | motif, first | motif, second | gained |")
    print("|---|---|---|---|---|---|---|---|")
    groups: dict[str, list[Scores]] = {}
    for name in asked.models:
        found = measured(name, pieces)
        groups.setdefault(f"{SEED.sub('', name)} | {found.about}", []).append(found)
        shown = " | ".join(f"{number:.3f}" for number in found.numbers)
        print(f"| {name} | {found.about} | {shown} |", flush=True)
    for name, several in groups.items():
        if len(several) > 1:
            columns = zip(*(one.numbers for one in several), strict=True)
            print(f"| {name} | {' | '.join(map(spread, columns))} |")


def spread(numbers: Sequence[float]) -> str:
    """The mean of some seeds, the lowest and the highest."""
    return f"{np.mean(numbers):.3f} ({min(numbers):.3f} to {max(numbers):.3f})"


class Scores(NamedTuple):
    """What a model is, and its figures."""

    about: str  # its positions, and how far its soprano runs ahead
    numbers: tuple[float, ...]


def measured(name: str, pieces: Sequence[Grid]) -> Scores:
    """One model in the table."""
    model = gf.load(name).expect(Composer)
    assert isinstance(model.events, Chorale)
    cells = [cell for piece in pieces for cell in nats(model, piece)]
    lower = [loss for voice, loss in cells if voice]
    first, second = motif(model, pieces)
    whole = float(np.mean([loss for _, loss in cells]))
    about = f"{model.net.config.positions} | {model.events.ahead}"
    return Scores(about, (whole, float(np.mean(lower)), first, second, first - second))


def nats(model: Composer, piece: Grid) -> Iterator[tuple[int, float]]:
    """Voice and negative log-likelihood of every cell of a piece."""
    assert isinstance(model.events, Chorale)
    ids = model.events.lay(piece)
    losses = text_nats(model, [model.events.end, *ids])
    for number, (id, loss) in enumerate(zip(ids, losses, strict=True)):
        voice, step = model.events.place(number)
        if step < len(piece):
            yield voice, loss
        assert step < len(piece) or id == model.events.encode("S.")[0]


def text_nats(model: Composer, ids: Sequence[int]) -> list[float]:
    """The negative log-likelihood of every token but the first."""
    context = model.net.context
    found: list[float] = []
    start = 0
    while len(found) < len(ids) - 1:
        part = ids[start : start + context]
        scores = np.stack([log_softmax(row) for row in model.logits(list(part))])  # (T, V)
        done = len(found) - start  # of this window's predictions, those that an earlier window made
        targets = ids[start + 1 + done : start + 1 + len(part)]
        found += [-float(scores[done + at, token]) for at, token in enumerate(targets)]
        start += context // 2
    return found


def motif(model: Composer, pieces: Sequence[Grid]) -> tuple[float, float]:
    """Nats a cell of passages when they come the first time, and when they come again."""
    events = model.events
    assert isinstance(events, Chorale)
    first, second = [], []
    pairs = list(zip(pieces, [*pieces[1:], *pieces[:1]], strict=True))[:MOTIFS]
    for piece, other in pairs:
        passage, between = piece[:MOTIF], other[:BETWEEN]
        whole = [*passage, *between, *passage]
        losses = text_nats(model, [events.end, *events.lay(whole)])
        for number, loss in enumerate(losses):
            _, step = events.place(number)
            if step < len(passage):
                first.append(loss)
            elif len(passage) + len(between) <= step < len(whole):
                second.append(loss)
    return float(np.mean(first)), float(np.mean(second))


if __name__ == "__main__":
    main()
