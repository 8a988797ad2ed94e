"""glass attention, lens, saliency, neurons, diff"""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glassformer.answers import ask
from glassformer.cli.asked import Asked, at_least, bar, one_question, only, question
from glassformer.errors import InputError

if TYPE_CHECKING:
    from glassformer.answers.answer import Answer

Layer = Annotated[int | None, typer.Option("-l", "--layer", help="One layer, counted from 0.")]
Head = Annotated[int | None, typer.Option("--head", help="One head, counted from 0.")]
ByWord = Annotated[bool, typer.Option("--words", help="Join the tokens of a word.")]
Seed = Annotated[int, typer.Option("-s", "--seed", help="Of what is written or drawn by chance.")]


@question
def attention(
    asked: Asked,
    layer: Layer = None,
    head: Head = None,
    steps: Annotated[
        str | None,
        typer.Option(
            help="The five steps of this query (a position, or a word's last) in --layer and --head."
        ),
    ] = None,
    find_heads: Annotated[
        tuple[str, str] | None,
        typer.Option(help="Which heads attend from one word (or position) to another: FROM TO."),
    ] = None,
    values: Annotated[bool, typer.Option("--values", help="Weigh attention by what is handed over.")] = False,
    rollout: Annotated[bool, typer.Option("--rollout", help="Through all layers, or up to --layer.")] = False,
    by_word: ByWord = False,
    cache: Annotated[
        int, typer.Option("--cache", help="Generate N tokens, and see which keys and values are reused.")
    ] = 0,
    robot: Annotated[
        bool, typer.Option("--robot", help="The article's table: 'robot must obey orders'.")
    ] = False,
) -> "Answer":
    """Where heads attend.

    \b
    glass attention "The cat sat. The cat"               what kind of head each is, on this text
    glass attention -l 2 --head 1 "The cat sat"          where one head attends
    glass attention -l 2 --head 1 --steps sat "The cat sat"   q·k, ÷ √K, mask, softmax, values
    glass attention --find-heads it robot "A robot obeys; it must"   the heads that attend there most
    glass attention --rollout --words "The cat sat"      through all layers, word by word
    glass attention --cache 8 "Once upon a time"         what each step computes, and what it finds in the cache
    glass attention --robot                              the article's table, with its missing step
    glass attention -l 2 --head 1 --as arcs -o arcs.svg "The cat sat"   a picture, with arcs from token to token
    """
    if robot:
        given = {"TEXT": asked.text, "--layer": layer, "--head": head, "--steps": steps}
        only("--robot", "is a table of its own", given)
        return ask("robot")
    if steps is not None and (layer is None or head is None):
        raise InputError("--steps needs --layer and --head")
    if layer is None and (head is not None or values):
        raise InputError(f"{'--head' if head is not None else '--values'} needs --layer")
    one_question(
        {
            "--steps": steps,
            "--find-heads": find_heads,
            "--rollout": rollout,
            "--cache": cache,
            "--values": values,
        }
    )
    if by_word and (steps or find_heads or cache or (layer is None and not rollout)):
        raise InputError("--words joins the tokens of one layer: it goes with --layer or --rollout")
    if head is not None and (rollout or find_heads or cache):
        raise InputError("--head goes with --layer alone, with --steps or with --values")
    if find_heads or cache:
        only("--find-heads" if find_heads else "--cache", "is about all layers", {"--layer": layer})
    at_least("--cache", cache, 0)

    about = asked.about
    if cache:
        return asked.lm.generate(asked.prompt, max_new_tokens=cache, temperature=0).cache()
    if find_heads:
        return ask("find_heads", about, source=find_heads[0], target=find_heads[1])
    if steps is not None:
        return ask("steps", about, layer=layer, head=head, position=about.positions(steps)[-1])
    if rollout:
        return ask("rollout", about, layer=layer, by_word=by_word)
    if layer is None:
        return ask("heads", about)
    return ask("attention", about, layer=layer, head=head, by_word=by_word, values=values)


@question
def lens(
    asked: Asked,
    position: Annotated[
        str | None,
        typer.Option(
            "-p", "--position", help="A position, a word (where it stands last), or all. None: the last."
        ),
    ] = None,
    watch: Annotated[
        list[str] | None, typer.Option("-w", "--watch", help="Also follow this token (' is'); repeatable.")
    ] = None,
    attribution: Annotated[
        bool, typer.Option("--attribution", help="Which parts raise the next token's logit: heads, MLPs …")
    ] = False,
    token: Annotated[
        str | None, typer.Option(help="With --attribution: of this token (' is'), not the likeliest.")
    ] = None,
    foil: Annotated[
        str | None, typer.Option("--not", help="With --attribution: its lead over this one.")
    ] = None,
    residual: Annotated[
        bool, typer.Option("--residual", help="One vector through the layers: length, what was added.")
    ] = False,
    rankings: Annotated[
        int, typer.Option("--rankings", help="Generate N tokens: at which rank has every layer each?")
    ] = 0,
    k: Annotated[int, typer.Option("-k", help="Candidates in --json.")] = 5,
) -> "Answer":
    """What every layer would predict, if it were the last.

    \b
    glass lens "Once upon a"                         after the last token, layer by layer
    glass lens -p time "Once upon a time, there"     after another one
    glass lens -w " is" -w " are" "The keys to the cabinet"    two words against each other
    glass lens --attribution --token " are" --not " is" "The keys to the cabinet"   which parts raise one of them
    glass lens --rankings 8 "Once upon a"            the rank of each generated token in every layer
    glass lens --residual "Once upon a"              one vector from the embedding to the last layer
    glass lens --as divergence -o lens.svg "Once upon a time"   a picture: probability, rank, entropy or divergence
    glass lens -p all -o lens.csv "Once upon a time"           every layer and position
    """
    if not attribution and (token is not None or foil is not None):
        raise InputError(f"{'--token' if token is not None else '--not'} needs --attribution")
    at_least("--rankings", rankings, 0)
    if rankings:
        only("--rankings", "is about what is generated", {"--position": position})
    one_question(
        {"--attribution": attribution, "--rankings": rankings, "--watch": watch, "--residual": residual}
    )
    if (attribution or residual) and position == "all":
        raise InputError(f"{'--attribution' if attribution else '--residual'} needs one --position, not all")

    about = asked.about
    if rankings:
        return asked.lm.generate(asked.prompt, max_new_tokens=rankings, temperature=0).rankings()
    if position == "all":
        return ask("lens", about, k=k, watch=watch or [])
    at = about.positions(position or "-1")[-1]
    if residual:
        return ask("residual", about, position=at)
    if attribution:
        return ask("attribution", about, position=at, token=token, foil=foil)
    if watch:
        return ask("rankings_watch", about, watch=watch, position=at)
    return ask("lens", about, k=k).at(at)


@question
def saliency(
    asked: Asked,
    count: Annotated[
        int, typer.Option("-n", "--max-new-tokens", help="Generate N tokens first, and explain those.")
    ] = 5,
    method: Annotated[
        str, typer.Option(help="grad_x_input, gradient, integrated_gradients, occlusion or rollout.")
    ] = "grad_x_input",
    foil: Annotated[str | None, typer.Option("--not", help="Why not this token instead (' are')?")] = None,
    by_word: ByWord = False,
    steps: Annotated[
        int, typer.Option(help="Of integrated gradients: more of them, and the gap closes.")
    ] = 32,
    tested: Annotated[
        bool, typer.Option("--test/--no-test", help="Deletion, insertion, agreement with other methods.")
    ] = True,
    temperature: Annotated[float, typer.Option(help="0 takes the likeliest token; higher is wilder.")] = 0.0,
    seed: Seed = 0,
) -> "Answer":
    """Which earlier tokens made the next ones likely.

    \b
    glass saliency -n 3 "The little dog was very"          three tokens, and what each is owed to
    glass saliency --method occlusion "Once upon a"        by taking tokens away
    glass saliency -n 1 --not " are" "The keys to the"     why this one and not that one

    A share below 0 speaks against the token. Gap: how far integrated gradients are from adding up.
    Deletion: how much of the token's probability is left on average while the tokens named are taken away (low is good).
    Insertion: how much is there on average while they are put back (high is good).
    Both are means over eleven points: of a few tokens they are coarse, and they exceed 1 where taking a token away helps.
    """
    if foil is not None and method == "rollout":
        raise InputError("--not has no meaning for rollout, which knows no next token")
    prompt, lm = asked.prompt, asked.lm
    written = lm.generate(prompt, max_new_tokens=count, temperature=temperature, seed=seed)
    with bar(method) as progress:
        return written.saliency(
            method, foil=foil, steps=steps, by_word=by_word, tested=tested, progress=progress
        )


@question
def neurons(
    asked: Asked,
    layers: Annotated[
        list[str] | None, typer.Option("-l", "--layer", help="Only this layer, or 2-4; repeatable.")
    ] = None,
    k: Annotated[
        int, typer.Option("-k", help="Neurons per token; tokens of --promotes, or texts of --examples.")
    ] = 3,
    factors: Annotated[int, typer.Option(help="Instead: N factors (NMF) over all these neurons.")] = 0,
    clusters: Annotated[int, typer.Option(help="Instead: N groups (k-means) that fire alike.")] = 0,
    promotes: Annotated[
        str | None, typer.Option(help="LAYER.NEURON: which tokens this one makes likelier.")
    ] = None,
    examples: Annotated[
        str | None, typer.Option(help="LAYER.NEURON: where in the texts of --corpus this one fires most.")
    ] = None,
    corpus: Annotated[
        list[Path] | None, typer.Option(help="With --examples: text files or folders; repeatable.")
    ] = None,
    seed: Seed = 0,
) -> "Answer":
    """Which neurons fire at which tokens.

    \b
    glass neurons "The little dog ran"               the strongest at every token
    glass neurons -l 0 -k 10 "The little dog ran"    ten of the first layer
    glass neurons --factors 4 "1, 2, 3, 4, 5"        what they have in common
    glass neurons --promotes 3.17                    the tokens that one neuron makes likelier
    glass neurons --examples 3.17 --corpus tales.jsonl.gz     where it fires most
    """
    one_question(
        {"--factors": factors, "--clusters": clusters, "--promotes": promotes, "--examples": examples}
    )
    if bool(corpus) != bool(examples):
        raise InputError("--examples and --corpus belong together")
    at_least("-k", k, 1)
    if promotes or examples:
        flag = "--promotes" if promotes else "--examples"
        given = {"TEXT": asked.text, "--file": asked.file, "--layer": layers}
        only(flag, "is one neuron on any text", given)
        layer, neuron = _neuron(flag, promotes or examples or "")
    if promotes:
        return ask("promotes", asked.lm, layer=layer, neuron=neuron, k=k)
    if examples:
        return _examples(asked, corpus or [], layer=layer, neuron=neuron, k=k)

    chosen = [layer for given in layers or [] for layer in _layers(given)] or None
    if factors:
        return ask("factors", asked.about, count=factors, layers=chosen, seed=seed)
    if clusters:
        return ask("clusters", asked.about, count=clusters, layers=chosen, seed=seed)
    return ask("neurons", asked.about, layers=chosen, k=k)


def _examples(asked: Asked, corpus: list[Path], **how: Any) -> "Answer":
    from glassformer.answers.neurons import read_corpus

    with bar("tokens read") as progress:
        return ask("examples", asked.lm, read_corpus(corpus), progress=progress, **how)


def _layers(given: str) -> range:
    first, dash, last = given.partition("-")
    if not (first.isdecimal() and (last.isdecimal() or not dash)) or (dash and int(last) < int(first)):
        raise InputError(f"--layer {given!r} is neither a layer nor a range such as 2-4")
    return range(int(first), int(last or first) + 1)


def _neuron(flag: str, given: str) -> tuple[int, int]:
    layer, _, number = given.partition(".")
    if not (layer.isdecimal() and number.isdecimal()):
        raise InputError(f"{flag} {given!r} is not LAYER.NEURON, as in 3.17")
    return int(layer), int(number)


@partial(question, without=("model", "revision"))
def diff(
    asked: Asked,
    one: Annotated[str, typer.Argument(help="A model: a shipped name, a folder, a run, a hub id.")],
    other: Annotated[str, typer.Argument(help="Another one with the same vocabulary.")],
) -> "Answer":
    """Two models on one text, token by token.

    \b
    glass diff storyteller runs/mine "Once upon a time, there was a dog."
    """
    prompt = asked.prompt  # before the models, which take longer to load
    return ask("diff", asked.load(one), prompt, other=asked.load(other))
