"""The shape of a recurrent network: how many steps it reads and writes, as one run of it shows."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from glassformer.errors import InputError
from glassformer.explain.reading import Readable, module_of
from glassformer.trace import Tracer, sites_of

READS, BACKWARDS, WRITES = "encoder.hidden", "encoder.hidden_back", "decoder.hidden"


@dataclass(frozen=True)
class Steps:
    """How often a state was made while reading and while writing, and how many positions were scored."""

    read: int
    wrote: int  # by the decoder; 0 where there is none
    scored: int
    both_ways: bool  # it also reads backwards

    @property
    def name(self) -> str:
        """The shape, in the words of the field."""
        several = "one" if self.read == 1 else "many"
        name = f"{several} to {'one' if self.scored == 1 else 'many'}"
        if name != "many to many":
            return name
        return f"{name}, encoder and decoder" if self.wrote else f"{name}, in step"


def steps_of(net: Readable, *texts: Sequence[int]) -> Steps:
    """The steps of a run: with the tokens of a text, or of a source and of the target that is read."""
    rows = [torch.tensor([list(ids)], device=net.device) for ids in texts]
    seen = sites_of(module_of(net), *rows)
    if READS not in seen:
        raise InputError("shapes: this model has no recurrent state")
    return Steps(
        read=len(seen.each(READS)),
        wrote=_count(seen, WRITES),
        scored=seen["logits"].shape[1],
        both_ways=BACKWARDS in seen,
    )


def _count(seen: Tracer, site: str) -> int:
    return len(seen.each(site)) if site in seen else 0
