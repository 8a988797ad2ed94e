"""Translate: a model that writes a target from a source."""

import re
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from glassformer.errors import InputError
from glassformer.generation.beam import beam_search
from glassformer.generation.decode import generate
from glassformer.generation.options import Options
from glassformer.tasks.model import Model
from glassformer.tasks.translated import Translated

SENTENCE = re.compile(r"(?<=[.!?…])\s+")  # where one sentence ends and another begins
BATCH = 32  # sentences that are translated together


def tag(language: str) -> str:
    """The token before a source that says into which language it is translated."""
    return f"<to-{language}>"


class Translator(Model):
    """A model that translates a text, or writes another target from a source."""

    task: ClassVar[str] = "translate a text"

    @property
    def languages(self) -> list[str]:
        """The languages that it is told by a tag; none if it has a single direction."""
        special = {} if self.tokenizer is None else self.tokenizer.special
        return [token[4:-1] for token in special if token.startswith("<to-") and token.endswith(">")]

    def translate(self, text: str, *, to: str | None = None, **options: Any) -> Translated:
        """Translate one text; options are those of `Options`, by default the best of 4 beams."""
        return self.translate_many([text], to=to, **options)[0][0]

    def translate_many(
        self, texts: Iterable[str], *, to: str | None = None, split: bool = False, **options: Any
    ) -> list[list[Translated]]:
        """Translate several texts; of each the `num_return_sequences` best translations.

        With `split`, a text that is longer than the context is translated sentence by sentence.
        """
        texts = list(texts)
        if split:
            return [self._by_sentences(text, to, options) for text in texts]
        chosen = self.options(**options)
        sources = [self.encode_source(text, to=to) for text in texts]
        found: list[list[Translated]] = [[] for _ in texts]
        # Those of similar lengths together, so that little of a batch is padding.
        order = sorted(range(len(texts)), key=lambda number: len(sources[number]))
        for start in range(0, len(order), BATCH):
            group = order[start : start + BATCH]
            written = self._write([sources[number] for number in group], chosen)
            for number, answers in zip(group, written, strict=True):
                found[number] = [
                    Translated(
                        texts[number], self.text_of(tokens), sources[number], tokens, score, finish, self
                    )
                    for tokens, score, finish in answers
                ]
        return found

    def _by_sentences(self, text: str, to: str | None, options: dict[str, Any]) -> list[Translated]:
        """A long text, sentence by sentence; the best translations are joined, then the second best, …"""
        sentences = [one for one in SENTENCE.split(text.strip()) if one]
        found = self.translate_many(sentences, to=to, **options)
        joined = []
        for parts in zip(*found, strict=True):
            whole = " ".join(part.text for part in parts)
            tokens = [id for part in parts for id in part.tokens]
            sources = [id for part in parts for id in part.source_tokens]
            score = sum(part.score for part in parts)
            reasons = {part.finish_reason for part in parts}
            joined.append(Translated(text, whole, sources, tokens, score, max(reasons, key=len), self))
        return joined

    def options(self, **given: Any) -> Options:
        """The options of a translation: what is given, else the model's own, else 4 beams."""
        usual = {"num_beams": 4, "do_sample": False, "max_new_tokens": 128}
        return Options(**usual | self.settings | given)

    def encode_source(self, text: str, *, to: str | None = None) -> list[int]:
        """A source as token ids: the tag of a language, the text, the end token."""
        if not text.strip():
            raise InputError("there is nothing to translate: the text is empty")
        if self.tokenizer is None or self.tokenizer.end is None:
            raise InputError(f"{self.name} has no vocabulary, so it cannot read text")
        known = self.languages
        if to is not None and to not in known:
            what = f"it translates to {', '.join(known)}" if known else "it has one direction and no tags"
            raise InputError(f"{self.name}: {to!r} is not a language of this model; {what}")
        if to is None and len(known) > 1:
            raise InputError(f"{self.name}: name the language to translate to, one of {', '.join(known)}")
        begin = [self.tokenizer.special[tag(to or known[0])]] if known else []
        ids = [*begin, *self.tokenizer.encode(text), self.tokenizer.end]
        context = self._load().context
        if context is not None and len(ids) > context:
            raise InputError(
                f"the text has {len(ids):,} tokens, {len(ids) - context:,} more than the model's context"
                f" of {context:,}"
            )
        return ids

    def _write(
        self, sources: Sequence[Sequence[int]], options: Options
    ) -> list[list[tuple[list[int], float, str]]]:
        """Tokens, score and end of the best targets of each source."""
        net = self._load()
        backend = self._torch_backend(net.given(sources))
        prompts = [[net.config.start]] * len(sources)
        how: dict[str, Any] = {"options": options, "ends": self.ends, "forbidden": {net.config.pad}}
        if options.num_beams > 1:
            beams = beam_search(backend, prompts, **how)
            return [[(list(beam.tokens), beam.score, beam.finish) for beam in found] for found in beams]

        each = options.num_return_sequences
        rows: list[tuple[list[int], float, str]] = [([], 0.0, "") for _ in range(each * len(sources))]
        for event in generate(backend, prompts, **how):
            at = event.prompt * each + event.choice
            tokens, score, _ = rows[at]
            if event.token is not None and event.logprob is not None:
                rows[at] = ([*tokens, event.token], score + event.logprob, "")
            if event.finish is not None:
                rows[at] = (*rows[at][:2], event.finish)
        return [rows[start : start + each] for start in range(0, len(rows), each)]
