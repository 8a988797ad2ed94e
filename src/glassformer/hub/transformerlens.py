"""TransformerLens' names for what a trace holds: its users find every value under the name they know."""

import re
from collections.abc import Iterable, Iterator, Mapping
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
SHORT = {name.partition("hook_")[2]: name for name in BLOCK}  # pattern -> attn.hook_pattern
POSITIONS_FIRST = ("attn.q", "attn.k", "attn.v", "attn.mix")


def our_site(name: str) -> str:
    """Our name for one of theirs; a name of ours stays as it is."""
    match = re.fullmatch(r"(blocks\.[\d*]+)\.([\w.]*hook_\w+)(\[.*\])?", name)
    if match and match[2] in BLOCK:
        return f"{match[1]}.{BLOCK[match[2]]}{match[3] or ''}"
    if "hook_" in name:
        raise UnknownSite(f"{name!r} has no counterpart; in a block there are {', '.join(BLOCK)}")
    return name


def check_ours(sites: Iterable[str]) -> None:
    """Refuse a name of theirs where values have our shapes, and say what it is called here."""
    for name in sites:
        if our_site(name) != name:
            raise UnknownSite(f"{name!r} is called {our_site(name)!r} here")


class Activations(Mapping[str, Tensor]):
    """The values of one run, under our names and under theirs.

    `cache["blocks.3.attn.pattern"]`, `cache["blocks.3.attn.hook_pattern"]` and `cache["pattern", 3]` are one.
    """

    def __init__(self, seen: "Tracer") -> None:
        self.seen = seen

    def __repr__(self) -> str:
        return f"Activations({self.seen.listed()})"

    def __getitem__(self, key: "str | tuple[str, int]") -> Tensor:
        if isinstance(key, tuple):
            key = self._named(*key)
        elif key in SHORT:
            raise UnknownSite(f"{key!r} needs a layer: cache[{key!r}, 3]")
        site = our_site(key)
        value = self.seen[site]
        # A name with an index has no axis of heads.
        theirs = site != key and site.endswith(POSITIONS_FIRST)
        return value.transpose(-3, -2) if theirs else value

    def _named(self, short: str, layer: int) -> str:
        """Their full name of a short one and a layer; a layer below 0 counts from the model's last."""
        if short not in SHORT:
            raise UnknownSite(f"{short!r} is none of {', '.join(SHORT)}")
        # Every site of the model was met, also where only some of them were recorded.
        count = len({site.split(".")[1] for site in self.seen.met if site.startswith("blocks.")})
        if not -count <= layer < count:
            raise UnknownSite(f"layer {layer} is out of range: the model has {counted(count, 'layer')}")
        ours = BLOCK[SHORT[short]]
        recorded = [n for n in range(count) if f"blocks.{n}.{ours}" in self.seen]
        if recorded and layer % count not in recorded:
            listed = ", ".join(map(str, recorded))
            raise UnknownSite(f"layer {layer % count} was not recorded; recorded: {listed}")
        return f"blocks.{layer % count}.{SHORT[short]}"

    def __iter__(self) -> Iterator[str]:
        return iter(self.seen)

    def __len__(self) -> int:
        return len(self.seen)
