"""New tokens: more rows, and nothing else is another number."""

import pytest
import torch
from small import small_model

from glassformer.training.new_tokens import NOISE, add_tokens

IDS = torch.tensor([[3, 1, 4, 1, 5]])


@pytest.mark.parametrize("tied", [True, False])
def test_old_tokens_keep_their_logits(tied: bool) -> None:
    """Bit by bit: the new rows are behind the others."""
    net = small_model(1, tied=tied)
    before = net(IDS)
    add_tokens(net, 100, seed=0)
    after = net(IDS)
    assert after.shape == (1, 5, 100)
    assert torch.equal(after[..., :97], before)
    assert (net.vocab, net.config.vocab, net.head.out_features) == (100, 100, 100)
    assert (net.head.weight is net.tokens.weight) is tied
    net(torch.tensor([[99, 98]])).sum().backward()
    assert net.tokens.weight.grad is not None
    assert net.tokens.weight.grad.shape == (100, 24)


def test_a_new_row_is_near_the_mean() -> None:
    """Its logit is the mean logit, nearly; two new rows differ, and the seed decides them."""
    net, again, other = (small_model(1) for _ in range(3))
    mean = net.tokens.weight.mean(0)
    for one, seed in ((net, 5), (again, 5), (other, 6)):
        add_tokens(one, 99, seed=seed)
    new = net.tokens.weight[97:] - mean
    assert 0 < float(new.detach().abs().max()) < 5 * NOISE
    assert not torch.equal(new[0], new[1])
    assert torch.equal(net.tokens.weight, again.tokens.weight)
    assert not torch.equal(net.tokens.weight, other.tokens.weight)


@pytest.mark.parametrize("tied", [True, False])
def test_a_new_row_may_be_near_another(tied: bool) -> None:
    """In the output matrix too."""
    net = small_model(1, tied=tied)
    add_tokens(net, 99, seed=5, like=7)
    for rows in (net.tokens.weight, net.head.weight):
        assert 0 < float((rows[97:] - rows[7]).detach().abs().max()) < 5 * NOISE


def test_a_model_with_rows_to_spare_stays_as_it_is() -> None:
    """nanoGPT's models have more rows than tokens."""
    net = small_model(1)
    add_tokens(net, 90, seed=0)
    assert net.vocab == 97
