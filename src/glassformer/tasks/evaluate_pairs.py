"""Evaluate a model on pairs: BLEU, chrF or ROUGE of what it writes, or the loss of the targets."""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from glassformer.answers import ask
from glassformer.data.batches import Batch
from glassformer.data.pairs import Pair, Pairs, Rows, read_pairs
from glassformer.data.sequences import Sequences
from glassformer.data.sources import read_lines
from glassformer.errors import InputError, counted
from glassformer.tasks.decoder_translate import DecoderTranslator
from glassformer.tasks.evaluate import Measurement
from glassformer.tasks.rouge import mean_rouge
from glassformer.tasks.summarize import encode_pair, first_sentences
from glassformer.tasks.translate import Translator

if TYPE_CHECKING:
    from glassformer.answers.ablation import HeadAblation
    from glassformer.tasks.complete import LanguageModel
    from glassformer.training.loop import Objective

SACREBLEU = ("bleu", "chrf")
METRICS = (*SACREBLEU, "rouge")
ROUGE = "F-measure of rouge-score, without a stemmer, in percent"
GROUP = 64  # sentences that are translated between two reports of progress
ROWS = 16  # pairs whose loss is computed at once
Progress = Callable[[int, int], object]


def _silent(done: int, total: int) -> None:
    """Progress that is not shown."""


@dataclass(frozen=True)
class Metric:
    """A figure of sacrebleu or of ROUGE, with the signature that others need to compare theirs with it."""

    name: str
    score: float
    signature: str
    sentences: int
    cut: int = 0  # sources that were cut to the context

    def to_dict(self) -> dict[str, Any]:
        """Everything, as plain data."""
        return dict(vars(self))


def read_test_set(files: Sequence[str], *, first: int = 0, reverse: bool = False) -> list[Pair]:
    """The pairs of one file or two; only the `first` N of them (0: all), or with both sides exchanged."""
    pairs = read_pairs([Path(file) for file in files])[: first or None]
    return [Pair(pair.target, pair.source) for pair in pairs] if reverse else pairs


def read_references(files: Sequence[str], pairs: Sequence[Pair]) -> list[list[str]]:
    """The texts that are right for each pair: its target, or all `references` that a line of .jsonl has."""
    targets = [[pair.target] for pair in pairs]
    if len(files) != 1 or ".jsonl" not in Path(files[0]).suffixes:
        return targets
    for number, line in enumerate(read_lines(Path(files[0])), 1):
        if number > len(pairs):
            break
        found = json.loads(line).get("references")
        if found is None:
            continue
        if not isinstance(found, list) or not found or not all(isinstance(one, str) for one in found):
            raise InputError(f"{files[0]}, line {number}: references should be a list of texts")
        targets[number - 1] = found
    return targets


def evaluate_translations(
    model: Translator,
    pairs: Sequence[Pair],
    *,
    metrics: Sequence[str] = SACREBLEU,
    to: str | None = None,
    lowercase: bool = False,
    references: Sequence[Sequence[str]] | None = None,
    progress: Progress = _silent,
    **options: Any,
) -> list[Metric]:
    """Translate all sources, and compare with the targets, or `references`; options as in a translation.

    A source that does not fit the context is translated sentence by sentence. ROUGE is for summaries: then it
    is cut, and the first sentence of every source is measured beside.
    """
    scorers = _scorers(metrics, lowercase=lowercase)
    cut = "rouge" in metrics
    if not cut:
        _check(model, pairs, to=to, split=True)
    written: list[str] = []
    for start in range(0, len(pairs), GROUP):
        sources = [pair.source for pair in pairs[start : start + GROUP]]
        found = model.translate_many(sources, to=to, split=not cut, cut=cut, **options)
        written += [best.text for best, *_ in found]
        progress(len(written), len(pairs))
    right = [[pair.target] for pair in pairs] if references is None else references
    figures = _figures(written, right, scorers)
    if not cut:
        return figures
    shorter = sum(model.is_too_long(pair.source, to=to) for pair in pairs)
    return [replace(one, cut=shorter) for one in figures] + _lead(pairs, right, scorers)


def evaluate_summaries(
    lm: "LanguageModel",
    pairs: Sequence[Pair],
    *,
    references: Sequence[Sequence[str]],
    metrics: Sequence[str] = ("rouge",),
    lowercase: bool = False,
    progress: Progress = _silent,
    **options: Any,
) -> list[Metric]:
    """Summarize all sources, and compare with the references; beside it, the first sentence of each source.

    Options are those of a summary, `zero_shot` too.
    """
    scorers = _scorers(metrics, lowercase=lowercase)
    sources = [pair.source for pair in pairs]
    found = lm.summarize_many(sources, progress=progress, **options)
    written = [one.text for one in found]
    cut = sum(one.left_out > 0 for one in found)
    figures = [replace(one, cut=cut) for one in _figures(written, references, scorers)]
    return figures + _lead(pairs, references, scorers)


def _lead(
    pairs: Sequence[Pair], references: Sequence[Sequence[str]], scorers: dict[str, Any]
) -> list[Metric]:
    """The figures of the first sentence of every source: the simplest summary."""
    first = [first_sentences(pair.source) for pair in pairs]
    return _figures(first, references, scorers, of="lead sentence, ")


def _scorers(metrics: Sequence[str], *, lowercase: bool) -> dict[str, Any]:
    """What computes each metric; ROUGE needs no library."""
    for name in metrics:
        if name not in METRICS:
            raise InputError(f"metric {name!r} is none of {', '.join(METRICS)}")
    return {name: None if name == "rouge" else scorer(name, lowercase=lowercase) for name in metrics}


def _figures(
    written: Sequence[str], references: Sequence[Sequence[str]], scorers: dict[str, Any], of: str = ""
) -> list[Metric]:
    figures = []
    for name, one in scorers.items():
        if one is None:
            most = max(map(len, references))
            how = ROUGE if most == 1 else f"{ROUGE}; of up to {most} references the best"
            scores = mean_rouge(written, references)
            figures += [Metric(of + kind, 100 * score, how, len(written)) for kind, score in scores.items()]
            continue
        score = float(one.corpus_score(written, [[first for first, *_ in references]]).score)
        figures.append(Metric(of + name, score, str(one.get_signature()), len(written)))
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
    if name not in SACREBLEU:
        raise InputError(f"metric {name!r} is none of {', '.join(SACREBLEU)}")
    try:
        from sacrebleu.metrics.bleu import BLEU
        from sacrebleu.metrics.chrf import CHRF
    except ImportError:
        raise InputError("bleu and chrf need one more library: pip install 'glassformer[tasks]'") from None
    return BLEU(lowercase=lowercase) if name == "bleu" else CHRF(lowercase=lowercase)


def target_loss(
    model: "Translator | LanguageModel",
    pairs: Sequence[Pair],
    *,
    name: str,
    to: str | None = None,
    own: bool = False,
    progress: Progress = _silent,
) -> Measurement:
    """The loss of every token of the targets, each behind the true ones before it: teacher forcing.

    `own`: each behind the tokens that the model itself finds likeliest. The difference is its drift.
    """
    import torch

    objective, batches = _scored(model, pairs, to=to, own=own)
    net = model.net
    nats, tokens, done = 0.0, 0, 0
    for batch in batches:
        tensors = {key: torch.as_tensor(array, device=net.device) for key, array in batch.arrays.items()}
        with model.lock, torch.inference_mode():
            nats += float(objective(net, tensors))
        tokens += batch.count
        done += len(batch.arrays["mask"])
        progress(done, len(pairs))

    loss = nats / tokens
    before = "the true tokens before it (teacher forcing)"
    if own:
        before = "the tokens that the model wrote before it, each its likeliest (free running)"
    protocol = (
        f"{counted(len(pairs), 'pair')}; every token of a target and its end, behind the source and {before}"
    )
    return Measurement(name, protocol, tokens, loss, math.exp(min(loss, 700.0)))


def _scored(
    model: "Translator | LanguageModel", pairs: Sequence[Pair], *, to: str | None, own: bool
) -> "tuple[Objective, Iterator[Batch]]":
    """What computes the loss of the targets, and the pairs as it wants them."""
    from glassformer.training.forcing import free_running
    from glassformer.training.objectives import next_token, target_token

    if isinstance(model, Translator) and not isinstance(model, DecoderTranslator):
        _check(model, pairs, to=to, split=False)
        sources = Rows.of([model.encode_source(pair.source, to=to) for pair in pairs])
        targets = Rows.of([model.encode_target(pair.target) for pair in pairs])
        batches = Pairs(sources, targets, model.net.config.pad).in_order(batch=ROWS)
        return free_running if own else target_token, batches

    if own:
        raise InputError(
            "drift: is measured of encoder-decoders, whose targets are read apart from their sources"
        )
    rows = []
    for number, pair in enumerate(pairs, 1):
        try:
            if isinstance(model, DecoderTranslator):
                rows.append(model.encode_pair(pair, to=to))
            else:
                rows.append(encode_pair(model, pair))
        except InputError as error:
            raise InputError(f"pair {number}: {error}") from None
    return next_token, Sequences.of(rows, pad=0).in_order(batch=ROWS)


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
