"""glass summarize"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from glassformer.cli import flags
from glassformer.cli.flags import PATH, Loading, option, switch
from glassformer.cli.printing import log, out, print_json
from glassformer.errors import InputError, counted

if TYPE_CHECKING:
    from glassformer.cli.progress import Advance

NO_MODEL = (
    "-m/--model is missing, and no model that summarizes ships:"
    " `glass finetune storyteller --task summarize --data PAIRS` makes one, and with --zero-shot any language"
    " model tries"
)


@flags.verb
@flags.argument(
    "files",
    "Text files, each one text to summarize; '-' or a pipe reads stdin.",
    type=PATH,
    nargs=-1,
    metavar="FILE|-",
)
@option("-m", "--model", help=flags.MODEL)
@switch(
    "--zero-shot", help='By any language model, as in GPT-2\'s paper: "TL;DR:", top-k 2, three sentences.'
)
@option("--num-beams", type=int, help="Beam search with N beams; 1: greedy. [the model's own, or 4]")
@option("-n", "--max-new-tokens", type=int, help="At most N tokens. [the model's own, or 64; zero-shot 100]")
@flags.seed
@flags.loading(flags.engine, flags.quantize, flags.device, flags.dtype, flags.revision, flags.offline)
@flags.as_json
def summarize(
    files: tuple[Path, ...], zero_shot: bool, loading: Loading, as_json: bool, **given: Any
) -> None:
    """Summarize a text: a file, several, or stdin.

    \b
    glass summarize -m runs/tldr paper.txt              by a model that was trained to
    cat paper.txt | glass summarize -m runs/tldr -      from a pipe
    glass summarize -m gpt2 --zero-shot paper.txt       by any language model, as GPT-2's paper did
    glass finetune storyteller --task summarize --data pairs.jsonl --out runs/tldr     makes such a model

    A text that is longer than the model's context is cut: the beginning is read, room is left for the
    summary, and what was cut is reported. An encoder-decoder that was trained on summaries is asked in the
    same way. A model as small as those that train here in an hour does not write good summaries; the same
    commands fine-tune a real GPT-2.
    """
    if not loading.model:
        raise InputError(NO_MODEL)
    from glassformer.cli.progress import progress_bar

    texts = [flags.read_text(None, file) for file in files or [None]]
    names = [str(file) for file in files] if len(files) > 1 else [""]
    for name, text in zip(names, texts, strict=True):
        if not text.strip():
            raise InputError(f"{name + ': ' if name else ''}there is nothing to summarize: the text is empty")
    model = loading.load()
    options = {name: value for name, value in given.items() if value is not None}
    with progress_bar("summarizing") as progress:
        found, cuts = _summaries(model, texts, zero_shot=zero_shot, progress=progress, **options)
    if as_json:
        print_json([one.to_dict() for one in found] if len(files) > 1 else found[0].to_dict())
    else:
        for name, one in zip(names, found, strict=True):
            out(f"{name}: {one.text}" if name else one.text)
    for name, cut in zip(names, cuts, strict=True):
        if cut:
            log(f"{name + ': ' if name else ''}{cut}")
    unfinished = sum(one.finish_reason != "stop" for one in found)
    if unfinished and not zero_shot:
        log(f"{counted(unfinished, 'text')} with a summary that the limit of tokens cut; -n allows more")


def _summaries(
    model: Any, texts: list[str], *, zero_shot: bool, progress: "Advance", **options: Any
) -> "tuple[list[Any], list[str]]":
    """The summary of each text, and what was cut off it: by a decoder, or by an encoder-decoder."""
    from glassformer.tasks.complete import LanguageModel
    from glassformer.tasks.translate import Translator

    if isinstance(model, LanguageModel) or not isinstance(model, Translator):
        found = model.expect(LanguageModel).summarize_many(
            texts, zero_shot=zero_shot, progress=progress, **options
        )
        return found, [one.cut for one in found]
    if model.languages:
        raise InputError(
            f"{model.name} translates to {' and '.join(model.languages)} and does not summarize;"
            " `glass finetune storyteller --task summarize --data PAIRS` makes a model that does"
        )
    if zero_shot:
        raise InputError(f"--zero-shot: {model.name} is an encoder-decoder, and no language model")
    written = [best for best, *_ in model.translate_many(texts, cut=True, **options)]
    return written, [model.cut_of(text, one) for text, one in zip(texts, written, strict=True)]
