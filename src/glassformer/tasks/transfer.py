"""Transfer learning: a decoder that knows language learns a task from examples (GPT-1, ULM-FiT)."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from glassformer.data.batches import Batch
from glassformer.data.examples import (
    Columns,
    Example,
    check_labels,
    classes_of,
    held_apart,
    numbers_of,
    read_examples,
)
from glassformer.data.pairs import PairStream
from glassformer.data.transformations import SPECIAL, Examples, Transformation
from glassformer.durable import hash_json
from glassformer.errors import InputError, counted
from glassformer.hub.families import family, with_head
from glassformer.hub.folder import outline
from glassformer.hub.locate import locate
from glassformer.tasks.jobs import Progress
from glassformer.tasks.load import base_of
from glassformer.tasks.recipe import ExampleText, Recipe
from glassformer.tasks.training_job import TrainingJob, named_vocabulary, own_vocabulary
from glassformer.tokenizers import Tokenizer
from glassformer.tokenizers.extend import with_special
from glassformer.tokenizers.train import PADDING
from glassformer.training.loop import HeldOut, Objective
from glassformer.training.objectives import answers

if TYPE_CHECKING:
    from glassformer.nn.net import Net


@dataclass(frozen=True)
class Transfer(TrainingJob):
    """Train a decoder and its head on examples: a job (see tasks/jobs.py)."""

    unit: ClassVar[str] = "example"
    kind: str  # of the decoder with its head
    task: str
    labels: tuple[str, ...]
    examples: Examples
    held: Examples
    cut: int  # examples to learn from that were cut to the context

    @classmethod
    def prepare(cls, recipe: Recipe, out: Path, *, offline: bool, progress: Progress) -> "Transfer":
        """Read the examples, find or learn the vocabulary, and write every example as the model reads it."""
        text, base = _section(recipe), recipe.model.base
        if recipe.lora.rank:
            raise InputError("rank: a folder of LoRA has no place for a head; leave --lora out")
        head = _head_of(recipe, offline=offline) if base else None
        kind, context = _decoder(recipe, offline=offline)
        task = _task(recipe, head)

        progress("reading the examples", 0, 0)
        learn, held = _read(text, task)
        if head is None and not text.label_column:
            check_labels(learn, task)
        # A rare class may be among the held-out examples alone.
        labels = classes_of([*learn, *held], task) if head is None else head.labels
        tokenizer = _vocabulary(recipe, out, learn, offline=offline, kind=kind)
        if head is None:
            tokenizer = with_special(tokenizer, SPECIAL)

        written = Transformation(task, tokenizer, context, text.cut)
        encode = partial(_encode, written=written, labels=labels)
        examples, unseen = encode(learn), encode(held)
        cut = sum(written.is_cut(one.texts) for one in learn) if text.cut else 0
        if text.epochs:
            steps = max(1, math.ceil(text.epochs * (len(examples) // recipe.train.batch)))
            recipe = recipe.changed(steps=steps)
        return cls(recipe, tokenizer, offline, kind, task, labels, examples, unseen, cut)

    def vocabulary_fields(self) -> dict[str, Any]:
        """How many tokens there are, the one that fills up rows, and the classes."""
        fields = super().vocabulary_fields()
        return fields | {"pad": self.tokenizer.special.get(PADDING), "labels": self.labels}

    def _base(self) -> "Net":
        """The base with a head: its own, or a new one."""
        net = super()._base()
        if "extracts" in net.capabilities:
            return net
        text, seed = _section(self.recipe), self.recipe.train.seed
        if text.lm_weight and not net.config.tied:
            raise InputError(
                f"lm_weight: {self.recipe.model.base} has an output matrix of its own, which a head replaces;"
                " give lm_weight = 0"
            )
        sizes = {one.name: getattr(net.config, one.name) for one in fields(net.config)}
        vocab = max(net.vocab, len(self.tokenizer))
        own = self.vocabulary_fields() | {"task": self.task, "tied": True, "vocab": vocab}
        found = family(self.kind)
        headed: Any = found.build(found.config(**sizes | own)).initialize(seed).to(self.dtype)
        new = [self.tokenizer.special[name] for name in SPECIAL]
        headed.adopt(net, new, like=self.tokenizer.end)
        return headed  # type: ignore[no-any-return]

    @property
    def measure(self) -> str:
        """What a loss is given in: a task without classes has a number for each example."""
        return "nats an example" if self.labels or self.task == "choose" else "squared error of an example"

    @property
    def objective(self) -> Objective:
        """The task, and beside it, in training, to go on writing the texts."""
        return partial(
            answers,
            choose=self.task == "choose",
            lm_weight=_section(self.recipe).lm_weight,
            smoothing=self.recipe.train.label_smoothing,
        )

    def batches(self, net: Any) -> PairStream:
        """Shuffled examples, those of a batch of similar lengths."""
        return PairStream(self.examples, batch=self.recipe.train.batch, seed=self.recipe.train.seed)

    def held_out(self, net: Any, *, rows: int) -> HeldOut | None:
        """The held-out examples, or an even selection of `eval_tokens` of their tokens."""
        if not len(self.held):
            return None

        def batches() -> Iterator[Batch]:
            some = self.held.in_order(batch=rows, tokens=self.recipe.evaluation.eval_tokens)
            yield from (batch for _, batch in some)

        return batches

    def identity(self) -> dict[str, Any]:
        """The classes, and the hash of all tokens with their targets."""
        both = [
            [one.rows.ids.tolist(), one.rows.ends.tolist(), one.ends.tolist(), one.targets.tolist()]
            for one in (self.examples, self.held)
        ]
        return {"labels": list(self.labels), "examples (sha256)": hash_json(both)}

    def sizes(self) -> tuple[int, int]:
        """Tokens to learn from, and tokens held out."""
        return len(self.examples.rows.ids), len(self.held.rows.ids)

    def check_preview(self, net: Any) -> None:
        """A text that is too long for the context is cut in a preview."""

    def preview(self, net: Any) -> str:
        """The preview's text with its label, for a task of one text."""
        from glassformer.tasks.classify import TextClassifier

        text = self.recipe.show.preview
        if not text.strip() or self.task != "classify":
            return ""
        return f"{text} → {TextClassifier(net, self.tokenizer).classify(text, cut=True)}"

    def _generation(self) -> dict[str, Any]:
        """It generates nothing, whatever its base does."""
        return {}

    def messages(self) -> list[str]:
        """How many examples were cut."""
        return (
            [f"{self.cut:,} of {counted(len(self.examples), 'example')} cut to the context"]
            if self.cut
            else []
        )

    def describe_data(self) -> list[str]:
        """What it is trained on, and what was cut."""
        files = ", ".join(f"`{Path(file).name}`" for file in _section(self.recipe).data)
        said = f"labels {', '.join(self.labels)}" if self.labels else "a number each"
        return [
            f"- to {self.task}: {files}: {counted(len(self.examples), 'example')} to learn from,"
            f" {len(self.held):,} held out; {said}{''.join(f'; {one}' for one in self.messages())}"
        ]


def _section(recipe: Recipe) -> ExampleText:
    if not isinstance(recipe.text, ExampleText):
        raise InputError(
            f"{recipe.model.base}: a model with a head is fine-tuned by a recipe of its own kind, which"
            f" [model] names; kind is {recipe.model.kind}"
        )
    return recipe.text


def _head_of(recipe: Recipe, *, offline: bool) -> Any:
    """The configuration of a base that has a head already; None for a language model."""
    name = recipe.model.base
    model, _, _ = outline(base_of(locate(name, offline=offline), offline=offline))
    if "extracts" in model.capabilities:
        return model.config
    if with_head(model.kind) is None:
        raise InputError(f"{name}: only a decoder (GPT-1, 2, 3) takes a head, and this is {model.kind}")
    return None


def _decoder(recipe: Recipe, *, offline: bool) -> tuple[str, int | None]:
    """The kind of the decoder with its head, and its context."""
    if not recipe.model.base:
        return recipe.model.kind, recipe.model.context  # type: ignore[attr-defined]
    model, _, _ = outline(base_of(locate(recipe.model.base, offline=offline), offline=offline))
    kind = with_head(model.kind)
    assert kind is not None
    return kind, model.context


def _task(recipe: Recipe, head: Any) -> str:
    """The task of the recipe, which must be that of a base's head."""
    task: str = recipe.model.task  # type: ignore[attr-defined]
    if head is not None and head.task != task:
        raise InputError(
            f"task: the head of {recipe.model.base} is there to {head.task}, not to {task};"
            " begin from a language model instead"
        )
    return task


def _read(text: ExampleText, task: str) -> tuple[list[Example], list[Example]]:
    """Examples to learn from, and examples held out."""
    columns = Columns(text.text_column, text.label_column)
    learn = [one for file in text.data for one in read_examples(Path(file), task, columns=columns)]
    if text.validation:
        held = [one for file in text.validation for one in read_examples(Path(file), task, columns=columns)]
        return learn, held
    kept, held = held_apart(learn, text.held_out)
    if not kept:
        raise InputError(
            f"held_out: of {counted(len(learn), 'example')} none is left to learn from; give more examples,"
            " or held_out = 0"
        )
    return kept, held


def _vocabulary(
    recipe: Recipe, out: Path, learn: Sequence[Example], *, offline: bool, kind: str
) -> Tokenizer:
    """The base's vocabulary, a named model's, or one that is learned from the examples."""
    text, name = _section(recipe), recipe.model.base or recipe.text.tokenizer
    if name:
        return named_vocabulary(name, offline=offline)

    def learned() -> Tokenizer:
        return family(kind).train_tokenizer((part for one in learn for part in one.texts), text.vocab)

    return own_vocabulary(out, hash_json([text.vocab, hash_json(learn)]), learn=learned)


def _encode(examples: Sequence[Example], *, written: Transformation, labels: Sequence[str]) -> Examples:
    """Examples as the rows that a model reads, with their targets."""
    rows = []
    for number, example in enumerate(examples, 1):
        try:
            rows.append(written.rows(example.texts))
        except InputError as error:
            raise InputError(f"example {number}: {error}") from None
    targets = numbers_of(examples, labels, task=written.task)
    return Examples.of(rows, targets, pad=written.tokenizer.special.get(PADDING, 0))
