"""The output matrix, piece by piece."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from glassformer.nn.head import PIECE, ROWS, Head


@pytest.fixture
def products(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows each product of pieces had."""
    counted = []

    def counting(product: Callable[..., Tensor], at: int) -> Callable[..., Tensor]:
        def count(*values: Tensor, out: Tensor) -> Tensor:
            counted.append(len(values[at]))
            return product(*values, out=out)

        return count

    monkeypatch.setattr(torch, "addmm", counting(torch.addmm, 1))
    monkeypatch.setattr(torch, "mm", counting(torch.mm, 0))
    return counted


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(ROWS - 1, 1), (ROWS, 1), (5, 7), (40,)])
def test_pieces_are_the_whole(shape: tuple[int, ...], bias: bool, products: list[int]) -> None:
    """Scores are those of one product, also of the last piece, which is smaller; few rows are one product."""
    torch.manual_seed(0)
    head = Head(8, 2 * PIECE + 30, bias=bias)
    x = torch.randn(*shape, 8)
    with torch.inference_mode():
        got = head(x)
        torch.testing.assert_close(got, F.linear(x, head.weight, head.bias))
    rows = x.flatten(0, -2).shape[0]
    assert products == ([rows] * 3 if rows >= ROWS else [])


def test_pieces_are_for_plain_numbers_without_gradients(products: list[int]) -> None:
    """Training, and other kinds of numbers, go through one product as ever."""
    head, x = Head(8, 2 * PIECE), torch.randn(ROWS, 8)
    head(x).sum().backward()
    assert head.weight.grad is not None
    with torch.no_grad():
        head.double()(x.double())
        head.float()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert head(x).dtype == torch.bfloat16
        assert not products
        head(x)
    assert len(products) == 2
