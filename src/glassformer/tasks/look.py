"""Questions about a text: who looked where, what each layer thought, why this token, which neurons. Answers are tables."""

import csv
import dataclasses
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from glassformer.errors import InputError
from glassformer.explain import attention as attending
from glassformer.explain import lens as lensing
from glassformer.explain import neurons as firing
from glassformer.explain.decoder import check_head
from glassformer.explain.difference import difference
from glassformer.explain.faithfulness import agreement, faithfulness
from glassformer.explain.saliency import METHODS, Target, saliency
from glassformer.tasks.complete import Completion, LanguageModel
from glassformer.tokenizers.words import words

Array = np.ndarray[Any, Any]
Progress = Callable[[int, int], object]
ROBOT = ["robot", "must", "obey", "orders"]
ROBOT_SCORES = [[0.11, 0.00, 0.81, 0.79], [0.19, 0.50, 0.30, 0.48], [0.53, 0.98, 0.95, 0.14], [0.81, 0.86, 0.38, 0.90]]
ROBOT_WIDTH = 16  # the article's percentages come out with scores ÷ √16


@dataclass(frozen=True)
class Look:
    """An answer: the numbers as they are, and a table of them for people."""

    kind: str
    caption: str
    tokens: list[str]
    numbers: Any
    columns: list[str]
    rows: list[list[Any]] = field(repr=False)

    def to_dict(self) -> dict[str, Any]:
        """Everything but the table, as plain data."""
        return {"kind": self.kind, "caption": self.caption, "tokens": self.tokens, "numbers": plain(self.numbers)}

    def to_csv(self) -> str:
        """The table."""
        out = io.StringIO()
        csv.writer(out, lineterminator="\n").writerows([self.columns, *self.rows])
        return out.getvalue()


def plain(value: Any) -> Any:
    """Numbers as JSON has them; what is not a number (−∞, nan) is null."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {one.name: plain(getattr(value, one.name)) for one in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {" ".join(map(str, key)) if isinstance(key, tuple) else str(key): plain(one) for key, one in value.items()}
    if isinstance(value, np.ndarray | list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, float | np.floating):
        return float(value) if np.isfinite(value) else None
    return value.item() if isinstance(value, np.integer | np.bool_) else value


def labels(lm: LanguageModel, ids: Sequence[int]) -> list[str]:
    """The text of every token; half a character is shown as its bytes."""
    if lm.tokenizer is None:
        return [f"<{id}>" for id in ids]
    return [lm.tokenizer.bytes_of(id).decode("utf-8", "backslashreplace") for id in ids]


def find_token(lm: LanguageModel, word: str) -> int:
    """The one token that a word is."""
    ids = lm.encode(word)
    if len(ids) != 1 or not word:
        pieces = " + ".join(map(repr, labels(lm, ids))) if word else "nothing"
        raise InputError(f"{word!r} is not one token but {pieces}; a word inside a text begins with a blank: ' {word.strip()}'")
    return ids[0]


def places_of(lm: LanguageModel, ids: Sequence[int], word: str) -> list[int]:
    """The positions of a word in a text: a number, or its text, with or without the blank before it."""
    if word.lstrip("-").isdecimal():
        return [int(word) % len(ids)] if -len(ids) <= int(word) < len(ids) else _nowhere(word, len(ids))
    if lm.tokenizer is None:
        raise InputError("this model has no vocabulary; name positions by their numbers")
    pieces = [lm.tokenizer.bytes_of(id) for id in ids]
    whole = [(group, b"".join(pieces[at] for at in group).decode("utf-8", "replace").strip()) for group in words(pieces)]
    found = [at for group, text in whole if text == word.strip() for at in group]
    if not found:
        raise InputError(f"the word {word!r} is not in the text; its words are {' '.join(text for _, text in whole)[:200]}")
    return found


def _nowhere(word: str, size: int) -> list[int]:
    raise InputError(f"position {word} is not there; the text has positions 0 to {size - 1}")


def robot() -> Look:
    """The article's "robot must obey orders", with the step that its picture leaves out."""
    table = attending.softmax_table(ROBOT_SCORES, ROBOT_WIDTH)
    rows = [[query, step, *table[step][at]] for at, query in enumerate(ROBOT) for step in table]
    return Look("robot", "raw scores, ÷ √16, masked, softmax", ROBOT, table, ["query", "step", *ROBOT], rows)


def heads(lm: LanguageModel, ids: Sequence[int]) -> Look:
    """What kind of head each is, on this text."""
    found = attending.head_statistics(attending.patterns(lm.model, ids), ids)
    kinds = [one.name for one in dataclasses.fields(found)]
    layers, count = found.previous.shape
    rows = [
        [layer, head, *(float(getattr(found, kind)[layer, head]) for kind in kinds)]
        for layer in range(layers)
        for head in range(count)
    ]
    return Look(
        "heads", f"{lm.name}: kinds of heads on {len(ids)} tokens", labels(lm, ids), found, ["layer", "head", *kinds], rows
    )


def search(lm: LanguageModel, ids: Sequence[int], source: str, target: str, k: int = 10) -> Look:
    """Which heads look from one word to another."""
    queries, sources = places_of(lm, ids, source), places_of(lm, ids, target)
    if min(sources) > max(queries):
        raise InputError(f"{target!r} stands behind {source!r}; attention only looks back")
    found = attending.find_heads(attending.patterns(lm.model, ids), queries, sources)[:k]
    rows: list[list[Any]] = [[one.layer, one.head, one.weight] for one in found]
    return Look("search", f"{lm.name}: from {source!r} to {target!r}", labels(lm, ids), found, ["layer", "head", "weight"], rows)


def pattern(lm: LanguageModel, ids: Sequence[int], layer: int, head: int | None = None, *, by_word: bool = False) -> Look:
    """Where one head looks, or all heads of a layer on average; token by token, or word by word."""
    weights = attending.patterns(lm.model, ids, [layer])[0]
    if head is not None:
        check_head(lm.model, head)
    table: Array = weights.mean(0) if head is None else weights[head]
    names = labels(lm, ids)
    if by_word and lm.tokenizer is not None:
        pieces = [lm.tokenizer.bytes_of(id) for id in ids]
        groups = words(pieces)
        names = [b"".join(pieces[at] for at in group).decode("utf-8", "replace") for group in groups]
        table = np.array(
            [[table[one.start : one.stop, other.start : other.stop].sum(1).mean() for other in groups] for one in groups]
        )
    rows: list[list[Any]] = []
    for at, name in enumerate(names):
        best = np.argsort(-table[at], kind="stable")[:3]
        rows.append([at, name, *(part for source in best for part in (names[source], float(table[at, source])))])
    where = f"layer {layer}, " + ("mean of all heads" if head is None else f"head {head}")
    columns = ["position", "token", *(f"{what} {n}" for n in (1, 2, 3)[: len(names)] for what in ("looks at", "weight"))]
    return Look("attention", f"{lm.name}: {where}", names, table, columns, rows)


def steps(lm: LanguageModel, ids: Sequence[int], layer: int, head: int, position: int) -> Look:
    """The five steps of one query."""
    found = attending.query_steps(lm.model, ids, layer, head, position)
    names = labels(lm, ids)
    lengths = np.linalg.norm(found.weighted, axis=1)
    rows = [
        [at, name, *(float(step[at]) for step in (found.dots, found.scaled, found.masked, found.weights, lengths))]
        for at, name in enumerate(names)
    ]
    caption = f"{lm.name}: layer {layer}, head {head}, query {names[position]!r}"
    return Look("steps", caption, names, found, ["position", "source", "q·k", "÷ √K", "masked", "softmax", "|w·v|"], rows)


def lens(lm: LanguageModel, ids: Sequence[int], *, k: int = 5, watch: Sequence[str] = (), then: int | None = None) -> Look:
    """What each stage would say at each position."""
    found = lensing.lens(lm.model, ids, k=k, watch=[find_token(lm, word) for word in watch], then=then)
    rows: list[list[Any]] = []
    for stage, name in enumerate(found.stages):
        for at in range(len(ids)):
            (first,) = labels(lm, [int(found.top[stage, at, 0])])
            numbers = [float(one[stage, at]) for one in (found.logprobs, found.entropy, found.divergence)]
            watched = found.watched_ranks[stage, at].tolist()
            chance = float(np.exp(found.top_logprobs[stage, at, 0]))
            rows.append([name, at, first, chance, int(found.ranks[stage, at]), *numbers, *watched])
    columns = ["stage", "position", "likeliest", "probability", "rank", "logprob", "entropy", "divergence"]
    return Look("lens", f"{lm.name}: logit lens", labels(lm, ids), found, [*columns, *(f"rank of {w!r}" for w in watch)], rows)


def why(
    lm: LanguageModel,
    written: Completion,
    method: str = "grad_x_input",
    *,
    foil: int | None = None,
    tested: bool = True,
    progress: Progress = lambda done, total: None,
) -> Look:
    """Which tokens made the written ones likely, with the test of the explanation and its agreement with the other methods."""
    ids = [*written.prompt_tokens, *written.tokens[:-1]]
    first = len(written.prompt_tokens) - 1
    targets = [Target(first + number, token, foil) for number, token in enumerate(written.tokens)]
    blank = None if lm.tokenizer is None else lm.tokenizer.end
    found = saliency(lm.model, ids, targets, method, blank=blank, progress=progress)
    names = labels(lm, ids)
    numbers: dict[str, Any] = {"saliency": found, "shares": found.shares}
    columns = ["position", "token", "because of", "share"]
    tests: list[list[float]] = [[] for _ in found.targets]
    if tested:
        curves = faithfulness(lm.model, list(ids), found, blank=blank)
        others = {name: saliency(lm.model, ids, targets, name, blank=blank) for name in METHODS if name != method}
        agreed = {pair: value for pair, value in agreement({method: found, **others}).items() if method in pair}
        numbers |= {"curves": curves, "agreement": agreed}
        columns += ["deletion", "insertion"]
        tests = [[float(a), float(b)] for a, b in zip(curves.deletion_area, curves.insertion_area, strict=True)]
    rows: list[list[Any]] = []
    for target, shares, test in zip(found.targets, found.shares, tests, strict=True):
        (token,) = labels(lm, [target.token])
        for source in np.argsort(-shares, kind="stable")[: min(5, target.position + 1)]:
            rows.append([target.position + 1, token, names[source], float(shares[source]), *test])
    return Look("saliency", f"{lm.name}: {method}", names, numbers, columns, rows)


def neurons(lm: LanguageModel, ids: Sequence[int], layers: Sequence[int] | None = None, k: int = 5) -> Look:
    """The neurons that fire most at every token."""
    found = firing.activations(lm.model, ids, layers)
    names = labels(lm, ids)
    rows = [[at, name, *best] for at, name in enumerate(names) for best in found.top(at, k)]
    return Look(
        "neurons", f"{lm.name}: strongest neurons", names, found, ["position", "token", "layer", "neuron", "activation"], rows
    )


def factors(lm: LanguageModel, ids: Sequence[int], count: int, layers: Sequence[int] | None = None, seed: int = 0) -> Look:
    """A few patterns over the tokens of which all neurons are mixtures."""
    try:
        found = firing.activations(lm.model, ids, layers).nmf(count, seed=seed)
    except ImportError:
        raise InputError("factors need one more library: pip install 'glassformer[explain]'") from None
    names = labels(lm, ids)
    rows = [[n, at, name, float(found.patterns[n, at])] for n in range(count) for at, name in enumerate(names)]
    caption = f"{lm.name}: {count} factors, seed {seed}, {1 - found.error:.0%} of the activations"
    return Look("factors", caption, names, found, ["factor", "position", "token", "strength"], rows)


def compare(lm: LanguageModel, other: LanguageModel, text: str) -> Look:
    """Two models on one text, token by token."""
    ids = lm.encode(text)
    if lm.tokenizer is not None and other.tokenizer is not None and other.encode(text) != ids:
        raise InputError(f"{lm.name} and {other.name} cut this text into different tokens, so they cannot be compared on it")
    found = difference(lm.model, other.model, ids)
    names = labels(lm, ids)
    ones, others = (np.exp(side.logprobs[-1, :-1]) for side in (found.one, found.other))
    rows = [
        [at + 1, names[at + 1], float(ones[at]), float(others[at]), float(found.logprobs[at]), *map(int, found.ranks[at])]
        for at in range(len(ids) - 1)
    ]
    columns = ["position", "token", lm.name, other.name, "difference", "rank", "rank of the other"]
    return Look("diff", f"{lm.name} and {other.name}", names, found, columns, rows)
