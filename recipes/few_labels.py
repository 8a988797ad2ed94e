"""What pre-training is worth when there are few summaries to learn from: SciTLDR, at 1, 10 and 100 % of them.

    python recipes/few_labels.py runs/summaries runs/few-labels [--only decoder …] [--shares 1 10] [--seeds 1 2 3]
    python recipes/few_labels.py runs/summaries runs/few-labels --set wiki-lead --shares 100 --seeds 1
    python recipes/few_labels.py runs/summaries runs/few-labels --write docs/few-labels.json

The first folder is what recipes/summaries.py writes. Every run is a folder SET-WAY-SHARE-SEED: the model, and
figures.json (loss of the validation summaries, ROUGE of the test, seconds of a core, the held-out loss as the
training went on, and what it writes for the first texts of the test). What is there already is not trained
again, and a run that was stopped goes on. A share is drawn by its seed, the same for every way. `--measure`
measures trained models again. All ways are measured on the same ids: as much of a text as the decoder has room
for.

decoder           the storyteller goes on to learn texts, a tag and their summaries (recipes/scitldr.toml)
encoder-decoder   its first three blocks as encoder and as decoder, with new attention between them
both-whole        all six of its blocks in each half: twice as many parameters
scratch           a decoder of the storyteller's shape and vocabulary with new weights
zero-shot         the storyteller as it is, behind "TL;DR:"
"""

import argparse
import json
import random
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from gathered import gather

import glassformer as gf
from glassformer.data.pairs import Pair, read_pairs
from glassformer.durable import replace_file
from glassformer.tasks.complete import LanguageModel
from glassformer.tasks.evaluate_pairs import (
    Metric,
    evaluate_summaries,
    evaluate_translations,
    read_references,
)
from glassformer.tasks.evaluate_pairs import target_loss as loss_of
from glassformer.tasks.recipe import Recipe
from glassformer.tasks.train import Evaluated, Started, Stepped, train
from glassformer.tasks.translate import Translator

HERE = Path(__file__).parent
CONTEXT = 512
SHARES = (1, 10, 100)  # percent of the summaries to learn from
SAMPLES = 3  # texts whose summaries are kept, unedited
TARGETS = {"scitldr": 96, "wiki-lead": 192}  # tokens of a context of 512 that a summary may have
CUT = {"wiki-lead"}  # nearly all of its summaries are longer: they are cut before any way learns them


class Way(NamedTuple):
    """What it is called in the table, the end of its recipe's name, and what is changed in it."""

    about: str
    recipe: str = ""
    changes: tuple[tuple[str, Any], ...] = ()


WAYS = {
    "decoder": Way("pre-trained decoder"),
    "encoder-decoder": Way("pre-trained encoder-decoder, 3 + 3 blocks", "-encoder-decoder"),
    "scratch": Way("decoder from scratch", "-scratch"),
    "both-whole": Way(
        "pre-trained encoder-decoder, 6 + 6 blocks",
        "-encoder-decoder",
        (("layers", 6), ("decoder_layers", 6)),
    ),
    "zero-shot": Way("pre-trained decoder, zero-shot"),
}
# Few examples need few steps; the model of the lowest validation loss is kept.
PLANS: dict[int, dict[str, Any]] = {
    1: {"steps": 150, "batch": 4, "eval_every": 15, "warmup": 10, "eval_tokens": 10000},
    10: {"steps": 100, "batch": 16, "eval_every": 20, "warmup": 10, "eval_tokens": 10000},
    100: {"steps": 240, "batch": 16, "eval_every": 40, "warmup": 20, "eval_tokens": 10000},
}
FEWER = {"wiki-lead": {"steps": 120, "eval_every": 20, "warmup": 10}}  # there are a third as many


def main() -> None:
    parser = argparse.ArgumentParser(description="Train on shares of summaries, and measure.")
    parser.add_argument(
        "data", type=Path, help="the folder of scitldr-train.jsonl, -valid, -test and the others"
    )
    parser.add_argument("out", type=Path, help="the folder of the runs")
    parser.add_argument("--set", choices=TARGETS, default="scitldr")
    parser.add_argument("--only", nargs="+", choices=WAYS, default=list(WAYS), help="these ways")
    parser.add_argument("--shares", type=int, nargs="+", choices=SHARES, default=list(SHARES))
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--measure", action="store_true", help="measure the models that are trained again")
    parser.add_argument("--write", type=Path, help="train nothing: add the figures of all runs to this file")
    asked = parser.parse_args()
    if asked.write is not None:
        gather(asked.out, asked.write)
        return
    torch.set_num_threads(1)
    for name, share, seed in planned(asked):
        folder = asked.out / f"{asked.set}-{name}-{share}-{seed}"
        done = folder / "figures.json"
        if done.is_file() != asked.measure:
            continue
        folder.mkdir(parents=True, exist_ok=True)
        if name == "zero-shot":
            model = gf.load("storyteller", engine="torch")
            figures = {"parameters": model.net.config.parameters, "seconds": 0.0}
            figures |= measured(model, asked.data, asked.set, zero_shot=True)
        elif asked.measure:
            model = gf.load(str(folder / "model"), engine="torch")
            figures = json.loads(done.read_text()) | measured(model, asked.data, asked.set)
        else:
            figures = run(WAYS[name], share, seed=seed, data=asked.data / asked.set, folder=folder)
        replace_file(folder / "figures.json", json.dumps(figures, indent=1) + "\n")
        print(f"{folder.name}: {figures}", flush=True)


def planned(asked: argparse.Namespace) -> Iterator[tuple[str, int, int]]:
    """Way, share and seed of every run that has a recipe; without training there is nothing to repeat."""
    known = [name for name in asked.only if (HERE / f"{asked.set}{WAYS[name].recipe}.toml").is_file()]
    for seed in asked.seeds:
        for share in asked.shares:
            yield from ((name, share, seed) for name in known if name != "zero-shot")
    if "zero-shot" in asked.only:
        yield "zero-shot", 0, 1


def run(way: Way, share: int, *, seed: int, data: Path, folder: Path) -> dict[str, Any]:
    """Train one way on a share of the summaries, and measure it; `data` is the beginning of all files' names."""
    recipe = Recipe.read(HERE / f"{data.name}{way.recipe}.toml")
    files = {"data": [drawn(data, share, seed=seed, folder=folder)], "validation": [valid(data, folder)]}
    plan = PLANS[share] | FEWER.get(data.name, {})
    recipe = recipe.changed(**dict(way.changes), **plan, **files, seed=seed)
    facts: dict[str, Any] = {"share": share, "seed": seed, "curve": []}
    begun = time.process_time()
    for event in train(recipe, folder):
        if isinstance(event, Started):
            facts["parameters"] = event.parameters
        elif isinstance(event, Stepped):
            facts["steps"] = event.step
        elif isinstance(event, Evaluated):
            facts["curve"].append({"step": event.step, "loss": round(event.loss, 4)})
            print(f"{folder.name}: {facts['curve'][-1]}", flush=True)
    facts["seconds"] = round(time.process_time() - begun, 1)
    return facts | measured(gf.load(str(folder / "model"), engine="torch"), data.parent, data.name)


def drawn(data: Path, share: int, *, seed: int, folder: Path) -> str:
    """A file with so many percent of the pairs."""
    pairs = read_pairs([Path(f"{data}-train.jsonl")])
    chosen = random.Random(seed).sample(pairs, max(1, len(pairs) * share // 100))
    return written(chosen, data.name, folder.parent / f"{data.name}-{share}-{seed}.jsonl")


def valid(data: Path, folder: Path) -> str:
    """A file of the pairs to evaluate on."""
    return written(
        read_pairs([Path(f"{data}-valid.jsonl")]), data.name, folder.parent / f"{data.name}-valid.jsonl"
    )


def written(pairs: Sequence[Pair], name: str, file: Path) -> str:
    """Pairs as a file, those of some sets cut."""
    if name in CUT:
        pairs = list(fitting(gf.load("storyteller").tokenizer, pairs, TARGETS[name]))
    replace_file(file, "".join(json.dumps(pair._asdict()) + "\n" for pair in pairs))
    return str(file)


def measured(model: Any, data: Path, name: str, *, zero_shot: bool = False) -> dict[str, Any]:
    """The loss of the validation summaries, and ROUGE of what it writes for the test, greedily."""
    room, test = TARGETS[name], data / f"{name}-test.jsonl"
    pairs = read_pairs([test])
    how: dict[str, Any] = {"references": read_references([str(test)], pairs), "metrics": ["rouge"]}
    if zero_shot:  # as GPT-2's paper did it: a draw from the two likeliest tokens
        lm = model.expect(LanguageModel)
        drawn_how: dict[str, Any] = {"zero_shot": True, "seed": 1}
        figures = evaluate_summaries(lm, pairs, **how, **drawn_how)
        first = [pair.source for pair in pairs[:SAMPLES]]
        return scored(figures) | {"samples": [one.text for one in lm.summarize_many(first, **drawn_how)]}
    pairs = list(shortened(model.tokenizer, pairs, read=CONTEXT - room - 1, wrote=room))
    first = [pair.source for pair in pairs[:SAMPLES]]
    greedily: dict[str, Any] = {"max_new_tokens": room, "num_beams": 1}
    if isinstance(model, Translator):
        figures = evaluate_translations(model, pairs, **how, **greedily)
        samples = [best.text for best, *_ in model.translate_many(first, cut=True, **greedily)]
    else:
        summarizer = model.expect(LanguageModel)
        figures = evaluate_summaries(summarizer, pairs, **how, **greedily)
        samples = [one.text for one in summarizer.summarize_many(first, **greedily)]
    held_out = list(fitting(model.tokenizer, read_pairs([data / f"{name}-valid.jsonl"]), room))
    loss = loss_of(model, held_out, name="valid").loss
    return {"loss": round(loss, 4)} | scored(figures) | {"samples": samples}


def scored(figures: Sequence[Metric]) -> dict[str, Any]:
    """ROUGE by its names."""
    return {"rouge": {one.name: round(one.score, 2) for one in figures}}


def fitting(tokenizer: Any, pairs: Sequence[Pair], room: int) -> Iterator[Pair]:
    """Pairs that fit as one sequence: the loss is that of the summary behind as much of the text as fits."""
    return shortened(tokenizer, pairs, read=CONTEXT - room - 4, wrote=room - 4)


def shortened(tokenizer: Any, pairs: Sequence[Pair], *, read: int, wrote: int) -> Iterator[Pair]:
    """The first tokens of every text, and of its summary."""
    for pair in pairs:
        source, target = (tokenizer.encode(half) for half in pair)
        yield Pair(tokenizer.decode(source[:read]), tokenizer.decode(target[:wrote]))


if __name__ == "__main__":
    main()
