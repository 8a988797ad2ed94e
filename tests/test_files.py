"""Files from strangers: what is no regular file is refused at once, and nothing is read without a limit."""

import os
from pathlib import Path

import pytest

from glassformer.errors import CheckpointError, InputError
from glassformer.files import parse_value, read_bytes, read_json, read_json_lines, read_spans, read_text

PIPE = "it is a pipe or a device, not a regular file"


@pytest.mark.parametrize("read", [read_json, read_spans, lambda path: read_text(path, 10)])
def test_pipes_and_devices_are_refused(read, tmp_path: Path) -> None:
    """To open a pipe would wait for a writer; a device may never end. A link to one is no better."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/dev/zero")
    for path in (tmp_path / "pipe", tmp_path / "link", Path("/dev/zero")):
        with pytest.raises(CheckpointError, match=f"^{path}: .*{PIPE}"):
            read(path)


def test_a_pipe_of_the_shell_is_read_where_it_is_allowed(tmp_path: Path) -> None:
    """<(a command) is a path to a descriptor that is open already."""
    reader, writer = os.pipe()
    os.write(writer, b"a text")
    os.close(writer)
    path = Path(f"/dev/fd/{reader}")
    try:
        with pytest.raises(InputError, match=PIPE):
            read_bytes(path, 100)
        assert read_bytes(path, 100, pipes=True) == b"a text"
    finally:
        os.close(reader)
    with pytest.raises(InputError, match="cannot be read"):
        read_bytes(path, 100, pipes=True)


def test_limits(tmp_path: Path) -> None:
    """Of size: exactly the limit, and not one byte more."""
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    assert read_bytes(path, 5) == b"12345"
    with pytest.raises(CheckpointError, match="larger than"):
        read_bytes(path, 4)
    with pytest.raises(InputError, match="not the name of a file"):
        read_bytes(Path("a\0b"), 4)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[" * 100_000, "nested too deeply"),
        ('{"a":' * 100_000, "nested too deeply"),
        ("9" * 5000, r"4300 digits\) for integer string conversion: value has 5000 digits\)$"),
        ("[NaN]", "NaN is not a JSON number"),
        ('{"a": 1, "a": 2}', "the key 'a' is a duplicate"),
    ],
    ids=lambda text: text[:12],
)
def test_json_without_end(text: str, reason: str) -> None:
    """One sentence each, as the error class of the caller."""
    with pytest.raises(InputError, match=rf"^x\.json: not valid JSON \(.*{reason}") as caught:
        parse_value(text, Path("x.json"), kind=InputError)
    assert type(caught.value) is InputError


def test_json_lines_end_where_they_are_none(tmp_path: Path) -> None:
    """At a line that is no object, and at one that is still being written."""
    path = tmp_path / "log"
    for rest in ("[3]\n", "null\n", "3\n", "{\n", '{"b": 2}', "[" * 100_000 + "\n"):
        path.write_text('{"a": 1}\n' + rest + ('{"c": 3}\n' if rest.endswith("\n") else ""))
        assert read_json_lines(path) == [{"a": 1}]
    path.write_text('{"a": 1}\n{"b": 2}\n')
    assert read_json_lines(path) == [{"a": 1}, {"b": 2}]
