"""One answer of every kind, of texts that are kind and of one that is not."""

from dataclasses import replace

import pytest
import torch
from every import every

import glassformer as gf
from glassformer.answers.answer import Answer
from glassformer.models.gpt import GPT, Config
from glassformer.tasks.complete import LanguageModel

HOSTILE = "</script><svg onload=alert(1)>&amp;\"'\x00\x1b[31m\u202eabc\u200b 机器人 שלום 👩‍👩‍👧\té\n\n"


@pytest.fixture(scope="session")
def storyteller() -> LanguageModel:
    return gf.load("storyteller")


@pytest.fixture(scope="session")
def looks(storyteller: LanguageModel, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Answer]:
    """Of a plain text."""
    return every(storyteller, "Once upon a time, there was a robot.", tmp_path_factory.mktemp("plain"))


@pytest.fixture(scope="session")
def hostile(storyteller: LanguageModel, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Answer]:
    """Of a text that would like to be markup, and has every script."""
    return every(storyteller, HOSTILE, tmp_path_factory.mktemp("hostile"))


@pytest.fixture(scope="session")
def long(storyteller: LanguageModel) -> dict[str, Answer]:
    """Of 1,024 tokens, by a small model with random weights."""
    torch.manual_seed(0)
    assert storyteller.tokenizer is not None
    model = GPT(Config(layers=2, heads=2, width=16, context=1024, vocab=len(storyteller.tokenizer))).eval()
    lm = LanguageModel(model, storyteller.tokenizer, name="random")
    ids = (storyteller.encode("One day a robot met a girl. They ran up the hill. ") * 100)[:1021]
    out = lm.generate(ids, max_new_tokens=3, temperature=0)
    assert len(out.ids) == 1024
    answers = [
        out.attention(1, 0),
        out.attention(),
        out.lens(),
        out.steps(1, 0),
        out.neurons(),
        out.neurons([0]).factors(2),
    ]
    answers += [
        out.rollout(),
        out.probabilities(),
        out.cache(),
        out.saliency(tested=False),
        out.rankings(),
        out.residual(),
    ]
    return {f"{n} {one.kind}": one for n, one in enumerate(answers)}


@pytest.fixture(scope="session")
def scripts(looks: dict[str, Answer]) -> dict[str, Answer]:
    """The same answers with whole words of every script for tokens, long ones among them."""
    words = [
        "机器人必须服从人类的命令",
        " שלום עולם",
        "الروبوت",
        " internationalisation-of-everything",
        "\u200b",
        " 👩‍👩‍👧",
        "é",
        "\n",
    ]
    kinds = (
        "attention",
        "lens",
        "probabilities",
        "neurons",
        "factors",
        "saliency",
        "steps",
        "embedding",
        "sweep",
    )
    made = {}
    for kind in kinds:
        look = looks[kind]
        made[kind] = replace(look, tokens=[words[n % len(words)] for n in range(len(look.tokens))])
    return made
