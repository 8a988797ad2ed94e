"""Saliency beside captum, by hand, and put to its own test."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from captum.attr import InputXGradient, IntegratedGradients
from captum.attr import Saliency as CaptumSaliency
from explain.readings import reading
from small import Pair

from glassformer.errors import InputError
from glassformer.explain import saliency as module
from glassformer.explain.attention import patterns, rollout
from glassformer.explain.saliency import Target, saliency

TARGETS = [Target(4, 5), Target(11, 90, 17), Target(0, 3), Target(7, 12)]


def asked(pair: Pair, target: Target) -> Callable[[torch.Tensor], torch.Tensor]:
    """The question in captum's form: embeddings of the words to the logit, or to the lead over the foil."""

    def score(words: torch.Tensor) -> torch.Tensor:
        logits = pair.theirs(inputs_embeds=words).logits[:, target.position]
        return logits[:, target.token] - (0 if target.foil is None else logits[:, target.foil])

    return score


@pytest.mark.parametrize(
    "room", [module.ROOM, 1, 3 * 3 * 12 * 12]
)  # all four questions at once, one at a time, three and one
@pytest.mark.parametrize("method", ["grad_x_input", "gradient"])
def test_gradients_are_captums(
    pair: Pair, words: torch.Tensor, method: str, room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All questions side by side, or one after the other."""
    monkeypatch.setattr(module, "ROOM", room)
    found = saliency(reading(pair), TARGETS, method=method)
    for target, scores in zip(TARGETS, found.scores, strict=True):
        if method == "grad_x_input":
            right = InputXGradient(asked(pair, target)).attribute(words)
        else:
            right = CaptumSaliency(asked(pair, target)).attribute(words, abs=False)
        np.testing.assert_allclose(scores, right[0].norm(dim=-1).detach().numpy(), rtol=1e-9, atol=1e-14)
        assert (scores[target.position + 1 :] == 0).all()
    np.testing.assert_allclose(found.shares.sum(-1), 1, rtol=1e-12)


def test_integrated_gradients_are_captums(pair: Pair, words: torch.Tensor) -> None:
    """The same rule, the same number of steps: the same numbers, and the same rest that is missing."""
    found = saliency(reading(pair), TARGETS, method="integrated_gradients", steps=12)
    assert found.gaps is not None
    for target, scores, gap in zip(TARGETS, found.scores, found.gaps, strict=True):
        right, rest = IntegratedGradients(asked(pair, target)).attribute(
            words, n_steps=12, method="gausslegendre", return_convergence_delta=True
        )
        np.testing.assert_allclose(scores, right[0].sum(-1).detach().numpy(), rtol=1e-4, atol=1e-8)
        with torch.no_grad():
            rise = float(asked(pair, target)(words) - asked(pair, target)(torch.zeros_like(words)))
        assert gap == pytest.approx(
            abs(float(rest) / rise), rel=1e-3, abs=1e-8
        )  # captum has its steps in float32
    closer = saliency(reading(pair), TARGETS, method="integrated_gradients", steps=40).gaps
    assert closer is not None
    assert closer.max() < 1e-6


@pytest.mark.parametrize("blank", [None, 33])
def test_occlusion(
    pair: Pair, words: torch.Tensor, blank: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One token away at a time, by hand on the other implementation; in any number of passes."""
    table = pair.theirs.transformer.wte.weight.detach()
    for room in (module.ROOM, 1):
        monkeypatch.setattr(module, "ROOM", room)
        found = saliency(reading(pair), TARGETS, method="occlusion", blank=blank)
        for target, scores in zip(TARGETS, found.scores, strict=True):
            score = asked(pair, target)
            for away in range(len(pair.ids)):
                without = words.detach().clone()
                without[0, away] = 0 if blank is None else table[blank]
                with torch.no_grad():
                    right = float(score(words) - score(without))
                assert scores[away] == pytest.approx(right, rel=1e-9, abs=1e-12)


def test_rollout_as_a_baseline(pair: Pair) -> None:
    """The row of the position that asks."""
    found = saliency(reading(pair), TARGETS, method="rollout")
    right = rollout(patterns(reading(pair)))[-1]
    np.testing.assert_array_equal(found.scores, right[[target.position for target in TARGETS]])


def test_one_forward_pass_serves_all(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many tokens are asked about."""
    passes = []
    monkeypatch.setattr(type(pair.ours), "tap", _counting(passes, type(pair.ours).tap))
    saliency(reading(pair), [Target(position, 3) for position in range(12)])
    assert passes == ["logits"]


def _counting(passes: list[str], tap: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    def counted(self: object, site: str, value: torch.Tensor) -> torch.Tensor:
        passes.extend([site] * (site == "logits"))
        return tap(self, site, value)

    return counted


@pytest.mark.parametrize(
    ("targets", "how", "words"),
    [
        ([], {}, "there is no token to explain"),
        ([Target(12, 0)], {}, r"position 12 is out of range \(the text has positions 0 to 11\)"),
        ([Target(0, 97)], {}, r"token 97 is out of range \(0 to 96\)"),
        ([Target(0, 9, -1)], {}, "token -1 is out of range"),
        (TARGETS, {"method": "magic"}, "method 'magic' is none of grad_x_input, gradient"),
        (TARGETS, {"method": "integrated_gradients", "steps": 0}, "steps must be at least 1, not 0"),
    ],
)
def test_what_is_not_there(pair: Pair, targets: list[Target], how: dict[str, object], words: str) -> None:
    """One sentence each."""
    with pytest.raises(InputError, match=words):
        saliency(reading(pair), targets, **how)  # type: ignore[arg-type]
