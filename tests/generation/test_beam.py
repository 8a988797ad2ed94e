"""Beam search: the answers and scores of Hugging Face's `generate`, and what can be seen without it."""

import itertools
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import pytest
import torch
from decoding import log_sums, run, search
from small import small_model
from transformers import GPT2Config, GPT2LMHeadModel
from transformers.utils import logging

from glassformer.errors import GlassError, InputError
from glassformer.generation.beam import Beam, beam_search
from glassformer.generation.options import Options
from glassformer.generation.sampling import log_softmax
from glassformer.hub.folder import load_folder
from glassformer.models.gpt import GPT

Array = np.ndarray[Any, np.dtype[Any]]
VOCAB, CONTEXT = 37, 48
Pair = tuple[GPT2LMHeadModel, GPT]


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> list[Pair]:
    """Three small models with random weights, theirs and ours; the larger the weights, the surer they are."""
    logging.disable_progress_bar()
    made = []
    for seed, scale in ((0, 4.0), (1, 6.0), (2, 9.0)):
        torch.manual_seed(seed)
        config = GPT2Config(
            vocab_size=VOCAB,
            n_positions=CONTEXT,
            n_embd=16,
            n_layer=2,
            n_head=2,
            bos_token_id=None,
            eos_token_id=None,
        )
        theirs = GPT2LMHeadModel(config).eval()
        with torch.no_grad():
            for parameter in theirs.parameters():
                if parameter.dim() == 2:
                    parameter.mul_(scale)
        folder = tmp_path_factory.mktemp("models") / str(seed)
        theirs.save_pretrained(folder)
        made.append((theirs, load_folder(folder).model))
    return made


def a_case(
    rng: np.random.Generator, theirs: GPT2LMHeadModel, **fixed: Any
) -> tuple[list[int], int, dict[str, Any]]:
    """A random prompt, an end token that is likely after it, and random options."""
    prompt = [int(id) for id in rng.integers(0, VOCAB, size=rng.integers(1, 8))]
    with torch.no_grad():
        likely = theirs(torch.tensor([prompt])).logits[0, -1].argsort(descending=True)
    longest, beams = int(rng.integers(1, 14)), fixed.get("num_beams", int(rng.integers(2, 7)))
    options = {
        "num_beams": beams,
        "num_return_sequences": int(rng.integers(1, beams + 1)),
        "length_penalty": float(rng.choice([-1, 0, 0.5, 1, 2])),
        "early_stopping": [True, False, "never"][rng.integers(3)],
        "repetition_penalty": float(rng.choice([1.0, 1.0, 1.3, 0.8])),
        "max_new_tokens": longest,
        "min_new_tokens": min(longest, int(rng.choice([0, 0, 2, 5]))),
    }
    return prompt, int(likely[rng.integers(0, 6)]), options | fixed


def their_beams(
    model: GPT2LMHeadModel, prompt: list[int], end: int | None, options: dict[str, Any]
) -> tuple[list[tuple[int, ...]], list[float]]:
    """The answers of `generate`, without end token and padding, and their scores."""
    given = dict(options)
    if "logit_bias" in given:
        given["sequence_bias"] = [[[id], bias] for id, bias in given.pop("logit_bias").items()]
    if not given.get("min_new_tokens"):
        given.pop("min_new_tokens", None)
    out = model.generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
        do_sample=False,
        eos_token_id=end,
        pad_token_id=0,
        return_dict_in_generate=True,
        output_scores=True,
        **given,
    )
    lengths = (out.beam_indices >= 0).sum(1).tolist()
    rows = [
        row[len(prompt) : len(prompt) + length]
        for row, length in zip(out.sequences.tolist(), lengths, strict=True)
    ]
    return [tuple(row[:-1] if row[-1] == end else row) for row in rows], out.sequences_scores.tolist()


def compare(pair: Pair, prompt: list[int], end: int | None, options: dict[str, Any]) -> list[Beam]:
    """Both give the same answers with the same scores, best first."""
    theirs, ours = pair
    tokens, scores = their_beams(theirs, prompt, end, options)
    got = search(ours, prompt, Options(**options), end=end)
    assert [beam.tokens for beam in got] == tokens
    np.testing.assert_allclose([beam.score for beam in got], scores, rtol=1e-4, atol=1e-5)
    assert [beam.score for beam in got] == sorted((beam.score for beam in got), reverse=True)
    return got


@pytest.mark.parametrize("beams", [2, 3, 4, 5, 6])
def test_random_cases_are_theirs(beams: int, pairs: list[Pair]) -> None:
    """Random prompts, end tokens and options give the same answers in the same order."""
    rng = np.random.default_rng(beams)
    stopped = total = 0
    for case in range(14):
        prompt, end, options = a_case(rng, pairs[case % 3][0], num_beams=beams)
        got = compare(pairs[case % 3], prompt, end, options)
        assert len(got) == options["num_return_sequences"]
        for beam in got:
            assert end not in beam.tokens
            assert options["min_new_tokens"] <= len(beam.tokens) <= options["max_new_tokens"]
            assert beam.finish == ("stop" if len(beam.tokens) < options["max_new_tokens"] else "length")
        stopped += sum(beam.finish == "stop" for beam in got)
        total += len(got)
    assert 0.1 * total < stopped < total


@pytest.mark.parametrize("early_stopping", [True, False, "never"])
@pytest.mark.parametrize("length_penalty", [-1.0, 0.0, 0.5, 1.0, 2.0])
def test_every_way_to_stop_is_theirs(length_penalty: float, early_stopping: Any, pairs: list[Pair]) -> None:
    """All pairs of length penalty and early stopping, on texts long enough to show the difference."""
    rng = np.random.default_rng(99)
    for case in range(2):
        prompt, end, options = a_case(rng, pairs[case][0], num_beams=4, max_new_tokens=12, min_new_tokens=0)
        options |= {
            "length_penalty": length_penalty,
            "early_stopping": early_stopping,
            "num_return_sequences": 4,
        }
        compare(pairs[case], prompt, end, options)


def test_the_ways_to_stop_differ(pairs: list[Pair]) -> None:
    """The three settings of early stopping, and the length penalties, give different answers somewhere."""
    rng = np.random.default_rng(99)
    early = penalty = False
    for case in range(20):
        prompt, end, options = a_case(
            rng, pairs[case % 2][0], num_beams=4, max_new_tokens=12, min_new_tokens=0
        )
        options |= {"num_return_sequences": 4, "repetition_penalty": 1.0}

        def answers(
            prompt: list[int] = prompt, end: int = end, case: int = case, **options: Any
        ) -> list[tuple[int, ...]]:
            return [beam.tokens for beam in search(pairs[case % 2][1], prompt, Options(**options), end=end)]

        early += (
            len(
                {
                    str(answers(**options | {"length_penalty": 1.0, "early_stopping": way}))
                    for way in (True, False, "never")
                }
            )
            > 1
        )
        penalty |= len({str(answers(**options | {"length_penalty": by})) for by in (-1.0, 1.0, 2.0)}) > 1
        if early and penalty:
            break
    assert early
    assert penalty


def test_a_bias_is_theirs(pairs: list[Pair]) -> None:
    """A bias is added to the log-probabilities, and changes the answers."""
    rng = np.random.default_rng(5)
    changed = 0
    for case in range(5):
        prompt, end, options = a_case(rng, pairs[case % 3][0], max_new_tokens=6)
        bias = {int(id): float(rng.normal(scale=3)) for id in rng.choice(VOCAB, size=8, replace=False)}
        got = compare(pairs[case % 3], prompt, end, options | {"logit_bias": bias})
        free = search(pairs[case % 3][1], prompt, Options(**options), end=end)
        changed += [beam.tokens for beam in got] != [beam.tokens for beam in free]
    assert changed > 0


def test_many_beams_that_end_at_once_are_theirs(pairs: list[Pair]) -> None:
    """Where the end is likely everywhere, the next best beginnings take the places of those that ended."""
    rng = np.random.default_rng(9)
    stopped = 0
    for case in range(6):
        prompt, end, options = a_case(
            rng, pairs[case % 3][0], num_beams=4 + case % 3, max_new_tokens=8, min_new_tokens=0
        )
        options |= {
            "logit_bias": {end: 4.0},
            "num_return_sequences": 4,
            "early_stopping": "never",
            "length_penalty": 2.0,
        }
        stopped += sum(beam.finish == "stop" for beam in compare(pairs[case % 3], prompt, end, options))
    assert stopped > 8


def test_ids_without_a_token_are_as_suppressed_ones(pairs: list[Pair]) -> None:
    """An id outside the vocabulary is never chosen, and the rest is scored as if it could have been."""
    rng = np.random.default_rng(6)
    changed = 0
    for case in range(5):
        prompt, end, options = a_case(rng, pairs[case % 3][0], max_new_tokens=6)
        theirs, ours = pairs[case % 3]
        end = end % 20
        tokens, scores = their_beams(
            theirs, prompt, end, options | {"suppress_tokens": list(range(20, VOCAB))}
        )
        got = search(ours, prompt, Options(**options), end=end, known=20)
        assert [beam.tokens for beam in got] == tokens
        np.testing.assert_allclose([beam.score for beam in got], scores, rtol=1e-4, atol=1e-5)
        changed += [beam.tokens for beam in got] != [
            beam.tokens for beam in search(ours, prompt, Options(**options), end=end)
        ]
    assert changed > 0


def test_without_an_end_token_every_answer_is_as_long_as_may_be(pairs: list[Pair]) -> None:
    """Nothing ends by itself, and the context's edge is an end."""
    rng = np.random.default_rng(7)
    for case in range(3):
        prompt, _, options = a_case(rng, pairs[case][0], min_new_tokens=0)
        for beam in compare(pairs[case], prompt, None, options):
            assert (len(beam.tokens), beam.finish) == (options["max_new_tokens"], "length")
    ours = pairs[0][1]
    for length, room in ((CONTEXT - 3, 3), (CONTEXT - 1, 1), (CONTEXT, 0)):
        got = search(ours, [1] * length, Options(num_beams=3, num_return_sequences=2, max_new_tokens=20))
        assert [(len(beam.tokens), beam.finish) for beam in got] == [(room, "context")] * 2
    with pytest.raises(InputError, match="1 more than the model's context of 48"):
        search(ours, [1] * (CONTEXT + 1), Options(num_beams=3))


def test_the_log_probabilities_are_the_models_own(pairs: list[Pair]) -> None:
    """Those of the tokens, read in one go, whatever the penalties made of them; without penalties they add
    up.
    """
    rng = np.random.default_rng(8)
    for case in range(6):
        prompt, end, options = a_case(rng, pairs[case % 3][0], max_new_tokens=8, min_new_tokens=1)
        options["repetition_penalty"] = 1.5 if case % 2 else 1.0
        ours = pairs[case % 3][1]
        for beam in search(ours, prompt, Options(**options), end=end):
            with torch.inference_mode():
                logits = ours(torch.tensor([[*prompt, *beam.tokens]]))[0, len(prompt) - 1 :]
            logp = logits.double().log_softmax(-1)
            want = [float(row[id]) for row, id in zip(logp, beam.tokens, strict=False)]
            assert len(beam.logprobs) == len(beam.tokens) == len(want)
            np.testing.assert_allclose(beam.logprobs, want, atol=1e-4)
            if case % 2 == 0:
                ending = float(logp[-1, end]) if beam.finish == "stop" else 0.0
                length = len(beam.tokens) + (beam.finish == "stop")
                assert beam.total == pytest.approx(sum(want) + ending, abs=1e-3)
                assert beam.score == pytest.approx(
                    (sum(want) + ending) / length ** options["length_penalty"], rel=1e-3, abs=1e-4
                )


# Without Hugging Face.


class Table:
    """A model without torch whose scores depend on the last two tokens alone; it counts its steps and their
    rows.
    """

    vocab, steps, rows = 4, 0, 0

    def __init__(self, seed: int = 0, context: int = 32) -> None:
        self.context = context
        self.logits = np.random.default_rng(seed).normal(scale=2, size=(4, 4, 4)).astype(np.float32)
        self.ids = np.zeros((1, 0), dtype=np.int64)

    def new_cache(self, rows: int, capacity: int, *, padding: Array | None = None) -> Self:
        fresh = type(self)(context=self.context)
        fresh.logits, fresh.ids = self.logits, np.zeros((rows, 1), dtype=np.int64)
        return fresh

    def select(self, rows: Sequence[int]) -> Self:
        fresh = self.new_cache(len(rows), 0)
        fresh.ids = self.ids[list(rows)]
        return fresh

    def log_sums(self, logits: Array) -> list[float]:
        return log_sums(logits)

    def step(self, ids: Array, cache: "Table") -> Array:
        self.steps, self.rows = self.steps + 1, len(ids)
        cache.ids = np.concatenate([cache.ids, ids], axis=1)
        assert cache.ids.shape[1] - 1 <= self.context, "a token beyond the edge of the context"
        return self.logits[cache.ids[:, -2], cache.ids[:, -1]]

    def total(self, prompt: list[int], answer: Sequence[int]) -> float:
        """The log-probability of an answer."""
        row = [0, *prompt, *answer]
        return sum(
            float(log_softmax(self.logits[row[i - 2], row[i - 1]])[row[i]])
            for i in range(len(prompt) + 1, len(row))
        )


@pytest.mark.parametrize("seed", range(5))
def test_enough_beams_find_the_best_of_all(seed: int) -> None:
    """With as many beams as there are answers, the best ten of all of them come, in order."""
    model = Table(seed)
    every = sorted(itertools.product(range(4), repeat=3), key=lambda answer: -model.total([1, 2], answer))
    got = search(
        model, [1, 2], Options(num_beams=64, num_return_sequences=10, max_new_tokens=3, length_penalty=0.0)
    )
    assert [beam.tokens for beam in got] == every[:10]
    np.testing.assert_allclose(
        [beam.score for beam in got], [model.total([1, 2], answer) for answer in every[:10]], rtol=1e-5
    )


def test_more_beams_are_better_than_greedy() -> None:
    """Beam search finds answers at least as likely as the greedy one almost always, and likelier ones often."""
    better = worse = 0
    for seed in range(30):
        model = Table(seed)
        greedy = [event.token for event in run(model, [[1, 2]], Options(do_sample=False, max_new_tokens=6))]
        found = search(model, [1, 2], Options(num_beams=5, max_new_tokens=6))[0]
        ours, plain = (
            model.total([1, 2], found.tokens),
            model.total([1, 2], [id for id in greedy if id is not None]),
        )
        assert ours == pytest.approx(float(found.total), abs=1e-4)
        better += ours > plain + 1e-6
        worse += ours < plain - 1e-6
    assert better >= 5
    assert worse <= 1


def test_the_seed_and_the_temperature_change_nothing() -> None:
    """Beam search draws no lots."""
    got = [
        search(Table(), [1], Options(num_beams=3, max_new_tokens=5, seed=seed, temperature=t, top_k=k))[
            0
        ].tokens
        for seed, t, k in ((0, 0.8, 40), (1, 2.0, 1), (2, 0.0, 0))
    ]
    assert got[0] == got[1] == got[2]


def test_it_stops_when_going_on_cannot_help() -> None:
    """With enough finished answers and early stopping there are no more steps; with `never` there are."""
    model = Table()
    model.logits[:, :, 3] = 4.0  # the end is likely everywhere
    steps = {}
    for way in (True, False, "never"):
        model.steps = 0
        beams = search(
            model, [1], Options(num_beams=2, max_new_tokens=30, early_stopping=way, length_penalty=2.0), end=3
        )  # type: ignore[arg-type]
        steps[way] = model.steps
        assert model.rows == (2 if model.steps > 1 else 1)  # however many ended, two go on
        assert beams[0].finish in ("stop", "length")
    assert steps[True] <= steps[False] < steps["never"] <= 30
    assert steps[True] < 6


def test_no_end_before_min_new_tokens() -> None:
    """The end token waits until enough tokens are there."""
    model = Table()
    model.logits[:, :, 3] = 4.0
    for least in range(6):
        options = Options(num_beams=3, num_return_sequences=3, max_new_tokens=8, min_new_tokens=least)
        lengths = [len(beam.tokens) for beam in search(model, [1], options, end=3)]
        assert min(lengths) == least


@pytest.mark.parametrize("penalty", [1.0, -1.0])
def test_the_strongest_length_penalty_that_is_taken_can_be_computed(penalty: float) -> None:
    """Also for long answers, where length to the power of the penalty is a very large or a very small number."""
    options = None
    for strength in (10, 50, 100):
        try:
            options = Options(
                num_beams=2, max_new_tokens=1300, length_penalty=penalty * strength, early_stopping="never"
            )
        except InputError:
            break
    assert options is not None
    beam = search(Table(context=3000), [1], options)[0]
    assert (len(beam.tokens), beam.finish) == (1300, "length")
    assert np.isfinite(beam.score)


@pytest.mark.parametrize("length", [4, 40])
def test_it_does_not_slide(length: int) -> None:
    """Beam search at the edge of the context is refused before any work if it should slide."""
    model = Table(context=16)
    with pytest.raises(InputError, match="overflow"):
        search(model, [1] * length, Options(num_beams=2, max_new_tokens=40, overflow="slide"))
    assert model.steps == 0


@pytest.mark.parametrize("broken", [np.nan, np.inf, -np.inf])
def test_broken_numbers_are_an_error(broken: float) -> None:
    """A NaN or an infinity among the scores ends the search in words."""
    model = Table()
    model.logits[:, :, 2] = broken
    with pytest.raises(GlassError, match="NaN or infinite"):
        search(model, [1], Options(num_beams=2))


def test_what_it_refuses() -> None:
    """An empty prompt and strange ids, as everywhere."""
    with pytest.raises(InputError, match=r"^prompt 0 is empty"):
        search(Table(), [], Options(num_beams=2))
    for id in (-1, 4, 2**63):
        with pytest.raises(InputError, match=rf"{id} is not a token id of this model \(0 to 3\)"):
            search(Table(), [1, id], Options(num_beams=2))
    assert search(Table(), [1], Options(num_beams=2, max_new_tokens=0))[0].finish == "length"


def test_cancelled_in_the_middle() -> None:
    """The tokens so far are returned, and marked as cancelled."""
    model = small_model(3)
    asked = iter([False, False, True])
    options = Options(num_beams=3, num_return_sequences=2, max_new_tokens=20)
    beams = search(model, [1, 2, 3], options, cancelled=lambda: next(asked))
    assert [len(beam.tokens) for beam in beams] == [2, 2]
    assert {beam.finish for beam in beams} == {"cancelled"}


def test_several_end_tokens_are_theirs(pairs: list[Pair]) -> None:
    """Any of them ends a beam; more candidates are kept, so that enough go on."""
    rng = np.random.default_rng(77)
    stopped = 0
    for case in range(12):
        theirs, ours = pairs[case % 3]
        prompt, _, options = a_case(rng, theirs, num_beams=4)
        ends = [int(id) for id in rng.choice(ours.vocab, size=3, replace=False)]
        out = theirs.generate(
            torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt)), eos_token_id=ends, pad_token_id=0,
            do_sample=False, return_dict_in_generate=True, output_scores=True, **options,
        )  # fmt: skip
        lengths = (out.beam_indices >= 0).sum(1).tolist()
        rows = [
            row[len(prompt) : len(prompt) + length]
            for row, length in zip(out.sequences.tolist(), lengths, strict=True)
        ]
        want = [tuple(row[:-1] if row[-1] in ends else row) for row in rows]
        (got,) = beam_search(ours, [prompt], options=Options(**options), ends=ends)
        assert [beam.tokens for beam in got] == want
        np.testing.assert_allclose([beam.score for beam in got], out.sequences_scores.tolist(), rtol=1e-4)
        stopped += sum(beam.finish == "stop" for beam in got)
    assert stopped
