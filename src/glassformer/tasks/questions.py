"""Questions about a text: who looked where, what each layer thought, who spoke for a token, why this one, what the cache kept."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from glassformer.errors import InputError
from glassformer.explain import attention as attending
from glassformer.explain import lens as lensing
from glassformer.explain.decoder import check_head, check_layer
from glassformer.explain.difference import difference
from glassformer.explain.faithfulness import agreement, faithfulness
from glassformer.explain.memory import kept
from glassformer.explain.saliency import METHODS, Target, saliency
from glassformer.generation.options import Options
from glassformer.generation.sampling import adjust, distribution, log_softmax, restrict
from glassformer.tasks.look import Array, Look, Progress, find_token, labels, places_of, words_of

if TYPE_CHECKING:
    from glassformer.tasks.complete import LanguageModel
    from glassformer.tasks.written import Completion

ROBOT = ["robot", "must", "obey", "orders"]
ROBOT_SCORES = [
    [0.11, 0.00, 0.81, 0.79],
    [0.19, 0.50, 0.30, 0.48],
    [0.53, 0.98, 0.95, 0.14],
    [0.81, 0.86, 0.38, 0.90],
]
ROBOT_WIDTH = 16  # the article's percentages come out with scores ÷ √16


def robot() -> Look:
    """The article's "robot must obey orders", with the step that its picture leaves out."""
    table = attending.softmax_table(ROBOT_SCORES, ROBOT_WIDTH)
    rows = [[query, step, *table[step][at]] for at, query in enumerate(ROBOT) for step in table]
    return Look("robot", "raw scores, ÷ √16, masked, softmax", ROBOT, table, ["query", "step", *ROBOT], rows)


def heads(lm: "LanguageModel", ids: Sequence[int]) -> Look:
    """What kind of head each is, on this text."""
    patterns = attending.patterns(lm.model, ids)
    found = attending.head_statistics(patterns, ids)
    kinds = [one.name for one in dataclasses.fields(found)]
    layers, count = found.previous.shape
    rows = [
        [layer, head, *(float(getattr(found, kind)[layer, head]) for kind in kinds)]
        for layer in range(layers)
        for head in range(count)
    ]
    caption = f"{lm.name}: kinds of heads on {len(ids)} tokens"
    return Look("heads", caption, labels(lm, ids), found, ["layer", "head", *kinds], rows, seen=patterns)


def search(
    lm: "LanguageModel", ids: Sequence[int], source: str | int, target: str | int, k: int = 10
) -> Look:
    """Which heads look from one word to another."""
    queries, sources = places_of(lm, ids, source), places_of(lm, ids, target)
    if min(sources) > max(queries):
        raise InputError(f"{target!r} stands behind {source!r}; attention only looks back")
    found = attending.find_heads(attending.patterns(lm.model, ids), queries, sources)[:k]
    rows: list[list[Any]] = [[one.layer, one.head, one.weight] for one in found]
    return Look(
        "search",
        f"{lm.name}: from {source!r} to {target!r}",
        labels(lm, ids),
        found,
        ["layer", "head", "weight"],
        rows,
    )


def pattern(
    lm: "LanguageModel",
    ids: Sequence[int],
    layer: int,
    head: int | None = None,
    *,
    by_word: bool = False,
    values: bool = False,
) -> Look:
    """Where one head looks, or all heads of a layer on average; with `values`, how much each source hands over."""
    if head is not None:
        check_head(lm.model, head)
    heads = (
        attending.value_weighted(lm.model, ids, layer)
        if values
        else attending.patterns(lm.model, ids, [layer])[0]
    )
    where = f"layer {layer}, " + ("mean of all heads" if head is None else f"head {head}")
    what = "attention" if not values else "attention × length of what is handed over"
    table = heads.mean(0) if head is None else heads[head]
    return _sources(lm, ids, table, f"{where}: {what}", by_word, "handed over" if values else "shares")


def flow(lm: "LanguageModel", ids: Sequence[int], layer: int | None = None, *, by_word: bool = False) -> Look:
    """Attention through all layers up to one (rollout): from which tokens a position's vector is made."""
    if layer is not None:
        check_layer(lm.model, layer)
    through = attending.rollout(attending.patterns(lm.model, ids))
    where = f"through layers 0 to {len(through) - 1 if layer is None else layer}"
    return _sources(lm, ids, through[-1 if layer is None else layer], f"{where}: attention rollout", by_word)


def _sources(
    lm: "LanguageModel", ids: Sequence[int], table: Array, what: str, by_word: bool, seen: str = "shares"
) -> Look:
    """A table (T, T) of who gives how much to whom, and the three strongest of each row; token by token, or word by word."""
    names = labels(lm, ids)
    if by_word:
        groups, names = words_of(lm, ids)
        starts = [group.start for group in groups]
        table = np.add.reduceat(np.add.reduceat(table, starts, 1), starts, 0) / np.array(
            [[len(group)] for group in groups]
        )
    rows: list[list[Any]] = []
    for at, name in enumerate(names):
        best = np.argsort(-table[at, : at + 1], kind="stable")[:3]
        found = [part for source in best for part in (names[source], float(table[at, source]))]
        rows.append([at, name, *found, *["", np.nan] * (min(3, len(names)) - len(best))])
    columns = [
        "position",
        "token",
        *(f"{what} {n}" for n in (1, 2, 3)[: len(names)] for what in ("looks at", "weight")),
    ]
    every = (
        ["position", "token", *(f"{n} {name}" for n, name in enumerate(names))],
        [[at, name, *row] for at, (name, row) in enumerate(zip(names, table.tolist(), strict=True))],
    )
    return Look("attention", f"{lm.name}: {what}", names, table, columns, rows, every=every, seen=seen)


def steps(lm: "LanguageModel", ids: Sequence[int], layer: int, head: int, position: int) -> Look:
    """The five steps of one query."""
    found = attending.query_steps(lm.model, ids, layer, head, position)
    names = labels(lm, ids)
    lengths = np.linalg.norm(found.weighted, axis=1)
    rows = [
        [
            at,
            name,
            *(float(step[at]) for step in (found.dots, found.scaled, found.masked, found.weights, lengths)),
        ]
        for at, name in enumerate(names)
    ]
    where = position % len(ids)
    caption = f"{lm.name}: layer {layer}, head {head}, query {names[position]!r} at {where}"
    columns = ["position", "source", "q·k", "÷ √K", "masked", "softmax", "|w·v|"]
    return Look("steps", caption, names, found, columns, rows, seen=where)


def lens(
    lm: "LanguageModel",
    ids: Sequence[int],
    *,
    k: int = 5,
    watch: Sequence[str | int] = (),
    then: int | None = None,
) -> Look:
    """What each stage would say at each position."""
    found = lensing.lens(lm.model, ids, k=k, watch=[find_token(lm, word) for word in watch], then=then)
    rows: list[list[Any]] = []
    likeliest = [labels(lm, row) for row in found.top[..., 0].tolist()]
    for stage, name in enumerate(found.stages):
        for at, first in enumerate(likeliest[stage]):
            numbers = [float(one[stage, at]) for one in (found.logprobs, found.entropy, found.divergence)]
            watched = found.watched_ranks[stage, at].tolist()
            chance = float(np.exp(found.top_logprobs[stage, at, 0]))
            rows.append([name, at, first, chance, int(found.ranks[stage, at]), *numbers, *watched])
    columns = ["stage", "position", "likeliest", "probability", "rank", "logprob", "entropy", "divergence"]
    columns += [f"rank of {word!r}" for word in watch]
    return Look("lens", f"{lm.name}: logit lens", labels(lm, ids), found, columns, rows, seen=likeliest)


def rankings(lm: "LanguageModel", written: "Completion") -> Look:
    """At which rank every layer had each token that was written: 1 is the likeliest."""
    ids, first = _read(written)
    found = lensing.lens(lm.model, ids, k=1, then=written.tokens[-1])
    ranks, logprobs = found.ranks[:, first:], found.logprobs[:, first:]
    names = labels(lm, written.tokens)
    rows = [[stage, *map(int, ranks[number])] for number, stage in enumerate(found.stages)]
    numbers = {"stages": found.stages, "ranks": ranks, "logprobs": logprobs}
    columns = ["stage", *(f"{first + 1 + n} {name!r}" for n, name in enumerate(names))]
    return Look("rankings", f"{lm.name}: ranks of the written tokens", names, numbers, columns, rows)


def watched(lm: "LanguageModel", ids: Sequence[int], watch: Sequence[str | int], position: int = -1) -> Look:
    """Some words against each other: at which rank every layer had each of them, after a position."""
    if not -len(ids) <= position < len(ids):
        raise InputError(f"position {position} is not there; the text has positions 0 to {len(ids) - 1}")
    if not watch:
        raise InputError("name at least one token to watch, as in ' is'")
    tokens = [find_token(lm, word) for word in watch]
    found = lensing.lens(lm.model, ids, k=1, watch=tokens)
    ranks, logprobs = found.watched_ranks[:, position], found.watched_logprobs[:, position]
    rows = [[stage, *map(int, ranks[number])] for number, stage in enumerate(found.stages)]
    names = labels(lm, ids)
    numbers = {"stages": found.stages, "watched": tokens, "ranks": ranks, "logprobs": logprobs}
    caption = f"{lm.name}: ranks after {names[position]!r}, position {position % len(ids)}"
    return Look("watched", caption, names, numbers, ["stage", *map(repr, labels(lm, tokens))], rows)


def journey(lm: "LanguageModel", ids: Sequence[int], position: int = -1) -> Look:
    """A position's vector from the embedding to the last block: its length, what each half of a block added, what it says."""
    if not -len(ids) <= position < len(ids):
        raise InputError(f"position {position} is not there; the text has positions 0 to {len(ids) - 1}")
    said = lensing.lens(lm.model, ids, k=1)
    way = lensing.path(lm.model, ids, position)
    likeliest = labels(lm, said.top[:, position, 0].tolist())
    chances = np.exp(said.top_logprobs[:, position, 0])
    numbers = {"stages": said.stages, **vars(way), "likeliest": likeliest, "probability": chances}
    rows = [
        [
            stage,
            *(float(one[n]) for one in (way.length, way.added, way.kept)),
            likeliest[n],
            float(chances[n]),
        ]
        for n, stage in enumerate(said.stages)
    ]
    names = labels(lm, ids)
    caption = f"{lm.name}: the way of {names[position]!r}, position {position % len(ids)}"
    return Look(
        "journey",
        caption,
        names,
        numbers,
        ["stage", "length", "added", "cosine", "likeliest", "probability"],
        rows,
    )


def embedded(lm: "LanguageModel", ids: Sequence[int]) -> Look:
    """What goes into the first block: the row of each token, the row of its position, and their sum."""
    token, position, whole = lensing.inputs(lm.model, ids)
    names = labels(lm, ids)
    rows = [
        [at, name, *(float(np.linalg.norm(one[at])) for one in (token, position, whole))]
        for at, name in enumerate(names)
    ]
    numbers = {"token": token, "position": position, "sum": whole}
    columns = ["position", "token", "length of its row", "length of the position's", "length of the sum"]
    return Look("embedding", f"{lm.name}: token + position", names, numbers, columns, rows)


def sure(lm: "LanguageModel", written: "Completion") -> Look:
    """How sure the model was of every token that it wrote."""
    if not written.tokens:
        raise InputError("nothing was written")
    first = len(written.prompt_tokens)
    chances = np.exp(written.logprobs)
    answer = labels(lm, written.tokens)
    rows: list[list[Any]] = [
        [first + at, name, float(chances[at]), written.logprobs[at]] for at, name in enumerate(answer)
    ]
    numbers = {"probability": np.concatenate([np.full(first, np.nan), chances])}
    names = labels(lm, written.prompt_tokens) + answer
    return Look(
        "written",
        f"{lm.name}: how sure it was",
        names,
        numbers,
        ["position", "token", "probability", "logprob"],
        rows,
    )


def choices(lm: "LanguageModel", ids: Sequence[int], k: int, options: Options) -> Look:
    """The likeliest next tokens, and which of them are cut off before one is drawn."""
    if k < 1:
        raise InputError(f"k must be at least 1, not {k}")
    check = Options(temperature=1.0, top_k=0, seed=options.seed)  # nothing is cut
    logits = adjust(restrict(lm.logits(ids)[-1]), options, prompt=ids, answer=[])
    known = len(logits) if lm.tokenizer is None else len(lm.tokenizer)
    warm = logits[:known].astype(np.float64) / (options.temperature or 1.0)
    chances = np.exp(log_softmax(warm))
    best = np.argsort(-chances, kind="stable")[:k]
    kept = distribution(logits[:known], options)[best] > 0 if not options.greedy else np.arange(len(best)) < 1
    count = int(kept.sum())
    cut = (
        None
        if count == len(best)
        else {"after": count, "label": f"cut: {options.summary().rpartition(', seed')[0] or 'greedy'}"}
    )
    names = labels(lm, best.tolist())
    rows: list[list[Any]] = [
        [n + 1, names[n], float(chances[id]), bool(kept[n])] for n, id in enumerate(best)
    ]
    numbers = {"ids": best, "probability": chances[best], "kept": kept, "cut": cut}
    caption = f"{lm.name}: what may come after …{lm.text_of(ids)[-40:]!r}"
    if cut is None and options.summary() != check.summary():
        caption += f"; all {k} may be drawn ({options.summary().rpartition(', seed')[0]})"
    return Look("top", caption, names, numbers, ["rank", "token", "probability", "may be drawn"], rows)


def parts(
    lm: "LanguageModel",
    ids: Sequence[int],
    position: int = -1,
    token: int | None = None,
    foil: int | None = None,
) -> Look:
    """Who spoke for a token (the likeliest, unless one is named), or for its lead over another: the parts of its logit."""
    if token is None:
        token = int(lm.logits(ids[: position % len(ids) + 1])[-1].argmax())
    found = lensing.contributions(lm.model, ids, position, token, against=foil)
    order = np.argsort(-np.abs(found.values), kind="stable")
    rows: list[list[Any]] = [[found.parts[at], float(found.values[at])] for at in order]
    lead = " less that of ".join(
        repr(name) for name in labels(lm, [token] if foil is None else [token, foil])
    )
    caption = f"{lm.name}: the logit of {lead}, {found.logit:.3f}, part by part"
    return Look("parts", caption, labels(lm, ids), found, ["part", "logit"], rows)


def memory(lm: "LanguageModel", written: "Completion") -> Look:
    """What the key-value cache kept and saved while a text was written, step by step."""
    found = kept(lm.model, written.prompt_tokens, written.tokens)
    names = labels(lm, written.tokens)
    rows = [
        [
            one.step,
            name,
            _each(one.computed),
            _each(one.reused),
            one.saved,
            _each(one.bytes),
            int(one.bytes.sum()),
        ]
        for one, name in zip(found, names, strict=True)
    ]
    columns = ["step", "token", "computed", "reused", "saved", "bytes a layer", "bytes"]
    caption = f"{lm.name}: keys and values of {len(lm.model.blocks)} layers"
    return Look(
        "cache",
        caption,
        names,
        found,
        columns,
        rows,
        seen=labels(lm, [*written.prompt_tokens, *written.tokens]),
    )


def _each(layers: Array) -> int | str:
    """One number where all layers are alike, and all of them where not."""
    first, *others = layers.tolist()
    return first if all(one == first for one in others) else " ".join(map(str, (first, *others)))


def _read(written: "Completion") -> tuple[list[int], int]:
    """What the model read while it wrote, and the position after which the first token came."""
    if not written.tokens:
        raise InputError("there is no token to explain: nothing was written")
    return [*written.prompt_tokens, *written.tokens[:-1]], len(written.prompt_tokens) - 1


def why(
    lm: "LanguageModel",
    written: "Completion",
    method: str = "grad_x_input",
    *,
    foil: int | None = None,
    steps: int = 32,
    tested: bool = True,
    by_word: bool = False,
    progress: Progress = lambda done, total: None,
) -> Look:
    """Which tokens made the written ones likely, with the test of the explanation and its agreement with the other methods.

    What speaks against a token has a share below 0. `steps` is for integrated gradients.
    """
    ids, first = _read(written)
    targets = [Target(first + number, token, foil) for number, token in enumerate(written.tokens)]
    blank = None if lm.tokenizer is None else lm.tokenizer.end
    others = [name for name in METHODS if name != method] if tested else []
    pace = _paced(progress, 1 + (1 + len(others) if tested else 0))
    found = saliency(lm.model, ids, targets, method, steps=steps, blank=blank, progress=next(pace))
    names, shares = labels(lm, ids), np.sign(found.scores) * found.shares  # (N, T)
    ends = np.arange(len(ids)) + 1
    if by_word:
        groups, names = words_of(lm, ids)
        shares = np.stack([shares[:, list(group)].sum(1) for group in groups], 1)
        ends = np.array([group.start + 1 for group in groups])
    numbers: dict[str, Any] = {"saliency": found, "shares": shares, "ends": ends}
    columns, tests, caption = (
        ["position", "token", "because of", "share"],
        np.zeros((len(targets), 0)),
        f"{lm.name}: {method}",
    )
    if foil is not None:
        caption += f", and not {labels(lm, [foil])[0]!r}"
    if found.gaps is not None:
        columns, tests = [*columns, "gap"], found.gaps[:, None]
    if tested:
        curves = faithfulness(lm.model, list(ids), found, blank=blank, progress=next(pace))
        all_of_them = {method: found} | {
            name: saliency(lm.model, ids, targets, name, steps=steps, blank=blank, progress=next(pace))
            for name in others
        }
        agreed = {pair[1]: value for pair, value in agreement(all_of_them).items() if pair[0] == method}
        numbers |= {"curves": curves, "agreement": agreed}
        columns += ["deletion", "insertion"]
        tests = np.column_stack([tests, curves.deletion_area, curves.insertion_area])
        caption += "; agrees with " + ", ".join(f"{name} {value:.2f}" for name, value in agreed.items())
    rows: list[list[Any]] = []
    for target, row, test in zip(found.targets, shares, tests, strict=True):
        (token,) = labels(lm, [target.token])
        there = np.flatnonzero(ends <= target.position + 1)
        for source in there[np.argsort(-row[there], kind="stable")][:5]:
            rows.append([target.position + 1, token, names[source], float(row[source]), *map(float, test)])
    targets_of = labels(lm, [one.token for one in found.targets])
    every = (
        ["position", "token", "source", "because of", "share"],
        [
            [target.position + 1, targets_of[n], source, names[source], float(shares[n, source])]
            for n, target in enumerate(found.targets)
            for source in np.flatnonzero(ends <= target.position + 1).tolist()
        ],
    )
    tokens = names if by_word else [*names, targets_of[-1]]
    return Look("saliency", caption, tokens, numbers, columns, rows, seen=targets_of, every=every)


def _paced(progress: Progress, count: int) -> Iterator[Progress]:
    """One progress for work of several parts."""
    for number in range(count):

        def part(done: int, total: int, number: int = number) -> None:
            progress(round(100 * (number + done / max(1, total))), 100 * count)

        yield part


def compare(lm: "LanguageModel", other: "LanguageModel", text: str) -> Look:
    """Two models on one text, token by token."""
    ids = lm.encode(text)
    if lm.tokenizer is not None and other.tokenizer is not None and other.encode(text) != ids:
        raise InputError(
            f"{lm.name} and {other.name} cut this text into different tokens, so they cannot be compared on it"
        )
    found = difference(lm.model, other.model, ids)
    names = labels(lm, ids)
    ones, others = (np.exp(side.logprobs[-1, :-1]) for side in (found.one, found.other))
    rows = [
        [
            at + 1,
            names[at + 1],
            float(ones[at]),
            float(others[at]),
            float(found.logprobs[at]),
            *map(int, found.ranks[at]),
        ]
        for at in range(len(ids) - 1)
    ]
    name = other.name if other.name != lm.name else f"{other.name} (the other)"
    columns = ["position", "token", lm.name, name, "difference", "rank", "rank of the other"]
    return Look("diff", f"{lm.name} and {name}", names, found, columns, rows)
