"""The loop that turns a model into tokens: with a model of plain numbers, and with a small GPT."""

import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
import pytest
import torch
from decoding import log_sums, run, search

from glassformer.errors import GlassError, InputError
from glassformer.generation.beam import beam_search
from glassformer.generation.decode import Continuation, Event, check_prompts, generate, prefill
from glassformer.generation.options import Options
from glassformer.generation.sampling import adjust, choose, log_softmax
from glassformer.models.gpt import GPT, Config
from glassformer.tokenizers import ByteBPE, TextStream
from glassformer.tokenizers.bpe import END_OF_TEXT, SYMBOL_OF

Array = np.ndarray[Any, np.dtype[Any]]
GREEDY = Options(do_sample=False, max_new_tokens=12)


class Memory:
    """The cache of a `Mock`: the ids that it was given."""

    def __init__(self, ids: Array, padding: Array, capacity: int) -> None:
        self.ids, self.padding, self.capacity = ids, padding, capacity

    @property
    def length(self) -> int:
        return int(self.ids.shape[1])

    def select(self, rows: Sequence[int]) -> Self:
        return type(self)(self.ids[list(rows)], self.padding[list(rows)], self.capacity)

    def rewind(self, length: int) -> None:
        self.ids = self.ids[:, :length]


class Mock:
    """A model without torch: the scores depend on the last three tokens of a row and on how many there are."""

    def __init__(self, vocab: int = 40, context: int = 64, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.vocab, self.context = vocab, context
        self.weights = rng.normal(scale=1.5, size=(3, vocab, vocab)).astype(np.float32)
        self.places = rng.normal(scale=1.5, size=(context + 1, vocab)).astype(np.float32)
        self.steps: list[tuple[int, int]] = []  # rows and columns of every step
        self.longest = 0

    def new_cache(self, rows: int, capacity: int, *, padding: Array | None = None) -> Memory:
        void = np.zeros(rows, dtype=np.int64) if padding is None else padding
        return Memory(np.zeros((rows, 0), dtype=np.int64), void, capacity)

    def step(self, ids: Array, cache: Memory) -> Array:
        assert ids.dtype == np.int64
        assert ids.shape[0] == len(cache.padding)
        cache.ids = np.concatenate([cache.ids, ids], axis=1)
        assert cache.length <= cache.capacity, "the cache is too small"
        self.steps.append((ids.shape[0], ids.shape[1]))
        return np.stack([self.scores(row[void:]) for row, void in zip(cache.ids, cache.padding, strict=True)])

    def log_sums(self, logits: Array) -> list[float]:
        return log_sums(logits)

    def scores(self, row: Sequence[int] | Array) -> Array:
        """The scores after a whole row, with nothing remembered."""
        assert 0 < len(row) <= self.context, "a token beyond the edge of the context"
        self.longest = max(self.longest, len(row))
        logits = self.places[len(row)].copy()
        for back, id in enumerate(row[-1:-4:-1]):
            logits += self.weights[back, id]
        return logits


def tiny(seed: int = 0, *, context: int = 64, vocab: int = 40, dtype: torch.dtype = torch.float32) -> GPT:
    """A small GPT with random weights, large enough that it has opinions."""
    model = GPT(Config(layers=2, heads=2, width=16, vocab=vocab, context=context)).initialize(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.mul_(12)
    return model.to(dtype).eval()


@pytest.fixture(params=["mock", "gpt"])
def model(request: pytest.FixtureRequest) -> Any:
    """Both models."""
    return Mock() if request.param == "mock" else tiny()


def answers(events: Iterator[Event]) -> dict[tuple[int, int], tuple[list[int], str]]:
    """Tokens and finish reason of every prompt's every choice; an answer ends once, and nothing follows."""
    tokens: dict[tuple[int, int], list[int]] = defaultdict(list)
    finish: dict[tuple[int, int], str] = {}
    for event in events:
        key = (event.prompt, event.choice)
        assert key not in finish
        assert (event.token is None) == (event.logprob is None)
        assert event.token is not None or event.finish is not None
        tokens[key] += [] if event.token is None else [event.token]
        if event.finish is not None:
            finish[key] = event.finish
    assert set(tokens) == set(finish)
    return {key: (tokens[key], finish[key]) for key in finish}


def alone(
    model: Any, prompt: Sequence[int], options: Options = GREEDY, **kwargs: Any
) -> tuple[list[int], str]:
    """The one answer to one prompt."""
    return answers(run(model, [prompt], options, **kwargs))[0, 0]


def recompute(model: Any, row: Sequence[int]) -> Array:
    """The scores after a whole row, without a cache."""
    if isinstance(model, Mock):
        return model.scores(row)
    with torch.inference_mode():
        return np.asarray(model(torch.tensor([list(row)]))[0, -1].numpy())


def random_prompts(count: int, *, longest: int = 20, vocab: int = 40, seed: int = 0) -> list[list[int]]:
    """Prompts of many lengths."""
    rng = np.random.default_rng(seed)
    return [
        [int(id) for id in rng.integers(0, vocab, size=rng.integers(1, longest + 1))] for _ in range(count)
    ]


# What comes out.


def test_greedy_is_the_argmax_of_every_step(model: Any) -> None:
    """With a cache the same tokens come as from reading everything again at every step; log-probabilities
    too.
    """
    for prompt in random_prompts(15):
        row, want = list(prompt), []
        for _ in range(12):
            scores = recompute(model, row)
            row.append(int(scores.argmax()))
            want.append(float(log_softmax(scores)[row[-1]]))
        events = list(run(model, [prompt], GREEDY))
        assert [event.token for event in events] == row[len(prompt) :]
        np.testing.assert_allclose([event.logprob for event in events], want, atol=1e-4)
        assert [event.finish for event in events] == [None] * 11 + ["length"]


def test_sampling_is_the_choice_of_every_step(model: Any) -> None:
    """Every option is applied to the tokens so far, at each step; the log-probabilities stay the
    model's own.
    """
    options = Options(
        max_new_tokens=10,
        seed=3,
        top_k=12,
        repetition_penalty=1.3,
        presence_penalty=0.4,
        frequency_penalty=0.2,
        logit_bias={5: 1},
    )
    greedy = 0
    for prompt in random_prompts(10, seed=1):
        row: list[int] = []
        want = []
        for position in range(len(prompt), len(prompt) + 10):
            raw = recompute(model, prompt + row)
            row.append(
                choose(adjust(raw, options, prompt=prompt, answer=row), options, choice=0, position=position)
            )
            want.append(float(log_softmax(raw)[row[-1]]))
        events = list(run(model, [prompt], options))
        assert [event.token for event in events] == row
        np.testing.assert_allclose([event.logprob for event in events], want, atol=1e-4)
        greedy += row == alone(model, prompt, replace(options, do_sample=False))[0]
    assert greedy < 10


def test_prompts_of_many_lengths_answer_as_they_do_alone(model: Any) -> None:
    """A batch is padded on the left, and no result changes."""
    for options in (GREEDY, Options(max_new_tokens=12, seed=5, temperature=1.0)):
        prompts = random_prompts(12, longest=40, seed=2)
        together = answers(run(model, prompts, options))
        assert len(together) == 12
        assert len({str(answer) for answer in together.values()}) > 6
        for which, prompt in enumerate(prompts):
            assert together[which, 0] == alone(model, prompt, options)


def test_a_prompt_answers_the_same_in_every_batch() -> None:
    """One prompt in two hundred random batches of 1 to 32 neighbours, at a random place: the same tokens, the
    same bits.
    """
    model, rng = Mock(), np.random.default_rng(4)
    needle, options = [3, 14, 15, 9], Options(max_new_tokens=6, seed=9, temperature=1.2)
    want = [event[1:4] for event in run(model, [needle], options, end=7)]
    assert len(want) == 6
    for batch in range(200):
        prompts = random_prompts(int(rng.integers(0, 32)), seed=batch)[: 31 if batch % 20 == 0 else 5]
        place = int(rng.integers(0, len(prompts) + 1))
        prompts.insert(place, needle)
        events = [event for event in run(model, prompts, options, end=7) if event.prompt == place]
        assert [event[1:4] for event in events] == want


def test_a_prompt_answers_the_same_in_every_batch_of_a_gpt() -> None:
    """The same with a GPT, whose numbers may differ in the last digits."""
    model, rng = tiny(), np.random.default_rng(5)
    needle, options = [3, 14, 15, 9], Options(max_new_tokens=6, seed=9, temperature=1.2)
    want = list(run(model, [needle], options))
    for batch in range(25):
        prompts = random_prompts(int(rng.integers(0, 32)), seed=100 + batch)
        place = int(rng.integers(0, len(prompts) + 1))
        prompts.insert(place, needle)
        events = [event for event in run(model, prompts, options) if event.prompt == place]
        assert [event.token for event in events] == [event.token for event in want]
        np.testing.assert_allclose(
            [event.logprob for event in events], [event.logprob for event in want], atol=1e-3
        )


def test_the_order_of_a_batch_does_not_matter(model: Any) -> None:
    """Prompts that change places keep their answers."""
    prompts = random_prompts(8, seed=6)
    options = Options(max_new_tokens=8, seed=1)
    forwards = answers(run(model, prompts, options))
    order = [5, 2, 7, 0, 3, 6, 1, 4]
    shuffled = answers(run(model, [prompts[which] for which in order], options))
    for place, which in enumerate(order):
        assert shuffled[place, 0] == forwards[which, 0]


def test_choices_differ_and_stay_the_same_in_any_batch(model: Any) -> None:
    """Choice 2 of five is choice 2 of three, in a batch or not, and no choice is a copy of another."""
    prompts, options = (
        random_prompts(3, seed=7),
        Options(max_new_tokens=8, seed=2, num_return_sequences=5, temperature=1.5),
    )
    five = answers(run(model, prompts, options))
    assert list(five) == sorted(five)
    assert len(five) == 15
    three = answers(run(model, prompts[1:2], replace(options, num_return_sequences=3)))
    for choice in range(3):
        assert three[0, choice] == five[1, choice]
    for which in range(3):
        assert len({tuple(five[which, choice][0]) for choice in range(5)}) == 5
    greedy = answers(run(model, prompts, replace(options, do_sample=False)))
    for which in range(3):
        assert len({tuple(greedy[which, choice][0]) for choice in range(5)}) == 1


def test_the_prompt_is_read_once_for_all_its_choices() -> None:
    """Ten choices of two prompts read two rows first, and then twenty; each prompt may have its own source."""
    model = Mock()
    list(run(model, [[1, 2, 3], [1, 2, 3]], Options(num_return_sequences=10, max_new_tokens=3)))
    assert model.steps == [(2, 3), (20, 1), (20, 1)]


def test_the_seed_decides(model: Any) -> None:
    """The same seed gives the same tokens, another seed others."""
    options = Options(max_new_tokens=10, temperature=1.3)
    prompt = [1, 2, 3]
    texts = {seed: alone(model, prompt, replace(options, seed=seed))[0] for seed in range(10)}
    assert len({tuple(tokens) for tokens in texts.values()}) > 8
    for seed in reversed(range(10)):
        assert alone(model, prompt, replace(options, seed=seed))[0] == texts[seed]


def test_rows_that_end_make_room() -> None:
    """An answer that ended is not computed any more."""
    model = Mock()
    longest = {0: 2, 1: 5, 2: 3}
    counts: dict[int, int] = defaultdict(int)

    def halt(event: Event) -> bool:
        counts[event.prompt] += 1
        return counts[event.prompt] == longest[event.prompt]

    got = answers(run(model, [[1], [2, 3], [4]], replace(GREEDY, max_new_tokens=9), halt=halt))
    assert {which: len(tokens) for (which, _), (tokens, _) in got.items()} == longest
    assert {finish for _, finish in got.values()} == {"stop"}
    assert model.steps == [(3, 2), (3, 1), (2, 1), (1, 1), (1, 1)]


def test_nothing_is_computed_after_the_last_token() -> None:
    """As many steps as tokens, the first of which reads the prompt."""
    model = Mock()
    assert alone(model, [1, 2, 3], replace(GREEDY, max_new_tokens=4))[1] == "length"
    assert model.steps == [(1, 3), (1, 1), (1, 1), (1, 1)]


def test_any_of_several_end_tokens_ends_a_text(model: Any) -> None:
    """And none of them comes before the least number of tokens."""
    options = Options(max_new_tokens=12, temperature=1.5, seed=3)
    free, _ = alone(model, [1, 2], options)
    ends = {free[5], free[8]}
    first = next(at for at, token in enumerate(free) if token in ends)
    events = list(generate(model, [[1, 2]], options=options, ends=ends))
    assert [event.token for event in events] == [*free[:first], None]
    assert events[-1].finish == "stop"
    late = [
        event.token
        for event in generate(model, [[1, 2]], options=replace(options, min_new_tokens=10), ends=ends)
    ]
    assert not ends & set(late[:10])


def test_a_consumer_of_events_ends_a_text(model: Any) -> None:
    """After any token of any row; the others go on as if nothing had happened."""
    options = replace(GREEDY, max_new_tokens=9)
    whole = answers(run(model, [[1], [2, 3], [4]], options))
    tokens: dict[int, list[int]] = defaultdict(list)
    for event in generate(model, [[1], [2, 3], [4]], options=options):
        if event.token is not None:
            tokens[event.prompt].append(event.token)
        if event.prompt == 1 and len(tokens[1]) == 4:
            event.continuation.stop()
    assert tokens[1] == whole[1, 0][0][:4]
    assert (tokens[0], tokens[2]) == (whole[0, 0][0], whole[2, 0][0])


class Endless(Mock):
    """A model without a limit, as a recurrent network is."""

    context = None  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__(context=400)
        self.limit = self.__dict__.pop("context")

    def scores(self, row: Sequence[int] | Array) -> Array:
        logits = self.places[len(row) % 64].copy()
        for back, id in enumerate(row[-1:-4:-1]):
            logits += self.weights[back, id]
        return logits


def test_a_model_without_a_limit_is_never_full() -> None:
    """Prompts and texts of any length, whatever happens at the edge of a context; nothing is read twice."""
    for overflow in ("stop", "slide"):
        model = Endless()
        options = replace(GREEDY, max_new_tokens=150, overflow=overflow)
        tokens, finish = alone(model, [1, 2] * 300, options)
        assert (len(tokens), finish) == (150, "length")
        assert model.steps == [(1, 600)] + [(1, 1)] * 149
    found = search(Endless(), [1, 2] * 300, Options(num_beams=3, max_new_tokens=20))
    assert len(found[0].tokens) == 20


class Translating:
    """A model that needs a source: it is no stepper itself, and makes one that is bound to a source."""

    def given(self, source: Sequence[int]) -> Mock:
        bound = Mock(seed=sum(source))
        bound.weights = bound.weights * (1 + len(source))  # every score depends on the source
        return bound


def test_a_source_is_bound_before_generation() -> None:
    """Generation and search do not depend on it: two sources, two answers; the same source, the same answer."""
    model = Translating()
    found = [alone(model.given(source), [1], GREEDY)[0] for source in ([3, 4], [5], [3, 4])]
    assert found[0] == found[2] != found[1]
    beams = [
        search(model.given(source), [1], Options(num_beams=3, max_new_tokens=6)) for source in ([3, 4], [5])
    ]
    assert beams[0][0].tokens != beams[1][0].tokens


def test_bad_prompts_are_refused_before_the_first_token_is_asked_for() -> None:
    """By the call itself, so that a stream fails where it is made."""
    with pytest.raises(InputError, match="is empty"):
        generate(Mock(), [[]], options=GREEDY)
    with pytest.raises(InputError, match="is empty"):
        beam_search(Mock(), [[]], options=Options(num_beams=2))


# The cache.


@pytest.mark.parametrize(("dtype", "limit"), [(torch.float64, 1e-9), (torch.float32, 1e-3)])
def test_a_cache_changes_nothing(dtype: torch.dtype, limit: float) -> None:
    """Read in pieces of any size, gone back and read on, or taken over by other rows, a text has the scores
    it has whole.
    """
    model = tiny(dtype=dtype)
    ids = torch.tensor(np.random.default_rng(13).integers(0, 40, size=(3, 48)))
    worst = 0.0
    with torch.inference_mode():
        whole = model(ids)

        def compare(got: torch.Tensor, want: torch.Tensor) -> None:
            nonlocal worst
            assert got.shape == want.shape
            worst = max(worst, float((got - want).abs().max() / whole.abs().max()))

        for chunk in (1, 2, 3, 16, 48):
            cache = model.new_cache(3, 48)
            compare(torch.cat([model(piece, cache) for piece in ids.split(chunk, dim=1)], dim=1), whole)
        for back in (0, 1, 20, 47):
            cache.rewind(back)
            compare(model(ids[:, back : back + 1], cache), whole[:, back : back + 1])
            compare(model(ids[:, back + 1 :], cache), whole[:, back + 1 :]) if back < 47 else None
        cache.rewind(30)
        compare(model(ids[[2, 0, 2], 30:], cache.select([2, 0, 2])), whole[[2, 0, 2], 30:])
    assert 0 < worst <= limit


# Padding.


@pytest.mark.parametrize(("dtype", "limit"), [(torch.float64, 1e-9), (torch.float32, 1e-3)])
def test_left_padding_changes_nothing(dtype: torch.dtype, limit: float) -> None:
    """A row with 1 to 64 positions of padding at its left has the scores that it has alone, at every later step
    too.
    """
    model = tiny(context=96, dtype=dtype)
    rng = np.random.default_rng(8)
    worst = 0.0
    with torch.inference_mode():
        for padding in range(1, 65):
            short, long = rng.integers(0, 40, size=5), rng.integers(0, 40, size=5 + padding)
            ids = torch.tensor(np.stack([np.concatenate([np.zeros(padding, dtype=np.int64), short]), long]))
            more = torch.tensor(rng.integers(0, 40, size=(2, 3)))
            cache = model.new_cache(2, 8 + padding, padding=np.array([padding, 0]))
            got = [
                model(ids, cache, last=True),
                *(model(more[:, i : i + 1], cache, last=True) for i in range(3)),
            ]
            for row, own in enumerate((short, long)):
                whole = model(torch.cat([torch.tensor(own), more[row]])[None])[0]
                for step in range(4):
                    want = whole[len(own) - 1 + step]
                    worst = max(worst, float((got[step][row, 0] - want).abs().max() / want.abs().max()))
    assert 0 < worst <= limit


def test_the_ids_of_the_padding_change_no_bit() -> None:
    """Whatever the ids of the padding, `step` gives the same bits."""
    model = tiny(context=96)
    rng = np.random.default_rng(9)
    for padding in range(1, 65):
        short, long = rng.integers(0, 40, size=4), rng.integers(0, 40, size=4 + padding)
        more = rng.integers(0, 40, size=(2, 1))
        seen = []
        for void in (
            np.zeros(padding, dtype=np.int64),
            np.full(padding, 39),
            rng.integers(0, 40, size=padding),
        ):
            cache = model.new_cache(2, 5 + padding, padding=np.array([padding, 0]))
            first = model.step(np.stack([np.concatenate([void, short]), long]), cache)
            seen.append(np.stack([first, model.step(more, cache)]))
        assert seen[0].dtype == np.float32
        assert seen[0].tobytes() == seen[1].tobytes() == seen[2].tobytes()
        assert not np.array_equal(seen[0][0, 0], seen[0][0, 1])


def test_prefill_pads_on_the_left_and_reads_equal_windows_once() -> None:
    """The rows come back in the order of the answers, each with its own scores."""
    model = Mock()
    prompts = [[1, 2, 3], [4], [1, 2, 3], [5, 6], [4]]
    logits, cache = prefill(model, [Continuation(0, 0, prompt) for prompt in prompts], max_new_tokens=12)
    np.testing.assert_array_equal(logits, np.stack([model.scores(prompt) for prompt in prompts]))
    assert model.steps == [(3, 3)]
    assert cache.padding.tolist() == [0, 2, 0, 1, 2]


# The edge of the context.


@pytest.mark.parametrize("make", [Mock, tiny])
def test_a_full_context_has_no_room(make: Callable[..., Any]) -> None:
    """A prompt of exactly the context's length gets no token and the reason `context`; the model is not asked."""
    model = make(context=32)
    assert alone(model, [1] * 32, GREEDY) == ([], "context")
    if isinstance(model, Mock):
        assert model.steps == []


@pytest.mark.parametrize("make", [Mock, tiny])
@pytest.mark.parametrize("over", [1, 2, 1000])
def test_a_prompt_that_is_too_long_is_refused(make: Callable[..., Any], over: int) -> None:
    """The message gives the length of the prompt, the excess and the context."""
    with pytest.raises(
        InputError, match=rf"prompt has {32 + over:,} tokens, {over:,} more than the model's context of 32\b"
    ):
        next(run(make(context=32), [[1], [1] * (32 + over)], GREEDY))


@pytest.mark.parametrize("make", [Mock, tiny])
def test_the_context_is_filled_to_its_last_place(make: Callable[..., Any]) -> None:
    """Twenty-four places left and a hundred tokens asked for: exactly twenty-four come."""
    model = make(context=128)
    tokens, finish = alone(model, [1] * 104, replace(GREEDY, max_new_tokens=100))
    assert (len(tokens), finish) == (24, "context")
    assert alone(model, [1] * 104, replace(GREEDY, max_new_tokens=24))[1] == "length"  # as asked for
    assert len(alone(model, [1] * 104, replace(GREEDY, max_new_tokens=24))[0]) == 24
    assert len(alone(model, [1] * 104, replace(GREEDY, max_new_tokens=23))[0]) == 23
    assert len(alone(model, [1] * 103, replace(GREEDY, max_new_tokens=100))[0]) == 25
    if isinstance(model, Mock):
        assert model.longest == 127  # the last token is chosen, and never read


def test_no_position_is_beyond_the_edge() -> None:
    """In a batch of all lengths, the largest position ever looked up is the last one before the last token's."""
    model, seen = tiny(context=32), []
    model.positions.register_forward_hook(lambda module, given, _: seen.append(int(given[0].max())))
    prompts = [[1] * length for length in range(1, 33)]
    got = answers(run(model, prompts, replace(GREEDY, max_new_tokens=100)))
    for (which, _), (tokens, finish) in got.items():
        assert (len(tokens), finish) == (32 - len(prompts[which]), "context")
    assert max(seen) == 30
    for which, prompt in enumerate(prompts):
        assert got[which, 0] == alone(model, prompt, replace(GREEDY, max_new_tokens=100))


@pytest.mark.parametrize(
    ("prompt", "asked", "room"), [(1, 0, 0), (1, 31, 31), (1, 32, 31), (31, 5, 1), (32, 5, 0)]
)
def test_check_prompt_returns_the_room_that_is_left(prompt: int, asked: int, room: int) -> None:
    """As many as asked for, and no more than fit; a window that slides has room for all."""
    options = replace(GREEDY, max_new_tokens=asked)
    assert check_prompts(Mock(context=32), [[1] * prompt], options=options) == [room]
    assert check_prompts(Mock(context=32), [[1] * prompt], options=replace(options, overflow="slide")) == [
        asked
    ]


def slid(model: Any, prompt: list[int], options: Options) -> list[int]:
    """What sliding means, without a cache: past the edge, go on over the last half."""
    window, tokens = list(prompt), []
    for position in range(len(prompt), len(prompt) + options.max_new_tokens):
        if len(window) > model.context:
            window = window[len(window) - max(1, model.context // 2) :]
        scores = adjust(recompute(model, window), options, prompt=prompt, answer=tokens)
        tokens.append(choose(scores, options, choice=0, position=position))
        window.append(tokens[-1])
    return tokens


@pytest.mark.parametrize("make", [Mock, tiny])
@pytest.mark.parametrize("context", [16, 17])
def test_sliding_goes_on_past_the_edge(make: Callable[..., Any], context: int) -> None:
    """A window slides over several edges, in a batch as alone, and is never wider than the context."""
    model = make(context=context)
    options = Options(overflow="slide", max_new_tokens=40, seed=1)
    prompts = [[1, 2, 3], [4] * (context - 1), [5] * context, [6] * (context + 1), list(range(40)), [7]]
    got = answers(run(model, prompts, options))
    for which, prompt in enumerate(prompts):
        assert got[which, 0] == (slid(model, prompt, options), "length")
        assert len(got[which, 0][0]) == 40
        assert alone(model, prompt, options) == got[which, 0]
    if isinstance(model, Mock):
        assert model.longest == context


@pytest.mark.parametrize("context", [1, 2, 3])
def test_sliding_in_the_smallest_contexts(context: int) -> None:
    """Even a model that sees one token goes on."""
    model = Mock(context=context)
    options = Options(overflow="slide", max_new_tokens=10)
    assert alone(model, [1, 2, 3, 4], options) == (slid(model, [1, 2, 3, 4], options), "length")


def test_sliding_and_stopping_agree_before_the_edge(model: Any) -> None:
    """What happens at the edge changes nothing before it."""
    options = Options(max_new_tokens=100, seed=4)
    stopped, reason = alone(model, [1] * 40, options)
    went_on, _ = alone(model, [1] * 40, replace(options, overflow="slide"))
    assert (len(stopped), reason, len(went_on)) == (24, "context", 100)
    assert went_on[:24] == stopped


# How an answer ends.


def test_the_end_token_ends_and_is_not_part_of_the_answer(model: Any) -> None:
    """Everything before the end token comes, then the reason `stop`."""
    for prompt in random_prompts(10, seed=10):
        whole, _ = alone(model, prompt, GREEDY)
        end = whole[5]
        at = whole.index(end)
        assert alone(model, prompt, GREEDY, end=end) == (whole[:at], "stop")
        never = next(id for id in range(40) if id not in whole)
        assert alone(model, prompt, GREEDY, end=never) == (whole, "length")


def test_no_end_before_min_new_tokens(model: Any) -> None:
    """The end token is excluded until there are enough tokens; another one is chosen in its place."""
    late = 0
    for prompt in random_prompts(3, seed=11):
        end = alone(model, prompt, GREEDY)[0][2]
        for least in range(13):
            options = replace(GREEDY, min_new_tokens=least)
            row: list[int] = []
            while len(row) < 12:
                scores = recompute(model, prompt + row).copy()
                if len(row) < least:
                    scores[end] = -np.inf
                if scores.argmax() == end:
                    break
                row.append(int(scores.argmax()))
            tokens, finish = alone(model, prompt, options, end=end)
            assert tokens == row
            assert finish == ("length" if len(row) == 12 else "stop")
            assert len(tokens) >= least
            assert end not in tokens
            late += len(tokens) > 2
    assert late > 0


@pytest.mark.parametrize("options", [GREEDY, Options(max_new_tokens=12, temperature=100.0, top_k=0)])
def test_ids_without_a_token_are_never_chosen(model: Any, options: Options) -> None:
    """Where the vocabulary is smaller than the model, the rest is out of reach."""
    options = replace(options, num_return_sequences=8)
    free = answers(run(model, [[1], [2, 3]], options))
    assert max(max(tokens) for tokens, _ in free.values()) >= 10
    for known in (1, 2, 10, 39):
        got = answers(run(model, [[1], [2, 3]], options, known=known))
        assert {len(tokens) for tokens, _ in got.values()} == {12}
        assert max(max(tokens) for tokens, _ in got.values()) < known
    assert answers(run(model, [[1], [2, 3]], options, known=40)) == free


def test_a_halt_ends_an_answer_after_its_token(model: Any) -> None:
    """The callback sees every token as it comes; the one at which it returns stop is the last."""
    whole, _ = alone(model, [1, 2], GREEDY)
    seen: list[Event] = []

    def halt(event: Event) -> bool:
        seen.append(event)
        return len(seen) == 5

    assert alone(model, [1, 2], GREEDY, halt=halt) == (whole[:5], "stop")
    assert [event.token for event in seen] == whole[:5]
    assert all(event.finish is None for event in seen)


def test_a_halt_at_the_last_token_is_a_stop() -> None:
    """Where both end at once, the reason is the better one."""
    assert alone(Mock(), [1], replace(GREEDY, max_new_tokens=3), halt=lambda _: True)[1] == "stop"
    count = iter(range(100))
    assert alone(Mock(), [1], replace(GREEDY, max_new_tokens=3), halt=lambda _: next(count) == 2)[1] == "stop"


def test_a_text_of_bytes_halts_at_its_stop_string() -> None:
    """A byte tokenizer, a text stream and the loop together: nothing of the stop string is shown."""
    tokenizer = ByteBPE({SYMBOL_OF[byte]: byte for byte in range(256)}, [], special={END_OF_TEXT: 256})
    model = Mock(vocab=257, seed=3)
    model.weights[:, :, 97:101] += 9  # the letters a to d are likely
    options = Options(max_new_tokens=50, temperature=1.0, seed=1)
    prompt = tokenizer.encode("ab")
    tokens, _ = alone(model, prompt, options, end=tokenizer.end, known=len(tokenizer))
    text = tokenizer.decode(tokens)
    assert set(text) <= set("abcd")
    assert len(text) == 50
    stop = text[20:23]
    stream = TextStream(tokenizer.bytes_of, [stop])
    shown = ""

    def halt(event: Event) -> bool:
        nonlocal shown
        assert event.token is not None
        shown += stream.push(event.token)
        return stream.stopped

    got, finish = alone(model, prompt, options, end=tokenizer.end, halt=halt)
    assert finish == "stop"
    assert shown == text.split(stop)[0]
    assert tokenizer.decode(got) == shown + stop


def test_a_cancelled_run_ends_before_its_next_step() -> None:
    """The callback is called before every step; every answer that still runs is marked as cancelled."""
    for after in range(4):
        model = Mock()
        asked = iter(range(100))
        got = answers(
            run(model, [[1], [2]], GREEDY, cancelled=lambda asked=asked, after=after: next(asked) == after)
        )
        assert {finish for _, finish in got.values()} == {"cancelled"}
        assert {len(tokens) for tokens, _ in got.values()} == {after}
        assert len(model.steps) <= max(after, 1)
        assert next(asked) == after + 1


def test_only_unfinished_answers_are_cancelled() -> None:
    """Answers that ended before keep their reason."""
    first = Mock().scores([1]).argmax()
    asked = iter(range(100))
    got = answers(
        run(Mock(), [[1], [2], [3] * 64], GREEDY, end=int(first), cancelled=lambda: next(asked) == 2)
    )
    assert got[0, 0] == ([], "stop")
    assert got[1, 0][1] == "cancelled"
    assert len(got[1, 0][0]) == 2
    assert got[2, 0] == ([], "context")


def test_a_stream_can_be_left() -> None:
    """Tokens come one by one: a caller that takes three has computed three."""
    model = Mock()
    events = run(model, [[1, 2]], GREEDY)
    first = [next(events).token for _ in range(3)]
    assert len(model.steps) == 3
    events.close()  # type: ignore[attr-defined]
    assert len(model.steps) == 3
    assert alone(model, [1, 2], GREEDY)[0][:3] == first


# What cannot be.


@pytest.mark.parametrize("broken", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("options", [GREEDY, Options(max_new_tokens=12)])
def test_broken_numbers_are_an_error(broken: float, options: Options) -> None:
    """A NaN or an infinity among the scores ends the run in words, at once or later."""

    class Broken(Mock):
        good = 0

        def step(self, ids: Array, cache: Memory) -> Array:
            logits = super().step(ids, cache)
            if len(self.steps) > self.good:
                logits[0, 17] = broken
            return logits

    for good in (0, 3):
        model = Broken()
        model.good = good
        events = run(model, [[1], [2]], options)
        for _ in range(2 * good):
            assert next(events).token is not None
        with pytest.raises(GlassError, match="NaN or infinite"):
            next(events)


def test_a_gpt_with_a_broken_weight_is_an_error() -> None:
    """The same with a GPT."""
    model = tiny()
    with torch.no_grad():
        model.norm.weight[3] = torch.nan
    with pytest.raises(GlassError, match="NaN or infinite"):
        next(run(model, [[1]], GREEDY))


def test_an_empty_prompt_is_refused() -> None:
    """There is nothing to continue; the message names the prompt and the remedy."""
    with pytest.raises(InputError, match=r"^prompt 0 is empty; .*end-of-text"):
        next(run(Mock(), [[]], GREEDY))
    with pytest.raises(InputError, match=r"^prompt 1 is empty"):
        next(run(Mock(), [[1], []], GREEDY))
    assert list(run(Mock(), [], GREEDY)) == []


@pytest.mark.parametrize("id", [-1, 40, 50257, 2**31, 2**63, -(2**63), 10**30])
def test_strange_ids_are_refused_in_a_prompt(id: int, model: Any) -> None:
    """An id that the model does not score is named, and so is the range; the ends of the range are fine."""
    with pytest.raises(InputError, match=rf"^prompt 1: {id} is not a token id of this model \(0 to 39\)"):
        next(run(model, [[1], [1, id]], GREEDY))
    assert alone(model, [0, 39], GREEDY)[1] == "length"


@pytest.mark.parametrize("id", [40, 50257, 2**63])
def test_strange_ids_are_refused_in_a_bias(id: int) -> None:
    """A bias on a token that the model does not have is a mistake, and is called one."""
    options = replace(GREEDY, logit_bias={39: 1.0, id: 1.0})
    with pytest.raises(InputError, match=rf"^logit_bias: {id} is not a token id"):
        next(run(Mock(), [[1]], options))
    with pytest.raises(InputError, match=rf"^logit_bias: {id} is not a token id"):
        search(Mock(), [1], replace(options, num_beams=2))
    assert alone(Mock(), [1], replace(GREEDY, logit_bias={39: 100.0}))[0] == [39] * 12


def test_no_token_asked_for_is_no_token_given(model: Any) -> None:
    """Zero new tokens end at once, whatever the edge."""
    for overflow in ("stop", "slide"):
        options = replace(GREEDY, max_new_tokens=0, num_return_sequences=2, overflow=overflow)
        assert answers(run(model, [[1], [2]], options)) == {
            (which, choice): ([], "length") for which in range(2) for choice in range(2)
        }


# What it imports.


def test_generation_needs_no_torch() -> None:
    """Everything that chooses tokens runs where torch cannot be imported."""
    code = """
import sys
sys.modules["torch"] = None
from glassformer.generation import beam, decode, options, sampling, stepper
import numpy as np
class Flat:
    context, vocab = 8, 5
    def new_cache(self, rows, capacity, padding=None): return self
    def select(self, rows): self.rows = len(rows); return self
    def log_sums(self, logits): return [0.0] * len(logits)
    def step(self, ids, cache): return np.tile(np.arange(5, dtype=np.float32), (len(ids), 1))
greedy = options.Options(do_sample=False, max_new_tokens=3)
print([event.token for event in decode.generate(Flat(), [[1]], options=greedy)])
found = beam.beam_search(Flat(), [[1]], options=options.Options(num_beams=2, max_new_tokens=3))
print(next(found)[0].tokens)
print(sys.modules["torch"])
"""
    child = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, env=dict(os.environ)
    )
    assert child.stderr == ""
    assert child.stdout.split("\n") == ["[4, 4, 4]", "(4, 4, 4)", "None", ""]
