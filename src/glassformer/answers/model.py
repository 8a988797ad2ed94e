"""A model from outside: where its parameters are."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Protocol

from glassformer.answers.answer import Answer, Cell, Column, Table, answer
from glassformer.errors import counted
from glassformer.figures.marks import Spec
from glassformer.figures.specs import bars, panels


class TensorSummary(Protocol):
    """A tensor of a file."""

    @property
    def name(self) -> str: ...
    @property
    def own(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def parameters(self) -> int: ...


class PartSummary(Protocol):
    """The tensors of one block of a stack, which all its blocks have; or tensors outside of all blocks."""

    @property
    def stack(self) -> str: ...
    @property
    def blocks(self) -> int: ...
    @property
    def tensors(self) -> "Sequence[TensorSummary]": ...


class ModelSummary(Protocol):
    """The tensors of a model's files, counted; nothing is loaded."""

    @property
    def name(self) -> str: ...
    @property
    def dtype(self) -> str: ...
    @property
    def total(self) -> int: ...
    @property
    def parts(self) -> "Sequence[PartSummary]": ...


# What a part of a parameter's name means.
WORDS = {
    "tokens": "token embeddings",
    "positions": "position embeddings",
    "attn": "attention",
    "cross": "cross-attention",
    "qkv": "q, k, v",
    "proj": "output",
    "mlp": "feed-forward",
    "norm": "final layer norm",
    "norm1": "layer norm 1",
    "norm2": "layer norm 2",
    "norm3": "layer norm 3",
    "head": "output matrix",
}


@answer
class Parameters(Answer):
    """Where a model's parameters are: one entry for each tensor, those of the blocks counted together."""

    kind = "parameters"

    tensors: list[str]
    layers: list[str]  # what each is of, in words: `attention q, k, v`
    stacks: list[str]  # "blocks", "encoder" or "decoder"; "" outside of all blocks
    shapes: list[tuple[int, ...]]
    times: list[int]  # in how many blocks the tensor is
    parameters: list[int]  # in all of them together
    # The same as the article's table counts them, where the model has exactly the tensors of that table.
    article: list[int] | None = None

    def make_table(self) -> Table:
        """A row for every tensor."""
        columns = [
            Column("tensor", key=True),
            Column("layer"),
            Column("shape"),
            Column("times", "count"),
            Column("parameters", "count"),
        ]
        columns += [] if self.article is None else [Column("in the article", "count")]
        rows: list[list[Cell]] = []
        for n, name in enumerate(self.tensors):
            shape = " × ".join(map(str, self.shapes[n]))
            row: list[Cell] = [name, self.layers[n], shape, self.times[n], self.parameters[n]]
            rows.append(row if self.article is None else [*row, self.article[n]])
        return Table(columns, rows)

    def draw(self) -> Spec:
        """A bar for every layer, its weights and biases together; the blocks of a stack are a panel."""
        found = list(self._panels())
        sizes = [size for _, layers in found for size in layers.values()]
        wide = max(len(name) for _, layers in found for name in layers)
        scale: Spec = {"high": max(sizes), "label_columns": wide}
        parts = []
        for title, layers in found:
            one = bars(list(layers), list(layers.values()), **scale)
            parts.append(one | ({"title": title} if title else {}))
        return panels(parts, gap=12) if len(parts) > 1 else parts[0]

    def _panels(self) -> Iterator[tuple[str, dict[str, int]]]:
        """What is drawn together: its title, and by layer its number of parameters."""
        for (stack, times), group in groupby(range(len(self.tensors)), self._place):
            layers: dict[str, int] = {}
            for n in group:
                layers[self.layers[n]] = layers.get(self.layers[n], 0) + self.parameters[n]
            named = "" if stack in ("", "blocks") else f"{stack}: "
            yield f"{named}{counted(times, 'block')} together" if stack else "", layers

    def _place(self, n: int) -> tuple[str, int]:
        return self.stacks[n], self.times[n]

    def finding(self) -> str:
        """The layer that has most of them."""
        layers: dict[str, int] = {}
        for title, sizes in self._panels():
            where = f" of the {title.removesuffix(' together')}" if title else ""
            layers |= {f"{name}{where}": size for name, size in sizes.items()}
        largest = max(layers, key=lambda name: layers[name])
        return f"most are in {largest}, {layers[largest]:,}"

    @property
    def feed_forward(self) -> list[tuple[str, int, int]]:
        """Of every stack: its name, the parameters of one block, and those of its feed-forward layer."""
        found: dict[str, tuple[int, int]] = {}
        for n, stack in enumerate(self.stacks):
            if stack:
                whole, part = found.get(stack, (0, 0))
                one = self.parameters[n] // self.times[n]
                found[stack] = whole + one, part + one * self.layers[n].startswith(WORDS["mlp"])
        return [(stack, whole, part) for stack, (whole, part) in found.items() if part]


# The tensors of the table in The Illustrated GPT-2. It gives the first bias of a feed-forward layer as wide
# as the model instead of four times as wide, and leaves out the last layer norm.
ARTICLE = {
    "tokens.weight", "positions.weight",
    "attn.qkv.weight", "attn.qkv.bias", "attn.proj.weight", "attn.proj.bias",
    "mlp.up.weight", "mlp.up.bias", "mlp.down.weight", "mlp.down.bias",
    "norm1.weight", "norm1.bias", "norm2.weight", "norm2.bias",
}  # fmt: skip
LEFT_OUT = {"norm.weight", "norm.bias"}
TOO_NARROW = "mlp.up.bias"


def as_in_the_article(found: "Sequence[tuple[PartSummary, TensorSummary]]") -> list[int] | None:
    """The parameters of every tensor by the article's table; None for a model of another kind."""
    if {tensor.own for _, tensor in found} != ARTICLE | LEFT_OUT:
        return None
    width = next(tensor.shape[0] for _, tensor in found if tensor.own == "norm.weight")
    counts = []
    for part, tensor in found:
        size = width if tensor.own == TOO_NARROW else tensor.parameters
        counts.append(0 if tensor.own in LEFT_OUT else size * part.blocks)
    return counts


def parameters(summary: ModelSummary) -> Parameters:
    """Where a model's parameters are."""
    found = [(part, tensor) for part in summary.parts for tensor in part.tensors]
    return Parameters(
        caption=", ".join(filter(None, [f"{summary.name}: {summary.total:,} parameters", summary.dtype])),
        tokens=[],
        tensors=[_title(part, tensor) for part, tensor in found],
        layers=[_in_words(tensor.own) for _, tensor in found],
        stacks=[part.stack for part, _ in found],
        shapes=[tensor.shape for _, tensor in found],
        times=[part.blocks for part, _ in found],
        parameters=[tensor.parameters * part.blocks for part, tensor in found],
        article=as_in_the_article(found),
    )


def _in_words(own: str) -> str:
    """The layer of a parameter: `attention q, k, v` of attn.qkv.weight."""
    names = [part for part in own.split(".") if part not in ("weight", "bias")]
    return " ".join(WORDS.get(part, part) for part in names) or own


def _title(part: PartSummary, tensor: TensorSummary) -> str:
    """`wte.weight`; `12 × ln_1.weight` in a block; `6 × encoder.fc1.weight` beside another stack."""
    if not part.stack:
        return tensor.name
    stack = "" if part.stack == "blocks" else f"{part.stack}."
    return f"{part.blocks} × {stack}{tensor.name}"
