"""glass eval"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glassformer.cli import flags
from glassformer.cli.flags import Loading, argument, option, switch
from glassformer.cli.printing import log, out, print_json
from glassformer.errors import InputError, counted

if TYPE_CHECKING:
    from glassformer.cli.progress import Advance
    from glassformer.tasks.evaluate import Measurement
    from glassformer.tasks.evaluate_examples import Figure
    from glassformer.tasks.evaluate_pairs import Metric
    from glassformer.tasks.translate import Translator


@dataclass(frozen=True)
class Texts:
    """How a language model is measured."""

    stride: int = 0
    characters: int = 0
    field: str = "text"


@dataclass(frozen=True)
class Translations:
    """How a model that translates is measured."""

    metric: tuple[str, ...] = ()
    lowercase: bool = False
    to: str | None = None
    reverse: bool = False
    num_beams: int | None = None
    drift: bool = False


@dataclass(frozen=True)
class Labeled:
    """How a model is measured that does a task."""

    text_column: tuple[str, ...] = ()
    label_column: str = ""
    cut: bool = False


texts = flags.group(
    Texts,
    "texts",
    option("--stride", default=0, help="How far windows move in the second measurement; 0: half a window."),
    option("--characters", default=0, help="Only the first N characters of each document; 0: all."),
    option("--field", default="text", help="The key under which a line of JSON has its text."),
)
translations = flags.group(
    Translations,
    "translations",
    option("--metric", multiple=True, help="For pairs: bleu or chrf (may be repeated); none: the loss."),
    switch("--lowercase", help="Ignore upper and lower case in bleu and chrf."),
    option("--to", help="The language to translate to, for a model of several directions."),
    switch("--reverse", help="Translate the targets of the pairs back into their sources."),
    option("--num-beams", type=int, help="Beams of the translations; none: the model's own, or 4."),
    switch("--drift", help="Also the loss when the model reads its own tokens instead of the true ones."),
)


labeled = flags.group(
    Labeled,
    "labeled",
    option("--text-column", multiple=True, help="For examples: the column of a text; repeatable."),
    option("--label-column", default="", help="For examples: the column of the label."),
    switch("--cut", help="Cut an example that is longer than the context, instead of refusing it."),
)


@flags.verb
@flags.model_argument(
    "A shipped name, a folder, a run, a hub id or a name from `glass models`.", before="what"
)
@argument(
    "what",
    "wikitext2, lambada, a file or folder of text or JSON lines; pairs, for a model that translates; examples"
    " with labels, for one that classifies.",
    nargs=-1,
    metavar="WHAT...",
)
@option("--documents", default=0, help="Only the first N documents, or pairs; 0: all.")
@texts
@translations
@labeled
@option("--engine", default="torch", help=flags.ENGINE)
@flags.loading(flags.quantize, flags.revision, flags.device, flags.dtype, flags.offline)
@flags.as_json
def evaluate(what: tuple[str, ...], loading: Loading, as_json: bool, **how: Any) -> None:
    """How well a model knows a text that it has not seen, how well it translates, or does its task.

    \b
    glass eval runs/shakespeare part.txt     perplexity and bits per byte, without overlap and with a stride
    glass eval gpt2 wikitext2                the raw test set; read from GLASSFORMER_DATA
    glass eval gpt2 lambada                  the last word of a passage: accuracy and perplexity
    glass eval gpt2 wikitext2 --engine native    what eight bits cost; with --quantize int4, what four cost
    glass eval runs/de-en test.tsv --metric bleu --metric chrf    sacrebleu, with its signature
    glass eval runs/de-en test.de test.en    the loss of every token of the targets
    glass eval runs/reviews test.csv         a model with a head: accuracy, or correlations of its numbers

    Windows are as long as the model's context, first without overlap, then moving by a stride of half a
    window, so that nearly every token is predicted from at least half a window. Bits per byte divide by the
    length of the text instead of its tokens: they can be compared between vocabularies, perplexities cannot.
    Pairs are a .tsv file, a .jsonl file with source and target, or two files, line by line. Examples are
    those of `glass finetune --task`. Lower is better, except for BLEU, chrF and the figures of tasks. The
    protocol is printed with every figure.
    """
    from glassformer.cli.progress import progress_bar
    from glassformer.tasks.evaluate import was_trained_on
    from glassformer.tasks.translate import Translator

    if "-" in what:
        raise InputError("eval reads files, not stdin; give a file instead of '-'")
    flags.at_least("--documents", how["documents"], least=0)
    if Path(loading.model).is_file() and Path(what[0]).is_dir():
        raise InputError(f"{loading.model} is a text; the model comes first: glass eval MODEL TEXT")
    model = loading.load()
    known = [one for one in what if was_trained_on(loading.model, one, revision=loading.revision)]
    if known:
        text = " and ".join(known)
        log(f"{loading.model} was trained on {text}: the figures do not say how well it predicts new text.")
    found: list[Measurement] | list[Metric] | list[Figure]
    with progress_bar(what[0]) as progress:
        if "labels" in model.capabilities:
            found = _examples(model, what, progress=progress, **how)
        elif isinstance(model, Translator):
            found = _pairs(model, what, progress=progress, **how)
        else:
            found = _texts(model, what, progress=progress, **how)
    if as_json:
        print_json([one.to_dict() for one in found])
        return
    for one in found:
        out(*describe(one))


def _texts(
    model: Any,
    what: tuple[str, ...],
    *,
    documents: int,
    texts: Texts,
    translations: Translations,
    labeled: Labeled,
    **how: Any,
) -> "list[Measurement]":
    """A language model on texts."""
    from glassformer.tasks.complete import LanguageModel
    from glassformer.tasks.evaluate import evaluate as measure
    from glassformer.tasks.translate import Translator

    lm = model.expect(LanguageModel)
    flags.refuse("text_column", "label_column", "cut", why="is for a model that does a task")
    if translations != Translations():
        lm.expect(Translator)
    if len(what) > 1:
        raise InputError(f"a language model is measured on one text at a time, not on {len(what)}")
    return list(measure(lm, what[0], documents=documents, **vars(texts), **how))


def _examples(
    model: Any, what: tuple[str, ...], *, documents: int, labeled: Labeled, progress: "Advance", **_: Any
) -> "list[Figure]":
    """A model that does a task, on examples with labels."""
    from glassformer.tasks.evaluate_examples import evaluate_examples, label_accuracy, read_for
    from glassformer.tasks.label import Labeler

    why = "is for texts or pairs, and this model does a task"
    flags.refuse("stride", "characters", "field", "metric", "to", "reverse", "num_beams", "drift", why=why)
    files = [Path(file) for file in what]
    if isinstance(model, Labeler):
        return [label_accuracy(model, files, first=documents)]
    columns = labeled.text_column, labeled.label_column
    examples = read_for(model, files, text_column=columns[0], label_column=columns[1])
    return evaluate_examples(model, examples[: documents or None], cut=labeled.cut, progress=progress)


def _pairs(
    model: "Translator",
    what: tuple[str, ...],
    *,
    documents: int,
    translations: Translations,
    progress: "Advance",
    **_: Any,
) -> "list[Measurement] | list[Metric]":
    """A model that translates, on pairs."""
    from glassformer.tasks.evaluate_pairs import evaluate_translations, read_test_set, target_loss

    flags.refuse("stride", "characters", "field", why="is for language models: pairs are whole")
    pairs = read_test_set(what, first=documents, reverse=translations.reverse)
    to = translations.to
    if not translations.metric:
        inputs = (False, True) if translations.drift else (False,)
        name = " ".join(what)
        return [target_loss(model, pairs, name=name, to=to, own=own, progress=progress) for own in inputs]
    flags.refuse("drift", why="compares losses: leave --metric out")
    options = {} if translations.num_beams is None else {"num_beams": translations.num_beams}
    return evaluate_translations(
        model,
        pairs,
        metrics=translations.metric,
        to=to,
        lowercase=translations.lowercase,
        progress=progress,
        **options,
    )


def describe(one: "Measurement | Metric | Figure") -> list[str]:
    """A figure, and how it was measured."""
    from glassformer.tasks.evaluate_examples import Figure
    from glassformer.tasks.evaluate_pairs import Metric

    if isinstance(one, Figure):
        return [f"{one.name}:  {one.score:.4f}  {counted(one.examples, 'example')}", f"  {one.protocol}"]

    if isinstance(one, Metric):
        return [f"{one.name}:  {one.score:.2f}  {counted(one.sentences, 'sentence')}", f"  {one.signature}"]
    return [f"{one.name}:  {'  '.join(figures_of(one))}", f"  {one.protocol}"]


def figures_of(one: "Measurement") -> list[str]:
    """The figures of a measurement, each in a few words."""
    figures = [] if one.accuracy is None else [f"accuracy {one.accuracy:.2%}"]
    figures += [
        f"perplexity {one.perplexity:.2f}",
        f"loss {one.loss:.4f} nats a token",
        counted(one.tokens, "token"),
    ]
    if one.bits_per_byte is not None:
        figures.append(f"{one.bits_per_byte:.4f} bits per byte")
    return figures
