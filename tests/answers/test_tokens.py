"""Tokens: what is cut off, and the vectors that go into the first block."""

import csv
import io

import numpy as np
import pytest

import glassformer as gf
from glassformer.answers import ask
from glassformer.generation.sampling import log_softmax
from glassformer.tasks.complete import LanguageModel


@pytest.fixture(scope="module")
def lm() -> LanguageModel:
    return gf.load("storyteller")


def test_what_cuts_tokens_off_is_named(lm: LanguageModel) -> None:
    """Filters cut off, a temperature does not; "…" is before a text only where its beginning is missing."""
    found = lm.top("Once upon a", k=5, temperature=0.7, top_k=3)
    assert found.view().spec["cut"] == {"after": 3, "label": "cut off by top-k 3"}
    assert found.caption.endswith("after 'Once upon a'")
    assert "after …'" in lm.top("Once upon a time, there was a little girl named Lily. She").caption
    greedy = lm.top("Once upon a", k=2, temperature=0).view().spec["cut"]
    assert greedy == {"after": 1, "label": "cut off by greedy choice"}


def test_pictures_of_tokens_name_the_vocabulary(lm: LanguageModel) -> None:
    """Another vocabulary would cut the text differently."""
    assert lm.tokenizer is not None
    size = f"vocabulary of {len(lm.tokenizer):,} tokens: "
    for found in (lm.tokens("A robot"), lm.merges("A robot"), lm.training_rows("A robot")):
        assert found.view().spec["title"].startswith(f"storyteller, {size}")
    assert ask("tokens", lm.tokenizer, "A robot").caption.startswith(size)


def test_probabilities_are_those_of_the_model(lm: LanguageModel) -> None:
    """Before temperature and filters, as the title says: greedy choice would give 100 % to each."""
    out = lm.generate("Once upon a", max_new_tokens=1, temperature=0)
    found = out.probabilities()
    assert found.view().spec["title"].endswith("before temperature and top-k or top-p")
    raw = np.exp(log_softmax(lm.next_logits(out.prompt_tokens).astype(np.float64)))
    assert found.probability[-1] == pytest.approx(raw.max(), abs=1e-2)  # the native engine has 8 bits
    assert raw.max() < 0.999


def test_a_file_has_the_vectors(lm: LanguageModel) -> None:
    """The table has norms; the CSV every component of token, position and sum."""
    found = lm.embedding("A robot")
    rows = list(csv.reader(io.StringIO(found.to_csv())))
    assert len(rows) == 1 + 3 * len(found.tokens)
    assert [row[2] for row in rows[1:4]] == ["token", "position", "sum"]
    token, position, total = (np.array(row[3:], dtype=float) for row in rows[-3:])
    np.testing.assert_allclose(token + position, total, atol=1e-6)
    np.testing.assert_allclose(total, found.sum[-1], atol=1e-6)


def test_parts_of_characters_are_named(lm: LanguageModel) -> None:
    """A token with some bytes of an emoji says of which; the others have their ids alone."""
    found = lm.tokens("a 😀ö")
    assert found.tokens == ["a", " ", "\\xf0", "\\x9f", "\\x98", "\\x80", "\\xc3", "\\xb6"]
    assert found.parts == ["", "", "1/4 😀", "2/4 😀", "3/4 😀", "4/4 😀", "1/2 ö", "2/2 ö"]
    notes = [f"{id} {part}".strip() for id, part in zip(found.ids, found.parts, strict=True)]
    assert found.view().spec["notes"] == notes
    assert "part of" in found.columns
    assert "part of" not in lm.tokens("a cat").columns
