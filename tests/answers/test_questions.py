"""Questions in words: the numbers of `explain`, with the right names on them."""

import csv
import io
from importlib import import_module
from typing import Any

import numpy as np
import pytest
import torch

import glassformer as gf
from glassformer.answers import LACKS, QUESTIONS, ask
from glassformer.answers.answer import Text
from glassformer.errors import InputError
from glassformer.explain import attention as attending
from glassformer.tasks.complete import LanguageModel

TEXT = "The cat sat on the mat. The cat sat on the"


@pytest.fixture(scope="module")
def lm() -> LanguageModel:
    return gf.load("storyteller")


@pytest.fixture(scope="module")
def text(lm: LanguageModel) -> Text:
    return Text(lm, lm.encode(TEXT))


def test_a_file_has_all_of_it(lm: LanguageModel, text: Text) -> None:
    """A table may be a selection; its CSV is not: every source of every token, and none ahead is named."""
    found = ask("attention", text, layer=1, head=0)
    rows = list(csv.reader(io.StringIO(found.to_csv())))[1:]
    np.testing.assert_allclose([[float(cell) for cell in row[2:]] for row in rows], found.weights)
    assert [row[2::2].count("") for row in found.rows[:3]] == [2, 1, 0]
    out = lm.generate("The cat sat on", max_new_tokens=2, temperature=0)
    why = out.saliency(tested=False)
    shares = list(csv.DictReader(io.StringIO(why.to_csv())))
    assert len(shares) == len(out.prompt_tokens) * 2 + 1
    first = [abs(float(row["share"])) for row in shares if row["position"] == shares[0]["position"]]
    assert sum(first) == pytest.approx(1, abs=1e-5)
    assert {why.tokens[int(row["position"])] for row in shares} == {row["token"] for row in shares}


def test_the_search_finds_the_head_that_looks_most(lm: LanguageModel, text: Text) -> None:
    """From every place of a word to every place of another."""
    names = [lm.piece(id).strip() for id in text.ids]
    queries = [at for at, name in enumerate(names) if name == "sat"]
    sources = [at for at, name in enumerate(names) if name == "cat"]
    given = attending.patterns(text.reading())[:, :, queries][..., sources].sum(-1).mean(-1)
    layer, head, weight = ask("find_heads", text, source="sat", target=" cat").rows[0]
    assert weight == pytest.approx(given.max())
    assert given[layer, head] == given.max()


def test_words_instead_of_tokens(lm: LanguageModel) -> None:
    """What a word gives is the mean over its tokens, what it gets is their sum: rows still add up to 1."""
    text = Text(lm, lm.encode("The unbelievable zebra was unbelievable"))
    tokens, joined = (ask("attention", text, layer=1, head=0, by_word=by_word) for by_word in (False, True))
    assert joined.tokens == ["The", " unbelievable", " zebra", " was", " unbelievable"]
    assert len(tokens.tokens) == len(text.ids) > 5
    np.testing.assert_allclose(joined.weights.sum(-1), 1, rtol=1e-5)
    assert joined.weights[0, 0] == pytest.approx(1.0)


def test_half_characters_are_bytes(lm: LanguageModel) -> None:
    """Not a question mark."""
    shown = Text(lm, lm.encode("猫")).labels
    assert all("\ufffd" not in one for one in shown)
    assert "".join(shown) == "\\xe7\\x8c\\xab"


def test_why_explains_what_was_written(lm: LanguageModel) -> None:
    """A row of shares for every generated token, on all before it; the last token explains nothing."""
    written = lm.generate("Once upon a time", max_new_tokens=3, temperature=0)
    found = written.saliency(tested=False)
    shares = found.shares
    assert shares.shape == (3, len(written.prompt_tokens) + 2)
    assert [target.token for target in found.targets] == written.tokens
    embedded = lm.net.tokens(torch.tensor([written.prompt_tokens])).detach().requires_grad_()
    with gf.trace(lm.net, edits={"embed": lambda x: embedded + lm.net.positions.weight[: x.shape[1]]}):
        logit = lm.net(torch.tensor([written.prompt_tokens]))[0, -1, written.tokens[0]]
    logit.backward()
    assert embedded.grad is not None
    right = (embedded.grad * embedded)[0].norm(dim=-1).detach().numpy()
    np.testing.assert_allclose(shares[0, : len(right)], right / right.sum(), rtol=1e-4)


@pytest.mark.parametrize(
    ("name", "how", "words"),
    [
        ("lens", {"watch": ["unbelievable"]}, "'unbelievable' is not one token but '"),
        ("lens", {"watch": [""]}, "an empty text is no token"),
        (
            "find_heads",
            {"source": "dog", "target": "cat"},
            "the word 'dog' is not in the text; its words are The cat sat",
        ),
        ("find_heads", {"source": "0", "target": "5"}, "'5' comes after '0'; attention only looks back"),
        ("find_heads", {"source": "99", "target": "5"}, "position 99 is out of range"),
        ("attention", {"layer": 0, "head": 77}, "head 77 is out of range"),
        ("factors", {"count": 99}, "factors must be between 1 and the"),
        ("top", {"k": 0}, "k must be a whole number of at least 1, not 0"),
        ("neurons", {"k": 0}, "k must be at least 1, not 0"),
        ("update", {"lr": 0}, "lr must be above 0, not 0"),
        ("update", {"k": 0}, "k must be a whole number of at least 1, not 0"),
        ("why", {}, "'why' is not a question; there is top, tokens"),
    ],
)
def test_what_cannot_be_answered(text: Text, name: str, how: Any, words: str) -> None:
    """One sentence each."""
    with pytest.raises(InputError, match=words):
        ask(name, text, **how)


def test_an_empty_text(lm: LanguageModel) -> None:
    """There is nothing to explain."""
    with pytest.raises(InputError, match="the text is empty"):
        ask("heads", Text(lm, []))


def test_what_a_model_lacks_is_said(lm: LanguageModel, text: Text) -> None:
    """A question is refused by what a model cannot do, before anything is computed."""

    class Deaf:
        name = "cbow"
        capabilities = frozenset({"encodes"})

    for name, words in (
        ("attention", "attention: cbow has no attention"),
        ("lens", "lens: cbow does not predict the next token"),
        ("probabilities", "probabilities: cbow does not generate text"),
    ):
        with pytest.raises(InputError, match=words):
            ask(name, Deaf())
    assert all(question.needs <= set(LACKS) for question in QUESTIONS.values())
    assert lm.capabilities >= {"writes", "causal", "attends"}


def test_every_question_is_found_where_the_table_says() -> None:
    """One name: of the question, of its function, and of the kind of its answer."""
    for name, question in QUESTIONS.items():
        module = import_module(f"glassformer.answers.{question.module}")
        assert callable(getattr(module, name)), name
        assert question.help
