"""Continuous batching: whoever joins, leaves or is cancelled, a text is the same bits as alone."""

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from engine.conftest import engine_of, random_model
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.engine import native
from glassformer.engine.native import Engine
from glassformer.errors import GlassError, InputError
from glassformer.generation import batching
from glassformer.generation.batching import Batch, GenerationRequest, OneByOne, RequestState, Scored, Slots
from glassformer.generation.decode import generate
from glassformer.generation.options import Options
from glassformer.generation.sampling import log_softmax

pytestmark = pytest.mark.skipif(not native.ways(), reason="the native engine was not built")
VOCAB, CONTEXT = 61, 48


@pytest.fixture(scope="module")
def engine() -> Engine:
    return engine_of(random_model(layers=2, heads=2, width=16, vocab=VOCAB, context=CONTEXT), threads=1)


def alone(engine: Engine, request: GenerationRequest) -> tuple[list[tuple[int, float]], str | None]:
    """The tokens of a request with their log-probabilities, and why they end, as `generate` has them."""
    events = list(
        generate(engine, [request.prompt], options=request.options, ends=request.ends, known=request.known)
    )
    assert request.choice == 0
    found = [(event.token, event.logprob) for event in events if event.token is not None]
    return found, events[-1].finish  # type: ignore[return-value]


def write(
    batch: Batch, requests: Sequence[GenerationRequest]
) -> list[tuple[list[tuple[int, float]], str | None]]:
    """What a batch writes for requests that come at once."""
    states = [batch.add(request) for request in requests]
    return drain(batch, states)


Scores = dict[RequestState, list[Scored]]


def drain(
    batch: Batch, states: Sequence[RequestState], *, scores: Scores | None = None
) -> list[tuple[list[tuple[int, float]], str | None]]:
    """What a batch writes for texts; `scores` is filled with those of their prompts."""
    found: dict[int, tuple[list[tuple[int, float]], list[str]]] = {id(one): ([], []) for one in states}
    for _ in range(2000):
        for output in batch.step():
            tokens, ends = found[id(output.state)]
            if scores is not None:
                scores.setdefault(output.state, []).extend(output.prompt or ())
            if output.token is not None:
                tokens.append((output.token.id, output.token.logprob))
            if output.finish is not None:
                ends.append(output.finish)
        if not batch.waiting and not batch.running:
            break
    assert all(len(ends) == 1 for _, ends in found.values())
    return [(tokens, ends[0]) for tokens, ends in found.values()]


def some_request(draw: random.Random, **changes: Any) -> GenerationRequest:
    prompt = [draw.randrange(VOCAB) for _ in range(draw.choice([1, 2, 5, 17, 40]))]
    options = Options(
        max_new_tokens=draw.choice([1, 3, 12, 60]),
        temperature=draw.choice([0.0, 0.8, 2.0]),
        top_k=draw.choice([0, 5]),
        top_p=draw.choice([0.7, 1.0]),
        frequency_penalty=draw.choice([0.0, 0.5]),
        seed=draw.randrange(1 << 32),
        prompt_lookup_num_tokens=0,
    )
    return GenerationRequest(prompt=prompt, options=options, ends=frozenset({7}), **changes)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.integers(0, 1 << 32), st.integers(1, 5), st.integers(1, 50), st.integers(1, 9))
def test_as_alone(seed: int, slots: int, budget: int, count: int) -> None:
    """Any number of texts, slots and tokens a step: the same tokens, log-probabilities and ends as alone."""
    engine = engine_of(random_model(layers=2, heads=2, width=16, vocab=VOCAB, context=CONTEXT), threads=1)
    draw = random.Random(seed)
    requests = [some_request(draw) for _ in range(count)]
    batch = Slots(engine, slots=slots, budget=budget)
    assert write(batch, requests) == [alone(engine, request) for request in requests]


def test_neighbors_that_come_and_go(engine: Engine) -> None:
    """One text, while others join at any step and some of them are cancelled."""
    draw = random.Random(3)
    for _ in range(20):
        request = some_request(draw)
        batch = Slots(engine, slots=3, budget=20)
        mine, tokens, others = batch.add(request), [], []
        while not mine.continuation.finished:
            if draw.random() < 0.4:
                others.append(batch.add(some_request(draw)))
            if others and draw.random() < 0.2:
                draw.choice(others).cancel()
            tokens += [
                (output.token.id, output.token.logprob)
                for output in batch.step()
                if output.state is mine and output.token is not None
            ]
        assert tokens == alone(engine, request)[0]


@pytest.mark.slow
def test_a_needle_in_two_hundred_batches(engine: Engine) -> None:
    """One text among up to 31 others, wherever it is: the same tokens and the same bits of log-probabilities."""
    draw = random.Random(11)
    for _ in range(200):
        request = some_request(draw)
        others = [some_request(draw) for _ in range(draw.randint(0, 31))]
        at = draw.randint(0, len(others))
        batch = Slots(engine, slots=draw.randint(1, 32), budget=draw.randint(1, 64))
        found = write(batch, [*others[:at], request, *others[at:]])
        assert found[at] == alone(engine, request)


def test_what_was_read_is_not_read_again(engine: Engine) -> None:
    """A text that goes on from another one takes its slot; the numbers are those of a cold start."""
    batch = Slots(engine, slots=2, budget=64)
    options = Options(max_new_tokens=4, temperature=0.0, prompt_lookup_num_tokens=0)
    first = GenerationRequest(prompt=list(range(20)), options=options)
    ((tokens, _),) = write(batch, [first])
    longer = GenerationRequest(prompt=[*first.prompt, *(token for token, _ in tokens), 5, 6], options=options)
    state = batch.add(longer)
    assert drain(batch, [state]) == [alone(engine, longer)]
    assert state.cached == 23  # the last token that was written was not read
    same = batch.add(first)
    assert drain(batch, [same]) == [alone(engine, first)]
    assert same.cached == 19  # all but the last, whose logits are needed
    other = batch.add(GenerationRequest(prompt=[50, 51], options=options))
    drain(batch, [other])
    assert other.cached == 0


def test_what_several_texts_begin_with_is_read_once(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """While they are written: the first reads it, the others wait for that and go on from a copy."""
    read: list[int] = []
    step = engine.step_pieces
    monkeypatch.setattr(
        engine,
        "step_pieces",
        lambda pieces, cache: (read.append(sum(len(one.ids) for one in pieces)), step(pieces, cache))[1],
    )
    options = Options(max_new_tokens=5, temperature=0.0, prompt_lookup_num_tokens=0)
    same = [(7 * n) % VOCAB for n in range(36)]
    requests = [GenerationRequest(prompt=[*same, n, n + 1], options=options) for n in range(4)]
    other = GenerationRequest(prompt=[1, 2, 3], options=options)
    salted = GenerationRequest(prompt=[*same, 0, 1], options=options, salt="other")
    batch = Slots(engine, slots=6, budget=8)
    states = [batch.add(one) for one in (*requests, other, salted)]
    found = drain(batch, states)
    tokens = sum(read)
    assert [state.cached for state in states] == [0, 36, 36, 36, 0, 0]
    assert tokens == 38 + 3 * 2 + 3 + 38 + 6 * 4  # and the last token of each is never read
    monkeypatch.undo()
    assert found == [alone(engine, one) for one in (*requests, other, salted)]


def test_who_waits_for_another_text_has_a_turn_when_that_one_ends(engine: Engine) -> None:
    """Cancelled, or paused, before it has read what they share."""
    options = Options(max_new_tokens=2, temperature=0.0, prompt_lookup_num_tokens=0)
    one, two = (GenerationRequest(prompt=[*range(40), n], options=options) for n in (1, 2))
    batch = Slots(engine, slots=2, budget=4)
    for leaves in ("cancelled", "paused"):
        first, second = batch.add(one), batch.add(two)
        batch.step()
        assert second.slot is None
        setattr(first, leaves, True)
        batch.step()
        batch.step()
        assert second.slot is not None
        first.cancel()
        batch.step()  # in which the first one ends, if it has not
        assert drain(batch, [second]) == [alone(engine, two)]
        batch.kept = [[], []]  # for the next round


@given(st.lists(st.integers(0, 2), max_size=40), st.lists(st.integers(0, 2), max_size=40), st.integers(0, 40))
def test_what_two_texts_have_in_common(one: list[int], other: list[int], same: int) -> None:
    """Counted in pieces as it is token by token."""
    one, other = [1] * same + one, [1] * same + other
    expected = next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), None)
    assert batching.common(one, other) == (min(len(one), len(other)) if expected is None else expected)


def test_what_was_overwritten_is_read_again(engine: Engine) -> None:
    """A slot forgets a text whose place another one took."""
    options = Options(max_new_tokens=3, temperature=0.0, prompt_lookup_num_tokens=0)
    batch = Slots(engine, slots=1, budget=64)
    first, second = (GenerationRequest(prompt=list(range(n, n + 9)), options=options) for n in (0, 30))
    for request in (first, second, first):
        state = batch.add(request)
        assert drain(batch, [state]) == [alone(engine, request)]
        assert state.cached == 0


def test_scores_of_the_prompt(engine: Engine) -> None:
    """Every token of the prompt behind those before it, also when it was read before and in chunks."""
    prompt = [3, 9, 27, 20, 60, 58, 52, 34, 41, 1, 3]
    options = Options(max_new_tokens=2, temperature=0.0, prompt_lookup_num_tokens=0)
    batch = Slots(engine, slots=1, budget=4)
    write(batch, [GenerationRequest(prompt=prompt, options=options)])
    state = batch.add(GenerationRequest(prompt=prompt, options=options, score_prompt=True, top=3, named=[11]))
    scores: Scores = {}
    drain(batch, [state], scores=scores)
    expected = [log_softmax(row) for row in engine.logits(np.array(prompt))]
    assert state.cached == 0
    assert [one.id for one in scores[state]] == prompt[1:]
    for one, row in zip(scores[state], expected, strict=False):
        assert one.logprob == pytest.approx(row[one.id], abs=1e-5)
        assert [id for id, _ in one.top] == np.argsort(-row, kind="stable")[:3].tolist()
        assert [value for _, value in one.top] == pytest.approx(np.sort(row)[:-4:-1], abs=1e-5)
        assert one.named == (pytest.approx(row[11], abs=1e-5),)
        assert dict(one.top).get(one.id, one.logprob) == one.logprob  # the same float in both places


def test_the_end_token_is_told(engine: Engine) -> None:
    """It is not part of the text, but whoever counts every choice needs its log-probability."""
    options = Options(max_new_tokens=3, temperature=0.0, logit_bias={9: 100.0}, prompt_lookup_num_tokens=0)
    batch = Slots(engine, slots=1, budget=8)
    batch.add(GenerationRequest(prompt=[1, 2], options=options, ends=[9], top=1))
    (output,) = batch.step()
    row = log_softmax(engine.logits(np.array([1, 2]))[-1])
    assert (output.token, output.finish) == (None, "stop")
    assert output.end is not None
    assert (output.end.id, output.end.logprob) == (9, pytest.approx(row[9], abs=1e-5))
    assert output.end.top[0][0] == row.argmax()


def test_one_by_one(engine: Engine) -> None:
    """A model without slots: one after the other, the same texts and scores."""
    draw = random.Random(5)
    requests = [some_request(draw, score_prompt=True, top=2) for _ in range(6)]
    batch, slots = OneByOne(engine), Slots(engine, slots=3, budget=10)
    ours, theirs = ([one.add(request) for request in requests] for one in (batch, slots))
    scores: Scores = {}
    found = drain(batch, ours, scores=scores)
    assert found == drain(slots, theirs, scores=scores) == [alone(engine, request) for request in requests]
    assert [scores[one] for one in ours] == [scores[one] for one in theirs]


def test_only_the_scores_of_the_prompt(engine: Engine) -> None:
    """No new token: the prompt is scored, and that is the end."""
    batch = Slots(engine, slots=1, budget=64)
    options = Options(max_new_tokens=0, prompt_lookup_num_tokens=0)
    state = batch.add(GenerationRequest(prompt=[1, 2, 3], options=options, score_prompt=True))
    scores: Scores = {}
    assert drain(batch, [state], scores=scores) == [([], "length")]
    assert len(scores[state]) == 2


def test_paused_texts_go_on_to_the_same_bits(engine: Engine) -> None:
    """Paused at any step, while prompts are scored or texts are written, and others have their slots: all tokens
    and scores are as alone, none is missing and none comes twice.
    """
    draw, taken = random.Random(7), 0
    for _ in range(12):
        requests = [some_request(draw, score_prompt=draw.random() < 0.5, top=2) for _ in range(5)]
        batch = Slots(engine, slots=2, budget=draw.choice([3, 9, 40]))
        states = [batch.add(request) for request in requests]
        tokens: dict[RequestState, list[tuple[int, float]]] = {one: [] for one in states}
        scores: Scores = {one: [] for one in states}
        while batch.running or batch.waiting:
            for one in states:
                one.paused = draw.random() < 0.4
            if not batch.can_step:
                continue
            before = {one: one.slot for one in states}
            for output in batch.step():
                assert not output.state.paused
                scores[output.state] += output.prompt or ()
                if output.token is not None:
                    tokens[output.state].append((output.token.id, output.token.logprob))
            taken += sum(one.paused and one.slot is None and before[one] is not None for one in states)
        for request, state in zip(requests, states, strict=True):
            assert tokens[state] == alone(engine, request)[0]
            calm = Slots(engine, slots=1, budget=64)
            expected: Scores = {}
            mine = calm.add(request)
            drain(calm, [mine], scores=expected)
            assert scores[state] == expected[mine]
    assert taken > 12  # slots were taken from paused texts


def test_a_paused_text_keeps_its_slot_while_nobody_needs_it(engine: Engine) -> None:
    """Then it goes on with its next token; if its slot was taken and lost, its tokens are read again."""
    options = Options(max_new_tokens=6, temperature=0.0, prompt_lookup_num_tokens=0)
    batch = Slots(engine, slots=1, budget=64)
    state = batch.add(GenerationRequest(prompt=list(range(9)), options=options))
    batch.step()
    state.paused = True
    assert not batch.can_step
    assert batch.step() == []
    assert (state.slot, state.read) == (0, 9)
    other = batch.add(GenerationRequest(prompt=[50], options=options))
    assert [one.state for one in batch.step()] == [other]
    assert (state.slot, list(batch.waiting)) == (None, [state])
    state.paused = False
    drain(batch, [other, state])
    assert state.cached == 0


def test_salts_keep_texts_apart(engine: Engine) -> None:
    """How long a first token takes says nothing about what others have read before."""
    options = Options(max_new_tokens=2, temperature=0.0, prompt_lookup_num_tokens=0)
    batch = Slots(engine, slots=1, budget=64)
    cached = []
    for salt in ("mine", "mine", "yours", "yours", "", ""):
        state = batch.add(GenerationRequest(prompt=list(range(9)), options=options, salt=salt))
        drain(batch, [state])
        cached.append(state.cached)
    assert cached == [0, 8, 0, 8, 0, 8]
    gone = batch.add(GenerationRequest(prompt=list(range(9)), options=options, salt="other"))
    batch._admit()  # it has the slot, and has read nothing yet
    gone.cancel()
    again = batch.add(GenerationRequest(prompt=list(range(9)), options=options, salt="other"))
    drain(batch, [gone, again])
    assert again.cached == 0


def test_a_cancelled_text_frees_its_slot_at_the_next_step(engine: Engine) -> None:
    """Waiting, reading or writing."""
    options = Options(max_new_tokens=20, temperature=0.0, prompt_lookup_num_tokens=0)
    for steps in (0, 1, 3):
        batch = Slots(engine, slots=1, budget=8)
        state = batch.add(GenerationRequest(prompt=list(range(20)), options=options))
        for _ in range(steps):
            batch.step()
        state.cancel()
        next_one = batch.add(GenerationRequest(prompt=[1], options=options))
        output = batch.step()
        assert [one.finish for one in output if one.state is state] == ["cancelled"]
        assert batch.running == [next_one]


def test_first_come_first_served(engine: Engine) -> None:
    """A short text that came later does not overtake a long one, and a long prompt keeps nobody waiting."""
    options = Options(max_new_tokens=8, temperature=0.0, prompt_lookup_num_tokens=0)
    batch = Slots(engine, slots=2, budget=4)
    writer = batch.add(GenerationRequest(prompt=[1], options=options))
    batch.step()
    reader, third = (batch.add(GenerationRequest(prompt=list(range(30)), options=options)) for _ in range(2))
    output = [one for _ in range(3) for one in batch.step()]
    assert [one.state for one in output] == [writer] * 3  # it gets a token in every step
    assert reader.read == 9  # the rest of each step's budget
    assert third.slot is None


@pytest.mark.parametrize("per_token", [0.001, 0.004, 1.0])
def test_a_long_prompt_keeps_nobody_waiting(monkeypatch: pytest.MonkeyPatch, per_token: float) -> None:
    """While a text is written, steps take about as long as they may, however slow the machine; else all is read at once."""
    engine = engine_of(random_model(layers=1, heads=1, width=8, vocab=VOCAB, context=600), threads=1)
    now, tokens = [0.0], list[int]()
    step = engine.step_pieces

    def slow(pieces: Any, cache: Any) -> Any:
        tokens.append(sum(len(piece.ids) for piece in pieces))
        now[0] += 0.005 + per_token * tokens[-1]
        return step(pieces, cache)

    monkeypatch.setattr(engine, "step_pieces", slow)
    monkeypatch.setattr(batching.time, "perf_counter", lambda: now[0])
    options = Options(max_new_tokens=60, temperature=0.0, prompt_lookup_num_tokens=0)
    batch = Slots(engine, slots=3, budget=256)
    batch.add(GenerationRequest(prompt=[1] * 300, options=options))
    batch.step()
    batch.step()
    assert tokens == [256, 44]  # nobody is written: as much as there is
    batch.add(GenerationRequest(prompt=[2] * 400, options=options))
    for _ in range(4):
        batch.step()
    wanted = min(256, max(17, 0.045 / per_token))
    assert all(0.7 * wanted <= count <= 1.3 * wanted for count in tokens[3:])


def test_who_goes_first(engine: Engine) -> None:
    """Before others that wait, in the order in which they came; nobody is stopped for them."""
    options = Options(max_new_tokens=3, temperature=0.0, prompt_lookup_num_tokens=0)
    batch = Slots(engine, slots=1, budget=8)
    running = batch.add(GenerationRequest(prompt=[1], options=options))
    batch.step()
    firsts = [False, True, False, True]
    states = [batch.add(GenerationRequest(prompt=[1], options=options, first=first)) for first in firsts]
    ends = []
    while batch.running or batch.waiting:
        ends += [output.state for output in batch.step() if output.finish]
    assert ends == [running, states[1], states[3], states[0], states[2]]


def test_a_text_that_fails_hurts_nobody(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Logits that are no numbers in one row: that text ends with an error, the others are as alone."""
    batch = Slots(engine, slots=3, budget=64)
    requests = [
        GenerationRequest(
            prompt=[n, n + 1], options=Options(max_new_tokens=6, seed=n, prompt_lookup_num_tokens=0)
        )
        for n in range(3)
    ]
    step = engine.step_pieces

    def poisoned(pieces: Any, cache: Any) -> Any:
        logits = step(pieces, cache)
        if len(logits) == 3:
            logits[1] = np.nan
        return logits

    monkeypatch.setattr(engine, "step_pieces", poisoned)
    states = [batch.add(request) for request in requests]
    errors, tokens = [], {id(one): [] for one in states}  # type: ignore[var-annotated]
    while batch.running or batch.waiting:
        for output in batch.step():
            if output.error is not None:
                errors.append((output.state, output.error))
            if output.token is not None:
                tokens[id(output.state)].append((output.token.id, output.token.logprob))
    monkeypatch.undo()
    ((who, error),) = errors
    assert who is states[1]
    assert isinstance(error, GlassError)
    for number in (0, 2):
        assert tokens[id(states[number])] == alone(engine, requests[number])[0]


def test_what_a_batch_refuses(engine: Engine) -> None:
    """A prompt that does not fit, beams, and a context that slides."""
    batch = Slots(engine, slots=1, budget=8)
    for prompt, options, what in (
        ([], Options(), "empty"),
        ([VOCAB], Options(), "not a token id"),
        ([1] * (CONTEXT + 1), Options(), "1 more than"),
        ([1], Options(num_beams=2), "token by token"),
        ([1], Options(overflow="slide"), "token by token"),
    ):
        with pytest.raises(InputError, match=what):
            batch.add(GenerationRequest(prompt=prompt, options=options))
    assert not batch.waiting


def test_pieces_that_the_engine_refuses(engine: Engine) -> None:
    """Two of one row, a row or place that is not there, more scored tokens than there are."""
    cache = engine.new_cache(2, 16)
    bad: list[Any] = [[], [(0, 0, [1], 1), (0, 1, [2], 1)], [(2, 0, [1], 1)], [(-1, 0, [1], 1)]]
    bad += [[(0, -1, [1], 1)], [(0, 0, [], 0)], [(0, 0, [1], 2)], [(0, 16, [1], 1)], [(0, 0, [VOCAB], 1)]]
    bad += [[(0, 0.5, [1], 1)], [(0, 0, [1.5], 1)], [(True, 0, [1], 1)]]
    for pieces in bad:
        with pytest.raises(InputError):
            engine.step_pieces(pieces, cache)
    for source, target, length in [(2, 0, 1), (0, -1, 1), (0, 1, 17), (0, 1, -1), (0, 1, 0.5)]:
        with pytest.raises(InputError):
            cache.copy_row(source, target, length=length)
