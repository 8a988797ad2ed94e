"""Ctrl-C in the command `glass` is one word and exit code 130, from the package's first import on.

Python's own start-up comes before that, and ends as Python has it.
"""

import os
import signal
import sys
from types import FrameType

IMPORTING = "<frozen importlib._bootstrap>"  # the code that runs every import
WORKING = ("glassformer.cli", "run")  # the function that runs a command; what it raises is reported


def install() -> None:
    """Handle Ctrl-C, unless it is ignored: that is how a shell starts what runs in its background."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, stop)


def is_command() -> bool:
    """Whether the package is imported to run `glass`; any other program handles Ctrl-C itself."""
    name = os.path.basename(sys.argv[0]) if sys.argv else ""
    return name.split(".")[0] in ("glass", "-m")  # "-m" while Python looks for the module to run


def stop(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt where it is handled; elsewhere there is nothing to clean up: exit at once."""
    if is_handled(frame):
        raise KeyboardInterrupt
    os.write(2, b"glass: stopped\n")
    os._exit(130)


def is_handled(frame: FrameType | None) -> bool:
    """Whether the command is at work in a frame, and not importing.

    An exception in the middle of torch's import kills the process.
    """
    working = False
    while frame is not None:
        if frame.f_code.co_filename == IMPORTING:
            return False
        working = working or (frame.f_globals.get("__name__"), frame.f_code.co_name) == WORKING
        frame = frame.f_back
    return working


def is_behind(error: BaseException | None) -> bool:
    """Whether an error is KeyboardInterrupt, or was raised because of it."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None
