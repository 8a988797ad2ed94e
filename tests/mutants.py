"""A model's file with one line broken: what a check must notice."""

import types
from pathlib import Path

import glassformer

SOURCE = Path(glassformer.__file__).parent


def mutated(model: str, file: str, *, old: str, new: str) -> types.ModuleType:
    """The module `model` (a path such as "models/gpt.py") with one line changed, in it or in a file that it uses."""
    changed = _executed(file, old, new)
    if file == model:
        return changed
    module = _executed(model)
    own = {name: value for name, value in vars(changed).items() if _is_of(value, file)}
    module.__dict__.update({name: value for name, value in own.items() if name in vars(module)})
    return module


def _executed(file: str, old: str = "", new: str = "") -> types.ModuleType:
    source = (SOURCE / file).read_text()
    if old:
        assert source.count(old) == 1, f"{old!r} is {source.count(old)} times in {file}"
        source = source.replace(old, new)
    module = types.ModuleType(_dotted(file))  # the real name: dataclasses look their module up
    exec(compile(source, file, "exec"), module.__dict__)
    return module


def _is_of(value: object, file: str) -> bool:
    """Whether a file defines it, or holds it in a table of what it defines."""
    inside = list(value.values()) if isinstance(value, dict) else [value]
    return any(getattr(one, "__module__", "") == _dotted(file) for one in inside)


def _dotted(file: str) -> str:
    return "glassformer." + file.removesuffix(".py").replace("/", ".")
