"""From logits to one token: the filters against Hugging Face's, the draws against the exact distribution."""

import functools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LogitsProcessorList,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    SequenceBiasLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
    TypicalLogitsWarper,
)

from glassformer.generation import sampling
from glassformer.generation.options import Options
from glassformer.generation.sampling import (
    adjust,
    candidates,
    choose,
    distribution,
    log_softmax,
    renormalize,
)

Array = np.ndarray[Any, np.dtype[Any]]


original_uniform = sampling.uniform  # some tests put another one in its place


def uniform(seed: int, choice: int, position: int) -> float:
    """The draw of one position of one choice."""
    return original_uniform(seed, choice=choice, position=position)


PLAIN = Options(temperature=1.0, top_k=0)
DRAWS = 10_000
LOGITS = np.array([2.1, -0.3, 1.2, 0.4, -1.7, 0.9, 1.2, -0.8, 0.1, -2.5, 1.6, 0.0], dtype=np.float32)
PROMPT, ANSWER = [0, 2, 2, 9], [3, 3, 5, 3, 10, 0]


def theirs(processor: Any, scores: Array, seen: list[int] | None = None) -> Array:
    """What a processor of Hugging Face's makes of one row."""
    return np.asarray(processor(torch.tensor([seen or [0]]), torch.tensor(scores)[None])[0].numpy())


def kept_of(row: Array, **filters: float) -> Array:
    """The scores of the tokens that some filters keep; the others are -inf."""
    ids, _ = candidates(row, replace(PLAIN, **filters))  # type: ignore[arg-type]
    left = np.full_like(row, -np.inf)
    left[ids] = row[ids]
    return left


def rows(count: int, *, ties: bool = False, seed: int = 0) -> list[Array]:
    """Random rows of float64 scores of many lengths and widths; with ties, whole numbers that repeat."""
    rng = np.random.default_rng(seed)
    sizes = [int(rng.integers(2, 200)) for _ in range(count)]
    if ties:
        return [rng.integers(-3, 4, size=size).astype(np.float64) for size in sizes]
    return [rng.normal(scale=rng.uniform(0.1, 5), size=size) for size in sizes]


# The filters and penalties, one by one.


@pytest.mark.parametrize("ties", [False, True])
def test_top_k_is_theirs(ties: bool) -> None:
    """Top-k keeps the same tokens, and all that tie with the last of them."""
    kept = []
    for row in rows(200, ties=ties):
        for k in (1, 2, 5, 40, len(row) - 1, len(row), len(row) + 7):
            ours = kept_of(row, top_k=k)
            np.testing.assert_array_equal(ours, theirs(TopKLogitsWarper(k), row))
            kept.append(np.isfinite(ours).sum() - min(k, len(row)))
    assert min(kept) == 0
    assert bool(max(kept) > 0) is ties


def test_top_k_of_zero_is_off() -> None:
    """Zero keeps everything."""
    np.testing.assert_array_equal(kept_of(LOGITS, top_k=0), LOGITS)


def test_top_p_is_theirs() -> None:
    """Top-p keeps the same tokens."""
    dropped = 0
    for row in rows(200):
        for p in (1e-9, 0.1, 0.5, 0.9, 0.95, 0.999, 1.0):
            ours = kept_of(row, top_p=p)
            np.testing.assert_array_equal(ours, theirs(TopPLogitsWarper(p), row))
            dropped += np.isneginf(ours).sum()
    assert dropped > 1000


def test_top_p_is_theirs_with_ties() -> None:
    """Where tokens tie the same number of the same scores is kept, the highest ids of the last ones."""
    cut_through_a_tie = 0
    for row in rows(200, ties=True):
        for p in (0.1, 0.313, 0.5, 0.777, 0.95):
            ours = kept_of(row, top_p=p)
            np.testing.assert_array_equal(np.sort(ours), np.sort(theirs(TopPLogitsWarper(p), row)))
            kept = np.isfinite(ours)
            last = np.flatnonzero(row == row[kept].min())
            assert kept[row > row[kept].min()].all()
            np.testing.assert_array_equal(np.sort(kept[last]), kept[last])
            cut_through_a_tie += not kept[last].all()
    assert cut_through_a_tie > 100


@pytest.mark.parametrize("size", [2, 4, 8, 16, 32, 64])
def test_top_p_is_exact_where_probabilities_are(size: int) -> None:
    """Of n equal tokens, k reach a share of k/n, not k + 1."""
    for k in range(1, size):
        row = np.zeros(size)
        assert np.isfinite(kept_of(row, top_p=k / size)).sum() == k
        assert np.isfinite(theirs(TopPLogitsWarper(k / size), row)).sum() == k


@pytest.mark.parametrize("spread", [0.5, 3.0, 8.0])
@pytest.mark.parametrize("size", [4097, 50257])
def test_filters_of_a_large_vocabulary_are_theirs(size: int, spread: float) -> None:
    """The short ways through many scores keep what the long ones do."""
    rng = np.random.default_rng(size)
    rough = np.round(rng.normal(scale=spread, size=size), 1)  # many ties
    for row in (
        rng.normal(scale=spread, size=size),
        rough,
        np.where(rng.random(size) < 0.99, -np.inf, rough),
    ):
        for k in (1, 40, 700, 5000, size - 1):
            np.testing.assert_array_equal(kept_of(row, top_k=k), theirs(TopKLogitsWarper(k), row))
        for p in (0.05, 0.5, 0.9, 0.99):
            ours, others = kept_of(row, top_p=p), theirs(TopPLogitsWarper(p), row)
            np.testing.assert_array_equal(np.sort(ours), np.sort(others))


@pytest.mark.parametrize("ties", [False, True])
def test_min_p_is_theirs(ties: bool) -> None:
    """Min-p keeps the same tokens."""
    dropped = 0
    for row in rows(200, ties=ties):
        for p in (0.0, 1e-6, 0.02, 0.1, 0.5, 0.9, 1.0):
            ours = kept_of(row, min_p=p)
            np.testing.assert_array_equal(ours, theirs(MinPLogitsWarper(p), row))
            dropped += np.isneginf(ours).sum()
    assert dropped > 1000


@pytest.mark.parametrize("ties", [False, True])
def test_typical_p_is_theirs(ties: bool) -> None:
    """Typical-p keeps the same tokens, which need not be the likeliest."""
    dropped, without_best = 0, 0
    for row in rows(200, ties=ties):
        for p in (1e-6, 0.02, 0.2, 0.5, 0.9, 0.999):
            ours = kept_of(row, typical_p=p)
            np.testing.assert_array_equal(ours, theirs(TypicalLogitsWarper(p), row))
            dropped += np.isneginf(ours).sum()
            without_best += np.isneginf(ours[row.argmax()])
        np.testing.assert_array_equal(kept_of(row, typical_p=1.0), row)
    assert dropped > 1000
    assert without_best > 50


@pytest.mark.parametrize("temperature", [1e-4, 0.1, 0.7, 1.0, 1.5, 100.0])
def test_temperature_is_theirs(temperature: float) -> None:
    """The distribution is the softmax of the scores over the temperature."""
    for row in rows(50):
        want = torch.tensor(theirs(TemperatureLogitsWarper(temperature), row)).softmax(-1).numpy()
        np.testing.assert_allclose(
            distribution(row, replace(PLAIN, temperature=temperature)), want, rtol=1e-9, atol=1e-300
        )


@pytest.mark.parametrize("penalty", [0.01, 0.5, 0.99, 1.0, 1.01, 1.3, 100.0])
def test_repetition_penalty_is_theirs(penalty: float) -> None:
    """Tokens of the prompt and of the answer are penalised, once each, and away from zero."""
    rng = np.random.default_rng(1)
    for row in rows(100, ties=True) + rows(100):
        seen = [int(id) for id in rng.integers(0, len(row), size=9)]
        ours = adjust(row, replace(PLAIN, repetition_penalty=penalty), prompt=seen[:4], answer=seen[4:])
        np.testing.assert_allclose(
            ours, theirs(RepetitionPenaltyLogitsProcessor(penalty), row, seen), rtol=1e-15
        )


def test_logit_bias_is_theirs() -> None:
    """A bias is added to the scores of its tokens, and to no others."""
    rng = np.random.default_rng(2)
    for row in rows(200):
        row = row.astype(np.float32)
        chosen = rng.choice(len(row), size=min(5, len(row)), replace=False)
        bias = {int(id): float(rng.normal(scale=10)) for id in chosen}
        processor = SequenceBiasLogitsProcessor([[[id], value] for id, value in bias.items()])
        np.testing.assert_array_equal(
            adjust(row, replace(PLAIN, logit_bias=bias), prompt=[], answer=[]), theirs(processor, row)
        )


def test_presence_and_frequency_penalties_count_the_answer_alone() -> None:
    """Presence is subtracted once, frequency once per occurrence in the answer; the prompt does
    not count.
    """
    want = LOGITS.astype(np.float64)
    for id, times in ((3, 3), (5, 1), (10, 1), (0, 1)):
        want[id] -= 0.6 + 0.25 * times
    options = replace(PLAIN, presence_penalty=0.6, frequency_penalty=0.25)
    np.testing.assert_allclose(adjust(LOGITS, options, prompt=PROMPT, answer=ANSWER), want, rtol=1e-6)
    np.testing.assert_array_equal(adjust(LOGITS, options, prompt=PROMPT, answer=[]), LOGITS)
    lonely = adjust(LOGITS, replace(PLAIN, presence_penalty=-2.0), prompt=PROMPT, answer=[7])
    np.testing.assert_array_equal(np.flatnonzero(lonely != LOGITS), [7])
    assert lonely[7] == pytest.approx(LOGITS[7] + 2)


def test_no_function_changes_what_it_is_given() -> None:
    """The row that goes in stays as it is, and comes back as it is where nothing is asked for."""
    before = LOGITS.copy()
    options = Options(
        logit_bias={1: 5.0},
        repetition_penalty=2.0,
        presence_penalty=1.0,
        frequency_penalty=1.0,
        top_k=3,
        top_p=0.5,
        min_p=0.5,
    )
    changed = adjust(LOGITS, options, prompt=PROMPT, answer=ANSWER)
    distribution(LOGITS, options)
    log_softmax(LOGITS)
    np.testing.assert_array_equal(LOGITS, before)
    assert not np.array_equal(changed, before)
    np.testing.assert_array_equal(adjust(LOGITS, PLAIN, prompt=PROMPT, answer=ANSWER), before)


def test_log_softmax_is_exact() -> None:
    """Log-probabilities equal torch's in float64, also for scores far from zero and for tokens that are out."""
    for row in [*rows(50), np.array([1e4, -1e4, 0.0, -np.inf]), np.array([-800.0, -801.0], dtype=np.float32)]:
        want = torch.tensor(row, dtype=torch.float64).log_softmax(-1).numpy()
        got = log_softmax(row)
        assert got.dtype == np.float64
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)


def test_renormalized_scores_are_log_probabilities_again() -> None:
    """Also where the tokens that are left had nearly no share, or scores far above 0."""
    for row in [*rows(20), np.array([1e4, 0.0, -np.inf]), np.array([-np.inf, -150.0, -151.0])]:
        want = log_softmax(row)
        got = renormalize(row.astype(np.float32))
        assert got.dtype == np.float32
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=2e-6)


# All together, in their order.


def test_the_order_of_things_is_theirs() -> None:
    """Bias and penalty, temperature, top-k, top-p, min-p: the whole chain leaves the same probabilities."""
    rng = np.random.default_rng(3)
    for row in rows(300):
        seen = [int(id) for id in rng.integers(0, len(row), size=6)]
        bias = {int(rng.integers(len(row))): float(rng.normal(scale=3))}
        penalty, temperature = float(rng.uniform(0.5, 2)), float(rng.uniform(0.2, 2))
        k, p, low = int(rng.integers(1, 60)), float(rng.uniform(0.3, 1)), float(rng.uniform(0, 0.2))
        chain = LogitsProcessorList(
            [
                SequenceBiasLogitsProcessor([[[id], value] for id, value in bias.items()]),
                RepetitionPenaltyLogitsProcessor(penalty),
                TemperatureLogitsWarper(temperature),
                TopKLogitsWarper(k),
                TopPLogitsWarper(p),
                MinPLogitsWarper(low),
            ]
        )
        options = Options(
            logit_bias=bias, repetition_penalty=penalty, temperature=temperature, top_k=k, top_p=p, min_p=low
        )
        want = torch.tensor(theirs(chain, row, seen)).softmax(-1).numpy()
        # Their bias is a float32 number, whatever the scores are.
        np.testing.assert_allclose(
            distribution(adjust(row, options, prompt=seen[:3], answer=seen[3:]), options), want, rtol=1e-5
        )


def test_the_distribution_is_that_of_their_generate() -> None:
    """The scores from which `generate` draws its first token give our distribution, for every kind of
    setting.
    """
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=50, n_positions=16, n_embd=16, n_layer=1, n_head=2)).eval()
    with torch.no_grad():
        model.transformer.wte.weight.mul_(20)
    prompt = torch.tensor([[3, 1, 4, 1, 5]])
    raw = model(prompt).logits[0, -1].detach().numpy()
    settings: list[dict[str, Any]] = [
        {},
        {"temperature": 0.5},
        {"top_k": 7},
        {"top_p": 0.6},
        {"min_p": 0.3},
        {"typical_p": 0.4},
        {"repetition_penalty": 1.7},
        {"logit_bias": {2: 4.0, 49: -3.0}},
        {
            "temperature": 1.4,
            "top_k": 20,
            "top_p": 0.9,
            "min_p": 0.05,
            "typical_p": 0.8,
            "repetition_penalty": 0.8,
            "logit_bias": {4: 2.0},
        },
    ]
    for setting in settings:
        options = replace(PLAIN, **setting)
        kwargs = {name: value for name, value in setting.items() if name != "logit_bias"}
        if options.logit_bias:
            kwargs["sequence_bias"] = [[[id], value] for id, value in options.logit_bias.items()]
        out = model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            **{"do_sample": True, "top_k": 0, "max_new_tokens": 1, "pad_token_id": 0, "eos_token_id": None}
            | kwargs,
            return_dict_in_generate=True,
            output_scores=True,
        )
        want = out.scores[0][0].double().softmax(-1).numpy()
        got = distribution(adjust(raw, options, prompt=prompt[0].tolist(), answer=[]), options)
        np.testing.assert_array_equal(got > 0, want > 0)
        np.testing.assert_allclose(got, want, rtol=1e-4)


# The draw.


def exact(setting: Options) -> list[float]:
    """The probabilities of the tokens, worked out with nothing but the definitions."""
    scores = [float(x) for x in LOGITS]
    for id, bias in setting.logit_bias.items():
        scores[id] += bias
    for id in set(PROMPT + ANSWER):
        scores[id] = (
            scores[id] * setting.repetition_penalty
            if scores[id] < 0
            else scores[id] / setting.repetition_penalty
        )
    for id in set(ANSWER):
        scores[id] -= setting.presence_penalty + setting.frequency_penalty * ANSWER.count(id)
    weights = [math.exp(score / setting.temperature) for score in scores]
    if setting.top_k:
        least = sorted(weights, reverse=True)[: setting.top_k][-1]
        weights = [weight if weight >= least else 0.0 for weight in weights]
    together, kept = 0.0, []
    for id in sorted(range(len(weights)), key=lambda id: (-weights[id], -id)):
        if together < setting.top_p * sum(weights) or setting.top_p == 1:
            kept.append(id)
        together += weights[id]
    weights = [weight if id in kept else 0.0 for id, weight in enumerate(weights)]
    weights = [weight if weight >= setting.min_p * max(weights) else 0.0 for weight in weights]
    return [weight / sum(weights) for weight in weights]


SETTINGS: list[dict[str, Any]] = [
    *({"temperature": t} for t in (0.1, 0.3, 0.7, 1.0, 1.5, 4.0, 100.0)),
    *({"top_k": k} for k in (1, 2, 3, 4, 7, 11, 12, 50)),
    *({"top_p": p} for p in (0.01, 0.3, 0.5, 0.7, 0.9, 0.99)),
    *({"min_p": p} for p in (0.01, 0.1, 0.3, 0.6, 1.0)),
    *({"repetition_penalty": r} for r in (0.5, 1.2, 3.0)),
    *({"presence_penalty": p} for p in (-1.0, 0.8)),
    *({"frequency_penalty": f} for f in (-0.4, 0.5)),
    *({"logit_bias": b} for b in ({4: 3.0}, {0: -100.0, 10: -2.0}, {1: 1.0, 2: 0.5, 11: 2.5})),
    {"temperature": 0.6, "top_k": 6},
    {"temperature": 1.7, "top_p": 0.8},
    {"temperature": 0.8, "top_k": 8, "top_p": 0.85, "min_p": 0.05},
    {"repetition_penalty": 1.4, "presence_penalty": 0.3, "frequency_penalty": 0.2, "temperature": 0.9},
    {"logit_bias": {9: 4.0}, "repetition_penalty": 2.0, "top_k": 5, "min_p": 0.02},
    {
        "logit_bias": {8: 1.5},
        "repetition_penalty": 0.7,
        "presence_penalty": 0.5,
        "frequency_penalty": -0.1,
        "temperature": 1.3,
        "top_k": 9,
        "top_p": 0.95,
        "min_p": 0.08,
    },
]
LIMIT = 1e-4 / len(SETTINGS)  # Bonferroni


@pytest.fixture(scope="module")
def draw() -> Any:
    """The numbers behind the draws, each made once for all settings."""
    return functools.cache(uniform)


def frequencies(
    sampler: Callable[..., int],
    options: Options,
    monkeypatch: pytest.MonkeyPatch,
    draw: Any,
    *,
    draws: int = DRAWS,
) -> Array:
    """How often a sampler takes each token at many positions; only what stays the same is not computed again."""
    logits = adjust(LOGITS, options, prompt=PROMPT, answer=ANSWER)
    fixed = distribution(logits, options)
    monkeypatch.setattr(sampling, "distribution", lambda *_: fixed)
    monkeypatch.setattr(sampling, "uniform", draw)
    taken = [sampler(logits, options, choice=position % 3, position=position) for position in range(draws)]
    return np.bincount(taken, minlength=len(LOGITS))


def fits(counts: Array, probabilities: list[float]) -> bool:
    """Pearson's chi-square test; rare tokens share a bin, impossible ones must not occur at all."""
    expected = np.array(probabilities) * counts.sum()
    if len(counts) != len(expected) or counts[expected == 0].any():
        return False
    rare = (expected < 5) & (expected > 0)
    common = expected >= 5
    if rare.any():  # they join the smallest of the others
        smallest = int(np.where(common, expected, np.inf).argmin())
        expected[smallest] += expected[rare].sum()
        counts = counts.copy()
        counts[smallest] += counts[rare].sum()
    if common.sum() == 1:
        return True
    return bool(stats.chisquare(counts[common], expected[common]).pvalue > LIMIT)


def test_there_are_forty_settings() -> None:
    """Enough of them, and no two alike."""
    assert len(SETTINGS) >= 40
    assert len({str(setting) for setting in SETTINGS}) == len(SETTINGS)


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_draws_follow_the_exact_distribution(
    setting: dict[str, Any], monkeypatch: pytest.MonkeyPatch, draw: Any
) -> None:
    """The tokens are distributed as the definitions of the settings require."""
    options = replace(PLAIN, seed=11, **setting)
    want = exact(options)
    np.testing.assert_allclose(
        distribution(adjust(LOGITS, options, prompt=PROMPT, answer=ANSWER), options),
        want,
        rtol=1e-5,
        atol=1e-12,
    )
    counts = frequencies(choose, options, monkeypatch, draw)
    assert counts.sum() == DRAWS
    assert fits(counts, want)


@pytest.mark.slow
@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_many_draws_follow_the_exact_distribution(
    setting: dict[str, Any], monkeypatch: pytest.MonkeyPatch, draw: Any
) -> None:
    """A hundred thousand draws of every setting."""
    options = replace(PLAIN, seed=12, **setting)
    assert fits(frequencies(choose, options, monkeypatch, draw, draws=100_000), exact(options))


def _colder(logits: Array, options: Options, *, choice: int, position: int) -> int:
    """A wrong sampler: its temperature is a tenth too low."""
    weights = sampling.distribution(logits, options) ** (1 / 0.9)
    return int(
        np.searchsorted(
            weights.cumsum() / weights.sum(), sampling.uniform(options.seed, choice, position), side="right"
        )
    )


def _leaky(logits: Array, options: Options, *, choice: int, position: int) -> int:
    """A wrong sampler: once in a thousand it takes the token that was filtered out."""
    return 9 if position % 1000 == 500 else choose(logits, options, choice=choice, position=position)


def _shifted(logits: Array, options: Options, *, choice: int, position: int) -> int:
    """A wrong sampler: it never takes the last of the tokens."""
    return min(choose(logits, options, choice=choice, position=position), 10)


def _stuck(logits: Array, options: Options, *, choice: int, position: int) -> int:
    """A wrong sampler: it draws once for forty positions."""
    return choose(logits, options, choice=choice % 2, position=position // 40)


@pytest.mark.parametrize("wrong", [_colder, _leaky, _shifted, _stuck])
def test_the_check_rejects_wrong_samplers(
    wrong: Callable[..., int], monkeypatch: pytest.MonkeyPatch, draw: Any
) -> None:
    """What the check accepts of the right sampler it rejects of one that is a little wrong."""
    options = replace(PLAIN, seed=11, top_k=11)
    counts = frequencies(wrong, options, monkeypatch, draw)
    assert not fits(counts, exact(options))


@pytest.mark.parametrize("draw", [0.0, 2.0**-53, 0.5, 1.0 - 2.0**-53])
def test_no_draw_takes_an_impossible_token(draw: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """The smallest and the largest draw choose a token with a probability, wherever the impossible ones
    are.
    """
    monkeypatch.setattr(sampling, "uniform", lambda *_, **__: draw)
    for size in (3, 7, 100, 50_257):
        rng = np.random.default_rng(size)
        for _ in range(5):
            logits = rng.normal(size=size).astype(np.float32)
            logits[rng.permutation(size - 1)[: size // 2]] = -np.inf
            logits[[0, -1]] = -np.inf
            logits[size // 2] = 0.0
            possible = np.flatnonzero(np.isfinite(logits))
            token = choose(logits, PLAIN, choice=0, position=0)
            assert token in possible
            if draw in (0.0, 1.0 - 2.0**-53):
                assert token == possible[0 if draw == 0.0 else -1]


@pytest.mark.parametrize(
    "options",
    [
        Options(temperature=1e-4, top_k=0),
        Options(temperature=100.0, top_p=1e-12),
        Options(min_p=1.0),
        Options(repetition_penalty=100.0, presence_penalty=100.0, frequency_penalty=100.0),
        Options(repetition_penalty=0.01, presence_penalty=-100.0, frequency_penalty=-100.0),
        Options(logit_bias=dict.fromkeys(range(12), -100.0)),
        Options(logit_bias={0: 100, 11: -100}, seed=2**64 - 1),
        Options(top_k=2**31),
    ],
)
def test_extreme_settings_still_choose(options: Options) -> None:
    """The ends of every allowed range choose a token, without a warning, also from scores far from zero."""
    for scale in (0.0, 1.0, 100.0, 1e4):
        row = LOGITS * np.float32(scale)
        scores = adjust(row, options, prompt=PROMPT, answer=ANSWER)
        assert np.isfinite(scores).all()
        assert distribution(scores, options).sum() == pytest.approx(1.0, abs=1e-12)
        for position in range(20):
            token = choose(scores, options, choice=255, position=position)
            assert 0 <= token < len(row)
            assert distribution(scores, options)[token] > 0


# No draw at all.


@pytest.mark.parametrize("greedy", [{"temperature": 0.0}, {"temperature": 0}, {"do_sample": False}])
def test_greedy_takes_the_likeliest_and_the_lowest_of_equals(greedy: dict[str, Any]) -> None:
    """Temperature 0 is argmax, whatever the filters and the seed are."""
    options = Options(**greedy)
    assert options.greedy
    for row in rows(200, ties=True):
        want = min(id for id, score in enumerate(row) if score == max(row))
        for seed in range(3):
            assert choose(row, replace(options, seed=seed), choice=seed, position=seed) == want
    assert not Options().greedy
    assert not Options(temperature=1e-4).greedy


def test_a_low_temperature_tends_to_greedy() -> None:
    """The lowest temperature that divides takes the likeliest token where it is alone."""
    for row in rows(50):
        if np.diff(np.sort(row)[-2:])[0] > 0.01:
            assert choose(row, Options(temperature=1e-4), choice=0, position=1) == row.argmax()


# The numbers behind the draws.

GOLDEN = {
    (0, 0, 0): "0x1.7a5d3204726c0p-7",
    (0, 0, 1): "0x1.0137e64510730p-1",
    (0, 1, 0): "0x1.a06ff187f343ap-1",
    (1, 0, 0): "0x1.36da89edd58a0p-2",
    (42, 0, 17): "0x1.c6a2a1164710ap-2",
    (1234567890123456789, 3, 1023): "0x1.41817ce80470ep-1",
    (2**64 - 1, 255, 10**6): "0x1.45178b8412c44p-1",
}


@pytest.mark.parametrize("key", GOLDEN)
def test_draws_never_change_between_versions(key: tuple[int, int, int]) -> None:
    """A seed means the same text in every version."""
    assert uniform(*key).hex() == GOLDEN[key]


def test_draws_are_uniform() -> None:
    """Numbers in [0, 1), spread evenly over positions, over choices and over seeds."""
    series = {
        "position": [uniform(5, 1, i) for i in range(8000)],
        "choice": [uniform(5, i % 256, 3 + i // 256) for i in range(8000)],
        "seed": [uniform(i, 0, 0) for i in range(8000)],
    }
    for name, values in series.items():
        assert 0.0 <= min(values) < 0.01, name
        assert 0.99 < max(values) < 1.0, name
        assert stats.kstest(values, "uniform").pvalue > 1e-4, name
        assert abs(np.corrcoef(values[:-1], values[1:])[0, 1]) < 0.05, name
    biased = [value**1.1 for value in series["position"]]
    assert stats.kstest(biased, "uniform").pvalue < 1e-4


def test_draws_do_not_depend_on_the_order_of_calls() -> None:
    """A draw is the same whichever came before it."""
    keys = [(seed, choice, position) for seed in (0, 1, 9) for choice in range(4) for position in range(40)]
    forwards = {key: uniform(*key) for key in keys}
    backwards = {key: uniform(*key) for key in reversed(keys)}
    assert forwards == backwards
    assert len(set(forwards.values())) == len(keys)


def test_draws_differ_in_all_three_keys() -> None:
    """Swapping two keys, or moving one by one, gives another number."""
    base = uniform(7, 3, 5)
    others = [
        uniform(*key)
        for key in ((8, 3, 5), (7, 4, 5), (7, 3, 6), (3, 7, 5), (5, 3, 7), (7, 5, 3), (2**63 + 7, 3, 5))
    ]
    assert base not in others
    assert len(set(others)) == len(others)
    assert uniform(7, 3, 5) == base


@pytest.mark.parametrize("seed", range(60))
def test_top_p_keeps_what_a_stable_sort_keeps(seed: int) -> None:
    """Also among equals, of which the first ones go; for few tokens, many, and some that are impossible."""
    draw = np.random.default_rng(seed)
    size = int(draw.integers(1, 60)) if seed % 10 else 9000
    logits = np.round(draw.standard_normal(size) * draw.choice([0.1, 1, 5]), int(draw.integers(0, 3)))
    logits[1:][draw.random(size - 1) < 0.1] = -np.inf
    weights = sampling.warm(logits, 1.0)
    for p in (1e-9, 0.1, 0.5, 0.9, 0.999):
        order = np.argsort(weights, kind="stable")
        left = 1.0 - np.cumsum(weights[order])[:-1] / weights.sum()
        kept = np.ones(size, dtype=bool)
        kept[order[:-1][left >= p]] = False
        ids, found = sampling.keep_top_p(np.arange(size), weights, p=p)
        assert len(ids) == pytest.approx(kept.sum(), abs=1)  # sums that end at p itself may round either way
        if len(ids) == kept.sum():
            assert ids.tolist() == np.flatnonzero(kept).tolist()
            assert found.tolist() == weights[kept].tolist()
