"""Pickles that would run code: none does, on any way into the package; and archives that would not end."""

import json
import os
import pickle
import random
import shutil
import socket
import subprocess
import sys
import zipfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
import torch
from bad_files import copy, refused, tiny_folder, tiny_tokenizer
from pickles import CONTAINERS, NAMES, SUFFIXES, Call, malicious
from safetensors.torch import load_file, save_file

from glassformer.errors import CheckpointError
from glassformer.hub import convert as converter
from glassformer.hub.convert import convert
from glassformer.hub.folder import CONFIG, WEIGHTS
from glassformer.tasks.library import describe
from glassformer.tasks.load import load


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The malicious files, and the folder where each would put a file of its own name."""
    folder = tmp_path_factory.mktemp("pickles")
    (folder / "canaries").mkdir()
    (folder / "scripts").mkdir()
    number = 0

    def paths() -> tuple[Path, Path, Path]:
        name = f"{number:03}{SUFFIXES[number % 4]}"
        return folder / name, folder / "canaries" / name, folder / "scripts" / f"{number:03}.py"

    for name in NAMES:
        path, canary, script = paths()
        path.write_bytes(malicious(name, canary, script=script, form=number))
        number += 1
    return folder


def canaries(corpus: Path) -> list[str]:
    return sorted(path.name for path in (corpus / "canaries").iterdir())


def files(corpus: Path) -> list[Path]:
    return sorted(path for path in corpus.iterdir() if path.is_file())


def in_child(code: str, *arguments: object) -> Any:
    """What a Python of its own prints as JSON in its last line."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    child = subprocess.run(
        command, capture_output=True, text=True, timeout=120, env=os.environ | {"OMP_NUM_THREADS": "1"}
    )
    assert child.returncode == 0, child.stderr[-3000:]
    return json.loads(child.stdout.splitlines()[-1])


CARELESS = """
import json, sys, warnings
from pathlib import Path
import torch
warnings.simplefilter("ignore")
for path in sorted(path for path in Path(sys.argv[1]).iterdir() if path.is_file()):
    try:
        torch.load(path, weights_only=False)
    except Exception:
        pass
print(json.dumps("done"))
"""

CAREFUL = """
import ctypes, json, os, resource, socket, sys
from pathlib import Path
from glassformer.hub.unpickle import CLONE_NEWNET, CLONE_NEWUSER, confine, leave_the_network, unpickle
probe = os.fork()
if probe == 0:
    libc = ctypes.CDLL(None)
    os._exit(int(libc.unshare(CLONE_NEWNET) != 0 and libc.unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0))
allowed = os.waitpid(probe, 0)[1] == 0
leave_the_network()
import torch
confine(1 << 20)
try:
    socket.create_connection(("127.0.0.1", int(sys.argv[3])), timeout=2).close()
    reached = True
except OSError:
    reached = False
limits = [resource.getrlimit(getattr(resource, name))[0] for name in ("RLIMIT_AS", "RLIMIT_FSIZE", "RLIMIT_CPU")]
passed, work = [], Path(sys.argv[2])
for path in sorted(path for path in Path(sys.argv[1]).iterdir() if path.is_file()):
    try:
        unpickle(path, work)
        passed.append(path.name)
    except Exception:
        pass
print(json.dumps({"allowed": allowed, "reached": reached, "limits": limits, "passed": passed}))
"""


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint as nanoGPT writes it, of a model whose folder lies beside it."""
    folder = tmp_path_factory.mktemp("sound")
    state = load_file(tiny_folder(folder / "model") / WEIGHTS)
    torch.save({"model": state, "model_args": {"n_head": 2}, "iter_num": 5}, folder / "ckpt.pt")
    return folder / "ckpt.pt"


def test_no_malicious_pickle_runs_in_the_child(corpus: Path, sound: Path, tmp_path: Path) -> None:
    """The child that reads pickles refuses every one of them, runs none, reaches no network, and still reads a
    valid one.
    """
    assert len(files(corpus)) >= 40
    shutil.copy(sound, corpus / "sound.pt")
    with socket.create_server(("127.0.0.1", 0)) as server:
        found = in_child(CAREFUL, corpus, tmp_path, server.getsockname()[1])
    (corpus / "sound.pt").unlink()
    assert canaries(corpus) == []
    assert found["passed"] == ["sound.pt"]
    assert (
        load_file(tmp_path / "tensors.safetensors").keys()
        == load_file(sound.parent / "model" / WEIGHTS).keys()
    )
    assert json.loads((tmp_path / "facts.json").read_text())["model_args"] == {"n_head": 2}
    assert found["reached"] is not found["allowed"]
    assert all(0 < limit < 2**33 for limit in found["limits"])


def test_no_malicious_pickle_runs_by_its_name(corpus: Path) -> None:
    """Loading a pickle by its name is refused with the way to convert it, and reads nothing."""
    for path in files(corpus):
        with refused(path, f"glass convert {path}"):
            load(str(path))
    assert canaries(corpus) == []


@pytest.mark.parametrize(
    "name",
    ["pytorch_model.bin", "model.pt", "ckpt.pt", "weights.pth", "last.ckpt", "pytorch_model-1-of-2.bin"],
)
@pytest.mark.parametrize("configured", [True, False])
def test_folder_of_a_pickle_is_refused(
    corpus: Path, sound: Path, tmp_path: Path, name: str, configured: bool
) -> None:
    """A folder that holds a pickle and no safe weights is refused with the way to convert it."""
    shutil.copy(files(corpus)[0], tmp_path / name)
    if configured:
        shutil.copy(sound.parent / "model" / CONFIG, tmp_path)
    for read in (load, describe):
        with refused(f"glass convert {tmp_path / name}"):
            read(str(tmp_path))
    assert canaries(corpus) == []


def test_pickle_beside_safe_weights_is_not_touched(corpus: Path, sound: Path, tmp_path: Path) -> None:
    """A folder with safe weights loads, whatever lies beside them."""
    folder = copy(sound.parent / "model", tmp_path / "model")
    for name in ("pytorch_model.bin", "training_args.bin", "optimizer.pt", "rng_state.pth", "tokenizer.pkl"):
        shutil.copy(files(corpus)[0], folder / name)
    assert load(str(folder)).model.vocab == len(tiny_tokenizer())
    assert canaries(corpus) == []


@pytest.mark.parametrize(
    "container", CONTAINERS[:1], ids=["archive"]
)  # the other two are read by the child above
def test_no_malicious_pickle_is_converted(tmp_path: Path, container: Callable[[bytes], bytes]) -> None:
    """The whole way: a malicious pickle is refused by name, leaves nothing behind, and runs nothing."""
    canary, source = tmp_path / "canary", tmp_path / "in" / "pytorch_model.bin"
    source.parent.mkdir()
    source.write_bytes(container(pickle.dumps({"model": Call(os.system, f"touch {canary}")})))
    with refused(source, "plain weights"):
        convert(source.parent, tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in"]


def test_malicious_pickles_are_malicious(corpus: Path) -> None:
    """Read without care, every one of them makes its file: the tests above could fail."""
    assert in_child(CARELESS, corpus) == "done"
    made = canaries(corpus)
    shutil.rmtree(corpus / "canaries")
    (corpus / "canaries").mkdir()
    assert made == [path.name for path in files(corpus)]


# ---- what the child hands back is checked like a stranger's


def hand_back(
    monkeypatch: pytest.MonkeyPatch, sound: Path, facts: str = "{}", change: Callable[[Any], object] = len
) -> None:
    """In place of the child: these tensors and facts."""

    def unpickle(source: Path, work: Path) -> None:
        tensors = load_file(sound.parent / "model" / WEIGHTS)
        change(tensors)
        save_file(tensors, work / "tensors.safetensors")
        (work / "facts.json").write_text(facts)

    monkeypatch.setattr(converter, "_unpickle", unpickle)


WTE = "transformer.wte.weight"
RESULTS: dict[str, tuple[str, Callable[[Any], object]]] = {
    "NaN": ("{}", lambda tensors: tensors[WTE][0].fill_(float("nan"))),
    "missing": ("{}", lambda tensors: tensors.pop("transformer.h.0.ln_1.bias")),
    "missing tokens": ("{}", lambda tensors: tensors.pop(WTE)),
    "a block beyond all numbers": (
        "{}",
        lambda tensors: tensors.update({f"h.{'1' * 5000}.ln_1.bias": torch.ones(8)}),
    ),
    "a block far away": ("{}", lambda tensors: tensors.update({"h.999999999.ln_1.bias": torch.ones(8)})),
    "facts that are no JSON": ('{"model_args": {"dropout": NaN}}', len),
    "facts nested deep": ('{"a":' * 100_000, len),
    "heads a text": ('{"model_args": {"n_head": "two"}}', len),
    "facts a list": ('{"model_args": [1]}', len),
}


@pytest.mark.parametrize(("facts", "change"), RESULTS.values(), ids=RESULTS)
def test_broken_result_is_refused(
    sound: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, facts: str, change: Callable[[Any], object]
) -> None:
    """What does not make a model is refused with the name of the file that was given, not of one that is
    gone.
    """
    hand_back(monkeypatch, sound, facts, change)
    source = Path(shutil.copy(sound, tmp_path / "ckpt.pt"))
    with refused(source):
        convert(source, tmp_path / "out", heads=None if "n_head" in facts else 2)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "text",
    [b"\xff\xfe{", b"[]", b"{", b'{"n_layer": NaN}', b'{"n_layer": 2, "n_layer": 2}', b" " * (2 << 20)],
)
def test_broken_config_beside_it_is_refused(
    sound: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: bytes
) -> None:
    """A broken `config.json` beside the pickle is refused by its own name."""
    hand_back(monkeypatch, sound)
    source = Path(shutil.copy(sound, tmp_path / "ckpt.pt"))
    (tmp_path / CONFIG).write_bytes(text)
    with refused(tmp_path / CONFIG):
        convert(source, tmp_path / "out", heads=2)


# ---- archives


def zipped(entries: dict[str, bytes], how: int = zipfile.ZIP_STORED) -> bytes:
    target = BytesIO()
    with zipfile.ZipFile(target, "w", how) as archive:
        for name, data in entries.items():
            archive.writestr(name, data)
    return target.getvalue()


def directory(raw: bytes, times: int) -> bytes:
    """The archive with the first entry of its directory repeated: all of them unpack the same bytes."""
    start, end = raw.index(b"PK\1\2"), raw.index(b"PK\5\6")
    entries = raw[start:end] * times
    tail = bytearray(raw[end:])
    tail[8:12] = min(times, 65535).to_bytes(2, "little") * 2
    tail[12:16] = len(entries).to_bytes(4, "little")
    return raw[:start] + entries + bytes(tail)


def poked(raw: bytes, at: int, value: bytes) -> bytes:
    """The archive with some bytes of its last directory entry changed."""
    start = raw.rindex(b"PK\1\2") + at
    return raw[:start] + value + raw[start + len(value) :]


PLAIN = zipped({"archive/data.pkl": b"x" * 1000, "archive/version": b"3\n"})
BOMBS: dict[str, Callable[[], bytes]] = {
    "64 MB of zeros": lambda: zipped({"archive/data.pkl": bytes(64 << 20)}, zipfile.ZIP_DEFLATED),
    "bzip2": lambda: zipped({"archive/data.pkl": bytes(1 << 20)}, zipfile.ZIP_BZIP2),
    "lzma": lambda: zipped({"archive/data.pkl": bytes(1 << 20)}, zipfile.ZIP_LZMA),
    "a bomb in a bomb": lambda: zipped({"a": zipped({"b": bytes(8 << 20)}, zipfile.ZIP_DEFLATED)}, zipfile.ZIP_DEFLATED),
    "one packed among plain": lambda: poked(PLAIN, 10, b"\x08\0"),
    "the same bytes 1,000 times": lambda: directory(zipped({"archive/data.pkl": bytes(1 << 10)}), 1000),
    "100,001 entries": lambda: directory(zipped({"a": b""}), 100_001),
    "a size that is a lie": lambda: poked(PLAIN, 24, b"\xfe\xff\xff\x7f"),
    "made by a later version": lambda: poked(PLAIN, 6, b"\x63\0"),
    "no entry where it should be": lambda: poked(PLAIN, 0, b"XX"),
}  # fmt: skip


@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS)
def test_archive_bombs_are_refused_before_they_are_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bomb: Callable[[], bytes]
) -> None:
    """An archive that holds more than it stores, or is broken, is refused without starting the child."""
    monkeypatch.setattr(converter, "_unpickle", lambda source, work: pytest.fail("the child was started"))
    source = tmp_path / "model.pt"
    source.write_bytes(bomb())
    with refused(source, "archive"):
        convert(source, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["model.pt"]


def test_broken_archives_are_refused_or_passed_on(sound: Path, tmp_path: Path) -> None:
    """A sound archive passes; hundreds of broken ones pass or are refused, and nothing else happens."""
    raw, chance, counts = sound.read_bytes(), random.Random(0), {True: 0, False: 0}
    start, path = raw.index(b"PK\1\2"), tmp_path / "model.pt"
    converter._check_archive(sound)
    for _ in range(500):
        broken = bytearray(raw)
        for _ in range(chance.choice((1, 2, 5))):
            broken[chance.randrange(start, len(raw))] = chance.choice(
                (0, 1, 8, 0x7F, 0x80, 0xFF, chance.randrange(256))
            )
        path.write_bytes(broken[: None if chance.random() < 0.9 else -chance.randrange(1, 30)])
        try:
            converter._check_archive(path)
            counts[True] += 1
        except CheckpointError as error:
            assert str(path) in str(error)  # noqa: PT017
            counts[False] += 1
    assert min(counts.values()) > 25
