"""glass eval"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glassformer.cli import flags
from glassformer.cli.flags import Loading, Picture, argument, option, switch
from glassformer.cli.printing import log, log_cut, out, print_answer, print_json
from glassformer.errors import InputError, counted

if TYPE_CHECKING:
    from glassformer.answers.ablation import HeadAblation
    from glassformer.cli.progress import Advance
    from glassformer.tasks.evaluate import Measurement
    from glassformer.tasks.evaluate_examples import Figure
    from glassformer.tasks.evaluate_pairs import Metric
    from glassformer.tasks.translate import Translator

    Figures = list[Measurement] | list[Metric] | list[Figure]


@dataclass(frozen=True)
class Texts:
    """How a language model is measured."""

    stride: int = 0
    characters: int = 0
    field: str = "text"


@dataclass(frozen=True)
class Translations:
    """How a model that translates or summarizes is measured."""

    metric: tuple[str, ...] = ()
    lowercase: bool = False
    to: str | None = None
    reverse: bool = False
    num_beams: int | None = None
    zero_shot: bool = False
    seed: int = 0
    drift: bool = False
    ablate_heads: bool = False


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
    option(
        "--field",
        default="text",
        help="The key of a line of JSON, or the column of a .csv or .tsv file, that has the text.",
    ),
)
translations = flags.group(
    Translations,
    "translations",
    option("--metric", multiple=True, help="For pairs: bleu, chrf, rouge (may be repeated); none: the loss."),
    switch("--lowercase", help="Ignore upper and lower case in bleu and chrf."),
    option("--to", help="The language to translate to, for a model of several directions."),
    switch("--reverse", help="Translate the targets of the pairs back into their sources."),
    option("--num-beams", type=int, help="Beams of the translations; none: the model's own, or 4."),
    switch("--zero-shot", help='Summarize by any language model: "TL;DR:", as in GPT-2\'s paper.'),
    flags.seed,
    switch("--drift", help="Also the loss when the model reads its own tokens instead of the true ones."),
    switch(
        "--ablate-heads", help="The metric (bleu) without each attention head, one at a time, as a table."
    ),
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
    "wikitext2, lambada, a file or folder of text or JSON lines; to translate or summarize: pairs; to"
    " classify: examples with labels.",
    nargs=-1,
    metavar="WHAT...",
)
@option("--documents", default=0, help="Only the first N documents, or pairs; 0: all.")
@texts
@translations
@labeled
@option("--engine", default="torch", help=flags.ENGINE)
@flags.loading(flags.quantize, flags.revision, flags.device, flags.dtype, flags.offline)
@flags.picture(flags.output, flags.dark, flags.width, flags.png_scale, flags.as_json)
def evaluate(what: tuple[str, ...], loading: Loading, picture: Picture, **how: Any) -> None:
    """How well a model knows a text that it has not seen, translates, summarizes, or does its task.

    \b
    glass eval runs/shakespeare part.txt     perplexity and bits per byte, without overlap and with a stride
    glass eval gpt2 wikitext2                the raw test set; read from GLASSFORMER_DATA
    glass eval gpt2 lambada                  the last word of a passage: accuracy and perplexity
    glass eval gpt2 wikitext2 --engine native    what eight bits cost; with --quantize int4, what four cost
    glass eval runs/de-en test.tsv --metric bleu --metric chrf    sacrebleu, with its signature
    glass eval runs/de-en test.de test.en    the loss of every token of the targets
    glass eval runs/de-en test.tsv --ablate-heads --documents 100 -o heads.svg    BLEU without each head
    glass eval runs/tldr test.jsonl --metric rouge    ROUGE-1/2/L of summaries, beside the first sentence's
    glass eval gpt2 test.jsonl --metric rouge --zero-shot    the same of a model that was not trained for it
    glass eval runs/reviews test.csv         a model with a head: accuracy, or correlations of its numbers

    Windows are as long as the model's context, first without overlap, then moving by a stride of half a
    window, so that nearly every token is predicted from at least half a window. Bits per byte divide by the
    length of the text instead of its tokens: they can be compared between vocabularies, perplexities cannot.
    Pairs are a .tsv file, a .jsonl file with source and target, or two files, line by line. Examples are
    those of `glass finetune --task classify`. Lower is better, except for BLEU, chrF, ROUGE and the figures
    of tasks. The protocol is printed with every figure.
    """
    from glassformer.cli.progress import progress_bar
    from glassformer.tasks.evaluate import was_trained_on
    from glassformer.tasks.translate import Translator

    if "-" in what:
        raise InputError("eval reads files, not stdin; give a file instead of '-'")
    flags.at_least("--documents", how["documents"], least=0)
    ablates = how["translations"].ablate_heads
    check_picture(picture, ablates)
    if Path(loading.model).is_file() and Path(what[0]).is_dir():
        raise InputError(f"{loading.model} is a text; the model comes first: glass eval MODEL TEXT")
    model = loading.load()
    known = [one for one in what if was_trained_on(loading.model, one, revision=loading.revision)]
    if known:
        text = " and ".join(known)
        log(f"{loading.model} was trained on {text}: the figures do not say how well it predicts new text.")
    with progress_bar(what[0]) as progress:
        if ablates:
            answer = _heads(model.expect(Translator), what, progress=progress, **how)
        else:
            found = _figures(model, what, progress=progress, **how)
    if ablates:
        print_answer(answer, picture)
    else:
        _print_figures(found, as_json=picture.as_json)


def _print_figures(found: "Figures", *, as_json: bool) -> None:
    """The figures on stdout, and on stderr how many texts were cut for them."""
    log_cut(max(getattr(one, "cut", 0) for one in found))
    if as_json:
        print_json([one.to_dict() for one in found])
    else:
        for one in found:
            out(*describe(one))


def _figures(model: Any, what: tuple[str, ...], **how: Any) -> "Figures":
    """The figures that there are for what a model does."""
    from glassformer.tasks.translate import Translator

    if "labels" in model.capabilities:
        return _examples(model, what, **how)
    flags.refuse("text_column", "label_column", "cut", why="is for a model that does a task")
    if isinstance(model, Translator):
        return _pairs(model, what, **how)
    if "summarizes" in model.capabilities or how["translations"].zero_shot:
        return _summaries(model, what, **how)
    return _texts(model, what, **how)


def check_picture(picture: Picture, ablates: bool) -> None:
    """Refuse a picture where there is none."""
    if not ablates:
        flags.refuse("output", "dark", "width", "png_scale", why="is for the picture of --ablate-heads")
    picture.check()


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
    flags.refuse("stride", "characters", "field", "metric", "lowercase", "to", "reverse", why=why)
    flags.refuse("num_beams", "zero_shot", "seed", "drift", why=why)
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
    from glassformer.tasks.evaluate_pairs import (
        evaluate_translations,
        read_references,
        read_test_set,
        target_loss,
    )

    flags.refuse("stride", "characters", "field", why="is for language models: pairs are whole")
    pairs = read_test_set(what, first=documents, reverse=translations.reverse)
    to = translations.to
    if not translations.metric:
        inputs = (False, True) if translations.drift else (False,)
        name = " ".join(what)
        return [target_loss(model, pairs, name=name, to=to, own=own, progress=progress) for own in inputs]
    flags.refuse("drift", why="compares losses: leave --metric out")
    flags.refuse("zero_shot", "seed", why="is for summaries by a language model")
    options = {} if translations.num_beams is None else {"num_beams": translations.num_beams}
    return evaluate_translations(
        model,
        pairs,
        metrics=translations.metric,
        references=None if translations.reverse else read_references(what, pairs),
        to=to,
        lowercase=translations.lowercase,
        progress=progress,
        **options,
    )


def _heads(
    model: "Translator",
    what: tuple[str, ...],
    *,
    documents: int,
    translations: Translations,
    progress: "Advance",
    **_: Any,
) -> "HeadAblation":
    """A metric of the translations, without each head."""
    from glassformer.tasks.evaluate_pairs import read_test_set

    if len(translations.metric) > 1:
        raise InputError("--ablate-heads is for one metric at a time")
    others = ("drift", "stride", "characters", "field", "text_column", "label_column", "cut")
    flags.refuse(*others, why="does not go with --ablate-heads")
    pairs = read_test_set(what, first=documents, reverse=translations.reverse)
    metric = translations.metric[0] if translations.metric else "bleu"
    beams = {} if translations.num_beams is None else {"num_beams": translations.num_beams}
    how: dict[str, Any] = {"to": translations.to, "lowercase": translations.lowercase, **beams}
    return model.ablate_heads(pairs, metric=metric, progress=progress, **how)


def _summaries(
    model: Any,
    what: tuple[str, ...],
    *,
    documents: int,
    translations: Translations,
    progress: "Advance",
    **_: Any,
) -> "list[Measurement] | list[Metric]":
    """A model that summarizes, on pairs."""
    from glassformer.tasks.complete import LanguageModel
    from glassformer.tasks.evaluate_pairs import (
        evaluate_summaries,
        read_references,
        read_test_set,
        target_loss,
    )

    lm = model.expect(LanguageModel)
    flags.refuse("stride", "characters", "field", why="is for language models: pairs are whole")
    flags.refuse("to", "reverse", "drift", why="is for models that translate")
    pairs = read_test_set(what, first=documents)
    if not translations.metric:
        flags.refuse("zero_shot", why="needs --metric rouge")
        return [target_loss(lm, pairs, name=" ".join(what), progress=progress)]
    options: dict[str, Any] = {"zero_shot": translations.zero_shot, "seed": translations.seed}
    if translations.num_beams is not None:
        options["num_beams"] = translations.num_beams
    return evaluate_summaries(
        lm,
        pairs,
        references=read_references(what, pairs),
        metrics=translations.metric,
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
