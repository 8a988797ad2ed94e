"""Decoders with a head in files: Hugging Face's models for sequence classification, and with two heads.

A head over classes, or for a number, is their `…ForSequenceClassification`; one that scores several answers
is their `…DoubleHeadsModel`, whose other head is the language model's. The decoder's names stay its own.
"""

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from glassformer.errors import CheckpointError
from glassformer.hub import gpt1, gpt2, gpt3
from glassformer.hub.families import FAMILIES, Family
from glassformer.hub.fields import make_config
from glassformer.hub.mapping import Names
from glassformer.models.classifier import (
    TASKS,
    GPT1Classifier,
    GPT1HeadConfig,
    GPT2Classifier,
    GPT3Classifier,
    GPT3HeadConfig,
    HeadConfig,
)
from glassformer.nn.net import Net
from glassformer.tokenizers import Tokenizer
from glassformer.tokenizers.extend import DELIMITER, EXTRACT, START

HEAD: dict[str, str | None] = {"score.weight": "head.weight"}
CHOICE_HEAD: dict[str, str | None] = {
    "multiple_choice_head.summary.weight": "head.weight",
    "multiple_choice_head.summary.bias": "head.bias",
}
UNPREFIXED = ("lm_head.weight", *HEAD, *CHOICE_HEAD)
# How their second head reads the text: what we compute, and the only way that is supported.
SUMMARY = {
    "summary_type": "cls_index",
    "summary_use_proj": True,
    "summary_activation": None,
    "summary_proj_to_labels": True,
    "tie_word_embeddings": True,
}
DEFAULT_LABELS = {"0": "LABEL_0", "1": "LABEL_1"}  # what their files leave out
MOST_LABELS = 100_000


def _reader(decoder: Family, config: type[HeadConfig], chooser: str) -> Callable[[dict[str, Any], Path], Any]:
    def read_config(theirs: dict[str, Any], path: Path) -> Any:
        sizes = decoder.read_config(theirs, path)
        values = {one.name: getattr(sizes, one.name) for one in fields(sizes)}
        several = chooser in theirs.get("architectures", ())
        task = theirs.get("glass_task", "choose" if several else "classify")
        if task not in TASKS or several != (task == "choose"):
            raise CheckpointError(f"{path}: glass_task {str(task)[:40]!r} does not fit its architectures")
        if several:
            _check_summary(theirs, path)
        values |= {"task": task, "labels": () if several else _read_labels(theirs, path)}
        pad = theirs.get("pad_token_id")
        if pad is not None and type(pad) is not int:
            raise CheckpointError(f"{path}: pad_token_id should be a whole number")
        found: HeadConfig = make_config(config, values | {"pad": pad}, path=path)
        return found

    return read_config


def _check_summary(theirs: Mapping[str, Any], path: Path) -> None:
    for key, value in SUMMARY.items():
        if theirs.get(key, value) != value:
            raise CheckpointError(f"{path}: {key}={str(theirs[key])[:40]!r} is not supported")


def _read_labels(theirs: Mapping[str, Any], path: Path) -> tuple[str, ...]:
    """The classes in their order; none for a head that says one number."""
    named = theirs.get("id2label") or DEFAULT_LABELS
    if not isinstance(named, dict) or len(named) > MOST_LABELS:
        raise CheckpointError(f"{path}: id2label should name every class")
    labels = [named.get(str(number)) for number in range(len(named))]
    if not all(isinstance(label, str) for label in labels):
        raise CheckpointError(f"{path}: id2label should have a name for each of 0 to {len(named) - 1}")
    return tuple(map(str, labels)) if len(labels) > 1 else ()


def _writer(decoder: Family, kind: str) -> Callable[[Any], dict[str, Any]]:
    classes, chooser = FAMILIES[kind].architectures

    def write_config(config: HeadConfig) -> dict[str, Any]:
        several = config.task == "choose"
        names = config.labels or ("score",)
        head = {
            "architectures": [chooser if several else classes],
            "glass_task": config.task,
            "id2label": {str(number): name for number, name in enumerate(names)},
            "label2id": {name: number for number, name in enumerate(names)},
        }
        if not several:
            head["problem_type"] = "single_label_classification" if config.labels else "regression"
        return decoder.write_config(config) | head

    return write_config


def token_ids(tokenizer: Tokenizer | None, config: HeadConfig) -> dict[str, int | None]:
    """By Hugging Face's keys: the token that ends a text, and the one that fills up a row."""
    end = None if tokenizer is None else tokenizer.end
    return {"bos_token_id": end, "eos_token_id": end, "pad_token_id": config.pad}


def post_processor(tokenizer: Tokenizer, config: HeadConfig) -> dict[str, Any] | None:
    """What makes a text, or a pair, the row that the head reads; None where an example has several rows."""
    names = (START, DELIMITER, EXTRACT)
    if config.task not in ("classify", "entail") or not set(names) <= set(tokenizer.special):
        return None
    start, between, end = ({"SpecialToken": {"id": name, "type_id": 0}} for name in names)
    first, second = ({"Sequence": {"id": name, "type_id": 0}} for name in "AB")
    marks = {name: {"id": name, "ids": [tokenizer.special[name]], "tokens": [name]} for name in names}
    return {
        "type": "TemplateProcessing",
        "single": [start, first, end],
        "pair": [start, first, between, second, end],
        "special_tokens": marks,
    }


def _names(decoder: Names, *heads: dict[str, str | None]) -> Names:
    """The decoder's names with those of heads; the output of the language model is the token matrix again."""
    tensors = {theirs: ours for theirs, ours in decoder.tensors.items() if ours != "head.weight"}
    whole: dict[str, str | None] = {**tensors, "lm_head.weight": "tokens.weight"}
    for head in heads:
        whole |= head
    return replace(decoder, tensors=whole, unprefixed=UNPREFIXED)


def _family(decoder: Family, build: type[Net], config: type[HeadConfig]) -> Family:
    kind = build.kind
    _, chooser = FAMILIES[kind].architectures
    with_classes, with_choices = _names(decoder.names, HEAD), _names(decoder.names, CHOICE_HEAD)
    return Family(
        kind=kind,
        model_type=decoder.model_type,
        title=f"{decoder.title} with a head",
        config=config,
        build=build,
        read_config=_reader(decoder, config, chooser),
        write_config=_writer(decoder, kind),
        names=_names(decoder.names, HEAD, CHOICE_HEAD),
        written_names=lambda config: with_choices if config.task == "choose" else with_classes,
        train_tokenizer=decoder.train_tokenizer,
        presets={},
        objective="examples",
        small=decoder.small,
        token_ids=token_ids,
        post_processor=post_processor,
        note=decoder.note,
    )


GPT2_CLASSIFIER = _family(gpt2.FAMILY, GPT2Classifier, HeadConfig)
GPT1_CLASSIFIER = _family(gpt1.FAMILY, GPT1Classifier, GPT1HeadConfig)
GPT3_CLASSIFIER = _family(gpt3.FAMILY, GPT3Classifier, GPT3HeadConfig)
