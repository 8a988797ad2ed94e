"""Families: `config.json` decides which model a folder holds; GPT-1 and GPT-3 in files, both ways."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from bad_files import edit_json, refused
from small import TEXT, hugging_face_gpt1, save_hugging_face, small_net
from transformers import AutoModelForCausalLM, AutoTokenizer, OpenAIGPTLMHeadModel

from glassformer.errors import InputError
from glassformer.hub.convert import convert
from glassformer.hub.families import FAMILIES, family, family_of, model_types
from glassformer.hub.folder import CONFIG, load_folder, save_folder
from glassformer.hub.lora import LoraWeights, save_adapter
from glassformer.hub.unpickle import unpickle
from glassformer.models.gpt import GPT1, GPT3
from glassformer.tasks.load import load_adapted
from glassformer.tokenizers import WordBPE
from glassformer.training.lora import adapted_layers, attach

IDS = torch.randint(0, 97, (2, 33), generator=torch.Generator().manual_seed(2))
FIXTURE = Path(__file__).parents[1] / "fixtures" / "gpt1"


def distance(ours: torch.nn.Module, theirs: torch.nn.Module) -> float:
    with torch.no_grad():
        right = theirs(IDS).logits
        return float((ours(IDS) - right).abs().max() / right.abs().max())


def test_every_family_agrees_with_its_line() -> None:
    """Kind and model_type of the line and of the module are the same, and a net has its kind."""
    for kind, entry in FAMILIES.items():
        found = family(kind)
        assert (found.kind, found.model_type) == (kind, entry.model_type)
        assert small_net(kind).kind == kind
        assert all(type(config) is found.config for config in found.presets.values())
    assert len({(entry.model_type, entry.architectures) for entry in FAMILIES.values()}) == len(FAMILIES)
    assert set(model_types()) == {entry.model_type for entry in FAMILIES.values()}


def test_an_unknown_family_is_one_sentence(tmp_path: Path) -> None:
    """It lists the known ones; a configuration without a name is GPT-2's."""
    save_folder(tmp_path / "m", small_net("gpt3"))
    for name in ("llama", "gpt1", "", None, ["gpt2"], "x" * 1000):
        edit_json(tmp_path / "m" / CONFIG, lambda config, name=name: config.update(model_type=name))
        with refused(tmp_path / "m" / CONFIG, "model_type", f"known: {', '.join(model_types())}"):
            load_folder(tmp_path / "m")
    assert family_of({}, tmp_path).kind == "gpt2"
    with pytest.raises(InputError, match=f"kind 'gpt4' is not known; known: {', '.join(FAMILIES)}"):
        family("gpt4")


@pytest.mark.parametrize("changes", [
    {}, {"tie_word_embeddings": False}, {"afn": "relu"}, {"layer_norm_epsilon": 1e-3}, {"vocab_size": 128},
])  # fmt: skip
def test_we_load_the_gpt1_that_transformers_saves(tmp_path: Path, changes: dict[str, Any]) -> None:
    """Equal logits for every kind of configuration."""
    theirs = hugging_face_gpt1(**changes)
    loaded = load_folder(save_hugging_face(theirs, tmp_path))
    assert isinstance(loaded.model, GPT1)
    assert distance(loaded.model, theirs) <= 1e-5


@pytest.mark.parametrize("changes", [{}, {"tied": False}, {"activation": "relu"}, {"bias": False}])
def test_transformers_loads_the_gpt1_that_we_save(tmp_path: Path, changes: dict[str, Any]) -> None:
    """Equal logits, and its own copy of the weights to the bit."""
    ours = small_net("gpt1", 5, **changes)
    save_folder(tmp_path / "m", ours)
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path / "m").eval()
    assert isinstance(theirs, OpenAIGPTLMHeadModel)
    assert distance(ours, theirs) <= 1e-5
    assert torch.equal(theirs.transformer.tokens_embed.weight, ours.tokens.weight)
    qkv = ours.get_parameter("blocks.1.attn.qkv.weight")
    assert torch.equal(theirs.transformer.h[1].attn.c_attn.weight, qkv.t())


def test_the_vocabulary_of_a_gpt1_folder(tmp_path: Path) -> None:
    """`transformers` has the same ids and the same end from what we save; OpenAI's two files are read too."""
    tokenizer = family("gpt1").train_tokenizer([TEXT], 250)
    save_folder(tmp_path / "m", small_net("gpt1", vocab=len(tokenizer)), tokenizer=tokenizer)
    theirs = AutoTokenizer.from_pretrained(tmp_path / "m")
    for text in ("Once upon a time, Lily's dog!", "Ünïcode ☃", ""):
        assert theirs(text)["input_ids"] == tokenizer.encode(text)
    assert theirs.eos_token_id == tokenizer.end
    assert theirs.model_max_length == 40

    save_hugging_face(hugging_face_gpt1(vocab_size=700), tmp_path / "theirs")
    for name in ("vocab.json", "merges.txt"):
        (tmp_path / "theirs" / name).write_bytes((FIXTURE / name).read_bytes())
    loaded = load_folder(tmp_path / "theirs").tokenizer
    assert isinstance(loaded, WordBPE)
    assert loaded.end is None
    assert loaded.decode(loaded.encode("Alice was tired")) == "alice was tired"


def test_a_pickle_of_gpt1_is_converted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The configuration beside it names its family; masks and old prefixes are dropped."""
    monkeypatch.setattr("glassformer.hub.convert._unpickle", unpickle)
    theirs = hugging_face_gpt1()
    state = {name.removeprefix("transformer."): value for name, value in theirs.state_dict().items()}
    state.pop("lm_head.weight")
    state["h.0.attn.bias"] = torch.ones(1, 1, 40, 40).tril()
    source = tmp_path / "source"
    source.mkdir()
    torch.save(state, source / "pytorch_model.bin")
    (source / CONFIG).write_text(json.dumps(theirs.config.to_dict()))
    convert(source, tmp_path / "target")
    assert distance(load_folder(tmp_path / "target").model, theirs) <= 1e-6


@pytest.mark.parametrize("change", [{"afn": "silu"}, {"n_layer": 0}, {"n_embd": 25}, {"n_positions": None}])
def test_a_gpt1_that_cannot_be(tmp_path: Path, change: dict[str, Any]) -> None:
    """Refused with the file and the field."""
    save_folder(tmp_path / "m", small_net("gpt1"))
    edit_json(tmp_path / "m" / CONFIG, lambda config: config.update(change))
    word = {"n_embd": "width"}.get(*change, next(iter(change)))
    with refused(tmp_path / "m" / CONFIG, word):
        load_folder(tmp_path / "m")


def test_weights_of_another_family_are_refused(tmp_path: Path) -> None:
    """The message names the family that the configuration claims."""
    save_folder(tmp_path / "m", small_net("gpt2"))
    edit_json(tmp_path / "m" / CONFIG, lambda config: config.update(model_type="openai-gpt"))
    with refused(tmp_path / "m", "transformer.wte.weight is not a tensor of GPT-1"):
        load_folder(tmp_path / "m")


def test_gpt3_comes_back_from_its_folder(tmp_path: Path) -> None:
    """Band, stride and head width; the card names the programs that can read it, and keeps its former text."""
    ours = small_net("gpt3", 3, window=4, stride=3, layers=4, head_width=5)
    save_folder(tmp_path / "m", ours, card="# A small GPT-3\n")
    back = load_folder(tmp_path / "m").model
    assert isinstance(back, GPT3)
    assert back.config == ours.config
    assert torch.equal(back(IDS), ours(IDS))
    card = (tmp_path / "m" / "card.md").read_text()
    assert card.startswith("# A small GPT-3\n")
    assert "Only Glassformer reads this folder" in card
    with pytest.raises(ValueError, match="glass-gpt3"):
        AutoModelForCausalLM.from_pretrained(tmp_path / "m")


@pytest.mark.parametrize("key", ["head_dim", "window_size", "stride"])
def test_fields_that_gpt3_needs(tmp_path: Path, key: str) -> None:
    """Nothing is guessed that changes the numbers."""
    save_folder(tmp_path / "m", small_net("gpt3"))
    for value in (0, -1, 2.5, "4", None):
        edit_json(tmp_path / "m" / CONFIG, lambda config, value=value: config.update({key: value}))
        with refused(tmp_path / "m" / CONFIG, key):
            load_folder(tmp_path / "m")


@torch.no_grad()
def learned(base: Path, folder: Path) -> torch.nn.Module:
    """The model of a folder with LoRA weights that have learned something, and these in a LoRA folder."""
    loaded = load_folder(base)
    attach(loaded.model, ["attn.qkv", "mlp.down"], rank=3, scale=0.7)
    generator = torch.Generator().manual_seed(5)
    for _, layer in adapted_layers(loaded.model):
        layer.lora_b.copy_(0.3 * torch.randn(layer.lora_b.shape, generator=generator))
    layers = adapted_layers(loaded.model)
    weights = {name: LoraWeights(layer.lora_a, layer.lora_b, layer.scale) for name, layer in layers}
    save_adapter(folder, weights, base=str(base), family=loaded.family)
    return loaded.model


@pytest.mark.parametrize("kind", ["gpt1", "gpt3"])
def test_an_adapter_of_a_relative(tmp_path: Path, kind: str) -> None:
    """Folded into its base, it gives the numbers that it gave beside it."""
    save_folder(tmp_path / "base", small_net(kind))
    right = learned(tmp_path / "base", tmp_path / "lora")(IDS)
    folded = load_adapted(tmp_path / "lora").model(IDS)
    plain = load_folder(tmp_path / "base").model(IDS)
    assert (folded - right).abs().max() <= 1e-5 * right.abs().max()
    assert (plain - right).abs().max() > 1e-2 * right.abs().max()


def test_peft_loads_an_adapter_of_gpt1(tmp_path: Path) -> None:
    """Equal logits beside the model of `transformers`."""
    peft = pytest.importorskip("peft", reason="peft is not installed; it defines what a LoRA folder means")
    theirs = hugging_face_gpt1()
    ours = learned(save_hugging_face(theirs, tmp_path / "base"), tmp_path / "lora")
    adapted = peft.PeftModel.from_pretrained(theirs, tmp_path / "lora").eval()
    assert distance(ours, adapted) <= 1e-5
