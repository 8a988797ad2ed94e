"""glass lens"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from glassformer.answers import ask
from glassformer.cli import flags
from glassformer.cli.flags import TEXT, option, switch
from glassformer.cli.question import Request, question
from glassformer.errors import InputError

if TYPE_CHECKING:
    from glassformer.answers.answer import Answer


@dataclass(frozen=True)
class Which:
    """Which question about the layers' predictions."""

    position: str | None
    watch: tuple[str, ...]
    attribution: bool
    token: str | None
    foil: str | None
    residual: bool
    rankings: int
    k: int

    def check(self) -> None:
        """Refuse flags that do not go together, before anything is loaded."""
        flags.at_least("--rankings", self.rankings, least=0)
        if not self.attribution and (self.token is not None or self.foil is not None):
            raise InputError(f"{'--token' if self.token is not None else '--not'} needs --attribution")
        if self.rankings:
            flags.only("--rankings", "is about what is generated", others={"--position": self.position})
        flags.one_question(
            {
                "--attribution": self.attribution,
                "--rankings": self.rankings,
                "--watch": self.watch,
                "--residual": self.residual,
            }
        )
        if self.attribution or self.rankings or self.residual or (self.watch and self.position != "all"):
            flags.refuse("k", why="is how many candidates of the lens itself --json has")
        if self.position == "all" and (self.attribution or self.residual):
            flag = "--attribution" if self.attribution else "--residual"
            raise InputError(f"{flag} needs one --position, not all")


@flags.verb
@option(
    "-p",
    "--position",
    type=TEXT,
    help="Of the table: a position, a word (its last token), or all; else the last. The picture has all.",
)
@option(
    "-w",
    "--watch",
    multiple=True,
    type=TEXT,
    help="Also follow this token (' is'); may be given several times.",
)
@switch("--attribution", former=["--parts"], help="Which parts raise the next token's logit: heads, MLPs …")
@option("--token", type=TEXT, help="With --attribution: of this token (' is'), not the likeliest.")
@option("--not", "foil", type=TEXT, help="With --attribution: its lead over this one.")
@switch("--residual", former=["--journey"], help="One vector through the layers: length, what was added.")
@option(
    "--rankings", former=["--ranks"], default=0, help="Generate N tokens: each one's rank in every layer."
)
@option("-k", default=5, help="Candidates in --json.")
@question
@flags.collect(Which, "which")
def lens(request: Request, which: Which) -> "Answer":
    """What every layer would predict, if it were the last.

    \b
    glass lens "Once upon a"                         after the last token, layer by layer
    glass lens -p time "Once upon a time, there"     after another one
    glass lens -w " is" -w " are" "The keys to the cabinet"    two words against each other
    glass lens --attribution --token " are" --not " is" "The keys to the cabinet"   which parts raise it
    glass lens --rankings 8 "Once upon a"            the rank of each generated token in every layer
    glass lens --residual "Once upon a"              one vector from the embedding to the last layer
    glass lens --as divergence -o lens.svg "Once upon a time"   a picture; or --as rank, entropy, probability
    glass lens -p all -o lens.csv "Once upon a time"           every layer and position
    """
    which.check()
    if which.rankings:
        return request.generate(max_new_tokens=which.rankings, temperature=0).rankings()
    about = request.about
    if which.position == "all":
        return ask("lens", about, k=which.k, watch=which.watch)

    at = about.position(which.position or "-1")
    if which.residual:
        return ask("residual", about, position=at)
    if which.attribution:
        return ask("attribution", about, position=at, token=which.token, foil=which.foil)
    if which.watch:
        return ask("rankings_watch", about, watch=which.watch, position=at)
    return ask("lens", about, k=which.k).at(at)
