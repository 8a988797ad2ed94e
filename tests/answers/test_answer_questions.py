"""Questions in words: the numbers of `explain`, with the right names on them."""

from importlib import import_module
from typing import Any

import pytest

import glassformer as gf
from glassformer.answers import LACKS, QUESTIONS, ask
from glassformer.answers.answer import Text
from glassformer.errors import InputError
from glassformer.tasks.complete import LanguageModel

TEXT = "The cat sat on the mat. The cat sat on the"


@pytest.fixture(scope="module")
def lm() -> LanguageModel:
    return gf.load("storyteller")


@pytest.fixture(scope="module")
def text(lm: LanguageModel) -> Text:
    return Text(lm, lm.encode(TEXT))


def test_half_characters_are_bytes(lm: LanguageModel) -> None:
    """Not a question mark."""
    shown = Text(lm, lm.encode("猫")).labels
    assert all("\ufffd" not in one for one in shown)
    assert "".join(shown) == "\\xe7\\x8c\\xab"


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


def test_what_a_model_lacks_is_reported(lm: LanguageModel, text: Text) -> None:
    """A question is refused by what a model cannot do, before anything is computed."""

    class Deaf:
        name = "cbow"
        capabilities = frozenset({"encodes"})

    for name, words in (
        ("attention", "attention: cbow has no layers of attention heads"),
        ("lens", "lens: cbow does not predict the next token"),
        ("probabilities", "probabilities: cbow does not generate text"),
    ):
        with pytest.raises(InputError, match=words):
            ask(name, Deaf())
    assert all(question.needs <= set(LACKS) for question in QUESTIONS.values())
    assert lm.capabilities >= {"writes", "causal", "attends"}


def test_every_question_is_in_the_module_of_the_table() -> None:
    """One name: of the question, of its function, and of the kind of its answer."""
    for name, question in QUESTIONS.items():
        module = import_module(f"glassformer.answers.{question.module}")
        assert callable(getattr(module, name)), name
        assert question.help
