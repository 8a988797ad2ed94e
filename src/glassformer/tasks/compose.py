"""Compose: a model of music continues a piece, or writes one; or writes the other voices to a melody."""

import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from glassformer.answers import ask
from glassformer.errors import InputError, counted
from glassformer.generation.decode import Event, generate
from glassformer.generation.options import Options
from glassformer.generation.stepper import Ids, Logits
from glassformer.tasks.backends import Backend
from glassformer.tasks.complete import LanguageModel
from glassformer.tasks.explained import Explained
from glassformer.tasks.options import check_options
from glassformer.tokenizers.midi import read_midi, write_midi
from glassformer.tokenizers.music import ANDANTE, PER_QUARTER, SILENT, Chorale, Grid, Music, Plan, to_grid
from glassformer.tokenizers.score import Score

if TYPE_CHECKING:
    from glassformer.answers.answer import Text
    from glassformer.answers.music import Arcs, Events, NoteSaliency, Roll

Source = str | Path | Score
Progress = Callable[[float, float], object]  # seconds of music that are written, and of how many
USUAL: dict[str, Any] = {"temperature": 1.0, "top_k": 0, "top_p": 0.95, "overflow": "slide"}
SECONDS, LONGEST = 60.0, 3600.0  # of music: the default, and the most
SHORTEST_QUARTER, LONGEST_QUARTER = 0.05, 10.0  # seconds of a quarter note
DENSEST = 100  # events a second, above which a model has lost its way
NEVER = -1e9  # the score of what may not follow; generation takes an infinite one for a broken model
SOUNDS = (".mid", ".midi", ".wav", ".html")
PICTURES = (".svg", ".png", ".pdf", ".json", ".csv")


@dataclass
class Composition(Explained):
    """Music that a model wrote, and what one can ask about it. Notes are counted from 0, in their order."""

    score: Score
    prompt_tokens: list[int]  # the token that begins a piece, and the events that were given
    tokens: list[int]
    logprobs: list[float]  # of the tokens, among those that could follow
    finish_reason: str  # "stop": it ended by itself; "length": it is as long as was asked for; "cancelled"
    seed: int
    took: float  # seconds
    given: float = 0.0  # seconds of music at the beginning that were given
    model: "Composer | None" = field(default=None, repr=False, compare=False)

    @property
    def seconds(self) -> float:
        """How long the piece is."""
        return self.score.seconds

    @property
    def text(self) -> str:
        """The events in words."""
        return self._lm().events.decode([*self.prompt_tokens[1:], *self.tokens])

    def to_dict(self) -> dict[str, Any]:
        """Everything that the same seed gives again, as plain data."""
        names = ("prompt_tokens", "tokens", "logprobs", "finish_reason", "seed", "given")
        return {name: getattr(self, name) for name in names} | {"text": self.text} | self.score.to_dict()

    def save(self, path: str | Path, **how: Any) -> Path:
        """Write music (.mid), sound (.wav), a page that plays (.html) or a picture (.svg, .png, .pdf).

        Numbers are .json and .csv. How: as in `Answer.save`.
        """
        path = Path(path)
        kind = check_output(path)
        if kind in PICTURES:
            return self.roll().save(path, **how)
        makers: dict[str, Callable[[], bytes]] = {
            ".wav": self.to_wav,
            ".html": lambda: self.to_html().encode(),
        }
        content = makers.get(kind, lambda: write_midi(self.score))()
        try:
            path.write_bytes(content)
        except OSError as error:
            raise InputError(f"{path}: cannot be written ({error.strerror})") from None
        return path

    def to_wav(self) -> bytes:
        """The sound, by our own synthesizer."""
        from glassformer.tasks.sound import wav

        return wav(self.score)

    def to_html(self) -> str:
        """A page that plays it while the roll moves. It needs nothing but a browser."""
        return self.roll().to_player()

    def play(self) -> None:
        """In a notebook: hear it."""
        try:
            from IPython.display import Audio, display
        except ImportError:
            raise InputError("play() is for notebooks; save it as .wav or .html and open that") from None
        display(Audio(self.to_wav()))

    def roll(self) -> "Roll":
        """The piano roll."""
        found: Roll = self._about("roll", score=self.score, given=self.given)
        return found

    def events(self) -> "Events":
        """The events one by one, and as one-hot columns."""
        found: Events = self._about("events")
        return found

    def arcs(self, note: int = -1, *, layer: int | None = None, k: int = 3) -> "Arcs":
        """Which notes each head attends to from a note, as arcs on the roll; a layer, or the busiest one."""
        found: Arcs = self._about("arcs", note=note, layer=layer, k=k, score=self.score)
        return found

    def note_saliency(self, note: int = -1, *, method: str = "grad_x_input") -> "NoteSaliency":
        """Which notes before it made a note likely."""
        how = {"note": note, "method": method, "score": self.score}
        found: NoteSaliency = self._about("note_saliency", **how)
        return found

    def _lm(self) -> "Composer":
        if self.model is None:
            raise InputError("this piece has lost its model")
        return self.model

    def _about(self, question: str, **how: Any) -> Any:
        """The answer to a question about the whole piece, however long it is."""
        return ask(question, self._piece(), **how)

    def _piece(self) -> "Text":
        """All events."""
        from glassformer.answers.answer import Text  # here: composing needs no answers, and starts faster

        return Text(self._lm(), [*self.prompt_tokens, *self.tokens], len(self.prompt_tokens))

    def _text(self) -> "Text":
        """As many events, from the first one on, as the model reads at once."""
        whole, context = self._piece(), self._lm().backend.context
        return whole if context is None else replace(whole, ids=whole.ids[:context])


def check_output(path: Path) -> str:
    """The suffix of a file in which music can be kept."""
    suffix = path.suffix.lower()
    if suffix not in SOUNDS + PICTURES:
        sounds, pictures = ", ".join(SOUNDS), ", ".join(PICTURES)
        raise InputError(f"{path}: music is saved as {sounds}; its roll as {pictures}")
    return suffix


class Composer(LanguageModel):
    """A model that writes music."""

    task: ClassVar[str] = "compose music"
    verbs: ClassVar[tuple[str, ...]] = ("generate", "compose")
    made_by: ClassVar[str] = (
        "composer, which ships, can; `glass train --kind music --data FOLDER` makes another, from MIDI files"
    )

    @property
    def events(self) -> Music:
        """Its vocabulary."""
        if not isinstance(self.tokenizer, Music):
            raise InputError(f"{self.name}: its vocabulary is none of music")
        return self.tokenizer

    def compose(
        self,
        prime: Source | None = None,
        *,
        seconds: float | None = None,
        melody: Source | None = None,
        progress: Progress = lambda done, total: None,
        cancelled: Callable[[], bool] | None = None,
        **options: Any,
    ) -> Composition:
        """Write music: from nothing, after a `prime` (a MIDI file or a score), or the voices to a `melody`.

        `seconds` is how much is written, at most (60); a melody is harmonized as a whole. Options: as in
        `generate`.
        """
        wanted = _check_seconds(seconds)
        order = self._order(prime, melody, writes=wanted > 0)
        chosen = self._chosen(options, max(wanted, order.whole))
        began = time.monotonic()
        wanted = LONGEST if melody is not None else wanted / order.pace
        written = Written([], [], "length")
        if wanted:
            allowed = partial(self.events.allowed, plan=order.plan)
            guided = Guided(self.backend, allowed, start=order.start)
            how: dict[str, Any] = {"options": chosen, "ends": self.ends, "known": len(self.events)}
            drawn = generate(guided, [order.start], cancelled=cancelled, **how)
            written = self._written(drawn, order, wanted=wanted, progress=progress)
        score = self.events.hear([*order.start[1:], *written.tokens]).score
        if wanted:
            score = score.until(order.given + wanted)
        took = time.monotonic() - began
        about = (order.start, *written, chosen.seed, took, order.given * order.pace)
        return Composition(_paced(score, order.pace), *about, self)

    def harmonize(self, melody: Source, **options: Any) -> Composition:
        """Write alto, tenor and bass to a soprano."""
        return self.compose(melody=melody, **options)

    def hear(
        self, events: str | Sequence[int], *, given: float = 0.0, quarter: float | None = None
    ) -> Composition:
        """Music that was written before, in events as words or ids, to be heard and asked about.

        Its first `given` seconds count as given; `quarter` is the tempo: seconds of a quarter note.
        """
        ids = self.events.encode(events) if isinstance(events, str) else list(events)
        unknown = next((id for id in ids if type(id) is not int or not 0 <= id < len(self.events)), None)
        if unknown is not None:
            raise InputError(
                f"{unknown!r} is not a token id of this vocabulary (0 to {len(self.events) - 1})"
            )
        if not isinstance(given, int | float) or not given >= 0:
            raise InputError(f"given must be a number of seconds, not {given!r}")
        score = self.events.hear(ids).score
        if isinstance(self.events, Chorale) and 2 * self.events.misplaced(ids) > len(ids):
            first = counted(self.events.ahead + 1, "word")
            raise InputError(f"no chorale of {self.name}: one begins with {first} of the soprano")
        if quarter is not None and not SHORTEST_QUARTER <= quarter <= LONGEST_QUARTER:
            between = f"from {SHORTEST_QUARTER:g} to {LONGEST_QUARTER:g} seconds"
            raise InputError(f"quarter must be {between}, not {quarter:g}")
        # A performance has its tempo in its events.
        pace = quarter / score.quarter if quarter is not None and self.events.steady else 1.0
        written = Written(ids, [], "stop")
        return Composition(_paced(score, pace), [self.events.end], *written, 0, 0.0, given, self)

    def _chosen(self, given: dict[str, Any], seconds: float) -> Options:
        """How events are chosen: as is said, as the model's makers recommend, or as usual."""
        seed = int.from_bytes(os.urandom(4)) if given.get("seed") is None else given["seed"]
        most = min(1_000_000, int(DENSEST * max(seconds, SECONDS)) + 4096)
        several = next(
            (name for name in ("num_beams", "num_return_sequences") if given.get(name, 1) != 1), ""
        )
        if several:
            raise InputError(f"{several}: music is drawn event by event, one piece at a time")
        usual = USUAL | self.settings | {"max_new_tokens": most}
        return check_options(usual | given | {"seed": seed})

    def start_of(self, prime: Source | None) -> list[int]:
        """What is read before the first event is drawn."""
        return self._order(prime, None, writes=True).start

    def _order(self, prime: Source | None, melody: Source | None, *, writes: bool) -> "Order":
        """What is given, and what is fixed."""
        if prime is not None and melody is not None:
            raise InputError("give a prime or a melody, not both")
        events, source = self.events, melody if prime is None else prime
        score = None if source is None else _read(source, steady=events.steady)
        if isinstance(events, Chorale):
            return _order_of_chorale(events, score, is_melody=melody is not None, writes=writes)
        if melody is not None:
            raise InputError(f"{self.name} writes no voices to a melody: it was trained on performances")
        start = [] if score is None else events.events(score)
        return Order([events.end, *start], None, sum(map(events.seconds, start)))

    def _written(
        self, drawn: Iterable[Event], order: "Order", *, wanted: float, progress: Progress
    ) -> "Written":
        """Events as they are drawn, until there is as much music as is wanted."""
        found = Written([], [], "length")
        heard = sum(map(self.events.seconds, order.start[1:]))
        total = order.whole or wanted
        for event in drawn:
            if event.token is not None and event.logprob is not None:
                found.tokens.append(event.token)
                found.logprobs.append(event.logprob)
                heard += self.events.seconds(event.token)
                progress(min(total, max(0.0, heard - order.given)), total)
                if heard >= order.given + wanted - 1e-6:
                    event.continuation.stop()
            if event.finish in ("stop", "cancelled"):
                found = found._replace(finish_reason=event.finish)
        return found


class Written(NamedTuple):
    """Events that were drawn."""

    tokens: list[int]
    logprobs: list[float]
    finish_reason: str


class Order(NamedTuple):
    """What a composer is given. Seconds are those of its own tempo."""

    start: list[int]  # the token that begins a piece, and the events that leave no choice
    plan: Plan | None = None  # what is fixed of a chorale
    given: float = 0.0  # seconds that are given as a whole
    whole: float = 0.0  # seconds of a piece whose length is known
    pace: float = 1.0  # how much slower than its own tempo the music goes


def _order_of_chorale(events: Chorale, score: Score | None, *, is_melody: bool, writes: bool) -> Order:
    """Pitches of a prime or of a melody become the plan; what it fixes at the beginning is read at once.

    Where nothing is written, a prime is all there is: else its last steps would lack the soprano ahead.
    """
    grid = [] if score is None else to_grid(score)
    if is_melody:
        grid = [[pitch] for pitch in melody_of(grid)]
    cells = {(voice, at): pitch for at, step in enumerate(grid) for voice, pitch in enumerate(step)}
    plan = Plan(cells, len(grid) if is_melody or (grid and not writes) else None)
    start: list[int] = []
    while len(allowed := events.allowed(start, plan)) == 1 and allowed[0] != events.end:
        start.append(allowed[0])
    seconds = len(grid) * ANDANTE / PER_QUARTER
    pace = 1.0 if score is None else score.quarter / ANDANTE
    if is_melody:
        return Order([events.end, *start], plan, 0.0, seconds, pace)
    return Order([events.end, *start], plan, seconds, 0.0, pace)


def _paced(score: Score, pace: float) -> Score:
    """A score that goes slower or faster."""
    notes = tuple(note._replace(start=note.start * pace, end=note.end * pace) for note in score.notes)
    return Score(notes, score.quarter * pace)


class Guided:
    """A backend that scores only those tokens that may follow; for one sequence that begins with a mark."""

    def __init__(
        self,
        backend: Backend,
        allowed: Callable[[Sequence[int]], Sequence[int] | None],
        *,
        start: Sequence[int],
    ) -> None:
        """`allowed` says which may follow the tokens behind the first; `start` is read first."""
        self.backend, self.allowed = backend, allowed
        self.read = list(start)  # everything so far, also what has left the context
        self._cache: Any = None
        self._waiting: list[Ids] = []  # tokens behind which there is no choice, read with the next one

    @property
    def context(self) -> int | None:
        """The number of tokens that the model can attend to."""
        return self.backend.context

    @property
    def vocab(self) -> int:
        """How many tokens the model scores."""
        return self.backend.vocab

    def new_cache(self, rows: int, capacity: int, *, padding: Ids | None = None) -> Any:
        """An empty cache."""
        return self.backend.new_cache(rows, capacity, padding=padding)

    def cache_size(self, rows: int, capacity: int) -> int:
        """The bytes of such a cache."""
        return self.backend.cache_size(rows, capacity)

    def step(self, ids: Ids, cache: Any) -> Logits:
        """Read ids (1, T) behind the cache; logits (1, V), hopeless for what may not follow."""
        # A text that outgrew the context is read again without its beginning: only its last token is new. A
        # start that is longer than the context comes without its beginning, too.
        self.read += [] if self._cache is None else ids[0, -1:].tolist()
        allowed = self.allowed(self.read[1:])
        if cache is not self._cache:  # all is read anew
            self._cache, self._waiting = cache, []
        elif allowed is not None and len(allowed) == 1:
            self._waiting.append(ids)
            only = np.full((1, self.vocab), NEVER, dtype=np.float32)
            only[:, list(allowed)] = 0.0
            return only
        logits = self.backend.step(np.concatenate([*self._waiting, ids], axis=1), cache)
        self._waiting = []
        if allowed is None:
            return logits
        masked = np.full_like(logits, NEVER)
        masked[:, list(allowed)] = logits[:, list(allowed)]
        return masked

    def log_sums(self, logits: Logits) -> Sequence[float]:
        """For each row of logits, log Σ exp(logit)."""
        return self.backend.log_sums(logits)


def melody_of(grid: Grid) -> list[int]:
    """The melody of a grid: its first voice. Silence around it is cut off."""
    first = [step[0] for step in grid]
    sounding = [at for at, pitch in enumerate(first) if pitch != SILENT]
    return first[sounding[0] : sounding[-1] + 1] if sounding else []


def _read(source: Source, *, steady: bool) -> Score:
    if not isinstance(source, str | Path | Score):
        raise InputError(f"music is a MIDI file or a Score, not {type(source).__name__}")
    return source if isinstance(source, Score) else read_midi(Path(source), steady=steady)


def _check_seconds(seconds: float | None) -> float:
    if seconds is None:
        return SECONDS
    if not isinstance(seconds, int | float) or not 0 <= seconds <= LONGEST:
        raise InputError(f"seconds must be from 0 to {LONGEST:,.0f}, not {seconds!r}")
    return float(seconds)
