"""Sentence pairs: read from files, held out without a leak, and put into batches of similar lengths."""

import gzip
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassformer.data.pairs import Pair, Pairs, PairStream, Rows, read_pairs, without_leaks
from glassformer.errors import InputError

PAIRS = [Pair("je suis étudiant", "I am a student"), Pair("merci", "thanks"), Pair("a  b", "«c»")]


def tsv(pairs: Sequence[Pair]) -> str:
    return "".join(f"{pair.source}\t{pair.target}\n" for pair in pairs)


def jsonl(pairs: Sequence[Pair]) -> str:
    return "".join(json.dumps(pair._asdict()) + "\n" for pair in pairs)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(("name", "write"), [("p.tsv", tsv), ("p.txt", tsv), ("p.jsonl", jsonl)])
def test_one_file(name: str, write, packed: bool, tmp_path: Path) -> None:
    """Two columns or lines of JSON, packed or not; further columns and keys are passed over."""
    content = write(PAIRS).replace("\n", "\textra\n") if write is tsv else write(PAIRS)
    path = tmp_path / (f"{name}.gz" if packed else name)
    path.write_bytes(gzip.compress(content.encode()) if packed else content.encode())
    assert read_pairs([path]) == PAIRS


def test_two_files(tmp_path: Path) -> None:
    """Line by line; line ends of Windows and a mark before the text are none of it."""
    first, second = tmp_path / "p.fr.gz", tmp_path / "p.en"
    first.write_bytes(gzip.compress("".join(f"{pair.source}\n" for pair in PAIRS).encode()))
    second.write_bytes(b"\xef\xbb\xbf" + "\r\n".join(pair.target for pair in PAIRS).encode())
    assert read_pairs([first, second]) == PAIRS
    assert read_pairs([second, first]) == [Pair(pair.target, pair.source) for pair in PAIRS]


@pytest.mark.parametrize(("name", "content", "words"), [
    ("p.tsv", "a\tb\nc\n", r"line 2: no tab between a source and a target: 'c'"),
    ("p.tsv", "a\tb\n\nc\td\n", r"line 2: no tab between a source and a target: ''"),
    ("p.tsv", "a\tb\n\tc\n", r"line 2: the source is empty"),
    ("p.tsv", "a\tb\nc\td\ne\t \n", r"line 3: the target is empty"),
    ("p.jsonl", '{"source": "a", "target": "b"}\n{"source": "a"}\n', r"line 2: no texts under 'source' and 'target'"),
    ("p.jsonl", '{"source": "a", "target": ""}\n', r"line 1: the target is empty"),
    ("p.jsonl", '{"source": "a", "target": 1}\n', r"line 1: no texts under 'source' and 'target'"),
    ("p.jsonl", "a\tb\n", r"line 1: not a JSON object: 'a\\tb'"),
    ("p.jsonl", "[" * 100_000, r"line 1: not a JSON object"),
    ("p.tsv", "", r"holds no pairs"),
])  # fmt: skip
def test_a_missing_half_is_named_by_its_line(name: str, content: str, words: str, tmp_path: Path) -> None:
    """One sentence with the file, the line, and what is missing."""
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(InputError, match=words) as error:
        read_pairs([path])
    assert str(error.value).startswith(str(path))


def test_two_files_that_do_not_belong_together(tmp_path: Path) -> None:
    """The shorter one is named, whichever it is; so is an empty line in one of them."""
    long, short, gap = (tmp_path / name for name in ("long", "short", "gap"))
    long.write_text("a\nb\nc\n")
    short.write_text("a\nb\n")
    gap.write_text("a\n\nc\n")
    for files in ([long, short], [short, long]):
        with pytest.raises(InputError, match=rf"^{short} has 2 lines, and {long} has more"):
            read_pairs(files)
    with pytest.raises(InputError, match=r"long and .*gap, line 2: the target is empty"):
        read_pairs([long, gap])
    with pytest.raises(InputError, match="one file or from two, not from 3"):
        read_pairs([long, long, long])
    with pytest.raises(InputError, match=r"nothing: there is no such file"):
        read_pairs([tmp_path / "nothing"])


# Held out without a leak

sentences = st.text("abAB", min_size=1, max_size=2)
pairs_of_few = st.lists(st.builds(Pair, sentences, sentences), min_size=1, max_size=60)


@given(pairs_of_few, st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0]))
def test_no_sentence_is_on_both_sides(pairs: list[Pair], share: float) -> None:
    """Neither among the sources nor among the targets, in upper case or not; none is lost, the order stays."""
    learn, held = without_leaks(pairs, share)
    for side in (0, 1):
        assert not {pair[side].casefold() for pair in learn} & {pair[side].casefold() for pair in held}
    assert sorted(learn + held) == sorted(pairs)
    rest = iter(pairs)
    assert all(pair in rest for pair in learn)
    assert without_leaks(pairs, share) == (learn, held)


def test_translations_of_translations_stay_together() -> None:
    """A chain of a thousand shared sentences is one component, in whatever order its links come."""
    chain = [Pair(f"s{i // 2}", f"t{(i + 1) // 2}") for i in range(1000)]
    for pairs in (chain, chain[::-1], chain[::2] + chain[1::2]):
        assert sorted(map(len, without_leaks(pairs, 0.5))) == [0, 1000]


def test_about_the_share_is_held_out() -> None:
    """Of many components; a source equal to a target of another pair is another sentence."""
    pairs = [Pair(f"s{i}", f"t{i}") for i in range(4000)]
    _, held = without_leaks(pairs, 0.1)
    assert 300 < len(held) < 500
    apart = [Pair(f"w{i}", f"w{i + 1}") for i in range(1000)]
    assert min(map(len, without_leaks(apart, 0.5))) > 300


# Batches


def some(count: int = 230, seed: int = 0) -> Pairs:
    """Pairs of random lengths, about the same on both sides; every id says which pair it belongs to."""
    draw = np.random.default_rng(seed)
    sizes = draw.integers(1, 30, count)
    sources = [[pair + 1] * int(size) for pair, size in enumerate(sizes)]
    targets = [[pair + 1] * int(size) for pair, size in enumerate(sizes + draw.integers(2, 5, count))]
    return Pairs(Rows.of(sources), Rows.of(targets), pad=0)


def test_a_batch_holds_its_pairs() -> None:
    """Rows of ids, filled up on the right; the mask selects every target behind the first token."""
    pairs = some()
    batch = pairs.batch([3, 100, 3])
    for name, rows in (("source", pairs.sources), ("target", pairs.targets)):
        array = batch.arrays[name]
        assert array.shape == (3, max(len(rows[3]), len(rows[100])))
        for row, number in zip(array, (3, 100, 3), strict=True):
            assert row[: len(rows[number])].tolist() == rows[number].tolist()
            assert not row[len(rows[number]) :].any()
    assert (batch.arrays["mask"] == (batch.arrays["target"][:, 1:] != 0)).all()
    assert batch.count == batch.arrays["mask"].sum() > 0
    assert pairs.longest == (pairs.sources.lengths.max(), pairs.targets.lengths.max() - 1)


def test_an_epoch_takes_every_pair_once() -> None:
    """In another order every time; those that fill no batch have their turn in another epoch."""
    pairs = some(230)
    stream = PairStream(pairs, batch=8, seed=3)
    epochs = [stream.draw(224) for _ in range(5)]
    for epoch in epochs:
        assert len(set(epoch)) == 224
    assert len({tuple(epoch) for epoch in epochs}) == 5
    assert set().union(*epochs) == set(range(230))
    assert PairStream(pairs, batch=8, seed=4).draw(224) != epochs[0]


def test_pairs_of_a_batch_have_similar_lengths() -> None:
    """Far less padding than by chance."""

    def padding(batches: list[list[int]]) -> float:
        arrays = [pairs.batch(rows).arrays for rows in batches]
        cells = sum(one["source"].size + one["target"].size for one in arrays)
        return 1 - (len(pairs.sources.ids) + len(pairs.targets.ids)) / cells

    pairs = some(800)
    stream = PairStream(pairs, batch=16, seed=0)
    drawn = [stream.draw(16) for _ in range(50)]
    chance = np.random.default_rng(0).permutation(800).reshape(50, 16).tolist()
    assert padding(drawn) < 0.7 * padding(chance)
    lengths = [int(pairs.batch(rows).arrays["source"].shape[1]) for rows in drawn]
    assert lengths != sorted(lengths)  # the batches come in an order by chance


@pytest.mark.parametrize("at", [0, 8, 224, 232, 1000])
def test_the_cursor_is_all_it_needs(at: int) -> None:
    """A new stream with the cursor of another one goes on as that one does, within an epoch or beyond."""
    pairs = some(230)
    stream = PairStream(pairs, batch=8, seed=1)
    stream.draw(at)
    resumed = PairStream(pairs, batch=8, seed=1)
    resumed.cursor = list(stream.cursor)
    right = [stream.draw(8) for _ in range(40)]
    assert [resumed.draw(4) + resumed.draw(4) for _ in range(40)] == right
    read = [stream.read(right[0]).arrays["source"], resumed.read(right[0]).arrays["source"]]
    assert (read[0] == read[1]).all()


def test_more_rows_than_pairs() -> None:
    """One sentence with both numbers."""
    with pytest.raises(InputError, match="batch: 8 pairs are more than the 7"):
        PairStream(some(7), batch=8, seed=0)


def test_in_order_takes_every_pair_once() -> None:
    """Shortest targets first; or an even selection of about so many tokens, always the same one."""
    pairs = some(230)
    targets = [batch.arrays["target"] for batch in pairs.in_order(batch=7)]
    numbers = [int(row[0]) - 1 for array in targets for row in array]
    assert sorted(numbers) == list(range(230))
    lengths = [int((row != 0).sum()) for array in targets for row in array]
    assert lengths == sorted(lengths)

    fewer = [int(row[0]) for batch in pairs.in_order(batch=7, tokens=1000) for row in batch.arrays["target"]]
    assert len(set(fewer)) == len(fewer)
    read = sum(int(pairs.targets.lengths[number - 1]) for number in fewer)
    assert 800 < read < 1200
    assert fewer == [
        int(row[0]) for batch in pairs.in_order(batch=7, tokens=1000) for row in batch.arrays["target"]
    ]
