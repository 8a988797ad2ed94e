"""Recipes: everything that decides a training, as a dataclass, a TOML file, and flags. No torch here."""

import dataclasses
import math
import tomllib
from collections.abc import Collection
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from types import NoneType
from typing import Any, ClassVar, Protocol, get_args, get_type_hints

from glassformer.errors import InputError
from glassformer.files import MEGABYTE, read_bytes
from glassformer.hub.families import FAMILIES, family, with_head
from glassformer.training.hyperparameters import DecoderInputs, EvalSchedule, Hyperparameters, option

Strings = tuple[str, ...]
Numbers = tuple[float, ...]

DEFAULT_KIND = "gpt2"
# How a head and its decoder are trained: gently, by passes over the examples instead of steps.
HEAD_DEFAULTS: dict[str, Any] = {
    "epochs": 3.0,
    "batch": 32,
    "lr": 3e-4,
    "lr_end": 0.0,
    "warmup": 20,
    "schedule": "linear",
    "weight_decay": 0.01,
    "dropout": 0.1,
}
LARGEST = 1 << 63  # of a whole number
# Fields of a family's Config that no recipe sets: the tokenizer or the other fields decide them.
NOT_KEYS = {"vocab", "neurons", "activation", "norm_eps", "tied", "source_vocab", "pad", "start"}
NOT_KEYS |= {"layout", "scaled", "head_bias", "labels"}


# What sections of [text] that have pairs say of their keys.
PAIRS = "One file of pairs (.tsv, or .jsonl with source and target), or two files, line by line; also .gz."
VALIDATION = "The pairs to evaluate on, in the same form; none: some are held out."
HELD_OUT = "Share of the pairs to hold out for evaluation, such that no sentence is on both sides."

# What a decoder can be trained for. From pairs it learns to go on behind a tag; examples give it a head.
PAIR_TASKS = ("translate", "summarize")
HEAD_TASKS = ("classify", "entail", "similar", "choose")  # as in models/classifier.py, which imports torch
TASK = f"{' or '.join(PAIR_TASKS)}, from pairs; {', '.join(HEAD_TASKS)}, from examples with labels"


@dataclass(frozen=True, kw_only=True)
class Text:
    """What to learn from."""

    data: Strings = option(
        (),
        "Text, .jsonl (a `text`, or `prompt` and `completion` a line), .csv or .tsv (a column), all also"
        " .gz or .zst, or folders; may be given several times.",
    )
    validation: Strings = option((), "Texts to evaluate on, in the same form; none: some are held out.")
    weights: Numbers = option((), "How much of each in the mix; none: by their size.")
    field: str = option(
        "text", "The key of a line of JSON, or the column of a .csv or .tsv file, that has the text."
    )
    held_out: float = option(
        0.05, "Share of the documents to hold out for evaluation (of a single text: its end)."
    )
    aligned: bool = option(False, "Begin rows where documents begin; only those longer than a row are cut.")
    tokenizer: str = option("", "A model whose vocabulary to use; none: learn a new one from the text.")
    vocab: int = option(2048, "Size of a new vocabulary; 257 is one token a byte.")
    task: str = option("", f"{TASK}; none: continue a text.")

    def __post_init__(self) -> None:
        _check_task(self.task, ("",))


@dataclass(frozen=True, kw_only=True)
class PairedText:
    """What to learn from: sentences and their translations, or other texts that belong together."""

    data: Strings = option((), PAIRS)
    validation: Strings = option((), VALIDATION)
    held_out: float = option(0.02, HELD_OUT)
    languages: Strings = option(
        (), "The languages of source and target, such as de, en: a tag before the source says the direction."
    )
    both_ways: bool = option(False, "Learn both directions; needs languages.")
    longest: int = option(
        100, "Tokens of a source or a target, above which a pair is left out of the training."
    )
    cut: bool = option(False, "Cut what is longer, instead of leaving its pair out.")
    tokenizer: str = option("", "A model whose vocabulary to use; none: learn a new one from the pairs.")
    vocab: int = option(8000, "Size of a new vocabulary, or of each of two.")
    vocabularies: str = option(
        "joint", "joint: one new vocabulary for sources and targets; separate: one for each."
    )

    def __post_init__(self) -> None:
        _check_languages(self)
        if self.vocabularies not in ("joint", "separate"):
            raise InputError(f"vocabularies {self.vocabularies!r} is none of joint, separate")
        if self.vocabularies == "separate" and self.both_ways:
            raise InputError("both_ways needs joint vocabularies: each side has sentences of both languages")


@dataclass(frozen=True, kw_only=True)
class TranslatedText:
    """What a decoder learns to translate from: a pair is one sequence, source, tag of a language, target."""

    task: str = option("translate", f"{TASK}.")
    data: Strings = option((), PAIRS)
    validation: Strings = option((), VALIDATION)
    held_out: float = option(0.02, HELD_OUT)
    languages: Strings = option((), "The languages of source and target, such as de, en: the target's tag.")
    both_ways: bool = option(False, "Learn both directions, each with its tag.")
    longest: int = option(
        100, "Tokens of a source or a target, above which a pair is left out of the training."
    )
    tokenizer: str = option("", "A model whose vocabulary to use; none: learn a new one from the pairs.")
    vocab: int = option(8000, "Size of a new vocabulary.")

    def __post_init__(self) -> None:
        _check_task(self.task, ("translate",))
        _check_languages(self)


@dataclass(frozen=True, kw_only=True)
class SummarizedText:
    """What a decoder learns to summarize from: a pair is one sequence, text, tag, summary."""

    task: str = option("summarize", f"{TASK}.")
    data: Strings = option((), PAIRS)
    validation: Strings = option((), VALIDATION)
    held_out: float = option(0.05, HELD_OUT)
    room: int = option(
        64, "Tokens for a summary: a longer one is cut, and so is a text to what they leave of the context."
    )
    tokenizer: str = option("", "A model whose vocabulary to use; none: learn a new one from the pairs.")
    vocab: int = option(8000, "Size of a new vocabulary.")

    def __post_init__(self) -> None:
        _check_task(self.task, ("summarize",))
        if self.room < 1:
            raise InputError(f"room must be at least 1, not {self.room}")


def _check_task(task: str, right: Strings) -> None:
    """The keys of [text] depend on its task: a section has one of those that it is for."""
    if task not in right:
        raise InputError(f"task {task!r} has other keys than this section; name it in [text] of a recipe")


def _check_languages(text: Any) -> None:
    if text.both_ways and len(text.languages) != 2:
        raise InputError("both_ways needs languages: that of the source and that of the target")
    if len(text.languages) not in (0, 2):
        raise InputError(
            f"languages are two, that of the source and that of the target, not {len(text.languages)}"
        )


@dataclass(frozen=True, kw_only=True)
class LabeledText:
    """What to learn from: texts with a label, or words with a label each."""

    data: Strings = option(
        (),
        "Files: a text, a tab and its label a line; for tags a word a line, an empty line after a sentence.",
    )
    validation: Strings = option((), "The texts to evaluate on, in the same form; none: some are held out.")
    held_out: float = option(0.1, "Share of the texts to hold out for evaluation.")
    tokenizer: str = option("", "A model whose vocabulary to use; none: learn a new one from the texts.")
    vocab: int = option(4000, "Size of a new vocabulary.")


@dataclass(frozen=True, kw_only=True)
class ExampleText:
    """What to learn from: examples of a task, each one text or several with a label."""

    data: Strings = option(
        (),
        "Examples: .csv, .jsonl, or .tsv (the texts first, the label last), also .gz or .zst; repeatable.",
    )
    validation: Strings = option((), "Examples to evaluate on, in the same form; none: some are held out.")
    held_out: float = option(0.1, "Share of the examples to hold out for evaluation.")
    text_column: Strings = option(
        (),
        "The column of a text, by name or by number from 1; two for pairs, then answers; none: usual names.",
    )
    label_column: str = option("", "The column of the label, by name or number; none: label, score, class …")
    cut: bool = option(False, "Cut what is longer than the model's context, instead of refusing it.")
    epochs: float = option(0.0, "Passes over the examples, from which the steps follow; 0: as steps says.")
    lm_weight: float = option(
        0.5,
        "Weight of also learning to write the texts, beside the task (GPT-1: 0.5); 0: the task alone.",
    )
    tokenizer: str = option("", "A model whose vocabulary to use; none: learn a new one from the texts.")
    vocab: int = option(4000, "Size of a new vocabulary.")

    def __post_init__(self) -> None:
        for name in ("epochs", "lm_weight"):
            if not getattr(self, name) >= 0:
                raise InputError(f"{name} must be at least 0, not {getattr(self, name)}")


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The model to begin with: a new one of some kind and size, or an existing one."""

    kind: str = option(DEFAULT_KIND, f"The family of a new model: {', '.join(FAMILIES)}.")
    base: str = option("", "An existing model to fine-tune (it has its own size); none: a new one.")
    layers: int = option(4, "Blocks.")
    heads: int = option(4, "Attention heads a block.")
    width: int = option(128, "Hidden size: numbers per token.")
    context: int = option(256, "Tokens it can look back on.")
    dropout: float = option(0.0, "Dropout probability.")
    attention_dropout: bool = option(
        True, "Dropout of attention weights too; without it a CPU is faster, with less memory."
    )
    bias: bool = option(True, "Biases, as GPT-2 has them.")
    freeze: Strings = option((), "Parts that are not trained, as tokens or blocks.0.*.")


class ModelSection(Protocol):
    """What [model] has for every kind; its other keys are fields of that kind's Config."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def kind(self) -> str: ...
    @property
    def base(self) -> str: ...
    @property
    def freeze(self) -> Strings: ...


@dataclass(frozen=True, kw_only=True)
class Lora:
    """Train two low-rank matrices beside each chosen layer, instead of all weights."""

    rank: int = option(0, "Rank of the LoRA matrices; 0: no LoRA, train all weights.")
    alpha: float = option(16.0, "LoRA scaling: what the matrices add is multiplied by alpha / rank.")
    lora_dropout: float = option(0.0, "Dropout probability of the input of the LoRA matrices.")
    targets: Strings = option(
        ("attn.qkv",),
        "Layers that get LoRA matrices: attn.qkv, attn.proj, mlp.up, mlp.down, or a glob of whole names;"
        " may be given several times.",
    )


@dataclass(frozen=True, kw_only=True)
class Show:
    """What to show during the training."""

    preview: str = option("", "The prompt that the model continues at every evaluation.")
    preview_tokens: int = option(60, "New tokens of a preview; 0: no preview.")
    tensorboard: bool = option(True, "Also write TensorBoard files, if it is installed.")


TextSection = Text | PairedText | TranslatedText | SummarizedText | LabeledText | ExampleText


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A whole training. `model` is a `Shape`, or for another kind than gpt2 the section of `shape_of`."""

    about: str = ""
    text: TextSection = field(default_factory=Text)  # as the kind of model and its task have it
    model: ModelSection = field(default_factory=Shape)
    lora: Lora = field(default_factory=Lora)
    train: Hyperparameters = field(default_factory=Hyperparameters)
    inputs: DecoderInputs = field(default_factory=DecoderInputs)  # of a model that reads a source
    evaluation: EvalSchedule = field(default_factory=EvalSchedule)
    show: Show = field(default_factory=Show)

    @classmethod
    def read(cls, path: Path) -> "Recipe":
        """A recipe from its file."""
        content = read_bytes(path, MEGABYTE, kind=InputError)
        try:
            values = tomllib.loads(content.decode("utf-8"))
        except RecursionError:
            raise InputError(f"{path}: not a TOML file (nested too deeply)") from None
        except ValueError as error:  # syntax, encoding, a number of 5000 digits
            raise InputError(f"{path}: not a TOML file ({error})") from None
        return cls.of(values, str(path))

    @classmethod
    def of(cls, values: dict[str, Any], where: str = "the recipe") -> "Recipe":
        """A recipe from plain data; an unknown key or a value of another type is an error."""
        model, text = [one if isinstance(one := values.get(name), dict) else {} for name in ("model", "text")]
        task = text.get("task") or model.get("task", "")  # a head's is a key of [model]
        try:
            task = _checked(task, str, "task")
            kind = kind_for(_checked(model.get("kind", DEFAULT_KIND), str, "kind"), task)
            sections = sections_of(kind, task)
        except InputError as error:
            raise InputError(f"{where}: {error}") from None
        if task in HEAD_TASKS:
            values = values | {"model": model | {"kind": kind}}

        found: dict[str, Any] = {}
        for given_name, given in values.items():
            name = OLD_NAMES.get(given_name, given_name)
            if name == "about":
                found[name] = _checked(given, str, f"{where}: about")
            elif name not in sections or not isinstance(given, dict):
                raise InputError(f"{where}: unknown section {given_name!r}; there are {', '.join(sections)}")
            else:
                found[name] = _section(name, given, sections=sections, where=where)
        found.setdefault("text", sections["text"]())
        return cls(**found)

    @property
    def sections(self) -> dict[str, Any]:
        """Section -> its dataclass, with the keys of this recipe's kind of model and of its task."""
        return sections_of(self.model.kind, self.task)

    @property
    def task(self) -> str:
        """What a decoder learns from pairs; empty where the family, or its head, says what is learned."""
        return str(getattr(self.text, "task", ""))

    def changed(self, **flags: Any) -> "Recipe":
        """The recipe with some keys changed, whichever section they are in."""
        recipe = self
        if "kind" in flags or "task" in flags:
            kind = _checked(flags.pop("kind", self.model.kind), str, "kind")
            kept = self.task if objective_of(kind) == "next_token" else ""
            task = _checked(flags.pop("task", kept), str, "task")
            recipe = recipe._with_kind(kind, task)

        homes = flag_homes(recipe.sections)
        changes: dict[str, dict[str, Any]] = {}
        for flag, value in flags.items():
            if flag not in homes:
                raise InputError(_unknown_flag(flag, recipe.sections))
            section, key = homes[flag]
            type_ = hints(recipe.sections[section])[key]
            changes.setdefault(section, {})[key] = _checked(value, type_, flag)
        updated = {
            section: dataclasses.replace(getattr(recipe, section), **keys)
            for section, keys in changes.items()
        }
        return dataclasses.replace(recipe, **updated)

    def _with_kind(self, kind: str, task: str) -> "Recipe":
        """The recipe for another kind of model or task: what was set stays where both have the key."""
        sections = sections_of(kind, task)
        model, text = sections["model"], sections["text"]
        own = {"kind": kind_for(kind, task)} | ({"task": task} if task in HEAD_TASKS else {})
        kept = model(**_common(self.model, model) | own)
        read = {key: value for key, value in _common(self.text, text).items() if key != "task"}
        return dataclasses.replace(self, model=kept, text=text(**read))

    def to_toml(self, *, always: Collection[str] = ()) -> str:
        """The file of a recipe: what differs from the defaults, and keys that are `always` written."""
        lines = [f"about = {_toml(self.about)}"] if self.about else []
        for name, kind in self.sections.items():
            section = getattr(self, name)
            written = [
                one.name
                for one in fields(kind)
                if one.name in always or getattr(section, one.name) != _usual(one)
            ]
            if written:
                lines.append(f"\n[{name}]")
                lines += [f"{key} = {_toml(getattr(section, key))}" for key in written]
        return "\n".join(lines).strip() + "\n"

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """Every key of every section."""
        return {name: dataclasses.asdict(getattr(self, name)) for name in self.sections}


SECTIONS: dict[str, Any] = {
    "text": Text,
    "model": Shape,
    "lora": Lora,
    "train": Hyperparameters,
    "evaluation": EvalSchedule,
    "show": Show,
}
TEXTS: dict[str, Any] = {
    "target_token": PairedText,
    "labels": LabeledText,
    "examples": ExampleText,
}  # what a family learns -> its section; else Text
# The tasks of a decoder -> the [text]. To add one of pairs: a section, and a line in JOBS of `jobs.py`.
TASKS: dict[str, Any] = {"translate": TranslatedText, "summarize": SummarizedText}
TASKS |= dict.fromkeys(HEAD_TASKS, ExampleText)
OLD_NAMES = {"watch": "evaluation"}  # sections of recipes that an earlier version wrote


def sections_of(kind: str, task: str = "") -> dict[str, Any]:
    """Section -> its dataclass, for a recipe of one kind of model; a decoder may have a task."""
    kind = kind_for(kind, task)
    objective, shape = objective_of(kind), shape_of(kind)
    also = {"inputs": DecoderInputs} if objective == "target_token" else {}
    text = TASKS[task] if task else TEXTS.get(objective, Text)
    return SECTIONS | {"text": text, "model": shape} | also


def kind_for(kind: str, task: str) -> str:
    """The kind of model that does a task: of pairs the decoder itself, of examples one with a head."""
    if not task:
        return kind
    if task not in TASKS:
        raise InputError(f"task {task[:40]!r} is none of {', '.join(TASKS)}")
    objective = objective_of(kind)
    found = with_head(kind) if task in HEAD_TASKS else kind
    if found is None or (task in PAIR_TASKS and objective != "next_token"):
        raise InputError(f"task {task}: is for decoders, such as gpt2; kind {kind} has its own objective")
    return found


def objective_of(kind: str) -> str:
    """What a kind of model learns. For the default kind its file, which imports torch, is not needed."""
    return "next_token" if kind == DEFAULT_KIND else family(kind).objective


@cache
def shape_of(kind: str) -> Any:
    """The [model] section of a kind: kind, base, freeze, and the fields of the family's Config."""
    if kind == DEFAULT_KIND:
        return Shape  # known without the model's file, which imports torch: `glass train --help` is quick
    config, small = family(kind).config, family(kind).small
    types = hints(config)
    usual = {one.name: one for one in fields(Shape)}
    keys: list[Any] = [("kind", str, option(kind, usual["kind"].metadata["help"]))]
    keys.append(_key(usual["base"], str))
    for one in fields(config):
        if "help" in one.metadata:  # a field that explains itself is a key
            keys.append(_key(one, types[one.name], default=small.get(one.name)))
        elif one.name not in NOT_KEYS:
            keys.append(_key(usual.get(one.name, one), types[one.name], default=small.get(one.name)))
    keys.append(_key(usual["freeze"], Strings))
    return dataclasses.make_dataclass(f"Shape_{kind}", keys, frozen=True, kw_only=True)


def _key(one: Any, kind: Any, *, default: Any = None) -> tuple[str, Any, Any]:
    """A field for `make_dataclass`, after one of another dataclass."""
    if default is None and one.default is not dataclasses.MISSING:
        default = one.default
    help = one.metadata.get("help", f"{one.name.replace('_', ' ').capitalize()} of the model.")
    return one.name, kind, option(default, help)


def flag_homes(sections: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """Flag -> its section and key. A key of [model] that another section has too becomes `model_KEY`."""
    others = {one.name for name, kind in sections.items() if name != "model" for one in fields(kind)}
    homes: dict[str, tuple[str, str]] = {}
    for section, kind in sections.items():
        for one in fields(kind):
            doubled = section == "model" and one.name in others
            homes[f"model_{one.name}" if doubled else one.name] = (section, one.name)
    return homes


def kind_with(flag: str) -> str | None:
    """The first kind of model whose recipes have a flag; None if no kind has it, or only one with a head."""
    kinds = (kind for kind in FAMILIES if with_head(kind) != kind)
    return next((kind for kind in kinds if flag in flag_homes(sections_of(kind))), None)


def task_with(flag: str) -> str | None:
    """The first task of a decoder whose recipes have a flag; None if no task has it."""
    return next((task for task, text in TASKS.items() if flag in hints(text)), None)


def hints(kind: Any) -> dict[str, Any]:
    """The keys of a section, and the type of each."""
    return get_type_hints(kind)


def _section(name: str, given: dict[str, Any], *, sections: dict[str, Any], where: str) -> Any:
    """One section of a recipe, from plain data."""
    types = hints(sections[name])
    unknown = next((key for key in given if key not in types), None)
    if unknown is not None:
        reason = _unknown_key(unknown, name, sections)
        raise InputError(f"{where}: unknown key {unknown!r} in [{name}]; {reason}")
    values = {key: _checked(value, types[key], f"{where}: {key}") for key, value in given.items()}
    try:
        return sections[name](**values)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def _unknown_key(key: str, section: str, sections: dict[str, Any]) -> str:
    """Where a key belongs, or which keys there are."""
    keys = ", ".join(hints(sections[section]))
    known = f"kind {_default_kind(sections)} has {keys}" if section == "model" else f"there are {keys}"
    home = next((name for name, kind in sections.items() if key in hints(kind)), None)
    if home is None:
        return known
    return f"it belongs into [{home}]" + (f"; {known}" if section == "model" else "")


def _default_kind(sections: dict[str, Any]) -> str:
    return str(sections["model"]().kind)


def _unknown_flag(flag: str, sections: dict[str, Any]) -> str:
    """What is wrong with a flag: no section has it, or only another kind of model."""
    keys = ", ".join(hints(sections["model"]))
    if flag in hints(Shape):
        return f"unknown key {flag!r}: kind {_default_kind(sections)} has {keys}"
    return f"unknown key {flag!r}"


def _usual(one: Any) -> Any:
    """The value of a key that a recipe does not name: of kind and task, those that decide its other keys."""
    return {"kind": DEFAULT_KIND, "task": ""}.get(one.name, one.default)


def _checked(value: Any, kind: Any, where: str) -> Any:
    """A value of the type that the dataclass has; 1 is also a float, a list is also a tuple."""
    if kind in (Strings, Numbers):
        item = str if kind == Strings else float
        if isinstance(value, str) or not isinstance(value, list | tuple):
            raise InputError(f"{where} should be a list, not {value!r}")
        return tuple(_checked(one, item, where) for one in value)

    optional = [one for one in get_args(kind) if one is not NoneType]  # `int | None`: None is the default
    if optional:
        return value if value is None else _checked(value, optional[0], where)
    if kind is float and type(value) is int and abs(value) < 1 << 1000:  # a larger one is infinite
        return float(value)
    if type(value) is not kind:
        names = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}
        raise InputError(f"{where} should be {names[kind]}, not {value!r}")
    if kind is float and not math.isfinite(value):
        raise InputError(f"{where} should be a finite number, not {value!r}")
    if kind is int and not -LARGEST <= value < LARGEST:
        raise InputError(f"{where} should be a whole number of 64 bits, not {value!r}")
    return value


def _common(section: Any, other: Any) -> dict[str, Any]:
    """What was set in a section, as far as another one has the key too."""
    known = {one.name for one in fields(other)}
    given = [one.name for one in fields(section) if getattr(section, one.name) != _usual(one)]
    return {name: getattr(section, name) for name in given if name in known}


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, str):
        escaped = "".join(c if c.isprintable() and c not in '"\\' else f"\\U{ord(c):08x}" for c in value)
        return f'"{escaped}"'
    return repr(value)
