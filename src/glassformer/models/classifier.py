"""A decoder that answers at its last token: GPT-1's way to classify, to compare, and to choose.

paper    Improving Language Understanding by Generative Pre-Training (Radford et al., 2018), section 3
         Universal Language Model Fine-tuning for Text Classification (Howard and Ruder, 2018)
article  The Illustrated GPT-2 (Jay Alammar, 2019), part 3

A task is written as one sequence that ends with a token of its own, `<|extract|>`. What the last block has
made there goes through one linear layer, the head. The blocks are those of a language model, whose output is
still there beside the head: to go on learning it helps (the paper's auxiliary objective).

`task`   classify   start text extract                          -> classes
         entail     start premise delimiter hypothesis extract  -> classes
         similar    both orders of two texts, added             -> a number, or classes
         choose     start context delimiter answer extract      -> one number, for each answer by itself

Both orders are two rows of a batch, and so are several answers: the head is linear, so that adding what it
says of two rows is adding their vectors.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from glassformer.errors import InputError, check_choice
from glassformer.models.gpt import GPT, GPT1, GPT3, Config, GPT1Config, GPT3Config
from glassformer.nn.cache import KVCache

TASKS = ("classify", "entail", "similar", "choose")


@dataclass(frozen=True, kw_only=True)
class HeadConfig(Config):
    """What a head adds to the sizes of its decoder."""

    task: str = field(
        default="classify",
        metadata={"help": f"What a text, or several, are read for: {', '.join(TASKS)}."},
    )
    labels: tuple[str, ...] = ("0", "1")  # the classes; none: the head says one number
    pad: int | None = None  # the token id that fills short rows of a batch, for readers that look for it

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice(TASKS, task=self.task)
        if len(self.labels) == 1 or len(set(self.labels)) < len(self.labels):
            shown = ", ".join(self.labels)
            raise InputError(f"labels must be at least two different ones, not {shown}")
        if self.task == "choose" and self.labels:
            raise InputError("labels: to choose, a head has none; it says one number for every answer")
        if self.task == "choose" and not self.tied:
            raise InputError("tied must be true: beside a head, the token matrix is the only output matrix")
        if self.pad is not None and not 0 <= self.pad < self.vocab:
            raise InputError(f"pad {self.pad} is not a token id of the vocabulary")

    @property
    def outputs(self) -> int:
        """How many numbers the head says."""
        return len(self.labels) or 1

    @property
    def parameters(self) -> int:
        """How many numbers are learned: the decoder's and the head's; there is no other output matrix."""
        untied = 0 if self.tied else self.vocab * self.width
        return super().parameters - untied + self.width * self.outputs + int(self.task == "choose")


class Head(GPT):
    """What a decoder becomes with a head: token ids in, what the head says at every token out."""

    capabilities = frozenset({"labels", "extracts", "attends"})
    config: HeadConfig

    def make_head(self, config: Config) -> nn.Linear:
        """The head. That of several answers has a bias because OpenAI's has: it moves all answers alike."""
        assert isinstance(config, HeadConfig)
        return nn.Linear(config.width, config.outputs, bias=config.task == "choose")

    def tie(self) -> None:
        """Nothing is shared: the token matrix is also the output of the language model, and the only one."""

    def forward(
        self,
        ids: Tensor,
        cache: KVCache | None = None,
        *,
        last: bool = False,
        only: Tensor | None = None,
        write: bool = False,
    ) -> Any:
        """ids (B, T) -> numbers of the head (B, T, C), or those of some positions, as in `GPT`.

        The one at the extract token is meant; others are what it would say if the text ended there. `write`
        also returns the language model's logits (B, T, V).
        """
        final = self.read(ids, cache, last=last, only=only)  # (B, T, D)
        scores = self.tap("logits", self.head(self.drop(final)))  # (B, T, C)
        return (scores, final @ self.tokens.weight.T) if write else scores

    @torch.no_grad()
    def adopt(self, decoder: nn.Module, new: Sequence[int] = (), *, like: int | None = None) -> None:
        """Take the weights of a decoder; the vectors of `new` tokens begin near that of the token `like`."""
        own = dict(self.named_parameters())
        for name, value in decoder.named_parameters():
            if name == "tokens.weight":
                rows = min(len(value), self.vocab)
                drawn = self.tokens.weight[list(new)].clone()
                self.tokens.weight[:rows] = value[:rows]
                near = value[like] if like is not None else value.mean(0)
                self.tokens.weight[list(new)] = near + drawn
            elif not name.startswith("head."):
                own[name].copy_(value)


class GPT2Classifier(Head):
    """GPT-2 with a head."""

    kind = "gpt2-classifier"


@dataclass(frozen=True, kw_only=True)
class GPT1HeadConfig(HeadConfig, GPT1Config):
    """The sizes of a GPT-1 with a head."""

    vocab: int = 40478  # again: a field's default is that of the first base, which has GPT-2's
    context: int = 512


class GPT1Classifier(Head, GPT1):
    """GPT-1 with a head: the OpenAI Transformer, as it was fine-tuned."""

    kind = "gpt1-classifier"


@dataclass(frozen=True, kw_only=True)
class GPT3HeadConfig(HeadConfig, GPT3Config):
    """The sizes of a GPT-3 with a head."""

    context: int = 2048


class GPT3Classifier(Head, GPT3):
    """GPT-3 with a head."""

    kind = "gpt3-classifier"
