"""Is the model computed right: against the reference, step by step, in batches, and by the native engine."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from glassformer.answers.verification import Check
from glassformer.generation.sampling import log_softmax
from glassformer.tasks.backends import Backend
from glassformer.tasks.complete import LanguageModel
from glassformer.tasks.load import load_torch
from glassformer.trace import trace
from glassformer.verification import reference

Array = np.ndarray[Any, Any]

FLOAT64 = 1e-9  # of the largest value: two orders of summing differ by far less, a wrong formula by far more
FLOAT32 = 1e-5
NO_BIT = 0  # the native engine promises the same bits
EIGHT_BITS = 0.15  # nats a token, on average
NUDGE = 0.001
LOGITS = "of the largest logit"


def parity(folder: Path, ids: Sequence[int]) -> Iterator[Check]:
    """A model in float64 against the reference: its logits, and every value on the way to them."""
    exact: Any = load_torch(folder, dtype="float64").model
    files = reference.read_folder(folder)
    right = reference.sites(files, np.array([ids]))
    blind = reference.sites(files, np.array([ids]), causal=False)

    text = torch.tensor([list(ids)])
    with torch.inference_mode(), trace(exact) as seen:
        exact(text)
    ours = {site: value.numpy() for site, value in seen.items()}
    with nudged(exact.positions.weight), torch.inference_mode():
        wrong = exact(text).numpy()

    yield Check(
        name="parity",
        compared=f"logits of {len(ids)} tokens: torch float64, NumPy float64",
        unit=LOGITS,
        measured=distance(ours["logits"], right["logits"]),
        limit=FLOAT64,
        mutant=f"one weight + {NUDGE}",
        mutant_measured=distance(wrong, right["logits"]),
    )
    yield Check(
        name="parity inside",
        compared=f"all {len(right)} values on the way: torch float64, NumPy float64",
        unit="of the largest of each",
        measured=farthest(ours, right),
        limit=FLOAT64,
        mutant="no causal mask",
        mutant_measured=farthest(ours, blind),
    )


def cache(backend: Backend, ids: Sequence[int], *, limit: float) -> Iterator[Check]:
    """Token by token behind the cache against the whole text at once."""
    whole = backend.logits(np.array([ids]))[0]
    yield Check(
        name=f"cache, {backend.name}",
        compared=f"{len(ids)} tokens: one by one, all at once",
        unit=LOGITS,
        measured=distance(by_steps(backend, ids), whole),
        limit=limit,
        mutant="the cache shifted by one",
        mutant_measured=distance(by_steps(backend, ids, shift=len(ids) // 2), whole),
    )


def by_steps(backend: Backend, ids: Sequence[int], *, shift: int = 0) -> Array:
    """Logits (T, V), each from a step of one token; before step `shift` the last position is lost."""
    cache = backend.new_cache(1, len(ids))
    rows = []
    for at, id in enumerate(ids):
        if shift and at == shift:
            cache.rewind(at - 1)
        rows.append(backend.step(np.array([[id]]), cache)[0])
    return np.stack(rows)


def batch(backend: Backend, ids: Sequence[int], *, limit: float) -> Iterator[Check]:
    """Texts of several lengths in one batch against each of them alone."""
    count = len(ids)
    texts = [list(ids), list(ids[: count // 2]), list(ids[count // 3 :])]
    alone = np.stack([backend.step(np.array([text]), backend.new_cache(1, count))[0] for text in texts])
    yield Check(
        name=f"batch, {backend.name}",
        compared=f"texts of {', '.join(str(len(text)) for text in texts)} tokens: together, alone",
        unit=LOGITS,
        measured=distance(together(backend, texts), alone),
        limit=limit,
        mutant="the padding read as text",
        mutant_measured=distance(together(backend, texts, padded=False), alone),
    )


def together(backend: Backend, texts: Sequence[Sequence[int]], *, padded: bool = True) -> Array:
    """The next token's logits (B, V) of texts in one batch, padded at the left."""
    longest = max(map(len, texts))
    padding = np.array([longest - len(text) for text in texts])
    ids = np.zeros((len(texts), longest), dtype=np.int64)
    for row, text in enumerate(texts):
        ids[row, padding[row] :] = text
    return backend.step(ids, backend.new_cache(len(texts), longest, padding=padding if padded else None))


def engines(lm: LanguageModel, ids: Sequence[int], *, engine: Backend) -> Iterator[Check]:
    """The native engine against torch: log-probabilities of the text's own tokens."""
    text = np.array([ids])
    native = of_tokens(engine.logits(text)[0], ids)
    with lm.in_torch():
        right = of_tokens(lm.backend.logits(text)[0], ids)
    with lm.edit([{"site": "blocks.0.attn", "do": "zero"}]):
        without = of_tokens(lm.backend.logits(text)[0], ids)
    gaps = np.abs(native - right)
    yield Check(
        name="engines",
        compared=f"log p of {len(gaps)} tokens, at most {gaps.max():.3f} apart: {engine.name}, torch float32",
        unit="nats apart, mean",
        measured=float(gaps.mean()),
        limit=EIGHT_BITS,
        mutant="torch without its first attention",
        mutant_measured=float(np.abs(native - without).mean()),
    )


def of_tokens(logits: Array, ids: Sequence[int]) -> Array:
    """log p of every token but the first, from the logits (T, V)."""
    return np.array([log_softmax(row)[id] for row, id in zip(logits[:-1], ids[1:], strict=True)])


def distance(ours: Array, right: Array) -> float:
    """The largest difference, as a share of the largest value; a -∞ that only one of them has counts as 1."""
    finite = np.isfinite(ours) & np.isfinite(right)
    astray = np.isfinite(ours) != np.isfinite(right)
    largest = np.abs(right[finite]).max(initial=0.0) or 1.0
    differences = np.abs(ours[finite] - right[finite])
    return float(max(differences.max(initial=0.0) / largest, astray.max()))


def farthest(ours: dict[str, Array], right: dict[str, Array]) -> float:
    """The largest distance over all sites; a site that only one of them has counts as 1."""
    distances = [distance(ours[site], right[site]) for site in ours.keys() & right.keys()]
    return max(*distances, float(ours.keys() != right.keys()))


@contextmanager
def nudged(weight: torch.Tensor) -> Iterator[None]:
    """Inside, the first number of a weight is a little larger."""
    before = weight[0, 0].item()
    with torch.no_grad():
        weight[0, 0] += NUDGE
    try:
        yield
    finally:
        with torch.no_grad():
            weight[0, 0] = before
