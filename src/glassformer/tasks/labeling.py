"""Labeling: a model learns to classify texts, or to tag their words."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from glassformer.data.labels import Labeled, held_apart, read_labeled
from glassformer.data.pairs import Pairs, PairStream, Rows
from glassformer.durable import hash_json
from glassformer.errors import InputError, counted
from glassformer.hub.families import family
from glassformer.tasks.jobs import Progress
from glassformer.tasks.label import Labeler, encode_words
from glassformer.tasks.recipe import LabeledText, Recipe
from glassformer.tasks.training_job import TrainingJob, named_vocabulary, own_vocabulary
from glassformer.tokenizers import Tokenizer
from glassformer.tokenizers.train import PADDING
from glassformer.training.loop import HeldOut, Objective
from glassformer.training.objectives import labels as label_objective


@dataclass(frozen=True)
class Labeling(TrainingJob):
    """Train a model on labeled texts: a job (see tasks/jobs.py)."""

    unit: ClassVar[str] = "label"
    labels: tuple[str, ...]
    texts: Pairs  # token ids as sources, label numbers as targets
    held: Pairs

    @classmethod
    def prepare(cls, recipe: Recipe, out: Path, *, offline: bool, progress: Progress) -> "Labeling":
        """Read the texts, find or learn the vocabulary, and tokenize them."""
        text, tags = _section(recipe), recipe.model.shape == "tag"  # type: ignore[attr-defined]
        learn = [one for file in text.data for one in read_labeled(Path(file), by_word=tags)]
        if text.validation:
            held = [one for file in text.validation for one in read_labeled(Path(file), by_word=tags)]
        else:
            learn, held = held_apart(learn, text.held_out)
        labels = tuple(sorted({label for one in learn for label in one.labels}))
        unknown = {label for one in held for label in one.labels} - set(labels)
        if unknown:
            raise InputError(f"label {min(unknown)!r} is held out, but no text to learn from has it")

        def learned() -> Tokenizer:
            progress("learning the vocabulary", 0, len(learn))
            return family(recipe.model.kind).train_tokenizer(
                (" ".join(one.words) for one in learn), text.vocab
            )

        name = recipe.model.base or text.tokenizer
        wanted = hash_json([text.vocab, hash_json(learn)])
        tokenizer = (
            named_vocabulary(name, offline=offline) if name else own_vocabulary(out, wanted, learn=learned)
        )
        if PADDING not in tokenizer.special:
            raise InputError(f"{name}: a vocabulary for labeled texts needs the token {PADDING}")
        encode = partial(_encode, tokenizer=tokenizer, labels=labels, tags=tags)
        return cls(recipe, tokenizer, offline, labels, encode(learn), encode(held))

    def vocabulary_fields(self) -> dict[str, Any]:
        """How many tokens there are, the one that fills up rows, and the labels."""
        fields = super().vocabulary_fields()
        return fields | {"pad": self.tokenizer.special[PADDING], "labels": self.labels}

    @property
    def objective(self) -> Objective:
        """Cross-entropy of every label."""
        return partial(label_objective, smoothing=self.recipe.train.label_smoothing)

    def batches(self, net: Any) -> PairStream:
        """Shuffled texts, those of a batch of similar lengths."""
        if net.config.labels != self.labels:
            theirs, ours = ", ".join(net.config.labels), ", ".join(self.labels)
            raise InputError(f"the model's labels are {theirs}, those of the texts {ours}")
        return PairStream(self.texts, batch=self.recipe.train.batch, seed=self.recipe.train.seed)

    def held_out(self, net: Any, *, rows: int) -> HeldOut | None:
        """The held-out texts, or an even selection of `eval_tokens` labels."""
        if not len(self.held):
            return None
        return partial(self.held.in_order, batch=rows, tokens=self.recipe.evaluation.eval_tokens)

    def identity(self) -> dict[str, Any]:
        """The labels, and the hash of all tokens with their labels."""
        rows = (self.texts.sources, self.texts.targets, self.held.sources, self.held.targets)
        tokens = hash_json([[row.ids.tolist(), row.ends.tolist()] for row in rows])
        return {"labels": list(self.labels), "labeled texts (sha256)": tokens}

    def sizes(self) -> tuple[int, int]:
        """Tokens to learn from, and tokens held out."""
        return len(self.texts.sources.ids), len(self.held.sources.ids)

    def check_preview(self, net: Any) -> None:
        """Any text can be labeled but an empty one, which means no preview."""

    def preview(self, net: Any) -> str:
        """The preview's text with its label, or with those of its words."""
        text = self.recipe.show.preview
        if not text.strip():
            return ""
        model = Labeler(net, self.tokenizer)
        if net.config.shape == "classify":
            return f"{text} → {model.classify(text)}"
        return " ".join(f"{word.text}/{word}" for word in model.tag(text))

    def describe_data(self) -> list[str]:
        """What it is trained on."""
        files = ", ".join(f"`{Path(file).name}`" for file in _section(self.recipe).data)
        return [
            f"- {files}: {counted(len(self.texts), 'text')} to learn from, {len(self.held):,} held out;"
            f" labels {', '.join(self.labels)}"
        ]


def _section(recipe: Recipe) -> LabeledText:
    if not isinstance(recipe.text, LabeledText):
        raise InputError(
            f"{recipe.model.base}: a model that labels texts is trained by a recipe of its own kind, which"
            f" [model] names; kind is {recipe.model.kind}"
        )
    return recipe.text


def _encode(texts: Sequence[Labeled], *, tokenizer: Tokenizer, labels: Sequence[str], tags: bool) -> Pairs:
    """Texts as token ids, and labels as numbers: of the text, or of every token of a word.

    A target of `Pairs` begins with a number that is never predicted: here it is 0.
    """
    number = {label: place for place, label in enumerate(labels)}
    sources: list[list[int]] = []
    targets: list[list[int]] = []
    for text in texts:
        ids, owners = encode_words(tokenizer, text.words)
        sources.append(ids)
        targets.append([0, *(number[text.labels[word]] for word in (owners if tags else [0]))])
    return Pairs(Rows.of(sources), Rows.of(targets), tokenizer.special[PADDING])
