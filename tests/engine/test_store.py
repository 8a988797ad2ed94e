"""Quantized models that are kept: whole, of the files they were made of, or as good as not there."""

import json
import os
import shutil
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.boundary import digest
from engine.conftest import engine_of, random_model
from glassformer.durable import write_sealed
from glassformer.engine import native, store
from glassformer.engine.quantize import expected, pack
from glassformer.engine.reading import FileReader, begin
from glassformer.errors import CheckpointError, InputError, warnings_to
from glassformer.hub.folder import save_folder
from glassformer.tasks.load import load, load_torch
from glassformer.tasks.load_native import load_kept
from glassformer.tokenizers import Tokenizer, train_tokenizer

IDS = np.arange(20)


@pytest.fixture(scope="module")
def words() -> Tokenizer:
    return train_tokenizer(["the cat sat on the mat and the dog sat on the cat"] * 20, 280)


@pytest.fixture
def folder(tmp_path: Path, words: Tokenizer) -> Path:
    save_folder(tmp_path / "model", random_model(vocab=len(words)), tokenizer=words)
    return tmp_path / "model"


def find(folder: Path) -> store.Kept | None:
    note = store.find(folder)
    return None if note is None else store.read(folder, note)


def logits(folder: Path) -> bytes:
    engine = load(str(folder), engine="native").engine
    assert engine is not None
    return engine.logits(IDS).tobytes()


def test_it_is_made_once_and_found_again(folder: Path, home: Path) -> None:
    """The second time nothing is made: the kept file is the same one, and so are the logits."""
    first = logits(folder)
    (numbers,) = home.glob("engine/*/numbers.safetensors")
    before = numbers.stat().st_ino, numbers.stat().st_mtime_ns
    assert logits(folder) == first
    assert (numbers.stat().st_ino, numbers.stat().st_mtime_ns) == before
    kept = find(folder)
    assert kept is not None
    model = load_torch(folder).model
    want = pack(kept.config, {name: value.detach().numpy() for name, value in model.named_parameters()})
    assert kept.arrays.keys() == want.keys()
    assert all(np.array_equal(kept.arrays[name], want[name]) for name in want)
    assert all(array.ctypes.data % 64 == 0 for array in kept.arrays.values())  # whole lines of the cache


def test_a_changed_source_is_noticed(folder: Path, words: Tokenizer) -> None:
    """By its time, and by its size; what is written then is that of the new model."""
    old = logits(folder)
    other = random_model(5, vocab=len(words))
    stat = (folder / "model.safetensors").stat()
    save_folder(folder, other, tokenizer=words)
    assert (folder / "model.safetensors").stat().st_size == stat.st_size
    assert find(folder) is None
    assert logits(folder) == engine_of(other).logits(IDS).tobytes() != old
    os.utime(folder / "config.json", ns=(1, 1))
    assert find(folder) is None
    logits(folder)
    (folder / "vocab.json").write_text("{}")  # one more: the folder may now be read in another way
    assert find(folder) is None
    (folder / "vocab.json").unlink()
    assert logits(folder) == engine_of(other).logits(IDS).tobytes()


def test_damage_anywhere_is_noticed(folder: Path, home: Path) -> None:
    """A flipped bit or a cut, in the numbers or in the note: none is loaded, and all is made again."""
    want = logits(folder)
    rng = np.random.default_rng(0)
    for name in ("numbers.safetensors", "note.json"):
        (path,) = home.glob(f"engine/*/{name}")
        whole = path.read_bytes()
        for trial in range(120):
            broken = bytearray(whole)
            if trial % 4 == 3:
                del broken[int(rng.integers(0, len(whole))) :]
            else:
                at = trial if trial < 30 else int(rng.integers(0, len(whole)))
                broken[at] ^= 1 << int(rng.integers(0, 8))
            path.write_bytes(broken)
            assert find(folder) is None, (name, trial)
        assert logits(folder) == want
        assert path.read_bytes() == whole


def test_malformed_files_are_refused(folder: Path, home: Path) -> None:
    """Even one with the right hash: arrays that are missing, of another type or shape, or that lie outside of
    the file.
    """
    logits(folder)
    note = store.find(folder)
    assert note is not None
    reading = FileReader(next(home.glob("engine/*/numbers.safetensors")))
    (numbers, _), start = reading.wait(), reading.start
    header = json.loads(bytes(numbers[8:start]))
    name = "blocks.0.attn.qkv.weights"

    def refused(change: Any) -> str:
        changed = json.loads(json.dumps(header))
        change(changed)
        text = json.dumps(changed).encode()
        fresh = memoryview(len(text).to_bytes(8, "little") + text + bytes(numbers[start:]))
        with pytest.raises(CheckpointError) as error:
            store.arrays_of(fresh, 8 + len(text), config=note["config"])
        return str(error.value)

    assert "leaves a hole" in refused(lambda changed: changed.pop(name))
    assert f"{name} is missing" in refused(lambda changed: changed.update(other=changed.pop(name)))
    assert "overlaps" in refused(lambda changed: changed.update(positions2=changed["positions"]))
    assert "not int8" in refused(lambda changed: changed[name].update(dtype="U8"))
    assert "needs 6 bytes" in refused(lambda changed: changed[name].update(shape=[1, 2, 3]))
    assert "its offsets give it" in refused(lambda changed: changed[name].update(data_offsets=[0, 10**12]))
    assert "not lists of counts" in refused(
        lambda changed: changed[name].update(data_offsets=[-4, changed[name]["data_offsets"][1]])
    )
    assert "not int8" in refused(lambda changed: changed[name].update(shape=changed[name]["shape"][::-1]))
    assert "does not have exactly" in refused(lambda changed: changed.update({name: 3}))
    assert "not lists of counts" in refused(lambda changed: changed[name].update(data_offsets=["a", None]))
    with pytest.raises(CheckpointError, match="not valid JSON"):
        store.arrays_of(memoryview(b"\x08\0\0\0\0\0\0\0{not json"), 17, config=note["config"])
    for broken in (b"", b"\x08\0\0", (10**15).to_bytes(8, "little") + b"{}"):
        path = home / "broken"
        path.write_bytes(broken)
        with pytest.raises(CheckpointError, match="too short"):
            FileReader(path)


GONE = object()


def seal(folder: Path, note: dict[str, Any]) -> None:
    """Write another note of a folder, with a right checksum."""
    fields = {name: value for name, value in note.items() if value is not GONE}
    write_sealed(store.place(folder) / store.NOTE, fields)


def test_a_sealed_note_of_another_configuration(folder: Path) -> None:
    """Not accepted, though its checksum is right and many shapes are the same: the model is made again."""
    want = logits(folder)
    note = store.find(folder)
    assert note is not None
    assert store.read(folder, note) is not None
    for change in (
        {"heads": 4},
        {"heads": 0},
        {"width": 47, "heads": 1},
        {"width": 96},
        {"neurons": 191},
        {"norm_eps": 1e-3},
        {"norm_eps": float("nan")},
        {"vocab": note["config"]["vocab"] + 1},
        {"vocab": 20},
        {"vocab": 2**40},
        {"context": 0},
        {"layers": 10**9},
        {"activation": "relu"},
        {"tied": False},
        {"bias": False},
        {"another": 1},
    ):
        other = note | {"config": note["config"] | change}
        seal(folder, other)
        assert store.find(folder) is None, change
        assert store.read(folder, other) is None, change
        assert logits(folder) == want, change
        assert store.find(folder) == note


def test_a_sealed_note_with_other_fields(folder: Path) -> None:
    """Missing, of another type, one too many, of another folder: as good as no note."""
    want = logits(folder)
    note = store.find(folder)
    assert note is not None
    other = str(folder.parent)
    for changes in (
        *({name: GONE} for name in store.FIELDS),
        *({name: value} for name in store.FIELDS for value in (None, 3.5, [3], {"a": {}}, "text")),
        {"format": store.FORMAT - 1},
        {"format": True},
        {"another": 1},
        {"config": {}},
        {"about": {}},
        {"about": note["about"] | {"another": 1}},
        {"about": {"base": "/"}},
        {"about": {"base": 3}},
        {"folders": [], "files": {}},  # would be fresh forever
        {"folders": [3], "files": {}},
        {"folders": ["/nowhere"], "files": {}},
        {"folders": [other], "files": store.stamps([other]), "about": {"base": other}},
        {"sha256": "0" * 64},
    ):
        seal(folder, note | changes)
        assert find(folder) is None, changes
    assert logits(folder) == want


def test_a_note_that_is_nested_without_end(folder: Path) -> None:
    """Deeper than JSON can be read."""
    want = logits(folder)
    (store.place(folder) / store.NOTE).write_text("[" * 100_000)
    assert store.find(folder) is None
    assert logits(folder) == want


def test_numbers_with_a_right_checksum(folder: Path) -> None:
    """Cut, longer, empty, with a header that is too long or of another configuration, and a note that fits them."""
    want = logits(folder)
    note = store.find(folder)
    assert note is not None
    path = store.place(folder) / store.NUMBERS
    whole = path.read_bytes()
    start = 8 + int.from_bytes(whole[:8], "little")
    other = whole.replace(b'heads\\": 3', b'heads\\": 4', 1)
    assert other != whole
    for broken in (whole[:-1], whole[:start], whole[: start - 1], whole[:7], b"", whole + b"\0", other,
                   (2**64 - 1).to_bytes(8, "little") + whole[8:], (0).to_bytes(8, "little") + whole[8:]):  # fmt: skip
        path.write_bytes(broken)
        seal(folder, note | {"sha256": digest(path)})
        assert find(folder) is None
    assert logits(folder) == want


def test_only_a_whole_model_is_kept(folder: Path) -> None:
    """Arrays that are not those of the configuration are refused, not written."""
    logits(folder)
    kept = find(folder)
    assert kept is not None
    shutil.rmtree(store.place(folder))
    fewer = {name: array for name, array in kept.arrays.items() if name != "positions"}
    for wrong in (replace(kept, arrays=fewer), replace(kept, config=kept.config | {"vocab": 10})):
        with pytest.raises(InputError, match="the array"):
            store.keep(folder, wrong, folders=[folder], stamps=store.stamps([folder]))
    assert not store.place(folder).exists()


def test_what_is_expected_is_what_is_packed() -> None:
    """For every kind of model."""
    for change in ({}, {"tied": False}, {"bias": False}, {"width": 30, "heads": 5, "neurons": 9}):
        model = random_model(**change)
        from dataclasses import asdict

        made = pack(
            asdict(model.config), {name: value.detach().numpy() for name, value in model.named_parameters()}
        )
        assert {name: (str(array.dtype), array.shape) for name, array in made.items()} == expected(
            asdict(model.config)
        )


@pytest.mark.skipif(hasattr(os, "geteuid") and os.geteuid() == 0, reason="root may write anywhere")
def test_a_home_that_cannot_be_written_costs_time_alone(folder: Path, home: Path) -> None:
    """The model is quantized in memory, and one sentence gives the reason why it was not kept."""
    home.mkdir(parents=True)
    home.chmod(stat.S_IRUSR | stat.S_IXUSR)
    messages: list[str] = []
    with warnings_to(messages.append):
        engine = load(str(folder)).engine
    assert engine.logits(IDS).shape == (20, engine.vocab)
    assert "could not be kept" in messages[0]


def test_a_home_that_is_a_file_costs_time_alone(folder: Path, home: Path) -> None:
    """The same for a user who may write anywhere."""
    home.parent.mkdir(parents=True, exist_ok=True)
    home.write_text("not a folder")
    messages: list[str] = []
    with warnings_to(messages.append):
        engine = load(str(folder)).engine
    assert engine.logits(IDS).shape == (20, engine.vocab)
    assert "could not be kept" in messages[0]


def test_a_lora_folder_is_folded_in(folder: Path, tmp_path: Path) -> None:
    """The engine writes as the merged model does; a change of the base or of the LoRA is noticed."""
    import torch

    from glassformer.hub.families import family
    from glassformer.hub.lora import LoraWeights, save_adapter

    draw = torch.Generator().manual_seed(1)
    weights = {
        f"blocks.{layer}.attn.qkv": LoraWeights(
            torch.randn(4, 48, generator=draw), 0.1 * torch.randn(144, 4, generator=draw), 2.0
        )
        for layer in range(2)
    }
    save_adapter(tmp_path / "lora", weights, base=str(folder), family=family("gpt2"))
    merged = load_torch(tmp_path / "lora").model
    assert logits(tmp_path / "lora") == engine_of(merged).logits(IDS).tobytes() != logits(folder)
    assert find(tmp_path / "lora") is not None
    os.utime(folder / "model.safetensors", ns=(5, 5))
    assert find(tmp_path / "lora") is None


def test_two_models_of_one_name_are_kept_apart(folder: Path, tmp_path: Path, words: Tokenizer) -> None:
    """A folder is known by its whole path."""
    other = tmp_path / "elsewhere" / "model"
    save_folder(other, random_model(9, vocab=len(words)), tokenizer=words)
    assert logits(folder) != logits(other)
    assert find(folder) is not None
    assert find(other) is not None


def test_without_a_core_torch_writes(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing was compiled: auto uses torch and gives the reason, native is refused."""
    monkeypatch.setattr(native, "folder", lambda: tmp_path / "nothing")
    native.ways.cache_clear()
    native.library.cache_clear()
    try:
        assert native.ways() == ()
        assert "no C++ compiler" in native.status()
        lm = load(str(folder))
        assert lm.engine is None
        assert lm.generate("the cat", max_new_tokens=3).engine == "torch float32"
        with pytest.raises(InputError, match="no C\\+\\+ compiler"):
            load(str(folder), engine="native")
    finally:
        monkeypatch.undo()
        native.ways.cache_clear()
        native.library.cache_clear()
    assert native.ways()


def test_rm_of_a_kept_model_is_harmless(folder: Path, home: Path) -> None:
    """It is made again."""
    want = logits(folder)
    shutil.rmtree(home / "engine")
    assert logits(folder) == want


def test_reading_begins_before_numpy_is_imported(folder: Path, home: Path) -> None:
    """A start would otherwise take as long as both together."""
    logits(folder)
    code = (
        "import sys, glassformer.engine.reading as reading, glassformer.tasks.load as load\n"
        "was = []\n"
        "begin = reading.begin\n"
        "def noted(*given, **how):\n"
        "    was.append('numpy' in sys.modules)\n"
        "    return begin(*given, **how)\n"
        "reading.begin = noted\n"
        f"lm = load.load({str(folder)!r}, engine='native')\n"
        "print(was, lm.backend.name)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "[False] native int8\n", done.stdout + done.stderr


def test_a_reading_of_another_folder_is_not_taken(folder: Path, home: Path, tmp_path: Path) -> None:
    """The name may lead elsewhere once the hub is asked."""
    logits(folder)
    other = tmp_path / "other"
    shutil.copytree(folder, other)
    begun = begin(other, bits=8)
    assert begun is None  # nothing is kept of it yet
    logits(other)
    begun = begin(other, bits=8)
    assert begun is not None
    found = load_kept(folder, begun, bits=8)
    assert found is not None
    assert np.shares_memory(found[0].arrays["positions"], np.frombuffer(begun.wait()[0], np.uint8)) is False
