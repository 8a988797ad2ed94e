"""glass edit"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glassformer.answers import ask
from glassformer.cli import flags
from glassformer.cli.flags import PATH, TEXT, option, switch
from glassformer.cli.printing import log
from glassformer.cli.question import Request, question
from glassformer.errors import InputError

if TYPE_CHECKING:
    from glassformer.answers.answer import Answer
    from glassformer.tasks.model import Model

ADDRESS = "blocks.2.attn.mix[1] (a head), blocks.3.mlp.neurons[17], blocks.2.attn, blocks.*.mlp"
STEERED = "Where to steer; None: the end of the middle block."
SWEPT = (
    " With --sweep, what to patch: blocks.*.attn.mix[*] is every head;"
    " None: the end of every block, blocks.*.out."
)
Edit = dict[str, Any]


@dataclass(frozen=True)
class Changes:
    """The edits that a command line names."""

    listed: Path | list[Edit] | None
    zero: tuple[str, ...]
    mean: tuple[str, ...]
    scale: tuple[str, ...]
    patch: tuple[str, ...]
    source: str | None
    at: tuple[int, ...]
    toward: str | None
    away: str | None
    by: float
    site: str
    save: Path | None

    def any(self) -> bool:
        """Whether an edit is named."""
        edits = (self.listed is not None, self.zero, self.mean, self.scale, self.patch, self.toward)
        return any(edits)

    def check(self, *, sweep: bool = False) -> None:
        """Refuse flags that do not go together, before anything is loaded; `sweep`: the verb has one."""
        if self.source is not None and not self.patch:
            raise InputError(f"--from needs --patch{' or --sweep' * sweep}")
        if self.site and self.toward is None:
            raise InputError(f"--site needs --toward and --away{', or --sweep' * sweep}")
        if self.patch and self.source is None:
            raise InputError("--patch needs --from, the text to take it from")
        if (self.toward is None) != (self.away is None):
            raise InputError("--toward and --away belong together")
        if self.toward is None:
            flags.refuse("by", why="needs --toward and --away")
        if not self.any():
            flags.refuse("save", "at", why="needs an edit: --zero, --mean, --scale, --patch or --edit")
        elif not (self.zero or self.mean or self.scale or self.patch or self.toward):
            flags.refuse("at", why="is for the edits of flags; those of a file have an 'at' of their own")

    def edits(self, prompt: str, model: "Model") -> list[Edit]:
        """The edits of --edit, then those of the flags."""
        edits: list[Edit] = [{"site": one, "do": "zero"} for one in self.zero]
        edits += [{"site": one, "do": "mean", "over": [prompt]} for one in self.mean]
        edits += [parse_scale(one) for one in self.scale]
        edits += [{"site": one, "do": "patch", "from": self.source} for one in self.patch]
        if self.toward is not None:
            site, pairs = self._steered(model), [[self.toward, self.away]]
            edits.append({"site": site, "do": "add", "by": self.by, "pairs": pairs})
        if self.at:
            edits = [one | {"at": list(self.at)} for one in edits]
        return [*self._read(), *edits]

    def save_as_file(self, edits: list[Edit]) -> None:
        """Write them to the file of --save, if there is one."""
        if self.save is None:
            return
        from glassformer.figures.view import write

        write(self.save, (json.dumps(edits, ensure_ascii=False, indent=2) + "\n").encode())
        log(str(self.save))

    def _steered(self, model: "Model") -> str:
        """Where to steer: as typed, or the end of the middle block."""
        if self.site:
            return self.site
        if not model.net.stacks:
            raise InputError(f"--toward needs --site: {model.name} has no blocks")
        stack = model.net.stacks[-1]
        middle: str = stack.site(stack.layers // 2, "out")
        return middle

    def _read(self) -> list[Edit]:
        if self.listed is None:
            return []
        from glassformer.answers.edits import read_file

        return self.listed if isinstance(self.listed, list) else read_file(self.listed)


def parse_scale(given: str) -> Edit:
    """`blocks.2.attn=0.5`."""
    address, _, number = given.rpartition("=")
    try:
        return {"site": address, "do": "scale", "by": flags.parse_number(number)}
    except ValueError:
        raise InputError(f"--scale {given[:100]!r} is not ADDRESS=NUMBER, as in blocks.2.attn=0.5") from None


def changes_flags(addresses: str, *, sweep: bool = False) -> flags.Decorator:
    """The flags of edits, of a verb that has a sweep or not."""
    again = "may be given several times."
    return flags.group(
        Changes,
        "changes",
        option("--edit", "listed", type=flags.EDITS, help=flags.EDIT),
        option("--zero", multiple=True, help=f"Switch off: {addresses}; {again}"),
        option("--mean", multiple=True, help=f"Put its mean over the text in its place; {again}"),
        option("--scale", multiple=True, help=f"ADDRESS=NUMBER: times a number; {again}"),
        option("--patch", multiple=True, help=f"Put in what it is on the text of --from; {again}"),
        option("--from", "source", type=TEXT, help=f"The other text, for --patch{' and --sweep' * sweep}."),
        option("--at", multiple=True, type=int, help=f"Only at this position (-1: the last); {again}"),
        option("--toward", type=TEXT, help="Steer: toward what this text ends in …"),
        option("--away", type=TEXT, help="… and away from what that one ends in, at --site."),
        option("--by", default=1.0, help="How strongly to steer."),
        option("--site", default="", show_default=False, help=STEERED + (SWEPT if sweep else "")),
        option("--save", type=PATH, help="Also write the edits to a file, for --edit."),
    )


@dataclass(frozen=True)
class Sweep:
    """Whether to patch every place, and which two tokens to compare."""

    sweep: bool
    answer: str | None
    foil: str | None


@dataclass(frozen=True)
class Comparison:
    """How much to predict and to generate, with the edits and without."""

    k: int
    max_new_tokens: int
    temperature: float
    seed: int

    def check(self) -> None:
        """Refuse numbers that are too small."""
        flags.at_least("-k", self.k, least=1)
        flags.at_least("--max-new-tokens", self.max_new_tokens, least=0)


@flags.verb
@changes_flags(ADDRESS, sweep=True)
@switch("--sweep", help="Patch each site and position from --from, one at a time.")
@option("--answer", type=TEXT, help="Sweep: the token that --from makes likelier …")
@option("--not", "foil", type=TEXT, help="… than this one, which the text makes likely.")
@option("-n", "--max-new-tokens", default=20, help="Generate N tokens, with and without.")
@flags.temperature
@flags.seed
@option("-k", default=5, help="Compare the k likeliest next tokens.")
@question
@flags.collect(Sweep, "sweep")
@flags.collect(Comparison, "comparison")
def edit(request: Request, changes: Changes, sweep: Sweep, comparison: Comparison) -> "Answer":
    """Change heads, neurons or layers, and compare what the model predicts.

    \b
    glass edit --zero "blocks.5.attn.mix[4]" "Lily had a cat. The"   without one head
    glass edit --zero "blocks.*.attn" "Once upon a time"             without any attention
    glass edit --scale "blocks.5.mlp.neurons[686]=5" "The dog"       one neuron, five times as strong
    glass edit --patch blocks.2.out --from "The girl lost" --at 1 "The boy lost"   one place of another text
    glass edit --toward "She was happy" --away "She was sad" --site blocks.3.out --by 3 "Then Tom was"
    glass edit --sweep --from "The girl lost" --answer " her" --not " his" "The boy lost"   where it matters
    glass edit --sweep --site "blocks.*.attn.mix[*]" … as above …    the same, head by head
    glass edit --zero blocks.0.mlp --save edits.json "Once"          then: glass generate --edit edits.json
    """
    from glassformer.cli.progress import progress_bar

    flags.one_question({"--sweep": sweep.sweep, "an edit": changes.any()})
    comparison.check()
    if sweep.sweep:
        unused = ("at", "save", "max_new_tokens", "temperature", "seed", "k", "by")
        flags.refuse(
            *unused, why="does not go with --sweep, which tries every position and generates nothing"
        )
        return run_sweep(request, changes, sweep=sweep)

    flags.only("an edit", "is no --sweep", others={"--answer": sweep.answer, "--not": sweep.foil})
    changes.check(sweep=True)
    if not changes.any():
        raise InputError("name an edit: --zero, --mean, --scale, --patch, --toward and --away, or --edit")
    about = request.about  # before the bar: loading has messages of its own
    edits = changes.edits(request.prompt, request.lm)
    with progress_bar("preparing the edits") as progress:
        found = ask("edit", about, edits=edits, progress=progress, **vars(comparison))
    changes.save_as_file(edits)
    return found


def run_sweep(request: Request, changes: Changes, *, sweep: Sweep) -> "Answer":
    """Patch every site and position from the text of --from into the given one."""
    from glassformer.cli.progress import progress_bar

    if changes.source is None or sweep.answer is None or sweep.foil is None:
        raise InputError("--sweep needs --from, --answer and --not")
    prompt, sites = request.prompt, changes.site or ()
    tokens = {"answer": sweep.answer, "foil": sweep.foil}
    with progress_bar("patching") as progress:
        return ask(
            "sweep", request.lm, changes.source, corrupted=prompt, sites=sites, progress=progress, **tokens
        )
