"""Files to fine-tune on: three forms of lines, and the first wrong one is named."""

import json
from pathlib import Path
from typing import Any

import pytest

from glassformer.data.sources import Piece, read_pieces
from glassformer.errors import InputError
from glassformer.server import training_file
from glassformer.server.chat import transcript

TALK = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hello!"},
    {"role": "assistant", "content": "Hi."},
    {"role": "user", "content": [{"type": "text", "text": "How are you?"}]},
    {"role": "assistant", "content": " Well. "},
]


def write(folder: Path, *lines: Any) -> Path:
    """A file of lines: JSON of what is no bytes."""
    path = folder / "file"
    path.write_bytes(
        b"\n".join(line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines)
    )
    return path


def learned(folder: Path, *lines: Any) -> list[Piece]:
    """What a training reads of a file."""
    target = folder / "data.jsonl"
    training_file.convert(write(folder, *lines), target)
    return list(read_pieces(target))


def test_a_conversation_is_the_transcript_of_a_chat(tmp_path: Path) -> None:
    """Answers are learned, behind the very words that a request for a chat puts before them."""
    pieces = learned(tmp_path, {"messages": TALK})
    assert [(piece.text, piece.learn, piece.last) for piece in pieces] == [
        ("Be brief.\n\nUser: Hello!\nAssistant:", False, False),
        (" Hi.", True, False),
        ("\nUser: How are you?\nAssistant:", False, False),
        (" Well.", True, True),
    ]
    turns = [("system", "Be brief."), ("user", "Hello!"), ("assistant", "Hi."), ("user", "How are you?")]
    assert "".join(piece.text for piece in pieces[:-1]) == transcript(turns)


def test_weights_and_what_comes_after_the_last_answer(tmp_path: Path) -> None:
    """An answer of weight 0 is read; a question without an answer is dropped."""
    talk = [TALK[2] | {"weight": 0}, TALK[1], TALK[2], TALK[1]]
    pieces = learned(tmp_path, {"messages": talk})
    assert [(piece.text, piece.learn) for piece in pieces] == [
        ("Assistant: Hi.\nUser: Hello!\nAssistant:", False),
        (" Hi.", True),
    ]


def test_the_other_forms(tmp_path: Path) -> None:
    """A prompt with its completion, and a text; blank lines and a byte-order mark do not matter."""
    lines = ("\ufeff" + json.dumps({"text": "Once."})).encode(), b"", {"prompt": "", "completion": " B"}
    pieces = learned(tmp_path, *lines)
    assert [(piece.text, piece.learn) for piece in pieces] == [("Once.", True), ("", False), (" B", True)]
    assert training_file.check(tmp_path / "file") == 2
    assert not training_file.has_conversations(tmp_path / "file")
    assert training_file.has_conversations(write(tmp_path, {"text": "a"}, {"messages": TALK}))


@pytest.mark.parametrize(("line", "why"), [
    (b"{", "not valid JSON"),
    (b"[1]", "not a JSON object"),
    (b"[" * 200_000, "nested too deeply"),
    (b'{"text": "\xff"}', "not UTF-8"),
    (b'{"text": "\\ud800"}', "half a character"),
    (b'{"text": "' + b"a" * training_file.LONGEST_LINE + b'"}', "longer than"),
    ({"txt": "a"}, "messages, or a prompt and a completion, or a text; it has 'txt'"),
    ({}, "it has nothing"),
    ({"text": 1}, "text must be a text"),
    ({"text": ""}, "text is empty"),
    ({"prompt": "a"}, "completion must be a text"),
    ({"completion": "a"}, "prompt must be a text"),
    ({"prompt": "a", "completion": ""}, "completion is empty"),
    ({"messages": []}, "1 to 1,024"),
    ({"messages": TALK * 205}, "1 to 1,024"),
    ({"messages": [1]}, r"messages\[0\]"),
    ({"messages": [{"role": "tool", "content": "a"}]}, r"messages\[0\].role"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, r"messages\[0\].content: only text"),
    ({"messages": TALK[:2]}, "no answer"),
    ({"messages": [TALK[2] | {"weight": 0.5}]}, "weight"),
    ({"messages": TALK, "tools": [{}]}, "tools"),
])  # fmt: skip
def test_the_first_wrong_line_is_named(tmp_path: Path, line: Any, why: str) -> None:
    """By its number in the file, blank lines counted."""
    path = write(tmp_path, {"text": "fine"}, b"", line, {"text": "fine"})
    with pytest.raises(InputError, match=f"^line 3: .*{why}"):
        training_file.check(path)


def test_nothing_to_learn(tmp_path: Path) -> None:
    """An empty file, and one of blank lines."""
    with pytest.raises(InputError, match="no lines"):
        training_file.check(write(tmp_path, b"\n \n"))
