"""Translate: a model that writes a target from a source."""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from glassformer.errors import InputError
from glassformer.generation.options import Options
from glassformer.tasks.model import Model
from glassformer.tasks.options import check_options, plain_names
from glassformer.tasks.tags import languages_of, tag
from glassformer.tasks.translated import Translated
from glassformer.tasks.writing import Target, write_targets
from glassformer.tokenizers.tokenizer import source_tokenizer

if TYPE_CHECKING:
    from collections.abc import Callable

    from glassformer.answers.ablation import HeadAblation
    from glassformer.answers.answer import Progress
    from glassformer.answers.edits import Edits
    from glassformer.data.pairs import Pair
    from glassformer.explain.edits import EditSession
    from glassformer.explain.reading import Reading

SENTENCE = re.compile(r"(?<=[.!?…])\s+")  # where one sentence ends and another begins
BATCH = 32  # sentences that are translated together


# What else to do with a text that is too long, unless it was split already.
SPLIT = {False: ", or have it split into sentences (--split; split=True in Python)", True: ""}


class Translator(Model):
    """A model that translates a text, or writes another target from a source."""

    task: ClassVar[str] = "translate a text"
    verbs: ClassVar[tuple[str, ...]] = ("translate",)
    made_by: ClassVar[str] = (
        "translator, which ships, can; `glass train --kind transformer --data PAIRS` makes another, and so"
        " does --task translate"
    )

    @property
    def languages(self) -> list[str]:
        """The languages that a tag before the source can name; none if it has a single direction."""
        special = {} if self.tokenizer is None else source_tokenizer(self.tokenizer).special
        found = (re.fullmatch(r"<to-(.+)>|>>(.+)<<", token) for token in special)
        return [one[1] or one[2] for one in found if one is not None]

    def translate(
        self,
        text: str,
        *,
        to: str | None = None,
        split: bool = False,
        edits: "Edits | None" = None,
        **options: Any,
    ) -> Translated:
        """Translate one text; options are those of `Options`, by default the best of 4 beams.

        `edits` are a list, or a file that holds one; they are for this call alone.
        """
        return self.translate_many([text], to=to, split=split, edits=edits, **options)[0][0]

    def translate_many(
        self,
        texts: Iterable[str],
        *,
        to: str | None = None,
        split: bool = False,
        edits: "Edits | None" = None,
        cut: bool = False,
        **options: Any,
    ) -> list[list[Translated]]:
        """Translate several texts; of each the `num_return_sequences` best translations.

        With `split`, a text that is longer than the context is translated sentence by sentence; with `cut`,
        its beginning alone, as suits a summary.
        """
        if isinstance(texts, str):
            raise InputError("texts: a list of texts, not one; `translate` takes one")
        texts = list(texts)
        for number, text in enumerate(texts, 1):
            if not isinstance(text, str):
                raise InputError(
                    f"text {number} is no text but {type(text).__name__}; translate_many takes a list"
                )
            if not text.strip():
                which = f"text {number} of {len(texts)}" if len(texts) > 1 else "the text"
                raise InputError(f"there is nothing to translate: {which} is empty")
        parts = [self.sentences(text, to=to) if split else [text] for text in texts]
        each = [part for several in parts for part in several]
        chosen = self.translation_options(**options)
        sources = [self.encode_source(part, to=to, cut=cut, split=split) for part in each]
        session = None if edits is None else self._session(edits, read=partial(self.reading_of, to=to))
        found = iter(self._translate_each(each, sources, options=chosen, session=session))
        if session is not None:
            session.finish()
        how = {"to": to, "split": split, "cut": cut, **options}
        return [
            [replace(one, how=how) for one in _joined(text, [next(found) for _ in several])]
            for text, several in zip(texts, parts, strict=True)
        ]

    @contextmanager
    def edit(
        self,
        edits: "Edits",
        *,
        to: str | None = None,
        read: "Callable[[str], Reading] | None" = None,
    ) -> "Iterator[Translator]":
        """As of every model; texts that edits name are sources, translated to the language `to`."""
        with super().edit(edits, read=read or partial(self.reading_of, to=to)):
            yield self

    def reading_of(self, text: str, *, to: str | None = None) -> "Reading":
        """A source that an edit names, beside the model's own translation of it, the likeliest words."""
        return self.translate(text, to=to, num_beams=1, num_return_sequences=1, do_sample=False).reading()

    def _translate_each(
        self,
        texts: Sequence[str],
        sources: Sequence[list[int]],
        *,
        options: Options,
        session: "EditSession | None",
    ) -> list[list[Translated]]:
        """Translate texts that fit the context."""
        found: list[list[Translated]] = [[] for _ in texts]
        # Those of similar lengths together, so that little of a batch is padding.
        order = sorted(range(len(texts)), key=lambda number: len(sources[number]))
        for start in range(0, len(order), BATCH):
            group = order[start : start + BATCH]
            written = self._write([sources[number] for number in group], options, session)
            for number, answers in zip(group, written, strict=True):
                about = texts[number], sources[number]
                found[number] = [
                    self._translated(*about, target=target, session=session) for target in answers
                ]
        return found

    def _translated(
        self, text: str, source: list[int], *, target: Target, session: "EditSession | None"
    ) -> Translated:
        """What was written from a source, as a result that can be asked."""
        tokens, score, finish = target
        return Translated(text, self.text_of(tokens), source, tokens, score, finish, self, session)

    def ablate_heads(
        self,
        pairs: "Iterable[Pair | tuple[str, str]]",
        *,
        metric: str = "bleu",
        to: str | None = None,
        lowercase: bool = False,
        progress: "Progress" = lambda done, total: None,
        **options: Any,
    ) -> "HeadAblation":
        """BLEU (or chrF) of pairs without each head of encoder and decoder, one at a time.

        Options are those of `translate`; by default a translation takes the likeliest token in each step.
        """
        from glassformer.tasks.evaluate_pairs import ablate_heads  # there are sacrebleu and the pairs

        how = {"to": to, "lowercase": lowercase, "num_beams": 1, **options}
        return ablate_heads(self, pairs, metric=metric, progress=progress, **how)

    def options(self, **given: Any) -> Options:
        """The options of a translation: what is given, else the model's own, else 4 beams."""
        return self.translation_options(**given)

    def translation_options(self, **given: Any) -> Options:
        """The same, under a name that a model has which also continues text, with options of its own."""
        usual = {"num_beams": 4, "do_sample": False, "max_new_tokens": 128}
        return check_options(usual | self.settings | plain_names(given), others=("to", "split", "edits"))

    def sentences(self, text: str, *, to: str | None = None) -> list[str]:
        """The text alone, if it fits the context; else its sentences."""
        if not self._excess(self._source_ids(text, to)):
            return [text]
        return [one for one in SENTENCE.split(text.strip()) if one]

    def encode_source(
        self, text: str, *, to: str | None = None, cut: bool = False, split: bool = False
    ) -> list[int]:
        """A source as token ids: the tag of a language, the text, the end token; it may be `cut` to fit.

        `split`: it is a sentence of a text that was split.
        """
        if not text.strip():
            raise InputError("there is nothing to translate: the text is empty")
        ids = self._source_ids(text, to)
        excess = self._excess(ids)
        if excess and not cut:
            raise self._too_long(ids, excess, split=split)
        return [*ids[: -1 - excess], ids[-1]]  # what is cut is before the last token, an end or a tag

    def cut_of(self, text: str, written: Translated) -> str:
        """What was cut off a text before it was read, in one sentence; empty if nothing was."""
        whole, read = len(self._source_ids(text, None)), len(written.source_tokens)
        return "" if read == whole else f"the text has {whole:,} tokens; {read:,} were read, the rest cut"

    def is_too_long(self, text: str, *, to: str | None = None) -> bool:
        """Whether a source does not fit the context, so that it is cut or refused."""
        return self._excess(self._source_ids(text, to)) > 0

    def _too_long(self, ids: Sequence[int], excess: int, *, split: bool) -> InputError:
        return InputError(
            f"{'a single sentence' if split else 'the text'} has {len(ids):,} tokens, {excess:,} more than"
            f" the model's context of {len(ids) - excess:,}; shorten it{SPLIT[split]}"
        )

    def encode_target(self, text: str) -> list[int]:
        """A target as token ids: the start token, the text, the end token."""
        tokenizer = self._vocabulary()
        net = self._load()
        if tokenizer.end is None:
            raise InputError(f"{self.name}: its vocabulary has no token that ends a text")
        ids = [net.config.start, *tokenizer.encode(text), tokenizer.end]
        if excess := self._excess(ids[:-1]):  # the last one is only predicted
            raise InputError(
                f"the target has {len(ids):,} tokens, {excess:,} more than the model's context allows"
            )
        return ids

    def direction(self, to: str | None) -> list[int]:
        """The tag of the language to translate to, if the model has tags; a language it lacks is refused.

        Between two languages the text itself tells its own, so that none need be named: no tag is written.
        """
        known = self.languages
        if to is not None and to not in known:
            if not known:
                raise InputError(
                    f"{self.name} has one direction, so that no language is named: leave {to!r} out"
                )
            listed = ", ".join(known)
            raise InputError(
                f"{self.name}: {to!r} is not a language of this model; it translates to {listed}"
            )
        special = source_tokenizer(self._vocabulary()).special
        if not known or (to is None and len(known) == len(languages_of(special)) == 2):
            return []
        if to is None and len(known) > 1:
            raise InputError(f"{self.name}: name the language to translate to, one of {', '.join(known)}")
        language = to or known[0]
        return [special.get(tag(language), special.get(f">>{language}<<", 0))]

    def _source_ids(self, text: str, to: str | None) -> list[int]:
        tokenizer = None if self.tokenizer is None else source_tokenizer(self.tokenizer)
        if tokenizer is None or tokenizer.end is None:
            raise InputError(f"{self.name} has no vocabulary, so it cannot read text")
        coded = to is None and text.startswith(">>")  # a language named as users of Marian write it
        begin = [] if coded else self.direction(to)
        return [*begin, *tokenizer.encode(text), tokenizer.end]

    def _excess(self, ids: Sequence[int]) -> int:
        """How many of these ids are too many for the context."""
        context = self._load().context
        return 0 if context is None else max(0, len(ids) - context)

    def _write(
        self, sources: Sequence[Sequence[int]], options: Options, session: "EditSession | None"
    ) -> list[list[Target]]:
        """The best targets of each source."""
        net = self._load()
        backend = self._torch_backend(net.given(sources), session=session)
        prompts = [[net.config.start]] * len(sources)
        return write_targets(backend, prompts, options=options, ends=self.ends, forbidden=self.never_written)

    @property
    def never_written(self) -> frozenset[int]:
        """The tokens that are no part of any translation."""
        return frozenset({self._load().config.pad})


def _joined(text: str, parts: Sequence[list[Translated]]) -> list[Translated]:
    """The translations of a text from those of its sentences: the best of each, then the second best, …"""
    if len(parts) == 1:
        return parts[0]
    joined = []
    for chosen in zip(*parts, strict=True):
        whole = type(chosen[0])(
            source=text,
            text=" ".join(one.text.strip() for one in chosen),
            source_tokens=[id for one in chosen for id in one.source_tokens],
            tokens=[id for one in chosen for id in one.tokens],
            score=sum(one.score for one in chosen),
            finish_reason=next((one.finish_reason for one in chosen if one.finish_reason != "stop"), "stop"),
            model=chosen[0].model,
            session=chosen[0].session,
        )
        joined.append(whole)
    return joined
