"""LAMBADA and WikiText-2 beside published figures, for a model whose figures are known.

The figures are those of the plain protocols that `tasks/evaluate.py` follows. The paper's own (LAMBADA
45.99 % and 35.13, WikiText-2 29.41) come from detokenizers and a stop-word filter that were not published.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from glassformer.answers.answer import Progress
from glassformer.answers.verification import Check
from glassformer.durable import hash_file
from glassformer.hub.families import family
from glassformer.hub.folder import WEIGHTS
from glassformer.hub.known import KNOWN
from glassformer.tasks.complete import LanguageModel
from glassformer.tasks.evaluate import lambada, wikitext2
from glassformer.waiting import report

LIMIT = 0.01  # of the figure, which has three digits
PASSAGES, CHARACTERS = 50, 20_000  # that a mutant reads; it is far off already there
PROBE = "Hello world"
ACCURACY = "LAMBADA accuracy"
PERPLEXITY = "LAMBADA perplexity"
SEPARATE = "WikiText-2 perplexity, no overlap"
OVERLAPPING = "WikiText-2 perplexity, stride 512"


@dataclass(frozen=True)
class Published:
    """A published model: its sizes, the ids of PROBE, the sha256 of its weights, its figures."""

    config: Any
    probe: list[int]
    sha256: str
    figures: dict[str, float]
    stride: int = 512


PUBLISHED = {
    "gpt2": Published(
        config=family("gpt2").presets["gpt2"],
        probe=[15496, 995],
        sha256=KNOWN["gpt2"].sha256,
        figures={ACCURACY: 0.326, PERPLEXITY: 40.1, SEPARATE: 29.9, OVERLAPPING: 25.2},
    )
}


def find_published(lm: LanguageModel) -> Published | None:
    """The published model that has the sizes and the vocabulary of this one."""
    if lm.tokenizer is None:
        return None
    mine = replace(lm.net.config, dropout=0.0), lm.encode(PROBE)
    return next((one for one in PUBLISHED.values() if (one.config, one.probe) == mine), None)


def figures(
    lm: LanguageModel, found: Published, *, folder: Path, files: dict[str, Path], progress: Progress = report
) -> Iterator[Check]:
    """Each figure as torch measures it here, beside the published one; `files` are the data sets by name."""
    file = folder / WEIGHTS
    other_weights = not file.is_file() or hash_file(file) != found.sha256  # fine-tuned, or stored anew
    for name, measure in (("lambada", on_lambada), ("wikitext2", on_wikitext2)):
        with lm.in_torch():
            ours = measure(lm, files[name], stride=found.stride, progress=progress)
        with lm.edit([{"site": "blocks.0.attn", "do": "zero"}]):
            wrong = measure(lm, files[name], stride=found.stride, part=True)
        for figure, value in ours.items():
            right = found.figures[figure]
            yield Check(
                name=figure,
                compared=f"{value:.4g} here, {right:.4g} published",
                unit="of the published",
                measured=abs(value / right - 1),
                limit=LIMIT,
                mutant="without its first attention, on a part",
                mutant_measured=abs(wrong[figure] / right - 1),
                other_weights=other_weights,
            )


def on_lambada(
    lm: LanguageModel, path: Path, *, stride: int, part: bool = False, progress: Progress = report
) -> dict[str, float]:
    """LAMBADA's figures, of all passages or of the first ones."""
    documents = PASSAGES if part else 0
    one = lambada(lm, path, documents=documents, progress=progress)
    assert one.accuracy is not None
    return {ACCURACY: one.accuracy, PERPLEXITY: one.perplexity}


def on_wikitext2(
    lm: LanguageModel, path: Path, *, stride: int, part: bool = False, progress: Progress = report
) -> dict[str, float]:
    """WikiText-2's figures, of the whole test set or of its beginning."""
    characters = CHARACTERS if part else 0
    separate, overlapping = wikitext2(lm, path, stride=stride, characters=characters, progress=progress)
    return {SEPARATE: separate.perplexity, OVERLAPPING: overlapping.perplexity}
