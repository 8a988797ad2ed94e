"""Small composers with random weights, and pieces for them."""

from typing import Any

from small import small_net

from glassformer.tasks.compose import Composer
from glassformer.tokenizers.music import Chorale, Music, Performance
from glassformer.tokenizers.score import Note, Score


def small_composer(events: Music | None = None, seed: int = 0, **changes: Any) -> Composer:
    """A model that writes nonsense quickly."""
    events = events or Chorale(3)
    net = small_net("music", seed, vocab=len(events), **{"context": 96, "reach": 20} | changes)
    return Composer(net, events, name="small composer")


def performer(**changes: Any) -> Composer:
    return small_composer(Performance(), **changes)


TUNE = [67, 67, 69, 69, 71, 71, 71, 71, 72, 72, 71, 69]  # 16th notes


def tune() -> Score:
    """A melody of one voice, at 100 quarters a minute."""
    notes, start = [], 0
    for at, pitch in enumerate(TUNE):
        if at + 1 == len(TUNE) or TUNE[at + 1] != pitch:
            notes.append(Note(start * 0.15, (at + 1) * 0.15, pitch))
            start = at + 1
    return Score.of(notes, quarter=0.6)
