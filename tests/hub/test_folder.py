"""Folders: what `transformers` writes we load, what we write it loads, to the same numbers and ids."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from small import hugging_face, save_hugging_face, small_model, small_tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer

from glassformer.errors import CheckpointError, InputError
from glassformer.hub.folder import load_folder, save_folder
from glassformer.hub.tensors import read_header
from glassformer.tokenizers import train_tokenizer

IDS = torch.randint(0, 97, (2, 11), generator=torch.Generator().manual_seed(2))


def same(ours: torch.nn.Module, theirs: torch.nn.Module, tolerance: float = 1e-4) -> bool:
    with torch.no_grad():
        right = theirs(IDS).logits
        return bool((ours(IDS) - right).abs().max() <= tolerance * right.abs().max())


@pytest.mark.parametrize("changes", [
    {}, {"tie_word_embeddings": False}, {"activation_function": "gelu"}, {"n_inner": 31}, {"layer_norm_epsilon": 1e-3},
    {"activation_function": "relu"}, {"activation_function": "gelu_pytorch_tanh"}, {"vocab_size": 128},
])  # fmt: skip
def test_we_load_what_transformers_saves(tmp_path: Path, changes: dict[str, object]) -> None:
    """Equal logits for every kind of configuration."""
    theirs = hugging_face(**changes)
    assert same(load_folder(save_hugging_face(theirs, tmp_path)).model, theirs)


def test_we_load_shards(tmp_path: Path) -> None:
    """A model in many files is the same model."""
    theirs = hugging_face()
    save_hugging_face(theirs, tmp_path, max_shard_size="20KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    assert same(load_folder(tmp_path).model, theirs)


@pytest.mark.parametrize(
    "changes", [{}, {"tied": False}, {"activation": "gelu_erf"}, {"neurons": 31}, {"bias": False}]
)
def test_transformers_loads_what_we_save(tmp_path: Path, changes: dict[str, object]) -> None:
    """Equal logits, the other way round; and ours come back to the bit."""
    ours = small_model(5, **changes)
    save_folder(tmp_path / "m", ours, tokenizer=None)
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path / "m").eval()
    assert same(ours, theirs)
    back = load_folder(tmp_path / "m").model
    assert back.config == ours.config
    assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), back.parameters(), strict=True))


def test_transformers_loads_our_tokenizer(tmp_path: Path) -> None:
    """Equal ids, and the same end of text."""
    tokenizer = small_tokenizer(300)
    save_folder(tmp_path / "m", small_model(vocab=len(tokenizer)), tokenizer=tokenizer)
    theirs = AutoTokenizer.from_pretrained(tmp_path / "m")
    for text in ("Once upon a time", " Lily's 3 dogs é 😀\n\n  x", ""):
        assert theirs(text)["input_ids"] == tokenizer.encode(text)
    assert theirs.eos_token_id == tokenizer.end
    back = load_folder(tmp_path / "m").tokenizer
    assert back is not None
    assert back.to_json() == tokenizer.to_json()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_stored_types(tmp_path: Path, dtype: torch.dtype) -> None:
    """A file in another type loads as float32 and holds the rounded numbers."""
    model = small_model()
    save_folder(tmp_path / "m", model, tokenizer=None, dtype=dtype)
    assert {entry.dtype for entry in read_header(tmp_path / "m" / "model.safetensors").values()} == {dtype}
    back = load_folder(tmp_path / "m").model
    for ours, theirs in zip(model.parameters(), back.parameters(), strict=True):
        assert theirs.dtype == torch.float32
        assert torch.equal(ours.to(dtype).float(), theirs)


def rename(folder: Path, change: object) -> None:
    """Write the folder's tensors again under other names."""
    from safetensors.torch import load_file, save_file

    tensors = load_file(folder / "model.safetensors")
    save_file({change(name): value for name, value in tensors.items()}, folder / "model.safetensors")  # type: ignore[operator]


def test_names_without_the_prefix(tmp_path: Path) -> None:
    """The plain GPT2Model has no `transformer.` before its names."""
    theirs = hugging_face()
    save_hugging_face(theirs, tmp_path)
    rename(tmp_path, lambda name: name.removeprefix("transformer."))
    assert same(load_folder(tmp_path).model, theirs)


def test_masks_in_the_file_are_dropped(tmp_path: Path) -> None:
    """Old files carry the causal mask along as `attn.bias`."""
    from safetensors.torch import load_file, save_file

    theirs = hugging_face()
    save_hugging_face(theirs, tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    for i in range(2):
        tensors[f"transformer.h.{i}.attn.bias"] = torch.ones(1, 1, 40, 40).tril()
        tensors[f"transformer.h.{i}.attn.masked_bias"] = torch.tensor(-1e4)
    save_file(tensors, tmp_path / "model.safetensors")
    assert same(load_folder(tmp_path).model, theirs)


def test_an_output_matrix_that_is_not_the_token_matrix(tmp_path: Path) -> None:
    """Tied in the configuration, different in the file: one of them is wrong, so nothing is loaded."""
    from safetensors.torch import load_file, save_file

    save_hugging_face(hugging_face(), tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    save_file(
        tensors | {"lm_head.weight": tensors["transformer.wte.weight"].clone()},
        tmp_path / "model.safetensors",
    )
    assert load_folder(tmp_path).model.config.tied
    save_file(
        tensors | {"lm_head.weight": tensors["transformer.wte.weight"] + 1}, tmp_path / "model.safetensors"
    )
    with pytest.raises(CheckpointError, match="tied"):
        load_folder(tmp_path)


def test_saving_is_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A save that fails leaves the old folder as it was, and no debris."""
    old = small_model(1)
    save_folder(tmp_path / "m", old, tokenizer=None)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("glassformer.hub.folder.save_file", full)
    with pytest.raises(OSError, match="No space"):
        save_folder(tmp_path / "m", small_model(2), tokenizer=None)
    assert [path.name for path in tmp_path.iterdir()] == ["m"]
    back = load_folder(tmp_path / "m").model
    assert all(torch.equal(a, b) for a, b in zip(old.parameters(), back.parameters(), strict=True))


@pytest.mark.parametrize("also", [[], ["config.json"]])
def test_saving_spares_what_is_not_its_own(tmp_path: Path, also: list[str]) -> None:
    """A folder with anything in it that a save would not write is not replaced."""
    (tmp_path / "mine").mkdir()
    for name in ["thesis.txt", *also]:
        (tmp_path / "mine" / name).write_text("years of work")
    with pytest.raises(InputError, match=r"holds thesis\.txt, which saving would delete"):
        save_folder(tmp_path / "mine", small_model(), tokenizer=None)
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "years of work"
    with pytest.raises(InputError, match="left as it is"):
        save_folder(tmp_path / "mine" / "thesis.txt", small_model(), tokenizer=None)


def test_a_save_replaces_an_older_one(tmp_path: Path) -> None:
    """Twice to the same place: the second remains, and nothing else."""
    for seed in (1, 2):
        save_folder(tmp_path / "m", small_model(seed), tokenizer=None)
    assert [path.name for path in tmp_path.iterdir()] == ["m"]
    back = load_folder(tmp_path / "m").model
    assert torch.equal(back.tokens.weight, small_model(2).tokens.weight)


def test_another_end_of_text(tmp_path: Path) -> None:
    """A vocabulary that ends its texts with `</s>` has it in the configuration, also after another save."""
    tokenizer = train_tokenizer(["a text"], 260, special=["<s>", "</s>"])
    tokenizer.end_token = "</s>"
    save_folder(tmp_path / "m", small_model(vocab=len(tokenizer)), tokenizer=tokenizer)
    back = load_folder(tmp_path / "m").tokenizer
    assert back is not None
    assert back.end == tokenizer.special["</s>"]
    assert AutoTokenizer.from_pretrained(tmp_path / "m").eos_token_id == back.end
    assert AutoModelForCausalLM.from_pretrained(tmp_path / "m").config.eos_token_id == back.end


@pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="the peak of a process's memory is read from /proc"
)
def test_loading_takes_memory_once(tmp_path: Path) -> None:
    """A child that loads a 67 MB file grows by little more than the file."""
    model = small_model(layers=4, heads=8, width=512, vocab=8000, context=128)
    save_folder(tmp_path / "m", model, tokenizer=None)
    size = (tmp_path / "m" / "model.safetensors").stat().st_size
    code = f"""
from pathlib import Path
import torch
from glassformer.hub.folder import load_folder

def peak():
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])

torch.set_num_threads(1)
torch.ones(1000, 1000).sum(dtype=torch.float64)
before = peak()
loaded = load_folder(Path({str(tmp_path / "m")!r}))
print(peak() - before)
"""
    grown = (
        int(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
        * 1024
    )
    assert size > 60e6
    assert 0.9 * size < grown < 1.4 * size


def test_a_folder_says_what_a_training_dropped(tmp_path: Path) -> None:
    """And a training decides anew: what the folder says of dropout is for other libraries."""
    save_folder(tmp_path / "m", small_model(dropout=0.2, attention_dropout=False))
    config = json.loads((tmp_path / "m" / "config.json").read_text())
    assert [config[key] for key in ("embd_pdrop", "resid_pdrop", "attn_pdrop")] == [0.2, 0.2, 0.0]
    for how, dropped in (
        ({}, 0.0),
        ({"dropout": 0.3}, 0.3),
        ({"dropout": 0.3, "attention_dropout": False}, 0.0),
    ):
        block = load_folder(tmp_path / "m", **how).model.blocks[0]  # type: ignore[arg-type, index, union-attr]
        assert (block.attn.dropout, block.drop.p) == (dropped, how.get("dropout", 0.0))  # type: ignore[union-attr]


def test_the_folder_is_readable_by_people(tmp_path: Path) -> None:
    """Plain JSON with the usual names."""
    save_folder(tmp_path / "m", small_model(vocab=300), tokenizer=small_tokenizer(300), card="# A model\n")
    config = json.loads((tmp_path / "m" / "config.json").read_text())
    assert (config["model_type"], config["n_layer"], config["n_embd"], config["vocab_size"]) == (
        "gpt2",
        2,
        24,
        300,
    )
    assert sorted(path.name for path in (tmp_path / "m").iterdir()) == [
        "card.md", "config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json",
    ]  # fmt: skip
