"""Evaluate a model on sentence pairs: BLEU and chrF of what it writes, or the loss of the targets."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from glassformer.answers import ask
from glassformer.data.pairs import Pair, Pairs, Rows, read_pairs
from glassformer.errors import InputError, counted
from glassformer.tasks.evaluate import Measurement
from glassformer.tasks.translate import Translator

if TYPE_CHECKING:
    from glassformer.answers.ablation import HeadAblation

METRICS = ("bleu", "chrf")
GROUP = 64  # sentences that are translated between two reports of progress
ROWS = 16  # pairs whose loss is computed at once
Progress = Callable[[int, int], object]


@dataclass(frozen=True)
class Metric:
    """A figure of sacrebleu, with the signature that others need to compare theirs with it."""

    name: str
    score: float
    signature: str
    sentences: int

    def to_dict(self) -> dict[str, Any]:
        """Everything, as plain data."""
        return dict(vars(self))


def read_test_set(files: Sequence[str], *, first: int = 0, reverse: bool = False) -> list[Pair]:
    """The pairs of one file or two; only the `first` N of them (0: all), or with both sides exchanged."""
    pairs = read_pairs([Path(file) for file in files])[: first or None]
    return [Pair(pair.target, pair.source) for pair in pairs] if reverse else pairs


def evaluate_translations(
    model: Translator,
    pairs: Sequence[Pair],
    *,
    metrics: Sequence[str] = METRICS,
    to: str | None = None,
    lowercase: bool = False,
    progress: Progress = lambda done, total: None,
    **options: Any,
) -> list[Metric]:
    """Translate all sources, and compare with the targets; options are those of a translation.

    A source that does not fit the context is translated sentence by sentence.
    """
    scorers = [scorer(name, lowercase=lowercase) for name in dict.fromkeys(metrics)]
    _check(model, pairs, to=to, split=True)
    written: list[str] = []
    for start in range(0, len(pairs), GROUP):
        sources = [pair.source for pair in pairs[start : start + GROUP]]
        found = model.translate_many(sources, to=to, split=True, **options)
        written += [best.text for best, *_ in found]
        progress(len(written), len(pairs))

    targets = [pair.target for pair in pairs]
    figures = []
    for name, one in zip(dict.fromkeys(metrics), scorers, strict=True):
        score = float(one.corpus_score(written, [targets]).score)
        figures.append(Metric(name, score, str(one.get_signature()), len(pairs)))
    return figures


def ablate_heads(
    model: Translator,
    pairs: Iterable[Pair | tuple[str, str]],
    *,
    metric: str,
    progress: Progress = lambda done, total: None,
    **how: Any,
) -> "HeadAblation":
    """A metric without each head, one at a time; how: the options of `evaluate_translations`."""
    chosen = [one if isinstance(one, Pair) else Pair(*one) for one in pairs]
    if not chosen:
        raise InputError("pairs: there is none to translate")
    signature = ""

    def measure(edits: list[dict[str, str]]) -> float:
        nonlocal signature
        (found,) = evaluate_translations(model, chosen, metrics=[metric], edits=edits or None, **how)
        signature = found.signature
        return found.score

    names = {"bleu": "BLEU", "chrf": "chrF"}
    scorer(metric)  # an unknown one, or a missing library, is reported before anything is translated
    beams = model.options(num_beams=how.get("num_beams", 1)).num_beams
    search = "greedy" if beams == 1 else f"{beams} beams"
    found = ask("head_ablation", model, measure=measure, metric=names[metric], progress=progress)
    about = f"{found.caption}{counted(len(chosen), 'pair')}, {search}; {signature}"
    return cast("HeadAblation", replace(found, caption=about))


def scorer(name: str, *, lowercase: bool = False) -> Any:
    """A metric of sacrebleu: `corpus_score(written, [targets])`, and `get_signature()` after it."""
    if name not in METRICS:
        raise InputError(f"metric {name!r} is none of {', '.join(METRICS)}")
    try:
        from sacrebleu.metrics.bleu import BLEU
        from sacrebleu.metrics.chrf import CHRF
    except ImportError:
        raise InputError("bleu and chrf need one more library: pip install 'glassformer[tasks]'") from None
    return BLEU(lowercase=lowercase) if name == "bleu" else CHRF(lowercase=lowercase)


def target_loss(
    model: Translator,
    pairs: Sequence[Pair],
    *,
    name: str,
    to: str | None = None,
    own: bool = False,
    progress: Progress = lambda done, total: None,
) -> Measurement:
    """The loss of every token of the targets, each behind the true ones before it: teacher forcing.

    `own`: each behind the tokens that the model itself finds likeliest. The difference is its drift.
    """
    import torch

    from glassformer.training.forcing import free_running
    from glassformer.training.objectives import target_token

    objective = free_running if own else target_token

    _check(model, pairs, to=to, split=False)
    sources = Rows.of([model.encode_source(pair.source, to=to) for pair in pairs])
    targets = Rows.of([model.encode_target(pair.target) for pair in pairs])
    net = model.net
    nats, tokens, done = 0.0, 0, 0
    for batch in Pairs(sources, targets, net.config.pad).in_order(batch=ROWS):
        tensors = {key: torch.as_tensor(array, device=net.device) for key, array in batch.arrays.items()}
        with model.lock, torch.inference_mode():
            nats += float(objective(net, tensors))
        tokens += batch.count
        done += len(batch.arrays["target"])
        progress(done, len(pairs))

    loss = nats / tokens
    before = "the true tokens before it (teacher forcing)"
    if own:
        before = "the tokens that the model wrote before it, each its likeliest (free running)"
    protocol = (
        f"{counted(len(pairs), 'pair')}; every token of a target and its end, behind the source and {before}"
    )
    return Measurement(name, protocol, tokens, loss, math.exp(min(loss, 700.0)))


def _check(model: Translator, pairs: Sequence[Pair], *, to: str | None, split: bool) -> None:
    """Refuse a pair that the model cannot read, by its number, before any of them is read."""
    model.direction(to)
    for number, pair in enumerate(pairs, 1):
        try:
            for part in model.sentences(pair.source, to=to) if split else [pair.source]:
                model.encode_source(part, to=to)
            if not split:
                model.encode_target(pair.target)
        except InputError as error:
            raise InputError(f"pair {number}: {error}") from None
