"""Write docs/multi30k.md from docs/multi30k.json, which recipes/claims.py measures.

python docs/multi30k.py
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PUBLISHED = "bentrevett/pytorch-seq2seq reports on the same data, by its own BLEU, 20.6 for a GRU, 28.3 with attention and 36.5 for a Transformer."
SIDE_BY_SIDE = ("last", "last-both", "mean", "additive-before", "dot-after", "both", "transformer")


def main() -> None:
    found = json.loads((HERE / "multi30k.json").read_text(encoding="utf-8"))
    parts = [
        heading(),
        table(found),
        time(found),
        lengths(found),
        recall(found),
        diagonal(found),
        longer(found),
        drift(found),
    ]
    text = "\n".join(line for part in parts for line in part)
    (HERE / "multi30k.md").write_text(text, encoding="utf-8")


def heading() -> Iterator[str]:
    yield "# German to English: last state, attention, Transformer"
    yield ""
    yield "Written by `docs/multi30k.py` from `docs/multi30k.json`. The models are those of `recipes/multi30k.py`, trained on the 29,000 pairs of"
    yield "Multi30k: recurrent networks of width 256 (`recipes/multi30k-gru.toml`) and a Transformer of 3 + 3 blocks of the same width"
    yield "(`recipes/multi30k-transformer.toml`); what is measured is in `recipes/claims.py`. BLEU is sacrebleu's, lower-cased, tokenized by 13a,"
    yield "with 4 beams. `±` is an interval of 95 %."
    yield ""
    yield "```sh"
    yield "python recipes/multi30k.py DATA runs/multi30k"
    yield "python recipes/claims.py DATA runs/multi30k -o docs/multi30k.json && python docs/multi30k.py"
    yield "```"
    yield ""


def table(found: dict[str, Any]) -> Iterator[str]:
    yield "## One table\n\n| | what the decoder gets of the source | parameters | BLEU, test 2016 | flickr 2017 | coco 2017 | minutes of a core | target tokens a second of a core |"
    yield "|---|---|---|---|---|---|---|---|"
    for row in found["table"]:
        runs = row["runs"]
        seeds = f" ({', '.join(f'{one:.1f}' for one in row['bleu'])})" if len(runs) > 1 else ""
        others = [
            mean([one["bleu"][test] for one in runs]) for test in ("test_2017_flickr", "test_2017_mscoco")
        ]
        fastest = quickest(runs)
        yield (
            f"| `{row['name']}` | {row['about']} | {runs[0]['parameters']:,} | **{row['mean']:.1f}**{seeds} |"
            f" {others[0]:.1f} | {others[1]:.1f} | {fastest['seconds'] / 60:.0f} |"
            f" {fastest['tokens_per_second']:,.0f} |"
        )
    yield f"\nIn brackets: three seeds. Minutes are those of a core, of the quickest seed: other work ran beside some. {PUBLISHED}\n"


def quickest(runs: list[dict[str, Any]]) -> dict[str, Any]:
    return min(runs, key=lambda run: run["seconds"])


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def time(found: dict[str, Any]) -> Iterator[str]:
    rows = {row["name"]: quickest(row["runs"]) for row in found["table"]}
    if not {"additive-before", "transformer"} <= rows.keys():
        return
    yield "## How long until the same BLEU?\n"
    yield "BLEU of the first 500 validation pairs, greedily, as the training went on; minutes of a core:\n"
    yield "| | " + " | ".join(f"≥ {goal}" for goal in (15, 20, 25, 30, 33)) + " |\n|---|" + "---|" * 5
    for name in ("last", "additive-before", "transformer"):
        cells = [reached(rows[name], goal) for goal in (15, 20, 25, 30, 33)]
        yield f"| `{name}` | {' | '.join(cells)} |"
    yield ""


def reached(run: dict[str, Any], goal: float) -> str:
    points = [point for point in run["curve"] if point["bleu"] >= goal]
    return f"{points[0]['seconds'] / 60:.1f} min, step {points[0]['step']:,}" if points else "never"


def lengths(found: dict[str, Any]) -> Iterator[str]:
    known = [name for name in SIDE_BY_SIDE if name in found["lengths"]]
    yield f"## The bottleneck: BLEU by the length of the source\n\nThe three test sets together, {found['pairs']:,} pairs.\n"
    bins = found["lengths"][known[0]]
    yield (
        "| words | pairs | "
        + " | ".join(f"`{name}`" for name in known)
        + " |\n|---|---|"
        + "---|" * len(known)
    )
    for number, one in enumerate(bins):
        low, high = one["words"]
        cells = [found["lengths"][name][number] for name in known]
        words = f"{low} to {high}" if high < 99 else f"{low} and more"
        yield (
            f"| {words} | {one['sentences']} | "
            + " | ".join(f"{c['bleu']:.1f} ± {c['interval']:.1f}" for c in cells)
            + " |"
        )
    yield ""


def recall(found: dict[str, Any]) -> Iterator[str]:
    known = [name for name in SIDE_BY_SIDE if name in found["recall"]]
    yield "## What is lost on the way: recall of source words by their place\n"
    yield f"Of {found['links']:,} German words whose translation is in the reference, how many are translated so; by fifths of the sentence:\n"
    yield "| | first | second | third | fourth | last |\n|---|---|---|---|---|---|"
    for name in known:
        yield f"| `{name}` | " + " | ".join(percent(one) for one in found["recall"][name]) + " |"
    yield ""


def percent(one: dict[str, Any]) -> str:
    low, high = one["interval"]
    return f"{one['share']:.1%} ± {(high - low) / 2:.1%}".replace("%", " %")


def diagonal(found: dict[str, Any]) -> Iterator[str]:
    yield "## Attention follows the words where their order changes\n"
    yield "Where a decoder looks most when it is about to write a linked word of the reference. Off the diagonal: more than a fifth of"
    yield "the sentence away from the word's own place. A pair is reordered if two of its links cross.\n"
    keys = list(next(iter(found["diagonal"].values())))
    yield "| | " + " | ".join(keys) + " |\n|---|" + "---|" * len(keys)
    for name, shares in found["diagonal"].items():
        yield (
            f"| `{name}` | "
            + " | ".join(f"{percent(shares[key])} of {shares[key]['of']:,}" for key in keys)
            + " |"
        )
    yield ""


def longer(found: dict[str, Any]) -> Iterator[str]:
    if "longer" not in found:
        return
    yield "## Sentences longer than any in training\n"
    yield "The two `short-` models were trained on pairs of at most 16 tokens a side, tags and ends included:\n"
    yield "| | longer pairs | the others |\n|---|---|---|"
    for name in ("additive-before", "short-additive-before", "transformer", "short-transformer"):
        if name in found["longer"]:
            cells = [found["longer"][name][key] for key in ("longer", "others")]
            yield (
                f"| `{name}` | "
                + " | ".join(
                    f"{c['bleu']:.1f} ± {c['interval']:.1f} ({c['sentences']:,} pairs)" for c in cells
                )
                + " |"
            )
    yield ""


def drift(found: dict[str, Any]) -> Iterator[str]:
    yield "## Drift: the loss behind a model's own tokens\n"
    yield "Nats a token of the three test sets: behind the true tokens (teacher forcing), and behind those that the model found likeliest:\n"
    yield "| | true tokens | own tokens | drift |\n|---|---|---|---|"
    for name, one in found["drift"].items():
        yield f"| `{name}` | {one['true']:.2f} | {one['own']:.2f} | {one['own'] - one['true']:.2f} |"
    yield ""


if __name__ == "__main__":
    main()
