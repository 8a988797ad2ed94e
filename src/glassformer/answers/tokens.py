"""Tokens: which a text is made of, how they are merged, what goes into the first block, which come next."""

import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, overload

import numpy as np

from glassformer.answers.answer import (
    Answer,
    Array,
    Cell,
    Column,
    Table,
    Text,
    answer,
    labels,
    vocabulary_of,
)
from glassformer.errors import InputError, counted
from glassformer.figures.color import magnitude, signed
from glassformer.figures.labels import cut, percent
from glassformer.figures.marks import Spec
from glassformer.figures.specs import bars, matrix, names, panels, strip
from glassformer.generation.options import Options
from glassformer.generation.sampling import adjust, distribution, log_softmax, restrict
from glassformer.tokenizers import tokenizer as vocabularies

if TYPE_CHECKING:
    from glassformer.tokenizers import Tokenizer, WatchedWord

UNCUTTING = ("temperature", "repetition")  # settings that change probabilities and cut no token off
UNFILTERED = Options(temperature=1.0, top_k=0)
MOST_PIECES = 1_000_000  # over all steps of one word, each of which holds all its pieces
MOST_BOXES = 4_000  # pieces that a picture of merges shows
MOST_STRIPS = 12  # tokens whose vectors a picture shows
MOST_LETTERS = 14  # columns of a token's name beside its vectors: "+ position 999" needs as many
MOST_CELLS = 800  # numbers of a vector that a picture shows side by side


# top: the likeliest next tokens


@dataclass(frozen=True)
class Candidate:
    """A token that could come next."""

    token: int
    text: str
    probability: float
    logprob: float


@answer
class Top(Answer, Sequence[Candidate]):
    """The likeliest next tokens, and which of them may be sampled; also a sequence of `Candidate`."""

    kind = "top"

    candidates: list[Candidate]
    kept: list[bool]  # whether a filter (top-k, top-p, min-p) leaves each of them
    settings: str  # how tokens are chosen, in a few words

    @overload
    def __getitem__(self, at: int) -> Candidate: ...
    @overload
    def __getitem__(self, at: slice) -> list[Candidate]: ...
    def __getitem__(self, at: int | slice) -> Candidate | list[Candidate]:
        return self.candidates[at]

    def __len__(self) -> int:
        return len(self.candidates)

    def __eq__(self, other: object) -> bool:
        return self.candidates == list(other) if isinstance(other, Sequence) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def make_table(self) -> Table:
        """Rank, token, probability, and whether it may be sampled."""
        columns = [
            Column("rank", "rank", key=True),
            Column("token", "token", key=True),
            Column("probability", "share"),
            Column("may be sampled", "bool"),
        ]
        rows: list[list[Cell]] = []
        for n, name in enumerate(self.tokens):
            rows.append([n + 1, name, self.candidates[n].probability, self.kept[n]])
        return Table(columns, rows)

    def draw(self) -> Spec:
        """Bars, and where the choice is cut off."""
        chances = [one.probability for one in self.candidates]
        spec = bars(names(self.tokens), chances, unit="percent")
        count = sum(self.kept)
        if count < len(self.kept):
            filters = [one for one in self.settings.split(", ") if one.split()[0] not in UNCUTTING]
            spec["cut"] = {"after": count, "label": f"cut off by {', '.join(filters)}"}
        return spec


def top(text: Text, *, k: int = 10, options: Options = UNFILTERED) -> Top:
    """The likeliest next tokens, and which of them are cut off before one is sampled."""
    if type(k) is not int or k < 1:
        raise InputError(f"k must be a whole number of at least 1, not {k!r}")

    tokenizer = text.lm.tokenizer
    raw = restrict(text.next_logits())
    logits = adjust(raw, options, prompt=text.ids, answer=[])
    known = len(logits) if tokenizer is None else len(tokenizer)

    logprobs = log_softmax(logits.astype(np.float64) / (options.temperature or 1.0))
    best = np.argsort(-logprobs[:known], kind="stable")[:k]
    kept = np.arange(len(best)) == 0  # greedy: the likeliest alone
    if not options.greedy:
        kept = distribution(logits[:known], options)[best] > 0

    settings = _without_seed(options)
    after = repr(text.whole) if len(text.whole) <= 40 else f"…{text.whole[-40:]!r}"
    caption = f"{text.name}: the likeliest tokens after {after}"
    if kept.all() and settings != _without_seed(UNFILTERED):
        caption += f"; all {k} may be sampled ({settings})"
    return Top(
        caption=caption,
        tokens=text.labels_of(best.tolist(), after=text.ids[-1]),
        candidates=candidates_of(tokenizer, logprobs, ids=best),
        kept=kept.tolist(),
        settings=settings,
    )


def candidates_of(tokenizer: "Tokenizer | None", logprobs: Array, *, ids: Array) -> list[Candidate]:
    """Tokens with their probabilities; in their text, part of a character is shown as U+FFFD."""
    found = []
    for id in ids.tolist():
        text = f"<{id}>" if tokenizer is None else tokenizer.decode([id])
        found.append(Candidate(id, text, float(np.exp(logprobs[id])), float(logprobs[id])))
    return found


def _without_seed(options: Options) -> str:
    return options.summary().rpartition(", seed")[0] or "greedy choice"


# tokens: which tokens a text is made of


@answer
class Tokens(Answer):
    """The tokens of a text and their ids."""

    kind = "tokens"

    ids: list[int]
    sizes: list[int]  # bytes of each token
    parts: list[str]  # of a token that ends or begins inside a character: which part of which, as 1/4 😀

    def make_table(self) -> Table:
        """Every token with its id."""
        columns = [
            Column("position", "count", key=True),
            Column("token", "token", key=True),
            Column("id", "count"),
            Column("bytes", "count"),
        ]
        columns += [Column("part of", "token")] if any(self.parts) else []
        rows: list[list[Cell]] = []
        for at, name in enumerate(self.tokens):
            row: list[Cell] = [at, name, self.ids[at], self.sizes[at]]
            rows.append([*row, self.parts[at]] if any(self.parts) else row)
        return Table(columns, rows)

    def draw(self) -> Spec:
        """The tokens in the color of their length, with their ids below."""
        longest = float(max(self.sizes, default=1))
        notes = [f"{id} {part}".rstrip() for id, part in zip(self.ids, self.parts, strict=True)]
        scale = magnitude("bytes per token; below each its id", longest)
        return strip(self.tokens, self.sizes, scale=scale, notes=notes)

    def finding(self) -> str:
        """How many there are, and the longest."""
        at = int(np.argmax(self.sizes))
        sizes = f"{counted(len(self.ids), 'token')}, {counted(sum(self.sizes), 'byte')}"
        return f"{sizes}; the longest is {self.tokens[at]!r}"


def tokens(tokenizer: "Tokenizer", text: str, *, special: bool = False, model: str = "") -> Tokens:
    """The tokens that a text is made of; `model` is the name of the model whose tokenizer it is."""
    ids = tokenizer.encode(text, special=special)
    if not ids:
        raise InputError("there are no tokens: the text is empty")
    return Tokens(
        caption=f"{vocabulary_of(tokenizer, model)}: tokens of {text[:60]!r}",
        tokens=labels(tokenizer, ids),
        ids=ids,
        sizes=[len(piece) for piece in vocabularies.pieces(tokenizer, ids)],
        parts=split_characters(tokenizer, ids),
    )


def split_characters(tokenizer: "Tokenizer", ids: Sequence[int]) -> list[str]:
    """Of every token that has only some bytes of a character: which part of which, as 1/4 😀; else ""."""
    pieces = vocabularies.pieces(tokenizer, ids)
    edges = list(itertools.accumulate(map(len, pieces), initial=0))
    found = [""] * len(pieces)
    start = 0
    for char in b"".join(pieces).decode("utf-8", "surrogateescape"):
        end = start + len(char.encode("utf-8", "surrogateescape"))
        first, last = bisect_right(edges, start) - 1, bisect_left(edges, end) - 1
        for part, at in enumerate(range(first, last + 1), start=1):
            if last > first:
                found[at] = f"{found[at]} {part}/{last - first + 1} {char}".strip()
        start = end
    return found


# merges: how words become tokens


@dataclass(frozen=True)
class Merge:
    """One merge of a word: the pair, its rank, and the pieces after it."""

    pair: tuple[str, str]
    rank: int
    pieces: list[str]
    at: int  # which of the pieces is new


@dataclass(frozen=True)
class MergedWord:
    """A word from its bytes to its ids; `omitted` merges of a very long one are left out."""

    text: str
    symbols: list[str]
    merges: list[Merge]
    pieces: list[str]
    ids: list[int]
    omitted: int = 0

    @property
    def start(self) -> list[str]:
        """The pieces before the first merge."""
        return self.symbols if self.merges or self.omitted else self.pieces


@answer
class Merges(Answer):
    """How the words of a text become tokens, merge by merge."""

    kind = "merges"

    words: list[MergedWord] = field(default_factory=list)

    def make_table(self) -> Table:
        """A row for every merge."""
        columns = [
            Column("word", "token", key=True),
            Column("rank", "count", key=True),
            Column("left", "token"),
            Column("right", "token"),
            Column("pieces", "token"),
        ]
        rows: list[list[Cell]] = []
        for word in self.words:
            for merge in word.merges:
                left, right = merge.pair
                rows.append([word.text, merge.rank, left, right, " ".join(merge.pieces)])
        return Table(columns, rows)

    def draw(self) -> Spec:
        """Boxes: every word from its bytes to its ids."""
        steps = list(self._steps())
        rows: list[Spec] = []
        room = MOST_BOXES
        for note, pieces, made in steps:
            room -= len(pieces)
            if room < 0:
                rest = counted(len(steps) - len(rows), "more step")
                rows.append({"note": "…", "pieces": [rest], "made": None})
                break
            rows.append({"note": note, "pieces": names(pieces), "made": made})
        return {"kind": "boxes", "rows": rows}

    def _steps(self) -> Iterator[tuple[str, list[str], int | None]]:
        for word in self.words:
            yield "bytes", word.start, None
            for merge in word.merges:
                yield f"rank {merge.rank:,}", merge.pieces, merge.at
            yield "ids", [str(id) for id in word.ids], None


def merges(tokenizer: "Tokenizer", text: str, *, special: bool = False, model: str = "") -> Merges:
    """How the words of a text become tokens, merge by merge; `model` is as in `tokens`."""
    watched = tokenizer.watch(text, special=special)
    distinct = {id(word): word for word in watched}  # the same word of a text is the same object
    shown = {key: merged(word, shown=tokenizer.shown) for key, word in distinct.items()}
    words = [shown[id(word)] for word in watched]
    if not words:
        raise InputError("there is nothing to merge: the text is empty")
    pieces = [piece for word in words for piece in word.pieces]
    caption = f"{vocabulary_of(tokenizer, model)}: byte pair encoding of {text[:60]!r}"
    return Merges(caption=caption, tokens=pieces, words=words)


def merged(word: "WatchedWord", *, shown: Callable[[str], str]) -> MergedWord:
    """A word with the pieces after every merge; `shown` makes people's text of the vocabulary's symbols."""
    now = word.pieces_after(0)
    symbols = [shown(one) for one in now]
    most = MOST_PIECES // max(1, len(now))

    found = []
    for pair, rank, at in word.steps[:most]:
        now[at : at + 2] = ["".join(pair)]
        found.append(Merge((shown(pair[0]), shown(pair[1])), rank, [shown(one) for one in now], at))
    return MergedWord(
        text=shown(word.symbols),
        symbols=symbols,
        merges=found,
        pieces=[shown(one) for one in word.pieces],
        ids=list(word.ids),
        omitted=len(word.steps) - len(found),
    )


# embedding: what goes into the first block


@answer
class Embedding(Answer):
    """What goes into the first block: rows of tokens, rows of positions, and their sum; (T, D) each."""

    kind = "embedding"

    token: Array
    position: Array
    sum: Array

    def make_table(self) -> Table:
        """The norms of the vectors."""
        columns = [
            Column("position", "count", key=True),
            Column("token", "token", key=True),
            Column("token norm", "number"),
            Column("position norm", "number"),
            Column("sum norm", "number"),
        ]
        norms = np.stack([np.linalg.norm(one, axis=1) for one in (self.token, self.position, self.sum)], 1)
        rows: list[list[Cell]] = []
        for at, row in enumerate(norms.tolist()):
            rows.append([at, self.tokens[at], *row])
        return Table(columns, rows)

    def every(self) -> Table:
        """The vectors: three rows for every token, a column for every component."""
        columns = [
            Column("position", "count", key=True),
            Column("token", "token", key=True),
            Column("vector", key=True),
            *(Column(str(n), "number") for n in range(self.sum.shape[1])),
        ]
        rows: list[list[Cell]] = []
        for at, name in enumerate(self.tokens):
            for which, vectors in self.data().items():
                rows.append([at, name, which, *vectors[at].tolist()])
        return Table(columns, rows)

    def draw(self) -> Spec:
        """Three rows of colored cells for every token."""
        vectors = np.stack([self.token, self.position, self.sum], 1)  # (T, 3, D)
        most = float(np.abs(vectors).max())
        size = vectors.shape[2]
        by = -(-size // MOST_CELLS)  # numbers that share a cell
        columns = [str(n) if by == 1 else f"{n}–{min(size, n + by) - 1}" for n in range(0, size, by)]
        wide = float(max(1, 720 // len(columns)))

        parts = []
        for at, name in enumerate(names(self.tokens)[:MOST_STRIPS]):
            parts.append(
                matrix(
                    [cut(name, MOST_LETTERS), f"+ position {at}", "= input"],
                    columns,
                    values=_strongest(vectors[at], by),
                    scale=signed("", most),
                    cell=[wide, 16.0],
                    label_columns=MOST_LETTERS,
                    column_labels=False,
                    legend=False,
                )
            )
        what = "each component" if by == 1 else f"the strongest of every {by} components"
        title = self.title_of_some("tokens", shown=len(parts), total=len(self.tokens))
        return panels(parts, gap=6, scale=signed(what, most)) | title


def _strongest(rows: Array, by: int) -> Array:
    """Of every `by` numbers in a row, the one that is farthest from 0."""
    found = []
    for start in range(0, rows.shape[1], by):
        group = rows[:, start : start + by]
        at = np.abs(group).argmax(1)[:, None]
        found.append(np.take_along_axis(group, at, 1)[:, 0])
    return np.stack(found, 1)


def embedding(text: Text) -> Embedding:
    """What goes into the first block: the row of each token, the row of its position, and their sum."""
    from glassformer.explain.lens import inputs

    token, position, whole = inputs(text.reading())
    return Embedding(
        caption=f"{text.name}: token + position embeddings",
        tokens=text.labels,
        token=token,
        position=position,
        sum=whole,
    )


# probabilities: how likely each generated token was


@answer
class Probabilities(Answer):
    """The probability of every generated token as the model gave it: before temperature and filters."""

    kind = "probabilities"

    prompt: int  # tokens that were given
    probability: Array  # (T,) of prompt and answer together; nan for what was given
    logprobs: list[float]
    entropies: list[float] | None = None  # bits before each of them, where all logits are known

    def make_table(self) -> Table:
        """Every generated token with its probability and, where that is known, how unsure the model was."""
        columns = [
            Column("position", "count", key=True),
            Column("token", "token", key=True),
            Column("probability", "share"),
            Column("logprob", "number"),
        ]
        rows: list[list[Cell]] = []
        for n, logprob in enumerate(self.logprobs):
            at = self.prompt + n
            rows.append([at, self.tokens[at], float(self.probability[at]), logprob])
        if self.entropies is not None:
            columns.append(Column("entropy (bits)", "number"))
            rows = [[*row, bits] for row, bits in zip(rows, self.entropies, strict=True)]
        return Table(columns, rows)

    def draw(self) -> Spec:
        """The text, each generated token in the color of its probability."""
        return strip(self.tokens, self.probability, scale=magnitude("probability"), unit="percent")

    def finding(self) -> str:
        """The least and the most probable token."""
        low = self.table().largest("probability", lambda value: -value)
        high = self.table().largest("probability")
        return f"lowest for {low[1]!r} ({percent(low[2])}), highest for {high[1]!r} ({percent(high[2])})"


def probabilities(text: Text) -> Probabilities:
    """The probability of every generated token when it was chosen."""
    if not text.generated or text.logprobs is None:
        raise InputError("nothing was generated")
    given = np.full(text.prompt, np.nan)
    return Probabilities(
        caption=f"{text.name}: probability of every generated token, before temperature and top-k or top-p",
        tokens=text.labels,
        prompt=text.prompt,
        probability=np.concatenate([given, np.exp(text.logprobs)]),
        logprobs=list(text.logprobs),
    )
