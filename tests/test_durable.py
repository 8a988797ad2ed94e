"""Sealed files are known by their hash: not a bit of one can change unseen."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.durable import SEAL, hash_file, hash_json, read_sealed, sync, write_sealed

NOTES = {"name": "Ä", "n": [1, 2.5, None], "in": {"b": {}}}
PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=())),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=40)
@given(st.dictionaries(st.text(max_size=5), PLAIN, max_size=4))
def test_what_was_written_is_read(tmp_path_factory: pytest.TempPathFactory, value: dict[str, Any]) -> None:
    """Plain data comes back as it was, the seal not among it."""
    path = tmp_path_factory.getbasetemp() / "sealed.json"
    path.unlink(missing_ok=True)
    write_sealed(path, value)
    assert read_sealed(path) == value
    assert json.loads(path.read_text()) == value | {SEAL: hash_json(value)}


def refused(path: Path, content: bytes | bytearray) -> bool:
    """Whether a sealed file with this content is refused, in the way that is promised."""
    path.unlink()  # a disk waits for a file that is written over
    path.write_bytes(content)
    try:
        read_sealed(path)
    except ValueError:
        return True
    return False


def test_every_bit_counts(tmp_path: Path) -> None:
    """One bit, anywhere in the file, the seal and the line ends included."""
    path = tmp_path / "a.json"
    write_sealed(path, NOTES)
    whole = path.read_bytes()
    assert read_sealed(path) == NOTES
    for bit in range(8 * len(whole)):
        harmed = bytearray(whole)
        harmed[bit // 8] ^= 1 << bit % 8
        assert refused(path, harmed), bit


def test_every_byte_counts(tmp_path: Path) -> None:
    """One that is missing at the end, one too many at either end, one twice."""
    path = tmp_path / "a.json"
    write_sealed(path, NOTES)
    whole = path.read_bytes()
    others = [whole[:size] for size in range(len(whole))]
    others += [whole[:at] + whole[at : at + 1] + whole[at:] for at in range(len(whole))]
    others += [whole + more for more in (b"\n", b" ", b"\0", b"x", whole)] + [
        more + whole for more in (b"\n", b" ", b"\xef\xbb\xbf")
    ]
    for other in others:
        assert refused(path, other), other
    assert not refused(path, whole)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"a": 1}, "checksum mismatch"),
        ({"a": 1, SEAL: "0" * 64}, "checksum mismatch"),
        ({"a": 2, SEAL: hash_json({"a": 1})}, "checksum mismatch"),
        ([1], "was modified"),
    ],
)
def test_what_has_no_seal_of_its_own(content: object, message: str, tmp_path: Path) -> None:
    """Is not read, however well it is written; nor is the right content written in another way."""
    path = tmp_path / "a.json"
    path.write_text(json.dumps(content, sort_keys=True) + "\n")
    with pytest.raises(ValueError, match=message):
        read_sealed(path)
    path.write_text(json.dumps({"a": 1, SEAL: hash_json({"a": 1})}, indent=3))
    with pytest.raises(ValueError, match="was modified"):
        read_sealed(path)


def test_a_missing_file(tmp_path: Path) -> None:
    """Is an OSError, unlike a damaged one."""
    with pytest.raises(FileNotFoundError):
        read_sealed(tmp_path / "a.json")


def test_the_hash_of_plain_data() -> None:
    """Does not hang on the order of names, and stays what it is from one version to the next; all else
    changes it.
    """
    assert hash_json({"a": 1, "b": [1, 2]}) == hash_json({"b": [1, 2], "a": 1})
    assert (
        hash_json({"b": 1, "a": [2.5, "ä"]})
        == hashlib.sha256(b'{"a": [2.5, "\\u00e4"], "b": 1}\n').hexdigest()
    )
    others = [
        {"a": 1},
        {"a": 1.5},
        {"a": "1"},
        {"a": [1]},
        {"b": 1},
        {"a": 1, "b": 1},
        {},
        [],
        None,
        [1, 2],
        [2, 1],
        {"a": True},
    ]
    assert len({hash_json(other) for other in others}) == len(others)


def test_the_hash_of_a_file(tmp_path: Path) -> None:
    """Is that of hashlib."""
    path = tmp_path / "a"
    path.write_bytes(b"abc" * 100_000)
    assert hash_file(path) == hashlib.sha256(b"abc" * 100_000).hexdigest()


def test_pipes_are_not_waited_for(tmp_path: Path) -> None:
    """What is no regular file cannot be read."""
    os.mkfifo(tmp_path / "pipe")
    for read in (hash_file, read_sealed):
        for path in (tmp_path / "pipe", tmp_path, Path("/dev/zero")):
            with pytest.raises(OSError, match="it is not a regular file"):
                read(path)


def test_a_file_without_a_bottom(tmp_path: Path) -> None:
    """Is refused like any other change."""
    (tmp_path / "a.json").write_text("[" * 100_000)
    with pytest.raises(ValueError, match=r"^a\.json is nested too deeply$"):
        read_sealed(tmp_path / "a.json")


def test_files_and_folders_reach_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sealed file is synced by the time it counts, after its content is in it; a folder can be synced as
    well.
    """
    synced: list[int] = []
    path = tmp_path / "a.json"
    monkeypatch.setattr("os.fsync", lambda descriptor: synced.append(path.stat().st_size))
    write_sealed(path, NOTES)
    assert synced == [path.stat().st_size]
    sync(tmp_path)
    assert len(synced) == 2
