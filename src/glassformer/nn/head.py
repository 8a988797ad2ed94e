"""The output matrix: one score for each token of the vocabulary."""

import torch
from torch import Tensor, nn

PIECE = 1024  # tokens that are scored together
ROWS = 16  # for fewer, pieces were as fast as the whole


class Head(nn.Linear):
    """A linear layer that scores many rows piece by piece of the vocabulary, where that is faster.

    For 59,514 tokens, width 512 and one thread, the one large product took 1.2 times as long with 32 rows and
    1.3 times with 128; the numbers were the same bits.
    """

    def forward(self, x: Tensor) -> Tensor:
        """(…, D) -> (…, V)."""
        rows = x.reshape(-1, self.in_features)  # (rows, D)
        if not self.in_pieces(rows):
            return super().forward(x)
        scores = rows.new_empty(len(rows), self.out_features)
        for start in range(0, self.out_features, PIECE):
            piece = slice(start, start + PIECE)
            matrix = self.weight[piece].t()  # (D, tokens of the piece)
            if self.bias is None:
                torch.mm(rows, matrix, out=scores[:, piece])
            else:
                torch.addmm(self.bias[piece], rows, matrix, out=scores[:, piece])
        return scores.view(*x.shape[:-1], self.out_features)

    def in_pieces(self, rows: Tensor) -> bool:
        """Whether pieces are possible, and worth it."""
        plain = not torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu")
        cpu = rows.device.type == self.weight.device.type == "cpu"
        return plain and cpu and rows.dtype == self.weight.dtype == torch.float32 and len(rows) >= ROWS
