"""Evaluate a model on text it has not seen: perplexity, bits per byte, LAMBADA, each with its protocol."""

import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np

from glassformer.data.sources import find_files, read_pieces, read_texts
from glassformer.durable import hash_file
from glassformer.errors import InputError
from glassformer.hub.locate import locate
from glassformer.tasks.backends import Backend
from glassformer.tasks.complete import LanguageModel

NAMED = {"wikitext2": "wikitext2/wiki.test.raw.gz", "lambada": "lambada/lambada_test.jsonl.gz"}
ROWS = 4  # windows that are scored at once
CARD_DIGITS = 16  # of the hashes in a model's card
UNLIMITED = 1024  # tokens of a window, for a model without a limit
Array = np.ndarray[Any, Any]
Progress = Callable[[int, int], object]


@dataclass(frozen=True)
class Measurement:
    """A figure, and how it was measured."""

    name: str
    protocol: str
    tokens: int  # scored
    loss: float  # nats a token
    perplexity: float
    bits_per_byte: float | None = None
    accuracy: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Everything, as plain data."""
        return {key: value for key, value in vars(self).items() if value is not None}


@dataclass
class Score:
    """The sum of −log p over tokens."""

    nats: float = 0.0
    tokens: int = 0
    size: float = 0  # bytes of the text that these tokens were read from

    def measurement(self, name: str, protocol: str) -> Measurement:
        """The score as a result."""
        loss = self.nats / self.tokens
        bits = self.nats / math.log(2) / self.size if self.size else None
        return Measurement(name, protocol, self.tokens, loss, math.exp(min(loss, 700.0)), bits)


@dataclass(frozen=True)
class Row:
    """The tokens of a document; `scale` is bytes of the text per byte of its tokens."""

    ids: list[int]
    scale: float


def evaluate(
    lm: LanguageModel,
    what: str,
    *,
    stride: int = 0,
    documents: int = 0,
    characters: int = 0,
    field: str = "text",
    progress: Progress = lambda done, total: None,
) -> Iterator[Measurement]:
    """Evaluate a model on `wikitext2`, `lambada`, or a file of text or JSON lines.

    Windows are as long as the model's context. `stride` is how far they move in the second measurement (0:
    half a window). `documents` and `characters` limit the number of documents, and the length of each; 0 is
    no limit.
    """
    if documents < 0 or characters < 0:
        raise InputError("documents and characters must be at least 0")

    if what == "lambada":
        yield lambada(lm, named(what), documents=documents, progress=progress)
    elif what == "wikitext2":
        yield from wikitext2(lm, named(what), stride=stride, progress=progress)
    else:
        texts = islice(_texts(Path(what), field), documents or None)
        rows, protocol = _documents(lm, texts, characters)
        yield from _perplexity(lm, rows, name=what, protocol=protocol, stride=stride, progress=progress)


def was_trained_on(model: str, what: str, *, revision: str | None = None) -> bool:
    """Whether a model's card lists a file of this source, by its hash, among those it was trained on."""
    card = locate(model, revision=revision, offline=True) / "card.md"
    if what in NAMED or not card.is_file():
        return False
    text = card.read_text(encoding="utf-8", errors="replace")
    return any(hash_file(file)[:CARD_DIGITS] in text for file in find_files(Path(what)))


def wikitext2(
    lm: LanguageModel,
    path: Path,
    *,
    stride: int = 0,
    characters: int = 0,
    progress: Progress = lambda done, total: None,
) -> Iterator[Measurement]:
    """Perplexity on WikiText-2's raw test set, or on its beginning: without overlap, and with a stride."""
    rows = [_row(lm, wikitext(path)[: characters or None])]
    protocol = "the raw test set, its lines joined by two line ends, as one text"
    yield from _perplexity(lm, rows, name="wikitext2", protocol=protocol, stride=stride, progress=progress)


def _documents(lm: LanguageModel, texts: Iterable[str], characters: int) -> tuple[list[Row], str]:
    """Documents as tokens, each behind the token that begins a text, and how they were read."""
    begins = lm.tokenizer is not None and lm.tokenizer.end is not None
    start = lm.encode("") if begins else []
    rows = [_row(lm, text[: characters or None], start=start) for text in texts]
    return rows, _describe(len(rows), characters, started=bool(start))


def _perplexity(
    lm: LanguageModel, rows: Sequence[Row], *, name: str, protocol: str, stride: int, progress: Progress
) -> Iterator[Measurement]:
    """Every token of some documents: in windows without overlap, and in windows that move by a stride."""
    backend = lm.backend
    context = backend.context or UNLIMITED
    stride = stride or context // 2
    if not 1 <= stride <= context:
        raise InputError(f"stride must be between 1 and the context of {context}, not {stride}")
    strides = {"without overlap": context, f"stride {stride}": stride}
    total = sum(
        len(list(windows(len(row.ids), context, stride=step))) for row in rows for step in strides.values()
    )
    done = 0
    for kind, step in strides.items():
        score = Score()
        for count in _score(lm, backend, rows, windows_of=context, stride=step, score=score):
            done += count
            progress(done, total)
        scored = "each token after the first" if step < context else "all but the first token of each window"
        how = f"windows of {context} tokens, moving by {step}; scored once: {scored}, from those before it"
        yield score.measurement(f"{name}, {kind}", f"{protocol}; {how} in its window")


def _row(lm: LanguageModel, text: str, start: Sequence[int] = ()) -> Row:
    ids = lm.encode(text)
    size = _bytes(lm, [*start, *ids]) if start else _bytes(lm, ids) + len(lm.bytes_of(ids[0]))
    return Row([*start, *ids], len(text.encode("utf-8", "replace")) / size if size else 1.0)


def _describe(documents: int, characters: int, *, started: bool) -> str:
    each = f"each of {documents:,} documents" if documents > 1 else "the text"
    cut = f", the first {characters} characters of each" if characters else ""
    return f"{each}{cut}" + (", from <|endoftext|> on" if started else "")


def windows(length: int, context: int, *, stride: int) -> Iterator[tuple[int, int, int]]:
    """(begin, end, first): tokens begin … end are read, those from `first` on are scored, each once."""
    scored = 0
    for begin in range(0, length, stride):
        end = min(begin + context, length)
        first = max(scored, begin + 1)
        if first < end:
            yield begin, end, first
        scored = end
        if end == length:
            return


def _nats(backend: Backend, logits: Array, targets: Sequence[int]) -> Array:
    """−log p of each target, from the logits (T, V) before it."""
    sums = np.array(backend.log_sums(np.ascontiguousarray(logits)))
    chosen = logits[np.arange(len(targets)), list(targets)].astype(np.float64)
    nats: Array = sums - chosen
    return nats


def _score(
    lm: LanguageModel,
    backend: Backend,
    rows: Sequence[Row],
    *,
    windows_of: int,
    stride: int,
    score: Score,
) -> Iterator[int]:
    """Add the windows of all rows to the score, some at a time; yields their number."""
    todo = ((row, *window) for row in rows for window in windows(len(row.ids), windows_of, stride=stride))
    while group := list(islice(todo, ROWS)):
        longest = max(end - begin for _, begin, end, _ in group)
        ids = np.zeros((len(group), longest), dtype=np.int64)
        for i, (row, begin, end, _) in enumerate(group):
            ids[i, : end - begin] = row.ids[begin:end]  # the padding behind it cannot be seen from before it
        logits = backend.logits(ids[:, :-1])  # (B, T - 1, V)
        for i, (row, begin, end, first) in enumerate(group):
            targets = row.ids[first:end]
            before = logits[i, first - begin - 1 : end - begin - 1]
            score.nats += float(_nats(backend, before, targets).sum())
            score.tokens += len(targets)
            score.size += row.scale * _bytes(lm, row.ids[first - 1 : end])
        yield len(group)


def _bytes(lm: LanguageModel, ids: Sequence[int]) -> int:
    """The bytes of all tokens but the first, which is there because the bytes of a token may depend on it."""
    if lm.tokenizer is None:
        return 0
    return sum(len(lm.tokenizer.bytes_of(id, after)) for after, id in pairwise(ids))


def lambada(
    lm: LanguageModel, path: Path, *, documents: int = 0, progress: Progress = lambda done, total: None
) -> Measurement:
    """The last word of each passage of LAMBADA, or of the first `documents`."""
    backend = lm.backend
    texts = list(islice(read_texts(path), documents or None))
    nats, right, tokens = 0.0, 0, 0
    for number, text in enumerate(texts, 1):
        begin, _, word = text.rpartition(" ")
        target = lm.encode(" " + word)
        ids = [*lm.encode(begin), *target][-(backend.context or UNLIMITED) :]
        before = backend.logits(np.array([ids[:-1]], dtype=np.int64))[0, -len(target) :]  # (T, V)
        nats += float(_nats(backend, before, ids[-len(target) :]).sum())
        right += bool((before.argmax(-1) == ids[-len(target) :]).all())
        tokens += len(target)
        progress(number, len(texts))
    protocol = (
        "OpenAI's detokenized test set: the last word of each passage, all of its tokens, without a filter"
        " for stop words; accuracy: each is the likeliest; perplexity: exp of the mean −log p of the words"
    )
    perplexity = math.exp(min(nats / len(texts), 700.0))
    return Measurement("lambada", protocol, tokens, nats / tokens, perplexity, accuracy=right / len(texts))


def wikitext(path: Path) -> str:
    """WikiText's raw test set as Hugging Face's page on perplexity reads it: empty lines are empty rows."""
    text = "".join(piece.text for piece in read_pieces(path))
    return "\n\n".join(line if line.strip() else "" for line in text.splitlines(keepends=True))


def _texts(path: Path, field: str) -> Iterable[str]:
    return (text for file in find_files(path) for text in read_texts(file, field=field))


def named(name: str, folder: Path | None = None) -> Path:
    """The file of a data set, in a folder or in the one that GLASSFORMER_DATA names."""
    given = folder or os.environ.get("GLASSFORMER_DATA")
    path = Path(given or ".") / NAMED[name]
    if not path.is_file():
        looked = f"{path} does not exist" if given else "GLASSFORMER_DATA is not set"
        raise InputError(f"{name}: {looked}; set GLASSFORMER_DATA to the folder that holds {NAMED[name]}")
    return path
