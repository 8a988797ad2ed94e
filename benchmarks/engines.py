"""How far the native engine is from torch: log-probabilities of the same tokens, by both.

    python benchmarks/engines.py [FILE …] [--model storyteller] [--quantize int8]

The texts are those of the files, up to the model's context of each, and stories that the native engine
generates (seeds 0 to 49). A difference is that of log p of one token, in nats; the two agree at a place where
the likeliest next token is the same.
"""

import argparse
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import glassformer as gf
from glassformer.data.sources import read_texts
from glassformer.tasks.complete import LanguageModel

STORIES = 50


def main() -> None:
    """Print one row for each file, and one for generated stories."""
    parser = argparse.ArgumentParser(description="Compare the native engine with torch.")
    parser.add_argument("files", nargs="*", type=Path, help="texts, as for glass eval")
    parser.add_argument("--model", default="storyteller")
    parser.add_argument("--quantize", default="int8", help="int8 or int4")
    asked = parser.parse_args()
    native = gf.load(asked.model, engine="native", quantize=asked.quantize)
    exact = gf.load(asked.model, engine="torch")

    print("| texts | tokens | mean | 99 % below | largest | agreement |\n|---|---|---|---|---|---|")
    for file in asked.files:
        texts = (native.encode(text) for text in read_texts(file))
        print(row(file.name, texts, native=native, exact=exact), flush=True)
    stories = (native.generate("", seed=seed).ids for seed in range(STORIES))
    print(row("generated", stories, native=native, exact=exact))


def row(name: str, texts: Iterable[list[int]], *, native: LanguageModel, exact: LanguageModel) -> str:
    """A row of the table."""
    context = native.backend.context
    differences, agreements = [], []
    for ids in texts:
        kept = np.array([ids[:context]])
        if kept.size < 2:
            continue
        ours, right = (log_softmax(lm.backend.logits(kept)[0, :-1]) for lm in (native, exact))
        places = np.arange(len(ours)), kept[0, 1:]
        differences.append(np.abs(ours[places] - right[places]))
        agreements.append(ours.argmax(-1) == right.argmax(-1))
    all_of = np.concatenate(differences)
    figures = [all_of.mean(), np.quantile(all_of, 0.99), all_of.max()]
    agreed = f"{np.concatenate(agreements).mean():.1%}"
    return " | ".join([f"| {name}", f"{len(all_of):,}", *(f"{one:.3f}" for one in figures), f"{agreed} |"])


def log_softmax(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    """Log-probabilities (T, V), in float64."""
    wide = logits.astype(np.float64)
    wide -= wide.max(-1, keepdims=True)
    shifted: NDArray[np.float64] = wide - np.log(np.exp(wide).sum(-1, keepdims=True))
    return shifted


if __name__ == "__main__":
    main()
