"""Attention in a band: the numbers of dense attention with a mask, in memory that grows with the length
alone.
"""

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from glassformer.nn.attention import attend, attend_banded, band_mask
from glassformer.trace import Tapped, trace

SHAPES = [  # queries, sources, window, padding
    (40, 40, 7, None),
    (40, 40, 1, None),
    (40, 40, 40, None),
    (41, 41, 8, [3, 0, 11]),
    (5, 33, 8, None),
    (5, 33, 8, [20, 0, 31]),
    (1, 33, 8, None),
    (1, 33, 8, [30, 0, 2]),
    (8, 9, 8, [3, 0, 2]),
    (12, 30, 4, [29, 1, 0]),
    (3, 50, 50, None),
]


class Site(Tapped):
    """A module that attends in a band."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, window: int, padding: Tensor | None = None) -> Tensor:
        return attend_banded(self, q, k, v, window=window, padding=padding)


def random_qkv(queries: int, sources: int, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(3, 2, n, 5, generator=generator, dtype=dtype) for n in (queries, sources, sources)]


@pytest.mark.parametrize(("queries", "sources", "window", "padding"), SHAPES)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-14), (torch.float32, 1e-6)])
def test_banded_is_dense_with_a_mask(
    queries: int,
    sources: int,
    window: int,
    padding: list[int] | None,
    dtype: torch.dtype,
    tolerance: float,
) -> None:
    """Values and gradients: by chunks, and at once with a mask (T, S)."""
    q, k, v = (x.requires_grad_() for x in random_qkv(queries, sources, dtype))
    void = None if padding is None else torch.tensor(padding)
    banded = Site()(q, k, v, window, void)
    dense = attend(Site(), q, k, v, mask=band_mask(queries, sources, window=window, padding=void))
    assert (banded - dense).abs().max() <= tolerance
    ours = torch.autograd.grad(banded.sin().sum(), (q, k, v))
    right = torch.autograd.grad(dense.sin().sum(), (q, k, v))
    for one, other in zip(ours, right, strict=True):
        assert (one - other).abs().max() <= 10 * tolerance


def test_the_band_has_its_positions() -> None:
    """A position sees itself and the window - 1 before it."""
    mask = band_mask(4, 6, window=3)
    seen = [row.nonzero().flatten().tolist() for row in mask]
    assert seen == [[0, 1, 2], [1, 2, 3], [2, 3, 4], [3, 4, 5]]
    void = band_mask(4, 6, window=3, padding=torch.tensor([0, 3]))[1, 0]
    assert [row.nonzero().flatten().tolist() for row in void] == [[2], [3], [3, 4], [3, 4, 5]]


def test_reading_the_pattern_changes_no_bit() -> None:
    """The pattern is computed beside; an edit of nothing is within rounding."""
    q, k, v = random_qkv(30, 30)
    site = Site()
    plain = site(q, k, v, 4)
    with trace(site, "pattern", "scores") as seen:
        assert torch.equal(site(q, k, v, 4), plain)
    band = band_mask(30, 30, window=4)
    assert torch.all(seen["pattern"][:, :, ~band] == 0)
    assert torch.allclose(seen["pattern"].sum(-1), torch.ones(3, 2, 30))
    with trace(site, edits={"pattern": lambda x: x}):
        assert (site(q, k, v, 4) - plain).abs().max() <= 1e-6


class Largest(TorchDispatchMode):
    """Remembers the largest tensor that any operation made."""

    numbers = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        made = func(*args, **(kwargs or {}))
        for one in made if isinstance(made, tuple | list) else [made]:
            if isinstance(one, Tensor):
                self.numbers = max(self.numbers, one.untyped_storage().nbytes())
        return made


def largest(length: int, *, train: bool) -> int:
    q, k, v = (torch.randn(1, 2, length, 8, requires_grad=train) for _ in range(3))
    with Largest() as seen:
        mix = Site()(q, k, v, 16)
        if train:
            mix.sum().backward()
    return seen.numbers


@pytest.mark.parametrize("train", [False, True])
def test_memory_is_linear_in_the_length(train: bool) -> None:
    """Twice the length makes the largest tensor twice as large, and it is far from T × T."""
    short, long = largest(1024, train=train), largest(4096, train=train)
    assert long <= 4.1 * short
    assert long < 4096 * 4096
