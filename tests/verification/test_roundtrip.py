"""The check of a tokenizer: both kinds pass, a broken one does not."""

from pathlib import Path

import pytest
from small import small_tokenizer

from glassformer.hub.vocabulary import load_tokenizer
from glassformer.tokenizers import ByteBPE, Tokenizer
from glassformer.verification.roundtrip import TEXTS, random_strings, round_trip

GPT1 = load_tokenizer(Path(__file__).parents[1] / "fixtures" / "gpt1")
assert GPT1 is not None


@pytest.mark.parametrize(
    ("tokenizer", "least"), [(small_tokenizer(), 300), (GPT1, 4)], ids=["GPT-2", "GPT-1"]
)
def test_texts_come_back(tokenizer: Tokenizer, least: int) -> None:
    (check,) = round_trip(tokenizer)
    assert check.verdict == "holds"
    assert int(check.compared.split()[0]) >= least
    assert check.mutant_measured >= least - 1  # the empty text has no id to change


def test_a_tokenizer_that_loses_something(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blanks at the end that go missing."""
    whole = ByteBPE.decode
    monkeypatch.setattr(ByteBPE, "decode", lambda self, ids: whole(self, ids).rstrip(" "))
    (check,) = round_trip(small_tokenizer())
    assert check.verdict == "fails"
    assert check.measured >= 1


def test_the_strings_are_always_the_same() -> None:
    """Many scripts, no half characters, and the same ones every time."""
    strings = random_strings(300)
    assert strings == random_strings(300)
    assert len(set(strings)) == 300
    assert all(text.encode() for text in strings)
    assert "" in TEXTS
