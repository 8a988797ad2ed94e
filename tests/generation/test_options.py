"""Every knob refuses what it cannot mean, by its name, and takes both ends of what it can."""

import math
from dataclasses import FrozenInstanceError, fields
from typing import Any

import pytest

from glassformer.errors import GlassError, InputError
from glassformer.generation.options import MAX_CHOICES, MAX_DRAFT, Options

NAN, INF = math.nan, math.inf

BAD: list[tuple[str, Any]] = [
    *(
        ("max_new_tokens", value)
        for value in (-1, 10**9, 1_000_001, 1.5, 20.0, True, None, "20", NAN, INF, [20])
    ),
    *(("min_new_tokens", value) for value in (-1, 10**9, 1_000_001, 0.5, False, None, "1")),
    *(("top_k", value) for value in (-1, 2**31 + 1, 2**63, 1.5, 40.0, True, None, "40", NAN)),
    *(("seed", value) for value in (-1, 2**64, 10**30, 0.5, 1e3, True, None, "7", NAN, INF)),
    *(("num_return_sequences", value) for value in (0, -1, 10**6, MAX_CHOICES + 1, 1.0, True, None, "1")),
    *(("num_beams", value) for value in (0, -1, 10**6, MAX_CHOICES + 1, 2.0, True, None, "2")),
    *(("temperature", value) for value in (-1, -1e-9, NAN, INF, -INF, 1e308, 100.1, 1e-320, 9.9e-5, 10**400)),
    *(("temperature", value) for value in (True, None, "1", 1j, [1.0])),
    *(("top_p", value) for value in (0, 0.0, -0.0, -0.1, 2, 1.0000001, NAN, INF, True, None, "0.9")),
    *(("typical_p", value) for value in (0, -0.1, 1.0000001, 2, NAN, INF, False, None, "0.1")),
    *(("min_p", value) for value in (-0.1, -1e-12, 1.0000001, 2, NAN, INF, False, None, "0.1")),
    *(("repetition_penalty", value) for value in (0, 0.0, -1.0, 100.1, NAN, INF, 1e308, True, None, "1.1")),
    *(("repetition_penalty", value) for value in (1e-320, 1e-40)),  # nothing can be divided by these
    *(("presence_penalty", value) for value in (-100.1, 100.1, NAN, INF, -INF, True, None, "0")),
    *(("frequency_penalty", value) for value in (-100.1, 100.1, NAN, INF, -INF, 10**400, False, None, "0")),
    *(("length_penalty", value) for value in (-100.1, 100.1, NAN, INF, -INF, True, None, "1")),
    *(("logit_bias", {id: 1.0}) for id in (-1, 1.5, "5", None, True, (1,), 2.0)),
    *(("logit_bias", {5: bias}) for bias in (NAN, INF, -INF, 1e308, -1e308, 10**400, None, "1", True, [1.0])),
    *(("logit_bias", value) for value in (None, 5, [1.0], [(5, 1.0)], "5", {5})),
    *(("do_sample", value) for value in (None, 0, 1, "no", "false", [])),
    *(
        ("bad_words_ids", value)
        for value in (None, 5, "5", [5], [[]], [[1.5]], [[-1]], [[True]], {5: 1}, ["ab"])
    ),
    *(("forced_eos_token_id", value) for value in (-1, 1.5, True, "0", [0])),
    *(("renormalize_logits", value) for value in (None, 0, 1, "no", [])),
    *(("early_stopping", value) for value in (None, 0, 1, 2, "always", "True", "", [], 1.0)),
    *(("prompt_lookup_num_tokens", value) for value in (-1, MAX_DRAFT + 1, 2.0, True, None, "7")),
    *(("overflow", value) for value in (None, True, "", "Slide", "truncate", [], 0)),
]


def shown(value: Any) -> str:
    """A short name for a case."""
    return str(value)[:24]


def test_there_are_eighty_cases_and_no_field_is_missing() -> None:
    """Every field has bad values to refuse and good ones to take."""
    assert len(BAD) >= 80
    assert {name for name, _ in BAD} == {field.name for field in fields(Options)}
    assert {name for name, _ in GOOD} == {field.name for field in fields(Options)}


@pytest.mark.parametrize(("name", "value"), BAD, ids=shown)
def test_bad_values_are_refused_by_name(name: str, value: Any) -> None:
    """A bad value is an input error, and its message begins with the field."""
    with pytest.raises(InputError) as caught:
        Options(**{name: value})
    assert str(caught.value).startswith(name)
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, GlassError)
    assert caught.value.code == 2


GOOD: list[tuple[str, Any]] = [
    *(("max_new_tokens", value) for value in (0, 1, 1_000_000)),
    *(("min_new_tokens", value) for value in (0, 1, 1_000_000)),
    *(("do_sample", value) for value in (True, False)),
    *(("temperature", value) for value in (0, 0.0, 1e-4, 1, 100, 100.0)),
    *(("top_k", value) for value in (0, 1, 2**31)),
    *(("top_p", value) for value in (1e-320, 1e-9, 0.5, 1, 1.0)),
    *(("typical_p", value) for value in (1e-320, 0.5, 1, 1.0)),
    *(("min_p", value) for value in (0, 0.0, 1e-320, 0.5, 1, 1.0)),
    *(("repetition_penalty", value) for value in (0.01, 0.5, 1, 1.0, 100, 100.0)),
    *(("presence_penalty", value) for value in (-100, -100.0, 0, 100.0, 100)),
    *(("frequency_penalty", value) for value in (-100, -100.0, 0, 100.0, 100)),
    *(("logit_bias", value) for value in ({}, {0: 0}, {0: -100.0, 1: 100.0}, {50256: 1, 2**40: -1.5})),
    *(("bad_words_ids", value) for value in ((), [], [[0]], ((5, 7), [2**40]))),
    *(("forced_eos_token_id", value) for value in (None, 0, 2**40)),
    *(("renormalize_logits", value) for value in (True, False)),
    *(("seed", value) for value in (0, 1, 2**63, 2**64 - 1)),
    *(("num_return_sequences", value) for value in (1, 2, MAX_CHOICES)),
    *(("num_beams", value) for value in (1, 2, MAX_CHOICES)),
    *(("length_penalty", value) for value in (-10, -1.0, 0, 0.0, 10.0)),
    *(("early_stopping", value) for value in (True, False, "never")),
    *(("prompt_lookup_num_tokens", value) for value in (0, 1, MAX_DRAFT)),
    *(("overflow", value) for value in ("stop", "slide")),
]


@pytest.mark.parametrize(("name", "value"), GOOD, ids=shown)
def test_good_values_are_taken_as_they_are(name: str, value: Any) -> None:
    """Both ends of every range, and what lies between, are taken unchanged."""
    assert getattr(Options(**{name: value}), name) is value


def test_the_defaults_are_good() -> None:
    """Nothing given is fine, and what is given by name alone cannot be given by place or changed later."""
    options = Options()
    assert (options.max_new_tokens, options.temperature, options.top_k, options.seed) == (384, 0.7, 40, 0)
    with pytest.raises(FrozenInstanceError):
        options.seed = 1  # type: ignore[misc]
    with pytest.raises(TypeError):
        Options(256)  # type: ignore[misc]


def test_more_answers_than_beams_are_refused() -> None:
    """Beam search has no more answers than beams; without it any number will do."""
    with pytest.raises(InputError, match=r"^num_return_sequences \(3\) is more than num_beams \(2\)"):
        Options(num_beams=2, num_return_sequences=3)
    assert Options(num_beams=3, num_return_sequences=3).num_beams == 3
    assert Options(num_beams=1, num_return_sequences=3).num_return_sequences == 3
