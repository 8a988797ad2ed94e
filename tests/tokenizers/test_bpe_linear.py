"""A million characters of anything are encoded in seconds and in little memory."""

import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from glassformer.tokenizers import Tokenizer

MILLION = 1_000_000
REPEATED = {
    "letter": "a", "caret": "^", "zero": "0", "contraction": "'s", "blank": " ", "newline": "\n", "joiner": "\u200d",
    "accent": "\u0301", "accented": "e\u0301", "apostrophe": "'", "tab": "\t", "line end": "\r\n", "two letters": "ab",
    "nul": "\0", "hard blank": "\xa0", "family": "👨\u200d👩\u200d👧", "half character": "\ud800", "special": "<|endoftext|>",
    "turned": "\u202e", "byte-order mark": "\ufeff", "sentence": "the quick brown fox ", "blanks": " \n\t\u2003",
    "rare letters": "𐌰", "rare letters and signs": "𐌰𝍖", "two scripts": "ж٣",
}  # fmt: skip
MIXED = {
    "letters": "abcdefghijklmnopqrstuvwxyz", "digits": "0123456789", "signs": "!@#$%^&*()-=[]{};:,./<>?'\"",
    "chinese": "的一是不了人我在有他这为之大来", "hebrew": "אבגדהוזחט", "anything": "".join(map(chr, range(0x20, 0xD800, 7))),
}  # fmt: skip
PATTERNS = [*REPEATED, *MIXED, "blanks, then a letter"]


def pattern(name: str, length: int) -> str:
    """This many characters of a pattern; the shorter is the beginning of the longer."""
    if name in REPEATED:
        return (REPEATED[name] * (length // len(REPEATED[name]) + 1))[:length]
    if name in MIXED:
        return "".join(random.Random(name).choices(MIXED[name], k=length))
    return " " * (length - 1) + "a"


def seconds(call: Callable[[str], object], text: str) -> float:
    """The processor's time, which does not depend on other processes."""
    began = time.process_time()
    call(text)
    return time.process_time() - began


def climb(call: Callable[[str], object], name: str, length: int, limit: float) -> None:
    """Ten times the text, three times over: quadratic time is caught on a lower step, within seconds."""
    for size in (length // 1000, length // 100, length // 10, length):
        took = seconds(call, pattern(name, size))
        assert took < 1 + limit * size / length, f"{size} characters of {name!r} took {took:.1f} s"


def test_there_are_twenty_patterns() -> None:
    """Every pattern has its length, and no two are the same."""
    assert len({pattern(name, 1000) for name in PATTERNS}) == len(PATTERNS) >= 20
    assert all(len(pattern(name, size)) == size for name in PATTERNS for size in (1, 999, 1000))
    assert all(pattern(name, 1000)[:99] == pattern(name, 99) for name in [*REPEATED, *MIXED])


@pytest.mark.parametrize("name", ["letter", "newline", "contraction"])
def test_a_million_characters(gpt2: Tokenizer, name: str) -> None:
    """A million characters are encoded within 10 s."""
    climb(gpt2.encode, name, MILLION, 9)


@pytest.mark.parametrize("name", ["letter", "zero"])
def test_watching_a_long_word(gpt2: Tokenizer, name: str) -> None:
    """Watching does not take the square of the length either."""
    climb(gpt2.watch, name, 30_000, 4)


def test_a_long_text_comes_out_right(gpt2: Tokenizer) -> None:
    """Long runs are merged as short ones are: sixteen hyphens to a token, all the way."""
    for char, width in (("-", 64), ("=", 64), ("a", 4), ("0", 16)):
        ids = gpt2.encode(char * 64_000)
        assert len(ids) == 64_000 // width
        assert set(ids) == set(gpt2.encode(char * width))
        assert gpt2.decode(ids) == char * 64_000


CHILD = """
import sys
from pathlib import Path
from glassformer.hub.vocabulary import load_tokenizer

def peak():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))

tokenizer = load_tokenizer(Path(sys.argv[1]))
text = sys.stdin.buffer.read().decode("utf-8", "surrogatepass")
tokenizer.encode("warm")
before = peak()
print(len(tokenizer.encode(text)), peak() - before)
"""


def memory_of(text: str, vocabulary: Path) -> tuple[int, float]:
    """How many tokens a text has, and by how many megabytes encoding it lifts the high-water mark of a
    process.
    """
    if not Path("/proc/self/status").exists():
        pytest.skip("the high-water mark of memory is read from /proc")
    command = [sys.executable, "-c", CHILD, str(vocabulary)]
    done = subprocess.run(
        command, input=text.encode("utf-8", "surrogatepass"), capture_output=True, timeout=60
    )
    assert done.returncode == 0, done.stderr.decode()
    count, kilobytes = map(int, done.stdout.split())
    return count, kilobytes / 1024


@pytest.mark.slow
def test_memory_of_a_million_characters(gpt2_vocabulary: Path) -> None:
    """A million characters take less than 500 MB, the list of their ids included."""
    count, megabytes = memory_of(pattern("joiner", MILLION), gpt2_vocabulary)
    assert count == 2_000_000
    assert 8 * count / MILLION < megabytes < 500


@pytest.mark.slow
@pytest.mark.parametrize("name", PATTERNS)
def test_time_grows_with_length(gpt2: Tokenizer, name: str) -> None:
    """Ten times the text takes about ten times as long, and a million characters a few seconds."""
    climb(gpt2.encode, name, MILLION, 9)
    short, long = pattern(name, MILLION // 10), pattern(name, MILLION)
    quick = sorted(seconds(gpt2.encode, short) for _ in range(5))[2]
    slow = min(seconds(gpt2.encode, long) for _ in range(3))
    print(f"{name}: {quick:.3f} s, {slow:.3f} s, {slow / quick:.1f} times")
    assert slow < 5
    assert 2 < slow / quick < 40  # the square of the length would be 100 times


@pytest.mark.slow
@pytest.mark.parametrize("name", PATTERNS)
def test_memory_of_every_pattern(gpt2_vocabulary: Path, name: str) -> None:
    """A million characters take less than 500 MB; a little more if they are one word and four tokens each."""
    count, megabytes = memory_of(pattern(name, MILLION), gpt2_vocabulary)
    print(f"{name}: {count:,} tokens, {megabytes:.0f} MB")
    assert MILLION / 20 < count <= 4 * MILLION
    assert 0 <= megabytes < (600 if name == "rare letters" else 500)
