"""Measure a model on text it has not seen: perplexity, bits per byte, LAMBADA. Each protocol says in words what it does."""

import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from glassformer.data.sources import find_files, read_pieces, read_texts
from glassformer.errors import InputError
from glassformer.tasks.complete import LanguageModel

NAMED = {"wikitext2": "wikitext2/wiki.test.raw.gz", "lambada": "lambada/lambada_test.jsonl.gz"}
ROWS = 4
Progress = Callable[[int, int], object]


@dataclass(frozen=True)
class Measurement:
    """What came out, and how it was measured."""

    name: str
    protocol: str
    tokens: int  # how many were scored
    loss: float  # nats a token
    perplexity: float
    bits_per_byte: float | None = None
    accuracy: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Everything, as plain data."""
        return {key: value for key, value in vars(self).items() if value is not None}


@dataclass
class Score:
    """−log p of tokens, added up."""

    nats: float = 0.0
    tokens: int = 0
    size: int = 0  # bytes that these tokens stand for


def measure(
    lm: LanguageModel,
    what: str,
    *,
    stride: int = 0,
    documents: int = 0,
    characters: int = 0,
    field: str = "text",
    progress: Progress = lambda done, total: None,
) -> Iterator[Measurement]:
    """Measure a model on `wikitext2`, `lambada`, or a file of text or JSON lines.

    Windows are as long as the model's context. `stride` is how far they move in the second measurement (0: half a window);
    `documents` and `characters` take only so many of the file, and of each.
    """
    stride = stride or lm.stepper.context // 2
    if not 1 <= stride <= lm.stepper.context:
        raise InputError(f"stride must be between 1 and the context of {lm.stepper.context}, not {stride}")
    if documents < 0 or characters < 0:
        raise InputError("documents and characters must be at least 0")
    if what == "lambada":
        yield _lambada(lm, _named(what), documents, progress)
        return
    if what == "wikitext2":
        text = wikitext(_named(what))
        rows = [lm.encode(text)]
        protocol = "the raw test set, its lines joined by two line ends, as one text"
    else:
        rows = list(_rows(lm, Path(what), documents, characters, field))
        cut = f", the first {characters} characters of each" if characters else ""
        each = f"each of {len(rows):,} documents" if len(rows) > 1 else "the text"
        protocol = f"{each}{cut}, from <|endoftext|> on"
    steps = {"without overlap": lm.stepper.context, f"stride {stride}": stride}
    total = sum(
        sum(1 for _ in windows(len(row), lm.stepper.context, step)) for row in rows for step in steps.values()
    )
    done = 0
    for name, step in steps.items():
        score = Score()
        for rows_done in _score(lm, rows, step, score):
            done += rows_done
            progress(done, total)
        loss = score.nats / score.tokens
        how = f"windows of {lm.stepper.context} tokens, moving by {step}; every token is scored once, with what stands before it"
        yield Measurement(
            f"{what}, {name}", f"{protocol}; {how} in its window; its first token is not scored", score.tokens, loss,
            math.exp(min(loss, 700.0)), score.nats / math.log(2) / score.size,
        )  # fmt: skip


def windows(length: int, context: int, stride: int) -> Iterator[tuple[int, int, int]]:
    """(begin, end, first): tokens begin … end are read, those from `first` on are scored; no token is scored twice."""
    scored = 0
    for begin in range(0, length, stride):
        end = min(begin + context, length)
        first = max(scored, begin + 1)
        if first < end:
            yield begin, end, first
        scored = end
        if end == length:
            return


def _logits(lm: LanguageModel, ids: torch.Tensor) -> torch.Tensor:
    """Scores after every position, by whoever speaks for the model: (B, T) -> (B, T, V)."""
    if lm.engine is not None and lm.stepper is lm.engine:
        return torch.from_numpy(np.stack([lm.engine.logits(row) for row in ids.numpy()]))
    return lm.model(ids.to(lm.model.tokens.weight.device)).float()  # type: ignore[no-any-return]


@torch.inference_mode()
def _score(lm: LanguageModel, rows: Sequence[Sequence[int]], stride: int, score: Score) -> Iterator[int]:
    """Add the windows of all rows to the score, some at a time; yields how many."""
    todo = ((row, *window) for row in rows for window in windows(len(row), lm.stepper.context, stride))
    while group := list(islice(todo, ROWS)):
        longest = max(end - begin for _, begin, end, _ in group)
        ids = torch.zeros(len(group), longest, dtype=torch.long)
        for i, (row, begin, end, _) in enumerate(group):
            ids[i, : end - begin] = torch.tensor(
                row[begin:end]
            )  # what is behind the end cannot be seen from before it
        logits = _logits(lm, ids[:, :-1])  # (B, T - 1, V)
        for i, (row, begin, end, first) in enumerate(group):
            targets = torch.tensor(row[first:end], device=logits.device)
            at = logits[i, first - begin - 1 : end - begin - 1]
            score.nats += float(
                torch.nn.functional.cross_entropy(at, targets, reduction="none").double().sum()
            )
            score.tokens += end - first
            score.size += sum(len(lm.tokenizer.bytes_of(id)) for id in row[first:end]) if lm.tokenizer else 0
        yield len(group)


@torch.inference_mode()
def _lambada(lm: LanguageModel, path: Path, documents: int, progress: Progress) -> Measurement:
    examples = list(islice(read_texts(path), documents or None))
    nats, right, tokens = 0.0, 0, 0
    for number, text in enumerate(examples, 1):
        begin, _, word = text.rpartition(" ")
        target = lm.encode(" " + word)
        ids = torch.tensor([[*lm.encode(begin), *target][-lm.stepper.context :]])
        logits = _logits(lm, ids)[0, -len(target) - 1 : -1]  # (T, V)
        wanted = ids[0, -len(target) :].to(logits.device)
        nats += float(torch.nn.functional.cross_entropy(logits, wanted, reduction="sum"))
        right += bool((logits.argmax(-1) == wanted).all())
        tokens += len(target)
        progress(number, len(examples))
    loss = nats / len(examples)
    return Measurement(
        "lambada",
        "OpenAI's detokenized test set: the last word of each passage, all of its tokens, without a filter for stop words;"
        " accuracy: each is the likeliest; perplexity: exp of the mean −log p of the words",
        tokens, nats / tokens, math.exp(min(loss, 700.0)), accuracy=right / len(examples),
    )  # fmt: skip


def wikitext(path: Path) -> str:
    """WikiText's raw test set as the Hugging Face page on perplexity reads it: empty lines are rows of nothing."""
    text = "".join(piece.text for piece in read_pieces(path))
    return "\n\n".join(line if line.strip() else "" for line in text.splitlines(keepends=True))


def _rows(lm: LanguageModel, path: Path, documents: int, characters: int, field: str) -> Iterator[list[int]]:
    start = lm.encode("")
    texts: Iterable[str] = (text for file in find_files(path) for text in read_texts(file, field=field))
    for text in islice(texts, documents or None):
        yield start + lm.encode(text[: characters or None])


def _named(name: str) -> Path:
    folder = os.environ.get("GLASSFORMER_DATA")
    path = Path(folder or ".") / NAMED[name]
    if not path.is_file():
        looked = f"{path} is not there" if folder else "GLASSFORMER_DATA is not set"
        raise InputError(
            f"{name}: {looked}; set GLASSFORMER_DATA to the folder that holds {NAMED[name]}, or measure on a file"
        )
    return path
