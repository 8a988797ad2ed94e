"""What can be measured of a composer's chorales, beside Bach's: the tables of its card.

    python recipes/composer_card.py DATA runs/composer --samples 40 --out runs/samples

Pieces are drawn with the seeds 0, 1, 2 …, as they come; the test set is measured in the same way. With --out they are
also kept as .mid and .svg.
"""

import argparse
import hashlib
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from chorales import ranges, read_chorales

import glassformer as gf
from glassformer.tasks.compose import Composer
from glassformer.tokenizers.music import PER_QUARTER, SILENT, Chorale, Grid

BAR = 4 * PER_QUARTER  # steps


class Figures(NamedTuple):
    """What is counted in a piece."""

    out_of_range: float  # share of cells that no chorale of the training set has in that voice
    crossings: float  # share of steps in which a voice is above the next higher one
    fifths: float  # parallel fifths, for every hundred changes of harmony
    octaves: float  # parallel octaves and unisons, the same
    density: float  # notes a voice in a quarter
    repetition: float  # share of bars that came before in the same piece
    copied: float  # longest run, in quarters, that is somewhere in the training set, in any key
    most_copied: float  # of all pieces, not the mean
    quarters: float  # how long it is


MOST = Figures._fields.index("most_copied")


class Known:
    """The training set: what each voice sings, and every run of steps, by rolling hashes."""

    def __init__(self, train: Sequence[Grid]) -> None:
        self.lowest, self.highest = ranges(train)
        self.pieces = [hashes(piece) for piece in train]

    def longest_copy(self, piece: Grid) -> int:
        """The most steps in a row that are somewhere in the training set, in any key."""
        sums = hashes(piece)
        low, high = 0, len(sums) - 1
        while low < high:
            length = (low + high + 1) // 2
            known = np.concatenate([runs(one, length) for one in self.pieces])
            found = bool(np.isin(runs(sums, length), known).any())
            low, high = (length, high) if found else (low, length - 1)
        return low


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure a composer for its card.")
    parser.add_argument("data", type=Path, help="the folder of the raw chorales")
    parser.add_argument("model", help="the model's folder")
    parser.add_argument("--samples", type=int, default=40, help="how many pieces to write")
    parser.add_argument("--out", type=Path, help="a folder for the pieces")
    asked = parser.parse_args()
    splits = read_chorales(asked.data)
    model = gf.load(asked.model).expect(Composer)
    written = list(samples(model, asked.samples, asked.out))
    melodies = splits["test"][: asked.samples // 2]
    harmonized = [harmonize(model, piece, seed) for seed, piece in enumerate(melodies)]
    print("| | " + " | ".join(Figures._fields) + " |")
    print("|---" * (1 + len(Figures._fields)) + "|")
    sets = {"composer": written, "composer, to melodies": harmonized, "Bach, test set": splits["test"]}
    train = Known(splits["train"])
    for name, pieces in sets.items():
        found = [measure(piece, train) for piece in pieces if len(piece) > 1]
        means = np.mean(np.array(found), axis=0)
        means[MOST] = max(one.most_copied for one in found)
        print(f"| {name} ({len(found)}) | " + " | ".join(f"{mean:.3g}" for mean in means) + " |", flush=True)


def samples(model: Composer, count: int, out: Path | None) -> Iterator[Grid]:
    """New pieces; they are kept where there is a folder."""
    assert isinstance(model.events, Chorale)
    for seed in range(count):
        piece = model.compose(seconds=120, seed=seed)
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
            piece.save(out / f"{seed}.mid")
            piece.save(out / f"{seed}.svg")
        yield model.events.grid([*piece.prompt_tokens[1:], *piece.tokens])


def harmonize(model: Composer, piece: Grid, seed: int) -> Grid:
    """Three voices to Bach's soprano."""
    assert isinstance(model.events, Chorale)
    tune = [[step[0], SILENT, SILENT, SILENT] for step in piece]
    score = model.events.hear(model.events.lay(tune)).score
    out = model.harmonize(score, seed=seed)
    return model.events.grid([*out.prompt_tokens[1:], *out.tokens])


def measure(piece: Grid, train: Known) -> Figures:
    """All figures of one piece."""
    cells = [(voice, step[voice]) for step in piece for voice in range(4) if step[voice] != SILENT]
    outside = [not train.lowest[voice] <= pitch <= train.highest[voice] for voice, pitch in cells]
    crossed = [any(SILENT < a < b for a, b in itertools.pairwise(step)) for step in piece]
    changes = [(a, b) for a, b in itertools.pairwise(piece) if a != b]
    fifths, octaves = (sum(parallel(a, b, interval) for a, b in changes) for interval in (7, 0))
    sung = [(SILENT, *(step[voice] for step in piece)) for voice in range(4)]
    notes = sum(a != b != SILENT for line in sung for a, b in itertools.pairwise(line))
    bars = [str(piece[at : at + BAR]) for at in range(0, len(piece) - BAR + 1, BAR)]
    quarters = len(piece) / PER_QUARTER
    copied = train.longest_copy(piece) / PER_QUARTER
    return Figures(
        float(np.mean(outside)) if outside else 0.0,
        float(np.mean(crossed)),
        100 * fifths / max(1, len(changes)),
        100 * octaves / max(1, len(changes)),
        notes / 4 / quarters,
        1 - len(set(bars)) / len(bars) if bars else 0.0,
        copied,
        copied,
        quarters,
    )


def parallel(before: Sequence[int], after: Sequence[int], interval: int) -> int:
    """Pairs of voices that move together and stay so many half-tones apart, or octaves more."""
    count = 0
    for high, low in itertools.combinations(range(4), 2):
        moves = after[high] - before[high], after[low] - before[low]
        sounding = SILENT not in (before[high], before[low], after[high], after[low])
        same_way = moves[0] * moves[1] > 0
        apart = (before[high] - before[low]) % 12, (after[high] - after[low]) % 12
        count += sounding and same_way and apart[0] == apart[1] == interval
    return count


BASE = np.uint64(0x9E3779B97F4A7C15)  # any odd number; products wrap around


def hashes(piece: Grid) -> "np.ndarray[Any, np.dtype[np.uint64]]":
    """Of every beginning of a piece: h(n + 1) = h(n) · BASE + step, without its key."""
    sums = [np.uint64(0)]
    with np.errstate(over="ignore"):
        for step in shape(piece):
            number = int.from_bytes(hashlib.blake2b(str(step).encode(), digest_size=8).digest())
            sums.append(sums[-1] * BASE + np.uint64(number))
    return np.array(sums)


def runs(sums: "np.ndarray[Any, np.dtype[np.uint64]]", length: int) -> "np.ndarray[Any, np.dtype[np.uint64]]":
    """The hash of every run of so many steps."""
    power = np.uint64(pow(int(BASE), length, 1 << 64))
    with np.errstate(over="ignore"):
        before = sums[: max(0, len(sums) - length)]
        found: np.ndarray[Any, np.dtype[np.uint64]] = sums[length:] - before * power
    return found


def shape(piece: Grid) -> list[tuple[int, ...]]:
    """A piece without its key: how far voices are apart, and how far the bass moves."""
    moves = [after[3] - before[3] for before, after in itertools.pairwise(piece)]
    apart = [tuple(step[voice] - step[3] for voice in range(3)) for step in piece[1:]]
    return [(*one, move) for one, move in zip(apart, moves, strict=True)]


if __name__ == "__main__":
    main()
