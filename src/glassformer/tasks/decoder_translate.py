"""Translate with a decoder alone: the source, the tag of a language, and behind it the translation."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from glassformer.data.pairs import Pair
from glassformer.data.sequences import Written, write
from glassformer.errors import InputError
from glassformer.generation.options import Options
from glassformer.tasks.complete import LanguageModel
from glassformer.tasks.tags import languages_of, tag, tag_ids
from glassformer.tasks.translate import SPLIT, Translator
from glassformer.tasks.translated import Translated, TranslatedByDecoder
from glassformer.tasks.writing import Target, write_targets

if TYPE_CHECKING:
    from glassformer.explain.edits import EditSession


class DecoderTranslator(LanguageModel, Translator):
    """A language model whose vocabulary has tags of languages: `I am a student <to-fr> je suis étudiant`.

    It still continues a text. `options` are those of that, `translation_options` those of a translation.
    """

    task: ClassVar[str] = Translator.task
    made_by: ClassVar[str] = Translator.made_by
    verbs: ClassVar[tuple[str, ...]] = (*Translator.verbs, *LanguageModel.verbs)

    @property
    def languages(self) -> list[str]:
        """The languages that a tag can name."""
        return languages_of(self._vocabulary().special)

    @property
    def never_written(self) -> frozenset[int]:
        """The tokens that are no part of any translation: tags."""
        return tag_ids(self._vocabulary())

    def encode_target(self, text: str) -> list[int]:
        """A target as token ids: the text and the end token."""
        tokenizer = self._vocabulary()
        if tokenizer.end is None:
            raise InputError(f"{self.name}: its vocabulary has no token that ends a text")
        return [*tokenizer.encode(text), tokenizer.end]

    def encode_pair(self, pair: Pair, *, to: str | None = None) -> Written:
        """A pair as the one sequence that it is in a training."""
        *source, direction = self.encode_source(pair.source, to=to)
        *target, end = self.encode_target(pair.target)
        written = write(source, target, tag=direction, end=end)
        context = self.backend.context
        excess = 0 if context is None else len(written.ids) - 1 - context  # the last one is only predicted
        if excess > 0:
            raise InputError(
                f"source, tag and target have {len(written.ids):,} tokens, {excess:,} more than the model's"
                " context allows"
            )
        return written

    def direction(self, to: str | None) -> list[int]:
        """The tag of the language to translate to; a language that the model lacks is refused."""
        known = self.languages
        if to is not None and to not in known:
            raise InputError(
                f"{self.name}: {to!r} is not a language of this model; it translates to {', '.join(known)}"
            )
        if to is None and len(known) > 1:
            raise InputError(f"{self.name}: name the language to translate to, one of {', '.join(known)}")
        return [self._vocabulary().special[tag(to or known[0])]]

    def _source_ids(self, text: str, to: str | None) -> list[int]:
        """The source and its tag, behind which the translation is written."""
        return [*self._vocabulary().encode(text), *self.direction(to)]

    def _excess(self, ids: Sequence[int]) -> int:
        """How many of these ids are too many: half of the context is the translation's."""
        context = self.backend.context
        return 0 if context is None else max(0, len(ids) - max(1, context // 2))

    def _too_long(self, ids: Sequence[int], excess: int, *, split: bool) -> InputError:
        return InputError(
            f"{'a single sentence' if split else 'the text'} has {len(ids):,} tokens with its tag, {excess:,}"
            f" more than half of the context, and the other half is for its translation;"
            f" shorten it{SPLIT[split]}"
        )

    def _translated(
        self, text: str, source: list[int], *, target: Target, session: "EditSession | None"
    ) -> Translated:
        tokens, score, finish = target
        written = self.text_of(tokens)
        return TranslatedByDecoder(text, written, source, tokens, score, finish, self, session)

    def _write(
        self, sources: Sequence[Sequence[int]], options: Options, session: "EditSession | None"
    ) -> list[list[Target]]:
        """The best targets of each source, by the backend that generates; with edits, by torch."""
        backend = self.backend if session is None else self._torch_backend(session=session)
        how: dict[str, Any] = {"ends": self.ends, "forbidden": self.never_written}
        return write_targets(backend, sources, options=options, **how)
