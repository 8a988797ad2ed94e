"""What the studio's pages look at: a text read once, and answers about it that are kept for a while.

Numbers of the next token come from the backend that generates; all else from torch, in the model's lane.
"""

import codecs
import json
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from glassformer.answers.answer import plain
from glassformer.errors import InputError
from glassformer.generation.sampling import entropy_bits, log_softmax
from glassformer.server.errors import invalid
from glassformer.server.explain import answered, parse
from glassformer.tasks.completion import Completion
from glassformer.tokenizers import pieces

if TYPE_CHECKING:
    from glassformer.answers.answer import Answer
    from glassformer.server.served import Served

Array = np.ndarray[Any, Any]
Value = TypeVar("Value")
TOP = 10  # likeliest tokens after every position
ANSWERS = 48  # that are kept
MOST_BYTES = 256 << 20  # of what is kept
ROWS = 256  # positions whose distributions are in memory at once


def weight(value: object) -> int:
    """The bytes of the arrays that a value holds: what counts in memory."""
    held = vars(value).values() if hasattr(value, "__dict__") else ()
    return sum(one.nbytes for one in held if isinstance(one, np.ndarray))


class Recent(Generic[Value]):
    """The last values that were computed, by what they depend on; bounded in number and in bytes."""

    def __init__(self, most: int, *, most_bytes: int = MOST_BYTES) -> None:
        self.most, self.most_bytes = most, most_bytes
        self._kept: OrderedDict[Hashable, Value] = OrderedDict()

    def get(self, key: Hashable) -> Value | None:
        """A value, which by that becomes the last used."""
        if key in self._kept:
            self._kept.move_to_end(key)
        return self._kept.get(key)

    def put(self, key: Hashable, value: Value) -> Value:
        """Keep a value; those that were not used for longest go. The last one stays, however large."""
        self._kept[key] = value
        while len(self._kept) > 1 and (len(self._kept) > self.most or self._size() > self.most_bytes):
            self._kept.popitem(last=False)
        return value

    def _size(self) -> int:
        return sum(map(weight, self._kept.values()))


# A text, read once


def read(served: "Served", ids: Sequence[int]) -> dict[str, Any]:
    """A text as the page shows it: its tokens, how likely each was, and what else could have come."""
    texts, ends = spans(served, ids)
    logprobs: list[float | None] = [None]
    ranks: list[int | None] = [None]
    entropies: list[float] = []
    tops: list[list[list[float]]] = []
    for at, row in enumerate(_distributions(served, ids)):
        entropies.append(entropy_bits(row))
        best = _likeliest(row)
        tops.append([[int(id), float(row[id])] for id in best])
        if at + 1 < len(ids):
            chosen = float(row[ids[at + 1]])
            logprobs.append(chosen)
            ranks.append(int((row > chosen).sum()) + 1)
    known = sorted({int(id) for top in tops for id, _ in top} | set(ids))
    return {
        "model": served.id,
        "engine": served.model.backend.name,
        "context": served.context,
        "vocab": served.vocab,
        "ids": list(ids),
        "texts": texts,
        "ends": ends,
        "logprobs": plain(logprobs),
        "ranks": ranks,
        "entropies": plain(entropies),
        "tops": plain(tops),
        "names": {str(id): name for id, name in zip(known, labels(served, known), strict=True)},
    }


def _likeliest(row: Array) -> Array:
    """The ids of the largest values, largest first, of equal ones the lower id; the rest is not sorted."""
    if len(row) <= TOP:
        return np.argsort(-row, kind="stable")
    least = np.partition(row, -TOP)[-TOP]
    found = np.flatnonzero(row >= least)
    return found[np.argsort(-row[found], kind="stable")[:TOP]]


def _distributions(served: "Served", ids: Sequence[int]) -> "Any":
    """The log-probabilities of the next token after every position, one row after the other."""
    logits = served.model.backend.logits(np.array([ids], dtype=np.int64))[0]  # (T, V)
    for start in range(0, len(logits), ROWS):
        for row in logits[start : start + ROWS]:
            yield log_softmax(np.asarray(row[: served.vocab], dtype=np.float64))


def scores(served: "Served", ids: Sequence[int]) -> bytes:
    """The logits of every token of the vocabulary after a text, as little-endian float32."""
    row = served.model.next_logits(list(ids))[: served.vocab]
    return np.ascontiguousarray(row, dtype="<f4").tobytes()


def spans(served: "Served", ids: Sequence[int]) -> tuple[list[str], list[int]]:
    """The text that each token adds, and where it ends in the whole, in UTF-16 units as a browser counts.

    A token that ends inside of a character adds nothing; the one that completes it adds all of it.
    """
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    texts, ends, end = [], [], 0
    raws = pieces(served.model.tokenizer, ids)
    for at, raw in enumerate(raws):
        text = decoder.decode(raw, final=at + 1 == len(raws))
        end += len(text.encode("utf-16-le", "replace")) // 2
        texts.append(text)
        ends.append(end)
    return texts, ends


def labels(served: "Served", ids: Sequence[int]) -> list[str]:
    """Tokens by themselves; bytes that are no whole character are shown as numbers."""
    found = []
    for id in ids:
        raw = served.model.bytes_of(id)
        try:
            found.append(raw.decode())
        except UnicodeDecodeError:
            found.append("".join(f"‹{byte:02x}›" for byte in raw))
    return found


# Answers, and their pictures


def completion(served: "Served", ids: Sequence[int], *, prompt: int) -> Completion:
    """A text of which the first `prompt` tokens were given, as a result that can be asked."""
    model = served.writer
    given, written = list(ids[:prompt]), list(ids[prompt:])
    logprobs: list[float] = []
    if written:
        rows = model.backend.logits(np.array([ids], dtype=np.int64))[0][prompt - 1 : -1]
        logprobs = [float(log_softmax(row)[id]) for row, id in zip(rows, written, strict=True)]
    text = model.text_of(written, given[-1] if given else None)
    return Completion(
        model.text_of(given), given, 0, 0, tokens=written, text=text, logprobs=logprobs, model=model
    )


class Answers:
    """Questions of the pages, each answered once for a text."""

    def __init__(self) -> None:
        self._kept: Recent[Answer] = Recent(ANSWERS)

    def find(
        self, served: "Served", question: str, *, ids: Sequence[int], prompt: int, options: dict[str, Any]
    ) -> "Answer":
        """The answer to a question of `explain`, with its options; in the lane's thread."""
        if question == "top":
            return _candidates(served, ids, options)
        how = parse(served, {question: options}).questions[question]
        key = (served.id, question, tuple(ids), prompt, json.dumps(how, sort_keys=True))
        kept = self._kept.get(key)
        if kept is not None:
            return kept
        try:
            if question == "probabilities":  # by the backend that generates, as the page has them
                found: Any = served.writer.probabilities(list(ids), given=prompt)
            else:
                found = answered(completion(served, ids, prompt=prompt), question, options=how)
        except InputError as error:
            raise invalid(question, str(error)) from None
        if not hasattr(found, "view"):
            raise invalid("question", f"{question} has no picture")
        return self._kept.put(key, found)


SAMPLING = ("temperature", "top_k", "top_p", "min_p")


def _candidates(served: "Served", ids: Sequence[int], options: dict[str, Any]) -> "Answer":
    """The likeliest next tokens as `glass top` has them, and which of them may be sampled."""
    unknown = next((name for name in options if name not in ("k", *SAMPLING)), None)
    if unknown is not None:
        raise invalid(f"options.{unknown[:40]}", "is not an option of top")
    try:
        return served.writer.top(list(ids), **options)
    except (InputError, TypeError) as error:
        raise invalid("options", str(error)) from None


def pooled(patterns: Array, most: int) -> Array:
    """(…, T, S) as (…, ≤ most, ≤ most): the largest of each patch, so that no strong weight is lost."""
    for axis in (-2, -1):
        size = patterns.shape[axis]
        by = -(-size // most)
        if by > 1:
            patterns = np.maximum.reduceat(patterns, np.arange(0, size, by), axis)
    return patterns
