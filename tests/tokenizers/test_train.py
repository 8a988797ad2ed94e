"""Vocabularies of one's own: their size, their merges, what they promise and what is refused."""

import hashlib
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.errors import InputError
from glassformer.hub.vocabulary import load_tokenizer
from glassformer.tokenizers import Tokenizer, train_tokenizer
from glassformer.tokenizers.bpe import BYTE_OF, END_OF_TEXT
from glassformer.tokenizers.train import train_word_tokenizer

RHYME = """Peter Piper picked a peck of pickled peppers.
A peck of pickled peppers Peter Piper picked.
If Peter Piper picked a peck of pickled peppers,
where's the peck of pickled peppers Peter Piper picked? 12, 123, 1234.
She sells seashells by the seashore; the shells she sells are seashells, I'm sure.
So if she sells seashells on the seashore, then I'm sure she sells seashore shells.
How much wood would a woodchuck chuck, if a woodchuck could chuck wood?
He would chuck, he would, as much as he could, and chuck as much wood as a woodchuck would.
Betty Botter bought some butter, but she said the butter's bitter.
"""
SCRIPTS = "Drei Chinesen mit dem Kontrabaß saßen auf der Straße; 日本語の文字も、少し。 👍🏽 שלום, привет!\n"
WORD = re.compile(
    r"'(?:[sdmt]|ll|ve|re)| ?[A-Za-z]+| ?[0-9]+| ?[^\sA-Za-z0-9]+|\s+(?!\S)|\s"
)  # of a text in ASCII

Merge = tuple[str, str]


def state(tokenizer: Tokenizer) -> tuple[list[Merge], dict[str, int], list[bytes]]:
    return tokenizer.merges, tokenizer.special, [tokenizer.bytes_of(id) for id in range(len(tokenizer))]


def naive_training(text: str, count: int) -> list[Merge]:
    """The commonest pair again and again, counted anew each time; of equals, the one whose parts have the
    lower ids.
    """
    words = {
        tuple(word.replace(" ", "Ġ").replace("\n", "Ċ")): times
        for word, times in Counter(WORD.findall(text)).items()
    }
    ids = {symbol: id for id, symbol in enumerate(sorted(BYTE_OF))}
    merges: list[Merge] = []
    while len(merges) < count:
        pairs: Counter[Merge] = Counter()
        for word, times in words.items():
            for pair in pairwise(word):
                pairs[pair] += times
        left, right = min(pairs, key=lambda pair: (-pairs[pair], ids[pair[0]], ids[pair[1]]))
        merges.append((left, right))
        ids[left + right] = len(ids)
        words = {merged(word, left, right): times for word, times in words.items()}
    return merges


def merged(word: tuple[str, ...], left: str, right: str) -> tuple[str, ...]:
    pieces: list[str] = []
    joined = False
    for piece in word:
        joined = not joined and bool(pieces) and (pieces[-1], piece) == (left, right)
        pieces[-1 if joined else len(pieces) :] = [left + right if joined else piece]
    return tuple(pieces)


@pytest.fixture(scope="module")
def trained() -> Tokenizer:
    return train_tokenizer([RHYME, SCRIPTS], 257 + 60)


@pytest.mark.parametrize("size", [257, 258, 300, 317])
def test_size_is_exact(size: int) -> None:
    """As many tokens as asked for: the bytes, the merges, and `<|endoftext|>` at the end."""
    tokenizer = train_tokenizer([RHYME], size)
    assert len(tokenizer) == size
    assert len(tokenizer.merges) == size - 257
    assert tokenizer.special == {END_OF_TEXT: size - 1}
    assert tokenizer.end == size - 1
    assert {tokenizer.bytes_of(id) for id in range(256)} == {bytes([byte]) for byte in range(256)}
    made = [bytes(BYTE_OF[char] for char in left + right) for left, right in tokenizer.merges]
    assert [tokenizer.bytes_of(id) for id in range(256, size - 1)] == made


def test_special_tokens_of_ones_own() -> None:
    """Special tokens come last, in the order given, and count towards the size; there may be none."""
    tokenizer = train_tokenizer([RHYME], 270, special=("<|user|>", END_OF_TEXT, "<|bot|>"))
    assert len(tokenizer) == 270
    assert tokenizer.special == {"<|user|>": 267, END_OF_TEXT: 268, "<|bot|>": 269}
    assert tokenizer.end == 268
    assert tokenizer.encode("<|bot|><|user|>", special=True) == [269, 267]
    none = train_tokenizer([RHYME], 270, special=())
    assert (len(none), none.special, none.end) == (270, {}, None)
    assert none.merges[:11] == tokenizer.merges
    assert len(none.merges) == 14


def test_special_tokens_in_the_text_are_plain() -> None:
    """A text that contains `<|endoftext|>` teaches its letters and does not move its id."""
    tokenizer = train_tokenizer([END_OF_TEXT * 50], 270)
    assert tokenizer.special == {END_OF_TEXT: len(tokenizer) - 1}
    ids = tokenizer.encode(END_OF_TEXT)
    assert tokenizer.end not in ids
    assert [tokenizer.bytes_of(id) for id in ids] == [b"<|", b"endoftext", b"|>"]


def test_merges_are_those_of_the_book() -> None:
    """The merges are found by counting pairs by hand, ties and runs of one letter included."""
    text = RHYME + "aaaa aaa aaaaaaa banana bananas\n" * 3
    expected = naive_training(text, 100)
    assert train_tokenizer([text], 257 + 100).merges == expected
    assert len(set(expected)) == 100


def test_training_is_deterministic(tmp_path: Path) -> None:
    """The same text gives the same file, here and in another process."""
    file = tmp_path / "text.txt"
    file.write_text(RHYME + SCRIPTS, encoding="utf-8")
    first, second = (train_tokenizer([file], 330).to_json() for _ in range(2))
    assert first == second
    assert train_tokenizer([RHYME], 330).to_json() != first
    code = (
        "import hashlib, pathlib, sys; from glassformer.tokenizers import train_tokenizer\n"
        "print(hashlib.sha256(train_tokenizer([pathlib.Path(sys.argv[1])], 330).to_json().encode()).hexdigest())"
    )
    done = subprocess.run([sys.executable, "-c", code, str(file)], capture_output=True, text=True)
    assert done.stdout.strip() == hashlib.sha256(first.encode()).hexdigest(), done.stderr


@settings(max_examples=200, deadline=None)
@given(text=st.text() | st.text("PpeckrRid \n'.ß日👍", max_size=60))
def test_round_trip(trained: Tokenizer, text: str) -> None:
    """Any text comes back whole, whether or not its characters were ever seen."""
    ids = trained.encode(text)
    assert trained.decode(ids) == text
    assert all(0 <= id < trained.end for id in ids)
    assert len(ids) <= len(text.encode())


def test_more_tokens_make_shorter_rows() -> None:
    """Every merge that is learnt shortens the text that it was learnt from."""
    lengths = [len(train_tokenizer([RHYME], 257 + merges).encode(RHYME)) for merges in range(0, 60, 10)]
    assert lengths[0] == len(RHYME.encode())
    assert all(later <= earlier - 10 for earlier, later in pairwise(lengths))
    assert lengths[-1] < lengths[0] / 2


def test_file_that_is_written_loads(trained: Tokenizer, tmp_path: Path) -> None:
    """A trained vocabulary survives its `tokenizer.json`."""
    (tmp_path / "tokenizer.json").write_text(trained.to_json(), encoding="utf-8")
    again = load_tokenizer(tmp_path)
    assert again is not None
    assert state(again) == state(trained)
    assert again.encode(RHYME + SCRIPTS) == trained.encode(RHYME + SCRIPTS)


def test_files_and_texts_agree(tmp_path: Path) -> None:
    """Paths, texts, a mixture of both, a list or a generator: the same text is the same vocabulary."""
    one, two = tmp_path / "one.txt", tmp_path / "two.txt"
    one.write_text(RHYME, encoding="utf-8")
    two.write_text(SCRIPTS, encoding="utf-8")
    expected = state(train_tokenizer([RHYME, SCRIPTS], 350))
    assert state(train_tokenizer([one, two], 350)) == expected
    assert state(train_tokenizer((path for path in (one, two)), 350)) == expected
    assert state(train_tokenizer([one, SCRIPTS], 350)) == expected
    assert state(train_tokenizer(iter([SCRIPTS, RHYME]), 350)) == expected
    assert state(train_tokenizer([one], 350)) != expected


@pytest.mark.parametrize("text", [
    RHYME + SCRIPTS,
    RHYME.replace("\n", " ") * 3,
    "one\n\ntwo\n\nthree\n\nfour\n\n" * 20,
    "a line  \n    another\n\t\n \n" * 20,
    "one\r\ntwo\r\n\r\nthree\rfour\x85 \x1c!\xa0 \n" * 20,
    "日本語、文字。" * 40,
], ids=["lines", "one line", "paragraphs", "indented", "line ends", "no blank"])  # fmt: skip
@pytest.mark.parametrize("chunk", [1, 7, 100])
def test_chunks_cut_no_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, chunk: int) -> None:
    """A file that is read in pieces gives the same vocabulary as its text in one piece."""
    file = tmp_path / "text.txt"
    file.write_text(text, encoding="utf-8")
    monkeypatch.setattr("glassformer.tokenizers.train.CHUNK", chunk)
    assert state(train_tokenizer([file], 290)) == state(train_tokenizer([text], 290))


def test_a_file_without_blanks_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no cut can be found, what was searched before is not searched again with every piece."""
    file = tmp_path / "text.txt"
    file.write_text("x" * 80_000, encoding="utf-8")
    monkeypatch.setattr("glassformer.tokenizers.train.CHUNK", 16)
    seen: list[int] = []
    began = time.process_time()
    train_tokenizer([file], 257, progress=seen.append)
    assert time.process_time() - began < 2
    assert seen == [80_000]


def test_progress_adds_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is reported is what was read, in characters, piece by piece."""
    seen: list[int] = []
    train_tokenizer([RHYME, "", SCRIPTS], 300, progress=seen.append)
    assert [count for count in seen if count] == [len(RHYME), len(SCRIPTS)]
    file = tmp_path / "text.txt"
    file.write_text(RHYME + SCRIPTS, encoding="utf-8")
    monkeypatch.setattr("glassformer.tokenizers.train.CHUNK", 50)
    seen.clear()
    train_tokenizer([file, RHYME], 300, progress=seen.append)
    assert sum(seen) == 2 * len(RHYME) + len(SCRIPTS)
    assert len(seen) > 3
    assert min(seen) > 0


def test_progress_can_stop_the_training() -> None:
    """An error in the callback ends the training as itself."""

    def refuse(count: int) -> None:
        raise KeyError(f"enough after {count}")

    with pytest.raises(KeyError, match=f"enough after {len(RHYME)}"):
        train_tokenizer([RHYME], 300, progress=refuse)


def test_half_characters_are_taken_as_in_encode() -> None:
    """A lone surrogate in a text is U+FFFD, when it is learnt as when it is encoded."""
    halves = "a\ud800b " * 20
    tokenizer = train_tokenizer([halves], 262)
    assert state(tokenizer) == state(train_tokenizer(["a\ufffdb " * 20], 262))
    assert tokenizer.decode(tokenizer.encode(halves)) == "a\ufffdb " * 20


@pytest.mark.parametrize(("make", "reason"), [
    (lambda path: None, "cannot be read: No such file or directory"),
    (lambda path: path.mkdir(), "cannot be read: Is a directory"),
    (lambda path: path.write_bytes(b"abc\xff\n"), "is not UTF-8 text: invalid start byte at byte 3"),
    (lambda path: path.write_bytes("abcä".encode()[:-1]), "is not UTF-8 text: unexpected end of data at byte 3"),
    (lambda path: path.write_bytes("abcd".encode("utf-16-le") + b"\xd8\n"), "is not UTF-8 text: .* at byte 8"),
], ids=["missing", "folder", "bad byte", "cut short", "utf-16"])  # fmt: skip
def test_files_that_cannot_be_read(tmp_path: Path, make: Callable[[Path], object], reason: str) -> None:
    """The file is named and so is what is wrong with it; the good file before it does not help."""
    good, bad = tmp_path / "good.txt", tmp_path / "bad.txt"
    good.write_text(RHYME, encoding="utf-8")
    make(bad)
    with pytest.raises(InputError, match=f"{re.escape(str(bad))} {reason}"):
        train_tokenizer([good, bad], 300)
    assert len(train_tokenizer([good], 300)) == 300


@pytest.mark.parametrize("at", [40, 20_000, 1_500_000])
def test_the_bad_byte_is_found_in_a_long_file(tmp_path: Path, at: int) -> None:
    """The place of the byte is counted from the beginning of the file."""
    file = tmp_path / "long.txt"
    file.write_bytes(b"a b\n" * (at // 4) + b"\xff\n" + b"a b\n" * 10)
    with pytest.raises(InputError, match=f"at byte {at}; if it is Latin-1"):
        train_tokenizer([file], 258)


@pytest.mark.parametrize(("size", "special", "least"), [
    (256, (END_OF_TEXT,), 257), (255, (), 256), (258, ("<a>", "<b>", "<c>"), 259), (0, (END_OF_TEXT,), 257), (-1, (), 256),
])  # fmt: skip
def test_too_small(size: int, special: tuple[str, ...], least: int) -> None:
    """A vocabulary has room for every byte and every special token, or is refused; the least is taken."""
    reason = rf"must have at least {least} tokens \(256 bytes and {least - 256} special\), not {size}$"
    with pytest.raises(InputError, match=reason):
        train_tokenizer([RHYME], size, special=special)
    tokenizer = train_tokenizer([RHYME], least, special=special)
    assert len(tokenizer) == least
    assert tokenizer.merges == []


def test_too_large() -> None:
    """Refused, before the library that learns it sets memory aside for all of it."""
    for train in (train_tokenizer, train_word_tokenizer):
        with pytest.raises(InputError, match=r"must have at most 1,048,576 tokens, not 1,000,000,000,000$"):
            train([RHYME], 10**12)


def test_too_little_text() -> None:
    """A text that has no more to teach gives a smaller vocabulary, in which each of its words is one token."""
    tokenizer = train_tokenizer([RHYME], 5000)
    assert 300 < len(tokenizer) == 257 + len(tokenizer.merges) < 400
    assert tokenizer.end == len(tokenizer) - 1
    assert all(len(word.ids) == 1 for word in tokenizer.watch(RHYME))
    assert len(train_tokenizer([RHYME], len(tokenizer))) == len(tokenizer)


@pytest.mark.parametrize("source", [[], [""], ["a b c"], [" "]])
def test_nothing_to_learn(source: list[str]) -> None:
    """No text, or one without pairs worth the name, leaves the bytes."""
    tokenizer = train_tokenizer(source, 300)
    assert len(tokenizer) == 257 + len(tokenizer.merges)
    assert len(tokenizer.merges) == len("".join(source)) // 2
    assert tokenizer.decode(tokenizer.encode(RHYME + SCRIPTS)) == RHYME + SCRIPTS
