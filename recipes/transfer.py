"""What pre-training is worth: a decoder with a head, from the storyteller and from scratch, and TF-IDF beside it.

    python recipes/transfer.py DATA runs/transfer [--only sst2 …] [--ways pretrained …] [--seeds 1 2 3]
    python recipes/transfer.py DATA runs/transfer --write docs/transfer.json

DATA holds sst2 and glue. Every run is a folder TASK-WAY-SEED: the model, and figures.json (the task's own
metric on the examples that nothing was chosen by, seconds, the held-out loss as the training went on). What is
there already is not trained again, and a run that was stopped goes on. `--part N` takes N examples of each
file, to see that it works.

pretrained   recipes/transfer.toml
scratch      the same shape and vocabulary with new weights, twice as long and faster
ulmfit       first the language model goes on to learn the task's own texts; then the head, with a learning
             rate for every block, thawed one by one
tfidf        words and pairs of words, weighted, and logistic regression (ridge regression for numbers)
"""

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from gathered import gather
from scipy import sparse
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge

import glassformer as gf
from glassformer.data.examples import Columns, Example, held_apart, numbers_of, read_examples
from glassformer.durable import replace_file
from glassformer.tasks import scores
from glassformer.tasks.classify import TextClassifier
from glassformer.tasks.evaluate_examples import evaluate_examples
from glassformer.tasks.recipe import Recipe
from glassformer.tasks.train import Evaluated, Started, Stepped, train

HERE = Path(__file__).parent
SHAPE = {"layers": 6, "heads": 8, "width": 256, "context": 512}  # the storyteller's
HELD_OUT = 0.1  # of a task whose only other examples are those of the table


class Task(NamedTuple):
    """Files, what is read for, and the figure that the task is known by."""

    about: str
    task: str
    train: str
    test: str
    metric: str
    validation: str = ""  # none: some of the training examples are held out
    columns: Columns = Columns()


TASKS = {
    "sst2": Task(
        "sentiment, SST-2 test", "classify", "sst2/train.tsv", "sst2/test.tsv", "accuracy", "sst2/dev.tsv"
    ),
    "cola": Task(
        "acceptability, CoLA dev",
        "classify",
        "glue/CoLA/train.tsv.gz",
        "glue/CoLA/dev.tsv.gz",
        "matthews",
        columns=Columns(("4",), "2"),
    ),
    "rte": Task("entailment, RTE dev", "entail", "glue/RTE/train.tsv.gz", "glue/RTE/dev.tsv.gz", "accuracy"),
    "stsb": Task(
        "similarity, STS-B dev", "similar", "glue/STS-B/train.tsv.gz", "glue/STS-B/dev.tsv.gz", "pearson"
    ),
}
# Way -> what it changes in the recipe.
WAYS: dict[str, dict[str, Any]] = {
    "pretrained": {},
    "scratch": {"base": "", "tokenizer": "storyteller", "epochs": 8.0, "lr": 1e-3, "warmup": 100, **SHAPE},
    "ulmfit": {
        "layer_decay": 2.6,
        "unfreeze": 0.5,
        "schedule": "slanted-triangle",
        "warmup": 80,
        "lr": 2e-3,
        "lr_end": 2e-3 / 32,  # as in the paper
        "lm_weight": 0.0,
        "epochs": 6.0,
    },
    "tfidf": {},
}
ADAPT = {
    "batch": 16,
    "window": 128,
    "lr": 5e-4,
    "lr_end": 0.0,
    "warmup": 50,
}  # ulmfit's first step


def main() -> None:
    parser = argparse.ArgumentParser(description="Train every way on every task, and measure it.")
    parser.add_argument("data", type=Path, help="the folder that holds sst2 and glue")
    parser.add_argument("out", type=Path, help="the folder of the runs")
    parser.add_argument("--only", nargs="+", choices=TASKS, default=list(TASKS), help="these tasks")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS), help="these ways")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3], help="these seeds")
    parser.add_argument("--threads", type=int, default=1, help="threads of a training")
    parser.add_argument("--part", type=int, default=0, help="only this number of examples of each file")
    parser.add_argument(
        "--set",
        nargs="+",
        default=[],
        metavar="KEY=VALUE",
        help="other keys of the recipe; adapt: steps of ulmfit's language model",
    )
    parser.add_argument("--write", type=Path, help="train nothing: add the figures of all runs to this file")
    asked = parser.parse_args()
    if asked.write is not None:
        gather(asked.out, asked.write)
        return
    torch.set_num_threads(asked.threads)
    changes = {key: json.loads(value) for key, value in (one.split("=", 1) for one in asked.set)}
    adapt = changes.pop("adapt", 600)
    for name in asked.only:
        for way in asked.ways:
            for seed in asked.seeds[: 1 if way == "tfidf" else None]:
                folder = asked.out / f"{name}-{way}-{seed}"
                if (folder / "figures.json").is_file():
                    continue
                files = prepared(TASKS[name], asked.data, asked.out / "data" / name, part=asked.part)
                given = changes | {"adapt": adapt}
                figures = run(TASKS[name], way, seed, files=files, folder=folder, changes=given)
                replace_file(folder / "figures.json", json.dumps(figures, indent=1) + "\n")
                shown = {key: value for key, value in figures.items() if key != "curve"}
                print(f"{name}, {way}, seed {seed}: {shown}", flush=True)


def prepared(task: Task, data: Path, folder: Path, *, part: int) -> dict[str, Path]:
    """The examples of a task as files with names for their columns: train, validation, test, and texts alone."""
    read = {
        key: read_examples(data / file, task.task, columns=task.columns)
        for key, file in (("train", task.train), ("validation", task.validation), ("test", task.test))
        if file
    }
    if "validation" not in read:
        read["train"], read["validation"] = held_apart(read["train"], HELD_OUT)
    folder.mkdir(parents=True, exist_ok=True)
    files = {}
    for key, examples in read.items():
        files[key] = folder / f"{key}.jsonl"
        replace_file(files[key], "".join(_line(one) for one in examples[: part or None]))
    files["texts"] = folder / "texts.jsonl"
    texts = [text for one in read["train"][: part or None] for text in one.texts]
    replace_file(files["texts"], "".join(json.dumps({"text": text}) + "\n" for text in texts))
    return files


def _line(example: Example) -> str:
    texts = {f"text{number}": text for number, text in enumerate(example.texts, 1)}
    return json.dumps(texts | {"label": example.label}) + "\n"


def read(task: Task, file: Path) -> list[Example]:
    count = 1 if task.task == "classify" else 2
    columns = Columns(tuple(f"text{number}" for number in range(1, count + 1)), "label")
    return read_examples(file, task.task, columns=columns)


def run(
    task: Task, way: str, seed: int, *, files: dict[str, Path], folder: Path, changes: dict[str, Any]
) -> dict[str, Any]:
    """Train one way, or go on with it, and measure it on the test examples."""
    common = {"about": task.about, "task": task.task, "way": way, "seed": seed, "metric": task.metric}
    folder.mkdir(parents=True, exist_ok=True)
    if way == "tfidf":
        begun = time.process_time()
        figures = tfidf(task, files)
        return common | {"figures": figures, "seconds": round(time.process_time() - begun, 1)}
    base, spent = "storyteller", 0.0
    if way == "ulmfit":
        base, spent = adapted(files["texts"], folder / "adapted", seed, steps=changes["adapt"])
    own = {key: value for key, value in changes.items() if key != "adapt"}
    facts = training(task, {**WAYS[way], **own}, seed, files=files, folder=folder, base=base)
    facts["seconds"] = round(facts["seconds"] + spent, 1)
    model = gf.load(str(folder / "model"), engine="torch").expect(TextClassifier)
    figures = {
        one.name: round(one.score, 4) for one in evaluate_examples(model, read(task, files["test"]), cut=True)
    }
    return common | {"figures": figures} | facts


def training(
    task: Task, changes: dict[str, Any], seed: int, *, files: dict[str, Path], folder: Path, base: str
) -> dict[str, Any]:
    """Train a head and its decoder; its seconds (of this start), parameters, and the held-out loss by step."""
    found = {"data": [str(files["train"])], "validation": [str(files["validation"])]}
    columns = [f"text{number}" for number in range(1, 2 if task.task == "classify" else 3)]
    recipe = Recipe.read(HERE / "transfer.toml").changed(base=base, task=task.task, seed=seed, **found)
    recipe = recipe.changed(text_column=columns, label_column="label", tensorboard=False).changed(**changes)
    facts: dict[str, Any] = {"curve": []}
    begun = time.process_time()
    for event in train(recipe, folder):
        if isinstance(event, Started):
            facts |= {"parameters": event.parameters, "steps": event.steps}
        elif isinstance(event, Evaluated):
            facts["curve"].append({"step": event.step, "loss": round(event.loss, 4)})
            print(f"{folder.name}: {facts['curve'][-1]}", flush=True)
    return facts | {"seconds": time.process_time() - begun}


def adapted(texts: Path, folder: Path, seed: int, *, steps: int) -> tuple[str, float]:
    """ULM-FiT's first step: the language model learns the texts of the task; its folder, and the seconds."""
    begun = time.process_time()
    recipe = Recipe().changed(base="storyteller", data=[str(texts)], seed=seed, steps=steps, **ADAPT)
    for event in train(recipe.changed(tensorboard=False, preview_tokens=0), folder):
        if isinstance(event, Stepped) and event.step % 100 == 0:
            print(f"{folder.parent.name}: step {event.step} of the texts, loss {event.loss:.3f}", flush=True)
    return str(folder / "model"), time.process_time() - begun


def tfidf(task: Task, files: dict[str, Path]) -> dict[str, float]:
    """The figure of weighted words; how much they are held back is chosen on the validation examples."""
    sets = {name: read(task, files[name]) for name in ("train", "validation", "test")}
    words = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True)
    words.fit([text for one in sets["train"] for text in one.texts])
    features = {name: _features(words, examples) for name, examples in sets.items()}
    is_number = task.metric == "pearson"
    labels = () if is_number else tuple(sorted({one.label for one in sets["train"]}))
    right = {name: numbers_of(examples, labels, task=task.task) for name, examples in sets.items()}

    def fitted(strength: float) -> Any:
        model = Ridge(1 / strength) if is_number else LogisticRegression(C=strength, max_iter=2000)
        return model.fit(features["train"], right["train"])

    of = {"accuracy": scores.accuracy, "matthews": scores.matthews, "pearson": scores.pearson}
    tried = [fitted(strength) for strength in (0.1, 0.3, 1.0, 3.0, 10.0, 30.0)]
    best = max(
        tried, key=lambda one: of[task.metric](one.predict(features["validation"]), right["validation"])
    )
    said = best.predict(features["test"])
    names = ("pearson", "spearman") if is_number else ("accuracy", "matthews")
    return {name: round(getattr(scores, name)(said, right["test"]), 4) for name in names}


def _features(words: Any, examples: Sequence[Example]) -> Any:
    """Words of one text; of two, what they share, what differs, and how alike they are."""
    sides = [words.transform([one.texts[side] for one in examples]) for side in range(len(examples[0].texts))]
    if len(sides) == 1:
        return sides[0]
    one, other = sides
    shared = one.multiply(other)
    alike = sparse.csr_matrix(np.asarray(shared.sum(1)))
    return sparse.hstack([abs(one - other), shared, alike]).tocsr()


if __name__ == "__main__":
    main()
