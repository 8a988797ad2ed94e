"""Decoders with heads in folders: `transformers` loads ours, and we load theirs, with the same logits."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from small import shake, small_net

from glassformer.errors import CheckpointError
from glassformer.hub.families import kind_of
from glassformer.hub.folder import load_folder, save_folder

IDS = torch.randint(0, 96, (3, 12), generator=torch.Generator().manual_seed(0))
SIZES = {"n_layer": 2, "n_head": 3, "n_embd": 24, "vocab_size": 97, "n_positions": 40, "pad_token_id": 96}
CONFIGS = {"gpt1": transformers.OpenAIGPTConfig, "gpt2": transformers.GPT2Config}
THEIRS = {"gpt1": "OpenAIGPT", "gpt2": "GPT2"}


def theirs(kind: str, head: str, **changes: Any) -> Any:
    """A random model of `transformers`."""
    torch.manual_seed(0)
    model = getattr(transformers, f"{THEIRS[kind]}{head}")(CONFIGS[kind](**SIZES | changes))
    shake(model, 1, 0.2)
    model.tie_weights()
    return model.eval()


@pytest.mark.parametrize("kind", ["gpt1", "gpt2"])
@pytest.mark.parametrize(("task", "labels"), [("classify", ("a", "b", "c")), ("similar", ())])
def test_transformers_loads_our_head(tmp_path: Path, kind: str, task: str, labels: tuple[str, ...]) -> None:
    """Every weight has its place, classes keep their names, and padding is found where we put it."""
    net: Any = small_net(f"{kind}-classifier", 3, task=task, labels=labels, pad=96)
    save_folder(tmp_path / "m", net)
    found = getattr(transformers, f"{THEIRS[kind]}ForSequenceClassification")
    model, loading = found.from_pretrained(tmp_path / "m", output_loading_info=True)
    assert not any(loading.values()), loading
    assert tuple(model.config.id2label.values()) == (labels or ("score",))
    padded = IDS.clone()
    padded[1, 7:] = 96
    with torch.no_grad():
        right, ours = model.eval()(padded).logits, net(padded)
    assert torch.allclose(ours[[0, 1, 2], [11, 6, 11]], right, rtol=0, atol=2e-5)
    assert right.abs().max() > 0.1


@pytest.mark.parametrize("kind", ["gpt1", "gpt2"])
def test_transformers_loads_our_two_heads(tmp_path: Path, kind: str) -> None:
    """The numbers of answers, and beside them the language model's logits."""
    net: Any = small_net(f"{kind}-classifier", 3, task="choose", labels=(), pad=96)
    save_folder(tmp_path / "m", net)
    found = getattr(transformers, f"{THEIRS[kind]}DoubleHeadsModel")
    model, loading = found.from_pretrained(tmp_path / "m", output_loading_info=True)
    assert not any(loading.values()), loading
    with torch.no_grad():
        right = model.eval()(IDS[None], mc_token_ids=torch.tensor([[11, 5, 8]]))
        scores, written = net(IDS, write=True)
    assert torch.allclose(scores[[0, 1, 2], [11, 5, 8], 0], right.mc_logits[0], rtol=0, atol=2e-5)
    assert torch.allclose(written, right.logits[0], rtol=0, atol=2e-5)


@pytest.mark.parametrize("kind", ["gpt1", "gpt2"])
@pytest.mark.parametrize("count", [1, 2, 5])
def test_we_load_their_head(tmp_path: Path, kind: str, count: int) -> None:
    """Also one that says a number, and the two classes that their files do not name."""
    model = theirs(kind, "ForSequenceClassification", num_labels=count)
    model.save_pretrained(tmp_path / "t")
    loaded = load_folder(tmp_path / "t")
    assert loaded.family.kind == f"{kind}-classifier"
    assert loaded.model.config.labels == (() if count == 1 else tuple(f"LABEL_{n}" for n in range(count)))
    with torch.no_grad():
        assert torch.allclose(loaded.model(IDS)[:, -1], model(IDS).logits, rtol=0, atol=2e-5)


@pytest.mark.parametrize("kind", ["gpt1", "gpt2"])
def test_we_load_their_two_heads(tmp_path: Path, kind: str) -> None:
    """The tied matrix may be under either of its names."""
    model = theirs(kind, "DoubleHeadsModel")
    model.save_pretrained(tmp_path / "t")
    net: Any = load_folder(tmp_path / "t").model
    assert net.config.task == "choose"
    with torch.no_grad():
        right = model(IDS[None], mc_token_ids=torch.full((1, 3), 11))
        scores, written = net(IDS, write=True)
    assert torch.allclose(scores[:, 11, 0], right.mc_logits[0], rtol=0, atol=2e-5)
    assert torch.allclose(written, right.logits[0], rtol=0, atol=2e-5)


def test_a_language_model_stays_one() -> None:
    """Only the architectures of heads lead to them; anything else is the decoder itself."""
    assert kind_of({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"]}) == "gpt2"
    assert kind_of({"model_type": "gpt2", "architectures": "GPT2DoubleHeadsModel"}) == "gpt2"
    assert (
        kind_of({"model_type": "openai-gpt", "architectures": ["OpenAIGPTDoubleHeadsModel"]})
        == "gpt1-classifier"
    )
    assert kind_of({"model_type": "llama"}) is None


@pytest.mark.parametrize(("change", "message"), [
    ({"id2label": ["a"]}, "id2label should name every class"),
    ({"id2label": {"0": "a", "2": "b"}}, "id2label should have a name for each of 0 to 1"),
    ({"id2label": {"0": "a", "1": "a"}}, "labels must be at least two different ones, not a, a"),
    ({"glass_task": "dance"}, "glass_task 'dance' does not fit its architectures"),
    ({"glass_task": "choose"}, "glass_task 'choose' does not fit its architectures"),
    ({"pad_token_id": "x"}, "pad_token_id should be a whole number"),
    ({"pad_token_id": 97}, "pad 97 is not a token id of the vocabulary"),
])  # fmt: skip
def test_a_bad_head_is_one_sentence(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    """It names the file and the field."""
    save_folder(tmp_path / "m", small_net("gpt2-classifier", pad=96))
    path = tmp_path / "m" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(CheckpointError, match=message) as caught:
        load_folder(tmp_path / "m")
    assert str(path) in str(caught.value)


def test_another_way_to_read_the_text_is_refused(tmp_path: Path) -> None:
    """Their second head may have an activation, which ours has not."""
    theirs("gpt2", "DoubleHeadsModel", summary_activation="tanh").save_pretrained(tmp_path / "t")
    with pytest.raises(CheckpointError, match="summary_activation='tanh' is not supported"):
        load_folder(tmp_path / "t")
