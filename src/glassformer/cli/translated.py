"""The questions of `glass translate`: what one can ask about a translation."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from glassformer.cli import flags
from glassformer.cli.flags import TEXT, option, switch
from glassformer.errors import InputError

if TYPE_CHECKING:
    from glassformer.answers.answer import Answer
    from glassformer.tasks.translated import Translated


HEADS = ("--alignment", "--attention", "--steps")
STACKS = ("--attention", "--steps", "--find-heads")
GOES_WITH = {  # flags that say more about a question -> the questions
    ("layer", "head"): HEADS,
    ("by_word",): ("--alignment", "--attention", "--saliency"),
    ("of",): ("--saliency",),
    ("stack", "cross"): STACKS,
    ("target", "also"): ("--targets",),
}


@dataclass(frozen=True)
class Which:
    """Which question about a translation, if any, and about which part of the model."""

    alignment: bool
    attention: bool
    steps: str | None
    find_heads: tuple[str, str] | None
    lens: bool
    saliency: bool
    of: str | None
    beams: bool
    unroll: bool
    journey: str | None
    targets: bool
    target: str | None
    also: tuple[str, ...]
    layer: int | None
    head: Any  # as typed, or a number; see `placed`
    by_word: bool
    stack: str
    cross: bool

    @property
    def questions(self) -> dict[str, Any]:
        """The flags that ask, and their values."""
        about_heads = ("alignment", "attention", "steps", "find_heads")
        names = (*about_heads, "lens", "saliency", "beams", "unroll", "journey", "targets")
        return {f"--{name.replace('_', '-')}": getattr(self, name) for name in names}

    @property
    def asked(self) -> str | None:
        """The flag of the question; None where only a translation is wanted."""
        return next((flag for flag, value in self.questions.items() if value not in (None, False)), None)

    @property
    def place(self) -> dict[str, Any]:
        """In which stack, and whether within a text or from the decoder to the source."""
        cross = self.cross or self.stack == "cross"
        return {"stack": "" if cross else self.stack, "part": "cross" if cross else "attn"}

    def placed(self) -> "Which":
        """The same with its head as a number, and the layer that LAYER.HEAD names."""
        layer, head = flags.parse_head(self.layer, self.head)
        return replace(self, layer=layer, head=head)

    def check(self, *, edited: bool) -> None:
        """Refuse flags that do not go together, before anything is loaded; `edited`: there are edits."""
        flags.one_question(self.questions)
        for parameters, known in GOES_WITH.items():
            if self.asked not in known:
                flags.refuse(*parameters, why=f"goes with {' or '.join(known)}")
        if self.asked is None and not edited:
            pictures = ("output", "drawing", "dark", "width", "png_scale")
            flags.refuse(*pictures, why="is for the answer to a question, such as --alignment or --beams")
        if self.asked == "--steps" and (self.layer is None or self.head is None):
            raise InputError("--steps needs --layer and --head")
        if self.asked == "--attention" and self.layer is None and (self.head is not None or self.by_word):
            raise InputError(f"{'--words' if self.head is None else '--head'} needs --layer")

    def answer(self, out: "Translated", *, num_beams: int | None) -> "Answer":
        """The answer."""
        match self.asked:
            case "--alignment":
                return out.alignment(self.layer, self.head, by_word=self.by_word)
            case "--attention":
                return out.attention(self.layer, self.head, by_word=self.by_word, **self.place)
            case "--beams":
                return out.beams(num_beams or 2)
            case "--journey":
                assert self.journey is not None
                return out.journey(out.number_of(self.journey))
            case "--targets":
                return out.targets(self.target, also=self.also)
            case "--saliency":
                number = None if self.of is None else out.number_of(self.of)
                return out.saliency(by_word=self.by_word, number=number)
            case "--unroll":
                return out.unroll()
            case "--lens":
                return out.lens()
        return self._search(out)

    def _search(self, out: "Translated") -> "Answer":
        """One query, or which heads attend from one word to another."""
        if self.find_heads is not None:
            source, target = self.find_heads
            return out.find_heads(source, target, **self.place)
        assert self.steps is not None
        assert self.layer is not None
        assert self.head is not None
        at = out.position_of(self.steps, **self.place)
        return out.steps(self.layer, self.head, position=at, **self.place)


questions = flags.group(
    Which,
    "which",
    switch("--alignment", help="Which source tokens each word was written from; saliency beside it."),
    switch("--attention", help="Where heads attend: see --stack, --cross, --layer, --head."),
    option("--steps", type=TEXT, help="The five steps of this query (a word or position) in one head."),
    option(
        "--find-heads",
        nargs=2,
        type=TEXT,
        metavar="FROM TO",
        help="Which heads attend from a word to another.",
    ),
    switch("--lens", help="What every layer of the decoder would write."),
    switch("--saliency", help="Which source tokens made each word likely, with a test of the answer."),
    option("--of", type=TEXT, help="With --saliency: of this word of the translation (or its number) alone."),
    switch("--beams", help="The tree of the beam search, with --num-beams. [2]"),
    switch("--unroll", help="A recurrent network, read state by state and written word by word."),
    option("--journey", type=TEXT, help="This word of the translation (or its number) through all layers."),
    switch("--targets", help="One-hot rows of a training beside what is predicted, untrained and trained."),
    option("--target", type=TEXT, help="With --targets: for this target, not the model's translation."),
    option("--also", multiple=True, type=TEXT, help="With --targets: one more word; repeatable."),
    flags.layer,
    flags.head,
    flags.by_word,
    flags.stack,
    switch("--cross", help="From the decoder to the source text."),
)
