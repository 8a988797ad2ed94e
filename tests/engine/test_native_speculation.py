"""Prompt lookup with the native engine: the same bits as plain decoding, whatever is drafted."""

import numpy as np
import pytest
from speculating import Knowing, draft_always, equal_with_and_without, play, random_case, texts_of

import glassformer as gf
from engine.conftest import engine_of, random_model
from glassformer.cli import run
from glassformer.engine.native import Engine
from glassformer.errors import InputError

CONTEXT = 32


@pytest.fixture(scope="module")
def small() -> Engine:
    """A model of few tokens, whose texts repeat themselves."""
    model = random_model(3, layers=1, heads=2, width=16, vocab=24, context=CONTEXT)
    return engine_of(model, threads=1)


def test_step_all_scores_every_token(engine: Engine, rng: np.random.Generator) -> None:
    """As steps of one token do, to the bit, with padding in the cache and after going back."""
    ids = rng.integers(0, engine.vocab, (2, 20))
    padding = np.array([0, 5])
    one = engine.new_cache(2, 20, padding=padding)
    engine.step(ids[:, :8], one)
    want = np.stack([engine.step(ids[:, at : at + 1], one) for at in range(8, 20)], axis=1)
    cache = engine.new_cache(2, 20, padding=padding)
    engine.step(ids[:, :8], cache)
    engine.step_all(np.zeros((2, 3), dtype=np.int64), cache)
    cache.rewind(8)
    np.testing.assert_array_equal(engine.step_all(ids[:, 8:], cache), want)
    assert cache.length == 20
    with pytest.raises(InputError, match="step_all takes no padding"):
        engine.step_all(ids, engine.new_cache(2, 20, padding=padding))


def test_random_generations_are_those_of_plain_decoding(
    small: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hundreds, with all options: tokens, log-probabilities and ends, to the bit."""
    equal_with_and_without(small, range(60), context=CONTEXT)
    draft_always(monkeypatch)
    total = equal_with_and_without(small, range(60, 180), context=CONTEXT)
    assert 100 < total.accepted < total.drafted


@pytest.mark.parametrize("right", [0, 2, 100])
def test_any_draft_gives_the_same(small: Engine, monkeypatch: pytest.MonkeyPatch, right: int) -> None:
    """Drafts that are always wrong, wrong from the third token on, and always right."""
    for seed in range(60):
        case = random_case(seed, vocab=small.vocab, context=CONTEXT)
        want, asked, _ = play(small, case)
        texts = texts_of(case, want)
        draft_always(monkeypatch, lambda texts=texts: Knowing(texts, right=right, vocab=small.vocab))
        assert play(small, case, most=5)[:2] == (want, asked), f"seed {seed}: {case}"


@pytest.mark.slow
def test_thousands_of_generations_are_those_of_plain_decoding(
    engine: Engine, small: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same with thousands of prompts and two models, one of them with two threads, and real stories."""
    for model, context, first in ((small, CONTEXT, 1_000), (engine, 64, 5_000)):
        equal_with_and_without(model, range(first, first + 1_000), context=context)
        with monkeypatch.context() as patched:
            draft_always(patched)
            equal_with_and_without(model, range(first + 1_000, first + 3_000), context=context)
    lm = gf.load("storyteller", engine="native")
    for seed in range(200):
        prompt = ["Once upon a time", "One day, one day, one day", ""][seed % 3]
        how = {"seed": seed, "temperature": [0.0, 0.7, 1.0][seed // 3 % 3], "stop": ["\n\n"]}
        plain = lm.generate(prompt, prompt_lookup_num_tokens=0, **how)
        ahead = lm.generate(prompt, **how)
        assert ahead == plain  # text, tokens, log-probabilities and the reason of the end


def test_a_language_model_reads_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """By default, and the result is that of plain decoding, also where a stop string ends it."""
    draft_always(monkeypatch)
    lm = gf.load("storyteller", engine="native")
    prompt = "Tom has a red ball. Sam has a red ball. Mia has a red ball. " * 4
    options = {"temperature": 0.0, "max_new_tokens": 60, "seed": 1}
    plain = lm.generate(prompt, prompt_lookup_num_tokens=0, **options)
    ahead = lm.generate(prompt, **options)
    assert ahead == plain
    assert plain.drafts.drafted == 0 < ahead.drafts.accepted <= ahead.drafts.drafted
    stop = plain.text[40:48]
    stopped = lm.generate(prompt, stop=stop, **options)
    assert stopped == lm.generate(prompt, stop=stop, prompt_lookup_num_tokens=0, **options)
    assert stopped.finish_reason == "stop"
    assert "".join(lm.stream(prompt, stop=stop, **options)) == stopped.text


def test_torch_does_not_read_ahead() -> None:
    """Its logits change in the last digits with the number of tokens of a step; who asks for it is told."""
    lm = gf.load("storyteller", engine="torch")
    options = {"temperature": 0.0, "max_new_tokens": 4, "seed": 1}
    out = lm.generate("One day, one day, one day", **options)
    assert out.drafts.drafted == 0
    assert lm.generate("One day, one day, one day", prompt_lookup_num_tokens=0, **options) == out
    with pytest.raises(InputError, match="prompt_lookup_num_tokens: only the native engine") as error:
        lm.generate("One day", prompt_lookup_num_tokens=5, **options)
    assert "\n" not in str(error.value)
    flags = ["--prompt-lookup-num-tokens", "5", "-n", "4", "One day"]
    assert run(["generate", "--engine", "torch", *flags]) == 2
    assert run(["generate", "--num-beams", "2", *flags]) == 2
    assert run(["generate", *flags]) == 0
