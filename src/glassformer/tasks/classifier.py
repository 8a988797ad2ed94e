"""Classifier: a decoder that learns from your examples, with the methods that scikit-learn users know.

classifier = gf.Classifier(base="storyteller", epochs=3)
classifier.fit(["what a film", "what a waste"], ["good", "bad"])
classifier.predict(["a waste of a film"]), classifier.predict_proba([…]), classifier.score(texts, labels)
"""

import json
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from glassformer.data.examples import check_texts
from glassformer.errors import InputError
from glassformer.hub.families import with_head
from glassformer.tasks.classify import Given, TextClassifier, flat
from glassformer.tasks.evaluate_examples import evaluate_examples
from glassformer.tasks.load import kind_of_base, load
from glassformer.tasks.recipe import HEAD_DEFAULTS, Recipe

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

    @property
    def classes_(self) -> tuple[str, ...]:
        """The labels, in the order of `predict_proba`."""
        return self._fitted().labels

    def recipe(self, data: Path) -> Recipe:
        """The recipe that `fit` trains by, on examples in a file."""
        kind = kind_of_base(self.base) if self.base else None
        headed = with_head(kind or "") or HEADED  # of another kind: the job says that it takes no head
        quiet = {"preview_tokens": 0, "tensorboard": False, "eval_every": 0}
        recipe = Recipe().changed(kind=headed).changed(**quiet, **HEAD_DEFAULTS | self.keys)
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

        texts, names = [flat(one) for one in examples], [_name(label) for label in labels]
        if len(texts) != len(names):
            raise InputError(f"{len(texts):,} examples need as many labels, not {len(names):,}")
        for number, one in enumerate(texts, 1):
            check_texts(one, self.task, where=f"example {number}: ")
        self.keys.setdefault("held_out", 0.0)
        if "batch" not in self.keys and len(texts) < HEAD_DEFAULTS["batch"]:
            self.keys["batch"] = max(1, len(texts))

        with tempfile.TemporaryDirectory() as temporary:
            data = Path(temporary) / "examples.jsonl"
            data.write_text("".join(map(_line, texts, names)), encoding="utf-8")
            out = Path(self.out) if self.out is not None else Path(temporary) / "run"
            columns = [f"text{number}" for number in range(len(texts[0]))] if self.task != "choose" else []
            recipe = self.recipe(data).changed(text_column=columns or ["context", "answers"])
            for event in train(recipe, out):
                progress(event)
            self.model = load(str(out), engine="torch").expect(TextClassifier)
            self.model.net.eval()
        return self

    def predict(self, examples: Sequence[Given]) -> Array:
        """The label of each example; the number of the answer, or the number that the head says."""
        model = self._fitted()
        said = model.scores(examples, cut=self._cut)
        if self.task == "choose":
            return np.array([int(row.argmax()) for row in said])
        if not model.labels:
            return np.array([float(row[0]) for row in said])
        return np.array([model.labels[int(row.argmax())] for row in said])

    def predict_proba(self, examples: Sequence[Given]) -> Array:
        """(N, C): the probability of every class, in the order of `classes_`; of answers (N, K)."""
        found = self._fitted().classify_many(examples, cut=self._cut)
        if any(one.score is not None for one in found):
            raise InputError("predict_proba: this head says a number, which has no probability")
        return np.array([list(one.probabilities.values()) for one in found])

    def score(self, examples: Sequence[Given], labels: Sequence[Any]) -> float:
        """Accuracy; Pearson's correlation where the head says a number."""
        from glassformer.data.examples import Example

        pairs = zip(examples, labels, strict=True)
        given = [Example(flat(one), _name(label)) for one, label in pairs]
        return evaluate_examples(self._fitted(), given, cut=self._cut)[0].score

    def save(self, folder: str | Path) -> None:
        """Write a folder that `gf.load` and `transformers` read."""
        self._fitted().save(folder)

    @property
    def _cut(self) -> bool:
        return bool(self.keys.get("cut", False))

    def _fitted(self) -> TextClassifier:
        if self.model is None:
            raise InputError("the classifier has learned nothing yet: call fit(texts, labels) first")
        return self.model


def _name(label: Any) -> str:
    """A label as a file has it: True and 1 are the texts true and 1."""
    value = label.item() if hasattr(label, "item") else label
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str | int | float):
        raise InputError(f"a label is a text or a number, not {str(value)[:40]!r}")
    return str(value)


def _line(texts: tuple[str, ...], label: str) -> str:
    if len(texts) > 2:
        return json.dumps({"context": texts[0], "answers": list(texts[1:]), "label": label}) + "\n"
    return json.dumps({f"text{at}": text for at, text in enumerate(texts)} | {"label": label}) + "\n"
