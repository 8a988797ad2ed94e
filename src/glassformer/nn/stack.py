"""A stack of blocks, as a model describes it to everything that reads the model from outside."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Stack:
    """Blocks of the same shape that follow each other; their sites begin with `prefix`."""

    prefix: str = ""  # "" in a model of one stack, else "encoder." or "decoder."
    layers: int
    heads: int  # 0 in a stack without attention
    causal: bool  # a position attends to itself and to earlier positions only
    neurons: int  # in the feed-forward layer of one block
    # What a block adds to the stream, in order, and the site of the stream behind each addition.
    parts: tuple[tuple[str, str], ...] = (("attn", "mid"), ("mlp", "out"))

    @property
    def name(self) -> str:
        """The name for people: `encoder`, `decoder`, or `blocks` where there is only one stack."""
        return self.prefix.rstrip(".") or "blocks"

    def site(self, layer: int, name: str) -> str:
        """The full name of a site in one block: `site(3, "attn.pattern")` is `blocks.3.attn.pattern`."""
        return f"{self.prefix}blocks.{layer}.{name}"
