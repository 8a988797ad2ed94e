"""Attention: the right heads, words instead of tokens, and a file that has all of it."""

import csv
import io
from dataclasses import replace

import numpy as np
import pytest

import glassformer as gf
from glassformer.answers.answer import Text
from glassformer.answers.attention import attention, find_heads, heads, robot, steps
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
    scale = found.view().spec["panels"][1]["panels"][1]["panels"][1]["scale"]
    largest = max(np.abs(found.weighted).max(), np.abs(found.mix).max())
    assert scale["high"] == -scale["low"] == pytest.approx(largest)
    assert np.abs(found.mix).max() > np.abs(found.weighted).max()


def test_steps_begin_with_query_keys_and_values(text: Text) -> None:
    """The vectors themselves; the first column of the steps is their product."""
    found = steps(text, layer=2, head=1, position=3)
    np.testing.assert_allclose(found.keys @ found.query, found.dots)
    vectors, (columns, _) = (panel["panels"] for panel in found.view().spec["panels"])
    assert [one["banner"][1] for one in vectors] == ["q", "k", "v"]
    assert [len(one["rows"]) for one in vectors] == [1, len(found.tokens), len(found.tokens)]
    assert vectors[0]["rows"] == ["␣on"]
    decimals = {len(cell.rpartition(".")[2]) for row in columns["texts"] for cell in row if cell != "−∞"}
    assert decimals == {3}


def test_scores_below_zero_have_a_stronger_color_where_they_are_higher(text: Text) -> None:
    """As the weights that they become; around 0, blue is above it and red below."""
    low = steps(text, layer=2, head=1, position=3)
    assert low.masked.max() < 0
    low = replace(low, dots=np.append(low.dots[:-1], 9.0))  # of a token that it does not see
    scales = low.view().spec["panels"][1]["panels"][0]["scales"]
    for scale, scores in zip(scales, (low.dots, low.scaled, low.masked[:4]), strict=False):
        assert (scale["low"], scale["high"]) == (scores.min(), scores.max())
        assert scale["stops"]["light"][0] == "#ffffff"
    around = replace(low, dots=low.dots + 50, masked=low.masked + 50)
    scales = around.view().spec["panels"][1]["panels"][0]["scales"]
    assert [one["low"] for one in scales[:3]] == [-np.abs(around.dots).max()] * 3


def test_found_heads_are_beside_uniform_attention(lm: LanguageModel) -> None:
    """A query that sees N sources gives each of them 1/N; a word has the share of all its places."""
    text = Text(lm, lm.encode("The dog saw the cat"))
    found = find_heads(text, source="cat", target="dog")
    assert found.uniform == pytest.approx(1 / 5)
    assert found.view().spec["reference"] == {"value": 0.2, "label": "uniform attention"}
    assert found.table_note == "uniform attention would give 20 %"
    assert find_heads(text, source=2, target=1).uniform == pytest.approx(1 / 3)
    with lm.edit([{"site": "blocks.*.attn.scores", "do": "zero"}]):
        flat = find_heads(text, source="cat", target="dog")
    assert [one.weight for one in flat.heads] == pytest.approx([flat.uniform] * 10)


def test_the_robot_has_three_decimals_everywhere() -> None:
    """In the picture as in the table, so that each step can be computed from the one before."""
    texts = [cell for one in robot().view().spec["panels"] for row in one["texts"] for cell in row]
    assert {len(cell.rpartition(".")[2]) for cell in texts if cell != "−∞"} == {3}


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
