"""Random generations with every option, played with and without prompt lookup; drafters for tests."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from glassformer.generation import speculation
from glassformer.generation.decode import generate
from glassformer.generation.options import Options
from glassformer.generation.speculation import Drafts, Speculation

Heard = list[tuple[int, int, int | None, float | None, str | None]]


@dataclass(frozen=True)
class Case:
    """One call of `generate`, and when its consumer stops an answer or cancels it all."""

    prompts: list[list[int]]
    options: Options
    ends: tuple[int, ...] = ()
    known: int | None = None
    forbidden: tuple[int, ...] = ()
    stop_after: int = 10_000  # the event whose continuation is stopped
    cancel_after: int = 10_000  # questions


def play(model: Any, case: Case, *, most: int = 0) -> tuple[Heard, int, list[Drafts]]:
    """What a consumer hears, how often it was asked whether to cancel, and what was drafted."""
    asked, heard = 0, []
    drafts: dict[int, Drafts] = {}

    def cancelled() -> bool:
        nonlocal asked
        asked += 1
        return asked > case.cancel_after

    options = replace(case.options, prompt_lookup_num_tokens=most)
    rules: dict[str, Any] = {"ends": case.ends, "known": case.known, "forbidden": case.forbidden}
    for event in generate(model, case.prompts, options=options, cancelled=cancelled, **rules):
        heard.append((event.prompt, event.choice, event.token, event.logprob, event.finish))
        drafts[id(event.continuation)] = event.continuation.drafts
        if len(heard) == case.stop_after:
            event.continuation.stop()
    return heard, asked, list(drafts.values())


def random_case(seed: int, *, vocab: int, context: int) -> Case:
    """Any options; prompts of few different tokens, or of a pattern that repeats, most of them alone."""
    rng = np.random.default_rng(seed)

    def pick(*values: Any) -> Any:
        return values[int(rng.integers(len(values)))]

    def tokens(count: int, among: int = vocab) -> list[int]:
        return [int(id) for id in rng.integers(0, among, size=count)]

    slide = bool(rng.random() < 0.3)
    prompts = []
    for _ in range(pick(1, 1, 1, 1, 2, 3)):
        repeated = tokens(int(rng.integers(1, 6))) * context
        prompt = pick(repeated, tokens(context, 3), tokens(context))
        prompts.append(prompt[: int(rng.integers(1, 2 * context if slide else context + 1))])
    options = Options(
        max_new_tokens=int(rng.integers(0, 2 * context)),
        min_new_tokens=pick(0, 0, 3, 20),
        temperature=pick(0.0, 0.0, 0.3, 0.7, 1.5),
        top_k=pick(0, 2, 40),
        top_p=pick(1.0, 0.8),
        min_p=pick(0.0, 0.05),
        repetition_penalty=pick(1.0, 1.0, 0.7, 1.3),
        presence_penalty=pick(0.0, 0.0, -0.5, 0.5),
        frequency_penalty=pick(0.0, 0.0, -0.3, 0.3),
        logit_bias=pick({}, {1: 2.0, 2: -3.0}),
        bad_words_ids=pick((), ((3,), (1, 2))),
        forced_eos_token_id=pick(None, None, 5),
        num_return_sequences=pick(1, 1, 1, 3),
        overflow="slide" if slide else "stop",
        seed=seed,
    )
    return Case(
        prompts,
        options,
        ends=pick((), (7,), (7, 8)),
        known=pick(None, vocab - 2),
        forbidden=pick((), (0,)),
        stop_after=pick(10_000, 10_000, 9),
        cancel_after=pick(10_000, 10_000, 7),
    )


class Knowing:
    """Drafts from texts that are known beforehand: the first `right` tokens are right, the others wrong."""

    def __init__(self, texts: Sequence[Sequence[int]], *, right: int, vocab: int) -> None:
        self.texts, self.right, self.vocab = texts, right, vocab
        self.known: list[int] = []

    def push(self, token: int) -> None:
        self.known.append(token)

    def draft(self, most: int, *, chance: float) -> list[int]:
        here = len(self.known)
        text = next((text for text in self.texts if text[:here] == self.known), [])
        rest = [*text[here:], *[0] * most][: max(0, most)]
        return [id if at < self.right else (id + 1) % self.vocab for at, id in enumerate(rest)]


def texts_of(case: Case, heard: Heard) -> list[list[int]]:
    """Every prompt with each of its answers."""
    texts: dict[tuple[int, int], list[int]] = {}
    for prompt, choice, token, _, _ in heard:
        text = texts.setdefault((prompt, choice), list(case.prompts[prompt]))
        if token is not None:
            text.append(token)
    return list(texts.values())


def draft_always(monkeypatch: pytest.MonkeyPatch, new_drafter: Callable[[], Any] | None = None) -> None:
    """No draft is too expensive, and perhaps another drafter."""
    monkeypatch.setattr(speculation, "LOAN", 1e9)
    monkeypatch.setattr(speculation, "MARGIN", 0.0)
    if new_drafter is not None:
        monkeypatch.setattr(Speculation, "new_drafter", staticmethod(new_drafter))


def equal_with_and_without(model: Any, seeds: Sequence[int], *, context: int) -> Drafts:
    """Play random cases both ways: the same to the last bit. What was drafted in all of them."""
    total = Drafts()
    for seed in seeds:
        case = random_case(seed, vocab=model.vocab, context=context)
        want, asked, none = play(model, case)
        assert not any(one.drafted for one in none)
        heard, asked_too, drafts = play(model, case, most=1 + seed % 9)
        assert (heard, asked_too) == (want, asked), f"seed {seed}: {case}"
        total.drafted += sum(one.drafted for one in drafts)
        total.accepted += sum(one.accepted for one in drafts)
    return total
