"""glass translate"""

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glassformer.cli import flags
from glassformer.cli.flags import PATH, TEXT, Loading, option, switch
from glassformer.cli.printing import log, out, print_answer
from glassformer.cli.translated import questions
from glassformer.errors import InputError

if TYPE_CHECKING:
    from glassformer.tasks.translate import Translator
    from glassformer.tasks.translated import Translated

GROUP = 64  # lines that are translated together: none is lost once its group is printed


@flags.verb
@flags.argument(
    "text", "The text to translate; '-' or a pipe reads stdin, line by line.", type=TEXT, required=False
)
@option("-f", "--file", type=PATH, help="Translate a file, line by line.")
@option("-m", "--model", required=True, help=flags.MODEL)
@option("--to", help="The language to translate to, for a model of several directions.")
@option("--num-beams", type=int, former=["--beam-size"], help="Beam search with N beams; 1: greedy. [4]")
@option("--num-return-sequences", type=int, former=["--top-beams"], help="The N best translations. [1]")
@option("--length-penalty", type=float, help="Above 1 favors long translations. [1.0]")
@option("-n", "--max-new-tokens", type=int, help="At most N tokens. [128]")
@switch("--split", help="Translate a text that is too long for the model sentence by sentence.")
@questions
@flags.loading(flags.device, flags.dtype, flags.revision, flags.offline)
@flags.picture_of_any_drawing
def translate(
    text: str | None, file: Path | None, to: str | None, split: bool, loading: Loading, **given: Any
) -> None:
    """Translate a text, or a file line by line.

    \b
    glass translate -m runs/fr-en/model "je suis étudiant"          one sentence
    glass translate -m runs/both/model --to fr -f letter.txt        a file, line by line, in order
    glass translate -m runs/fr-en/model --num-return-sequences 3 --json "merci"    with their scores
    glass translate -m runs/fr-en/model --alignment -o alignment.svg "je suis étudiant"    a picture
    glass translate -m runs/fr-en/model --beams "je suis étudiant"  the tree of the search

    Lines that are done are printed at once: a run that is stopped has lost nothing of them.
    """
    which, picture = given.pop("which").placed(), given.pop("picture")
    which.check()
    picture.check()
    options = {name: value for name, value in given.items() if value is not None}
    from glassformer.cli.progress import progress_bar
    from glassformer.tasks.translate import Translator

    if text is not None and text != "-" and file is None:
        lines = [text]
    else:
        lines = flags.read_text(text, file).splitlines()
    if which.asked and (len(lines) != 1 or split):
        raise InputError(f"{which.asked} is about one text{', without --split' if split else ''}")
    model = loading.load().expect(Translator)
    if which.asked:
        best = model.translate(lines[0], to=to, **options)
        log(best.text)
        print_answer(which.answer(best, num_beams=options.get("num_beams")), picture)
        return
    with progress_bar("translating") as progress:
        done = 0
        for group in _groups(lines):
            for found in _translated(model, group, to=to, split=split, options=options):
                _print(found, picture.as_json)
            done += len(group)
            progress(done, len(lines))


def _groups(lines: list[str]) -> Iterator[list[str]]:
    rest = iter(lines)
    while group := list(islice(rest, GROUP)):
        yield group


def _translated(
    model: "Translator", lines: list[str], *, to: str | None, split: bool, options: dict[str, Any]
) -> "list[list[Translated]]":
    """The translations of every line; an empty line has none."""
    if len(lines) == 1 and not lines[0].strip():
        raise InputError("there is nothing to translate: the text is empty")
    some = [line for line in lines if line.strip()]
    found = iter(model.translate_many(some, to=to, split=split, **options))
    return [next(found) if line.strip() else [] for line in lines]


def _print(found: "list[Translated]", as_json: bool) -> None:
    if as_json:
        print(json.dumps([one.to_dict() for one in found], ensure_ascii=False))
    elif not found:
        out("")
    else:
        out(*(one.text for one in found))
