"""Questions about neurons: which fire where, what they have in common, what one of them pushes and looks for."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from glassformer.data.sources import find_files, read_pieces
from glassformer.errors import InputError
from glassformer.explain import neurons as firing
from glassformer.tasks.look import Look, Progress, labels

if TYPE_CHECKING:
    from glassformer.tasks.complete import LanguageModel


class Neurons(Look):
    """Activations, of which one can ask on: what they have in common."""

    def nmf(self, factors: int, *, seed: int = 0) -> Look:
        """A few patterns over the tokens, of which all neurons are mixtures."""
        with _library():
            found = self.numbers.nmf(factors, seed=seed)
        rows = [
            [n, at, name, float(found.patterns[n, at])]
            for n in range(factors)
            for at, name in enumerate(self.tokens)
        ]
        caption = f"{self.caption}: {factors} factors, seed {seed}, {1 - found.error:.0%} of the activations"
        columns = ["factor", "position", "token", "strength"]
        return Look(
            "factors", caption, self.tokens, found, columns, rows, seen=found.patterns, made=self.made
        )

    def clusters(self, count: int, *, seed: int = 0) -> Look:
        """Neurons that fire at the same tokens, in groups: at which tokens each group fires, on average."""
        with _library():
            found = self.numbers.clusters(count, seed=seed)
        values = np.maximum(self.numbers.values, 0)  # (L, T, N)
        rows: list[list[Any]] = []
        means = [values.transpose(0, 2, 1)[found == number].mean(0) for number in range(count)]  # (T,) each
        for number, mean in enumerate(means):
            members = found == number  # (L, N)
            for at in np.argsort(-mean, kind="stable")[:3]:
                rows.append([number, int(members.sum()), int(at), self.tokens[at], float(mean[at])])
        columns = ["cluster", "neurons", "position", "token", "activation"]
        caption = f"{self.caption}: {count} clusters, seed {seed}"
        return Look("clusters", caption, self.tokens, found, columns, rows, seen=means, made=self.made)


@contextmanager
def _library() -> Iterator[None]:
    try:
        yield
    except ImportError:
        raise InputError(
            "factors and clusters need one more library: pip install 'glassformer[explain]'"
        ) from None


def neurons(
    lm: "LanguageModel", ids: Sequence[int], layers: Sequence[int] | None = None, k: int = 5
) -> Neurons:
    """The neurons that fire most at every token."""
    if k < 1:
        raise InputError(f"k must be at least 1, not {k}")
    found = firing.activations(lm.model, ids, layers)
    names = labels(lm, ids)
    rows = [[at, name, *best] for at, name in enumerate(names) for best in found.top(at, k)]
    which = "all layers" if layers is None else f"layers {', '.join(map(str, layers))}"
    columns = ["position", "token", "layer", "neuron", "activation"]
    return Neurons("neurons", f"{lm.name}: neurons of {which}", names, found, columns, rows)


def pushes(lm: "LanguageModel", layer: int, neuron: int, k: int = 10) -> Look:
    """The tokens that a neuron makes likelier when it fires."""
    tokens, amounts = firing.pushed(lm.model, layer, neuron, k)
    names = labels(lm, tokens.tolist())
    rows: list[list[Any]] = [[name, float(amount)] for name, amount in zip(names, amounts, strict=True)]
    caption = f"{lm.name}: what neuron {neuron} of layer {layer} pushes, in logits a unit of it"
    return Look("pushes", caption, names, {"ids": tokens, "logits": amounts}, ["token", "logit"], rows)


def read(corpus: Iterable[str | Path]) -> Iterator[str]:
    """Text files, .jsonl and folders of them as a stream of texts; a long one comes in pieces."""
    for path in corpus:
        for file in find_files(Path(path)):
            yield from (piece.text for piece in read_pieces(file))


def passages(
    lm: "LanguageModel",
    documents: Iterable[str],
    layer: int,
    neuron: int,
    k: int = 5,
    *,
    progress: Progress = lambda done, total: None,
) -> Look:
    """Where in many texts a neuron fires most; one piece is in memory at a time. Progress: tokens read, of 0 (unknown)."""
    texts = (ids for text in documents if (ids := lm.encode(text) if text else []))
    found = firing.passages(lm.model, texts, [(layer, neuron)], k=k, progress=lambda done: progress(done, 0))[
        layer, neuron
    ]
    if not found:
        raise InputError("there is no text to search: the corpus is empty")
    rows: list[list[Any]] = []
    for one in found:
        before, (token,), after = (
            labels(lm, part)
            for part in (
                one.ids[: one.position],
                one.ids[one.position : one.position + 1],
                one.ids[one.position + 1 :],
            )
        )
        rows.append([one.activation, one.document, "".join(before), token, "".join(after)])
    caption = f"{lm.name}: where neuron {neuron} of layer {layer} fires most"
    return Look("passages", caption, [], found, ["activation", "document", "before", "token", "after"], rows)
