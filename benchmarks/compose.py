"""How fast music is composed: seconds of music for every second of computing.

    python benchmarks/compose.py [--model runs/composer] [--seconds 60]

Without a model, one of the composer's sizes with random weights: the time does not depend on them. It is told to go on
until the seconds are full, whatever it would like to do.
"""

import argparse
import statistics
import tomllib
from pathlib import Path

import torch

import glassformer as gf
from glassformer.models.music import MusicConfig, MusicTransformer
from glassformer.tasks.compose import Composer
from glassformer.tokenizers.music import Chorale
from glassformer.tokenizers.score import Note, Score

RECIPE = Path(__file__).parents[1] / "recipes" / "composer.toml"
ROUNDS = 3


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure how fast music is composed.")
    parser.add_argument("--model", help="the folder of a composer")
    parser.add_argument("--seconds", type=float, default=60.0, help="of music")
    asked = parser.parse_args()
    model = gf.load(asked.model).expect(Composer) if asked.model else random_composer()
    tune = Score.of([Note(0.0, asked.seconds, 72)], quarter=0.6)  # a melody of one note is as long as it is
    factors = []
    for seed in range(ROUNDS):
        piece = model.harmonize(tune, seed=seed)
        factors.append(piece.seconds / piece.took)
        shown = f"{piece.seconds:.1f} s of music, {len(piece.tokens):,} tokens in {piece.took:.2f} s"
        print(f"{shown}: {factors[-1]:.1f} times real time", flush=True)
    threads = torch.get_num_threads()
    print(f"median {statistics.median(factors):.1f} times real time, {threads} threads, {model.backend.name}")


def random_composer() -> Composer:
    """The composer's sizes, with random weights."""
    sizes = tomllib.loads(RECIPE.read_text())["model"]
    events = Chorale(16)
    config = MusicConfig(**{key: value for key, value in sizes.items() if key != "kind"}, vocab=len(events))
    return Composer(MusicTransformer(config).initialize(0).eval(), events, name="random")


if __name__ == "__main__":
    main()
