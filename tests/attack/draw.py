"""Hostile texts, numbers, JSON values and damaged bytes, all drawn from a seed."""

import json
import random
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

T = TypeVar("T")

WORDS = (
    "Once upon a time",
    "the",
    " cat",
    "sat on the mat",
    "dog's",
    "1, 2, 3",
    "blocks.0.attn",
    "gpt2",
    "x.json",
)
HOSTILE = (
    "", " ", "-", "--", "---", "-1", "--json", "=", "\\", "'", '"', "`id`", "$(id)", "%s%n", "{0}",
    "[bold]x[/]", "[/]", "<script>", "<|endoftext|>", "]]>", "&lt;", "\t", "\n", "\r\n", "\x1b[2J", "\x07",
    "\x7f", "\x85", "\u2028", "\ufeff", "\u202e", "\u0301", "e\u0301\u0323", "ß", "İ", "ﷺ", "한국어", "א",
    "👩‍👩‍👧", "🏳️‍🌈", "\U0010ffff", "\ue000", "\ufffe", "𝟛", "½", "\udcff", "\udc80\udcfe", "\ud800",
    "\udfff\ud800", "../x", "./.", "*", "?", "~no-such-user", "nul", "@main", "a@b@c", ":",
)  # fmt: skip
LONG = ("a", " ", "ab ", "é", "🏳️‍🌈", "\u0301", "\n", "0", "(", "<|endoftext|>")
WHOLE = (
    "0", "1", "2", "7", "+5", "-0", "-1", "-7", "00012", "63", "64", "65", "1000", "1000000", "2147483647",
    "2147483648", "4294967296", "9223372036854775807", "9223372036854775808", "-9223372036854775809",
    "99999999999999999999", "9" * 400, "1" * 5000, "٣", "１２", "৩", "²", "½", "Ⅷ", "1_0", " 1", "1 ", "1.0",
    "1e3", "0x10", "0b1", "nan", "inf", "True", "None", "", "--", "1,000", "1\n", "-", "+", "٣.٥",
)  # fmt: skip
NUMBERS = (
    *WHOLE, "0.5", ".5", "5.", "-0.0", "1e-400", "1e400", "-1e400", "1e308", "-1e308", "1e-320", "5e-324",
    "1e38", "1e39", "1e16", "0.1e", "e5", "1e٣", "Infinity", "-nan", "1.2.3", "0,5", "1e-9",
    "0.999999999999999999",
)  # fmt: skip
# Values that no flag of a number takes.
NO_NUMBERS = (
    "", "x", "1_0", " 1", "1\n", "٣", "１２", "²", "½", "0x10", "nan", "inf", "1e400", "9" * 400, "1,000",
    "1e", "True",
)  # fmt: skip

# JSON that `json.dumps` does not write.
RAW = (
    "1e400", "-1e400", "1" + "0" * 400, "-" + "9" * 400, "0." + "1" * 400, "1" * 5000, "1e-400", "NaN",
    "-Infinity", "01", "-0", "+1", "1.", "tru", "nul", "'a'", "", ",", '"\\ud800"', '"\\u0000"', '"\\x"',
    '"\t"', "[" * 5000, "[" * 900 + "]" * 900, '{"a":' * 5000, '{"a":1,"a":2}', '{"":[]}', "/**/1", "[1,]",
    '"' + "a" * 100_000 + '"', "[" + "0," * 20_000 + "0]", "\u00a01",
)  # fmt: skip
PLAIN = (
    None, True, False, 0, 1, 2, 3, -1, 16, 280, 2**31, 2**53 + 1, 2**63, -(2**63), 10**30, 0.5, -0.0,
    1e-320, 1e38, 1e308, "", "a", "0", "relu", "float32", "../x", "/dev/null", "\x00", "<|endoftext|>",
    "a" * 300, [], {}, [[]], [{}], [None], [0, 1], [-1], ["a", "a"], {"a": None}, {"": {}}, [[0.5] * 8] * 2,
    [1e39],
)  # fmt: skip
TOML = (*RAW, *NUMBERS, *map(repr, PLAIN), '"""', "2026-01-01", "[[", "{a={a=1}}", "-nan", '"\\ud800"')


class Draw(random.Random):
    """A seeded generator of values that often cause errors."""

    def chance(self, share: float) -> bool:
        """True in this share of all cases."""
        return self.random() < share

    def some(self, values: Sequence[T], most: int) -> list[T]:
        """Up to `most` of them, in any order."""
        return self.sample(values, self.randint(0, min(most, len(values))))

    def text(self) -> str:
        """A text for a command line: any character but NUL."""
        if self.chance(0.05):
            return self.choice(LONG) * self.choice((300, 5000, 100_000))
        if self.chance(0.1):
            return "".join(chr(self.choice(planes(self))) for _ in range(self.randint(1, 12)))
        parts = [self.choice(HOSTILE if self.chance(0.5) else WORDS) for _ in range(self.randint(1, 4))]
        return self.choice(("", " ")).join(parts)

    def number(self, *, whole: bool) -> str:
        """A number for a flag, or a text that resembles one."""
        if self.chance(0.1):
            return self.text()
        if self.chance(0.2):
            return str(self.randint(-(10 ** self.randint(1, 25)), 10 ** self.randint(1, 25)))
        return self.choice(WHOLE if whole else NUMBERS)

    def value(self, depth: int = 0) -> Any:
        """A JSON value."""
        if depth < 3 and self.chance(0.15):
            return [self.value(depth + 1) for _ in range(self.randint(0, 4))]
        if depth < 3 and self.chance(0.1):
            return {str(self.choice(PLAIN))[:20]: self.value(depth + 1) for _ in range(self.randint(0, 4))}
        return self.choice(PLAIN)

    # Damage

    def damaged(self, name: str, content: bytes) -> bytes:
        """A damaged file: its values in the terms of its format, or its bytes."""
        if self.chance(0.3):
            return self.damaged_bytes(content)
        suffix = name.rpartition(".")[2]
        ways: dict[str, Callable[[bytes], bytes]] = {
            "json": self.damaged_json,
            "jsonl": self.damaged_lines,
            "safetensors": self.damaged_tensors,
            "toml": self.damaged_toml,
        }
        return ways.get(suffix, self.damaged_bytes)(content)

    def damaged_bytes(self, content: bytes) -> bytes:
        """Flipped bits, zeros, a part cut, doubled, moved; empty; another encoding."""
        whole = bytearray(content)
        start, end = sorted(self.randint(0, len(whole)) for _ in range(2))
        match self.randint(0, 8):
            case 0 | 1:
                for _ in range(self.choice((1, 1, 1, 20))):
                    if whole:
                        whole[self.randrange(len(whole))] ^= 1 << self.randrange(8)
            case 2:
                whole[start:end] = bytes(end - start)
            case 3:
                del whole[start:end]
            case 4:
                del whole[start:]
            case 5:
                whole[start:start] = whole[start:end]
            case 6:
                whole[start:start] = self.randbytes(self.choice((1, 8, 1000)))
            case 7:
                whole[:] = self.choice(
                    (b"", bytes(len(whole)), b"\xef\xbb\xbf" + whole, b"{}", b"[]", b"null", b"\n")
                )
            case _:
                whole[:] = content.decode("latin-1").encode(self.choice(("utf-16", "utf-8", "utf-32")))
        return bytes(whole)

    def damaged_json(self, content: bytes) -> bytes:
        """One to three values replaced, dropped, renamed, doubled or swapped."""
        value = json.loads(content)
        raw: dict[str, str] = {}
        for _ in range(self.choice((1, 1, 2, 3))):
            value = self._changed(value, raw)
        text = json.dumps(value)
        for mark, instead in raw.items():
            text = text.replace(f'"{mark}"', instead)
        return text.encode("utf-8", "surrogatepass")

    def _changed(self, value: Any, raw: dict[str, str]) -> Any:
        """The value with one change inside; text that `json.dumps` cannot write is a mark, kept in `raw`."""
        inside = isinstance(value, dict | list) and len(value) > 0
        if not inside or self.chance(0.03):
            if self.chance(0.5):
                return self.value()
            mark = f"raw {len(raw)} {self.random()}"
            raw[mark] = self.choice(RAW)
            return mark
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        key, other = self.choice(keys), self.choice(keys)
        match self.randint(0, 9):
            case 0:
                del value[key]
            case 1:
                value[key], value[other] = value[other], value[key]
            case 2 if isinstance(value, dict):
                value[str(self.choice(PLAIN))[:50]] = value.pop(key)
            case 3 if isinstance(value, dict):
                mark = f"raw {len(raw)} {self.random()}"
                raw[mark] = f"{json.dumps(self.value())}, {json.dumps(key)}: {json.dumps(value[key])}"
                value[key] = mark
            case _:
                value[key] = self._changed(value[key], raw)
        return value

    def damaged_lines(self, content: bytes) -> bytes:
        """One line of JSON damaged, dropped or doubled."""
        lines = content.splitlines(keepends=True)
        at = self.randrange(len(lines))
        line = self.choice((self.damaged_json, self.damaged_bytes))(lines[at])
        lines[at : at + 1] = self.choice(([line], [line + b"\n"], [], [lines[at], line + b"\n"]))
        return b"".join(lines)

    def damaged_tensors(self, content: bytes) -> bytes:
        """Another header, with its own length or a wrong one."""
        size = int.from_bytes(content[:8], "little")
        header = self.damaged_json(content[8 : 8 + size])
        length = len(header)
        if self.chance(0.2):
            length = self.choice((size, 0, 2**63, 2**64 - 1, len(header) + 8, 1))
        return length.to_bytes(8, "little") + header + content[8 + size :]

    def damaged_toml(self, content: bytes) -> bytes:
        """A value replaced, a line doubled, dropped, moved."""
        lines = content.decode().splitlines()
        at = self.randrange(len(lines))
        key = lines[at].partition("=")[0]
        match self.randint(0, 5):
            case 0:
                del lines[at]
            case 1:
                lines.insert(self.randrange(len(lines)), lines[at])
            case 2:
                lines[at] = self.choice(
                    ("[model]", "[[model]]", "[other]", "[", "a.b.c = 1", '"" = 1', "[a.b]", "[" * 2000)
                )
            case _:
                lines[at] = f"{key} = {self.choice(TOML)}"
        return "\n".join(lines).encode("utf-8", "surrogatepass")


def planes(draw: random.Random) -> range:
    """A range of Unicode; one of them holds the surrogates."""
    return draw.choice((range(1, 0x80), range(0x80, 0x800), range(0x800, 0x10000), range(0x10000, 0x110000)))
