"""The streams of a command, which may be closed, full, or lead to a reader that leaves."""

import io
import os
import select
import stat
import sys
from typing import TextIO, cast

from glassformer.errors import GlassError

STREAMS = ("stdin", "stdout", "stderr")  # in the order of their descriptors: 0, 1, 2


class Messages(io.TextIOWrapper):
    """stderr. A message that cannot be written, as on a full disk, is dropped: the work goes on."""

    def write(self, text: str) -> int:
        """Write, or give up the stream."""
        if text == "":  # click tries a stream in this way, and would swallow the error
            return 0
        try:
            return super().write(text)
        except OSError as error:
            self._give_up(error)
        return len(text)

    def flush(self) -> None:
        """Flush, or give up the stream."""
        try:
            super().flush()
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        # What is left in the buffer is written once more when Python ends: let that succeed.
        os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())


class Results(Messages):
    """stdout. A result that cannot be written is an error; a reader that left (`| head -1`) is not."""

    def _give_up(self, error: OSError) -> None:
        super()._give_up(error)
        if isinstance(error, BrokenPipeError):
            raise error
        raise GlassError(f"the result could not be written to stdout ({error.strerror})") from None


def prepare() -> None:
    """Give the process three streams that can be used."""
    for descriptor, name in enumerate(STREAMS):
        if getattr(sys, name) is None:
            setattr(sys, name, _empty(descriptor))
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="replace")  # what is typed may be any bytes
    sys.stdout = _wrapped(sys.stdout, Results)
    sys.stderr = _wrapped(sys.stderr, Messages)


def is_pipe() -> bool:
    """Whether stdin comes from another command; it may also be a terminal, a file or /dev/null."""
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (OSError, ValueError):  # closed, or not a file
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def has_input(*, wait: bool) -> bool:
    """Whether stdin is a pipe with something in it; without `wait`, already now."""
    if not is_pipe():
        return False
    try:
        ready = wait or select.select([sys.stdin], [], [], 0)[0]
    except OSError:  # Windows cannot ask a pipe
        return False
    return bool(ready) and bool(cast(io.BufferedReader, sys.stdin.buffer).peek(1))


def _empty(descriptor: int) -> TextIO:
    """A stream that was closed (`>&-`) is an empty one.

    Left closed, its descriptor would go to the next file that is opened, and messages into that file.
    """
    opened = os.open(os.devnull, os.O_RDWR)
    if opened != descriptor:
        os.dup2(opened, descriptor)
        os.close(opened)
    return open(descriptor, "w" if descriptor else "r", encoding="utf-8", closefd=False)


def _wrapped(stream: TextIO, kind: type[Messages]) -> TextIO:
    """The stream as one of this kind. What its encoding lacks is shown as "?"."""
    if not isinstance(stream, io.TextIOWrapper):
        return stream
    encoding, by_line, at_once = stream.encoding, stream.line_buffering, stream.write_through
    return kind(
        stream.detach(), encoding=encoding, errors="replace", line_buffering=by_line, write_through=at_once
    )
