"""Fields of a `config.json` from a stranger: each is checked, and an error names the file and the field."""

import math
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from glassformer.errors import CheckpointError, InputError


def read_count(theirs: Mapping[str, Any], key: str, *, path: Path, instead: str = "") -> int:
    """A whole number of at least 1; `instead` is an older name of the field."""
    value = theirs.get(key, theirs.get(instead))
    if type(value) is not int or not 1 <= value < 1 << 40:
        shown = "missing" if value is None else f"{str(value)[:40]}, which is no sensible count"
        raise CheckpointError(f"{path}: {key} is {shown}")
    return value


def read_fraction(theirs: Mapping[str, Any], key: str, *, path: Path, default: float) -> float:
    """A number between 0 and 1."""
    value = theirs.get(key, default)
    if type(value) not in (int, float) or not (0 < value < 1 and math.isfinite(value)):
        raise CheckpointError(f"{path}: {key} must be a number between 0 and 1")
    return float(value)


def read_switch(theirs: Mapping[str, Any], key: str, *, path: Path, default: bool) -> bool:
    """True or false."""
    value = theirs.get(key, default)
    if not isinstance(value, bool):
        raise CheckpointError(f"{path}: {key} must be true or false")
    return value


def read_choice(
    theirs: Mapping[str, Any], key: str, *, path: Path, choices: Mapping[str, str], default: str
) -> str:
    """Our word for one of their words."""
    value = theirs.get(key, default)
    if not isinstance(value, str) or value not in choices:
        raise CheckpointError(f"{path}: {key} {str(value)[:40]!r} is none of {', '.join(choices)}")
    return choices[value]


def make_config(config: type[Any], values: Mapping[str, Any], *, path: Path) -> Any:
    """A configuration of ours; what it refuses is reported with the file's name."""
    try:
        return config(**values)
    except InputError as error:
        raise CheckpointError(f"{path}: {error}") from None


OF_TRAINING = {"attention_dropout"}  # says nothing of what a model computes; older folders lack it


def read_fields(config: type[Any], theirs: Mapping[str, Any], *, path: Path) -> Any:
    """A configuration of ours from a `config.json` of our own form: its keys are the fields."""
    values: dict[str, Any] = {}
    for one in fields(config):
        if one.name in OF_TRAINING:
            continue
        value = theirs.get(one.name)
        if type(one.default) is tuple and isinstance(value, list):
            value = tuple(value) if all(type(name) is str for name in value) else value
        if type(value) is not type(one.default):
            wanted = type(one.default).__name__
            shown = "missing" if value is None else f"{str(value)[:40]!r}, which is no {wanted}"
            raise CheckpointError(f"{path}: {one.name} is {shown}")
        values[one.name] = value
    return make_config(config, values, path=path)
