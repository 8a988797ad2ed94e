"""One answer of every kind, of texts that are kind and of one that is not."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import glassformer as gf
from glassformer.models.gpt import GPT, Config
from glassformer.tasks import library, pictures, questions
from glassformer.tasks.complete import LanguageModel
from glassformer.tasks.look import Look
from glassformer.tasks.surgery import operate

HOSTILE = "</script><svg onload=alert(1)>&amp;\"'\x00\x1b[31m\u202eabc\u200b 机器人 שלום 👩‍👩‍👧\té\n\n"


def every(lm: LanguageModel, text: str, folder: Path) -> dict[str, Look]:
    """An answer of every kind."""
    out = lm.generate(text, max_new_tokens=3, temperature=0)
    ids = out.ids
    metrics = folder / "metrics.jsonl"
    steps = [{"step": n, "loss": 6 - n / 20, "tokens": 1000 * n} for n in range(1, 60)]
    metrics.write_text("".join(json.dumps(line) + "\n" for line in [*steps, {"step": 59, "held_out": 3.5}]))
    other = LanguageModel(lm.model, lm.tokenizer, name="the other")
    found = [
        out.attention(1, 0),
        out.attention(),
        out.steps(1, 0, 2),
        out.lens(),
        out.rankings(),
        out.rankings_watch([5, 6, 7]),
        out.parts(0),
        out.journey(),
        out.saliency(tested=True),
        out.neurons(),
        out.neurons([0]).nmf(2),
        out.neurons([0]).clusters(2),
        out.cache(),
        out.probabilities(),
        questions.search(lm, ids, "2", "1"),
        questions.robot(),
        lm.pushes(1, 3),
        lm.passages([text], 1, 3),
        operate(lm, text, [{"site": "blocks.0.attn", "do": "zero"}], k=3, max_new_tokens=2),
        lm.diff(other, text),
        lm.choices(text, 12, top_k=5),
        lm.merges(text),
        lm.embedding(text),
        pictures.parameters(library.describe("storyteller")),
        pictures.curve([metrics]),
    ]
    looks = {one.kind: one for one in found}
    looks["sweep"] = questions_sweep(lm)
    return looks


def questions_sweep(lm: LanguageModel) -> Look:
    return lm.sweep("The girl lost", "The boy lost", " her", " his")


@pytest.fixture(scope="session")
def storyteller() -> LanguageModel:
    return gf.load("storyteller")


@pytest.fixture(scope="session")
def looks(storyteller: LanguageModel, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Look]:
    """Of a plain text."""
    return every(storyteller, "Once upon a time, there was a robot.", tmp_path_factory.mktemp("plain"))


@pytest.fixture(scope="session")
def hostile(storyteller: LanguageModel, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Look]:
    """Of a text that would like to be markup, and has every script."""
    return every(storyteller, HOSTILE, tmp_path_factory.mktemp("hostile"))


@pytest.fixture(scope="session")
def long(storyteller: LanguageModel) -> dict[str, Look]:
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
        out.neurons([0]).nmf(2),
    ]
    answers += [
        out.rollout(),
        out.probabilities(),
        out.cache(),
        out.saliency(tested=False),
        out.rankings(),
        out.journey(),
    ]
    return {f"{n} {one.kind}": one for n, one in enumerate(answers)}


@pytest.fixture(scope="session")
def scripts(looks: dict[str, Look]) -> dict[str, Look]:
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
    kinds = ("attention", "lens", "written", "neurons", "factors", "saliency", "steps", "embedding", "sweep")
    made = {}
    for kind in kinds:
        look = looks[kind]
        made[kind] = replace(look, tokens=[words[n % len(words)] for n in range(len(look.tokens))])
    return made
