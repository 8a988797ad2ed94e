"""Byte pair encoding in slow motion: the merges of one word, in the order in which they happen."""

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple


class MergeStep(NamedTuple):
    """One merge: which pair, its rank in the list (lower goes first), and the piece at which it happened."""

    pair: tuple[str, str]
    rank: int
    at: int


@dataclass(frozen=True)
class WatchedWord:
    """A word in the vocabulary's symbols, the steps that merge it, and the tokens it ends as."""

    symbols: str
    steps: list[MergeStep]
    pieces: list[str]
    ids: list[int]
    letters: Sequence[str] = ()  # what the merges start from, if it is not the single symbols

    def pieces_after(self, step: int) -> list[str]:
        """The pieces of the word after `step` merges; 0 gives its letters."""
        pieces = list(self.letters or self.symbols)
        for _, _, at in self.steps[:step]:
            pieces[at : at + 2] = [pieces[at] + pieces[at + 1]]
        return pieces


def watch_each(words: Sequence[str], watch: Callable[[str], WatchedWord]) -> list[WatchedWord]:
    """Watch every word of a text; a word that comes again, as most do, is the same object."""
    found = {word: watch(word) for word in dict.fromkeys(words)}
    return [found[word] for word in words]


def watch_word(
    letters: Sequence[str],
    ranks: Mapping[tuple[str, str], int],
    *,
    ids: Mapping[str, int],
    unknown: int | None = None,
) -> WatchedWord:
    """Merge the lowest rank first, the leftmost of equals, until no pair is left that may be merged.

    A letter without an id gets `unknown`.
    """
    pieces: list[str | None] = list(letters)
    before = [i - 1 for i in range(len(pieces))]
    after = [i + 1 for i in range(len(pieces))]
    heap: list[tuple[int, int, str, str]] = []

    def offer(left: int, right: int) -> None:
        if left < 0 or right >= len(pieces):
            return
        a, b = pieces[left], pieces[right]
        if a is not None and b is not None and (a, b) in ranks:
            heapq.heappush(heap, (ranks[a, b], left, a, b))

    for i in range(len(pieces) - 1):
        offer(i, i + 1)
    merged: list[tuple[MergeStep, int]] = []  # with the letter at which its right-hand piece began
    while heap:
        rank, left, a, b = heapq.heappop(heap)
        right = after[left]
        if pieces[left] != a or right >= len(pieces) or pieces[right] != b:
            continue  # an older offer: one of the two has been merged away since
        pieces[left], pieces[right] = a + b, None
        after[left] = after[right]
        if after[left] < len(pieces):
            before[after[left]] = left
        merged.append((MergeStep((a, b), rank, left), right))
        offer(before[left], left)
        offer(left, after[left])

    whole = [piece for piece in pieces if piece is not None]
    found = [ids[piece] if unknown is None else ids.get(piece, unknown) for piece in whole]
    steps = _count_pieces(merged, len(letters))
    start = () if isinstance(letters, str) else tuple(letters)
    return WatchedWord("".join(letters), steps, whole, found, start)


def _count_pieces(merged: list[tuple[MergeStep, int]], length: int) -> list[MergeStep]:
    """Turn the letter at which each merge began into the number of pieces before it, by a Fenwick tree."""
    tree = [i & -i for i in range(length + 1)]
    steps = []
    for step, right in merged:
        at, i = 0, step.at
        while i:
            at, i = at + tree[i], i & (i - 1)
        steps.append(step._replace(at=at))
        i = right + 1  # the right-hand piece, which began here, is no piece of its own any more
        while i <= length:
            tree[i], i = tree[i] - 1, i + (i & -i)
    return steps
