"""Evaluate a model on examples of its task: by the figure that the task is known by."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glassformer.data.examples import Columns, Example, numbers_of, read_examples
from glassformer.data.labels import read_labeled
from glassformer.errors import InputError
from glassformer.tasks import scores
from glassformer.tasks.classify import TextClassifier
from glassformer.tasks.label import Labeler

Progress = Callable[[int, int], object]


@dataclass(frozen=True)
class Figure:
    """A figure of a task."""

    name: str  # accuracy, matthews, pearson, spearman
    score: float
    examples: int
    protocol: str
    cut: int = 0  # examples that were cut to the context

    def to_dict(self) -> dict[str, Any]:
        """Everything, as plain data."""
        return dict(vars(self))


def read_for(
    model: TextClassifier | Labeler,
    files: Sequence[Path],
    *,
    text_column: Sequence[str] = (),
    label_column: str = "",
    labeled: bool = True,
) -> list[Example]:
    """The examples of files, for what a model does; with their labels, or without."""
    task = model.reads_for if isinstance(model, TextClassifier) else "classify"
    columns = Columns(tuple(text_column), label_column)
    return [one for file in files for one in read_examples(file, task, columns=columns, labeled=labeled)]


def evaluate_examples(
    model: TextClassifier,
    examples: Sequence[Example],
    *,
    cut: bool = False,
    progress: Progress = lambda done, total: None,
) -> list[Figure]:
    """Accuracy (of two classes, also Matthews' correlation); of a number, both correlations."""
    right = numbers_of(examples, model.labels, task=model.reads_for)
    texts = [one.texts for one in examples]
    found = model.scores(texts, cut=cut, progress=progress)
    shorter = model.count_cut(texts) if cut else 0
    how = f"to {model.reads_for}; " + ("cut to the context" if cut else "nothing cut")
    if not model.labels and model.reads_for != "choose":
        said = [float(row[0]) for row in found]
        wanted = {"pearson": scores.pearson, "spearman": scores.spearman}
        return [Figure(name, of(said, right), len(right), how, shorter) for name, of in wanted.items()]
    best = [int(row.argmax()) for row in found]
    figures = [Figure("accuracy", scores.accuracy(best, right), len(right), how, shorter)]
    if len(model.labels) == 2:
        figures.append(Figure("matthews", scores.matthews(best, right), len(right), how, shorter))
    return figures


def label_accuracy(model: Labeler, files: Sequence[Path], *, first: int = 0) -> Figure:
    """Accuracy of a recurrent network that labels texts, or their words; of the `first` N texts (0: all)."""
    by_word = model.net.config.shape == "tag"
    texts = [one for file in files for one in read_labeled(file, by_word=by_word)][: first or None]
    unknown = sorted({label for one in texts for label in one.labels} - set(model.labels))
    if unknown:
        raise InputError(f"the label {unknown[0]!r} is none of the model's: {', '.join(model.labels)}")
    right, count = model.accuracy(texts)
    return Figure("accuracy", right / count, count, "a label each word" if by_word else "a label each text")
