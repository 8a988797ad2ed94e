"""What pre-training is worth when there are few summaries to learn from: SciTLDR, at 1, 10 and 100 % of them.

    python recipes/few_labels.py runs/summaries runs/few-labels [--only decoder …] [--shares 1 10] [--seeds 1 2 3]
    python recipes/few_labels.py runs/summaries runs/few-labels --table docs

The first folder is what recipes/summaries.py writes. Every run is a folder WAY-SHARE-SEED: the model, and
figures.json (loss of the validation summaries, ROUGE of the test, seconds of a core). What is there already is
not trained again, and a run that was stopped goes on. A share is drawn by its seed, the same for every way.

decoder           the storyteller goes on to learn abstracts, a tag and their summaries (recipes/scitldr.toml)
encoder-decoder   its first three blocks as encoder and as decoder, with new attention between them
both-whole        all six of its blocks in each half: twice as many parameters
scratch           a decoder of the storyteller's shape and vocabulary with new weights
"""

import argparse
import json
import random
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch

import glassformer as gf
from glassformer.data.pairs import Pair, read_pairs
from glassformer.durable import replace_file
from glassformer.tasks.complete import LanguageModel
from glassformer.tasks.evaluate_pairs import evaluate_summaries, evaluate_translations, read_references
from glassformer.tasks.evaluate_pairs import target_loss as loss_of
from glassformer.tasks.recipe import Recipe
from glassformer.tasks.train import Started, Stepped, train
from glassformer.tasks.translate import Translator

HERE = Path(__file__).parent
SHARES = (1, 10, 100)  # percent of the summaries to learn from
SOURCE, TARGET = 416, 96  # tokens of a context of 512


class Way(NamedTuple):
    """A recipe, what it changes in it, and what it is called in the table."""

    about: str
    recipe: str
    changes: dict[str, Any]


WAYS = {
    "decoder": Way("pre-trained decoder", "scitldr", {}),
    "encoder-decoder": Way("pre-trained encoder-decoder, 3 + 3 blocks", "scitldr-encoder-decoder", {}),
    "scratch": Way("decoder from scratch", "scitldr-scratch", {}),
    "both-whole": Way(
        "pre-trained encoder-decoder, 6 + 6 blocks",
        "scitldr-encoder-decoder",
        {"layers": 6, "decoder_layers": 6},
    ),
}
# Few examples need few steps; the model of the lowest validation loss is kept.
PLANS: dict[int, dict[str, Any]] = {
    1: {"steps": 60, "batch": 4, "eval_every": 10, "warmup": 5},
    10: {"steps": 160, "batch": 16, "eval_every": 20, "warmup": 10},
    100: {"steps": 500, "batch": 16, "eval_every": 50, "warmup": 30},
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Train on shares of SciTLDR, and measure.")
    parser.add_argument("data", type=Path, help="the folder of scitldr-train.jsonl, -valid and -test")
    parser.add_argument("out", type=Path, help="the folder of the runs")
    parser.add_argument("--only", nargs="+", choices=WAYS, default=list(WAYS), help="these ways")
    parser.add_argument("--shares", type=int, nargs="+", choices=SHARES, default=list(SHARES))
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--table", type=Path, help="train nothing: write few-labels.json into this folder")
    asked = parser.parse_args()
    if asked.table is not None:
        replace_file(asked.table / "few-labels.json", json.dumps(found(asked.out), indent=1) + "\n")
        return
    torch.set_num_threads(1)
    for seed in asked.seeds:
        for share in asked.shares:
            for name in asked.only:
                folder = asked.out / f"{name}-{share}-{seed}"
                if not (folder / "figures.json").is_file():
                    figures = run(WAYS[name], share, seed=seed, data=asked.data, folder=folder)
                    replace_file(folder / "figures.json", json.dumps(figures, indent=1) + "\n")
                    print(f"{folder.name}: {figures}", flush=True)


def run(way: Way, share: int, *, seed: int, data: Path, folder: Path) -> dict[str, Any]:
    """Train one way on a share of the summaries, and measure it on the validation and test sets."""
    recipe = Recipe.read(HERE / f"{way.recipe}.toml").changed(**way.changes, **PLANS[share], seed=seed)
    recipe = recipe.changed(
        data=[drawn(data, share, seed=seed, folder=folder)], validation=[str(data / "scitldr-valid.jsonl")]
    )
    facts: dict[str, Any] = {"about": way.about, "share": share, "seed": seed}
    begun = time.process_time()
    for event in train(recipe, folder):
        if isinstance(event, Started):
            facts["parameters"] = event.parameters
        elif isinstance(event, Stepped):
            facts["steps"] = event.step
    facts["seconds"] = round(time.process_time() - begun, 1)
    return facts | measured(gf.load(str(folder / "model"), engine="torch"), data)


def drawn(data: Path, share: int, *, seed: int, folder: Path) -> str:
    """A file with so many percent of the pairs."""
    lines = (data / "scitldr-train.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    count = max(1, len(lines) * share // 100)
    folder.mkdir(parents=True, exist_ok=True)
    file = folder.parent / f"scitldr-{share}-{seed}.jsonl"
    replace_file(file, "".join(random.Random(seed).sample(lines, count)))
    return str(file)


def measured(model: Any, data: Path) -> dict[str, Any]:
    """The loss of the validation summaries, and ROUGE of what it writes for the test, greedily."""
    valid = list(shortened(model, read_pairs([data / "scitldr-valid.jsonl"])))
    test = data / "scitldr-test.jsonl"
    pairs = read_pairs([test])
    references = read_references([str(test)], pairs)
    how: dict[str, Any] = {"references": references, "metrics": ["rouge"], "num_beams": 1}
    if isinstance(model, Translator):
        figures = evaluate_translations(model, pairs, max_new_tokens=TARGET, **how)
    else:
        figures = evaluate_summaries(model.expect(LanguageModel), pairs, max_new_tokens=TARGET, **how)
    scores = {one.name: round(one.score, 2) for one in figures}
    return {"loss": round(loss_of(model, valid, name="valid").loss, 4), "rouge": scores}


def shortened(model: Any, pairs: list[Pair]) -> Iterator[Pair]:
    """Pairs that fit: the loss is that of the whole summary behind as much of the abstract as there is room."""
    tokenizer = model.tokenizer
    for pair in pairs:
        source, target = (tokenizer.encode(half) for half in pair)
        yield Pair(tokenizer.decode(source[: SOURCE - 4]), tokenizer.decode(target[: TARGET - 4]))


def found(runs: Path) -> list[dict[str, Any]]:
    """A row for every way and share: means over the seeds, and the values themselves."""
    rows = []
    for name, way in WAYS.items():
        for share in SHARES:
            files = sorted(runs.glob(f"{name}-{share}-*/figures.json"))
            figures = [json.loads(file.read_text()) for file in files]
            if not figures:
                continue
            scores = {key: [one["rouge"][key] for one in figures] for key in figures[0]["rouge"]}
            rows.append(
                {
                    "way": name,
                    "about": way.about,
                    "share": share,
                    "parameters": figures[0]["parameters"],
                    "loss": [one["loss"] for one in figures],
                    "rouge": scores,
                    "mean": {key: round(statistics.mean(values), 2) for key, values in scores.items()},
                    "seconds": [one["seconds"] for one in figures],
                }
            )
    return rows


if __name__ == "__main__":
    main()
