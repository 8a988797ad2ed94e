"""TransformerLens' names for what a trace holds: its users find every value under the name they know."""

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from torch import Tensor

from glassformer.errors import UnknownSite, counted

if TYPE_CHECKING:
    from glassformer.trace import Tracer

# Their name in a block -> ours. In a value with heads and positions, they put positions first: (B, T, H, K).
BLOCK = {
    "hook_resid_pre": "in",
    "attn.hook_q": "attn.q",
    "attn.hook_k": "attn.k",
    "attn.hook_v": "attn.v",
    "attn.hook_attn_scores": "attn.scores",
    "attn.hook_pattern": "attn.pattern",
    "attn.hook_z": "attn.mix",
    "hook_attn_out": "attn.out",
    "hook_resid_mid": "mid",
    "mlp.hook_post": "mlp.neurons",
    "hook_mlp_out": "mlp.out",
    "hook_resid_post": "out",
}
POSITIONS_FIRST = ("attn.q", "attn.k", "attn.v", "attn.mix")


def our_site(name: str) -> str:
    """Our name for one of theirs; a name of ours stays as it is."""
    match = re.fullmatch(r"(blocks\.[\d*]+)\.(.*hook_\w+)", name)
    if match and match[2] in BLOCK:
        return f"{match[1]}.{BLOCK[match[2]]}"
    if "hook_" in name:
        raise UnknownSite(f"{name!r} has no counterpart; in a block there are {', '.join(BLOCK)}")
    return name


class Activations(Mapping[str, Tensor]):
    """The values of one run, under our names and under theirs.

    `cache["blocks.3.attn.pattern"]`, `cache["blocks.3.attn.hook_pattern"]` and `cache["pattern", 3]` are one.
    """

    def __init__(self, seen: "Tracer") -> None:
        self.seen = seen

    def __getitem__(self, key: "str | tuple[str, int]") -> Tensor:
        if isinstance(key, tuple):
            key = f"blocks.{self._layer(key[1])}.{_long(key[0])}"
        site = our_site(key)
        theirs = site != key and site.partition(".")[2].partition(".")[2] in POSITIONS_FIRST
        return self.seen[site].transpose(-3, -2) if theirs else self.seen[site]

    def _layer(self, layer: int) -> int:
        """A layer of the run; one below 0 is counted from the end."""
        layers = [int(site.split(".")[1]) for site in self.seen if site.startswith("blocks.")]
        count = max(layers, default=-1) + 1
        if not -count <= layer < count:
            raise UnknownSite(f"layer {layer} is out of range: the trace holds {counted(count, 'layer')}")
        return layer % count

    def __iter__(self) -> Iterator[str]:
        return iter(self.seen)

    def __len__(self) -> int:
        return len(self.seen)


def _long(short: str) -> str:
    """Their full name of a short one: pattern -> attn.hook_pattern, resid_post -> hook_resid_post."""
    for name in BLOCK:
        if name.endswith(f"hook_{short}"):
            return name
    raise UnknownSite(f"{short!r} is none of {', '.join(name.partition('hook_')[2] for name in BLOCK)}")
