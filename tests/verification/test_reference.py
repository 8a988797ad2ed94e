"""The reference: what it imports, and the forms of files that it reads. Its numbers: tests/models/test_gpt.py."""

import ast
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from glassformer.hub.folder import load_folder
from glassformer.verification import reference

IDS = np.array([[5, 3, 250, 7, 7, 1, 0, 299, 12]])


def test_it_shares_no_code_with_the_package() -> None:
    """It imports the standard library and NumPy, nothing else."""
    tree = ast.parse(Path(reference.__file__).read_text())
    found = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    found |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    assert found == {"collections.abc", "json", "math", "numpy", "numpy.typing", "pathlib", "typing"}


def bfloat16(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    save_file({name: value.bfloat16() for name, value in tensors.items()}, folder / "model.safetensors")


def transposed(folder: Path) -> None:
    """As nanoGPT stores its projections."""
    tensors = load_file(folder / "model.safetensors")
    for name, value in tensors.items():
        if ".c_" in name and value.dim() == 2:
            tensors[name] = value.t().contiguous()
    save_file(tensors, folder / "model.safetensors")


def sharded_without_prefix(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = {}
    for number in (1, 2):
        file = f"model-0000{number}-of-00002.safetensors"
        part = {name.removeprefix("transformer."): tensors[name] for name in sorted(tensors)[number - 1 :: 2]}
        part |= {"h.0.attn.bias": torch.ones(1, 1, 4, 4, dtype=torch.bool)} if number == 1 else {}
        save_file(part, folder / file)
        names |= dict.fromkeys(part, file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))


@pytest.mark.parametrize("change", [bfloat16, transposed, sharded_without_prefix])
def test_every_form_of_files(folders: dict[str, Path], tmp_path: Path, change) -> None:
    """Two independent readers give the same logits."""
    folder = tmp_path / "m"
    folder.mkdir()
    for path in folders["gpt2"].iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    change(folder)
    right = reference.logits(reference.read_folder(folder), IDS)
    with torch.no_grad():
        ours = load_folder(folder, dtype=torch.float64).model(torch.from_numpy(IDS)).numpy()
    assert np.abs(ours - right).max() <= 1e-9 * np.abs(right).max()
    assert np.abs(right).max() > 1


@pytest.mark.parametrize(("ids", "words"), [
    ([1, 2], "integer array"), ([[0] * 65], "outside 1..64"), ([[300]], "0..299"), ([[0.5]], "integer array"),
])  # fmt: skip
def test_ids_that_cannot_be_read(folders: dict[str, Path], ids: list, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        reference.logits(reference.read_folder(folders["gpt2"]), np.array(ids))
