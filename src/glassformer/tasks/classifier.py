"""Classifier: a decoder that learns from your examples, with the methods that scikit-learn users know.

classifier = gf.Classifier(base="storyteller", epochs=3)
classifier.fit(["what a film", "what a waste"], ["good", "bad"])
classifier.predict(["a waste of a film"]), classifier.predict_proba([…]), classifier.score(texts, labels)
"""

import json
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

import numpy as np

from glassformer.data.examples import Example, check_texts
from glassformer.errors import InputError
from glassformer.hub.families import with_head
from glassformer.tasks.classify import Given, TextClassifier, flat
from glassformer.tasks.evaluate_examples import evaluate_examples
from glassformer.tasks.load import kind_of_base, load
from glassformer.tasks.recipe import HEAD_DEFAULTS, Recipe
from glassformer.tasks.scores import accuracy

Array = np.ndarray[Any, Any]
HEADED = "gpt2-classifier"


class Classifier:
    """A decoder with a head that is fitted to examples.

    `base` is the language model to begin from; an empty name begins anew, with the sizes that are given.
    `task` is classify (texts), entail or similar (pairs of texts), or choose (a context and its answers).
    Everything else is a key of a recipe: epochs, lr, layer_decay, unfreeze, lm_weight, freeze, cut …
    """

    def __init__(
        self, base: str = "storyteller", *, task: str = "classify", out: str | Path | None = None, **keys: Any
    ) -> None:
        """Nothing is trained yet. `out` keeps the folder of the training; it is removed otherwise."""
        self.base, self.task, self.out, self.keys = base, task, out, keys
        self.model: TextClassifier | None = None
        self._names: dict[Any, str] = {}  # a label as `fit` was given it -> the head's name of it

    def __repr__(self) -> str:
        given = "".join(f", {key}={value!r}" for key, value in self.keys.items())
        return f"Classifier({self.base!r}, task={self.task!r}{given})"

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """What it was made with, as scikit-learn asks for it."""
        return {"base": self.base, "task": self.task, "out": self.out, **self.keys}

    def set_params(self, **given: Any) -> Self:
        """Change what it was made with; `fit` comes after it."""
        for key, value in given.items():
            if key in ("base", "task", "out"):
                setattr(self, key, value)
            else:
                self.keys[key] = value
        return self

    def __sklearn_tags__(self) -> Any:
        """What scikit-learn asks before it splits examples: a classifier of texts."""
        from sklearn.utils import ClassifierTags, InputTags, Tags, TargetTags  # only scikit-learn asks

        texts = InputTags(two_d_array=False, string=True)
        labels = TargetTags(required=True)
        return Tags("classifier", labels, input_tags=texts, classifier_tags=ClassifierTags())

    @property
    def classes_(self) -> Array:
        """The labels as they were given, in the order of `predict_proba`; none of a number or an answer."""
        return np.sort(self._labels())

    def recipe(self, data: Path, **usual: Any) -> Recipe:
        """The recipe that `fit` trains by, on examples in a file; `usual` is for keys that are not given."""
        kind = kind_of_base(self.base) if self.base else None
        headed = with_head(kind or "") or HEADED  # of another kind: the job says that it takes no head
        quiet = {"preview_tokens": 0, "tensorboard": False, "eval_every": 0}
        recipe = Recipe().changed(kind=headed).changed(**quiet, **HEAD_DEFAULTS | usual | self.keys)
        return recipe.changed(base=self.base, task=self.task, data=[str(data)])

    def fit(
        self,
        examples: Iterable[Given],
        labels: Iterable[Any],
        *,
        progress: Callable[[Any], object] = lambda event: None,
    ) -> Self:
        """Train on examples and their labels, all of them unless `held_out` keeps some apart.

        `progress` is called with every event of the training: see `tasks/train.py`.
        """
        from glassformer.tasks.train import train

        texts, names, known = _labeled(examples, labels)
        if not texts:
            raise InputError("there is no example to learn from: fit takes a list of texts and their labels")
        for number, one in enumerate(texts, 1):
            check_texts(one, self.task, where=f"example {number}: ")
        usual = {"held_out": 0.0, "batch": min(len(texts), HEAD_DEFAULTS["batch"])}

        with tempfile.TemporaryDirectory() as temporary:
            data = Path(temporary) / "examples.jsonl"
            data.write_text("".join(map(_line, texts, names)), encoding="utf-8")
            out = Path(self.out) if self.out is not None else Path(temporary) / "run"
            columns = [f"text{number}" for number in range(len(texts[0]))] if self.task != "choose" else []
            recipe = self.recipe(data, **usual).changed(
                text_column=columns or ["context", "answers"], label_column="label"
            )
            for event in train(recipe, out):
                progress(event)
            self.model = load(str(out), engine="torch").expect(TextClassifier)
            self.model.net.eval()
        self._names = known
        return self

    def predict(self, examples: Iterable[Given]) -> Array:
        """The label of each example; the number of the answer, or the number that the head says."""
        model = self._fitted()
        said = model.scores(_texts(examples), cut=self._cut)
        if self.task == "choose":
            return np.array([int(row.argmax()) for row in said])
        if not model.labels:
            return np.array([float(row[0]) for row in said])
        best = np.array([row.argmax() for row in said], dtype=np.int64)
        return self._labels()[best]

    def predict_proba(self, examples: Iterable[Given]) -> Array:
        """(N, C): the probability of every class, in the order of `classes_`; of answers (N, K)."""
        found = self._fitted().classify_many(_texts(examples), cut=self._cut)
        if any(one.score is not None for one in found):
            raise InputError("predict_proba: this head says a number, which has no probability")
        rows = [list(one.probabilities.values()) for one in found]
        counts = sorted({len(row) for row in rows})
        if len(counts) > 1:
            raise InputError(
                f"predict_proba: every example needs as many answers, and these have {counts[0]} to"
                f" {counts[-1]}; give those of one number of answers at a time"
            )
        if self.task != "choose":
            order = np.argsort(self._labels())
            rows = [[row[place] for place in order] for row in rows]
        return np.array(rows)

    def score(self, examples: Iterable[Given], labels: Iterable[Any]) -> float:
        """Accuracy; Pearson's correlation where the head says a number."""
        model = self._fitted()
        texts, names, _ = _labeled(examples, labels, known=self._names)
        if model.labels:  # a label that was not learned counts as wrong
            _, said, _ = _labeled(texts, self.predict(texts), known=self._names)
            return accuracy(said, names)
        given = [Example(one, name) for one, name in zip(texts, names, strict=True)]
        return evaluate_examples(model, given, cut=self._cut)[0].score

    def save(self, folder: str | Path) -> None:
        """Write a folder that `gf.load` and `transformers` read."""
        self._fitted().save(folder)

    @property
    def _cut(self) -> bool:
        return bool(self.keys.get("cut", False))

    def _labels(self) -> Array:
        """The labels in the head's order, as they were given; those that only the head knows, as texts."""
        given = {name: label for label, name in self._names.items()}
        return np.array([given.get(name, name) for name in self._fitted().labels])

    def _fitted(self) -> TextClassifier:
        if self.model is None:
            raise InputError("the classifier has learned nothing yet: call fit(texts, labels) first")
        return self.model


def _texts(examples: Iterable[Given]) -> list[tuple[str, ...]]:
    """The texts of each example; a single text is no list of examples."""
    if isinstance(examples, str):
        raise InputError(f"a list of texts is needed, not the single text {examples[:40]!r}")
    return [flat(one) for one in examples]


def _labeled(
    examples: Iterable[Given], labels: Iterable[Any], *, known: Mapping[Any, str] = MappingProxyType({})
) -> tuple[list[tuple[str, ...]], list[str], dict[Any, str]]:
    """The texts of each example, the name of its label, and the names of all labels, the `known` ones too."""
    texts, given = _texts(examples), [_plain(label) for label in labels]
    if len(texts) != len(given):
        raise InputError(f"{len(texts):,} examples need as many labels, not {len(given):,}")
    every = dict(known)  # by value, so that 1 and 1.0 are one label, as they are to NumPy
    names = [every.setdefault(label, _name(label)) for label in given]
    return texts, names, every


def _plain(label: Any) -> str | bool | int | float:
    """A label without NumPy's type."""
    value = label.item() if hasattr(label, "item") else label
    if not isinstance(value, str | int | float):
        raise InputError(f"a label is a text or a number, not {str(value)[:40]!r}")
    return value


def _name(label: str | bool | int | float) -> str:
    """A label as a file has it: True and 1 are the texts true and 1."""
    return str(label).lower() if isinstance(label, bool) else str(label).strip()


def _line(texts: tuple[str, ...], label: str) -> str:
    if len(texts) > 2:
        return json.dumps({"context": texts[0], "answers": list(texts[1:]), "label": label}) + "\n"
    return json.dumps({f"text{at}": text for at, text in enumerate(texts)} | {"label": label}) + "\n"
