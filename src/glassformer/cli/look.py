"""glass attention, lens, saliency, neurons, diff"""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from glassformer.cli.asked import Asked, at_least, bar, one_question, only, question
from glassformer.errors import InputError

if TYPE_CHECKING:
    from glassformer.tasks.look import Look

Layer = Annotated[int | None, typer.Option("-l", "--layer", help="One layer, counted from 0.")]
Head = Annotated[int | None, typer.Option("--head", help="One head, counted from 0.")]
ByWord = Annotated[bool, typer.Option("--words", help="Join the tokens of a word.")]
Seed = Annotated[int, typer.Option("-s", "--seed", help="Of what is written or drawn by chance.")]


@question
def attention(
    asked: Asked,
    layer: Layer = None,
    head: Head = None,
    query: Annotated[
        str | None,
        typer.Option(
            help="The five steps of this position (or word, where it stands last) in --layer and --head."
        ),
    ] = None,
    source: Annotated[
        str | None, typer.Option("--from", help="Which heads look from this word (or position) …")
    ] = None,
    target: Annotated[str | None, typer.Option("--to", help="… to that one.")] = None,
    values: Annotated[bool, typer.Option("--values", help="Weigh attention by what is handed over.")] = False,
    rollout: Annotated[bool, typer.Option("--rollout", help="Through all layers, or up to --layer.")] = False,
    by_word: ByWord = False,
    cache: Annotated[
        int, typer.Option("--cache", help="Write so many tokens, and see which keys and values are kept.")
    ] = 0,
    robot: Annotated[
        bool, typer.Option("--robot", help="The article's table: 'robot must obey orders'.")
    ] = False,
) -> "Look":
    """Who looks at whom.

    \b
    glass attention "The cat sat. The cat"               what kind of head each is, on this text
    glass attention -l 2 --head 1 "The cat sat"          where one head looks
    glass attention -l 2 --head 1 --query sat "The cat sat"   q·k, ÷ √K, mask, softmax, values
    glass attention --from it --to robot "A robot obeys; it must"   the heads that look there most
    glass attention --rollout --words "The cat sat"      through all layers, word by word
    glass attention --cache 8 "Once upon a time"         what each step computes, and what it finds in the cache
    glass attention --robot                              the article's table, with its missing step
    glass attention -l 2 --head 1 --as arcs -o arcs.svg "The cat sat"   a picture, with bows from token to token
    """
    from glassformer.tasks import questions
    from glassformer.tasks.look import places_of

    if robot:
        only(
            "--robot",
            "is a table of its own",
            {"TEXT": asked.text, "--layer": layer, "--head": head, "--query": query},
        )
        return questions.robot()
    if (source is None) != (target is None):
        raise InputError("--from and --to belong together")
    if query is not None and (layer is None or head is None):
        raise InputError("--query needs --layer and --head")
    if layer is None and (head is not None or values):
        raise InputError(f"{'--head' if head is not None else '--values'} needs --layer")
    one_question(
        {"--query": query, "--from": source, "--rollout": rollout, "--cache": cache, "--values": values}
    )
    if by_word and (query or source or cache or (layer is None and not rollout)):
        raise InputError("--words joins what one layer looks at: it goes with --layer or --rollout")
    if head is not None and (rollout or source or cache):
        raise InputError("--head goes with --layer alone, with --query or with --values")
    if source is not None or cache:
        only("--from" if source is not None else "--cache", "is about all layers", {"--layer": layer})
    at_least("--cache", cache, 0)
    ids, lm = asked.ids, asked.lm
    if cache:
        return questions.memory(lm, lm.generate(asked.prompt, max_new_tokens=cache, temperature=0))
    if source is not None and target is not None:
        return questions.search(lm, ids, source, target)
    if query is not None and layer is not None and head is not None:
        return questions.steps(lm, ids, layer, head, places_of(lm, ids, query)[-1])
    if rollout:
        return questions.flow(lm, ids, layer, by_word=by_word)
    if layer is None:
        return questions.heads(lm, ids)
    return questions.pattern(lm, ids, layer, head, by_word=by_word, values=values)


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
    parts: Annotated[
        bool, typer.Option("--parts", help="Who speaks for the next token: embedding, heads, MLPs.")
    ] = False,
    token: Annotated[
        str | None, typer.Option(help="With --parts: for this token (' is'), not the likeliest.")
    ] = None,
    foil: Annotated[
        str | None, typer.Option("--not", help="With --parts: for its lead over this one.")
    ] = None,
    journey: Annotated[
        bool, typer.Option("--journey", help="The vector's way up: its length, what was added, what it says.")
    ] = False,
    ranks: Annotated[
        int, typer.Option("--ranks", help="Write so many tokens: at which rank has every layer each?")
    ] = 0,
    k: Annotated[int, typer.Option("-k", help="So many candidates (in --json).")] = 5,
) -> "Look":
    """What every layer would say next, if it were the last.

    \b
    glass lens "Once upon a"                         after the last token, layer by layer
    glass lens -p time "Once upon a time, there"     after another one
    glass lens -w " is" -w " are" "The keys to the cabinet"    two words against each other
    glass lens --parts --token " are" --not " is" "The keys to the cabinet"   who speaks for one of them
    glass lens --ranks 8 "Once upon a"               the rank of each written token in every layer
    glass lens --journey "Once upon a"               one vector from the embedding to the last layer
    glass lens --as divergence -o lens.svg "Once upon a time"   a picture: probability, rank, entropy or divergence
    glass lens -p all -o lens.csv "Once upon a time"           every layer and position
    """
    from glassformer.tasks import questions
    from glassformer.tasks.look import find_token, places_of

    if not parts and (token is not None or foil is not None):
        raise InputError(f"{'--token' if token is not None else '--not'} needs --parts")
    at_least("--ranks", ranks, 0)
    if ranks:
        only("--ranks", "is about what is written", {"--position": position})
    position = position or "-1"
    one_question({"--parts": parts, "--ranks": ranks, "--watch": watch, "--journey": journey})
    if (parts or journey) and position == "all":
        raise InputError(f"{'--parts' if parts else '--journey'} needs one --position, not all")
    ids, lm = asked.ids, asked.lm
    if ranks:
        return questions.rankings(lm, lm.generate(asked.prompt, max_new_tokens=ranks, temperature=0))
    if journey:
        return questions.journey(lm, ids, places_of(lm, ids, position)[-1])
    if parts:
        one, other = (None if word is None else find_token(lm, word) for word in (token, foil))
        return questions.parts(lm, ids, places_of(lm, ids, position)[-1], one, other)
    if watch and position != "all":
        return questions.watched(lm, ids, watch, places_of(lm, ids, position)[-1])
    found = questions.lens(lm, ids, k=k, watch=watch or [])
    return found if position == "all" else found.at(places_of(lm, ids, position)[-1])


@question
def saliency(
    asked: Asked,
    count: Annotated[
        int, typer.Option("-n", "--max-new-tokens", help="First write so many tokens, and explain those.")
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
) -> "Look":
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
        int, typer.Option("-k", help="So many neurons a token; with --neuron, so many tokens or passages.")
    ] = 3,
    factors: Annotated[int, typer.Option(help="Instead: so many factors (NMF) over all these neurons.")] = 0,
    clusters: Annotated[int, typer.Option(help="Instead: so many groups (k-means) that fire alike.")] = 0,
    neuron: Annotated[
        str | None, typer.Option(help="LAYER.NEURON: which tokens this one makes likelier.")
    ] = None,
    corpus: Annotated[
        list[Path] | None, typer.Option(help="With --neuron: where in these texts it fires most.")
    ] = None,
    seed: Seed = 0,
) -> "Look":
    """Which neurons fire at which tokens.

    \b
    glass neurons "The little dog ran"               the strongest at every token
    glass neurons -l 0 -k 10 "The little dog ran"    ten of the first layer
    glass neurons --factors 4 "1, 2, 3, 4, 5"        what they have in common
    glass neurons --neuron 3.17                      the tokens that one neuron pushes
    glass neurons --neuron 3.17 --corpus tales.jsonl.gz     where it fires
    """
    from glassformer.tasks import neurons as task

    one_question({"--factors": factors, "--clusters": clusters, "--neuron": neuron})
    if corpus and neuron is None:
        raise InputError("--corpus needs --neuron")
    at_least("-k", k, 1)
    if neuron is not None:
        only(
            "--neuron",
            "is one neuron on any text",
            {"TEXT": asked.text, "--file": asked.file, "--layer": layers},
        )
        layer, number = _neuron(neuron)
        if not corpus:
            return task.pushes(asked.lm, layer, number, k)
        with bar("tokens read") as progress:
            return task.passages(asked.lm, task.read(corpus), layer, number, k, progress=progress)
    chosen = [layer for given in layers or [] for layer in _layers(given)]
    ids, lm = asked.ids, asked.lm
    found = task.neurons(lm, ids, chosen or None, k)
    return (
        found.nmf(factors, seed=seed)
        if factors
        else found.clusters(clusters, seed=seed)
        if clusters
        else found
    )


def _layers(given: str) -> range:
    first, dash, last = given.partition("-")
    if not (first.isdecimal() and (last.isdecimal() or not dash)) or (dash and int(last) < int(first)):
        raise InputError(f"--layer {given!r} is neither a layer nor a range such as 2-4")
    return range(int(first), int(last or first) + 1)


def _neuron(given: str) -> tuple[int, int]:
    layer, _, number = given.partition(".")
    if not (layer.isdecimal() and number.isdecimal()):
        raise InputError(f"--neuron {given!r} is not LAYER.NEURON, as in 3.17")
    return int(layer), int(number)


@partial(question, without=("model", "revision"))
def diff(
    asked: Asked,
    one: Annotated[str, typer.Argument(help="A model: a shipped name, a folder, a run, a hub id.")],
    other: Annotated[str, typer.Argument(help="Another one with the same vocabulary.")],
) -> "Look":
    """Two models on one text, token by token.

    \b
    glass diff storyteller runs/mine "Once upon a time, there was a dog."
    """
    from glassformer.tasks import questions

    prompt = asked.prompt
    return questions.compare(asked.load(one), asked.load(other), prompt)
