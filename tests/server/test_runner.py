"""The thread that computes: many texts at once, each as alone; who leaves, fails or comes too late hurts nobody."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest
from serving import tiny_model

import glassformer as gf
from glassformer.engine import native
from glassformer.errors import GlassError, InputError
from glassformer.generation.decode import generate
from glassformer.generation.options import Options
from glassformer.server import runner as runner_module
from glassformer.server.errors import ApiError, QueueFull
from glassformer.server.runner import GenerationRequest, Runner, Running, Token
from glassformer.tasks.complete import LanguageModel

pytestmark = pytest.mark.skipif(not native.ways(), reason="the native engine was not built")
MODEL = gf.load("storyteller")  # the native engine: texts share it


def ask(number: int, **changes: Any) -> GenerationRequest:
    """A text that differs by its number."""
    options = Options(max_new_tokens=3 + number % 9, temperature=1.0, seed=number, prompt_lookup_num_tokens=0)
    return GenerationRequest(**{"prompt": [1 + number % 7, 5, 9], "options": options} | changes)


def endless() -> GenerationRequest:
    never = dict.fromkeys(MODEL.ends, -100.0)
    return ask(0, options=Options(max_new_tokens=500, logit_bias=never, prompt_lookup_num_tokens=0))


def alone(model: LanguageModel, one: GenerationRequest) -> list[tuple[int | None, float | None]]:
    events = generate(
        model.backend, [one.prompt], options=one.options, ends=model.ends, known=len(model.tokenizer or "")
    )
    return [(event.token, event.logprob) for event in events if event.token is not None]


async def written(running: Running) -> list[Token]:
    return [token async for token in running]


def run(
    work: Callable[[Runner], Coroutine[Any, Any, None]], model: LanguageModel = MODEL, **how: Any
) -> None:
    """Work with a runner, inside an event loop."""

    async def main() -> None:
        runner = Runner(model, **{"slots": 3, "queue": 50, "budget": 16} | how)
        await runner.start()
        try:
            await asyncio.wait_for(work(runner), 30)
        finally:
            await runner.close(0.0)

    asyncio.run(main())


@pytest.mark.parametrize("model", [MODEL, tiny_model()], ids=["slots", "one by one"])
def test_many_at_once_are_as_alone(model: LanguageModel) -> None:
    """More texts than slots, from one event loop: tokens and log-probabilities to the bit."""

    async def work(runner: Runner) -> None:
        asks = [ask(number) for number in range(24)]
        found = await asyncio.gather(*(written(runner.submit(one)) for one in asks))
        for one, tokens in zip(asks, found, strict=True):
            text = [(token.id, token.logprob) for token in tokens if token.finish != "stop"]
            assert text == alone(model, one)
            assert [token.finish for token in tokens if token.finish] == [tokens[-1].finish]
        assert (runner.running, runner.waiting) == (0, 0)
        tokens = sum(map(len, found))
        steps, texts = runner.step_times.count, runner.batch_sizes.sum
        assert steps == runner.batch_sizes.count
        assert steps <= texts <= steps * 3
        assert texts >= tokens >= steps / 3
        assert runner.step_times.sum > 0

    run(work, model)


def test_who_leaves_frees_the_slot() -> None:
    """By `cancel`, by leaving the loop, and while waiting: the next one has its turn."""

    async def work(runner: Runner) -> None:
        first, second = runner.submit(endless()), runner.submit(endless())
        async for token in first:
            assert token.id is not None
            break  # the iterator is closed later, by the garbage collector: so be explicit
        first.cancel()
        second.cancel()
        third = runner.submit(ask(1))
        assert len(await written(third)) >= 1
        assert [token.finish for token in await written(second)][-1] == "cancelled"

    run(work, slots=1)


def test_a_full_queue_refuses() -> None:
    """As many as have slots and places to wait; when one has gone there is a place again."""

    async def work(runner: Runner) -> None:
        taken = [runner.submit(endless()) for _ in range(3)]
        with pytest.raises(QueueFull):
            runner.submit(ask(1))
        for one in taken:
            one.cancel()
        for one in taken:
            await written(one)
        assert await written(runner.submit(ask(1)))

    run(work, slots=1, queue=2)


def test_a_step_that_fails_ends_its_texts_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is raised inside: those in the batch are told, and the next text is served."""

    async def work(runner: Runner) -> None:
        step = runner.backend.step_pieces  # type: ignore[attr-defined]
        monkeypatch.setattr(runner.backend, "step_pieces", lambda pieces, cache: 1 // 0)
        failed = runner.submit(ask(1))
        with pytest.raises(GlassError, match="a step failed"):
            await written(failed)
        monkeypatch.setattr(runner.backend, "step_pieces", step)
        assert [token.id for token in await written(runner.submit(ask(2)))]

    run(work)


def test_who_leaves_at_a_step_that_fails_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is left over, for whom the thread would wait."""

    async def work(runner: Runner) -> None:
        texts = [runner.submit(endless()) for _ in range(2)]
        async for _ in texts[0]:
            break
        step = runner.backend.step_pieces  # type: ignore[attr-defined]

        def fails(pieces: Any, cache: Any) -> Any:
            texts[0].cancel()  # it is dropped at the next step, which fails
            if len(pieces) == 2:
                return step(pieces, cache)
            raise ZeroDivisionError

        monkeypatch.setattr(runner.backend, "step_pieces", fails)
        with pytest.raises(GlassError, match="a step failed"):
            await written(texts[1])
        monkeypatch.undo()
        while runner._live:
            await asyncio.sleep(0.001)
        assert await written(runner.submit(ask(1)))

    run(work, slots=2)


def test_after_the_end() -> None:
    """Nothing new is taken on; what runs longer than the grace is cancelled, and the thread has ended."""

    async def main() -> None:
        runner = Runner(MODEL, slots=1, queue=4, budget=8)
        await runner.start()
        running = runner.submit(endless())
        await runner.close(grace=0.05)
        assert (await written(running))[-1].finish == "cancelled"
        with pytest.raises(ApiError, match="stopping"):
            runner.submit(ask(1))

    asyncio.run(main())


def test_times_and_caches_are_told() -> None:
    """The phases add up to the whole; what was read before counts as cached."""

    async def work(runner: Runner) -> None:
        first = runner.submit(ask(3))
        await written(first)
        again = runner.submit(ask(3))
        await written(again)
        assert (first.cached_tokens, again.cached_tokens) == (0, 2)
        times = again.timings
        assert min(times.queue, times.prefill, times.decode) >= 0
        assert times.queue + times.prefill + times.decode == pytest.approx(
            again.clock.ended - again.clock.asked
        )
        scored = runner.submit(ask(3, score_prompt=True))
        tokens = await written(scored)
        assert [one.id for one in tokens[0].prompt] == [5, 9]

    run(work, slots=1)


@pytest.mark.parametrize(("seconds", "least", "most"), [(0.0, 30, 30), (1000.0, 2, 3)])
def test_quick_tokens_are_handed_on_together(
    monkeypatch: pytest.MonkeyPatch, seconds: float, least: int, most: int
) -> None:
    """The first and the last of a text at once; all are there, and who has read what there is gets more."""
    handed: list[int] = []
    hear = runner_module._hear
    monkeypatch.setattr(runner_module, "FLUSH_INTERVAL", seconds)
    monkeypatch.setattr(runner_module, "_hear", lambda news: (handed.append(len(news)), hear(news)))

    async def work(runner: Runner) -> None:
        options = replace(endless().options, max_new_tokens=30)
        first = runner.submit(ask(0, options=options))
        found = [(token.id, token.logprob) for token in await written(first)]
        assert found == alone(MODEL, ask(0, options=options))
        assert least <= len(handed) <= most  # a step that only reads the prompt hands on nothing
        assert handed[0] == 1
        slow = runner.submit(ask(0, options=options))
        slow.ahead = 1000  # a few tokens: it is paused before its last one
        assert len(await written(slow)) == 30

    run(work, slots=1)


def test_who_does_not_read_is_paused() -> None:
    """And leaves the slot to others; who reads then gets the same tokens as alone."""

    async def work(runner: Runner) -> None:
        options = replace(endless().options, max_new_tokens=100)
        slow = runner.submit(ask(0, options=options, top=5))
        slow.ahead = 4000  # a few tokens
        while not runner.paused:
            await asyncio.sleep(0.001)
        assert (runner.running, runner.waiting) == (0, 0)
        assert 4000 < slow._made - slow._read < 6000
        others = [await written(runner.submit(ask(n))) for n in range(3)]
        assert [[(one.id, one.logprob) for one in tokens if one.finish != "stop"] for tokens in others] == [
            alone(MODEL, ask(n)) for n in range(3)
        ]
        found = [(token.id, token.logprob) for token in await written(slow)]
        assert found == alone(MODEL, ask(0, options=options))
        assert (runner.running, runner.paused) == (0, 0)

    run(work, slots=1)


def test_of_many_who_do_not_read_the_oldest_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else they would fill the memory."""
    monkeypatch.setattr(runner_module, "MOST_PAUSED", 2)

    async def work(runner: Runner) -> None:
        texts = []
        for n in range(3):
            texts.append(runner.submit(endless()))
            texts[-1].ahead = 1000
            while runner.paused < min(n + 1, 2) or not texts[-1]._made:
                await asyncio.sleep(0.001)
        while not texts[0].clock.ended:
            await asyncio.sleep(0.001)
        with pytest.raises(GlassError, match="does not read"):
            await written(texts[0])
        assert [len(await written(one)) for one in texts[1:]] == [500, 500]

    run(work, slots=1)


def test_who_does_not_read_where_one_text_is_written_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """By torch, whose bits depend on how a text is cut: nobody takes the place, but only for a while."""
    monkeypatch.setattr(runner_module, "STALL", 0.2)

    async def work(runner: Runner) -> None:
        slow = runner.submit(ask(0, options=Options(max_new_tokens=50, prompt_lookup_num_tokens=0)))
        slow.ahead = 1000
        while not runner.paused:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.4)
        assert runner.paused == 1  # nobody waits
        assert await written(runner.submit(ask(1)))
        with pytest.raises(GlassError, match="does not read"):
            await written(slow)

    run(work, tiny_model())


def test_what_cannot_be_continued_is_refused_at_once() -> None:
    """Before anything runs."""

    async def work(runner: Runner) -> None:
        with pytest.raises(InputError, match="not a token id"):
            runner.submit(ask(1, prompt=[10**6]))

    run(work)
