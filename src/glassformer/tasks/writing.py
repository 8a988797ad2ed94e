"""Write the best targets behind some prompts: by beam search, greedily, or drawn."""

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from glassformer import machine
from glassformer.errors import counted
from glassformer.generation.beam import beam_search
from glassformer.generation.decode import generate
from glassformer.generation.options import Options
from glassformer.generation.stepper import Stepper


class Target(NamedTuple):
    """What was written: its tokens, its score, and why it ended."""

    tokens: list[int]
    score: float  # of a beam: the sum of log-probabilities / length ** length_penalty; else their sum
    finish: str


def write_targets(
    backend: Stepper,
    prompts: Sequence[Sequence[int]],
    *,
    options: Options,
    ends: Collection[int],
    forbidden: Collection[int] = (),
) -> list[list[Target]]:
    """For each prompt the `num_return_sequences` best targets; all prompts are continued at once."""
    _check_memory(backend, prompts, options)
    how: dict[str, Any] = {"options": options, "ends": ends, "forbidden": forbidden}
    if options.num_beams > 1:
        beams = beam_search(backend, prompts, **how)
        return [[Target(list(beam.tokens), beam.score, beam.finish) for beam in found] for found in beams]

    each = options.num_return_sequences
    rows = [Target([], 0.0, "") for _ in range(each * len(prompts))]
    for event in generate(backend, prompts, **how):
        at = event.prompt * each + event.choice
        tokens, score, _ = rows[at]
        if event.token is not None and event.logprob is not None:
            rows[at] = Target([*tokens, event.token], score + event.logprob, "")
        if event.finish is not None:
            rows[at] = rows[at]._replace(finish=event.finish)
    return [rows[start : start + each] for start in range(0, len(rows), each)]


def _check_memory(backend: Stepper, prompts: Sequence[Sequence[int]], options: Options) -> None:
    # Beams hold the cache twice while they choose which of them go on.
    each = 2 * options.num_beams if options.num_beams > 1 else options.num_return_sequences
    rows = len(prompts) * each
    length = max(map(len, prompts), default=0) + options.max_new_tokens
    if backend.context is not None:
        length = min(length, 2 * backend.context)
    what = f"a cache for {counted(rows, 'answer')} of {counted(length, 'token')}"
    machine.check_memory(backend.cache_size(rows, length), what=what)
