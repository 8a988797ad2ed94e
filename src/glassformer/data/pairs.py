"""Sentence pairs: files to pairs of texts, and pairs of token ids to batches of similar lengths."""

import json
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np

from glassformer.data.batches import Batch
from glassformer.data.sources import read_lines
from glassformer.errors import InputError, counted

POOL = 50  # batches whose rows are sorted by length together
Ids = np.ndarray[Any, np.dtype[np.int64]]


class Pair(NamedTuple):
    """A sentence and its translation, or anything else that belongs together."""

    source: str
    target: str


def read_pairs(paths: Sequence[Path]) -> list[Pair]:
    """The pairs of one file (.tsv: two columns; .jsonl: "source" and "target"), or of two files line by line.

    Also packed as .gz or .zst. A pair with an empty half is refused, by its line.
    """
    if len(paths) == 1:
        name = paths[0].name.removesuffix(".gz").removesuffix(".zst")
        parse = _from_json if name.endswith(".jsonl") else _from_columns
        numbered = enumerate(list(read_lines(paths[0])), 1)  # the file is closed before an error is raised
        pairs = [
            _checked(parse(line, f"{paths[0]}, line {n}"), f"{paths[0]}, line {n}") for n, line in numbered
        ]
    elif len(paths) == 2:
        pairs = list(_side_by_side(*paths))
    else:
        raise InputError(f"pairs come from one file or from two, not from {len(paths)}")
    if not pairs:
        raise InputError(f"{paths[0]} holds no pairs")
    return pairs


def _side_by_side(first: Path, second: Path) -> Iterator[Pair]:
    lines = zip_longest(list(read_lines(first)), list(read_lines(second)))
    for number, (source, target) in enumerate(lines, 1):
        if source is None or target is None:
            short, long = (first, second) if source is None else (second, first)
            raise InputError(
                f"{short} has {counted(number - 1, 'line')}, and {long} has more: they do not belong together"
            )
        yield _checked(Pair(source, target), f"{first} and {second}, line {number}")


def _from_columns(line: str, where: str) -> Pair:
    columns = line.split("\t")
    if len(columns) < 2:
        raise InputError(f"{where}: no tab between a source and a target: {line[:60]!r}")
    return Pair(columns[0], columns[1])


def _from_json(line: str, where: str) -> Pair:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        raise InputError(f"{where}: not a JSON object: {line[:60]!r}") from None
    found = [value.get(key) if isinstance(value, dict) else None for key in ("source", "target")]
    if not all(isinstance(half, str) for half in found):
        raise InputError(f"{where}: no texts under 'source' and 'target': {line[:60]!r}")
    return Pair(*map(str, found))


def _checked(pair: Pair, where: str) -> Pair:
    for name, half in zip(Pair._fields, pair, strict=True):
        if not half.strip():
            raise InputError(f"{where}: the {name} is empty")
    return Pair(pair.source.strip(), pair.target.strip())


@dataclass(frozen=True)
class Rows:
    """Many rows of token ids, one after the other in memory."""

    ids: Ids
    ends: Ids  # where each row ends

    @classmethod
    def of(cls, rows: Sequence[Sequence[int]]) -> "Rows":
        """Lists of ids, as rows."""
        lengths = np.array([len(row) for row in rows], dtype=np.int64)
        ids = np.fromiter((id for row in rows for id in row), np.int64, count=int(lengths.sum()))
        return cls(ids, np.cumsum(lengths))

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, row: int) -> Ids:
        start = int(self.ends[row - 1]) if row else 0
        return self.ids[start : int(self.ends[row])]

    @property
    def lengths(self) -> Ids:
        """The number of ids of each row."""
        return np.diff(self.ends, prepend=0)


@dataclass(frozen=True)
class Pairs:
    """Pairs of rows of token ids. A target begins with the start token and ends with the end token."""

    sources: Rows
    targets: Rows
    pad: int
    noun: ClassVar[str] = "pairs"

    def __len__(self) -> int:
        return len(self.sources)

    @property
    def lengths(self) -> Ids:
        """The number of ids of each pair, both sides together."""
        return self.sources.lengths + self.targets.lengths

    @property
    def longest(self) -> tuple[int, int]:
        """The most ids of a source, and of a target without the last, which is only predicted."""
        return int(self.sources.lengths.max()), int(self.targets.lengths.max()) - 1

    def batch(self, rows: Sequence[int]) -> Batch:
        """Some pairs as arrays: `source` (B, S) and `target` (B, T + 1), filled up on the right by `pad`.

        `mask` (B, T) is True at the targets that are to be learned: all behind the first token, no padding.
        """
        source = filled([self.sources[row] for row in rows], self.pad)
        target = filled([self.targets[row] for row in rows], self.pad)
        lengths = np.array([len(self.targets[row]) for row in rows])
        mask = np.arange(1, target.shape[1]) < lengths[:, None]
        return Batch({"source": source, "target": target, "mask": mask}, int(mask.sum()))

    def in_order(self, *, batch: int, tokens: int = 0) -> Iterator[Batch]:
        """Every pair once, shortest first, so that little is padding; or about `tokens`, evenly spread."""
        for rows in shortest_first(self.targets.lengths, batch=batch, tokens=tokens):
            yield self.batch(rows)


def shortest_first(lengths: Ids, *, batch: int, tokens: int = 0) -> Iterator[list[int]]:
    """The numbers of all rows, shortest first, in batches; or of rows of about `tokens`, evenly spread."""
    order = np.argsort(lengths, kind="stable")
    total = int(lengths.sum())
    if tokens and tokens < total:
        wanted = max(1, round(len(order) * tokens / total))
        order = order[np.arange(wanted) * len(order) // wanted]
    for start in range(0, len(order), batch):
        yield order[start : start + batch].tolist()


def filled(rows: Sequence[Ids], pad: int) -> Ids:
    """Rows of several lengths as one array (B, T), filled up on the right."""
    array = np.full((len(rows), max(map(len, rows))), pad, dtype=np.int64)
    for number, row in enumerate(rows):
        array[number, : len(row)] = row
    return array


class Batchable(Protocol):
    """What a stream draws from: pairs, pairs written as one sequence each, or examples of a task."""

    @property
    def noun(self) -> str: ...
    @property
    def lengths(self) -> Ids: ...
    def __len__(self) -> int: ...
    def batch(self, rows: Sequence[int]) -> Batch: ...


class PairStream:
    """An endless stream of pairs: each once an epoch, in batches of similar lengths, in an order by chance.

    Pairs are shuffled, sorted by length within pools of many batches, cut into batches, and the batches are
    shuffled again. What comes next depends on the seed and the `cursor` alone: how many pairs were given.
    Other examples of several lengths may take the place of pairs.
    """

    def __init__(self, pairs: Batchable, *, batch: int, seed: int) -> None:
        if len(pairs) < batch:
            raise InputError(
                f"batch: {batch} {pairs.noun} are more than the {len(pairs)} that there are to learn from"
            )
        self.pairs, self.size, self.seed = pairs, batch, seed
        self.cursor = [0]
        self._epoch: tuple[int, Ids] = (-1, np.empty(0, np.int64))

    @property
    def epoch_steps(self) -> int:
        """How many batches an epoch has; the rest of the pairs has its turn in another epoch."""
        return len(self.pairs) // self.size

    def draw(self, count: int) -> list[int]:
        """The next pairs, by number; the cursor moves on."""
        drawn = []
        for place in range(self.cursor[0], self.cursor[0] + count):
            epoch, number = divmod(place, self.epoch_steps * self.size)
            drawn.append(int(self._order(epoch)[number]))
        self.cursor[0] += count
        return drawn

    def read(self, rows: Sequence[int]) -> Batch:
        """The token ids of pairs."""
        return self.pairs.batch(rows)

    def _order(self, epoch: int) -> Ids:
        """An epoch's order. It follows from seed and epoch: a checkpoint need not store it."""
        if self._epoch[0] != epoch:
            draw = np.random.Generator(np.random.Philox(key=np.array([self.seed, epoch], dtype=np.uint64)))
            order = draw.permutation(len(self.pairs))
            order = order[: len(order) // self.size * self.size]
            lengths = self.pairs.lengths
            pools = np.split(order, range(POOL * self.size, len(order), POOL * self.size))
            sorted_pools = [pool[np.argsort(lengths[pool], kind="stable")] for pool in pools]
            batches = np.concatenate(sorted_pools).reshape(-1, self.size)
            self._epoch = epoch, draw.permutation(batches).ravel()
        return self._epoch[1]


class OwnTokens:
    """A stream of pairs whose batches also say which inputs are to be the model's own tokens.

    `own` (B, T) is False at the start token and at padding; elsewhere chance decides: an input is a true
    token with the probability `true_share(step)`. What chance says depends on the seed and the pair's place
    in the stream alone, so that it is the same after a resume and on any number of ranks.
    """

    def __init__(self, stream: PairStream, *, true_share: Callable[[int], float]) -> None:
        self.stream, self.true_share = stream, true_share

    @property
    def cursor(self) -> list[int]:
        """How many pairs were given."""
        return self.stream.cursor

    @cursor.setter
    def cursor(self, cursor: list[int]) -> None:
        self.stream.cursor = cursor

    def draw(self, count: int) -> list[tuple[int, int]]:
        """The next pairs, each with its place in the stream; the cursor moves on."""
        first = self.cursor[0]
        return list(enumerate(self.stream.draw(count), first))

    def read(self, rows: Sequence[tuple[int, int]]) -> Batch:
        """The token ids of pairs, and `own`."""
        batch = self.stream.read([pair for _, pair in rows])
        real = batch.arrays["mask"][:, :-1]  # (B, T - 1): the inputs behind the start token that are targets
        own = np.zeros_like(batch.arrays["mask"])
        for row, (place, _) in enumerate(rows):
            share = self.true_share(place // self.stream.size)
            own[row, 1:] = real[row] & (self._chance(place, real.shape[1]) >= share)
        return Batch(batch.arrays | {"own": own}, batch.count)

    def _chance(self, place: int, count: int) -> "np.ndarray[Any, np.dtype[np.float64]]":
        """Numbers from 0 to 1 that belong to a place. Epochs have keys of their own, below these."""
        key = np.array([self.stream.seed, 1 << 63 | place], dtype=np.uint64)
        return np.random.Generator(np.random.Philox(key=key)).random(count)


def without_leaks(
    pairs: Sequence[Pair], share: float, *, key: Callable[[str], str] = str.casefold
) -> tuple[list[Pair], list[Pair]]:
    """Pairs to learn from, and about a `share` of them held out, such that no sentence is in both.

    A sentence may have several translations, which have others in turn. All pairs that are connected this way
    stay on one side. Which components are held out follows from a hash of their first sentence.
    """
    component = _components([(f"s {key(pair.source)}", f"t {key(pair.target)}") for pair in pairs])
    names: dict[int, int] = {}
    for root, pair in zip(component, pairs, strict=True):
        names.setdefault(root, zlib.crc32(key(pair.source).encode()))
    limit = share * (1 << 32)
    held = [names[root] < limit for root in component]
    learn = [pair for pair, out in zip(pairs, held, strict=True) if not out]
    return learn, [pair for pair, out in zip(pairs, held, strict=True) if out]


def _components(edges: Sequence[tuple[str, str]]) -> list[int]:
    """The connected component of every edge, by union-find."""
    numbers: dict[str, int] = {}
    parent: list[int] = []

    def find(node: int) -> int:
        while parent[node] != node:
            parent[node] = parent[parent[node]]
            node = parent[node]
        return node

    ends = []
    for pair in edges:
        nodes = []
        for name in pair:
            if name not in numbers:
                numbers[name] = len(parent)
                parent.append(numbers[name])
            nodes.append(numbers[name])
        first, second = map(find, nodes)
        parent[second] = first
        ends.append(nodes[0])
    return [find(node) for node in ends]
