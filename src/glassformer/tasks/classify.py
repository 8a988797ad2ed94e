"""Classify: a decoder with a head says which class a text is of, how alike two are, which answer is right."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from glassformer.data.examples import check_texts
from glassformer.data.transformations import Examples, Transformation
from glassformer.errors import InputError
from glassformer.tasks.model import Model
from glassformer.tokenizers import Tokenizer

if TYPE_CHECKING:
    from glassformer.answers.saliency import Saliency

ROWS = 32  # examples that are read at once
Given = str | Sequence[str | Sequence[str]]  # a text; a pair; a context and its answers
Array = np.ndarray[Any, Any]
Progress = Callable[[int, int], object]


@dataclass(frozen=True)
class Classification:
    """What a model says of a text, of two, or of several answers."""

    texts: tuple[str, ...]
    label: str  # the likeliest class, or answer; empty where the head says a number
    probabilities: dict[str, float]  # of every class, or answer
    score: float | None = None  # the number of a head that says one
    choice: int | None = None  # the number of the answer, counted from 0
    _model: "TextClassifier | None" = field(default=None, repr=False, compare=False)

    def __str__(self) -> str:
        return self.label if self.score is None else f"{self.score:.3f}"

    @property
    def probability(self) -> float:
        """Of the label."""
        return self.probabilities.get(self.label, 0.0)

    def to_dict(self) -> dict[str, Any]:
        """Everything, as plain data."""
        found: dict[str, Any] = {"texts": list(self.texts)}
        if self.score is not None:
            return found | {"score": self.score}
        found |= {"label": self.label, "probability": self.probability}
        found |= {} if self.choice is None else {"choice": self.choice}
        return found | {"probabilities": self.probabilities}

    def saliency(self, label: str | None = None, **how: Any) -> "Saliency":
        """Which tokens of the text speak for a class (the likeliest), with the test of that answer.

        How: as of any saliency: `method`, `by_word`, `tested`, `progress`.
        """
        assert self._model is not None
        return self._model.saliency(self, label, **how)


class TextClassifier(Model):
    """A decoder with a head."""

    task: ClassVar[str] = "classify a text"
    verbs: ClassVar[tuple[str, ...]] = ("classify",)

    @property
    def labels(self) -> tuple[str, ...]:
        """The classes that it knows; none where it says a number, or chooses among answers."""
        labels: tuple[str, ...] = self._load().config.labels
        return labels

    @property
    def reads_for(self) -> str:
        """What it reads texts for: classify, entail, similar or choose."""
        return str(self._load().config.task)

    def classify(self, *texts: str | Sequence[str], cut: bool = False) -> Classification:
        """What the model says of a text, a pair of texts, or a context and answers.

        `cut`: what is longer than the context is cut, and not refused.
        """
        return self.classify_many([texts], cut=cut)[0]

    def classify_many(
        self, examples: Sequence[Given], *, cut: bool = False, progress: Progress = lambda done, total: None
    ) -> list[Classification]:
        """What the model says of many examples: texts, pairs, or contexts with answers."""
        texts = [flat(one) for one in examples]
        said = self.scores(examples, cut=cut, progress=progress)
        return [self._made(one, numbers) for one, numbers in zip(texts, said, strict=True)]

    def scores(
        self, examples: Sequence[Given], *, cut: bool = False, progress: Progress = lambda done, total: None
    ) -> list[Array]:
        """What the head says of each example: a logit for every class or answer, or one number."""
        import torch

        from glassformer.training.objectives import read_out

        net = self._load()
        rows = [self.rows(one, cut=cut, number=number) for number, one in enumerate(examples, 1)]
        ready = Examples.of(rows, [0] * len(rows), pad=net.config.pad or 0)
        found: list[Array] = [np.empty(0)] * len(rows)
        done = 0
        for numbers, batch in ready.in_order(batch=ROWS):
            tensors = {name: torch.as_tensor(one, device=net.device) for name, one in batch.arrays.items()}
            with self.lock, torch.inference_mode():
                said = read_out(net(tensors["ids"]), tensors, choose=self.reads_for == "choose").float().cpu()
            for number, row in zip(numbers, said.numpy(), strict=True):
                found[number] = row[np.isfinite(row)]  # an answer that others have and this one lacks is −∞
            done += len(numbers)
            progress(done, len(rows))
        return found

    def rows(self, example: Given, *, cut: bool = False, number: int = 1) -> list[list[int]]:
        """An example as the model reads it: the token ids of one row, or of one for each order or answer."""
        texts = flat(example)
        try:
            check_texts(texts, self.reads_for)
            return self._written(cut=cut).rows(texts)
        except InputError as error:
            raise InputError(f"example {number}: {error}" if number > 1 else str(error)) from None

    def count_cut(self, examples: Sequence[Given]) -> int:
        """How many of the examples are longer than the context, so that they are cut."""
        written = self._written(cut=True)
        return sum(written.is_cut(flat(one)) for one in examples)

    def _written(self, *, cut: bool) -> Transformation:
        return Transformation(self.reads_for, self._vocabulary(), self._load().context, cut)

    def saliency(self, about: Classification, label: str | None = None, **how: Any) -> "Saliency":
        """Which tokens speak for a class, or for the number, of an example."""
        from glassformer.answers.answer import Text
        from glassformer.answers.saliency import class_saliency

        names = self.labels or ("score",)
        wanted = label or about.label if self.labels else "score"
        if wanted not in names:
            raise InputError(f"label {wanted!r} is none of the head's: {', '.join(names)}")
        rows = self.rows(about.texts, cut=True)
        row = rows[about.choice or 0]
        marks = marks_of(self._vocabulary())
        kept = [at for at, token in enumerate(row) if token in marks]
        # One number has no probability, so that there is nothing to be tested by taking tokens away.
        tested = how.pop("tested", True) and bool(self.labels)
        target = (wanted, names.index(wanted))
        return class_saliency(Text(self, row), target, kept=kept, tested=tested, **how)

    def _made(self, texts: tuple[str, ...], said: Array) -> Classification:
        if self.reads_for != "choose" and not self.labels:
            return Classification(texts, "", {}, score=float(said[0]), _model=self)
        odds = np.exp(said.astype(np.float64) - said.max())
        names = texts[1:] if self.reads_for == "choose" else self.labels
        shares = (odds / odds.sum()).tolist()
        best = int(said.argmax())
        choice = best if self.reads_for == "choose" else None
        named = dict(zip(names, shares, strict=True))
        return Classification(texts, names[best], named, choice=choice, _model=self)


def flat(example: Given) -> tuple[str, ...]:
    """The texts of an example; a context and a list of answers are one after the other."""
    parts = [example] if isinstance(example, str) else list(example)
    found: list[str] = []
    for part in parts:
        several = [part] if isinstance(part, str) else list(part)
        odd = next((one for one in several if not isinstance(one, str)), None)
        if odd is not None:
            raise InputError(f"an example is made of texts, and {str(odd)[:40]!r} is none")
        found += several
    return tuple(found)


def marks_of(tokenizer: Tokenizer) -> set[int]:
    """The ids of all special tokens: they belong to no text."""
    return set(tokenizer.special.values())
