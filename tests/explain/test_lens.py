"""The lens at every stage, and the parts of a logit, beside `transformers` and by hand."""

import numpy as np
import pytest
import torch
from explain.readings import reading
from small import Pair, small_model

from glassformer.errors import InputError
from glassformer.explain import lens as module
from glassformer.explain.lens import attribution, lens
from glassformer.explain.reading import Reading


def log_softmax(logits: np.ndarray) -> np.ndarray:
    return (
        logits
        - np.log(np.exp(logits - logits.max(-1, keepdims=True)).sum(-1, keepdims=True))
        - logits.max(-1, keepdims=True)
    )


@pytest.fixture(scope="module")
def right(pair: Pair) -> np.ndarray:
    """(S, T, V): the log-probabilities after each whole block, by `transformers`, and after its attention."""
    body = pair.theirs.transformer
    added: list[torch.Tensor] = []  # what every half block puts on the residual stream, in order

    def catch(module: torch.nn.Module, given: object, made: torch.Tensor | tuple[torch.Tensor, ...]) -> None:
        added.append(made[0] if isinstance(made, tuple) else made)

    hooks = [half.register_forward_hook(catch) for block in body.h for half in (block.attn, block.mlp)]
    with torch.no_grad():
        logits = pair.theirs(torch.tensor([pair.ids])).logits[0].numpy()
        for hook in hooks:
            hook.remove()
        stages = [body.wte(torch.tensor([pair.ids])) + body.wpe(torch.arange(len(pair.ids)))]
        for part in added:
            stages.append(stages[-1] + part)
        expected = [pair.theirs.lm_head(body.ln_f(stage))[0].numpy() for stage in stages]
    np.testing.assert_allclose(expected[-1], logits, atol=1e-12)
    return log_softmax(np.stack(expected))


@pytest.mark.parametrize("chunk", [128, 5])
def test_every_stage(pair: Pair, right: np.ndarray, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Candidates, ranks, entropy and divergence, whether the positions are read at once or in parts."""
    monkeypatch.setattr(module, "CHUNK", chunk)
    found = lens(reading(pair), k=4, watch=[3, 60])
    assert found.stages == ["embed", "blocks.0.mid", "blocks.0.out", "blocks.1.mid", "blocks.1.out"]
    order = np.argsort(-right, -1, kind="stable")
    np.testing.assert_array_equal(found.top, order[..., :4])
    close = {"rtol": 0, "atol": 1e-10}
    np.testing.assert_allclose(found.top_logprobs, np.take_along_axis(right, order[..., :4], -1), **close)
    chosen = [*pair.ids[1:], int(right[-1, -1].argmax())]
    assert found.chosen.tolist() == chosen
    mine = right[:, np.arange(12), chosen]
    np.testing.assert_allclose(found.logprobs, mine, **close)
    np.testing.assert_array_equal(found.ranks, 1 + (right > mine[..., None]).sum(-1))
    np.testing.assert_allclose(found.entropy, -(np.exp(right) * right).sum(-1), **close)
    np.testing.assert_allclose(found.divergence, (np.exp(right[-1]) * (right[-1] - right)).sum(-1), **close)
    assert (found.divergence[-1] == 0).all()  # the last stage from itself, not −1e−16
    assert (found.divergence >= 0).all()
    np.testing.assert_allclose(found.watched_logprobs, right[..., [3, 60]], **close)
    np.testing.assert_array_equal(found.watched_ranks[..., 1], 1 + (right > right[..., [60]]).sum(-1))


def test_the_token_after_the_last(pair: Pair) -> None:
    """Is the likeliest, unless it is known."""
    assert lens(reading(pair), then=44).chosen[-1] == 44
    assert lens(reading(pair)).ranks[-1, -1] == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("changes", [{}, {"bias": False}, {"tied": False}, {"heads": 1, "layers": 3}])
def test_parts_add_up(dtype: torch.dtype, changes: dict[str, object]) -> None:
    """To the logit, and to the lead over a foil: within 1e-5 of the largest part in fp32, 1e-9 in fp64."""
    model = small_model(5, dtype, **changes)
    ids = [3, 1, 4, 1, 5, 9, 2, 6]
    for foil in (None, 11):
        found = attribution(Reading(model, ids), position=5, token=40, foil=foil)
        with torch.no_grad():
            logits = model(torch.tensor([ids]))[0, 5].double()
        assert found.logit == pytest.approx(
            float(logits[40] - (0 if foil is None else logits[foil])), rel=1e-5
        )
        largest = np.abs(found.values).max()
        assert abs(found.values.sum() - found.logit) <= (1e-5 if dtype is torch.float32 else 1e-9) * largest
    assert len(found.parts) == len(found.values) == len(set(found.parts))


def test_a_part_is_what_is_missing_without_it(pair: Pair) -> None:
    """Silence a head for the last norm alone: the logit falls by its part."""
    found = attribution(reading(pair), position=-1, token=7)
    part = dict(zip(found.parts, found.values, strict=True))
    body = pair.theirs.transformer
    with torch.no_grad():
        hidden = pair.theirs(torch.tensor([pair.ids]), output_hidden_states=True).hidden_states
        block = body.h[1]
        normed = block.ln_1(hidden[1])
        caught = []
        handle = block.attn.c_proj.register_forward_pre_hook(lambda _, given: caught.append(given[0]))
        block.attn(normed)
        handle.remove()
        vector = caught[0][0, -1, 16:24] @ block.attn.c_proj.weight[16:24]
        last = body.h[1](hidden[1])
        last = (last[0] if isinstance(last, tuple) else last)[0, -1]
        scale = (last.var(unbiased=False) + body.ln_f.eps).sqrt()
        right = ((vector - vector.mean()) / scale * body.ln_f.weight) @ pair.theirs.lm_head.weight[7]
    assert part["blocks.1.attn.mix[2]"] == pytest.approx(float(right), rel=1e-9)


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"watch": [97]}, r"token 97 is out of range \(0 to 96\)"),
        ({"then": -1}, "token -1 is out of range"),
        ({"k": 0}, "k must be between 1 and 97, not 0"),
        ({"k": 98}, "k must be between 1 and 97, not 98"),
    ],
)
def test_what_is_not_there(pair: Pair, how: dict[str, object], words: str) -> None:
    """One sentence each."""
    with pytest.raises(InputError, match=words):
        lens(reading(pair), **how)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"position 12 is out of range \(the text has positions 0 to 11\)"):
        attribution(reading(pair), position=12, token=0)
