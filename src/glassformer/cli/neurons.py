"""glass neurons"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from glassformer.answers import ask
from glassformer.cli import flags
from glassformer.cli.flags import PATH, option
from glassformer.cli.question import Request, question
from glassformer.errors import InputError

if TYPE_CHECKING:
    from glassformer.answers.answer import Answer


FIRST = 128  # neurons of a layer in a raw grid
MOST_NEURONS = 1000  # of a token, in a table with three columns for each


@dataclass(frozen=True)
class Which:
    """Which question about neurons."""

    layers: tuple[str, ...]
    stack: str
    k: int
    first: int
    factors: int
    clusters: int
    promotes: str | None
    examples: str | None
    corpus: tuple[Path, ...]
    seed: int

    def check(self, request: Request) -> None:
        """Refuse flags that do not go together, before anything is loaded."""
        flags.one_question(
            {
                "--factors": self.factors,
                "--clusters": self.clusters,
                "--promotes": self.promotes,
                "--examples": self.examples,
            }
        )
        if bool(self.corpus) != bool(self.examples):
            raise InputError("--examples LAYER.NEURON and --corpus belong together")
        flags.at_least("-k", self.k, least=1)
        flags.at_most("-k", self.k, most=MOST_NEURONS)
        flags.at_least("--first", self.first, least=1)
        if self.factors or self.clusters:
            flags.refuse("k", why="does not go with --factors and --clusters, which take all neurons")
        else:
            flags.refuse("seed", why="needs --factors or --clusters")
        if self.promotes or self.examples:
            flag = "--promotes" if self.promotes else "--examples"
            given = {"TEXT": request.text, "--file": request.file, "--layer": self.layers}
            given["--stack"] = self.stack or None
            flags.only(flag, "is one neuron on any text", others=given)


@flags.verb
@option("-l", "--layer", "layers", multiple=True, help="Only this layer, or 2-4; may be given several times.")
@flags.stack
@option("-k", default=3, help="Neurons per token; tokens of --promotes, or texts of --examples.")
@option("--first", default=FIRST, help="With --as grid: the first N neurons of each layer.")
@option("--factors", default=0, help="Instead: N factors (NMF) over all these neurons.")
@option("--clusters", default=0, help="Instead: N groups (k-means) that fire alike.")
@option("--promotes", former=["--neuron"], help="LAYER.NEURON: which tokens this one makes likelier.")
@option("--examples", help="LAYER.NEURON: where in the texts of --corpus this one fires most.")
@option(
    "--corpus",
    multiple=True,
    type=PATH,
    help="With --examples: text files or folders; may be given several times.",
)
@flags.seed
@question
@flags.collect(Which, "which")
def neurons(request: Request, which: Which) -> "Answer":
    """Which neurons fire at which tokens.

    \b
    glass neurons "The little dog ran"               the strongest at every token
    glass neurons -l 0 -k 10 "The little dog ran"    ten of the first layer
    glass neurons -l 0 --as grid "The little dog"    the first 128 as they are, and how many fire
    glass neurons --factors 4 "1, 2, 3, 4, 5"        what they have in common
    glass neurons --promotes 3.17                    the tokens that one neuron makes likelier
    glass neurons --examples 3.17 --corpus tales.jsonl.gz     where it fires most
    """
    which.check(request)
    if which.promotes:
        layer, neuron = parse_neuron("--promotes", which.promotes)
        return ask("promotes", request.lm, layer=layer, neuron=neuron, k=which.k)
    if which.examples:
        return _examples(request, which)

    about, stack = request.about, which.stack
    layers = [layer for given in which.layers for layer in parse_layers(given)] or None
    if which.factors:
        return ask("factors", about, count=which.factors, layers=layers, seed=which.seed, stack=stack)
    if which.clusters:
        return ask("clusters", about, count=which.clusters, layers=layers, seed=which.seed, stack=stack)
    return ask("neurons", about, layers=layers, k=which.k, first=which.first, stack=stack)


def _examples(request: Request, which: Which) -> "Answer":
    from glassformer.cli.progress import progress_bar

    layer, neuron = parse_neuron("--examples", which.examples or "")
    place = {"layer": layer, "neuron": neuron}
    with progress_bar("tokens read") as progress:
        return ask("examples", request.lm, which.corpus, **place, k=which.k, progress=progress)


def parse_layers(given: str) -> range:
    """A layer, or a range of them such as 2-4."""
    match = re.fullmatch(r"([0-9]{1,4})(?:-([0-9]{1,4}))?", given)
    first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
    if last < first:
        raise InputError(f"--layer {given[:40]!r} is neither a layer nor a range such as 2-4")
    return range(first, last + 1)


def parse_neuron(flag: str, given: str) -> tuple[int, int]:
    """Layer and number of a neuron."""
    place = flags.parse_place(given, r"mlp\.neurons")
    if place is None:
        raise InputError(f"{flag} {given[:40]!r} is not LAYER.NEURON, as in 3.17")
    return place
