"""Tokens to words: whatever they were cut into, in any script."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassformer.tokenizers.words import words


def joined(*pieces: str | bytes) -> list[str]:
    raw = [piece.encode() if isinstance(piece, str) else piece for piece in pieces]
    return [b"".join(raw[at] for at in group).decode("utf-8", "replace") for group in words(raw)]


@pytest.mark.parametrize(
    ("pieces", "right"),
    [
        (
            ["Once", " up", "on", " a", " time", ",", " there"],
            ["Once", " upon", " a", " time", ",", " there"],
        ),
        ([" L", "ily", "'", "s", " 12", "3", "!", "?"], [" Lily's", " 123", "!?"]),
        (["don", "'", "t", " ", "go"], ["don't", " go"]),
        (["end", ".", "\n", "\n", "The"], ["end", ".", "\n\n", "The"]),
        ([b"\xe6\x88", b"\x91", "们", " ok"], ["我", "们", " ok"]),
        (["e", b"\xcc\x81", "t", b"\xc3", b"\xa9"], ["e\u0301té"]),
        (["при", "вет", " ", "мир"], ["привет", " мир"]),
        ([b"\xff", "a"], ["\ufffd", "a"]),
        (["안", "녕", "하세요", " 세", "계"], ["안녕하세요", " 세계"]),
        (["ก", "ิ", "น", "ข", "้", "าว"], ["กิ", "น", "ข้", "าว"]),
        (["می", "\u200c", "خواهم"], ["می\u200cخواهم"]),
        (["❤", "\ufe0f", " ok"], ["❤\ufe0f", " ok"]),
        (["'", "robot", "'", " said"], ["'", "robot", "'", " said"]),
        (['"', "Hi", "!", '"'], ['"', "Hi", '!"']),
        ([], []),
    ],
)
def test_words(pieces: list[str | bytes], right: list[str]) -> None:
    """Blanks go with what follows; half characters are never torn; Chinese is read character by character."""
    assert joined(*pieces) == right


@given(st.lists(st.binary(min_size=1, max_size=5), max_size=20))
def test_every_token_is_in_one_word(pieces: list[bytes]) -> None:
    """In order, none left out, none twice, whatever the bytes."""
    assert [at for group in words(pieces) for at in group] == list(range(len(pieces)))


@given(st.text(max_size=30), st.data())
def test_characters_stay_whole(text: str, data: st.DataObject) -> None:
    """However a text is cut, each of its words is text."""
    raw = text.encode("utf-8", "ignore")
    cuts = sorted(
        data.draw(st.sets(st.integers(1, max(1, len(raw) - 1)), max_size=10)) if len(raw) > 1 else []
    )
    pieces = [raw[a:b] for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True) if b > a]
    for group in words(pieces):
        b"".join(pieces[at] for at in group).decode("utf-8")
