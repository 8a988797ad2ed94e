"""Ctrl-C in the command `glass` is one word and exit code 130, from the package's first import on.

Python's own start-up comes before that, and ends as Python has it.
"""

import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from types import CodeType, FrameType

IMPORTING = "<frozen importlib._bootstrap>"  # the code that runs every import


def install(work: Callable[..., object] | None = None) -> None:
    """Handle Ctrl-C, unless it is ignored: that is how a shell starts what runs in its background.

    `work` is the function whose exceptions are reported; anywhere else Ctrl-C exits at once.
    """
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, partial(stop, work=work.__code__ if work else None))


def is_command() -> bool:
    """Whether the package is imported to run `glass`; any other program handles Ctrl-C itself."""
    name = os.path.basename(sys.argv[0]) if sys.argv else ""
    return name.split(".")[0] in ("glass", "-m")  # "-m" while Python looks for the module to run


def stop(number: int, frame: FrameType | None, *, work: CodeType | None) -> None:
    """Raise KeyboardInterrupt where it is handled; elsewhere there is nothing to clean up: exit at once."""
    if is_handled(frame, work):
        raise KeyboardInterrupt
    os.write(2, b"glass: stopped\n")
    os._exit(130)


def is_handled(frame: FrameType | None, work: CodeType | None) -> bool:
    """Whether a frame was called by `work`, and not by an import.

    An exception in the middle of torch's import kills the process.
    """
    working = False
    while frame is not None:
        if frame.f_code.co_filename == IMPORTING:
            return False
        working = working or frame.f_code is work
        frame = frame.f_back
    return working


def is_behind(error: BaseException | None) -> bool:
    """Whether an error is KeyboardInterrupt, or was raised because of it."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None
