"""A stack of blocks, as a model describes it to everything that reads the model from outside."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Part:
    """A sub-layer of a block: what it adds to the residual stream is `output` times the values at a site."""

    name: str  # of its module in a block, and so of its sites
    after: str  # the site of the stream behind the addition
    values: str  # its site that the output matrix reads: "mix" of heads, or "neurons"
    output: str  # the module that is its output matrix
    source: bool = False  # its keys and values are those of the source text


ATTENTION = Part("attn", "mid", "mix", "proj")
CROSS_ATTENTION = Part("cross", "mid2", "mix", "proj", source=True)
FEED_FORWARD = Part("mlp", "out", "neurons", "down")


@dataclass(frozen=True, kw_only=True)
class Stack:
    """Blocks of the same shape that follow each other; their sites begin with `prefix`."""

    prefix: str = ""  # "" in a model of one stack, else "encoder." or "decoder."
    layers: int
    heads: int  # 0 in a stack without attention
    causal: bool  # a position attends to itself and to earlier positions only
    neurons: int  # in the feed-forward layer of one block
    source: bool = False  # its positions are those of the source text, in a model that reads two texts
    parts: tuple[Part, ...] = (ATTENTION, FEED_FORWARD)  # in the order of the additions; the last is at "out"

    @property
    def name(self) -> str:
        """The name for people: `encoder`, `decoder`, or `blocks` where there is only one stack."""
        return self.prefix.rstrip(".") or "blocks"

    @property
    def attention(self) -> tuple[Part, ...]:
        """The parts that attend: to the text itself, or to the source."""
        return tuple(part for part in self.parts if part.values == "mix")

    def site(self, layer: int | str, name: str) -> str:
        """The full name of a site in one block, or in every block ("*").

        `site(3, "attn.pattern")` is `blocks.3.attn.pattern`.
        """
        return f"{self.prefix}blocks.{layer}.{name}"
