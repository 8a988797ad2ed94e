"""glass attention"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from glassformer.answers import ask, check
from glassformer.cli import flags
from glassformer.cli.flags import TEXT, option, switch
from glassformer.cli.question import Request, question
from glassformer.errors import InputError

if TYPE_CHECKING:
    from glassformer.answers.answer import Answer


@dataclass(frozen=True)
class Which:
    """Which question about attention."""

    layer: int | None
    head: Any  # as typed, or a number; see `placed`
    steps: str | None
    find_heads: tuple[str, str] | None
    source: str | None  # --from and --to, the former way to say --find-heads
    target: str | None
    values: bool
    rollout: bool
    by_word: bool
    cache: int
    robot: bool
    positions: bool
    stack: str
    cross: bool

    def placed(self) -> "Which":
        """The same with its head as a number, and the layer that LAYER.HEAD names."""
        layer, head = flags.parse_head(self.layer, self.head)
        return replace(self, layer=layer, head=head)

    @property
    def table(self) -> str | None:
        """The question about an article's table, which needs neither a text nor a model."""
        return "robot" if self.robot else "positions" if self.positions else None

    @property
    def place(self) -> dict[str, str]:
        """In which stack, and whether within a text or from a decoder to the source."""
        return {"stack": self.stack, "part": "cross" if self.cross else "attn"}

    @property
    def pair(self) -> tuple[str, str] | None:
        """From which word to which one attention is searched for."""
        if self.source is None or self.target is None:
            return self.find_heads
        return self.source, self.target

    def check(self, text: str | None) -> None:
        """Refuse flags that do not go together, before anything is loaded."""
        flags.at_least("--cache", self.cache, least=0)
        if self.table is not None:
            given = {"TEXT": text, "--layer": self.layer, "--head": self.head, "--steps": self.steps}
            flags.only(f"--{self.table}", "is a table of its own", others=given)
            others = ("find_heads", "values", "rollout", "by_word", "cache", "file", "model")
            flags.refuse(*others, why=f"does not go with --{self.table}, which is a table of its own")
        if (self.source is None) != (self.target is None):
            raise InputError("--from and --to belong together")
        flags.one_question(
            {
                "--steps": self.steps,
                "--find-heads": self.pair,
                "--rollout": self.rollout,
                "--cache": self.cache,
                "--values": self.values,
                "--robot": self.robot,
                "--positions": self.positions,
            }
        )
        self._check_layer()
        self._check_place()
        if self.by_word and not (self.rollout or (self.layer is not None and not self.steps)):
            raise InputError("--words joins the tokens of one layer: it goes with --layer or --rollout")

    def _check_layer(self) -> None:
        if self.steps is not None and (self.layer is None or self.head is None):
            raise InputError("--steps needs --layer and --head")
        if self.layer is None and (self.head is not None or self.values):
            raise InputError(f"{'--head' if self.head is not None else '--values'} needs --layer")
        every = self.pair is not None or self.cache
        if self.head is not None and (self.rollout or every):
            raise InputError("--head goes with --layer alone, with --steps or with --values")
        if every:
            flag = "--cache" if self.cache else "--find-heads"
            flags.only(flag, "is about all layers", others={"--layer": self.layer})

    def _check_place(self) -> None:
        place = {"--stack": self.stack or None, "--cross": self.cross or None}
        if self.table is not None:
            flags.only(f"--{self.table}", "is a table of its own", others=place)
        if self.cache:
            flags.only("--cache", "is about the stack that generates", others=place)
        if self.rollout and self.cross:
            raise InputError("--cross does not go with --rollout, which stays within one text")


@flags.verb
@flags.layer
@flags.head
@option(
    "--steps",
    former=["--query"],
    type=TEXT,
    help="The five steps of this query (a position, or a word: its last token) in --layer and --head.",
)
@option(
    "--find-heads",
    nargs=2,
    type=TEXT,
    metavar="FROM TO",
    help="Which heads attend from one word (or position) to another; of a word, all its occurrences.",
)
@option("--from", "source", type=TEXT, hidden=True)
@option("--to", "target", type=TEXT, hidden=True)
@switch("--values", help="Weigh attention by the values that it moves.")
@switch("--rollout", help="Through all layers, or up to --layer.")
@flags.by_word
@flags.stack
@switch("--cross", help="From the decoder to the source text, in a model that has one.")
@option("--cache", default=0, help="Generate N tokens, and see which keys and values are reused.")
@switch("--robot", help="The article's table: 'robot must obey orders'.")
@switch("--positions", help="Sinusoidal positions in both layouts.")
@question
@flags.collect(Which, "which")
def attention(request: Request, which: Which) -> "Answer":
    """Where heads attend.

    \b
    glass attention "The cat sat. The cat"               what kind of head each is, on this text
    glass attention -l 2 --head 1 "The cat sat"          where one head attends; or --head 2.1
    glass attention --head 4.4 --steps ran "The dog ran because it"   q·k, ÷ √K, mask, softmax, values
    glass attention --find-heads it robot "A robot obeys; it must"   the heads that attend there most
    glass attention --rollout --words "The cat sat"      through all layers, word by word
    glass attention --cache 8 "Once upon a time"         what each step computes, and finds in the cache
    glass attention --robot                              the article's table, with its missing step
    glass attention --positions -o positions.svg         sine and cosine waves that say where a token is
    glass attention -l 2 --head 1 --as arcs -o arcs.svg "The cat sat"   a picture, with arcs between tokens
    """
    which = which.placed()
    which.check(request.text)
    if which.table is not None:
        return ask(which.table)
    about, layer, head, by_word = request.about, which.layer, which.head, which.by_word
    check("attention", about)  # the verb that was asked for, whichever question its flags ask
    if which.cache:
        return request.generate(max_new_tokens=which.cache, temperature=0).cache()
    if which.pair is not None:
        source, target = which.pair
        return ask("find_heads", about, source=source, target=target, **which.place)
    if which.steps is not None:
        queries, _ = about.axes(**which.place)
        at = queries.position(which.steps)
        return ask("steps", about, layer=layer, head=head, position=at, **which.place)
    if which.rollout:
        return ask("rollout", about, layer=layer, by_word=by_word, stack=which.stack)
    if layer is None:
        return ask("heads", about, **which.place)
    return ask(
        "attention", about, layer=layer, head=head, by_word=by_word, values=which.values, **which.place
    )
