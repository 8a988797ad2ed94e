"""Attention: the right heads, words instead of tokens, and a file that has all of it."""

import csv
import io
from dataclasses import replace

import numpy as np
import pytest

import glassformer as gf
from glassformer.answers.answer import Text
from glassformer.answers.attention import attention, find_heads, heads, steps
from glassformer.explain import attention as attending
from glassformer.figures.labels import percent
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


def test_a_head_is_labeled_only_above_uniform_attention(lm: LanguageModel, text: Text) -> None:
    """With scores of 0 a head attends alike to all that it sees: none of its shares says anything."""
    found = heads(text)
    label = found.strongest(0, 4)
    assert label is not None
    assert label[0] == "previous"
    with lm.edit([{"site": "blocks.0.attn.scores", "do": "zero"}]):
        flat = heads(text)
    count = flat.patterns.shape[1]
    assert [flat.strongest(0, head) for head in range(count)] == [None] * count
    np.testing.assert_allclose(flat.first[0], found.uniform.first[0, 0], atol=1e-6)
    titles = [panel["title"] for panel in flat.view().spec["panels"]]
    assert titles[:2] == ["0.0", "0.1"]
    count = len(text.ids) - 1  # the first token has none before it
    even = percent(float(np.mean(1 / np.arange(2, 2 + count))))
    assert f"uniform attention would have (number of queries): previous {even} ({count})," in flat.caption


def test_a_head_is_labeled_only_by_a_clear_margin_over_several_queries(text: Text) -> None:
    """At least twice the share of uniform attention, and not that of one query alone."""
    found = heads(text)
    label = found.strongest(0, 4)
    assert label is not None
    near = found.uniform.previous.copy()
    near[0, 0] = 0.51 * label[1]
    below = replace(found, uniform=replace(found.uniform, previous=near))
    assert below.strongest(0, 4) is None
    alone = found.queries | {"previous": np.ones_like(found.queries["previous"])}
    assert replace(found, queries=alone).strongest(0, 4) is None


def test_colors_hold_the_sum_of_the_values(text: Text) -> None:
    """The sum can be larger than each value: one scale that holds both."""
    found = steps(text, layer=2, head=1, position=3)
    scale = found.view().spec["panels"][1]["panels"][1]["scale"]
    largest = max(np.abs(found.weighted).max(), np.abs(found.mix).max())
    assert scale["high"] == -scale["low"] == pytest.approx(largest)
    assert np.abs(found.mix).max() > np.abs(found.weighted).max()


def test_the_sentence_says_which_weights_it_compares(text: Text) -> None:
    """The first token gives all to itself, so a smaller weight is not "the largest" without more words."""
    found = attention(text, layer=1, head=0)
    assert found.weights[0, 0] == 1
    assert found.sentence().endswith("the largest weight of a token that has several sources.")


def test_words_instead_of_tokens(lm: LanguageModel) -> None:
    """What a word gives is the mean over its tokens, what it gets is their sum: rows still add up to 1."""
    text = Text(lm, lm.encode("The unbelievable zebra was unbelievable"))
    tokens, joined = (attention(text, layer=1, head=0, by_word=by_word) for by_word in (False, True))
    assert joined.tokens == ["The", " unbelievable", " zebra", " was", " unbelievable"]
    assert len(tokens.tokens) == len(text.ids) > 5
    np.testing.assert_allclose(joined.weights.sum(-1), 1, rtol=1e-5)
    assert joined.weights[0, 0] == pytest.approx(1.0)
