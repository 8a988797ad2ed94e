"""The Music Transformer: GPT-2's decoder, which hears how far apart two events are.

article  The Illustrated GPT-2 (Jay Alammar, 2019), part 3
paper    Music Transformer: Generating Music with Long-Term Structure (Huang et al., 2018)

Music repeats itself at distances: the same figure one beat, one bar, one phrase later. So the score of a
query and a key gets a second term, which depends on the distance between them and on nothing else about where
they are: q·k + q·e(distance), divided by √K. Every head has a vector e for each distance up to `reach`.

`positions`   "relative": as above, and no vectors of positions.
              "sinusoids", "learned": the vectors of Attention Is All You Need and of GPT-2, to compare with.
"""

import math
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.errors import check_at_least, check_choice
from glassformer.models.gpt import GPT, Attention, Block, Config
from glassformer.nn.attention import causal_mask, pattern_of
from glassformer.nn.cache import KVCache
from glassformer.nn.positions import sinusoid_table

POSITIONS = ("relative", "sinusoids", "learned")
SITES = ("distance", "scores", "pattern")
ROWS = 128  # queries whose scores are computed at once


@dataclass(frozen=True, kw_only=True)
class MusicConfig(Config):
    """The sizes of a Music Transformer, and how it knows where an event is."""

    vocab: int = 389
    context: int = 2048
    positions: str = field(
        default="relative", metadata={"help": f"How it knows where an event is: {', '.join(POSITIONS)}."}
    )
    reach: int = field(
        default=0, metadata={"help": "Relative: the distances that have a vector; 0: those of the context."}
    )

    # On a processor, to draw a number for every pair of positions takes a third of a training step.
    attention_dropout: bool = field(default=False, metadata={"help": "Dropout of attention weights too."})

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice(POSITIONS, positions=self.positions)
        check_at_least(0, reach=self.reach)
        object.__setattr__(self, "reach", min(self.reach or self.context, self.context))

    @property
    def parameters(self) -> int:
        """How many numbers are learned: GPT-2's, with distances in every layer in place of positions."""
        table = self.context * self.width
        distances = self.layers * self.heads * self.reach * self.head_width
        instead = {"relative": distances, "sinusoids": 0, "learned": table}[self.positions]
        return super().parameters - table + instead


def skew(x: Tensor) -> Tensor:
    """Scores by distance become scores by source: (…, T, S) -> (…, T, S).

    Column c of x is the distance S - 1 - c, whichever row it is in. The queries are the last T of S sources:
    source j is at the distance S - T + i - j from query i, so its score is in column T - 1 - i + j of row i.
    With one more column in front that is place T + i·S + j of the numbers in their order: to cut off the
    first T of them is the whole trick, and no vector is copied for each pair. What lies ahead gets numbers
    that mean nothing, and is masked.
    """
    T = x.shape[-2]
    if T == 1:  # the newest position: its distances are in order already
        return x
    return F.pad(x, (1, 0)).flatten(-2)[..., T:].reshape(x.shape)


class RelativeAttention(Attention):
    """Masked self-attention whose scores also depend on the distance."""

    def __init__(self, config: MusicConfig, layer: int) -> None:
        super().__init__(config, layer)
        # A vector for every distance, from the farthest to 0, as in the paper.
        self.distances = nn.Parameter(torch.empty(config.heads, config.reach, config.head_width))  # (H, R, K)

    def _mix(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, cache: KVCache | None) -> Tensor:
        """The values of all sources that a position may see, weighted: (B, H, T, K)."""
        T, S = q.shape[2], k.shape[2]
        if mask is None:
            mask = causal_mask(T, S, device=q.device)
        if self.altered(*SITES):
            return F.dropout(self.pattern(q, k, mask), self.dropout, self.training) @ v
        if self.watched(*SITES):
            with torch.no_grad():
                self.pattern(q, k, mask)

        # No kernel fuses the two terms. A few queries at a time: their scores stay in the processor's cache,
        # and what lies ahead of them, nearly half of all pairs, is not computed.
        mixes = []
        for start in range(0, T, ROWS):
            end = min(start + ROWS, T)
            seen = S - T + end
            rows = mask[..., start:end, :seen]
            mixes.append(self._mix_rows(q[:, :, start:end], k[:, :, :seen], v[:, :, :seen], rows))
        return torch.cat(mixes, 2)

    def _mix_rows(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        """The same for some queries, the last of the sources, without a look inside: (B, H, T, K)."""
        content, distance = self.terms(q / math.sqrt(q.shape[-1]), k)
        scores = (content + distance).masked_fill(~mask, -torch.inf)
        return F.dropout(scores.softmax(-1), self.dropout, self.training) @ v

    def pattern(self, q: Tensor, k: Tensor, mask: Tensor) -> Tensor:
        """The attention pattern in the article's steps: (B, H, T, S)."""
        content, distance = self.terms(q, k)
        scores = (content + self.tap("distance", distance)) / math.sqrt(q.shape[-1])
        return pattern_of(self, scores, mask)

    def terms(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """Both terms of the scores, by content and by distance: (B, H, T, S) each."""
        distances = self.nearest(k.shape[2])
        return q @ k.transpose(-2, -1), skew(q @ distances.transpose(-2, -1))

    def nearest(self, count: int) -> Tensor:
        """The vectors of the distances count - 1 … 0: (H, count, K). Those out of reach are zeros."""
        near = self.distances[:, -count:]
        if near.shape[1] == count:
            return near
        return F.pad(near, (0, 0, count - near.shape[1], 0))


class RelativeBlock(Block):
    """GPT-2's block with relative attention."""

    def make_attention(self, config: Config, layer: int) -> Attention:
        """The attention of this block."""
        assert isinstance(config, MusicConfig)
        return RelativeAttention(config, layer)


class Sinusoids(nn.Module):
    """Waves as the vectors of positions; they are not learned."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.context, self.width = config.context, config.width

    def forward(self, places: Tensor) -> Tensor:
        """(…) -> (…, D)."""
        # The paper's token vectors begin √D times as large as ours: so the waves shrink instead.
        table = sinusoid_table(self.context, self.width, "alternating", places.device)
        return 0.02 * table[places]


class Nowhere(nn.Module):
    """No vectors of positions: attention knows the distances."""

    def forward(self, places: Tensor) -> Tensor:
        """(…) -> (…, 1)."""
        return torch.zeros((), device=places.device)


class MusicTransformer(GPT):
    """Events of music in, a score for every event that may come next out."""

    kind = "music"
    capabilities = frozenset({"writes", "causal", "attends", "composes"})
    config: MusicConfig

    def make_positions(self, config: Config) -> nn.Module:
        """What gives a position its vector."""
        assert isinstance(config, MusicConfig)
        if config.positions == "learned":
            return super().make_positions(config)
        return Sinusoids(config) if config.positions == "sinusoids" else Nowhere()

    def make_block(self, config: Config, layer: int) -> nn.Module:
        """The block of one layer."""
        assert isinstance(config, MusicConfig)
        block = RelativeBlock if config.positions == "relative" else Block
        return block(config, layer)
