"""glass classify"""

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glassformer.cli import flags
from glassformer.cli.flags import PATH, TEXT, Loading, Picture, option, switch
from glassformer.cli.lines import located, on_one_line, split_lines
from glassformer.cli.printing import log, log_cut, out, print_answer, print_json
from glassformer.errors import InputError

if TYPE_CHECKING:
    from glassformer.cli.progress import Advance
    from glassformer.tasks.classify import Classification
    from glassformer.tasks.label import Label

    Said = Classification | Label

GROUP = 256  # examples that are read together: none is lost once its group is printed
TABLES = (".csv", ".jsonl", ".tsv")
NO_MODEL = (
    "-m/--model is missing, and no model that classifies ships:"
    " `glass finetune storyteller --task classify --data FILE` makes one"
)


@dataclass(frozen=True)
class Which:
    """The question about a classification, if there is one."""

    saliency: bool
    label: str | None
    method: str
    by_word: bool

    def check(self, picture: Picture) -> None:
        """Refuse flags that have no effect without the question."""
        if not self.saliency:
            flags.refuse("label", "method", "by_word", why="goes with --saliency")
            pictures = ("output", "drawing", "dark", "width", "png_scale")
            flags.refuse(*pictures, why="is for the answer to --saliency")
        picture.check()


which = flags.group(
    Which,
    "which",
    switch("--saliency", help="Which tokens speak for the label, with a test of the answer."),
    option("--label", type=TEXT, help="With --saliency: the saliency of this label; none: of the likeliest."),
    option(
        "--method",
        default="grad_x_input",
        help="With --saliency: grad_x_input, gradient, integrated_gradients, occlusion or rollout.",
    ),
    flags.by_word,
)


@flags.verb
@flags.argument(
    "texts",
    "A text; two for a model that reads pairs; a context and its answers for one that chooses. '-' or a pipe:"
    " texts from stdin, line by line.",
    nargs=-1,
    type=TEXT,
    metavar="[TEXT]...",
)
@option("-f", "--file", type=PATH, help="Texts line by line; or .csv, .jsonl, .tsv with columns.")
@option("-m", "--model", help=flags.MODEL)
@option(
    "--text-column",
    multiple=True,
    help="The column of a text in FILE, by name or number; repeatable. [text, sentence …]",
)
@switch("--cut", help="Cut a text that is longer than the model's context, instead of refusing it.")
@which
@flags.loading(flags.device, flags.dtype, flags.revision, flags.offline)
@flags.picture_of_any_drawing
def classify(
    texts: tuple[str, ...], file: Path | None, loading: Loading, which: Which, picture: Picture, **given: Any
) -> None:
    """Say which class a text is of, and how probable every class is.

    \b
    glass finetune storyteller --task classify --data reviews.csv -o runs/reviews     makes such a model
    glass classify -m runs/reviews "a visually stunning rumination on love"
    glass classify -m runs/reviews -f new.csv --text-column review --json     a line of JSON for each row
    glass classify -m runs/reviews --saliency -o why.svg "what a waste of a good story"
    glass classify -m runs/rte "The cat sat on the mat." "A cat was sitting."     a pair, for --task entail
    glass classify -m runs/choose "It rained all day." "She stayed in." "She got a tan."    for --task choose

    A file gives a line for each of its texts: the label and its probability, between tabs; of a model that
    compares two texts by a number, that number. Lines that are done are printed at once.
    """
    if not loading.model:
        raise InputError(NO_MODEL)
    from glassformer.cli.progress import progress_bar
    from glassformer.tasks.classify import TextClassifier

    which.check(picture)
    single = bool(texts) and texts != ("-",)
    if single and file is not None:
        raise InputError("give a text or --file, not both")
    if single and given["text_column"]:
        raise InputError("--text-column is for a FILE")
    plain = None if single or _is_table(file) else _lines(texts, file)  # before the model, which takes longer
    if which.saliency and not single:
        raise InputError("--saliency is about one text, given as an argument")
    model = _load(loading)
    if single:
        _one(model, texts, which=which, picture=picture, cut=given["cut"])
        return
    examples = plain if plain is not None else _table(model, file, given["text_column"])
    where = f"{'stdin' if file is None else file}, line " if plain is not None else f"{file}, example "
    with progress_bar("classifying") as progress:
        for one in _said(model, examples, cut=given["cut"], where=where, progress=progress):
            print(json.dumps(one.to_dict(), ensure_ascii=False) if picture.as_json else _line(one))
    if given["cut"] and isinstance(model, TextClassifier):
        log_cut(model.count_cut(examples))


def _load(loading: Loading) -> Any:
    """The model, if it classifies."""
    from glassformer.tasks.classify import TextClassifier
    from glassformer.tasks.label import Labeler
    from glassformer.tasks.load import takes_a_head

    model: Any = loading.load()
    if isinstance(model, Labeler | TextClassifier):
        return model
    base = loading.model if takes_a_head(loading.model) else "storyteller"
    raise InputError(
        f"{model.name} has no head to classify by; make one: glass finetune {base} --task classify"
        " --data FILE"
    )


def _is_table(file: Path | None) -> bool:
    name = "" if file is None else file.name.removesuffix(".gz").removesuffix(".zst")
    return name.endswith(TABLES)


def _lines(texts: tuple[str, ...], file: Path | None) -> list[tuple[str, ...]]:
    """Texts from a file or from stdin, a line each."""
    flags.refuse("text_column", why="is for a .csv, .jsonl or .tsv file")
    given = flags.read_text(texts[0] if texts else None, file)
    if not given.strip():
        raise InputError("there is nothing to classify: the text is empty")
    return [(line,) for line in split_lines(given)]


def _table(model: Any, file: Path | None, columns: Sequence[str]) -> list[tuple[str, ...]]:
    """The texts of a file with columns."""
    from glassformer.tasks.evaluate_examples import read_for

    assert file is not None
    return [example.texts for example in read_for(model, [file], text_column=columns, labeled=False)]


def _one(model: Any, texts: tuple[str, ...], *, which: Which, picture: Picture, cut: bool) -> None:
    """One text: every class with its probability, or the question about it."""
    from glassformer.cli.progress import progress_bar
    from glassformer.tasks.classify import Classification

    found = next(_said(model, [texts], cut=cut))
    if which.saliency:
        if not isinstance(found, Classification):
            raise InputError(f"--saliency: {model.name} is no decoder, and only a decoder is explained here")
        with progress_bar(which.method) as progress:
            how = {"method": which.method, "by_word": which.by_word, "progress": progress}
            answer = model.saliency(found, which.label, **how)
        log(" ".join(_line(found).split("\t")))
        print_answer(answer, picture)
    elif picture.as_json:
        print_json(found.to_dict())
    elif not found.probabilities:
        out(str(found))
    else:
        ordered = sorted(found.probabilities.items(), key=lambda one: -one[1])
        width = max(len(label) for label, _ in ordered)
        out(*(f"{label:<{width}}  {share:.3f}" for label, share in ordered))


def _said(
    model: Any,
    examples: Sequence[tuple[str, ...]],
    *,
    cut: bool,
    where: str = "",
    progress: "Advance" = lambda done, total: None,
) -> "Iterator[Said]":
    """What the model says, example by example; the first that it cannot read ends it, after those before."""
    from glassformer.tasks.classify import TextClassifier

    reads = isinstance(model, TextClassifier)
    for start in range(0, len(examples), GROUP):
        group = list(examples[start : start + GROUP])
        fault = _first_fault(model, group, cut) if reads else None
        good = group if fault is None else group[: fault[0]]
        yield from model.classify_many(good, cut=cut) if reads else model.classify_many([o for (o,) in good])
        sys.stdout.flush()
        progress(start + len(good), len(examples))
        if fault is not None:
            raise located(fault[1], where, before=start + len(good))


def _first_fault(model: Any, examples: list[tuple[str, ...]], cut: bool) -> tuple[int, InputError] | None:
    for number, one in enumerate(examples):
        try:
            model.rows(one, cut=cut)
        except InputError as error:
            return number, error
    return None


def _line(said: "Said") -> str:
    """What is said of a text, on one line."""
    if not said.probabilities:
        return str(said)
    return f"{on_one_line(said.label)}\t{said.probability:.3f}"
