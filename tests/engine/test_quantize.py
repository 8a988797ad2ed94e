"""What the quantizer refuses: configurations that the core cannot run, parameters that do not fit them."""

import math
from typing import Any

import numpy as np
import pytest

from engine.boundary import CONFIG, weights_of
from glassformer.engine.quantize import MOST_INPUTS, check_config, expected, pack
from glassformer.errors import InputError

HUGE = 2**31


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"heads": 0}, "heads must be between 1 and"),
        ({"heads": 5}, "width 48 cannot be split into 5 heads"),
        ({"heads": True}, "heads must be an integer, not bool"),
        ({"layers": "2"}, "layers must be an integer, not str"),
        ({"layers": None}, "layers must be an integer, not NoneType"),
        ({"layers": 10**9}, "layers must be between 1 and 10000"),
        ({"width": 48.0}, "width must be an integer, not float"),
        ({"width": MOST_INPUTS + 1, "heads": 1}, f"width must be between 1 and {MOST_INPUTS}"),
        ({"neurons": -1}, "neurons must be between 1 and"),
        ({"vocab": 0}, "vocab must be between 1 and"),
        ({"vocab": HUGE}, "vocab must be between 1 and"),
        ({"context": 0}, "context must be between 1 and"),
        ({"context": 2**70}, "context must be between 1 and"),
        ({"head_width": 15}, "head_width must be width / heads = 16"),
        ({"activation": "swish"}, "activation must be one of gelu_tanh, gelu_erf, relu, not 'swish'"),
        ({"activation": ["relu"]}, "activation must be one of"),
        ({"norm_eps": math.nan}, "norm_eps must be a number between 0 and 1, not nan"),
        ({"norm_eps": 0.0}, "norm_eps must be"),
        ({"norm_eps": -1e-5}, "norm_eps must be"),
        ({"norm_eps": 1e-60}, "norm_eps must be"),  # 0 in float32
        ({"norm_eps": "1e-5"}, "norm_eps must be"),
        ({"tied": 1}, "tied must be true or false"),
        ({"bias": None}, "bias must be true or false"),
    ],
)
def test_a_configuration_that_the_core_cannot_run(change: dict[str, Any], message: str) -> None:
    """Refused by its field, wherever a configuration enters."""
    check_config(CONFIG)
    for enter in (check_config, expected, lambda config: pack(config, weights_of(CONFIG))):
        with pytest.raises(InputError, match=message):
            enter(CONFIG | change)


def test_every_field_is_needed() -> None:
    """One that is missing is named; another one more is not the core's affair."""
    check_config(CONFIG | {"dropout": 0.1, "head_width": 16})
    for name in CONFIG:
        with pytest.raises(InputError, match=name):
            check_config({key: value for key, value in CONFIG.items() if key != name})
    with pytest.raises(InputError, match="must be a mapping, not list"):
        check_config([1])  # type: ignore[arg-type]


def test_sums_of_the_most_inputs_fit_in_32_bits() -> None:
    """The largest sum of the AVX2 version, 128 × the sum of the activations, and not one input more."""
    assert MOST_INPUTS * 127 * 128 < 2**31 <= (MOST_INPUTS + 1) * 127 * 128


@pytest.mark.parametrize(
    "name", ["tokens.weight", "blocks.1.mlp.up.weight", "blocks.0.attn.qkv.bias", "norm.bias"]
)
def test_parameters_that_do_not_fit(name: str) -> None:
    """Missing, of another shape or type, not finite: refused by their name."""
    weights = weights_of(CONFIG)
    pack(CONFIG, weights)
    with pytest.raises(InputError, match=f"{name} is missing"):
        pack(CONFIG, {key: value for key, value in weights.items() if key != name})
    for other in (weights[name][:-1], weights[name][None], weights[name].astype(np.int32), [1.0], None):
        with pytest.raises(InputError, match=f"{name} must be an array of floats of shape"):
            pack(CONFIG, weights | {name: other})
    for number in (np.nan, np.inf, -np.inf):
        broken = weights[name].copy()
        broken.flat[-1] = number
        with pytest.raises(InputError, match=f"{name} has numbers that are NaN or infinite"):
            pack(CONFIG, weights | {name: broken})
