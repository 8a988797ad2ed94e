"""The families of models that are known here. `config.json` says which one a folder holds. No torch here.

To add one: a file in `models/`, a file in `hub/` that ends with `FAMILY = Family(…)`, a line in FAMILIES,
and a line in `tests/test_contract.py`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from glassformer.errors import CheckpointError, InputError

if TYPE_CHECKING:
    from glassformer.hub.mapping import Names
    from glassformer.hub.tensors import StoredTensor
    from glassformer.nn.net import Net
    from glassformer.tokenizers import Tokenizer


class Entry(NamedTuple):
    """A family's `model_type` in a `config.json`, and the module that holds its FAMILY.

    Families that share a `model_type`, as decoders with and without a head do, differ by `architectures`.
    """

    model_type: str
    module: str
    architectures: tuple[str, ...] = ()
    name: str = "FAMILY"


FAMILIES = {
    "gpt2": Entry("gpt2", "glassformer.hub.gpt2"),
    "gpt1": Entry("openai-gpt", "glassformer.hub.gpt1"),
    "gpt3": Entry("glass-gpt3", "glassformer.hub.gpt3"),
    "music": Entry("glass-music", "glassformer.hub.music"),
    "transformer": Entry("marian", "glassformer.hub.marian"),
    "gpt2-encoder-decoder": Entry("glass-gpt2-encoder-decoder", "glassformer.hub.encoder_decoder"),
    "seq2seq": Entry("glass-seq2seq", "glassformer.hub.seq2seq"),
    "rnn": Entry("glass-rnn", "glassformer.hub.rnn"),
    "gpt2-classifier": Entry(
        "gpt2",
        "glassformer.hub.classifier",
        ("GPT2ForSequenceClassification", "GPT2DoubleHeadsModel"),
        "GPT2_CLASSIFIER",
    ),
    "gpt1-classifier": Entry(
        "openai-gpt",
        "glassformer.hub.classifier",
        ("OpenAIGPTForSequenceClassification", "OpenAIGPTDoubleHeadsModel"),
        "GPT1_CLASSIFIER",
    ),
    "gpt3-classifier": Entry(
        "glass-gpt3",
        "glassformer.hub.classifier",
        ("GPT3ForSequenceClassification", "GPT3DoubleHeadsModel"),
        "GPT3_CLASSIFIER",
    ),
}


class Pickled(NamedTuple):
    """What a pickled checkpoint says of its model."""

    path: Path
    config: dict[str, Any]  # the `config.json` beside it; empty if there is none
    facts: dict[str, Any]  # the plain values in it
    tensors: "Mapping[str, StoredTensor]"  # by our names


def end_token_ids(tokenizer: "Tokenizer | None", config: Any) -> dict[str, int | None]:
    """By Hugging Face's keys: the special tokens of a family whose texts begin and end with the same one."""
    end = None if tokenizer is None else tokenizer.end
    return {"bos_token_id": end, "eos_token_id": end}


@dataclass(frozen=True, kw_only=True)
class Family:
    """All that distinguishes one family of models from another: sizes, files, names, vocabulary."""

    kind: str  # our name of it, as in FAMILIES
    model_type: str  # its name in `config.json`
    title: str  # its name for people
    config: type[Any]  # our dataclass of its sizes
    build: "type[Net]"  # the model; called with a configuration
    read_config: Callable[[dict[str, Any], Path], Any]  # a `config.json` -> our configuration
    write_config: Callable[[Any], dict[str, Any]]  # and back
    names: "Names"  # its tensors' names in files
    train_tokenizer: "Callable[..., Tokenizer]"  # learns a vocabulary of its kind from texts
    presets: Mapping[str, Any]  # published sizes by name
    objective: str = "next_token"  # what it learns: a name in JOBS of `tasks/jobs.py`
    small: Mapping[str, Any] = field(default_factory=dict)  # sizes that a training starts from, if not given
    made_of: str = ""  # the kind of a model that a new one can begin with in each of its halves
    note: str = ""  # a sentence for the card of every folder of this family
    # The special tokens that `config.json` and `generation_config.json` state.
    token_ids: "Callable[[Tokenizer | None, Any], dict[str, int | None]]" = end_token_ids

    # What other libraries are to put around a text: the `post_processor` of `tokenizer.json`.
    post_processor: "Callable[[Tokenizer, Any], dict[str, Any] | None]" = lambda tokenizer, config: None

    # Where the configuration decides under which names weights are written; `names` has all that are read.
    written_names: "Callable[[Any], Names] | None" = None

    # For `glass convert`: its options -> the keys of `config.json` that they set, and how a `config.json`
    # that may be missing, or not be whole, is completed.
    options: Mapping[str, str] = field(default_factory=dict)
    complete_config: Callable[[Pickled], dict[str, Any]] | None = None


def family(kind: str) -> Family:
    """The family of a kind, as FAMILIES has it."""
    if kind not in FAMILIES:
        raise InputError(f"kind {kind[:40]!r} is not known; known: {', '.join(FAMILIES)}")
    return _load(FAMILIES[kind].module, FAMILIES[kind].name)


def family_of(config: dict[str, Any], path: Path) -> Family:
    """The family that a `config.json` names; without a name it is GPT-2."""
    kind = kind_of(config)
    if kind is not None:
        return family(kind)
    model_type, known = config.get("model_type"), ", ".join(model_types())
    raise CheckpointError(f"{path}: model_type {str(model_type)[:40]!r} is not known here; known: {known}")


def kind_of(config: Mapping[str, Any]) -> str | None:
    """The kind of model that a `config.json` names; None if it is not known here."""
    model_type, architectures = config.get("model_type", "gpt2"), config.get("architectures")
    given = architectures if isinstance(architectures, list) else []
    found = {kind: entry for kind, entry in FAMILIES.items() if entry.model_type == model_type}
    special = (kind for kind, entry in found.items() if any(one in given for one in entry.architectures))
    usual = (kind for kind, entry in found.items() if not entry.architectures)
    return next(special, next(usual, None))


def with_head(kind: str) -> str | None:
    """The kind of a decoder with a head, for a kind of decoder, or for itself; None if there is none."""
    if kind in FAMILIES and FAMILIES[kind].architectures:
        return kind
    headed = f"{kind}-classifier"
    return headed if headed in FAMILIES else None


def model_types() -> list[str]:
    """The `model_type` of every known family."""
    return list(dict.fromkeys(entry.model_type for entry in FAMILIES.values()))


@cache
def _load(module: str, name: str) -> Family:
    found = getattr(import_module(module), name)
    assert isinstance(found, Family)
    return found
