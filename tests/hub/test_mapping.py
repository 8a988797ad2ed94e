"""Tensors and their names where there are two stacks, tied matrices and buffers: a toy in Marian's files."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import encoder_decoder
import pytest
import torch
from bad_files import edit_json, refused
from encoder_decoder import FAMILY, NAMES, Toy, ToyConfig, hugging_face_marian, only_the_toy, toy
from safetensors.torch import load_file, save_file
from small import save_hugging_face
from torch import Tensor, nn
from transformers import MarianMTModel

from glassformer.errors import CheckpointError
from glassformer.hub import families
from glassformer.hub.folder import CONFIG, WEIGHTS, load_folder, save_folder
from glassformer.hub.mapping import Names, export_tensors, tied_names

Tensors = dict[str, Tensor]
SHARED = "model.shared.weight"
COPIES = ["model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight"]

pytestmark = pytest.mark.usefixtures("_families")


@pytest.fixture
def _families(monkeypatch: pytest.MonkeyPatch) -> None:
    only_the_toy(monkeypatch)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A toy's folder."""
    save_folder(tmp_path / "toy", toy(3))
    return tmp_path / "toy"


def rewrite(folder: Path, change: Callable[[Tensors], object]) -> None:
    tensors = load_file(folder / WEIGHTS)
    change(tensors)
    save_file({name: value.clone() for name, value in tensors.items()}, folder / WEIGHTS)


def assert_equal(ours: nn.Module, theirs: MarianMTModel) -> None:
    """Every weight of one is that of the other."""
    state, met = ours.state_dict(), set()
    for name, value in theirs.state_dict().items():
        known = NAMES.ours(name)
        if known is not None:
            assert torch.equal(state[known], value), name
            met.add(known)
    assert met == set(state)


def test_we_load_what_transformers_saves(tmp_path: Path) -> None:
    """Both stacks, one matrix under four names, and a buffer that stays one."""
    theirs = hugging_face_marian()
    ours = load_folder(save_hugging_face(theirs, tmp_path)).model
    assert_equal(ours, theirs)
    assert ours.head.weight is ours.tokens.weight
    assert ours.config == ToyConfig()
    assert "logits_bias" in dict(ours.named_buffers())
    assert (len(ours.encoder.blocks), len(ours.decoder.blocks)) == (2, 3)


def test_transformers_loads_what_we_save(folder: Path) -> None:
    """The other way round, with the special tokens of the family."""
    theirs, report = MarianMTModel.from_pretrained(folder, output_loading_info=True)
    assert_equal(toy(3), theirs)
    assert not report["unexpected_keys"]
    assert theirs.lm_head.weight is theirs.model.shared.weight
    assert theirs.config.decoder_start_token_id == theirs.config.pad_token_id == 49
    assert_equal(load_folder(folder).model, theirs)


def test_a_tied_matrix_is_written_once(folder: Path) -> None:
    """Under its first name; where it is not tied, the output matrix is written too."""
    tensors = load_file(folder / WEIGHTS)
    assert SHARED in tensors
    assert not set(COPIES) & set(tensors)
    untied = export_tensors(FAMILY, toy(3, tied=False))
    assert set(untied) - set(tensors) == {"lm_head.weight"}


def test_files_may_have_more_than_the_model(folder: Path) -> None:
    """Copies of a tied matrix, and tables that are computed; each copy is compared."""
    right = load_folder(folder).model.state_dict()
    rewrite(folder, lambda tensors: tensors.update(dict.fromkeys(COPIES, tensors[SHARED])))
    positions = {
        f"model.{side}.embed_positions.weight": torch.ones(16, 12) for side in ("encoder", "decoder")
    }
    rewrite(folder, lambda tensors: tensors.update(positions))
    found = load_folder(folder).model.state_dict()
    assert all(torch.equal(found[name], value) for name, value in right.items())
    for name in COPIES:
        rewrite(folder, lambda tensors, name=name: tensors[name][7].mul_(2))
        with refused(folder / WEIGHTS, f"{name} is not {SHARED}", "tied"):
            load_folder(folder)
        rewrite(folder, lambda tensors, name=name: tensors[name].copy_(tensors[SHARED]))


@pytest.mark.parametrize("name", COPIES)
def test_any_name_of_a_tied_matrix_will_do(folder: Path, name: str) -> None:
    """A file that has it under another of its names alone is whole."""
    rewrite(folder, lambda tensors: tensors.update({name: tensors.pop(SHARED)}))
    assert torch.equal(load_folder(folder).model.tokens.weight, toy(3).tokens.weight)


FAULTS: dict[str, tuple[Callable[[Tensors], object], str]] = {
    "no token matrix": (lambda t: t.pop(SHARED), f"{SHARED} [50, 12] is missing"),
    "no buffer": (lambda t: t.pop("final_logits_bias"), "final_logits_bias [1, 50] is missing"),
    "missing in the encoder": (
        lambda t: t.pop("model.encoder.layers.1.fc1.weight"),
        "model.encoder.layers.1.fc1.weight [20, 12] is missing",
    ),
    "missing in the decoder": (
        lambda t: t.pop("model.decoder.layers.2.encoder_attn.q_proj.bias"),
        "model.decoder.layers.2.encoder_attn.q_proj.bias [12] is missing",
    ),
    "a block too many in the encoder, which the decoder has": (
        lambda t: t.update({"model.encoder.layers.2.fc1.bias": torch.ones(20)}),
        "model.encoder.layers.2.fc1.bias [20] has no place in this configuration",
    ),
    "a block too many in the decoder": (
        lambda t: t.update({"model.decoder.layers.3.fc1.bias": torch.ones(20)}),
        "model.decoder.layers.3.fc1.bias [20] has no place in this configuration",
    ),
    "cross-attention in the encoder": (
        lambda t: t.update({"model.encoder.layers.0.encoder_attn.q_proj.bias": torch.ones(12)}),
        "model.encoder.layers.0.encoder_attn.q_proj.bias is not a tensor of toy",
    ),
    "a duplicate": (lambda t: t.update({"shared.weight": t[SHARED]}), "is a duplicate"),
    "a copy of another shape": (
        lambda t: t.update({"lm_head.weight": torch.ones(49, 12)}),
        "lm_head.weight is [49, 12], should be [50, 12]",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("change", "reason"), FAULTS.values(), ids=FAULTS)
def test_a_tensor_that_does_not_fit_is_named(
    folder: Path, change: Callable[[Tensors], object], reason: str
) -> None:
    """One sentence, which names it and nothing else."""
    rewrite(folder, change)
    with pytest.raises(CheckpointError) as caught:
        load_folder(folder)
    message = str(caught.value)
    assert message.startswith(f"{folder}: the weights do not fit the configuration: ")
    assert message.endswith(reason)
    assert ";" not in message


def test_several_groups_of_tied_parameters(tmp_path: Path) -> None:
    """The model itself defines what is tied: here every tensor of a layer, beside the token matrix."""
    net = toy(4, one_mlp=True)
    owners = set(tied_names(net).values())
    leaves = {f"decoder.blocks.0.mlp.{name}.{leaf}" for name in ("up", "down") for leaf in ("weight", "bias")}
    assert owners == {"tokens.weight"} | leaves
    assert tied_names(toy(4, tied=False)) == {"decoder.tokens.weight": "tokens.weight"}

    save_folder(tmp_path / "m", net)
    assert not [name for name in load_file(tmp_path / "m" / WEIGHTS) if "decoder.layers.2.fc" in name]
    back = load_folder(tmp_path / "m").model
    assert back.config == net.config
    assert all(torch.equal(value, back.state_dict()[name]) for name, value in net.state_dict().items())
    other = "model.decoder.layers.2.fc1.bias"
    rewrite(tmp_path / "m", lambda tensors: tensors.update({other: torch.ones(20)}))
    with refused(f"{other} is not model.decoder.layers.0.fc1.bias", "tied"):
        load_folder(tmp_path / "m")


@pytest.mark.parametrize("key", ["encoder_layers", "decoder_layers"])
def test_layers_of_every_stack_have_a_limit(folder: Path, key: str) -> None:
    """A configuration that claims too many blocks is refused before any is built."""
    edit_json(folder / CONFIG, lambda config: config.update({key: 5000}))
    with refused(folder / CONFIG, "layers", "more than can be loaded"):
        load_folder(folder)


def test_names_of_two_versions() -> None:
    """Old and new names of one tensor: both are read, the first is written."""
    names = Names(
        tensors={"norm.{}.weight": "blocks.{}.norm.weight", "norm.{}.gamma": "blocks.{}.norm.weight"}
    )
    assert names.ours("norm.3.gamma") == names.ours("norm.3.weight") == "blocks.3.norm.weight"
    assert names.theirs("blocks.3.norm.weight") == "norm.3.weight"


class Forgetful(Toy):
    """Makes a table that no file has."""

    def __init__(self, config: ToyConfig) -> None:
        super().__init__(config)
        self.register_buffer("sinusoids", torch.ones(16, config.width), persistent=False)


def test_a_table_without_numbers_is_noticed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model is built without memory: what neither files nor `forward` give would be empty."""
    monkeypatch.setattr(encoder_decoder, "FAMILY", replace(FAMILY, build=Forgetful))
    families._load.cache_clear()
    with pytest.raises(AssertionError, match="Forgetful: sinusoids is in no file"):
        load_folder(folder)
    families._load.cache_clear()


def test_matrices_lie_along_their_longer_side(folder: Path) -> None:
    """Those of linear layers, the tied one too, as products with a single row are fastest; values are the same."""
    model = load_folder(folder).model
    tall, wide = (model.get_parameter(f"encoder.blocks.1.mlp.{name}.weight") for name in ("up", "down"))
    assert (tall.shape, tall.stride()) == ((20, 12), (1, 20))
    assert (wide.shape, wide.stride()) == ((12, 20), (20, 1))
    assert model.head.weight.stride() == (1, 50)
    assert torch.equal(tall, toy(3).get_parameter("encoder.blocks.1.mlp.up.weight"))
