"""The errors a person may meet: each says in one sentence what was wrong, and where. Warnings, and counts."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar


class GlassError(Exception):
    """Anything Glassformer refuses or fails at, in words; the command line exits with `code`."""

    code = 1


class InputError(GlassError, ValueError):
    """What the caller gave cannot be used; the message names the field."""

    code = 2


class CheckpointError(InputError):
    """A file of a model is missing, broken or not what it says it is; the message names the file."""


class UnknownSite(InputError, KeyError):
    """A trace asked for a site that the run never met; the message lists those it did."""

    __str__ = Exception.__str__  # KeyError would show the message in quotes


class NetworkError(GlassError):
    """A download was needed and could not be made; the message says what was tried and what to do."""


class InsufficientMemory(InputError):
    """What was asked for would not fit in this machine's memory; nothing was allocated."""


_receiver: ContextVar[Callable[[str], object] | None] = ContextVar("receiver of warnings", default=None)


def warn(text: str) -> None:
    """One line on stderr, unless the program configures logging or receives warnings itself."""
    receive = _receiver.get()
    if receive is not None:
        receive(text)
        return
    import logging  # here: generating needs it hardly ever, and starts faster

    logging.getLogger("glassformer").warning(text)


@contextmanager
def warnings_to(receive: Callable[[str], object]) -> Iterator[None]:
    """Inside, the texts of `warn` go to a function."""
    before = _receiver.set(receive)
    try:
        yield
    finally:
        _receiver.reset(before)


def check_position(length: int, position: int) -> int:
    """A position of a text of this length, counted from 0; a negative one counts from the end."""
    counted = position + length if position < 0 else position
    if not 0 <= counted < length:
        raise InputError(f"position {position} is out of range (the text has positions 0 to {length - 1})")
    return counted


def check_at_least(least: int, **fields: int) -> None:
    """Refuse a field that is too small."""
    for name, value in fields.items():
        if value < least:
            raise InputError(f"{name} must be at least {least}, not {value}")


def check_choice(known: Iterable[str], **fields: str) -> None:
    """Refuse a field that is none of what is known."""
    for name, value in fields.items():
        if value not in known:
            raise InputError(f"{name} {value!r} is none of {', '.join(known)}")


def check_dropout(dropout: float) -> None:
    """Refuse what is no probability, and 1, which would leave nothing."""
    if not 0 <= dropout < 1:
        raise InputError(f"dropout must be at least 0 and less than 1, not {dropout}")


def counted(count: int, noun: str) -> str:
    """`1 block`, `12 blocks`, `1,024 tokens`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
