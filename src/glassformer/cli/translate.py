"""glass translate"""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glassformer.cli import flags
from glassformer.cli.edit import Changes, changes_flags
from glassformer.cli.flags import PATH, TEXT, Loading, Picture, option, switch
from glassformer.cli.lines import located, on_one_line, split_lines
from glassformer.cli.printing import log, print_answer
from glassformer.cli.translated import Which, questions
from glassformer.errors import InputError, counted

if TYPE_CHECKING:
    from glassformer.answers.answer import Answer
    from glassformer.tasks.translate import Translator
    from glassformer.tasks.translated import Translated

ADDRESS = "encoder.blocks.2.attn.mix[1] (a head), decoder.blocks.0.cross; of an RNN decoder.attn.context"
TO = (
    "The language to translate to. An encoder-decoder of two languages knows it from the text; a decoder"
    " of two needs it named."
)
GROUP = 64  # lines that are translated together: none is lost once its group is printed


@flags.verb
@flags.argument(
    "text", "The text to translate; '-' or a pipe reads stdin, line by line.", type=TEXT, required=False
)
@option("-f", "--file", type=PATH, help="Translate a file, line by line.")
@option("-m", "--model", default="translator", help=flags.MODEL)
@option("--to", help=TO)
@option("--num-beams", type=int, former=["--beam-size"], help="Beam search with N beams; 1: greedy. [4]")
@option("--num-return-sequences", type=int, former=["--top-beams"], help="The N best translations. [1]")
@option("--length-penalty", type=float, help="Above 1 favors long translations. [1.0]")
@option("-n", "--max-new-tokens", type=int, help="At most N tokens. [128]")
@switch("--split", help="Translate a text that is too long for the model sentence by sentence.")
@questions
@changes_flags(ADDRESS)
@flags.loading(flags.engine, flags.device, flags.dtype, flags.revision, flags.offline)
@flags.picture_of_any_drawing
def translate(
    text: str | None,
    file: Path | None,
    loading: Loading,
    which: Which,
    changes: Changes,
    picture: Picture,
    **given: Any,
) -> None:
    """Translate a text, or a file line by line.

    \b
    glass translate "je suis étudiant"                              the shipped translator: English and French
    glass translate --to fr -f letter.txt                           a file, line by line, in order
    glass translate --num-return-sequences 3 --json "merci"         the three best, with their scores
    glass translate --alignment -o alignment.svg "je suis étudiant"    which words it looked at, as a picture
    glass translate --zero "decoder.blocks.0.cross.mix[1]" "merci"  without one head
    glass translate -m runs/decoder --to fr "I am a student"        a decoder: I am a student <to-fr> je …
    glass translate -m seq2seq --unroll "je suis étudiant"          a recurrent network, step by step
    glass translate -m seq2seq --patch decoder.attn.context --from "bonjour" "merci"
    glass translate -m seq2seq --zero encoder.states --at 1 "je suis étudiant"    without a word

    Lines that are done are printed at once: a run that is stopped, or that meets a line that it cannot
    translate, has lost none of them. An empty line stays an empty line. With edits, the translation is shown
    beside the edited one; a question is then about the edited one.
    """
    from glassformer.tasks.translate import Translator

    which = which.placed()
    which.check(edited=changes.any())
    changes.check()
    picture.check()
    options = {name: value for name, value in given.items() if value is not None}
    one_text = text is not None and text != "-" and file is None
    given_text = flags.read_text(text, file)
    lines = [given_text] if one_text else split_lines(given_text)
    if not any(line.strip() for line in lines):
        raise InputError("there is nothing to translate: the text is empty")
    asked = which.asked or ("an edit" if changes.any() else None)
    if asked and (len(lines) != 1 or options["split"]):
        raise InputError(f"{asked} is about one text{', without --split' if options['split'] else ''}")
    model = loading.load().expect(Translator)
    model.direction(options.get("to"))  # an unknown language is no fault of a line
    if asked:
        answer = _answer(model, lines[0], which=which, changes=changes, options=options)
        print_answer(answer, picture)
        return

    where = "" if one_text else f"{'stdin' if file is None else file}, line "
    _print_lines(model, lines, where=where, options=options, as_json=picture.as_json)


def _print_lines(
    model: "Translator", lines: list[str], *, where: str, options: dict[str, Any], as_json: bool
) -> None:
    """The translation of every line, as soon as it is done."""
    from glassformer.cli.progress import progress_bar

    cut = 0
    with progress_bar("translating") as progress:
        for found in _translated(model, lines, where=where, options=options, progress=progress):
            cut += any(one.finish_reason == "length" for one in found)
            _print(found, as_json)
    if cut:
        log(f"{counted(cut, 'translation')} unfinished at the limit of tokens; -n allows more")


def _answer(
    model: "Translator", text: str, *, which: Which, changes: Changes, options: dict[str, Any]
) -> "Answer":
    """A question about one translation, which may be an edited one; or both side by side."""
    edits = changes.edits(text, model) if changes.any() else None
    if which.asked is None and edits is not None:
        found: Answer = model.translate(text, **options).edited(edits)
    else:
        best = model.translate(text, edits=edits, **options)
        log(best.text)
        found = which.answer(best, num_beams=options.get("num_beams"))
    if edits is not None:
        changes.save_as_file(edits)
    return found


def _translated(
    model: "Translator",
    lines: list[str],
    *,
    where: str,
    options: dict[str, Any],
    progress: Callable[[int, int], None],
) -> "Iterator[list[Translated]]":
    """The translations of every line, in order; an empty line has none.

    The first line that cannot be translated ends it, after those before it.
    """
    for start in range(0, len(lines), GROUP):
        group = lines[start : start + GROUP]
        fault = _first_fault(model, group, options)
        good = group if fault is None else group[: fault[0]]

        found = iter(model.translate_many([line for line in good if line.strip()], **options))
        for line in good:
            yield next(found) if line.strip() else []
        sys.stdout.flush()
        progress(start + len(good), len(lines))
        if fault is not None:
            raise located(fault[1], where, before=start + len(good))


def _first_fault(
    model: "Translator", lines: list[str], options: dict[str, Any]
) -> tuple[int, InputError] | None:
    """The first line that the model cannot read, and why; empty ones are passed over."""
    to = options.get("to")
    for number, line in enumerate(lines):
        if not line.strip():
            continue
        try:
            for part in model.sentences(line, to=to) if options["split"] else [line]:
                model.encode_source(part, to=to, split=options["split"])
        except InputError as error:
            return number, error
    return None


def _print(found: "list[Translated]", as_json: bool) -> None:
    if as_json:
        print(json.dumps([one.to_dict() for one in found], ensure_ascii=False))
        return
    texts = [one.text for one in found] or [""]
    for text in texts:
        print(on_one_line(text))
