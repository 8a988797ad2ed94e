"""Files to fine-tune on: lines of JSON in OpenAI's forms, checked line by line, and as a training reads them.

A line is a conversation (`messages`), a `prompt` with a `completion`, or a `text`. Of a conversation the
answers of the assistant are learned, in the form in which `/v1/chat/completions` puts it to the model.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from pydantic import ValidationError

from glassformer.errors import InputError
from glassformer.server.chat import NAMES, content_of
from glassformer.server.errors import ApiError
from glassformer.server.schemas import Message

LONGEST_LINE = 1 << 20  # bytes
MOST_LINES = 1_000_000
MOST_MESSAGES = 1024
FORMS = "messages, or a prompt and a completion, or a text"
Example = dict[str, Any]


def examples(path: Path) -> Iterator[Example]:
    """The examples of a file; the first line that is none is named."""
    found = 0
    with path.open("rb") as file:
        for number, line in _lines(file):
            try:
                yield _example(_parsed(line))
            except InputError as error:
                raise InputError(f"line {number}: {error}") from None
            found += 1
    if not found:
        raise InputError("the file has no lines to learn from")


def check(path: Path) -> int:
    """The number of examples of a file that can be learned from."""
    return sum(1 for _ in examples(path))


def has_conversations(path: Path) -> bool:
    """Whether some line is a conversation."""
    return any("pieces" in one for one in examples(path))


def convert(path: Path, target: Path) -> None:
    """Write the examples as a training reads them: see data/sources.py."""
    with target.open("w", encoding="utf-8") as out:
        for one in examples(path):
            out.write(json.dumps(one, ensure_ascii=False) + "\n")


def _lines(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Lines that are not blank, with their numbers."""
    number = 0
    while line := file.readline(LONGEST_LINE + 1):
        number += 1
        if len(line) > LONGEST_LINE:
            raise InputError(f"line {number}: it is longer than {LONGEST_LINE:,} bytes")
        if number > MOST_LINES:
            raise InputError(f"line {number}: a file may have at most {MOST_LINES:,} lines")
        if line.strip():
            yield number, line


def _parsed(line: bytes) -> dict[str, Any]:
    try:
        text = line.decode("utf-8-sig")
        value = json.loads(text)
        if "\\u" in text:  # two halves of a character may be escaped; one is no text
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeDecodeError as error:
        raise InputError(f"it is not UTF-8 (byte {error.start})") from None
    except UnicodeEncodeError:
        raise InputError("it has half a character") from None
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error).partition(";")[0]
        raise InputError(f"it is not valid JSON ({reason})") from None
    if not isinstance(value, dict):
        raise InputError("it is not a JSON object")
    return value


def _example(value: dict[str, Any]) -> Example:
    """One line in the form that a training reads."""
    if "messages" in value:
        return {"pieces": _pieces(_messages(value))}
    if "prompt" in value or "completion" in value:
        prompt, completion = _text(value, "prompt"), _text(value, "completion")
        if not completion:
            raise InputError("completion is empty: there is nothing to learn")
        return {"prompt": prompt, "completion": completion}
    if "text" in value:
        text = _text(value, "text")
        if not text:
            raise InputError("text is empty: there is nothing to learn")
        return {"text": text}
    has = ", ".join(repr(key[:40]) for key in list(value)[:8]) or "nothing"
    raise InputError(f"it needs {FORMS}; it has {has}")


def _text(value: dict[str, Any], key: str) -> str:
    text = value.get(key)
    if not isinstance(text, str):
        raise InputError(f"{key} must be a text")
    return text


def _messages(value: dict[str, Any]) -> list[tuple[str, str, bool]]:
    """Role, text, and whether it is to be learned, of every message."""
    given = value["messages"]
    if not isinstance(given, list) or not 1 <= len(given) <= MOST_MESSAGES:
        raise InputError(f"messages must be a list of 1 to {MOST_MESSAGES:,} messages")
    if value.get("tools") or value.get("functions"):
        raise InputError("tools cannot be learned here")
    found: list[tuple[str, str, bool]] = []
    for at, one in enumerate(given):
        try:
            message = Message.model_validate(one)
            text = content_of(message.content, param=f"messages[{at}].content").strip()
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"][:1]))
            raise InputError(f"messages[{at}]{place and '.'}{place}: {first['msg']}") from None
        except ApiError as error:
            raise InputError(error.message) from None
        weight = (message.model_extra or {}).get("weight", 1)
        if weight not in (0, 1) or isinstance(weight, bool):
            raise InputError(f"messages[{at}].weight must be 0 or 1")
        found.append((message.role, text, message.role == "assistant" and weight == 1 and bool(text)))
    if not any(learn for _, _, learn in found):
        raise InputError("messages has no answer of the assistant to learn")
    while not found[-1][2]:  # what follows the last answer that is learned teaches nothing
        found.pop()
    return found


def _pieces(turns: list[tuple[str, str, bool]]) -> list[dict[str, Any]]:
    """A conversation as the transcript of server/chat.py, cut where learning begins and ends."""
    pieces, given = [], ""
    for at, (role, text, learn) in enumerate(turns):
        name = NAMES.get(role)
        if name is None:
            given += f"{text}\n\n"
        elif not learn:
            given += f"{name}: {text}\n"
        else:
            last = at == len(turns) - 1  # the end of a text, which is learned too, follows it
            pieces.append({"text": f"{given}{name}:", "learn": False})
            pieces.append({"text": f" {text}", "learn": True})
            given = "" if last else "\n"
    return pieces
