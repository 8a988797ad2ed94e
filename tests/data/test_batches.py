"""Batches are drawn fairly, once each, and from the seed and the cursor alone; what is held out is measured
to the last token.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from glassformer.data.batches import Batch, Stream, Window, aligned, batch_of, in_order
from glassformer.data.shards import Row
from glassformer.errors import InputError


def counting(folder: Path, length: int, *, first: int = 0, mask: Sequence[int] | None = None) -> Row:
    """A row whose tokens count up, so that a token is its position."""
    name = f"{first}-{length}"
    np.arange(first, first + length, dtype=np.uint32).tofile(folder / f"{name}.tokens")
    shard: dict[str, Any] = {"name": f"{name}.tokens", "tokens": length}
    if mask is not None:
        np.array(mask, dtype=np.uint8).tofile(folder / f"{name}.mask")
        shard["mask"] = f"{name}.mask"
    return Row(folder, [shard], "uint32")


class Long(Row):
    """A row of any length, of which nothing is read."""

    def __init__(self, length: int) -> None:
        super().__init__(Path("nowhere"), [{"tokens": length}], "uint16")


def starts(stream: Stream, count: int) -> list[int]:
    return [window.start % len(stream.rows[window.row]) for window in stream.draw(count)]


@pytest.mark.parametrize(("length", "context"), [(100, 10), (109, 10), (11, 10), (57, 1), (30, 7)])
def test_an_epoch_takes_every_window_once(length: int, context: int, tmp_path: Path) -> None:
    """No target twice in an epoch, none missing but what is left over at the cut; and so in every epoch."""
    stream = Stream([counting(tmp_path, length)], context=context, seed=3)
    windows = length // context
    for _ in range(3):
        batch = stream.read(stream.draw(windows))
        ids = batch.arrays["ids"]
        assert ids.shape == (windows, context + 1)
        assert (np.diff(ids) % length == 1).all()  # stretches of the row, which is a ring
        assert len(np.unique(ids[:, 1:])) == len(np.unique(ids[:, :-1])) == batch.count == windows * context
        assert length - windows * context < context


def test_every_epoch_is_cut_and_ordered_anew() -> None:
    """A token at the border of two windows is not always at a border."""
    stream = Stream([Long(1000)], context=10, seed=0)
    first, second, third = (starts(stream, 100) for _ in range(3))
    assert len({first[0] % 10, second[0] % 10, third[0] % 10}) > 1
    cuts = [min(one, key=lambda start, one=one: (start - 1) % 1000) for one in (first, second)]  # type: ignore[misc]
    orders = [[(start - cut) % 1000 for start in one] for one, cut in zip((first, second), cuts, strict=True)]
    assert sorted(orders[0]) == sorted(orders[1])
    assert orders[0] != orders[1]
    assert all(sorted(order) != order for order in orders)
    found = {starts(Stream([Long(1000)], context=10, seed=seed), 100)[0] % 10 for seed in range(60)}
    assert found == set(range(10))  # anywhere


@pytest.mark.parametrize("at", [0, 1, 10, 49, 50, 51, 120])
def test_the_cursor_is_all_it_needs(at: int) -> None:
    """A stream with the cursor of another continues as that one would, in the middle of an epoch or behind
    several.
    """
    rows = [Long(200), Long(301)]
    stream = Stream(rows, context=10, seed=5, weights=[2, 1])
    stream.draw(at)
    other = Stream(rows, context=10, seed=5, weights=[2, 1])
    other.cursor = list(stream.cursor)
    assert sum(other.cursor) == at
    assert other.draw(70) == stream.draw(70)
    assert other.cursor == stream.cursor


def test_how_many_at_once_does_not_matter() -> None:
    """Ten windows are ten times one; and what is drawn is not what is read."""
    row = Long(500)
    one, ten = (Stream([row], context=10, seed=1) for _ in range(2))
    assert [window for _ in range(60) for window in one.draw(1)] == [
        window for _ in range(6) for window in ten.draw(10)
    ]
    assert one.cursor == ten.cursor == [60]
    assert ten.draw(0) == []


@settings(max_examples=50)
@given(st.integers(0, 2**64 - 2))
@example(0)
@example(2**63 - 1)
@example(2**64 - 2)
def test_the_seed_decides(seed: int) -> None:
    """The same gives the same, the next one another order; and the rows of one stream are not in step."""
    rows = [Long(1000), Long(1000)]
    draw = lambda seed: Stream(rows, context=10, seed=seed).draw(40)  # noqa: E731
    assert draw(seed) == draw(seed) != draw(seed + 1)
    ours = draw(seed)
    assert [start for row, start in ours if row == 0] != [start for row, start in ours if row == 1]


def test_the_windows_stay_what_they_are() -> None:
    """A run that is taken up under a later version goes on in the same order: the numbers are written down
    here.
    """
    stream = Stream([Long(1000), Long(500)], context=100, seed=42)
    right = [(0, 502), (1, 247), (0, 702), (0, 802), (1, 447), (0, 302), (0, 1202)]
    assert stream.draw(7) == [Window(*place) for place in right]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=9))
@example([1, 1])
@example([21, 1, 21, 1, 29, 1, 21])
@example([29, 21, 21, 21, 1, 1, 1])
@example([1e-3, 1e3])
def test_every_row_has_its_share_at_every_moment(weights: list[float]) -> None:
    """To within one window, however many there are and however uneven."""
    stream = Stream([Long(50)] * len(weights), context=10, seed=0, weights=weights)
    shares = np.array(weights) / sum(weights)
    for count in range(1, 120):
        (window,) = stream.draw(1)
        assert 0 <= window.row < len(weights)
        assert sum(stream.cursor) == count
        assert np.abs(stream.cursor - shares * count).max() <= 1 + 1e-9


def test_weights_default_to_sizes() -> None:
    """Three times the text is drawn three times as often; weights of one's own override that."""
    rows = [Long(300), Long(100)]
    assert Counter(window.row for window in Stream(rows, context=10, seed=0).draw(40)) == {0: 30, 1: 10}
    assert Counter(window.row for window in Stream(rows, context=10, seed=0, weights=[1, 3]).draw(40)) == {
        0: 10,
        1: 30,
    }
    assert Counter(
        window.row for window in Stream(rows, context=10, seed=0, weights=[0.5, 0.5]).draw(40)
    ) == {0: 20, 1: 20}


def test_a_window_comes_from_its_row(tmp_path: Path) -> None:
    """Windows of several rows make one batch, in the order in which they are asked for."""
    stream = Stream([counting(tmp_path, 100), counting(tmp_path, 50, first=1000)], context=4, seed=0)
    batch = stream.read([Window(1, 3), Window(0, 7), Window(0, 98), Window(1, 49)])
    right = [
        [1003, 1004, 1005, 1006, 1007],
        [7, 8, 9, 10, 11],
        [98, 99, 0, 1, 2],
        [1049, 1000, 1001, 1002, 1003],
    ]
    assert batch.arrays["ids"].tolist() == right
    assert batch.arrays["ids"].dtype == np.int64
    assert (set(batch.arrays), batch.count) == ({"ids"}, 16)
    assert stream.cursor == [0, 0]


@given(st.lists(st.integers(0, 30), min_size=1, max_size=20), st.integers(1, 12), st.integers(0, 20))
def test_windows_that_begin_with_documents(sizes: list[int], context: int, missing: int) -> None:
    """Each token is a target once an epoch or more; only documents longer than a window are cut, and then
    never left.
    """
    row = [0]
    for size in sizes:
        row += [1] * size + [0]
    row = row[: max(1, len(row) - missing)]  # the end of a row may be held out
    places = [place for place, token in enumerate(row) if token == 0]
    found = aligned(np.array(places), length=len(row), context=context).tolist()
    assert len(found) == len(set(found))
    seen = {place + 1 for start in found for place in range(start, start + context)}
    assert seen >= set(range(1, len(row)))
    for start in found:
        if start not in places:
            assert 0 not in row[start + 1 : start + context]
            assert (
                max(place for place in places if place < start) + context <= start + context <= len(row) - 1
            )


def test_rows_that_begin_with_documents(tmp_path: Path) -> None:
    """An epoch has each of these windows once; behind the end the row begins again."""
    np.array([9, 1, 2, 9, 3, 9, 4, 5, 6, 7, 9], dtype=np.uint16).tofile(tmp_path / "a")
    np.array([8, 9], dtype=np.uint16).tofile(tmp_path / "b")
    shards = [{"name": "a", "tokens": 11}, {"name": "b", "tokens": 2}]
    stream = Stream([Row(tmp_path, shards, "uint16")], context=3, seed=1, beginning=9)
    for _ in range(3):
        assert sorted(stream.read(stream.draw(5)).arrays["ids"].tolist()) == [
            [5, 6, 7, 9], [9, 1, 2, 9], [9, 3, 9, 4], [9, 4, 5, 6], [9, 8, 9, 9]
        ]  # fmt: skip
    assert Row(tmp_path, shards, "uint16", start=3, stop=11).places(9).tolist() == [0, 2, 7]


def test_too_short_a_text() -> None:
    """A row needs one window and the token after it."""
    with pytest.raises(InputError, match=r"poems\.txt: 10 tokens of text are too few for windows of 11"):
        Stream([Long(100), Long(10)], context=10, seed=0, names=["tales.txt", "poems.txt"])
    assert len(Stream([Long(11)], context=10, seed=0).draw(3)) == 3


@pytest.mark.parametrize("weights", [[1], [1, 2, 3], [1, 0], [1, -1], [1, float("nan")], [1, float("inf")]])
def test_weights_that_make_no_sense(weights: list[float]) -> None:
    """As many as there are rows, each above zero and a number."""
    with pytest.raises(InputError, match="weights: 2 sources need as many weights, each above 0"):
        Stream([Long(100), Long(100)], context=10, seed=0, weights=weights)


def targets(batches: Sequence[Batch]) -> list[int]:
    return [int(id) for batch in batches for id in batch.arrays["ids"][:, 1:].flatten()]


@settings(max_examples=60)
@given(st.lists(st.integers(2, 60), min_size=1, max_size=3), st.integers(1, 70), st.integers(1, 5))
@example([21], 10, 2)
@example([22], 10, 2)
@example([2], 1, 1)
def test_in_order_takes_every_target_once(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[int], context: int, batch: int
) -> None:
    """From the first to the last, row by row; only the end of a row makes a shorter window, in a batch of its
    own.
    """
    folder = tmp_path_factory.getbasetemp()
    rows = [counting(folder, length, first=1000 * number) for number, length in enumerate(lengths)]
    batches = list(in_order(rows, context=context, batch=batch))
    assert targets(batches) == [1000 * n + i for n, length in enumerate(lengths) for i in range(1, length)]
    shapes = [one.arrays["ids"].shape for one in batches]
    assert all(count <= batch and width <= context + 1 for count, width in shapes)
    assert sum(width < context + 1 for _, width in shapes) == sum(
        (length - 1) % context > 0 for length in lengths
    )
    assert sum(one.count for one in batches) == sum(lengths) - len(lengths)
    full = [count for count, width in shapes if width == context + 1]
    assert len(full) == sum(-(-((length - 1) // context) // batch) for length in lengths)


@pytest.mark.parametrize("tokens", [1, 100, 250, 500, 999])
def test_about_so_many_tokens_evenly_spread(tokens: int, tmp_path: Path) -> None:
    """No window twice, none far from where it should be, each row by its size."""
    rows = [counting(tmp_path, 750), counting(tmp_path, 250, first=1000)]
    batches = list(in_order(rows, context=10, batch=4, tokens=tokens))
    found = targets(batches)
    assert found == sorted(set(found))
    assert abs(len(found) - tokens) <= 20
    parts = [np.array([one for one in found if (one >= 1000) == second]) for second in (False, True)]
    for part, length, first in zip(parts, (750, 250), (0, 1000), strict=True):
        assert abs(len(part) - tokens * length / 1000) <= 10
        begins = part[::10] - first
        gaps = np.diff([*begins, length])
        assert begins[0] == 1
        assert gaps.max() - gaps.min() <= 20 or len(begins) == 1


def test_a_limit_above_all_is_none(tmp_path: Path) -> None:
    """Everything is taken, the short end too."""
    row = counting(tmp_path, 105)
    for tokens in (0, 105, 1000):
        assert targets(list(in_order([row], context=10, batch=3, tokens=tokens))) == list(range(1, 105))


def test_in_order_returns_the_masks(tmp_path: Path) -> None:
    """Every target to be learned is counted once, and only those."""
    mask = np.random.default_rng(0).integers(0, 2, 47)
    row = counting(tmp_path, 47, mask=mask.tolist())
    batches = list(in_order([row], context=10, batch=2))
    learned = [
        int(id)
        for one in batches
        for id in one.arrays["ids"][:, 1:][
            one.arrays.get("mask", np.ones_like(one.arrays["ids"][:, 1:], dtype=bool))
        ]
    ]
    assert learned == [place for place in range(1, 47) if mask[place]]
    assert sum(one.count for one in batches) == len(learned)


def test_a_mask_exists_only_where_it_masks() -> None:
    """The mask of a batch is that of its targets; the first token of a window is no target, so its mask does
    not matter.
    """
    ids = np.arange(4), np.arange(4, 8)
    on = np.array([True] * 4)
    late = np.array([False, True, True, True])
    some = np.array([True, False, False, True])
    for masks in ((None, None), (on, None), (late, on)):
        batch = batch_of(list(zip(ids, masks, strict=True)))
        assert set(batch.arrays) == {"ids"}
        assert batch.arrays["ids"].tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
        assert batch.count == 6
    batch = batch_of([(ids[0], None), (ids[1], some)])
    assert batch.arrays["mask"].tolist() == [[True, True, True], [False, False, True]]
    assert batch.arrays["mask"].dtype == bool
    assert batch.count == 4
    assert batch_of([(ids[0], ~on)]).count == 0


def test_held_out_windows_begin_where_those_of_training_do(tmp_path: Path) -> None:
    """Given the token before documents: a model that never read a text from its middle is not judged by that."""
    np.array([9, 1, 2, 9, 3, 4, 5, 6, 7, 8, 9, 1], dtype=np.uint16).tofile(tmp_path / "a.tokens")
    row = Row(tmp_path, [{"name": "a.tokens", "tokens": 12}], "uint16")
    stream = Stream([row], context=4, seed=0, beginning=9)
    drawn = {tuple(stream.read([one]).arrays["ids"][0]) for one in stream.draw(20)}
    found = [
        tuple(ids)
        for batch in in_order([row], context=4, batch=2, beginning=9)
        for ids in batch.arrays["ids"]
    ]
    assert set(found) == drawn
    assert found[0] == (9, 1, 2, 9, 3)
    few = list(in_order([row], context=4, batch=8, tokens=4, beginning=9))
    assert [len(batch.arrays["ids"]) for batch in few] == [1]
    short = list(in_order([row], context=50, batch=8, beginning=9))  # no window fits: what there is
    assert [batch.arrays["ids"].shape for batch in short] == [(1, 12)]
