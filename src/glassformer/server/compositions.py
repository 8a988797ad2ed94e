"""Music over HTTP: the task `compose`, and what the studio's page about music asks."""

import base64
import binascii
import shlex
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from glassformer.answers.music import COLORS
from glassformer.errors import InputError
from glassformer.server import snippets
from glassformer.server.errors import invalid
from glassformer.server.insides import Recent, spans
from glassformer.server.pictures import Drawing, Width, found_in_lane, picture
from glassformer.server.schemas import Ids, Number, Seed
from glassformer.server.schemas import Request as Body
from glassformer.server.state import unless_gone
from glassformer.server.translations import Asked, check_options
from glassformer.tasks.compose import Composer, Composition
from glassformer.tokenizers.midi import read_midi, write_midi
from glassformer.tokenizers.music import Chorale, Music
from glassformer.tokenizers.score import Score
from glassformer.waiting import is_cancelled, report

if TYPE_CHECKING:
    from glassformer.answers.answer import Answer
    from glassformer.server.served import Served

LONGEST = 120.0  # seconds of music that a request may ask for
MIDI = 3_000_000  # characters of a file in base64
KEPT = 16  # pieces, and answers about them
KINDS = {  # in which a piece can be sent, and their media types
    "mid": "audio/midi",
    "wav": "audio/wav",
    "html": "text/html; charset=utf-8",
    "svg": "image/svg+xml",
}
FLAGS = {"roll": [], "events": ["--events"], "arcs": ["--arcs"], "note_saliency": ["--saliency"]}
ASKED: Asked = {
    "roll": {},
    "events": {},
    "arcs": {"note": int, "layer": int, "k": int},
    "note_saliency": {"note": int, "method": str},
}
Seconds = Annotated[Number, Field(ge=0, le=LONGEST)]


class PieceRequest(Body):
    """`POST /studio/piece`: music in events, as words or ids; and what events do not say."""

    model: Annotated[str, Field(max_length=200)]
    text: Annotated[str, Field(max_length=200_000)] | None = None
    ids: Ids | None = None
    given: Annotated[Number, Field(ge=0, le=3600)] = 0.0  # seconds that were not written by the model
    quarter: Annotated[Number, Field(ge=0.05, le=10)] | None = None  # seconds of a quarter note


class PieceViewRequest(PieceRequest):
    """`POST /studio/piece/view`: a question about a piece, and how wide its picture may be."""

    question: Annotated[str, Field(max_length=40)]
    options: dict[str, Any] = Field(default_factory=dict)
    drawing: Drawing | None = None
    width: Width = 960


class PieceFileRequest(PieceRequest):
    """`POST /studio/piece/file`"""

    kind: Annotated[str, Field(max_length=10)]


class ComposeRequest(PieceRequest):
    """`POST /studio/compose`: go on with a piece or a file, or write the other voices to its soprano."""

    midi: Annotated[str, Field(max_length=MIDI)] | None = None
    at: Annotated[Number, Field(ge=0, le=3600)] | None = None  # seconds; what comes later is written anew
    melody: bool = False
    seconds: Seconds = 10.0
    temperature: Annotated[Number, Field(ge=0, le=2)] | None = None
    top_p: Annotated[Number, Field(gt=0, le=1)] | None = None
    seed: Seed | None = None


def composer(served: "Served") -> Composer:
    """The model, if it composes."""
    try:
        return served.model.expect(Composer)
    except InputError as error:
        raise invalid("model", str(error)) from None


# The task


def compose_task(
    model: Composer,
    text: str = "",
    *,
    prime: str | None = None,
    melody: str | None = None,
    seconds: float = 10.0,
    format: str | None = None,
    cancelled: Callable[[], bool] | None = None,
    **options: Any,
) -> dict[str, Any]:
    """`glass compose` over HTTP: MIDI files come and go as base64; `text` is a prime in words of events."""
    if type(seconds) not in (int, float) or not 0 <= seconds <= LONGEST:
        raise invalid("seconds", f"must be a number from 0 to {LONGEST:g}")
    for name, value in (("text", text), ("prime", prime), ("melody", melody)):
        if value is not None and not isinstance(value, str):
            raise invalid(name, "must be a text")
    if format is not None and format not in list(KINDS):
        raise invalid("format", f"must be one of {', '.join(KINDS)}")
    if sum(map(bool, (text, prime, melody))) > 1:
        raise invalid("prime", "give one of text, prime and melody")
    given: Score | None = model.hear(text).score if text else None
    if prime is not None:
        given = decoded(prime, model.events, param="prime")
    tune = None if melody is None else decoded(melody, model.events, param="melody")
    if tune is not None and tune.seconds > LONGEST:
        raise invalid("melody", f"may have {LONGEST:g} seconds at most, not {tune.seconds:.0f}")
    piece = model.compose(given, melody=tune, seconds=seconds, cancelled=cancelled, **options)
    return piece.to_dict() | ({} if format is None else sent(piece, format))


def sent(piece: Composition, kind: str) -> dict[str, Any]:
    """A piece as a file within JSON."""
    content = base64.b64encode(file_of(piece, kind)).decode()
    return {"media_type": KINDS[kind], "content": content}


def file_of(piece: Composition, kind: str) -> bytes:
    """A piece as a file."""
    if kind == "mid":
        return write_midi(piece.score)
    if kind == "wav":
        return piece.to_wav()
    return (piece.to_html() if kind == "html" else piece.roll().view().to_svg()).encode()


def decoded(content: str, events: Music, *, param: str) -> Score:
    """The notes of a MIDI file in base64. It is never a path: nothing of this machine is read."""
    try:
        raw = base64.b64decode(content, validate=True)
    except (binascii.Error, ValueError):
        raise invalid(param, "must be a MIDI file in base64") from None
    try:
        return read_midi(raw, steady=events.steady)
    except InputError as error:
        raise invalid(param, str(error)) from None


# The page


class Compositions:
    """Pieces and the answers about them, each made once. A piece of the page fits the model's context."""

    def __init__(self) -> None:
        self._pieces: Recent[Composition] = Recent(KEPT)
        self._answers: Recent[Answer] = Recent(KEPT)

    def piece(self, served: "Served", body: PieceRequest) -> Composition:
        """Music of a request, in the lane's thread."""
        model = composer(served)
        if body.ids is not None:
            served.check_ids(body.ids, param="ids")
        events = body.text or "" if body.ids is None else tuple(body.ids)
        key = (served.id, events, body.given, body.quarter)
        kept = self._pieces.get(key)
        if kept is not None:
            return kept
        try:
            found = model.hear(events, given=body.given, quarter=body.quarter)
        except InputError as error:
            raise invalid("text", str(error)) from None
        return self._pieces.put(key, found)

    def details(self, served: "Served", body: PieceRequest) -> dict[str, Any]:
        """A piece as the page plays it; `owners` has the number of the note of every event."""
        piece = self.piece(served, body)
        events = composer(served).events
        owners = events.hear(piece.tokens).owners
        notes = [list(note) for note in piece.score.notes]
        return {
            "notes": notes,
            "owners": owners,
            "seconds": piece.seconds,
            "given": piece.given,
            "quarter": piece.score.quarter,
            "harmonizes": isinstance(events, Chorale),
            "layers": served.model.net.stacks[0].layers,
            "palettes": COLORS,
        }

    def answer(self, served: "Served", body: PieceViewRequest) -> "Answer":
        """The answer to a question about a piece."""
        check_options(body.question, body.options, asked=ASKED)
        piece = self.piece(served, body)
        options = sorted(body.options.items())
        key = (served.id, *piece.tokens, body.given, body.quarter, body.question, repr(options))
        kept = self._answers.get(key)
        if kept is not None:
            return kept
        try:
            found: Answer = getattr(piece, body.question)(**body.options)
        except InputError as error:
            raise invalid(body.question, str(error)) from None
        return self._answers.put(key, found)

    def file(self, served: "Served", body: PieceFileRequest) -> tuple[bytes, str]:
        """A piece as a file, and its media type."""
        if body.kind not in KINDS:
            raise invalid("kind", f"must be one of {', '.join(KINDS)}")
        piece = self.piece(served, body)
        if not piece.score.notes:
            raise invalid("text", "there is nothing to save: the piece has no notes")
        return file_of(piece, body.kind), KINDS[body.kind]

    def compose(self, served: "Served", body: ComposeRequest) -> dict[str, Any]:
        """More of a piece, as much as the context holds: its events, and where the new ones begin."""
        model = composer(served)
        room = model.net.context - 1  # a piece begins with a token of its own
        given, cut = self._given(served, body), 0.0
        if given is not None:
            whole, given = given.seconds, fitting(model.events, given, room=room)
            cut = whole - given.seconds
        names = ("temperature", "top_p", "seed")
        options = {name: getattr(body, name) for name in names if getattr(body, name) is not None}
        # In hundredths: progress is counted in whole numbers.
        options["progress"] = lambda done, total: report(round(100 * done), round(100 * total))
        options["cancelled"] = is_cancelled
        try:
            if body.melody:
                if given is None:
                    raise invalid("melody", "load a melody first, or write one")
                piece = model.harmonize(given, **options)
            else:
                left = room + 1 - len(model.start_of(given))
                if body.seconds and left < 1:
                    raise invalid("at", f"the piece fills the context of {room:,} events; go on earlier")
                how = {"max_new_tokens": max(1, left)} | options
                piece = model.compose(given, seconds=body.seconds, **how)
        except InputError as error:
            raise invalid("midi" if body.midi else "text", str(error)) from None
        return _written(served, piece, room) | {"cut": round(cut, 2)}

    def _given(self, served: "Served", body: ComposeRequest) -> Score | None:
        """The music to go on with, cut off where it shall."""
        if body.midi is not None:
            score = decoded(body.midi, composer(served).events, param="midi")
        elif body.text or body.ids:
            score = self.piece(served, body).score
        else:
            return None
        score = score if body.at is None else score.until(body.at)
        return score if score.notes else None


def _written(served: "Served", piece: Composition, room: int) -> dict[str, Any]:
    """A composition as the page goes on with it."""
    ids = [*piece.prompt_tokens[1:], *piece.tokens][:room]
    texts, _ = spans(served, ids)
    about = {"given": piece.given, "quarter": piece.score.quarter, "seed": piece.seed}
    return about | {"ids": ids, "texts": texts, "finish": piece.finish_reason}


def fitting(events: Music, score: Score, *, room: int) -> Score:
    """As much of the beginning of a score as is written in at most `room` events."""
    ids = events.events(score)
    cut, count = score, room
    while len(events.events(cut)) > room:
        heard = events.hear(ids[:count]).score
        pace = score.quarter / heard.quarter if events.steady else 1.0
        cut = score.until(heard.seconds * pace)
        count -= 1  # notes that are cut off end there, which may be one event more for each
    return cut


def add_routes(routes: APIRouter, find: "Callable[[str], Served]") -> None:
    """What the page about music asks; `find` gives the model of a name."""
    made = Compositions()

    @routes.post("/compose")
    async def compose(body: ComposeRequest, request: Request) -> Response:
        """New music, more of a piece or of a file, or the voices to a melody."""
        served = find(body.model)
        return await found_in_lane(request, served, lambda: made.compose(served, body))

    @routes.post("/piece")
    async def piece(body: PieceRequest, request: Request) -> dict[str, Any]:
        """The notes of a piece."""
        served = find(body.model)
        return await unless_gone(request, served.lane.run(lambda: made.details(served, body)))

    @routes.post("/piece/view")
    async def piece_view(body: PieceViewRequest, request: Request) -> Response:
        """The picture of an answer about a piece."""
        served = find(body.model)

        def work() -> dict[str, Any]:
            answer = made.answer(served, body)
            code = code_of(served, body, piece=made.piece(served, body))
            return picture(answer, code, drawing=body.drawing, width=body.width)

        return await found_in_lane(request, served, work)

    @routes.post("/piece/file")
    async def piece_file(body: PieceFileRequest, request: Request) -> Response:
        """A piece as a file."""
        served = find(body.model)
        content, kind = await unless_gone(request, served.lane.run(lambda: made.file(served, body)))
        return Response(content, media_type=kind)


def code_of(served: "Served", body: PieceViewRequest, *, piece: Composition) -> dict[str, str]:
    """How to ask the same about a piece."""
    question, options = body.question, body.options
    how = ", ".join(f"{name}={value!r}" for name, value in options.items())
    about = {"text": piece.text, "given": piece.given, "quarter": piece.score.quarter}
    drawn = "" if body.drawing is None else f", drawing={body.drawing!r}"
    shown = [] if body.drawing is None else ["--as", body.drawing]
    lines = [
        "import glassformer as gf",
        f"model = gf.load({served.id!r})",
        f"piece = model.hear({piece.text!r}, given={piece.given!r}, quarter={piece.score.quarter!r})",
        f"answer = piece.{question}({how})",
        f'answer.save("{question}.svg"{drawn})',
        "print(answer.to_frame())",
    ]
    note = [str(options["note"])] if "note" in options else []
    layer = ["--layer", str(options["layer"])] if "layer" in options else []
    flags = [*FLAGS[question], *note, *layer, *shown]
    words = ["glass", "compose", "-m", served.id, *flags, "-o", f"{question}.svg"]
    heard = ["--quarter", str(piece.score.quarter), "--hear", piece.text]
    asked = {"model": served.id, **about, "question": question, "options": options, "drawing": body.drawing}
    return {
        "Python": "\n".join(lines),
        "Command line": shlex.join([*words, *heard]),
        "curl": snippets.of_studio("piece/view", asked, port=served.settings.port),
    }
