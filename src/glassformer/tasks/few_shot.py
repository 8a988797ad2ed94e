"""Few-shot prompting: show a model some examples of a task in its prompt, then the question.

GPT-3's paper found that a large model continues the pattern without any training. Examples are separated by a
line end, as in the paper's figures; the ones nearest to the question count most, so the first are dropped
where not all fit.
"""

import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from glassformer.data.sources import find_files, read_texts
from glassformer.errors import InputError, counted
from glassformer.tasks.complete import LanguageModel


@dataclass(frozen=True)
class FewShot:
    """A prompt made of examples and a question."""

    prompt: str
    used: int
    dropped: int  # examples that did not fit the context
    room: int  # tokens that are left for the answer
    separator: str

    def summary(self) -> str:
        """What was dropped, in one sentence; empty if nothing was."""
        if not self.dropped:
            return ""
        count = self.used + self.dropped
        return f"{self.dropped} of {count} examples do not fit the context and were dropped, the first ones"


def read_examples(path: Path) -> list[str]:
    """The examples of a file: lines of JSON (prompt and completion), or a text with blank lines between."""
    examples: list[str] = []
    for file in find_files(path):
        texts = list(read_texts(file))
        if ".jsonl" not in file.suffixes:
            texts = [part for text in texts for part in re.split(r"\n\s*\n", text)]
        examples += [text.strip("\n") for text in texts if text.strip()]
    if not examples:
        raise InputError(f"{path}: holds no example")
    return examples


def few_shot(
    lm: LanguageModel, question: str, *, examples: Sequence[str], reserve: int = 0, separator: str = "\n"
) -> FewShot:
    """A prompt of as many examples as fit the context, the last ones, and the question.

    `reserve` is the number of tokens to keep free for the answer; 0 means a quarter of the context.
    """
    context = lm.backend.context
    if context is None:
        return FewShot(separator.join([*examples, question]), len(examples), 0, reserve or 256, separator)
    reserve = reserve or max(1, context // 4)

    def prompt(dropped: int) -> str:
        return separator.join([*examples[dropped:], question])

    def size(dropped: int) -> int:
        return len(lm.encode(prompt(dropped)))  # of the whole: tokens may merge across a separator

    # The fewest that must be dropped, by bisection: to try every number would take minutes for many examples.
    dropped = bisect_left(range(len(examples)), True, key=lambda dropped: size(dropped) + reserve <= context)
    if size(dropped) + reserve <= context:
        return FewShot(prompt(dropped), len(examples) - dropped, dropped, reserve, separator)
    raise InputError(
        f"the question alone has {counted(size(len(examples)), 'token')}"
        f" and {reserve:,} are reserved for the answer (-n), more than the context of {context:,}"
    )
