"""What a model wrote from a source, which can be asked how it came about. Every answer is an `Answer`."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

from glassformer.answers import ask
from glassformer.errors import InputError
from glassformer.tasks.explained import Explained, Word, check_number

if TYPE_CHECKING:
    from glassformer.answers.alignment import Alignment
    from glassformer.answers.answer import Text
    from glassformer.answers.attention import FoundHeads
    from glassformer.answers.beams import Beams
    from glassformer.answers.edited import EditedTranslation
    from glassformer.answers.edits import Edits
    from glassformer.answers.journey import Journey
    from glassformer.answers.positions import Positions
    from glassformer.answers.saliency import Saliency
    from glassformer.answers.shapes import Shapes
    from glassformer.answers.targets import Targets
    from glassformer.answers.unroll import Unroll
    from glassformer.explain.edits import EditSession
    from glassformer.explain.reading import Reading
    from glassformer.tasks.translate import Translator

# Where two words may be: within the translation, within the source, or one in each.
PLACES: tuple[dict[str, str], ...] = ({}, {"stack": "encoder"}, {"part": "cross"})


@dataclass
class Translated(Explained):
    """One translation, best first if several were asked for, and what one can ask about it.

    Positions of the target count from its start token, those of the source from the tag of a language, if it
    has one. A question replays the translation once, as it was written: with the edits of the call.
    """

    source: str
    text: str
    source_tokens: list[int]
    tokens: list[int]
    score: float  # the sum of log-probabilities / length ** length_penalty
    finish_reason: str
    model: "Translator" = field(repr=False)
    session: "EditSession | None" = field(default=None, repr=False, compare=False)  # edits of the call
    how: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)  # its options

    def __str__(self) -> str:
        return self.text

    def to_dict(self) -> dict[str, Any]:
        """Everything, as plain data."""
        hidden = ("model", "session", "how")
        return {name: value for name, value in vars(self).items() if name not in hidden}

    def reading(self) -> "Reading":
        """Source and target, for explanations."""
        return self._text().reading()

    @contextmanager
    def replaying(self) -> Iterator[None]:
        """Inside, the model runs with the edits of the call that wrote this."""
        if self.session is None:
            yield
            return
        with self.model.lock, self.session:
            yield

    def _ask(self, name: str, **how: Any) -> Any:
        with self.replaying():
            return super()._ask(name, **how)

    @property
    def _then(self) -> int | None:
        """The token behind the last one: the end token, where the model wrote it."""
        return min(self.model.ends) if self.finish_reason == "stop" else None

    def alignment(
        self, layer: int | None = None, head: int | None = None, *, by_word: bool = False
    ) -> "Alignment":
        """Which source tokens the decoder attended to when it wrote each token; saliency beside it.

        Without a layer or a head, their mean; a recurrent network has one pattern.
        """
        found: Alignment = self._ask("alignment", layer=layer, head=head, by_word=by_word, then=self._then)
        return found

    def beams(self, num_beams: int = 2, **options: Any) -> "Beams":
        """The search for a translation of the source, as a tree; options are those of `translate`."""
        found: Beams = self._ask(
            "beams",
            options=self.model.translation_options(num_beams=num_beams, **options),
            ends=self.model.ends,
            forbidden=self.model.never_written,
        )
        return found

    def unroll(self) -> "Unroll":
        """A recurrent network step by step: states, context vectors, and the words that it writes."""
        found: Unroll = self._ask("unroll", then=self._then)
        return found

    def shape(self) -> "Shapes":
        """A recurrent network unrolled over the source and this translation; `unroll` has its numbers."""
        from glassformer.answers.shapes import Example

        text = self._text()
        source, written = (
            text.source_text(),
            text.generated if self._then is None else [*text.generated, self._then],
        )
        example = Example(
            self.model.net,
            "the source is read, then the translation written",
            [source.ids, [*text.ids[:1], *written[:-1]]],
            source.labels,
            replace(text, ids=written, source=None).labels,
        )
        with self.model.lock:
            return cast("Shapes", ask("shapes", [example], model=self.model.name))

    def saliency(
        self, method: str = "grad_x_input", *, foil: Word | None = None, number: int | None = None, **how: Any
    ) -> "Saliency":
        """Which tokens of the source made each written one likely; or one alone, by its number.

        How: as of any saliency: `steps`, `by_word`, `tested`, `progress`.
        """
        if number is None:
            return super().saliency(method, foil=foil, **how)
        text = self._text()
        first = text.prompt + check_number(text, number)
        one = replace(text, ids=text.ids[: first + 1], prompt=first, logprobs=None, scores=None)
        with self.replaying():
            return cast("Saliency", ask("saliency", one, method=method, foil=foil, **how))

    def journey(self, number: int = 0) -> "Journey":
        """How the token of this number came about: through the encoder, then through the decoder."""
        found: Journey = self._ask("journey", number=number, then=self._then)
        return found

    def targets(self, target: str | None = None, *, also: Sequence[str] = (), seed: int = 0) -> "Targets":
        """One-hot rows of a target (this translation), and those that the model predicts, untrained too.

        `also` are more words of the small vocabulary that the rows are about, each as its first token.
        """
        text, then = self._text(), self._then
        if target is not None:
            given = text.ids[: text.prompt]
            text, then = replace(text, ids=[*given, *self.model.encode(target)]), min(self.model.ends)
        words = [self.model.encode(word)[0] for word in also if word]
        with self.replaying():
            return cast("Targets", ask("targets", text, vocabulary=words, then=then, seed=seed))

    def edited(self, edits: "Edits") -> "EditedTranslation":
        """This translation beside the one that the model writes with edits, by the same options."""
        other = self.model.translate(self.source, edits=edits, **self.how)
        found: EditedTranslation = self._ask(
            "edited",
            edits=edits,
            session=other.session,
            other=other._text(),
            then=self._then,
            other_then=other._then,
        )
        return found

    def positions(self, count: int = 64) -> "Positions":
        """The position vectors that a Transformer of this width adds to token vectors, in both layouts."""
        return cast("Positions", ask("positions", count=count, width=self.model.net.config.width))

    def number_of(self, word: str | int) -> int:
        """Which written token a word is (of several tokens, the last), or a number as it is."""
        from glassformer.answers.answer import Text

        return Text(self.model, self.tokens).position(word)

    def find_heads(self, source: Word, target: Word, *, k: int = 10, **where: str) -> "FoundHeads":
        """Which heads attend from one word to another; if no stack is named, in one that has both."""
        named = where.get("stack") or where.get("part", "attn") != "attn"
        return super().find_heads(source, target, k=k, **where if named else self._place_of(source, target))

    def _place_of(self, source: Word, target: Word) -> dict[str, str]:
        text = self._text()
        for place in PLACES:
            try:
                asking, asked = text.axes(**place)
                asking.positions(source)
                asked.positions(target)
            except InputError:
                continue
            return place
        words = [" ".join(name.strip() for name in axis.words()[1]) for axis in text.axes(part="cross")[::-1]]
        raise InputError(
            f"neither text has both {source!r} and {target!r}, nor is one in the target and the other in the"
            f" source; the source: {words[0]}; the target: {words[1]}"
        )

    def position_of(self, word: str | int, **where: str) -> int:
        """The position of a word (of several tokens, the last) in the text that a stack reads."""
        queries, _ = self._text().axes(**where)
        return queries.position(word)

    def _text(self) -> "Text":
        from glassformer.answers.answer import Text  # here: translating needs no answers, and starts faster

        ids = [self.model.net.config.start, *self.tokens]
        return Text(self.model, ids, 1, source=self.source_tokens)


class TranslatedByDecoder(Translated):
    """A translation that was written behind its source and a tag, as one sequence.

    Positions count over both: the source from 0 on, its tag, the translation.
    """

    def _text(self) -> "Text":
        from glassformer.answers.answer import Text  # here: translating needs no answers, and starts faster

        return Text(self.model, [*self.source_tokens, *self.tokens], len(self.source_tokens))
