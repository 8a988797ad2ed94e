"""Pairs as one sequence each: what is read, and which half of it is learned."""

import numpy as np
import pytest

from glassformer.data.pairs import PairStream
from glassformer.data.sequences import Sequences, Written, write

TAG, END = 90, 99


def some(count: int, seed: int = 0) -> Sequences:
    draw = np.random.default_rng(seed)
    rows = []
    for _ in range(count):
        source, target = (draw.integers(1, 50, draw.integers(1, 9)).tolist() for _ in range(2))
        rows.append(write(source, target, tag=TAG, end=END))
    return Sequences.of(rows, pad=END)


def test_a_pair_is_one_sequence() -> None:
    """Source, tag, target, end; a target that was cut has no end to learn."""
    assert write([1, 2, 3], [7, 8], tag=TAG, end=END) == Written([1, 2, 3, TAG, 7, 8, END], 4)
    assert write([1, 2, 3], [7, 8], tag=TAG, end=None) == Written([1, 2, 3, TAG, 7, 8], 4)


def test_the_mask_by_hand() -> None:
    """True where the next token is one of the target or its end; nowhere in the source, the tag, the padding."""
    rows = [write([1, 2, 3], [7, 8], tag=TAG, end=END), write([4], [5], tag=TAG, end=END)]
    batch = Sequences.of(rows, pad=0).batch([0, 1])
    assert batch.arrays["ids"].tolist() == [[1, 2, 3, TAG, 7, 8, END], [4, TAG, 5, END, 0, 0, 0]]
    #   predicted:                 2      3      TAG    7     8     END
    assert batch.arrays["mask"].tolist() == [
        [False, False, False, True, True, True],
        [False, True, True, False, False, False],
    ]
    assert batch.count == 5


def test_padding_is_not_learned_though_it_is_the_end_token() -> None:
    """Rows are filled up by the end token: only the first of them, the end of the target, counts."""
    rows = [write([4], [5], tag=TAG, end=END), write([1, 2, 3], [7, 8, 9], tag=TAG, end=END)]
    batch = Sequences.of(rows, pad=END).batch([0, 1])
    learned = batch.arrays["ids"][0, 1:][batch.arrays["mask"][0]]
    assert learned.tolist() == [5, END]


def test_counts() -> None:
    """How much is learned, and how much is read at once."""
    rows = Sequences.of(
        [write([1, 2, 3], [7, 8], tag=TAG, end=END), write([4], [5], tag=TAG, end=None)], pad=0
    )
    assert rows.learned == 3 + 1
    assert rows.longest == 6
    assert rows.lengths.tolist() == [7, 3]
    assert Sequences.of([], pad=0).longest == 0


def test_every_row_once_in_order() -> None:
    """Or as many as hold about so many tokens that are learned."""
    rows = some(50)
    batches = list(rows.in_order(batch=8))
    assert sum(batch.count for batch in batches) == rows.learned
    widths = [batch.arrays["ids"].shape[1] for batch in batches]
    assert widths == sorted(widths)
    assert sum(len(batch.arrays["ids"]) for batch in batches) == 50
    some_of_them = sum(batch.count for batch in rows.in_order(batch=8, tokens=rows.learned // 5))
    assert some_of_them == pytest.approx(rows.learned / 5, rel=0.4)


def test_a_stream_has_batches_of_similar_lengths() -> None:
    """Each row once an epoch, and what follows depends on the cursor alone."""
    rows = some(640)
    stream = PairStream(rows, batch=16, seed=1)
    drawn = [stream.draw(16) for _ in range(40)]
    assert sorted(row for batch in drawn for row in batch) == list(range(640))
    spread = [np.ptp(rows.lengths[batch]) for batch in drawn]
    assert np.mean(spread) < 2
    resumed = PairStream(rows, batch=16, seed=1)
    resumed.cursor = [16 * 30]
    assert resumed.draw(16) == drawn[30]
