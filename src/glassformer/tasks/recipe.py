"""Recipes: everything that decides a training, as a dataclass, as a small TOML file, and as flags. No torch here."""

import dataclasses
import tomllib
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, get_type_hints

from glassformer.errors import InputError
from glassformer.training.plan import Plan, Watch, option

Strings = tuple[str, ...]
Numbers = tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Text:
    """What to learn from."""

    data: Strings = option(
        (),
        "Text, .jsonl (a `text`, or a `prompt` and a `completion` a line), both also .gz or .zst, or folders.",
    )
    weights: Numbers = option((), "How much of each in the mix; none: by their size.")
    field: str = option("text", "The key under which a line of JSON has its text.")
    held_out: float = option(
        0.05, "Share of the documents to hold out for measuring (of a single text: its end)."
    )
    aligned: bool = option(False, "Begin rows where documents begin; only those longer than a row are cut.")
    tokenizer: str = option("", "A model whose vocabulary to use; none: learn a new one from the text.")
    vocab: int = option(2048, "Size of a new vocabulary; 257 is one token a byte.")


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The model to begin with: a shape, or a model that is there."""

    base: str = option("", "A model to go on from (then the shape is its own); none: a new one.")
    layers: int = option(4, "Blocks.")
    heads: int = option(4, "Attention heads a block.")
    width: int = option(128, "Numbers a token is made of, inside.")
    context: int = option(256, "Tokens it can look back on.")
    dropout: float = option(0.0, "Share of the values that training forgets at random.")
    bias: bool = option(True, "Biases, as GPT-2 has them.")
    freeze: Strings = option((), "Parts to leave as they are, as tokens or blocks.0.*.")


@dataclass(frozen=True, kw_only=True)
class Lora:
    """Learn two thin matrices beside each chosen one, instead of all of them."""

    rank: int = option(0, "Their rank; 0: no LoRA, train everything.")
    alpha: float = option(16.0, "Their weight is alpha / rank.")
    lora_dropout: float = option(0.0, "Dropout before them.")
    targets: Strings = option(
        ("attn.qkv",), "The layers: attn.qkv, attn.proj, mlp.up, mlp.down, or a glob of whole names."
    )


@dataclass(frozen=True, kw_only=True)
class Show:
    """What to show on the way."""

    preview: str = option("", "Write on from this at every measurement.")
    preview_tokens: int = option(60, "So many tokens; 0: no preview.")
    tensorboard: bool = option(True, "Also write TensorBoard files, if it is installed.")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A whole training. Every key of every section has a name of its own, so each is also a flag."""

    about: str = ""
    text: Text = field(default_factory=Text)
    model: Shape = field(default_factory=Shape)
    lora: Lora = field(default_factory=Lora)
    train: Plan = field(default_factory=Plan)
    watch: Watch = field(default_factory=Watch)
    show: Show = field(default_factory=Show)

    @classmethod
    def read(cls, path: Path) -> "Recipe":
        """A recipe from its file."""
        try:
            values = tomllib.loads(path.read_bytes().decode("utf-8"))
        except OSError as error:
            raise InputError(f"{path}: cannot be read ({error.strerror})") from None
        except (
            ValueError,
            RecursionError,
        ) as error:  # syntax, encoding, a number of 5000 digits; lists without end
            reason = "nested too deeply" if isinstance(error, RecursionError) else error
            raise InputError(f"{path}: not a TOML file ({reason})") from None
        return cls.of(values, str(path))

    @classmethod
    def of(cls, values: dict[str, Any], where: str = "the recipe") -> "Recipe":
        """A recipe from plain data; an unknown key or a value of another kind is an error."""
        sections = {}
        for name, given in values.items():
            if name == "about":
                sections[name] = _checked(given, str, f"{where}: about")
                continue
            if name not in SECTIONS or not isinstance(given, dict):
                raise InputError(f"{where}: unknown section {name!r}; there are {', '.join(SECTIONS)}")
            known = hints(SECTIONS[name])
            unknown = next((key for key in given if key not in known), None)
            if unknown is not None:
                home = next((other for other, kind in SECTIONS.items() if unknown in hints(kind)), None)
                hint = f"it belongs into [{home}]" if home else f"there are {', '.join(known)}"
                raise InputError(f"{where}: unknown key {unknown!r} in [{name}]; {hint}")
            kwargs = {key: _checked(value, known[key], f"{where}: {key}") for key, value in given.items()}
            try:
                sections[name] = SECTIONS[name](**kwargs)
            except InputError as error:
                raise InputError(f"{where}: {error}") from None
        return cls(**sections)

    def changed(self, **flags: Any) -> "Recipe":
        """The recipe with some keys changed, whichever section they are in."""
        sections: dict[str, Any] = {}
        for key, value in flags.items():
            home = next((name for name, kind in SECTIONS.items() if key in hints(kind)), None)
            if home is None:
                raise InputError(f"unknown key {key!r}")
            sections.setdefault(home, {})[key] = _checked(value, hints(SECTIONS[home])[key], key)
        return dataclasses.replace(
            self, **{name: dataclasses.replace(getattr(self, name), **v) for name, v in sections.items()}
        )

    def to_toml(self) -> str:
        """The file of a recipe: what is not as usual, all of it readable."""
        lines = [f"about = {_toml(self.about)}"] if self.about else []
        for name, kind in SECTIONS.items():
            section, usual = getattr(self, name), kind()
            changed = [
                one.name for one in fields(kind) if getattr(section, one.name) != getattr(usual, one.name)
            ]
            if changed:
                lines += [f"\n[{name}]"] + [f"{key} = {_toml(getattr(section, key))}" for key in changed]
        return "\n".join(lines).strip() + "\n"

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """Every key of every section."""
        return {name: dataclasses.asdict(getattr(self, name)) for name in SECTIONS}


SECTIONS: dict[str, Any] = {
    "text": Text,
    "model": Shape,
    "lora": Lora,
    "train": Plan,
    "watch": Watch,
    "show": Show,
}


def hints(kind: Any) -> dict[str, Any]:
    """The keys of a section, and what each is."""
    return get_type_hints(kind)


def _checked(value: Any, kind: Any, where: str) -> Any:
    """A value as the dataclass wants it; 1 is also a number with a fraction, a list is also a tuple."""
    if kind in (Strings, Numbers):
        item = str if kind == Strings else float
        if isinstance(value, str) or not isinstance(value, list | tuple):
            raise InputError(f"{where} should be a list, not {value!r}")
        return tuple(_checked(one, item, where) for one in value)
    if kind is float and type(value) is int and abs(value) < 1 << 1000:
        return float(value)
    if type(value) is not kind:
        names = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}
        raise InputError(f"{where} should be {names[kind]}, not {value!r}")
    return value


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, str):
        escaped = "".join(c if c.isprintable() and c not in '"\\' else f"\\U{ord(c):08x}" for c in value)
        return f'"{escaped}"'
    return repr(value)
