"""Answers that are there to be seen: sure and unsure words, the next token's choices, merges, vectors, parameters, a training."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from glassformer.errors import InputError
from glassformer.tasks.look import Look
from glassformer.tasks.metrics import read_lines

if TYPE_CHECKING:
    from glassformer.tasks.library import Table
    from glassformer.tokenizers import Tokenizer, WatchedWord

MOST_PIECES = 1_000_000
POINTS = 400  # of a training's curve: each is the mean of its stretch


def steps_of(word: "WatchedWord") -> list[tuple[tuple[str, str], int, list[str]]]:
    """(pair, rank, pieces after it) of every merge; of a very long word only the first, for each has all its pieces."""
    pieces = list(word.symbols)
    steps = []
    for pair, rank, at in word.steps[: MOST_PIECES // max(1, len(pieces))]:
        pieces[at : at + 2] = ["".join(pair)]
        steps.append((pair, rank, list(pieces)))
    return steps


def merges(tokenizer: "Tokenizer", text: str, *, special: bool = False) -> Look:
    """How the words of a text become tokens, merge by merge."""
    rows: list[list[Any]] = []
    drawn: list[tuple[str, list[str], int | None]] = []
    for word in tokenizer.watch(text, special=special):
        start = list(word.symbols) if word.steps else word.pieces
        drawn.append(("bytes", [tokenizer.shown(piece) for piece in start], None))
        for ((a, b), rank, pieces), step in zip(steps_of(word), word.steps, strict=False):
            shown = [tokenizer.shown(piece) for piece in pieces]
            drawn.append((f"rank {rank:,}", shown, step.at))
            rows.append(
                [tokenizer.shown(word.symbols), rank, tokenizer.shown(a), tokenizer.shown(b), " ".join(shown)]
            )
        drawn.append(("ids", list(map(str, word.ids)), None))
    if not drawn:
        raise InputError("there is nothing to merge: the text is empty")
    columns = ["word", "rank", "left", "right", "pieces"]
    tokens = [
        tokenizer.shown(piece) for word in tokenizer.watch(text, special=special) for piece in word.pieces
    ]
    return Look("merges", f"byte pair encoding of {text[:60]!r}", tokens, {}, columns, rows, seen=drawn)


def parameters(table: "Table") -> Look:
    """Where a model's parameters are."""
    rows: list[list[Any]] = [
        [row.name, " × ".join(map(str, row.shape)), 1, row.parameters] for row in table.whole
    ]
    each = [
        [
            f"{table.blocks} × {row.name}",
            " × ".join(map(str, row.shape)),
            table.blocks,
            row.parameters * table.blocks,
        ]
        for row in table.block
    ]
    rows = [*rows[:2], *each, *rows[2:]]
    caption = f"{table.name}: {table.total:,} parameters, {table.dtype}"
    numbers = {"parameters": np.array([row[3] for row in rows])}
    return Look("parameters", caption, [], numbers, ["tensor", "shape", "times", "parameters"], rows)


def curve(files: Sequence[Path]) -> Look:
    """The loss of a training over its tokens, from its metrics.jsonl; several are parts of one training, in their order."""
    steps, held_out, before = [], [], 0.0
    for file in files:
        tokens = before
        if not file.is_file():
            raise InputError(f"{file}: there is no such file")
        for line in read_lines(file):
            if "tokens" in line and isinstance(line.get("loss"), float | int):
                tokens = before + line["tokens"] / 1e6
                steps.append((tokens, float(line["loss"])))
            elif isinstance(line.get("held_out"), float | int):
                held_out.append((tokens, float(line["held_out"])))
        before = tokens
    if not steps:
        raise InputError(f"{files[0]}: is not the metrics.jsonl of a training, or has no step yet")
    size = max(1, len(steps) // POINTS)
    stretches = (np.mean(steps[at : at + size], axis=0) for at in range(0, len(steps), size))
    mean = [(float(x), float(loss)) for x, loss in stretches]
    places = sorted({x for x, _ in (*mean, *held_out)})
    found = {"training": dict(mean), "held out": dict(held_out)}
    series = {name: np.array([points.get(x, np.nan) for x in places]) for name, points in found.items()}
    low, high = (float(limit(one for _, one in (*mean, *held_out))) for limit in (min, max))
    numbers = {"millions of tokens": places, **series, "high": low + 2.5 if high > low + 2.5 else None}
    rows: list[list[Any]] = [[x, *(points.get(x) for points in found.values())] for x in places]
    named = (
        files[-1].parent.name if files[-1].name == "metrics.jsonl" else ", ".join(file.stem for file in files)
    )
    caption = f"{named}: loss"
    return Look("curve", caption, [], numbers, ["millions of tokens", *found], rows)
