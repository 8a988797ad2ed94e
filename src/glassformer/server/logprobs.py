"""Log-probabilities as the API has them: the legacy shape of completions, and that of chats.

They are the model's own, before temperature, filters and penalties.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

FLOOR = -9999.0  # in place of log 0: JSON has no infinity


class Entry(NamedTuple):
    """A token of a text: its bytes, where its text begins, and how likely it and others were."""

    id: int
    raw: bytes
    offset: int  # characters of the text before it
    logprob: float | None  # None: the first of a text, behind nothing
    top: tuple[tuple[int, bytes, float], ...] = ()
    named: tuple[tuple[int, bytes, float], ...] = ()


def finite(logprob: float) -> float:
    """A number that JSON has."""
    return max(logprob, FLOOR) if logprob == logprob else FLOOR


def readable(raw: bytes) -> str:
    """The text of a token; bytes that are no whole characters stay apart as `bytes:\\xf0\\x9f`."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)


def legacy(entries: Iterable[Entry]) -> dict[str, Any]:
    """`logprobs` of a completion: four lists of one length."""
    entries = list(entries)
    found: dict[str, Any] = {
        "tokens": [readable(one.raw) for one in entries],
        "token_logprobs": [None if one.logprob is None else finite(one.logprob) for one in entries],
        "top_logprobs": [None if one.logprob is None else _keyed(_with_chosen(one)) for one in entries],
        "text_offset": [one.offset for one in entries],
    }
    if any(one.named for one in entries):
        found["named_logprobs"] = [_keyed(one.named) or None for one in entries]
    return found


def _with_chosen(one: Entry) -> list[tuple[int, bytes, float]]:
    """The likeliest tokens and the chosen one, which may not be among them."""
    assert one.logprob is not None
    others = [other for other in one.top if other[0] != one.id]
    if len(others) < len(one.top):  # in its place, with the same float
        return [(one.id, one.raw, one.logprob) if other[0] == one.id else other for other in one.top]
    return [*others, (one.id, one.raw, one.logprob)]


def _keyed(tokens: Sequence[tuple[int, bytes, float]]) -> dict[str, float]:
    """Token text -> log-probability. Two tokens of one text do not share a key."""
    found: dict[str, float] = {}
    for id, raw, logprob in tokens:
        key = readable(raw)
        found[key if key not in found else f"token_id:{id}"] = finite(logprob)
    return found


def chat(entries: Iterable[Entry]) -> list[dict[str, Any]]:
    """`logprobs.content` of a chat: tokens with their true bytes."""
    found = []
    for one in entries:
        about = _token(one.raw, FLOOR if one.logprob is None else one.logprob)
        about["top_logprobs"] = [_token(raw, logprob) for _, raw, logprob in one.top]
        if one.named:
            about["named_logprobs"] = [_token(raw, logprob) for _, raw, logprob in one.named]
        found.append(about)
    return found


def _token(raw: bytes, logprob: float) -> dict[str, Any]:
    return {"token": readable(raw), "logprob": finite(logprob), "bytes": list(raw)}
