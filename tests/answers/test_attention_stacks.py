"""A model of two stacks: which text a stack reads, and attention from one text to another."""

import csv
import io
import json
from dataclasses import replace

import numpy as np
import pytest
from explain.models import ToyTranslator, toy
from small import small_net, small_tokenizer

from glassformer.answers import ask
from glassformer.answers.answer import Text
from glassformer.answers.attention import Attention, attention, find_heads, heads, rollout, steps
from glassformer.answers.lens import without_stack
from glassformer.errors import InputError
from glassformer.explain import attention as attending
from glassformer.tasks.model import Model

CROSS = {"part": "cross"}


@pytest.fixture(scope="module")
def text() -> Text:
    tokenizer = small_tokenizer(300)
    lm = Model(toy(3, ToyTranslator, 300), tokenizer, name="translator")
    ids, source = (tokenizer.encode(one) for one in ("She liked to play.", "There was a little girl"))
    return Text(lm, ids, 3, source=source)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def source(text: Text) -> Text:
    assert text.source is not None
    return Text(text.lm, text.source)


@pytest.fixture(scope="module")
def cross(text: Text) -> Attention:
    return attention(text, layer=1, head=2, **CROSS)


def test_rows_and_columns_have_tokens_of_their_own(text: Text, source: Text, cross: Attention) -> None:
    """A row is a token of the text, a column one of the source; the table names sources."""
    assert len(text.ids) != len(source.ids)
    assert (cross.tokens, cross.sources) == (text.labels, source.labels)
    right = attending.patterns(text.reading(), part="cross")[1, 2]
    np.testing.assert_array_equal(cross.weights, right)
    for row, weights in zip(cross.rows, right, strict=True):
        best = np.argsort(-weights)[:3]
        assert row[2::2] == [source.labels[at] for at in best]
        assert row[3::2] == pytest.approx(weights[best])
    at, best = np.unravel_index(right.argmax(), right.shape)
    assert f"{text.labels[at]!r} gives" in cross.sentence()
    assert f"to {source.labels[best]!r}" in cross.sentence()
    assert cross.caption == "translator, decoder, cross-attention: layer 1, head 2: attention"


def test_files_have_both_texts(source: Text, cross: Attention) -> None:
    """The columns of the CSV are the source's tokens; JSON has them beside the tokens of the rows."""
    header, *rows = csv.reader(io.StringIO(cross.to_csv()))
    assert header[2:] == [f"{n} {name}" for n, name in enumerate(source.labels)]
    np.testing.assert_allclose([[float(cell) for cell in row[2:]] for row in rows], cross.weights)
    found = json.loads(json.dumps(cross.to_dict()))
    assert (found["tokens"], found["source"]) == (cross.tokens, source.labels)
    np.testing.assert_array_equal(cross.to_numpy()["weights"], cross.weights)


def test_the_drawing_is_a_rectangle(text: Text, source: Text, cross: Attention) -> None:
    """In SVG and on a terminal; arcs run within one text, so there are none between two."""
    view = cross.view()
    assert np.array(view.spec["values"], dtype=object).shape == cross.weights.shape
    assert (view.spec["rows"], view.spec["columns"]) == (
        [name.replace(" ", "␣") for name in cross.tokens],
        [name.replace(" ", "␣") for name in source.labels],
    )
    assert "masked" not in view.spec["scale"]["name"]
    for drawn in (view.to_svg(), view.to_text(100, color=False)):
        assert "She" in drawn
        assert "␣gi" in drawn
    assert list(cross.views) == ["matrix"]
    assert list(attention(text, layer=0).views) == ["matrix", "arcs"]


def test_words_of_both_texts(text: Text, source: Text) -> None:
    """A word takes the mean over its tokens, and gives their sum, each in its own text."""
    tokens, joined = (attention(text, layer=0, head=1, by_word=by_word, **CROSS) for by_word in (False, True))
    (rows, words), (columns, others) = text.words(), source.words()
    assert (joined.tokens, joined.sources) == (words, others)
    right = [[tokens.weights[list(row)][:, list(column)].sum(1).mean() for column in columns] for row in rows]
    np.testing.assert_allclose(joined.weights, right)
    np.testing.assert_allclose(joined.weights.sum(1), 1)


def test_a_stack_reads_its_text(text: Text, source: Text) -> None:
    """Of the encoder, tokens are the source's, nothing is masked, and attention looks ahead."""
    found = attention(text, layer=0, head=0, stack="encoder")
    assert found.tokens == found.sources == source.labels
    assert found.caption == "translator, encoder: layer 0, head 0: attention"
    assert found.visible.all()
    assert "source" not in found.to_dict()
    assert rollout(text, stack="encoder").tokens == source.labels
    assert ask("neurons", text, stack="encoder").tokens == source.labels
    assert ask("neurons", text).tokens == text.labels
    assert heads(text, stack="encoder").rows[0][2] == pytest.approx(found.weights.diagonal(-1).mean())


def test_the_search_follows_the_mask_of_each_stack(text: Text) -> None:
    """An encoder looks ahead, a decoder only back, cross-attention into the source."""
    ahead = find_heads(text, source=0, target=5, stack="encoder")
    pattern = attending.patterns(text.reading(), stack="encoder")
    assert ahead.rows[0][2] == pytest.approx(pattern[0, :, 0, 5].max())
    with pytest.raises(InputError, match="5 comes after 0; attention only looks back"):
        find_heads(text, source=0, target=5)
    crossing = attending.patterns(text.reading(), part="cross")
    at, to = text.positions("play"), Text(text.lm, text.source or []).positions("girl")
    found = find_heads(text, source="play", target="girl", **CROSS)
    assert found.rows[0][2] == pytest.approx(crossing[:, :, at][..., to].sum(-1).mean(-1).max())
    with pytest.raises(InputError, match="the word 'girl' is not in the text"):
        find_heads(text, source="girl", target="girl", **CROSS)


def test_heads_that_read_another_text(text: Text, source: Text) -> None:
    """No token is the one before: each head is named by the source token that it gives most to."""
    found = heads(text, **CROSS)
    mean = found.patterns.mean(2)  # (L, H, S)
    assert found.columns == ["layer", "head", "first", "entropy (nats)", "attends most to", "weight"]
    for layer, head, first, _, token, weight in found.rows:
        assert token == source.labels[mean[layer, head].argmax()]
        assert weight == pytest.approx(mean[layer, head].max())
        assert first == pytest.approx(mean[layer, head, 0])
    assert "the largest mean weight is that of head" in found.sentence()
    small = found.view("patterns").spec["panels"][0]
    assert (len(small["rows"]), len(small["columns"])) == found.patterns.shape[2:]
    for name in found.views:
        assert found.view(name).to_svg().startswith("<svg")
        assert found.view(name).to_text(90, color=False)


def test_the_steps_of_a_query_on_another_text(text: Text, source: Text) -> None:
    """A row for every source; positions of the query are the text's."""
    found = steps(text, layer=0, head=1, position=-1, **CROSS)
    assert found.tokens == source.labels
    assert found.position == len(text.ids) - 1
    assert f"query “{text.labels[-1]}”" in found.caption
    assert found.view().to_svg().startswith("<svg")
    with pytest.raises(InputError, match="position 40 is out of range"):
        steps(text, layer=0, head=1, position=40, **CROSS)


@pytest.mark.parametrize(
    ("question", "how"),
    [
        ("lens", {}),
        ("rankings", {}),
        ("attribution", {}),
        ("residual", {}),
        ("saliency", {"tested": False}),
        ("cache", {}),
        ("factors", {"count": 2, "stack": "encoder"}),
        ("update", {}),
    ],
)
def test_other_questions(text: Text, question: str, how: dict[str, object]) -> None:
    """The output reads the decoder: each has numbers, a table, pictures and a sentence."""
    found = ask(question, text, **how)
    assert found.rows
    json.dumps(found.to_dict(), allow_nan=False)
    for name in found.views:
        assert found.view(name).to_svg().startswith("<svg")
    if question == "attribution":
        parts = ask(question, text)
        assert parts.values.sum() == pytest.approx(parts.logit, abs=1e-9)  # type: ignore[attr-defined]
        assert "blocks.0.cross.mix[0]" in parts.view().spec["labels"]


def test_the_prefix_of_a_stack_is_shown_where_there_are_several() -> None:
    """Names stay different from each other."""
    assert without_stack(["decoder.embed", "decoder.blocks.0.mid", "final"]) == [
        "embed",
        "blocks.0.mid",
        "final",
    ]
    both = ["encoder.blocks.0.out", "decoder.blocks.0.out"]
    assert without_stack(both) == both
    assert without_stack(["logits"]) == ["logits"]


def test_what_a_model_lacks() -> None:
    """One sentence that lists what it has."""
    lm = Model(small_net("gpt2", 1), None, name="small")
    text = Text(lm, [1, 2, 3])  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"^stack 'encoder' does not exist; this model has: blocks$"):
        attention(text, layer=0, stack="encoder")
    wrong = r"^attention 'cross' does not exist in the stack blocks, which has: attn$"
    for ask_it in (attention, heads, steps):
        with pytest.raises(InputError, match=wrong):
            ask_it(text, **CROSS, **({} if ask_it is heads else {"layer": 0, "head": 0}))
    with pytest.raises(InputError, match="this model reads one text"):
        attention(replace(text, source=[1]), layer=0)
    assert attention(text, layer=0, stack="blocks").caption == "small: layer 0, mean of all heads: attention"
