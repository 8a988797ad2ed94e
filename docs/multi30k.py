"""Write docs/multi30k.md from docs/multi30k.json, which recipes/claims.py measures.

python docs/multi30k.py
"""

import json
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PUBLISHED = (
    "bentrevett/pytorch-seq2seq reports on the same data, by its own BLEU, 20.6 for a GRU, 28.3 with attention"
    " and 36.5 for a Transformer."
)
# The order of the table: what the decoder gets of the source, then how it is trained.
NAMES = (
    *("last", "last-both", "mean", "dot-before", "dot-after", "bilinear-before", "bilinear-after"),
    *("additive-before", "additive-after", "both", "lstm", "transformer", "decoder"),
    *("scheduled", "parallel", "professor", "short-additive-before", "short-transformer"),
)
SIDE_BY_SIDE = ("last", "last-both", "mean", "additive-before", "dot-after", "both", "transformer")
LONGER = ("additive-before", "short-additive-before", "transformer", "short-transformer")
DRIFT = ("additive-before", "scheduled", "parallel", "professor", "last", "transformer")
TIMED = ("last", "additive-before", "transformer")
ZEN5 = ("last", "additive-before", "transformer", "decoder", "professor", "short-transformer")
GOALS = (15, 20, 25, 30, 33)
TESTS = ("test_2016_flickr", "test_2017_flickr", "test_2017_mscoco")

Run = dict[str, Any]  # an entry of the file: what a run measured of itself, and what the claims add


def main() -> None:
    found = json.loads((HERE / "multi30k.json").read_text(encoding="utf-8"))
    seeds = {name: [run for key, run in found.items() if key[:-2] == name] for name in NAMES}
    seeds = {name: runs for name, runs in seeds.items() if runs}
    first = {name: runs[0] for name, runs in seeds.items()}
    parts = [
        heading(),
        table(seeds),
        time(seeds),
        lengths(first),
        recall(first),
        diagonal(first),
        longer(first),
        drift(first),
    ]
    lines = [line for part in parts for line in part]
    (HERE / "multi30k.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def heading() -> Iterator[str]:
    yield "# German to English: last state, attention, Transformer"
    yield ""
    yield (
        "Written by `docs/multi30k.py` from `docs/multi30k.json`. The models are those of `recipes/multi30k.py`,"
        " trained on the 29,000 pairs of"
    )
    yield (
        "Multi30k: recurrent networks of width 256 (`recipes/multi30k-gru.toml`) and a Transformer of 3 + 3"
        " blocks of the same width"
    )
    yield (
        "(`recipes/multi30k-transformer.toml`); what is measured is in `recipes/claims.py`. BLEU is sacrebleu's,"
        " lower-cased, tokenized by 13a,"
    )
    yield "with 4 beams. `±` is an interval of 95 %; where a row has no seeds, it is that of seed 1. A run that is not"
    yield "measured yet has no row."
    yield ""
    yield "```sh"
    yield "python recipes/multi30k.py DATA runs/multi30k"
    yield "python recipes/claims.py DATA runs/multi30k -o docs/multi30k.json && python docs/multi30k.py"
    yield "```"
    yield ""


def rows(*columns: str) -> Iterator[str]:
    """The head of a table."""
    yield "| " + " | ".join(columns) + " |"
    yield "|" + "---|" * len(columns)


def table(seeds: dict[str, list[Run]]) -> Iterator[str]:
    yield "## One table\n"
    yield from rows(
        "", "what the decoder gets of the source", "parameters", "BLEU, test 2016", "flickr 2017", "coco 2017",
        "minutes of a core", "target tokens a second of a core",
    )  # fmt: skip
    for name, runs in seeds.items():
        scores = [[run["bleu"][test] for run in runs] for test in TESTS]
        means = [f"{statistics.mean(one):.1f}" for one in scores]
        several = f" ({', '.join(f'{one:.1f}' for one in scores[0])})" if len(runs) > 1 else ""
        fastest = quickest(runs)
        cells = [
            f"`{name}`",
            runs[0]["about"],
            f"{runs[0]['parameters']:,}",
            f"**{means[0]}**{several}",
            *means[1:],
            f"{fastest['seconds'] / 60:.0f}",
            f"{fastest['tokens_per_second']:,.0f}",
        ]
        yield "| " + " | ".join(cells) + " |"
    yield ""
    yield (
        "In brackets: every seed. Minutes are those of a core, of the quickest seed: other work ran beside them."
        f" {', '.join(f'`{name}`' for name in ZEN5)} were timed on a Zen 5, the others on a Zen 4, which took"
        " 1.7 to 2.1 times as long for the same runs; their BLEU was the same on every test set."
    )
    yield f"{PUBLISHED}\n"


def quickest(runs: list[Run]) -> Run:
    return min(runs, key=lambda run: run["seconds"])


def time(seeds: dict[str, list[Run]]) -> Iterator[str]:
    yield "## How long until the same BLEU?\n"
    yield "BLEU of the first 500 validation pairs, greedily, as the training went on; minutes of a core:\n"
    yield from rows("", *(f"≥ {goal}" for goal in GOALS))
    for name in TIMED:
        if name in seeds:
            cells = [reached(quickest(seeds[name]), goal) for goal in GOALS]
            yield f"| `{name}` | {' | '.join(cells)} |"
    yield ""


def reached(run: Run, goal: float) -> str:
    points = [point for point in run["curve"] if point["bleu"] >= goal]
    return f"{points[0]['seconds'] / 60:.1f} min, step {points[0]['step']:,}" if points else "never"


def lengths(runs: dict[str, Run]) -> Iterator[str]:
    known = [name for name in SIDE_BY_SIDE if name in runs]
    pairs = sum(one["sentences"] for one in runs[known[0]]["lengths"])
    yield f"## The bottleneck: BLEU by the length of the source\n\nThe three test sets together, {pairs:,} pairs.\n"
    yield from rows("words", "pairs", *(f"`{name}`" for name in known))
    for number, one in enumerate(runs[known[0]]["lengths"]):
        low, high = one["words"]
        words = f"{low} to {high}" if high < 99 else f"{low} and more"
        cells = [score(runs[name]["lengths"][number]) for name in known]
        yield f"| {words} | {one['sentences']} | {' | '.join(cells)} |"
    yield ""


def score(one: dict[str, Any]) -> str:
    return f"{one['bleu']:.1f} ± {one['interval']:.1f}"


def recall(runs: dict[str, Run]) -> Iterator[str]:
    links = sum(part["of"] for part in next(iter(runs.values()))["recall"])
    yield "## What is lost on the way: recall of source words by their place\n"
    yield (
        f"Of {links:,} German words whose translation is in the reference, how many are translated so; by fifths"
        " of the sentence:\n"
    )
    yield from rows("", "first", "second", "third", "fourth", "last")
    for name in SIDE_BY_SIDE:
        if name in runs:
            yield f"| `{name}` | " + " | ".join(percent(one) for one in runs[name]["recall"]) + " |"
    yield ""


def percent(one: dict[str, Any]) -> str:
    low, high = one["interval"]
    return f"{one['share']:.1%} ± {(high - low) / 2:.1%}".replace("%", " %")


def diagonal(runs: dict[str, Run]) -> Iterator[str]:
    yield "## Attention follows the words where their order changes\n"
    yield (
        "Where a decoder looks most when it is about to write a linked word of the reference. Off the diagonal:"
        " more than a fifth of"
    )
    yield "the sentence away from the word's own place. A pair is reordered if two of its links cross.\n"
    found = {name: run["diagonal"] for name, run in runs.items() if "diagonal" in run}
    keys = list(next(iter(found.values()), {}))
    yield from rows("", *keys)
    for name, shares in found.items():
        cells = [f"{percent(shares[key])} of {shares[key]['of']:,}" for key in keys]
        yield f"| `{name}` | {' | '.join(cells)} |"
    yield ""


def longer(runs: dict[str, Run]) -> Iterator[str]:
    if "short-transformer" not in runs:
        return
    yield "## Sentences longer than any in training\n"
    yield "The two `short-` models were trained on pairs of at most 16 tokens a side, tags and ends included:\n"
    yield from rows("", "longer pairs", "the others")
    for name in LONGER:
        if name in runs:
            cells = [runs[name]["longer"][key] for key in ("longer", "others")]
            yield (
                f"| `{name}` | " + " | ".join(f"{score(c)} ({c['sentences']:,} pairs)" for c in cells) + " |"
            )
    yield ""


def drift(runs: dict[str, Run]) -> Iterator[str]:
    yield "## Drift: the loss behind a model's own tokens\n"
    yield (
        "Nats a token of the three test sets: behind the true tokens (teacher forcing), and behind those that"
        " the model found likeliest:\n"
    )
    yield from rows("", "true tokens", "own tokens", "drift")
    for name in DRIFT:
        if name in runs:
            one = runs[name]["drift"]
            yield f"| `{name}` | {one['true']:.2f} | {one['own']:.2f} | {one['own'] - one['true']:.2f} |"


if __name__ == "__main__":
    main()
