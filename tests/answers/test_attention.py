"""Attention: the right heads, words instead of tokens, and a file that has all of it."""

import csv
import io

import numpy as np
import pytest

import glassformer as gf
from glassformer.answers.answer import Text
from glassformer.answers.attention import attention, find_heads
from glassformer.explain import attention as attending
from glassformer.tasks.complete import LanguageModel

TEXT = "The cat sat on the mat. The cat sat on the"


@pytest.fixture(scope="module")
def lm() -> LanguageModel:
    return gf.load("storyteller")


@pytest.fixture(scope="module")
def text(lm: LanguageModel) -> Text:
    return Text(lm, lm.encode(TEXT))


def test_a_file_has_all_of_it(text: Text) -> None:
    """A table may be a selection; its CSV is not: every source of every token, and none ahead is named."""
    found = attention(text, layer=1, head=0)
    rows = list(csv.reader(io.StringIO(found.to_csv())))[1:]
    np.testing.assert_allclose([[float(cell) for cell in row[2:]] for row in rows], found.weights)
    assert [row[2::2].count("") for row in found.rows[:3]] == [2, 1, 0]


def test_the_search_finds_the_head_that_looks_most(lm: LanguageModel, text: Text) -> None:
    """From every place of a word to every place of another."""
    names = [lm.piece(id).strip() for id in text.ids]
    queries = [at for at, name in enumerate(names) if name == "sat"]
    sources = [at for at, name in enumerate(names) if name == "cat"]
    given = attending.patterns(text.reading())[:, :, queries][..., sources].sum(-1).mean(-1)
    layer, head, weight = find_heads(text, source="sat", target=" cat").rows[0]
    assert weight == pytest.approx(given.max())
    assert given[layer, head] == given.max()


def test_words_instead_of_tokens(lm: LanguageModel) -> None:
    """What a word gives is the mean over its tokens, what it gets is their sum: rows still add up to 1."""
    text = Text(lm, lm.encode("The unbelievable zebra was unbelievable"))
    tokens, joined = (attention(text, layer=1, head=0, by_word=by_word) for by_word in (False, True))
    assert joined.tokens == ["The", " unbelievable", " zebra", " was", " unbelievable"]
    assert len(tokens.tokens) == len(text.ids) > 5
    np.testing.assert_allclose(joined.weights.sum(-1), 1, rtol=1e-5)
    assert joined.weights[0, 0] == pytest.approx(1.0)
