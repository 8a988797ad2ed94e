"""LoRA folders: what `peft` writes we load, what we write it loads, to the same numbers; what we cannot
honour is refused.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import encoder_decoder
import pytest
import torch
from bad_files import copy, edit_json, refused, tiny_folder
from safetensors.torch import load_file, save_file
from small import hugging_face, save_hugging_face

from glassformer.cli import run
from glassformer.errors import InputError, NetworkError
from glassformer.hub.families import family
from glassformer.hub.folder import load_folder, save_folder
from glassformer.hub.locate import locate
from glassformer.hub.lora import CONFIG, WEIGHTS, LoraWeights, is_adapter, read_adapter, save_adapter
from glassformer.models.gpt import GPT
from glassformer.tasks.load import load, load_adapted
from glassformer.training.lora import adapted_layers, attach, merge

GPT2 = family("gpt2")
IDS = torch.randint(0, 97, (2, 11), generator=torch.Generator().manual_seed(2))
ALL = ("attn.qkv", "attn.proj", "mlp.up", "mlp.down")
QKV = "base_model.model.transformer.h.{}.attn.c_attn.lora_{}.weight"


@pytest.fixture(scope="module")
def peft() -> Any:
    """The library, imported once, and only for the tests that use it."""
    return pytest.importorskip("peft", reason="peft is not installed; it defines what a LoRA folder means")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a small random GPT-2, as `transformers` writes it."""
    return save_hugging_face(hugging_face(), tmp_path_factory.mktemp("hugging_face"))


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model, and beside it a LoRA folder of its own, to be copied and broken."""
    parent = tmp_path_factory.mktemp("tiny")
    learned(tiny_folder(parent / "base"), parent / "lora", "../base", ["attn.qkv"])
    return parent


@pytest.fixture
def folder(tiny: Path, tmp_path: Path) -> Path:
    """A LoRA folder to break."""
    return copy(tiny, tmp_path / "models") / "lora"


@torch.no_grad()
def learned(
    base: Path, folder: Path, name: str, targets: Any = ALL, *, size: float = 0.3, scale: float = 0.7
) -> GPT:
    """A model with LoRA weights that have learned something, and these in a LoRA folder."""
    model = load_folder(base).model
    attach(model, targets, rank=3, scale=scale)
    generator = torch.Generator().manual_seed(5)
    for _, layer in adapted_layers(model):
        layer.lora_b.copy_(size * torch.randn(layer.lora_b.shape, generator=generator))
    weights = {
        name: LoraWeights(layer.lora_a, layer.lora_b, layer.scale) for name, layer in adapted_layers(model)
    }
    save_adapter(folder, weights, base=name, family=GPT2)
    return model


@torch.no_grad()
def theirs(model: Any) -> torch.Tensor:
    return torch.as_tensor(model.eval()(IDS).logits)


@torch.no_grad()
def ours(model: Any) -> torch.Tensor:
    return torch.as_tensor(model(IDS))


def close(a: torch.Tensor, b: torch.Tensor) -> bool:
    return bool((a - b).abs().max() <= 1e-5 * b.abs().max())


def edit_tensors(folder: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    """Change what the matrices' file holds."""
    tensors = load_file(folder / WEIGHTS)
    change(tensors)
    save_file(tensors, folder / WEIGHTS)


@pytest.mark.parametrize(
    "targets", [["attn.qkv"], ALL, ["blocks.1.*"], ["blocks.0.attn.proj", "blocks.1.mlp.down"]], ids=str
)
def test_peft_loads_what_we_save(peft: Any, base: Path, tmp_path: Path, targets: list[str]) -> None:
    """Equal logits for some and for all layers, beside the weights and merged; and ours come back."""
    model = learned(base, tmp_path / "lora", str(base), targets)
    adapted = peft.PeftModel.from_pretrained(hugging_face(), tmp_path / "lora")
    right = ours(model)
    assert not close(ours(load_folder(base).model), right)
    assert close(theirs(adapted), right)
    layers = {name for name, module in adapted.named_modules() if hasattr(module, "lora_A") and module.lora_A}
    assert len(layers) == len(list(adapted_layers(model)))
    merge(model)
    assert close(theirs(adapted.merge_and_unload()), ours(model))
    assert close(ours(load(str(tmp_path / "lora")).model), right)


@pytest.mark.parametrize(
    "how",
    [
        {"target_modules": ["c_attn"]},
        {"target_modules": ["c_attn", "c_proj", "c_fc"]},
        {"target_modules": ["c_attn", "c_fc"], "use_rslora": True},
        {"target_modules": ["c_attn", "c_proj"], "rank_pattern": {"c_attn": 2, "h.1.mlp.c_proj": 7}},
        {"target_modules": ["c_attn", "c_fc"], "rank_pattern": {"c_fc": 9}, "use_rslora": True},
        {"target_modules": ["c_attn", "c_fc"], "layers_to_transform": [1], "lora_dropout": 0.5},
    ],
    ids=str,
)  # fmt: skip
def test_we_load_what_peft_saves(peft: Any, base: Path, tmp_path: Path, how: dict[str, Any]) -> None:
    """Equal logits for its targets, ranks and both of its scales."""
    model = hugging_face()
    model.name_or_path = str(base)
    plain = theirs(model)
    adapted = peft.get_peft_model(model, peft.LoraConfig(r=4, lora_alpha=6, fan_in_fan_out=True, **how))
    generator = torch.Generator().manual_seed(3)
    for name, parameter in adapted.named_parameters():
        if "lora_B" in name:
            parameter.data = 0.3 * torch.randn(parameter.shape, generator=generator)
    adapted.save_pretrained(tmp_path / "lora")
    right = theirs(adapted)
    assert not close(plain, right)
    assert close(ours(load(str(tmp_path / "lora")).model), right)


def test_other_spellings_are_loaded(folder: Path, tiny: Path) -> None:
    """An adapter of the model without its head, `default` in the names, half the precision, and what may be
    left out.
    """
    right = load_adapted(tiny / "lora").model.blocks[1].attn.qkv.weight
    edit_tensors(
        folder,
        lambda tensors: respell(
            tensors, lambda name: name.replace("transformer.", "").replace(".weight", ".default.weight")
        ),
    )
    edit_json(
        folder / CONFIG,
        lambda config: [config.pop(key) for key in ("r", "bias", "target_modules", "task_type")],
    )
    assert torch.equal(load_adapted(folder).model.blocks[1].attn.qkv.weight, right)
    edit_tensors(
        folder, lambda tensors: tensors.update({name: value.bfloat16() for name, value in tensors.items()})
    )
    rounded = load_adapted(folder).model.blocks[1].attn.qkv.weight
    torch.testing.assert_close(rounded, right, rtol=0, atol=1e-2)
    assert not torch.equal(rounded, right)
    edit_json(folder / CONFIG, lambda config: config.update(lora_alpha=0))
    assert torch.equal(
        load_adapted(folder).model.blocks[1].attn.qkv.weight,
        load_folder(tiny / "base").model.blocks[1].attn.qkv.weight,
    )


def respell(tensors: dict[str, torch.Tensor], name: Callable[[str], str]) -> None:
    for old in list(tensors):
        tensors[name(old)] = tensors.pop(old)


def test_what_is_loaded_is_a_plain_model(tiny: Path) -> None:
    """LoRA weights folded in, the base's vocabulary, in the type that was asked for."""
    loaded = load_adapted(tiny / "lora")
    plain = load_folder(tiny / "base")
    assert [*loaded.model.state_dict()] == [*plain.model.state_dict()]
    assert not list(adapted_layers(loaded.model))
    assert loaded.folder == tiny / "lora"
    assert loaded.tokenizer is not None
    assert plain.tokenizer is not None
    assert loaded.tokenizer.to_json() == plain.tokenizer.to_json()
    moved = {
        name
        for name, value in loaded.model.state_dict().items()
        if not torch.equal(value, plain.model.state_dict()[name])
    }
    assert moved == {"blocks.0.attn.qkv.weight", "blocks.1.attn.qkv.weight"}
    assert load(str(tiny / "lora"), dtype="float64").model.tokens.weight.dtype is torch.float64


def test_the_folder_is_what_people_expect(tmp_path: Path, tiny: Path) -> None:
    """peft's file names and keys, whole layers by name; what was read is what was written."""
    weights = {
        "blocks.1.attn.qkv": LoraWeights(torch.randn(2, 8), torch.randn(24, 2), 8.0),
        "blocks.0.mlp.down": LoraWeights(torch.randn(2, 32), torch.randn(8, 2), 8.0),
    }
    save_adapter(
        tmp_path / "lora", weights, base="storyteller", family=GPT2, dropout=0.25, card="# LoRA weights\n"
    )
    assert sorted(path.name for path in (tmp_path / "lora").iterdir()) == [CONFIG, WEIGHTS, "card.md"]
    config = json.loads((tmp_path / "lora" / CONFIG).read_text())
    assert (config["peft_type"], config["task_type"], config["bias"]) == ("LORA", "CAUSAL_LM", "none")
    assert (config["r"], config["lora_alpha"], config["lora_dropout"], config["fan_in_fan_out"]) == (
        2,
        16,
        0.25,
        True,
    )
    assert config["target_modules"] == ["h.0.mlp.c_proj", "h.1.attn.c_attn"]
    adapter = read_adapter(tmp_path / "lora", family=GPT2)
    assert adapter.base == "storyteller"
    assert adapter.weights.keys() == weights.keys()
    for name, (a, b, scale) in adapter.weights.items():
        assert torch.equal(a, weights[name].a)
        assert torch.equal(b, weights[name].b)
        assert scale == 8.0
    assert is_adapter(tmp_path / "lora")
    assert not is_adapter(tiny / "base")
    assert not is_adapter(copy(tiny / "lora", copy(tiny / "base", tmp_path / "both")))  # a model of its own


def test_one_rank_and_one_scale_are_written(tmp_path: Path) -> None:
    """Several, or no LoRA weights at all, are refused and leave nothing."""
    one = LoraWeights(torch.zeros(2, 8), torch.zeros(24, 2), 1.0)
    for other in (LoraWeights(torch.zeros(3, 8), torch.zeros(24, 3), 1.0), one._replace(scale=2.0)):
        with refused("one rank and one scale"):
            save_adapter(
                tmp_path / "lora",
                {"blocks.0.attn.qkv": one, "blocks.1.attn.qkv": other},
                base="x",
                family=GPT2,
            )
    with refused("one rank and one scale"):
        save_adapter(tmp_path / "lora", {}, base="x", family=GPT2)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("use_dora", True), ("bias", "all"), ("bias", "lora_only"), ("modules_to_save", ["lm_head"]),
        ("alpha_pattern", {"c_attn": 3}), ("layer_replication", [[0, 2]]), ("lora_bias", True), ("trainable_token_indices", [1]),
        ("peft_type", "IA3"), ("peft_type", None), ("peft_type", ["LORA"]), ("peft_type", "lora"),
        ("lora_alpha", None), ("lora_alpha", "16"), ("lora_alpha", True), ("lora_alpha", [16]),
        ("base_model_name_or_path", None), ("base_model_name_or_path", ""), ("base_model_name_or_path", 3),
        ("modules_to_save", "x" * 100_000), ("peft_type", "\x1b[2J\n"), ("bias", "\x1b[2J\n"),
        ("lora_alpha", 10**400), ("use_rslora", "yes"), ("use_qalora", True), ("alora_invocation_tokens", [1, 2]),
        ("init_lora_weights", "pissa"), ("init_lora_weights", "olora"), ("init_lora_weights", "pissa_niter_4"),
    ],
    ids=lambda value: str(value)[:20],
)  # fmt: skip
def test_what_is_not_plain_lora_is_refused(folder: Path, key: str, value: Any) -> None:
    """By the key, before a matrix is read."""
    (folder / WEIGHTS).unlink()
    edit_json(folder / CONFIG, lambda config: config.update({key: value}))
    with refused(folder / CONFIG, key):
        load(str(folder))


@pytest.mark.parametrize("key", ["peft_type", "lora_alpha", "base_model_name_or_path"])
def test_missing_key_is_refused(folder: Path, key: str) -> None:
    """Nothing is guessed that the numbers depend on."""
    edit_json(folder / CONFIG, lambda config: config.pop(key))
    with refused(folder / CONFIG, key):
        load(str(folder))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"", "JSON"), (b"{'r': 1}", "JSON"), (b"[]", "object"), (b'{"r": NaN}', "NaN"), (b'{"r": 1, "r": 2}', "duplicate"),
        (b"\xff", "UTF-8"),
    ],
)  # fmt: skip
def test_broken_configuration_is_refused(folder: Path, text: bytes, reason: str) -> None:
    """What is not one JSON object is refused with its reason."""
    (folder / CONFIG).write_bytes(text)
    with refused(folder / CONFIG, reason):
        load(str(folder))


TENSORS: dict[str, tuple[Callable[[dict[str, torch.Tensor]], object], str]] = {
    "none": (lambda t: t.clear(), "holds no LoRA matrix"),
    "one twice": (lambda t: t.update({"base_model.model.h.0.attn.c_attn.lora_A.weight": torch.zeros(3, 8)}), "is a duplicate"),
    "no B": (lambda t: t.pop(QKV.format(1, "B")), "blocks.1.attn.qkv does not have an A and a B"),
    "no A": (lambda t: t.pop(QKV.format(0, "A")), "blocks.0.attn.qkv does not have an A and a B"),
    "A of another rank": (lambda t: t.update({QKV.format(0, "A"): torch.zeros(2, 8)}), "blocks.0.attn.qkv"),
    "B of another rank": (lambda t: t.update({QKV.format(0, "B"): torch.zeros(24, 4)}), "blocks.0.attn.qkv"),
    "rank 0": (lambda t: t.update({QKV.format(0, "A"): torch.zeros(0, 8), QKV.format(0, "B"): torch.zeros(24, 0)}), "rank"),
    "a vector": (lambda t: t.update({QKV.format(0, "A"): torch.zeros(24)}), QKV.format(0, "A")),
    "three axes": (lambda t: t.update({QKV.format(0, "A"): torch.zeros(3, 8, 1)}), QKV.format(0, "A")),
    "whole numbers": (lambda t: t.update({QKV.format(0, "A"): torch.zeros(3, 8, dtype=torch.int64)}), QKV.format(0, "A")),
    "NaN": (lambda t: t[QKV.format(1, "B")][3, 1].fill_(torch.nan), f"{QKV.format(1, 'B')} holds NaN"),
    "infinity": (lambda t: t[QKV.format(1, "A")][2, 7].fill_(-torch.inf), f"{QKV.format(1, 'A')} holds NaN or infinite"),
    "too large": (lambda t: t.update({QKV.format(0, "A"): torch.full((3, 8), 1e300, dtype=torch.float64)}), "infinite"),
    "another name": (lambda t: t.update({"lora_A.weight": torch.zeros(3, 8)}), "'lora_A.weight' is not a LoRA matrix"),
    "another model": (lambda t: t.update({"base_model.model.model.layers.0.q_proj.lora_A.weight": torch.zeros(3, 8)}), "q_proj"),
    "the head": (lambda t: t.update({"base_model.model.lm_head.lora_A.weight": torch.zeros(3, 8)}), "lm_head"),
    "an embedding": (lambda t: t.update({"base_model.model.transformer.wte.lora_embedding_A": torch.zeros(3, 8)}), "wte"),
    "a norm": (lambda t: t.update({"base_model.model.transformer.h.0.ln_1.lora_A.weight": torch.zeros(3, 8)}), "ln_1"),
    "a mask": (lambda t: t.update({"base_model.model.transformer.h.0.attn.lora_A.weight": torch.zeros(3, 8)}), "h.0.attn"),
    "a magnitude": (lambda t: t.update({QKV.format(0, "magnitude_vector"): torch.zeros(8)}), "magnitude"),
    "an escape sequence": (lambda t: t.update({"\x1b[2J\n": torch.zeros(8)}), "is not a LoRA matrix"),
    "a long name": (lambda t: t.update({"x" * 100_000: torch.zeros(8)}), "is not a LoRA matrix"),
}  # fmt: skip


@pytest.mark.parametrize(("change", "reason"), TENSORS.values(), ids=TENSORS)
def test_odd_matrices_are_refused(
    folder: Path, change: Callable[[dict[str, torch.Tensor]], object], reason: str
) -> None:
    """With the file, and the matrix or the layer."""
    edit_tensors(folder, change)
    with refused(folder / WEIGHTS, reason):
        load(str(folder))


@pytest.mark.parametrize(
    ("name", "a", "b"),
    [
        (QKV.format(2, "{}"), (3, 8), (24, 3)),
        (QKV.format(0, "{}"), (3, 9), (24, 3)),
        (QKV.format(0, "{}"), (3, 24), (8, 3)),
        (QKV.format(1, "{}"), (3, 8), (23, 3)),
    ],
)
def test_what_fits_no_layer_is_refused(
    folder: Path, name: str, a: tuple[int, int], b: tuple[int, int]
) -> None:
    """A block that the base does not have, and matrices of another width, by the layer and both sizes."""
    edit_tensors(
        folder,
        lambda tensors: tensors.update({name.format("A"): torch.ones(a), name.format("B"): torch.ones(b)}),
    )
    layer = f"blocks.{name.split('.h.')[1][0]}.attn.qkv"
    with refused(folder, layer, f"{b[0]} × {a[1]}", "../base"):
        load(str(folder))


def test_what_is_too_large_is_refused(folder: Path) -> None:
    """A sum that the type cannot hold, though matrices and base can."""
    edit_tensors(folder, lambda tensors: [value.fill_(300) for value in tensors.values()])
    load(str(folder))
    with refused(folder, "blocks.0.attn.qkv is too large for torch.float16"):
        load(str(folder), dtype="float16")


def test_broken_file_is_refused(folder: Path) -> None:
    """Cut off, too long, or not there."""
    path = folder / WEIGHTS
    whole = path.read_bytes()
    for broken, reason in (
        (whole[:-1], "truncated"),
        (whole + b"\0", "longer"),
        (whole[:20], "header"),
        (b"", "header"),
    ):
        path.write_bytes(broken)
        with refused(path, reason):
            load(str(folder))
    path.unlink()
    with refused(path, "No such file"):
        load(str(folder))


def test_base_must_be_a_model(folder: Path, tmp_path: Path) -> None:
    """Not a LoRA folder, not this very folder, not an empty folder, not a missing one."""
    other = copy(folder, folder.parent / "other")
    (tmp_path / "empty").mkdir()
    for name, words in {
        "../other": ("../other", "is a LoRA folder itself"),
        str(other): (other, "is a LoRA folder itself"),
        ".": (folder, "is a LoRA folder itself"),
        str(tmp_path / "empty"): (tmp_path / "empty", "holds no model.safetensors"),
        "../gone": ("there is no folder", "../gone"),
        str(tmp_path / "gone"): ("there is no folder", str(tmp_path / "gone")),
        "no name!": ("no name!", "neither a folder nor a model's name"),
        "\0": ("neither a folder nor a model's name",),
        "x" * 5000: ("neither a folder nor a model's name",),
    }.items():
        edit_json(folder / CONFIG, lambda config, name=name: config.update(base_model_name_or_path=name))
        with refused(*words, kind=InputError):
            load(str(folder))


@pytest.fixture(scope="module")
def storyteller(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A LoRA folder of the shipped model that changes its answers."""
    folder = tmp_path_factory.mktemp("models") / "lora"
    learned(locate("storyteller"), folder, "storyteller", size=1.0)
    return folder


def written(capsys: pytest.CaptureFixture[str], model: Path | str) -> str:
    """What the command line writes with a model and a seed."""
    assert run(["generate", "-m", str(model), "-n", "12", "-s", "5", "Once upon"]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("how", ["absolute", "relative", "moved together", "shipped"])
def test_generate_runs_a_lora_folder(
    how: str, folder: Path, storyteller: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With its base as a whole path, as a path from the folder itself, and by its name; otherwise than the
    base.
    """
    base: Path | str = folder.parent / "base"
    if how == "shipped":
        folder, base = storyteller, "storyteller"
    else:
        learned(folder.parent / "base", folder, str(base) if how == "absolute" else "../base", size=3.0)
        if how == "moved together":
            folder = folder.parent.rename(tmp_path / "elsewhere") / "lora"
            base = folder.parent / "base"
        right = load_folder(Path(base)).model
    text = written(capsys, folder)
    assert text.startswith("Once upon")
    assert text != written(capsys, base)
    if how != "shipped":
        merged = load_adapted(folder)
        assert not torch.equal(merged.model.blocks[0].mlp.up.weight, right.blocks[0].mlp.up.weight)
        save_folder(tmp_path / "merged", merged.model, tokenizer=merged.tokenizer)
        assert text == written(capsys, tmp_path / "merged")


def test_a_run_is_found_through(tmp_path: Path, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder of a training loads as the `model` in it, plain or LoRA; a model that has such a folder is
    itself.
    """
    for kind in ("base", "lora"):
        model = copy(tiny / kind, tmp_path / f"run-{kind}" / "model")
        assert locate(str(model.parent)) == locate(str(model)) == model
    edit_json(
        tmp_path / "run-lora" / "model" / CONFIG,
        lambda config: config.update(base_model_name_or_path="../../run-base/model"),
    )
    adapted = load(str(tmp_path / "run-lora")).model.blocks[0].attn.qkv.weight
    for name in ("../../run-base", str(tmp_path / "run-base")):  # a base may be a run too
        edit_json(
            tmp_path / "run-lora" / "model" / CONFIG,
            lambda config, name=name: config.update(base_model_name_or_path=name),
        )
        assert torch.equal(load(str(tmp_path / "run-lora")).model.blocks[0].attn.qkv.weight, adapted)
    plain, adapted = (
        load(str(tmp_path / f"run-{kind}")).model.blocks[0].attn.qkv.weight for kind in ("base", "lora")
    )
    assert torch.equal(plain, load_folder(tiny / "base").model.blocks[0].attn.qkv.weight)
    assert torch.equal(adapted, load_adapted(tiny / "lora").model.blocks[0].attn.qkv.weight)
    monkeypatch.chdir(tmp_path)
    assert locate("run-base") == Path("run-base/model")
    assert locate("./run-lora") == Path("run-lora/model")
    for kind in ("base", "lora"):
        whole = copy(tiny / kind, tmp_path / f"whole-{kind}")
        (whole / "model").mkdir()
        assert locate(str(whole)) == whole
    (tmp_path / "empty").mkdir()
    assert locate(str(tmp_path / "empty")) == tmp_path / "empty"


def test_a_lora_folder_kept_at_home(
    home: Path, tmp_path: Path, storyteller: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is listed, loads by its name, and is removed by it."""
    kept = copy(storyteller, home / "models" / "verse")
    assert locate("verse") == kept
    assert run(["models", "--json"]) == 0
    listed = {one["name"]: one for one in json.loads(capsys.readouterr().out)}
    assert (listed["verse"]["where"], listed["verse"]["folder"]) == ("home", str(kept))
    assert listed["verse"]["size"] == sum(path.stat().st_size for path in storyteller.iterdir())
    assert run(["models"]) == 0
    assert "verse" in capsys.readouterr().out
    assert written(capsys, "verse") == written(capsys, storyteller)
    assert run(["rm", "-y", "verse"]) == 0
    assert not kept.exists()
    capsys.readouterr()
    assert run(["models"]) == 0
    assert "verse" not in capsys.readouterr().out


def test_one_home_for_both(home: Path, tmp_path: Path, tiny: Path) -> None:
    """The base may be a name kept at home too."""
    copy(tiny / "base", home / "models" / "mine")
    folder = copy(tiny / "lora", tmp_path / "lora")
    edit_json(folder / CONFIG, lambda config: config.update(base_model_name_or_path="mine"))
    assert torch.equal(
        load(str(folder)).model.blocks[0].attn.qkv.weight,
        load_adapted(tiny / "lora").model.blocks[0].attn.qkv.weight,
    )
    shutil.rmtree(home / "models" / "mine")
    with pytest.raises(NetworkError, match="mine is not in the cache"):
        load(str(folder))


@pytest.mark.parametrize("how", ["run", "lora"])
def test_what_finetune_makes_can_be_run(
    how: str, tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Beside the model of a run it is found again; beside LoRA it could not be, so that is refused before the
    first step.
    """
    base = (
        copy(tiny / "base", tmp_path / "run" / "model").parent
        if how == "run"
        else copy(tiny, tmp_path / "both") / "lora"
    )
    (tmp_path / "text.txt").write_text("the cat sat on the mat and that was that; " * 30)
    command = [
        "finetune",
        str(base),
        "--data",
        str(tmp_path / "text.txt"),
        "-o",
        str(tmp_path / "out"),
        "--no-tensorboard",
    ]
    code = run([*command, "--lora", "--steps", "1", "--batch", "1", "--preview-tokens", "0"])
    if how == "run":
        assert code == 0
        capsys.readouterr()
        assert written(capsys, tmp_path / "out").startswith("Once upon")
    else:
        assert code == 2
        assert "LoRA beside LoRA" in capsys.readouterr().err
        assert not (tmp_path / "out" / "model").exists()


@pytest.mark.parametrize(
    ("capabilities", "task_type"),
    [
        ({"writes", "causal", "attends"}, "CAUSAL_LM"),
        ({"writes", "causal", "source"}, "SEQ_2_SEQ_LM"),
        ({"encodes", "attends"}, "FEATURE_EXTRACTION"),
        ({"draws"}, None),
    ],
)
def test_the_task_is_what_the_model_can_do(
    capabilities: set[str], task_type: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In peft's words."""
    monkeypatch.setattr(GPT, "capabilities", frozenset(capabilities))
    weights = {"blocks.0.attn.qkv": LoraWeights(torch.zeros(2, 8), torch.zeros(24, 2), 1.0)}
    save_adapter(tmp_path / "lora", weights, base="base", family=GPT2)
    assert json.loads((tmp_path / "lora" / CONFIG).read_text())["task_type"] == task_type


def test_peft_loads_lora_of_two_stacks(peft: Any, tmp_path: Path) -> None:
    """As a model that translates, with the weights in the layers of both stacks."""
    weights = {
        name: LoraWeights(torch.randn(2, 12), torch.randn(12, 2), 0.5)
        for name in ("encoder.blocks.1.attn.q", "decoder.blocks.2.cross.v")
    }
    save_adapter(tmp_path / "lora", weights, base="base", family=encoder_decoder.FAMILY)
    adapted = peft.PeftModel.from_pretrained(encoder_decoder.hugging_face_marian(), tmp_path / "lora")
    assert type(adapted) is peft.PeftModelForSeq2SeqLM
    layers = adapted.base_model.model.model
    query, value = layers.encoder.layers[1].self_attn.q_proj, layers.decoder.layers[2].encoder_attn.v_proj
    for layer, one in zip((query, value), weights.values(), strict=True):
        assert torch.equal(layer.lora_A["default"].weight, one.a)
        assert torch.equal(layer.lora_B["default"].weight, one.b)
    count = sum("lora_A" in name for name, _ in adapted.named_parameters())
    assert count == 2
    back = read_adapter(tmp_path / "lora", family=encoder_decoder.FAMILY)
    assert all(torch.equal(back.weights[name].a, one.a) for name, one in weights.items())


def test_show_points_to_the_base(storyteller: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What a LoRA folder adapts and how; the parameters are its base's, as a picture shows them."""
    assert run(["show", str(storyteller)]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("LoRA matrices for storyteller  (")
    assert "glass show storyteller" in shown
    assert run(["show", str(storyteller), "-o", "parameters.svg"]) == 2
    assert "is of its base: storyteller" in capsys.readouterr().err
