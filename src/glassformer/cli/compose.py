"""glass compose"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glassformer.cli import flags
from glassformer.cli.flags import PATH, TEXT, Loading, Picture, option, switch
from glassformer.cli.printing import log, print_answer, print_json
from glassformer.errors import InputError

if TYPE_CHECKING:
    from glassformer.answers.answer import Answer
    from glassformer.tasks.compose import Composition

OUTPUT = (
    "Save music (.mid), sound (.wav), a page that plays (.html), a picture (.svg, .png, .pdf) or numbers"
    " (.json, .csv); may be given several times."
)

WRITING = ("prime", "melody", "seconds", "temperature", "top_k", "top_p", "min_p", "seed")


@dataclass(frozen=True)
class Questions:
    """What is asked about the piece."""

    arcs: int | None
    saliency: int | None
    events: bool
    layer: int | None

    def check(self) -> None:
        """Refuse several questions at once, and a layer without arcs."""
        asked = {"--arcs": self.arcs is not None, "--saliency": self.saliency is not None}
        flags.one_question(asked | {"--events": self.events})
        if self.layer is not None and self.arcs is None:
            raise InputError("--layer is for --arcs")

    @property
    def any(self) -> bool:
        """Whether something is asked."""
        return self.arcs is not None or self.saliency is not None or self.events

    def answer(self, piece: "Composition") -> "Answer":
        """The answer; of a piece about which nothing is asked, its roll."""
        if self.arcs is not None:
            return piece.arcs(self.arcs, layer=self.layer)
        if self.saliency is not None:
            return piece.note_saliency(self.saliency)
        return piece.events() if self.events else piece.roll()


questions = flags.group(
    Questions,
    "questions",
    option("--arcs", type=int, metavar="NOTE", help="Which notes each head attends to from a note, as arcs."),
    option("--saliency", type=int, metavar="NOTE", help="Which notes before it made a note likely."),
    switch("--events", help="The events it is written in; --as one_hot: as columns."),
    option("-l", "--layer", type=int, help="Of --arcs: one layer. None: the busiest."),
)


@flags.verb
@option("-m", "--model", default="composer", help=flags.MODEL)
@option("--prime", type=PATH, metavar="FILE.mid", help="Continue this piece.")
@option("--melody", type=PATH, metavar="FILE.mid", help="Write alto, tenor and bass to this soprano.")
@option(
    "--hear", type=TEXT, metavar="EVENTS", help="Compose nothing: this piece, written as --events prints it."
)
@option("--quarter", type=float, help="With --hear: seconds of a quarter note. [the model's own]")
@option("--seconds", type=float, help="How much to write, at most; 0: nothing, to look at a prime. [60]")
@option("--temperature", type=float, help="Higher is wilder; 0 takes the likeliest event. [the model's own]")
@option("--top-k", type=int, help="Draw from the K likeliest events; 0: from all. [the model's own]")
@option("--top-p", type=float, help="Draw from the likeliest events that make up P. [the model's own]")
@option("--min-p", type=float, help="Leave out what is less likely than P times the likeliest.")
@option("-s", "--seed", type=int, help="Same seed, same music. [a new one]")
@questions
@flags.loading(flags.engine, flags.device, flags.dtype, flags.revision, flags.offline)
@option("-o", "--output", "outputs", type=PATH, multiple=True, help=OUTPUT)
@flags.picture(flags.drawing, flags.dark, flags.width, flags.png_scale, flags.as_json)
def compose(
    prime: Path | None,
    melody: Path | None,
    questions: Questions,
    loading: Loading,
    outputs: tuple[Path, ...],
    picture: Picture,
    **given: Any,
) -> None:
    """Compose music, continue a piece, or harmonize a melody.

    \b
    glass compose -o new.mid -o new.html                  a new piece, and a page that plays it
    glass compose --prime begun.mid --seconds 20 -o more.wav     go on where a file ends
    glass compose --melody tune.mid -o chorale.mid        alto, tenor and bass to a soprano
    glass compose --seed 7 -o roll.svg                    its piano roll
    glass compose --seed 7 --arcs 40 -o arcs.svg          what each head hears from note 40
    glass compose --prime begun.mid --seconds 0 --saliency -1     what made its last note likely
    glass train --kind music --data my_midi_files         makes a model from MIDI files of your own

    Without -o the notes are printed. Notes are counted from 0, in the order in which they begin; -1 is the
    last. A .wav is made by a small synthesizer of our own.
    """
    from glassformer.tasks.compose import Composer

    questions.check()
    _check_outputs(outputs, questions, picture)
    for source in (prime, melody):
        if source is not None and not source.is_file():
            raise InputError(f"{source}: there is no such file")
    if given["hear"] is None:
        flags.refuse("quarter", why="is for --hear")
    else:
        flags.refuse(*WRITING, why="does not go with --hear, which writes nothing")
    options = {name: value for name, value in given.items() if value is not None}
    if options.get("seconds") == 0 and prime is None and melody is None:
        raise InputError("--seconds 0 writes nothing: it is for looking at what --prime has")
    model = loading.load().expect(Composer)
    piece = _composed(model, prime, melody, options)
    for path in outputs:
        if questions.any or path.suffix.lower() not in SOUNDS:
            shown = Picture(path, picture.drawing, picture.dark, picture.width, picture.png_scale)
            print_answer(questions.answer(piece), shown)
        else:
            log(str(piece.save(path)))
    if picture.as_json:
        print_json(questions.answer(piece).to_dict() if questions.any else piece.to_dict())
    elif not outputs:
        print_answer(questions.answer(piece), picture)


SOUNDS = (".mid", ".midi", ".wav", ".html")


def _composed(model: Any, prime: Path | None, melody: Path | None, options: dict[str, Any]) -> "Composition":
    """The piece; how long that took is reported."""
    from glassformer.cli.progress import progress_bar

    if "hear" in options:
        heard: Composition = model.hear(options["hear"], quarter=options.get("quarter"))
        return heard
    with progress_bar("composing") as progress:
        piece: Composition = model.compose(
            prime,
            melody=melody,
            progress=lambda done, total: progress(round(100 * done), round(100 * total)),
            **options,
        )
    if piece.tokens:
        new = piece.seconds - piece.given
        log(f"… {new:.1f} seconds of music in {piece.took:.1f} seconds, seed {piece.seed}")
    return piece


def _check_outputs(outputs: tuple[Path, ...], questions: Questions, picture: Picture) -> None:
    """Refuse files that cannot be written, before anything is computed."""
    from glassformer.figures.view import check_format
    from glassformer.tasks.compose import check_output

    if not outputs:
        picture.check_format()
    for path in outputs:
        (check_format if questions.any else check_output)(path)
        if not path.parent.is_dir():
            raise InputError(f"-o {path}: cannot be written (there is no folder {path.parent})")
