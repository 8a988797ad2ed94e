"""Summarize: a text, the tag `<summarize>`, and behind it the summary; or without training, behind "TL;DR:".

A text that does not fit the context is cut: its beginning is kept, and room is left for tag and summary.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from glassformer.data.pairs import Pair
from glassformer.data.sequences import Room, Written, cut_source, write_summary
from glassformer.errors import InputError
from glassformer.generation.options import Options
from glassformer.tasks.explained import Explained
from glassformer.tasks.tags import SUMMARIZE, tag_ids
from glassformer.tasks.writing import Target, write_targets

if TYPE_CHECKING:
    from glassformer.answers.alignment import Alignment
    from glassformer.answers.answer import Text
    from glassformer.tasks.complete import LanguageModel

BEAMS, LONGEST = 4, 64  # beams and tokens of a summary, for a model that recommends no other
# As in GPT-2's paper: behind this text 100 tokens are drawn from the 2 likeliest, and 3 sentences kept.
TL_DR, SENTENCES = "\nTL;DR:", 3
ZERO_SHOT: dict[str, Any] = {"top_k": 2, "temperature": 1.0, "do_sample": True, "max_new_tokens": 100}
SENTENCE = re.compile(r"(?<=[.!?…])\s+")  # where one sentence ends and another begins
MEMORY = 1 << 28  # bytes of a cache for texts that are summarized together
BATCH = 32  # texts that are summarized together, at most
Progress = Callable[[int, int], object]


@dataclass
class Summary(Explained):
    """A summary, how much of the text it was written from, and what one can ask about it.

    Positions count over the text, its tag and the summary together.
    """

    source: str
    text: str
    prompt_tokens: list[int]  # those of the text that were read, and the tag
    tokens: list[int]
    score: float
    finish_reason: str
    left_out: int  # tokens at the end of the text that were cut off
    model: "LanguageModel" = field(repr=False)

    def __str__(self) -> str:
        return self.text

    def to_dict(self) -> dict[str, Any]:
        """Everything, as plain data."""
        return {name: value for name, value in vars(self).items() if name != "model"}

    @property
    def cut(self) -> str:
        """What was cut off, in one sentence; empty if nothing was."""
        if not self.left_out:
            return ""
        whole = len(self.model.encode(self.source))
        return f"the text has {whole:,} tokens; the first {whole - self.left_out:,} were read, the rest cut"

    def alignment(
        self, layer: int | None = None, head: int | None = None, *, by_word: bool = False
    ) -> "Alignment":
        """Which tokens of the text each token of the summary looked at; saliency beside it."""
        then = min(self.model.ends) if self.finish_reason == "stop" and self.model.ends else None
        found: Alignment = self._ask("alignment", layer=layer, head=head, by_word=by_word, then=then)
        return found

    def _text(self) -> "Text":
        from glassformer.answers.answer import Text  # here: summarizing needs no answers, and starts faster

        return Text(self.model, [*self.prompt_tokens, *self.tokens], len(self.prompt_tokens))


def summarize_many(
    lm: "LanguageModel",
    texts: Sequence[str],
    *,
    zero_shot: bool = False,
    progress: Progress = lambda done, total: None,
    **given: Any,
) -> list[Summary]:
    """The best summary of each text, in order; options are those of `Options`.

    With `zero_shot`, any language model tries, as in GPT-2's paper.
    """
    behind = _behind(lm, zero_shot=zero_shot)
    usual = ZERO_SHOT if zero_shot else _usual(lm)
    options = Options(**usual | given | {"num_return_sequences": 1})
    prompts, left_out = [], []
    for number, text in enumerate(texts, 1):
        if not text.strip():
            which = f" of {len(texts)}, number {number}," if len(texts) > 1 else ""
            raise InputError(f"there is nothing to summarize: the text{which} is empty")
        kept, left = cut_source(
            lm.encode(text), context=lm.backend.context, room=options.max_new_tokens, behind=len(behind)
        )
        prompts.append([*kept, *behind])
        left_out.append(left)

    found: dict[int, Summary] = {}
    for group in _groups(lm, prompts, options):
        forbidden = frozenset() if lm.tokenizer is None else tag_ids(lm.tokenizer)
        how: dict[str, Any] = {"options": options, "ends": lm.ends, "forbidden": forbidden}
        for number, (target, *_) in zip(
            group, write_targets(lm.backend, [prompts[one] for one in group], **how), strict=True
        ):
            text = _read(lm, target, after=prompts[number][-1], zero_shot=zero_shot)
            about = (prompts[number], *target, left_out[number])
            found[number] = Summary(texts[number], text, *about, model=lm)
        progress(len(found), len(texts))
    return [found[number] for number in range(len(texts))]


def room_of(lm: "LanguageModel") -> Room:
    """What a pair is cut to, in a training and in use."""
    return Room(lm.backend.context, Options(**_usual(lm)).max_new_tokens)


def encode_pair(lm: "LanguageModel", pair: Pair) -> Written:
    """A text and its summary as the one sequence that they are in a training, cut by the same rule."""
    (behind,) = _behind(lm, zero_shot=False)
    end = None if lm.tokenizer is None else lm.tokenizer.end
    source, target = lm.encode(pair.source), lm.encode(pair.target)
    return write_summary(source, target, tag=behind, end=end, **room_of(lm)._asdict()).row


def first_sentences(text: str, count: int = 1) -> str:
    """The first sentences of a text; one is the simplest summary to compare with."""
    return " ".join(SENTENCE.split(text.strip())[:count])


def can_summarize(lm: Any) -> bool:
    """Whether a model was trained to summarize: its vocabulary has the tag."""
    return "summarizes" in lm.capabilities


def _behind(lm: "LanguageModel", *, zero_shot: bool) -> list[int]:
    """What asks for a summary, behind the text."""
    if zero_shot:
        return lm.encode(TL_DR)
    if not can_summarize(lm):
        raise InputError(
            f"{lm.name} cannot summarize a text: its vocabulary has no {SUMMARIZE};"
            f" `glass finetune {lm.name or 'MODEL'} --task summarize --data PAIRS` makes a model that can,"
            " and zero-shot (--zero-shot) lets any language model try"
        )
    assert lm.tokenizer is not None
    return [lm.tokenizer.special[SUMMARIZE]]


def _usual(lm: "LanguageModel") -> dict[str, Any]:
    return {"num_beams": BEAMS, "do_sample": False, "max_new_tokens": LONGEST} | lm.settings


def _groups(lm: "LanguageModel", prompts: Sequence[Sequence[int]], options: Options) -> Iterator[list[int]]:
    """Texts of similar lengths, as many together as a cache of bounded size allows."""
    order = sorted(range(len(prompts)), key=lambda number: len(prompts[number]))
    while order:
        # From the longest on: the first of a group decides how much room each of it needs.
        length = len(prompts[order[-1]]) + options.max_new_tokens
        each = lm.backend.cache_size(2 * options.num_beams, length)
        count = max(1, min(BATCH, MEMORY // max(1, each)))
        yield order[-count:]
        del order[-count:]


def _read(lm: "LanguageModel", target: Target, *, after: int, zero_shot: bool) -> str:
    """The text of a summary."""
    text = lm.text_of(target.tokens, after=after).strip()
    return first_sentences(text, SENTENCES) if zero_shot else text
