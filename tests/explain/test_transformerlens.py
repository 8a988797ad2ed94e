"""TransformerLens as a witness: the parts of a logit, and every value under its names."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from small import hugging_face, save_hugging_face, small_model

import glassformer as gf
from glassformer.errors import UnknownSite
from glassformer.explain.lens import attribution
from glassformer.explain.reading import Reading
from glassformer.hub.transformerlens import BLOCK, Activations
from glassformer.tasks.complete import LanguageModel
from glassformer.trace import trace

pytestmark = pytest.mark.filterwarnings("ignore")
STORYTELLER = Path(gf.__file__).parent / "pretrained" / "storyteller"


class Both(NamedTuple):
    """One model here and there, and a text."""

    lm: LanguageModel
    folder: Path
    ids: list[int]

    def theirs(self, **how: bool) -> Any:
        from transformer_lens.model_bridge import TransformerBridge
        from transformers import AutoModelForCausalLM

        model: Any = AutoModelForCausalLM.from_pretrained(self.folder, dtype=torch.float64)
        bridge = TransformerBridge.boot_transformers(
            str(self.folder), hf_model=model, device="cpu", dtype=torch.float64
        )
        bridge.enable_compatibility_mode(disable_warnings=True, **how)
        return bridge


@pytest.fixture(scope="module", params=["random", "storyteller"])
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Both:
    if request.param == "storyteller":
        lm = gf.load("storyteller", dtype="float64")
        return Both(lm, STORYTELLER, lm.encode("Once upon a time, there was a little girl"))
    folder = save_hugging_face(hugging_face(3), tmp_path_factory.mktemp("both"))
    return Both(gf.load(str(folder), dtype="float64"), folder, [5, 17, 5, 17, 60, 5, 2, 96, 0, 17, 60, 31])


@torch.inference_mode()
def test_the_parts_of_a_logit(both: Both) -> None:
    """Their direct logit attribution, by head and layer; only the norm is folded into the output matrix."""
    unprocessed = dict.fromkeys(("center_writing_weights", "center_unembed", "fold_value_biases"), False)
    theirs = both.theirs(fold_ln=True, **unprocessed)
    theirs.set_use_attn_result(True)
    _, cache = theirs.run_with_cache(torch.tensor([both.ids]))
    token = 40
    heads, names = cache.stack_head_results(layer=-1, pos_slice=-1, return_labels=True)
    rest, others = cache.decompose_resid(layer=-1, mode="mlp", pos_slice=-1, return_labels=True)
    right = {
        name: float(value)
        for stack, labels in ((heads, names), (rest, others))
        for name, value in zip(
            labels, cache.logit_attrs(stack, tokens=token, pos_slice=-1)[:, 0], strict=True
        )
    }
    found = attribution(Reading(both.lm.model, both.ids), position=-1, token=token)
    ours = dict(zip(found.parts, found.values, strict=True))
    config = both.lm.model.config
    pairs = [(ours["embed"], right["embed"] + right["pos_embed"])]
    for layer in range(config.layers):
        pairs += [(ours[f"blocks.{layer}.mlp"], right[f"{layer}_mlp_out"])]
        pairs += [
            (ours[f"blocks.{layer}.attn.mix[{head}]"], right[f"L{layer}H{head}"])
            for head in range(config.heads)
        ]
    one, other = np.array(pairs).T
    assert len(pairs) == len(right) - 1
    np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5 * np.abs(other).max())


@torch.inference_mode()
def test_every_value_under_their_names(both: Both) -> None:
    """Values and shapes are those that they have without processing the weights."""
    logits, cache = both.lm.run_with_cache(both.ids)
    right, theirs = both.theirs(no_processing=True).run_with_cache(torch.tensor([both.ids]))
    torch.testing.assert_close(logits, right, rtol=1e-5, atol=1e-5)
    for layer in range(both.lm.model.config.layers):
        for name in BLOCK:
            key = f"blocks.{layer}.{name}"
            torch.testing.assert_close(cache[key], theirs[key], rtol=1e-4, atol=1e-5, msg=key)


@pytest.mark.parametrize("layer", [2, -3, 99])
def test_a_layer_out_of_range_is_refused(layer: int) -> None:
    """A layer is never counted around the end."""
    net = small_model(4)
    with trace(net) as seen:
        net(torch.arange(5)[None])
    cache = Activations(seen)
    assert torch.equal(cache["pattern", -1], cache["pattern", 1])
    with pytest.raises(UnknownSite, match=f"layer {layer} is out of range: the trace holds 2 layers"):
        cache["pattern", layer]
