"""German to English on Multi30k: every way a decoder may read the source, trained alike, and the Transformer.

    python recipes/multi30k.py DATA runs/multi30k [--only NAME …] [--threads 1]

DATA holds multi30k. Every run is a folder NAME-SEED: the model, figures.json (BLEU by sacrebleu, lower-cased,
tokenized by 13a; seconds of a core; BLEU on 500 validation pairs as the training went on) and what it wrote for the
three test sets. What is there already is not trained again, and a run that was stopped goes on.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any, NamedTuple

import torch

import glassformer as gf
from glassformer.data.pairs import Pair, read_pairs
from glassformer.durable import replace_file
from glassformer.tasks.evaluate_pairs import scorer
from glassformer.tasks.recipe import Recipe
from glassformer.tasks.train import Saved, Started, Stepped, train
from glassformer.tasks.translate import Translator

HERE = Path(__file__).parent
TESTS = ("test_2016_flickr", "test_2017_flickr", "test_2017_mscoco")
SHORT = 16  # tokens of a side, tags and ends included: the longest of the runs on short sentences
SHOWN = 500  # validation pairs that are translated, greedily, as the training goes on


class Variant(NamedTuple):
    """What a run changes in its recipe, and how many seeds it is trained with."""

    about: str
    changes: dict[str, Any]
    seeds: int = 1
    recipe: str = "multi30k-gru"


VARIANTS = {
    "last": Variant("the last state alone", {"reads": "last"}, 3),
    "mean": Variant("the mean of all states", {"reads": "mean"}, 3),
    "additive-before": Variant("attention, additive, before the step", {}, 3),
    "dot-after": Variant("attention, dot product, after the step", {"score": "dot", "wiring": "after"}, 3),
    "transformer": Variant("Transformer, 3 + 3 blocks", {}, 1, "multi30k-transformer"),
    "decoder": Variant("a decoder alone, 6 blocks", {}, 1, "multi30k-decoder"),
    "additive-after": Variant("attention, additive, after the step", {"wiring": "after"}),
    "bilinear-before": Variant("attention, bilinear, before the step", {"score": "bilinear"}),
    "bilinear-after": Variant(
        "attention, bilinear, after the step", {"score": "bilinear", "wiring": "after"}
    ),
    "dot-before": Variant("attention, dot product, before the step", {"score": "dot"}),
    "last-both": Variant(
        "the last states of both directions", {"reads": "last", "bidirectional": True, "decoder_width": 256}
    ),
    "both": Variant(
        "attention, additive, before; both directions", {"bidirectional": True, "decoder_width": 256}
    ),
    "lstm": Variant("attention, additive, before; LSTM", {"cell": "lstm"}),
    "scheduled": Variant("… with scheduled sampling", {"forcing": "scheduled", "true_end": 0.5}),
    "parallel": Variant("… with parallel scheduled sampling", {"forcing": "parallel", "true_end": 0.5}),
    "professor": Variant("… with professor forcing", {"forcing": "professor", "professor_weight": 0.1}),
    # Trained on short sentences alone: what becomes of sentences longer than any that they have seen?
    "short-additive-before": Variant("attention, trained on short sentences", {"longest": SHORT}),
    "short-transformer": Variant(
        "Transformer, trained on short sentences", {"longest": SHORT}, 1, "multi30k-transformer"
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Train the variants on Multi30k, and measure them.")
    parser.add_argument("data", type=Path, help="the folder that holds multi30k")
    parser.add_argument("out", type=Path, help="the folder of the runs")
    parser.add_argument("--only", nargs="+", choices=VARIANTS, default=list(VARIANTS), help="these variants")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3], help="these seeds")
    parser.add_argument("--threads", type=int, default=1, help="threads of a training")
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    for name in asked.only:
        for seed in asked.seeds[: VARIANTS[name].seeds]:
            folder = asked.out / f"{name}-{seed}"
            if not (folder / "figures.json").is_file():
                figures = run(VARIANTS[name], seed, data=asked.data, folder=folder)
                replace_file(folder / "figures.json", json.dumps(figures, indent=1) + "\n")
                print(f"{name}, seed {seed}: {figures}", flush=True)


def run(variant: Variant, seed: int, *, data: Path, folder: Path) -> dict[str, Any]:
    """Train one variant, or go on with it, and translate the test sets."""
    facts = training(variant, seed, data=data, folder=folder)
    model = loaded(folder)
    pooled: tuple[list[str], list[str]] = ([], [])
    scores = {}
    for test in TESTS:
        pairs = read(data, test)
        written = translations(model, pairs)
        replace_file(folder / f"{test}.txt", "".join(f"{line}\n" for line in written))
        targets = [pair.target for pair in pairs]
        scores[test] = bleu(written, targets)
        pooled[0].extend(written)
        pooled[1].extend(targets)
    scores["pooled"] = bleu(*pooled)
    return {"about": variant.about, "seed": seed, "bleu": scores, **facts}


def training(variant: Variant, seed: int, *, data: Path, folder: Path) -> dict[str, Any]:
    """Train, or go on; what it learned from, and BLEU as the training went on.

    Seconds are those of the processor, over all threads, so that other work beside a training hardly shows.
    """
    recipe = Recipe.read(HERE / f"{variant.recipe}.toml").changed(**variant.changes, seed=seed)
    found = {key: [str(data / file) for file in getattr(recipe.text, key)] for key in ("data", "validation")}
    noted, shown = folder / "curve.json", read(data, "val")[:SHOWN]
    curve = json.loads(noted.read_text()) if noted.is_file() else []
    seconds = curve[-1]["seconds"] if curve else 0.0
    facts: dict[str, Any] = {"tokens": learned(folder)}
    exported, begun = None, time.process_time()
    for event in train(recipe.changed(**found), folder):
        if isinstance(event, Stepped):
            seconds += time.process_time() - begun
            facts |= {"tokens": event.tokens}
        if exported is not None:  # by now the model of that step is in its folder
            written = translations(loaded(folder), shown, num_beams=1)
            score = bleu(written, [pair.target for pair in shown])
            curve.append({"step": exported, "seconds": round(seconds, 1), "bleu": score})
            replace_file(noted, json.dumps(curve))
            print(f"{folder.name}: {curve[-1]}", flush=True)
            exported = None
        if isinstance(event, Started):
            facts |= {"parameters": event.parameters}
        elif isinstance(event, Saved) and event.best:
            exported = event.step
        begun = time.process_time()
    return facts | {
        "seconds": round(seconds, 1),
        "threads": torch.get_num_threads(),
        "tokens_per_second": round(facts["tokens"] / seconds, 1),
        "curve": curve,
    }


def learned(folder: Path) -> int:
    """The target tokens that a run has learned from so far."""
    file = folder / "metrics.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()] if file.is_file() else []
    return max((line.get("tokens", 0) for line in lines), default=0)


def loaded(folder: Path) -> Translator:
    return gf.load(str(folder / "model")).expect(Translator)


def read(data: Path, name: str) -> list[Pair]:
    return read_pairs([data / "multi30k" / f"{name}.{language}.gz" for language in ("de", "en")])


def translations(model: Translator, pairs: list[Pair], **options: Any) -> list[str]:
    found = model.translate_many([pair.source for pair in pairs], **options)
    return [best.text for best, *_ in found]


def bleu(written: list[str], targets: list[str]) -> float:
    return round(float(scorer("bleu", lowercase=True).corpus_score(written, [targets]).score), 2)


if __name__ == "__main__":
    main()
