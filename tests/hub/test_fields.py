"""Broken or boastful configurations: refused before any memory is taken, and no word in them chooses code."""

import json
import resource
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from bad_files import copy, edit_json, refused, tiny_folder

from glassformer import machine
from glassformer.errors import InputError, InsufficientMemory
from glassformer.files import MEGABYTE
from glassformer.hub.folder import CONFIG, load_folder
from glassformer.hub.mapping import Place
from glassformer.tasks.library import describe


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_folder(tmp_path_factory.mktemp("models") / "whole")


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    return copy(whole, tmp_path / "model")


@pytest.fixture
def little_memory() -> Iterator[None]:
    """Only a little more memory: a model that is not refused is a failed test, not a dead machine."""
    limits = resource.getrlimit(resource.RLIMIT_AS)
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + (256 << 20), limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, limits)


COUNTS = ("n_layer", "n_head", "n_embd", "vocab_size", "n_positions", "n_inner")
NO_COUNTS: list[Any] = [0, -1, 1.0, 1e9, 2**40, 2**63, 10**30, "2", "", True, False, [2], {"n": 2}]


@pytest.mark.parametrize("key", COUNTS)
def test_what_is_no_count_is_refused(folder: Path, key: str) -> None:
    """A number of anything is a whole number above 0 and below 2^40."""
    for value in NO_COUNTS:
        edit_json(folder / CONFIG, lambda config, value=value: config.update({key: value}))
        with refused(folder / CONFIG, key):
            load_folder(folder)


@pytest.mark.parametrize("key", COUNTS[:-1])
def test_missing_count_is_refused(folder: Path, key: str) -> None:
    """Nothing is guessed that the shapes depend on."""
    edit_json(folder / CONFIG, lambda config: config.pop(key))
    with refused(folder / CONFIG, key, "missing"):
        load_folder(folder)


@pytest.mark.parametrize(
    "numbers",
    [
        {"n_layer": 10**9},
        {"n_layer": 2**40 - 1},
        {"vocab_size": 10**12},
        {"n_positions": 10**12},
        {"n_inner": 10**12},
        {"n_embd": 2**30},
        {"n_embd": 2**39, "n_head": 2**39},
        {"n_embd": 2**39, "vocab_size": 2**39, "n_positions": 2**39, "n_inner": 2**39},
        {"n_layer": 100, "n_embd": 2**20},
    ],
    ids=str,
)
@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize("read", [load_folder, lambda folder: describe(str(folder))], ids=["load", "show"])
def test_boastful_numbers_are_refused(folder: Path, numbers: dict[str, int], read: Any) -> None:
    """Sizes that no machine has are refused at once, with the folder's name, by every reader."""
    edit_json(folder / CONFIG, lambda config: config.update(numbers))
    with refused(folder, kind=InputError):  # by the shapes, or by the memory
        read(folder)


VALUES: dict[str, tuple[dict[str, Any], str]] = {
    "heads that do not divide": ({"n_head": 3}, "heads"),
    "more heads than width": ({"n_head": 16}, "heads"),
    "another model": ({"model_type": "llama"}, "llama"),
    "no model": ({"model_type": None}, "model_type"),
    "model a list": ({"model_type": ["gpt2"]}, "model_type"),
    "activation unknown": ({"activation_function": "swish"}, "swish"),
    "activation a list": ({"activation_function": ["gelu_new"]}, "activation_function"),
    "activation null": ({"activation_function": None}, "activation_function"),
    "activation code": ({"activation_function": "__import__('os').system('true')"}, "activation_function"),
    "epsilon 0": ({"layer_norm_epsilon": 0}, "layer_norm_epsilon"),
    "epsilon 1": ({"layer_norm_epsilon": 1}, "layer_norm_epsilon"),
    "epsilon negative": ({"layer_norm_epsilon": -1e-5}, "layer_norm_epsilon"),
    "epsilon a text": ({"layer_norm_epsilon": "1e-5"}, "layer_norm_epsilon"),
    "epsilon a switch": ({"layer_norm_epsilon": True}, "layer_norm_epsilon"),
    "epsilon null": ({"layer_norm_epsilon": None}, "layer_norm_epsilon"),
    "epsilon huge": ({"layer_norm_epsilon": 10**400}, "layer_norm_epsilon"),
    "tied a number": ({"tie_word_embeddings": 1}, "tie_word_embeddings"),
    "tied a text": ({"tie_word_embeddings": "true"}, "tie_word_embeddings"),
    "tied null": ({"tie_word_embeddings": None}, "tie_word_embeddings"),
    "bias a text": ({"bias": "no"}, "bias"),
    "no scale": ({"scale_attn_weights": False}, "scale_attn_weights"),
    "scale by layer": ({"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx"),
    "cross attention": ({"add_cross_attention": True}, "add_cross_attention"),
    "a switch that is a long text": ({"add_cross_attention": "x" * 100_000}, "add_cross_attention"),
    "a long model": ({"model_type": "x" * 100_000}, "model_type"),
    "a long activation": ({"activation_function": "x" * 100_000}, "activation_function"),
    "an escape sequence": ({"model_type": "\x1b[2J\n\u202e"}, "model_type"),
}  # fmt: skip


@pytest.mark.parametrize(("values", "word"), VALUES.values(), ids=VALUES)
def test_wrong_value_is_refused(folder: Path, values: dict[str, Any], word: str) -> None:
    """Every value that the model could not honour is refused by its key or its content."""
    edit_json(folder / CONFIG, lambda config: config.update(values))
    with refused(folder / CONFIG, word):
        load_folder(folder)


TEXTS: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "JSON"),
    "blank": (b" \n", "JSON"),
    "null": (b"null", "object"),
    "list": (b"[]", "object"),
    "number": (b"1", "object"),
    "text": (b'"gpt2"', "object"),
    "no key": (b"{}", "n_layer"),
    "never closed": (b'{"n_layer": 2', "JSON"),
    "rest behind it": (b'{"n_layer": 2} {}', "JSON"),
    "comment": (b'{"n_layer": 2 /* two */}', "JSON"),
    "single quotes": (b"{'n_layer': 2}", "JSON"),
    "NaN": (b'{"n_layer": NaN}', "NaN"),
    "NaN in an unused key": (b'{"n_layer": 2, "unused": [{"key": NaN}]}', "NaN"),
    "infinity": (b'{"n_layer": Infinity}', "Infinity"),
    "minus infinity": (b'{"n_layer": -Infinity}', "-Infinity"),
    "beyond all floats": (b'{"n_layer": 1e999}', "n_layer"),
    "key twice": (b'{"n_layer": 2, "n_layer": 3}', "'n_layer' is a duplicate"),
    "key twice, once escaped": (b'{"n_layer": 2, "n\\u005flayer": 3}', "'n_layer' is a duplicate"),
    "key twice, deeper": (b'{"task_specific_params": {"a": 1, "a": 1}}', "'a' is a duplicate"),
    "a long key twice": (b'{"%b": 2, "%b": 3}' % (b"x" * 100_000, b"x" * 100_000), "is a duplicate"),
    "lists 100,000 deep": (b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "deep"),
    "objects 100,000 deep": (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "deep"),
    "never closed, 100,000 deep": (b"[" * 100_000, "deep"),
    "number of 5000 digits": (b'{"n_layer": ' + b"9" * 5000 + b"}", "JSON"),
    "not UTF-8": (b'{"n_layer": "\xff"}', "UTF-8"),
    "UTF-16": ('{"n_layer": 2}'.encode("utf-16"), "UTF-8"),
    "NUL": (b'{"n_layer": 2}\0', "JSON"),
    "more than a megabyte": (b'{"a": "' + b"x" * MEGABYTE + b'"}', "1 MB"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "reason"), TEXTS.values(), ids=TEXTS)
def test_broken_text_is_refused(folder: Path, text: bytes, reason: str) -> None:
    """What is not one JSON object of sane size is refused with its reason."""
    (folder / CONFIG).write_bytes(text)
    with refused(folder / CONFIG, reason):
        load_folder(folder)


def test_what_is_no_file_is_refused(folder: Path) -> None:
    """A missing file, a folder, a link to itself and an endless device are refused."""
    path = folder / CONFIG
    path.unlink()
    with refused(path, "No such file"):
        load_folder(folder)
    path.mkdir()
    with refused(path, "directory"):
        load_folder(folder)
    path.rmdir()
    for target in (CONFIG, "/dev/zero"):
        path.symlink_to(target)
        with refused(path):
            load_folder(folder)
        path.unlink()


def test_other_spellings_are_loaded(whole: Path, folder: Path) -> None:
    """A byte-order mark, `n_ctx` and what may be left out change nothing."""
    expected = load_folder(whole).model
    config = json.loads((folder / CONFIG).read_text())
    config["n_ctx"] = config.pop("n_positions")
    for key in ("model_type", "n_inner", "activation_function", "layer_norm_epsilon", "tie_word_embeddings"):
        del config[key]
    (folder / CONFIG).write_bytes(b"\xef\xbb\xbf" + json.dumps(config).encode())
    loaded = load_folder(folder).model
    assert loaded.config == expected.config
    assert torch.equal(loaded.tokens.weight, expected.tokens.weight)


def test_no_key_chooses_code(whole: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys that name code, here code that could be imported, change nothing and import nothing."""
    canary = folder / "canary"
    (folder / "modeling_trap.py").write_text(f"open({str(canary)!r}, 'w').close()\nclass Trap: pass\n")
    monkeypatch.syspath_prepend(folder)
    monkeypatch.chdir(folder)
    trap = {
        "auto_map": {"AutoConfig": "modeling_trap.Trap", "AutoModelForCausalLM": "modeling_trap.Trap"},
        "architectures": ["modeling_trap.Trap"],
        "custom_pipelines": {"text-generation": {"impl": "modeling_trap.Trap"}},
        "tokenizer_class": "modeling_trap.Trap",
        "quantization_config": {"_target_": "modeling_trap.Trap"},
        "torch_dtype": "modeling_trap.Trap",
        "dtype": "modeling_trap.Trap",
        "trust_remote_code": True,
        "_name_or_path": "/etc/passwd",
        "__class__": "modeling_trap.Trap",
    }
    for name in (CONFIG, "tokenizer_config.json", "generation_config.json"):
        edit_json(folder / name, lambda config: config.update(trap))
    loaded, expected = load_folder(folder), load_folder(whole)
    assert loaded.model.config == expected.model.config
    assert loaded.tokenizer is not None
    assert all(
        torch.equal(a, b) for a, b in zip(loaded.model.parameters(), expected.model.parameters(), strict=True)
    )
    assert "modeling_trap" not in sys.modules
    assert not canary.exists()
    __import__("modeling_trap")  # the trap would have worked
    assert canary.exists()
    del sys.modules["modeling_trap"]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16])
def test_memory_is_refused_before_it_is_taken(
    folder: Path, monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype
) -> None:
    """A model that fits to the byte is loaded; with a few bytes less it is refused, and not one tensor is
    read.
    """
    needed = load_folder(folder).model.config.parameters * dtype.itemsize / machine.SHARE_OF_MEMORY
    monkeypatch.setattr(machine, "available_memory", lambda: int(needed) + 1)
    assert load_folder(folder, dtype=dtype).model.tokens.weight.dtype is dtype
    monkeypatch.setattr(machine, "available_memory", lambda: int(needed) - 1)
    monkeypatch.setattr(Place, "read", lambda place: pytest.fail(f"{place.name} was read"))
    with refused(folder, "GB", kind=InsufficientMemory):
        load_folder(folder, dtype=dtype)
