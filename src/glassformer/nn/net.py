"""What every model offers to the rooms that do not know which model it is."""

from typing import Any, ClassVar, Self

from torch import Tensor, nn

from glassformer.nn.stack import Stack
from glassformer.nn.stepping import Stepping
from glassformer.trace import Tapped


class Net(Stepping, Tapped):
    """A model as a torch module: its parts under common names, its stacks, its embedding and its output."""

    kind: ClassVar[str]  # its name in `hub/families.py`, and in a recipe
    # Other rooms ask for these words, never for a class:
    #   writes     generates text, token by token        source     reads a second text, as a translator does
    #   causal     predicts the next token               encodes    gives a vector for every token of a text
    #   attends    has attention patterns to look at     recurrent  has a hidden state instead of positions
    #   draws      makes pictures                        labels     gives labels to a text or to its words
    #   composes   writes music, in the words of its vocabulary
    #   extracts   answers at the last token of one text or several: a class, a number, the best of answers
    capabilities: ClassVar[frozenset[str]]

    # `vocab` is required. `layers`, `heads`, `context`, `dropout`, `tied` and `bias` mean the same in every
    # model that has them. A field with metadata={"help": …} is a key of recipes with a default of its own.
    config: Any
    tokens: nn.Embedding
    norm: nn.Module  # between the last block and the output matrix; nn.Identity where there is none
    head: nn.Linear

    @property
    def stacks(self) -> tuple[Stack, ...]:
        """The stacks of blocks, in the order in which they are run; the output reads the end of the last.

        The blocks of a stack are the module list `blocks`, in the module of its prefix.
        """
        raise NotImplementedError

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        """ids (B, T) -> logits (B, T, V), or (B, 1, V) for the position `last=True` alone.

        A model that reads a second text takes its ids (B, S) first. A cache may follow: then ids are read
        behind what it holds, and `cache.length` grows by T.
        """
        raise NotImplementedError

    def initialize(self, seed: int) -> Self:
        """Draw the weights that training starts from; the same seed gives the same weights."""
        raise NotImplementedError

    def tie(self) -> None:
        """Share the weights that the configuration says are shared; called after weights were replaced."""

    def embed(self, ids: Tensor) -> Tensor:
        """The token vectors alone, without positions: ids (B, T) -> (B, T, D)."""
        return self.tokens(ids)  # type: ignore[no-any-return]

    def embed_source(self, ids: Tensor) -> Tensor:
        """The same of the source, in a model that reads one: ids (B, S) -> (B, S, D)."""
        return self.embed(ids)

    def unembed(self, x: Tensor) -> Tensor:
        """The logits that a vector of the residual stream would give at the end: (…, D) -> (…, V)."""
        return self.head(self.norm(x))  # type: ignore[no-any-return]

    def stream_norm(self, site: str) -> nn.LayerNorm | None:
        """The norm that the residual stream passes right after a part was added to it, at a site.

        None where parts are added and stay as they are: everywhere, unless a model norms its stream.
        """
        return None
