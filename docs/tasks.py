"""Write the tables of docs/summarize.md and docs/classify.md from few-labels.json and transfer.json, and draw few-labels.svg.

    python docs/tasks.py

recipes/few_labels.py and recipes/transfer.py measure what is in these files: an entry a run, by its name. A page
keeps its table between two comments, `<!-- NAME -->` and `<!-- /NAME -->`.
"""

import json
import re
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from glassformer.figures.specs import curves, panels
from glassformer.figures.view import VERSION, View

HERE = Path(__file__).parent
SHARES = (1, 10, 100)  # percent of the summaries to learn from
SETS = {"scitldr": "SciTLDR", "wiki-lead": "leads of Wikipedia"}
WAYS = {
    "decoder": "pre-trained decoder",
    "encoder-decoder": "pre-trained encoder-decoder, 3 + 3 blocks",
    "both-whole": "pre-trained encoder-decoder, 6 + 6 blocks",
    "scratch": "decoder from scratch",
    "zero-shot": "pre-trained decoder, zero-shot",
}
SHORT = {
    "decoder": "decoder",
    "encoder-decoder": "3 + 3 blocks",
    "both-whole": "6 + 6 blocks",
    "scratch": "from scratch",
}
ROUGE = {"rouge1": "ROUGE-1", "rouge2": "ROUGE-2", "rougeL": "ROUGE-L"}
LEAD = "lead sentence, "
HEADED = {
    "tfidf": "TF-IDF and a linear model",
    "scratch": "from scratch",
    "pretrained": "pre-trained",
    "ulmfit": "ULM-FiT",
}

Runs = dict[str, dict[str, Any]]


def main(folder: Path = HERE) -> None:
    labels, tasks = (read(folder / f"{name}.json") for name in ("few-labels", "transfer"))
    replace(folder / "summarize.md", "few-labels", few_labels(labels))
    replace(folder / "summarize.md", "samples", samples(labels))
    replace(folder / "classify.md", "transfer", transfer(tasks))
    for theme, ending in (("light", ""), ("dark", "-dark")):
        picture(labels).save(folder / f"few-labels{ending}.svg", theme=theme)


def read(file: Path) -> Runs:
    """The entries of a file; none, where nothing was measured yet."""
    found: Runs = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    return found


def replace(file: Path, name: str, lines: Iterator[str]) -> None:
    """Put a table between the comments of its name."""
    begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
    made = "".join(f"{line}\n" for line in lines)
    text = re.sub(
        f"{begin}.*?{end}", lambda _: begin + made + end, file.read_text(encoding="utf-8"), flags=re.S
    )
    file.write_text(text, encoding="utf-8")


def few_labels(runs: Runs) -> Iterator[str]:
    """A row for each data set, way and share of the summaries."""
    if not runs:
        return
    yield "| | summaries | way | parameters | steps | validation loss | " + " | ".join(ROUGE.values()) + " |"
    yield "|---" * (6 + len(ROUGE)) + "|"
    for data, about in SETS.items():
        for share in (*SHARES, 0):
            for way, what in WAYS.items():
                found = seeds(runs, f"{data}-{way}-{share}")
                if found:
                    cells = [about, f"{share} %" if share else "none", what, f"{found[0]['parameters']:,}"]
                    cells.append(steps(found))
                    losses = [one["loss"] for one in found if "loss" in one]
                    scores = [spread([one["rouge"][name] for one in found]) for name in ROUGE]
                    yield "| " + " | ".join([*cells, spread(losses, 3), *scores]) + " |"
        yield from lead(runs, data, about)


def steps(found: list[dict[str, Any]]) -> str:
    """The steps of a training, with a mark where the loss was lowest at the last of them in every run."""
    if "steps" not in found[0]:
        return "–"
    last = all(run["curve"][-1]["loss"] == min(one["loss"] for one in run["curve"]) for run in found)
    counts = sorted({run["steps"] for run in found})
    return " to ".join(map(str, counts[:: max(1, len(counts) - 1)])) + (" †" if last else "")


ROUGE_L = "ROUGE-L of the test (higher is better)"
FIGURES: dict[str, Callable[[dict[str, Any]], float]] = {
    "validation loss, nats a token (lower is better)": lambda run: run["loss"],
    ROUGE_L: lambda run: run["rouge"]["rougeL"],
}


def picture(runs: Runs) -> View:
    """SciTLDR's validation loss and ROUGE-L by the share of its summaries."""
    found = {title: by_share(runs, figure) for title, figure in FIGURES.items()}
    level: Line
    for name, value in untrained(runs).items():
        level = [value] * len(SHARES)
        found[ROUGE_L][name] = (level, level, level)
    shares = [f"{share} %" for share in SHARES]
    parts = [
        curves(
            shares,
            {name: means for name, (means, *_) in lines.items()},
            spread={name: (low, high) for name, (_, low, high) in lines.items()},
            title=title,
            x_title="share of the summaries",
        )
        for title, lines in found.items()
    ]
    rows = [
        [title, name, *values]
        for title, lines in found.items()
        for name, line in lines.items()
        for values in zip(shares, *line, strict=True)
    ]
    about = {
        "view": VERSION,
        "title": "What pre-training is worth",
        "sentence": "Validation loss and ROUGE-L of each way, by the share of the summaries that it learned from.",
        "caption": "SciTLDR; a point is the mean of the seeds, its line goes from the lowest to the highest."
        " decoder: pre-trained; 3 + 3 blocks: the pre-trained encoder-decoder.",
        "table": {"columns": ["figure", "way", "summaries", "mean", "lowest", "highest"], "rows": rows},
    }
    return View(about | panels(parts))


Line = list[float | None]  # a value for each share; none where nothing was measured


def by_share(runs: Runs, figure: Callable[[dict[str, Any]], float]) -> dict[str, tuple[Line, Line, Line]]:
    """Of each way that was measured: the means of its seeds, the lowest and the highest."""
    lines = {}
    for way, name in SHORT.items():
        found = [[figure(run) for run in seeds(runs, f"scitldr-{way}-{share}")] for share in SHARES]
        means, low, high = (
            [of(values) if values else None for values in found] for of in (statistics.mean, min, max)
        )
        if any(found):
            lines[name] = (means, low, high)
    return lines


def untrained(runs: Runs) -> dict[str, float]:
    """ROUGE-L of what learned from no summary."""
    kept = {"zero-shot": "rougeL", "first sentence": f"{LEAD}rougeL"}
    return {
        name: run["rouge"][key] for run in seeds(runs, "scitldr-zero-shot-0") for name, key in kept.items()
    }


def lead(runs: Runs, data: str, about: str) -> Iterator[str]:
    """What the first sentence of every text is worth; the same in all runs on a data set."""
    found: dict[str, float] = next(
        (run["rouge"] for name, run in runs.items() if name.startswith(f"{data}-")), {}
    )
    if found:
        scores = " | ".join(f"{found[f'{LEAD}{name}']:.1f}" for name in ROUGE)
        yield f"| {about} | none | the text's first sentence | – | – | – | {scores} |"


def samples(runs: Runs) -> Iterator[str]:
    """What each way writes for the first texts of SciTLDR's test, of the largest share that was measured."""
    kept = {name: run for name, run in runs.items() if run.get("samples")}
    lines = []
    for way, what in WAYS.items():
        found = (seeds(kept, f"scitldr-{way}-{share}") for share in (*reversed(SHARES), 0))
        run = next((listed[0] for listed in found if listed), None)
        if run is not None:
            share = f"{run['share']} %" if "share" in run else "none"
            lines += [
                f"| {number} | {what} | {share} | {text} |"
                for number, text in enumerate(map(cell, run["samples"]), 1)
            ]
    if lines:
        yield "| abstract | way | summaries | written |"
        yield "|---|---|---|---|"
        yield from sorted(lines, key=lambda line: line.split("|")[1])


def cell(text: str) -> str:
    """A text as a cell of a table."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def transfer(runs: Runs) -> Iterator[str]:
    """A row for each task, with the figure that it is known by, and a column for each way."""
    if not runs:
        return
    yield "| | metric | " + " | ".join(HEADED.values()) + " |"
    yield "|---" * (2 + len(HEADED)) + "|"
    for task in dict.fromkeys(name.partition("-")[0] for name in runs):
        found = {way: seeds(runs, f"{task}-{way}") for way in HEADED}
        one = next(run for listed in found.values() for run in listed)
        metric = one["metric"]
        cells = [spread([run["figures"][metric] for run in listed], 3) for listed in found.values()]
        yield f"| {one['about']} | {metric} | " + " | ".join(cells) + " |"


def seeds(runs: Runs, name: str) -> list[dict[str, Any]]:
    """The runs of a name, one for each seed."""
    return [run for key, run in runs.items() if re.fullmatch(rf"{re.escape(name)}-\d+", key)]


def spread(values: list[float], digits: int = 1) -> str:
    """The mean, and the standard deviation of several."""
    if not values:
        return "–"
    mean = f"{statistics.mean(values):.{digits}f}"
    return f"{mean} ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else mean


if __name__ == "__main__":
    main()
