"""Write the tables of docs/summarize.md and docs/classify.md from few-labels.json and transfer.json.

    python docs/tasks.py

recipes/few_labels.py and recipes/transfer.py measure what is in these files: an entry a run, by its name. A page
keeps its table between two comments, `<!-- NAME -->` and `<!-- /NAME -->`.
"""

import json
import re
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SETS = {"scitldr": "SciTLDR", "wiki-lead": "leads of Wikipedia"}
WAYS = {
    "decoder": "pre-trained decoder",
    "encoder-decoder": "pre-trained encoder-decoder, 3 + 3 blocks",
    "both-whole": "pre-trained encoder-decoder, 6 + 6 blocks",
    "scratch": "decoder from scratch",
    "zero-shot": "pre-trained decoder, zero-shot",
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


def main() -> None:
    replace("summarize.md", "few-labels", few_labels(read("few-labels.json")))
    replace("classify.md", "transfer", transfer(read("transfer.json")))


def read(name: str) -> Runs:
    """The entries of a file; none, where nothing was measured yet."""
    file = HERE / name
    found: Runs = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    return found


def replace(page: str, name: str, lines: Iterator[str]) -> None:
    """Put a table between the comments of its name."""
    file = HERE / page
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
    yield "| | summaries | way | parameters | validation loss | " + " | ".join(ROUGE.values()) + " |"
    yield "|---" * (5 + len(ROUGE)) + "|"
    for data, about in SETS.items():
        for share in (1, 10, 100, 0):
            for way, what in WAYS.items():
                found = seeds(runs, f"{data}-{way}-{share}")
                if found:
                    cells = [about, f"{share} %" if share else "none", what, f"{found[0]['parameters']:,}"]
                    losses = [one["loss"] for one in found if "loss" in one]
                    scores = [spread([one["rouge"][name] for one in found]) for name in ROUGE]
                    yield "| " + " | ".join([*cells, spread(losses, 3), *scores]) + " |"
        yield from lead(runs, data, about)


def lead(runs: Runs, data: str, about: str) -> Iterator[str]:
    """What the first sentence of every text is worth; the same in all runs on a data set."""
    found: dict[str, float] = next(
        (run["rouge"] for name, run in runs.items() if name.startswith(f"{data}-")), {}
    )
    if found:
        scores = " | ".join(f"{found[f'{LEAD}{name}']:.1f}" for name in ROUGE)
        yield f"| {about} | none | the text's first sentence | – | – | {scores} |"


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
