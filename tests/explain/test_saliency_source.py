"""Saliency over the source of a translation: by gradients, on the way from zeros, and by taking tokens away."""

import numpy as np
import pytest
import torch
from small import small_net

from glassformer.errors import InputError
from glassformer.explain.faithfulness import faithfulness
from glassformer.explain.reading import Reading
from glassformer.explain.saliency import Target, saliency

SOURCE, TEXT = [5, 9, 7, 3, 11], [1, 8, 2]
TARGETS = [Target(0, 8), Target(2, 4)]
KINDS = {
    "transformer": {},
    "two vocabularies": {"source_vocab": 53},
    "attention": {"bidirectional": True},
    "bottleneck": {"reads": "last", "cell": "lstm"},
}


@pytest.fixture(scope="module", params=list(KINDS))
def reading(request: pytest.FixtureRequest) -> Reading:
    recurrent = request.param in ("attention", "bottleneck")
    kind = "seq2seq" if recurrent else "transformer"
    net = small_net(kind, 1, torch.float64, **KINDS[request.param])  # type: ignore[arg-type]
    return Reading(net, TEXT, source=SOURCE)  # type: ignore[arg-type]


def logits(reading: Reading, source: list[int]) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = reading.net(torch.tensor([source]), torch.tensor([TEXT]))[0]
    return found


def test_gradients_are_autograds(reading: Reading) -> None:
    """Of a plain forward pass, by the embedding matrix of the source, read with a row for every token."""
    net = reading.net
    weight = net.source_tokens.weight  # type: ignore[attr-defined]
    rows = weight[SOURCE].detach().clone().requires_grad_()
    # The source's own rows of another matrix: the tokens 0 to 4 of it are the source.
    place = {id: at for at, id in enumerate(SOURCE)}
    original = net.source_tokens  # type: ignore[attr-defined]

    class Rows(torch.nn.Module):
        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return rows[[place[int(id)] for id in ids[0]]][None]

    net.source_tokens = Rows()  # type: ignore[attr-defined]
    if net.config.source_vocab == 0:
        net.tokens = original
    try:
        found = net(torch.tensor([SOURCE]), torch.tensor([TEXT]))[0]
    finally:
        net.source_tokens = original  # type: ignore[attr-defined]
    right = []
    for target in TARGETS:
        (gradient,) = torch.autograd.grad(found[target.position, target.token], rows, retain_graph=True)
        right.append((gradient * rows).norm(dim=-1).detach().numpy())
    ours = saliency(reading, TARGETS, source=True)
    np.testing.assert_allclose(ours.scores, right, rtol=1e-6)
    assert (ours.causal, ours.source) == (False, True)


def test_integrated_gradients_add_up(reading: Reading) -> None:
    """To how far the logit rises from a source of zeros."""
    found = saliency(reading, TARGETS, method="integrated_gradients", source=True, steps=200)
    assert found.gaps is not None
    assert found.gaps.max() < 0.02


def test_occlusion_takes_a_token_away(reading: Reading) -> None:
    """The logit falls as far as in a run with another source."""
    found = saliency(reading, TARGETS, method="occlusion", source=True, blank=3)
    full = logits(reading, SOURCE)
    for at in range(len(SOURCE)):
        without = logits(reading, [*SOURCE[:at], 3, *SOURCE[at + 1 :]])
        fall = [float(full[one.position, one.token] - without[one.position, one.token]) for one in TARGETS]
        np.testing.assert_allclose(found.scores[:, at], fall, atol=1e-9)


def test_deletion_blanks_the_source(reading: Reading) -> None:
    """With nothing blank the probability is the model's; with all blank that of a source of blanks."""
    found = saliency(reading, TARGETS, source=True)
    tests = faithfulness(reading, found, blank=3)
    for n, target in enumerate(TARGETS):
        for column, source in ((0, SOURCE), (-1, [3] * len(SOURCE))):
            right = logits(reading, source)[target.position].float().softmax(-1)[target.token]
            assert tests.deletion[n, column] == pytest.approx(float(right), rel=1e-5)


def test_rollout_stays_within_one_text(reading: Reading) -> None:
    """It has no meaning for the source."""
    with pytest.raises(InputError, match="method 'rollout' is none of grad_x_input"):
        saliency(reading, TARGETS, method="rollout", source=True)


def test_a_recurrent_network_over_its_own_text() -> None:
    """Without a source asked for, the tokens before a target get the scores."""
    reading = Reading(small_net("seq2seq", 1, torch.float64), TEXT, source=SOURCE)  # type: ignore[arg-type]
    found = saliency(reading, TARGETS)
    assert found.scores.shape == (2, 3)
    assert (found.scores[0, 1:] == 0).all()
    assert (found.scores[1] > 0).all()
