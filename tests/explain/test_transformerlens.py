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
from glassformer.hub.transformerlens import BLOCK, Activations, check_ours
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


def cache_of(*sites: str) -> Activations:
    """Some values (all) of a run of a small model with two layers and three heads."""
    net = small_model(4)
    with trace(net, *sites) as seen:
        net(torch.arange(5)[None])
    return Activations(seen)


@pytest.mark.parametrize("layer", [2, -3, 99])
def test_a_layer_out_of_range_is_refused(layer: int) -> None:
    """A layer is never counted around the end."""
    cache = cache_of()
    assert torch.equal(cache["pattern", -1], cache["pattern", 1])
    with pytest.raises(UnknownSite, match=f"layer {layer} is out of range: the model has 2 layers"):
        cache["pattern", layer]


def test_a_negative_layer_counts_from_the_end_of_the_model() -> None:
    """Also where only some layers were recorded: the last one of these is not the last one of the model."""
    cache = cache_of("blocks.0.out")
    assert torch.equal(cache["resid_post", -2], cache["blocks.0.out"])
    with pytest.raises(UnknownSite, match="layer 1 was not recorded; recorded: 0"):
        cache["resid_post", -1]
    with pytest.raises(UnknownSite, match=r"holds no site 'blocks.1.attn.pattern'.*it holds blocks.0.out"):
        cache["pattern", -1]


def test_lookups_that_name_no_value_say_why() -> None:
    """A short name without a layer, and a pattern, which is not its own suggestion."""
    cache = cache_of()
    with pytest.raises(UnknownSite, match=r"'resid_post' needs a layer: cache\['resid_post', 3\]"):
        cache["resid_post"]
    with pytest.raises(UnknownSite, match="may name several values") as caught:
        cache["blocks.*.out"]
    assert "did you mean" not in str(caught.value)
    assert repr(cache).startswith("Activations(embed, blocks.0…1.in, blocks.0…1.attn.q")


def test_one_head_under_their_name() -> None:
    """Without its axis of heads, a value has one shape here and there."""
    cache = cache_of()
    assert torch.equal(cache["blocks.1.attn.hook_z[2]"], cache["blocks.1.attn.hook_z"][:, :, 2])


def test_where_only_our_names_are_taken_theirs_are_translated() -> None:
    """Edits and traces have our shapes; a typing error of ours is not taken for a name of theirs."""
    with pytest.raises(
        UnknownSite, match=r"'blocks.5.attn.hook_z\[1\]' is called 'blocks.5.attn.mix\[1\]' here"
    ):
        check_ours(["blocks.0.out", "blocks.5.attn.hook_z[1]"])
    check_ours(["blocks.*.out", "blocks.5.attn.mixx"])
