"""Tokens to text as they come: the whole text, no torn characters, and nothing of a stop string."""

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from glassformer.errors import InputError
from glassformer.hub.vocabulary import load_tokenizer
from glassformer.tokenizers import ByteBPE, TextStream, Tokenizer
from glassformer.tokenizers.bpe import END_OF_TEXT, SYMBOL_OF

LOST = "\N{REPLACEMENT CHARACTER}"


class Pieces:
    """A vocabulary made up on the way: every token is a piece of bytes."""

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self.pieces = pieces

    def bytes_of(self, id: int, after: int | None = None) -> bytes:
        return self.pieces[id]


def run(pieces: Sequence[bytes], stop: Sequence[str] = ()) -> tuple[list[str], bool]:
    """What a stream emits for these pieces, one after the other, until it stops; the last entry is what
    `finish` adds.
    """
    stream, emitted = TextStream(Pieces(pieces).bytes_of, stop), []
    for id in range(len(pieces)):
        emitted.append(stream.push(id))
        if stream.stopped:
            break
    return [*emitted, stream.finish()], stream.stopped


def splits(data: bytes) -> Iterator[list[bytes]]:
    """All ways to cut some bytes into pieces."""
    for cuts in itertools.product((False, True), repeat=max(len(data) - 1, 0)):
        edges = [0, *(at + 1 for at, cut in enumerate(cuts) if cut), len(data)]
        yield [data[a:b] for a, b in itertools.pairwise(edges)]


# Characters.


def byte_tokenizer() -> Tokenizer:
    """Every byte is a token."""
    return ByteBPE({SYMBOL_OF[byte]: byte for byte in range(256)}, [], special={END_OF_TEXT: 256})


def check_decoding(tokenizer: Tokenizer, sequences: Iterator[list[int]]) -> tuple[int, int]:
    """Stream each sequence and compare with its whole; the number of them, and of those with torn
    characters.
    """
    count = torn = 0
    for ids in sequences:
        whole, stream = tokenizer.decode(ids), TextStream(tokenizer.bytes_of)
        text = ""
        for id in ids:
            text += stream.push(id)
            assert whole.startswith(text)  # no U+FFFD is shown that the whole text lacks
        text += stream.finish()
        assert text == whole
        assert not stream.stopped
        count, torn = count + 1, torn + (LOST in whole)
    return count, torn


def test_random_bytes_stream_as_they_decode() -> None:
    """Ten thousand random byte sequences, most of them no UTF-8 at all."""
    rng = np.random.default_rng(0)
    likely = [
        0x41,
        0x80,
        0xBF,
        0xC3,
        0xE2,
        0x82,
        0xAC,
        0xF0,
        0x9F,
        0x98,
        0x80,
        0xED,
        0xA0,
        0xFF,
        0xC0,
        0xF4,
        0x8F,
        0x90,
    ]

    def sequences() -> Iterator[list[int]]:
        for count in range(10_000):
            if count % 2:
                yield [int(id) for id in rng.integers(0, 257, size=rng.integers(0, 24))]
            else:
                yield [likely[at] for at in rng.integers(0, len(likely), size=rng.integers(0, 24))]

    count, torn = check_decoding(byte_tokenizer(), sequences())
    assert count == 10_000
    assert 5000 < torn < 10_000


def test_random_ids_of_gpt2_stream_as_they_decode(gpt2_vocabulary: Path) -> None:
    """Random ids of GPT-2's own vocabulary, and texts of many scripts cut as it cuts them."""
    tokenizer = load_tokenizer(gpt2_vocabulary)
    assert tokenizer is not None
    rng = np.random.default_rng(1)
    scripts = "aé ß中文字🙂👩‍👩‍👧हि عرب\n\0ẞ𝔘"

    def sequences() -> Iterator[list[int]]:
        for count in range(4000):
            if count % 2:
                yield [int(id) for id in rng.integers(0, len(tokenizer), size=rng.integers(0, 16))]
            else:
                yield tokenizer.encode("".join(scripts[at] for at in rng.integers(0, len(scripts), size=12)))

    count, torn = check_decoding(tokenizer, sequences())
    assert count == 4000
    assert 50 < torn < 2000


@pytest.mark.parametrize("text", ["aé", "中文", "🙂a", "e\u0301\u200d🙂", "\ufffd", "a\ufffdb"])
def test_any_cutting_of_a_text_is_the_text(text: str) -> None:
    """However the bytes of a text are cut, the text comes, and every character comes with its last byte."""
    for pieces in splits(text.encode()):
        emitted, stopped = run(pieces)
        assert "".join(emitted) == text
        assert not stopped
        assert emitted[-1] == ""
        read = b""
        for piece, word in zip(pieces, itertools.accumulate(emitted), strict=False):
            read += piece
            assert word == read.decode("utf-8", "ignore")


@pytest.mark.parametrize(
    "data",
    [b"\xf0\x9f\x99", b"a\xc3", b"\xe2\x82\xe2\x82\xac", b"\xed\xa0\x80", b"\xc0\xaf", b"\xff\xfe", b""],
)
def test_any_cutting_of_no_text_is_what_it_decodes_to(data: bytes) -> None:
    """The same for bytes that make no characters: as many U+FFFD as in the whole, the last perhaps at the
    end.
    """
    for pieces in splits(data):
        emitted, _ = run(pieces)
        assert "".join(emitted) == data.decode("utf-8", "replace")


def test_an_open_character_waits_for_the_end() -> None:
    """Half a character is not shown until it is certain that the other half will not come."""
    assert run([b"a", b"\xc3"])[0] == ["a", "", LOST]
    assert run([b"a", b"\xc3", b"\xa9"])[0] == ["a", "", "é", ""]
    assert run([b"a", b"\xc3", b"b"])[0] == ["a", "", LOST + "b", ""]


# Stop strings.


def check_stop(text: str, stop: str) -> None:
    """However the text is cut, everything before the stop string is emitted, and at no time a character more than is
    certain.
    """
    want, met = text.split(stop)[0], stop in text
    for pieces in splits(text.encode()):
        emitted, stopped = run(pieces, [stop])
        assert "".join(emitted) == want
        assert stopped is met
        read = ""
        for piece, shown in zip(pieces, itertools.accumulate(emitted[:-1]), strict=False):
            read += piece.decode()
            certain = read.split(stop)[0]
            while stop not in read and not _safe(certain, read, stop):
                certain = certain[:-1]
            assert shown == certain


def _safe(shown: str, read: str, stop: str) -> bool:
    """Whether no way to go on could turn a shown character into a part of the stop string."""
    return not any(stop.startswith(read[at:]) for at in range(len(shown)))


STOPS = ["a", "b", "aa", "ab", "ba", "aab", "aba", "abab", "aaa", "abb", "aabaa", "abaab"]


@pytest.mark.parametrize("stop", STOPS)
def test_every_short_text_stops_as_its_whole(stop: str) -> None:
    """All texts of two letters, in all cuttings: also stop strings that overlap themselves."""
    met = 0
    for length in range(7):
        for letters in itertools.product("ab", repeat=length):
            check_stop("".join(letters), stop)
            met += stop in "".join(letters)
    assert met > 0


def test_random_texts_stop_as_their_whole() -> None:
    """Longer texts and stop strings of random letters, in random cuttings; thousands of them."""
    rng = np.random.default_rng(2)
    met = 0
    for _ in range(5000):
        text = "".join(rng.choice(list("abé🙂"), size=rng.integers(0, 30)))
        stop = "".join(rng.choice(list("abé🙂"), size=rng.integers(1, 5)))
        data = text.encode()
        edges = sorted(
            {0, len(data), *(int(at) for at in rng.integers(0, len(data) + 1, size=rng.integers(0, 12)))}
        )
        pieces = [data[a:b] for a, b in itertools.pairwise(edges)]
        emitted, stopped = run(pieces, [stop])
        assert "".join(emitted) == text.split(stop)[0]
        assert stopped is (stop in text)
        met += stopped
    assert 500 < met < 4500


def first_of(text: str, stops: Sequence[str]) -> str:
    """The text before the stop string that is complete first; of those that end together, before the
    longest.
    """
    for end in range(len(text) + 1):
        met = [end - len(stop) for stop in stops if text[:end].endswith(stop)]
        if met:
            return text[: min(met)]
    return text


@pytest.mark.parametrize(
    "stops",
    [
        ("ab", "ba"),
        ("aa", "b"),
        ("bb", "aba"),
        ("a", "b"),
        ("aab", "ab"),
        ("abb", "bba", "aaaa"),
        ("ab", "abb"),
        ("ab", "ab"),
    ],
)
def test_the_first_of_several_stop_strings_counts(stops: tuple[str, ...]) -> None:
    """Of several stop strings the one that is complete first ends the text, in whatever order they are given."""
    for length in range(7):
        for letters in itertools.product("ab", repeat=length):
            text = "".join(letters)
            want = first_of(text, stops)
            for pieces in splits(text.encode()):
                for order in (stops, stops[::-1]):
                    emitted, stopped = run(pieces, order)
                    assert "".join(emitted) == want
                    assert stopped is any(stop in text for stop in stops)


@pytest.mark.parametrize("stops", [("aabb", "ab"), ("aba", "b"), ("abab", "ba"), ("aaab", "aa")])
def test_a_stop_string_inside_another_ends_every_cutting_alike(stops: tuple[str, ...]) -> None:
    """Where one stop string lies inside another, how the text is cut into tokens decides nothing."""
    for length in range(7):
        for letters in itertools.product("ab", repeat=length):
            text = "".join(letters)
            for pieces in splits(text.encode()):
                assert "".join(run(pieces, stops)[0]) == first_of(text, stops)


def test_a_stop_string_of_torn_characters() -> None:
    """A stop string is found also where its bytes come one by one, and inside a token that has more on both
    sides.
    """
    for pieces in splits("a🙂b".encode()):
        assert "".join(run(pieces, ["🙂"])[0]) == "a"
    assert run([b"one END two"], ["END"]) == (["one ", ""], True)
    assert run([b"one E", b"ND two"], ["END"]) == (["one ", "", ""], True)
    assert run([b"one E", b"N", b"two"], ["END"]) == (["one ", "", "ENtwo", ""], False)
    assert run([b"one E", b"N"], ["END"]) == (["one ", "", "EN"], False)


def test_nothing_follows_a_stop() -> None:
    """Later tokens emit nothing."""
    stream = TextStream(Pieces([b"a", b"STOP", b"b", b"STOP"]).bytes_of, ["STOP"])
    assert [stream.push(id) for id in (0, 0, 1, 2, 0, 3, 2)] == ["a", "a", "", "", "", "", ""]
    assert stream.stopped
    assert stream.finish() == ""


def test_a_long_stop_string_is_as_good_as_a_short_one() -> None:
    """A hundred thousand characters, met at the last of them or not at all."""
    stop = "x" * 100_000
    for tail, want, met in (("x", "a", True), ("y", "a" + "x" * 99_999 + "y", False)):
        emitted, stopped = run([b"a", b"x" * 50_000, b"x" * 49_999, tail.encode()], [stop])
        assert ("".join(emitted), stopped) == (want, met)
        assert emitted[:3] == ["a", "", ""]


@pytest.mark.parametrize("stop", [[""], ["a", ""], ("", "")])
def test_an_empty_stop_string_is_refused(stop: Sequence[str]) -> None:
    """It would stop everything before it begins."""
    with pytest.raises(InputError, match=r"^stop: an empty string"):
        TextStream(Pieces([b"a"]).bytes_of, stop)
