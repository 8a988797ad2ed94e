"""One case in a forked process of its own, and what must not come of it.

A fork costs a few hundredths of a second, because everything is imported already. It stands in for a shell: it gives
the child its streams, its environment and its limits, and Ctrl-C in the middle of the work.
"""

import contextlib
import json
import os
import re
import resource
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

CODES = (0, 1, 2, 130)
PATIENCE = 30.0  # seconds of CPU, for what takes one or two
LONG_ENOUGH = 2.0  # seconds of CPU of a command that was asked for more work than a person waits for
WORKING = 0.03  # seconds of CPU in a second: less is waiting
IDLE = 10  # seconds of waiting
MEMORY = 6 << 30  # bytes that a case may take
LONGEST_MESSAGE = 3000  # characters
STOPPED = "glass: stopped"


@dataclass
class Case:
    """A command line, or a function, and what is around it."""

    arguments: list[str] = field(default_factory=list)
    call: Callable[[], object] | None = None  # instead of a command line
    what: str = ""  # shown beside the command line
    stdin: bytes | str = b""  # content, or a way of `_connect`
    stdout: str = "file"  # a way of `_connect`
    stderr: str = "file"
    encoding: str = "utf-8"
    environment: dict[str, str] = field(default_factory=dict)  # beside the usual one
    interrupts: tuple[int, ...] = ()  # function calls until Ctrl-C, and from there to the next one
    largest_file: int = 1 << 28
    is_long: bool = False  # it may be real work that takes its time: stopped by Ctrl-C then
    sound: bool = False  # nothing is wrong with it, so that it must not be refused


@dataclass
class Outcome:
    """How a case ended."""

    code: int  # negative: by that signal
    out: str
    err: str
    trace: str  # of an exception that nothing caught
    seconds: float
    stopped: bool  # it took long and got Ctrl-C
    hung: bool  # and did not end then


def run(case: Case, folder: Path, logs: Path) -> Outcome:
    """Run a case in `folder`; what it prints is kept in `logs`."""
    logs.mkdir(parents=True)
    started = time.monotonic()
    terminals = [
        os.openpty() if way == "terminal" else None for way in (case.stdin, case.stdout, case.stderr)
    ]
    child = os.fork()
    if child == 0:
        _child(case, folder, logs, terminals)

    printed = bytearray()
    status, stopped, hung = _watch(case, child, [one[0] for one in terminals if one], printed)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # what it started and left behind
    for descriptor in [end for one in terminals if one for end in one]:
        os.close(descriptor)
    return Outcome(
        code=os.waitstatus_to_exitcode(status),
        out=_text(logs / "out", case.encoding) or printed.decode("utf-8", "replace"),
        err=_text(logs / "err", case.encoding),
        trace=_text(logs / "trace"),
        seconds=time.monotonic() - started,
        stopped=stopped,
        hung=hung,
    )


def _watch(case: Case, child: int, masters: list[int], printed: bytearray) -> tuple[int, bool, bool]:
    """Wait for the end: its status, whether Ctrl-C was needed, and whether only SIGKILL helped.

    Measured in seconds of CPU, because the machine may be busy with other things. A case that works for long gets
    Ctrl-C; one that waits for something that never comes has hung.
    """
    limit = LONG_ENOUGH if case.is_long else PATIENCE
    busy, idle, looked = 0.0, 0, time.monotonic()
    stopped = hung = False
    while True:
        printed += _drain(masters)
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return status, stopped, hung
        if time.monotonic() < looked + 1:
            continue
        looked = time.monotonic()
        before, (busy, ready) = busy, _busy(child)
        idle = 0 if ready or busy > before + WORKING else idle + 1
        if idle > IDLE or busy > limit:
            hung = stopped or not case.is_long or idle > IDLE
            os.kill(child, signal.SIGKILL if hung else signal.SIGINT)
            stopped, limit = True, busy + PATIENCE


def _text(path: Path, encoding: str = "utf-8") -> str:
    return path.read_bytes()[: 1 << 24].decode(encoding, "replace") if path.is_file() else ""


def _busy(group: int) -> tuple[float, bool]:
    """Seconds of CPU that the processes of a group have used, and whether one of them has something to do."""
    ticks, ready = 0, False
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended
            fields = path.read_text().rpartition(")")[2].split()
            if int(fields[2]) == group:
                ticks += sum(map(int, fields[11:15]))
                ready = ready or fields[0] in "RD"
    return ticks / os.sysconf("SC_CLK_TCK"), ready


def _drain(masters: list[int]) -> bytes:
    """What a terminal shows; waits a moment."""
    ready, _, _ = select.select(masters, [], [], 0.005)
    shown = b""
    for master in ready:
        with contextlib.suppress(OSError):  # its other end was closed
            shown += os.read(master, 1 << 16)
    return shown


# What must not come of it


def fault(case: Case, found: Outcome) -> str:
    """What is wrong with the way a case ended; empty if nothing is."""
    if found.trace or "Traceback (most recent call last)" in found.err:
        return "a traceback"
    if found.hung:
        return f"a hang: did not end within {found.seconds:.0f} seconds"
    if found.code < 0:
        return f"ended by {signal.Signals(-found.code).name}"
    if found.code not in CODES:
        return f"exit code {found.code}"
    if re.search(r"(Warning: |Exception ignored|Fatal Python)", found.err):
        return "a warning of Python"
    if case.sound and found.code not in (0, 130):
        return f"exit code {found.code} of a sound command"
    if "--json" in case.arguments and found.code == 0 and case.stdout == "file" and not _is_json(found.out):
        return "--json printed something else"
    if found.code == 130 and not (found.stopped or case.interrupts):
        return "exit code 130 without Ctrl-C"
    return _fault_of_message(case, found) if case.stderr == "file" and case.call is None else ""


def _is_json(text: str) -> bool:
    def refuse(constant: str) -> None:
        raise ValueError(constant)

    try:
        json.loads(text, parse_constant=refuse)
    except ValueError:
        return text.startswith("Usage: ")  # --help goes first
    return True


def _fault_of_message(case: Case, found: Outcome) -> str:
    """An error is one line on stderr, the last one."""
    lines = found.err.rstrip("\n").split("\n")
    errors = [line for line in lines if line.startswith("glass: ")]
    if found.code and (not errors or not lines[-1].startswith("glass: ")):
        return f"exit code {found.code} without a message" if not errors else "an error of more than one line"
    if found.code and len(errors) > 1 and set(errors) != {STOPPED} and "--interactive" not in case.arguments:
        return "more than one error"
    if found.code and len(lines[-1]) > LONGEST_MESSAGE:
        return f"a message of {len(lines[-1]):,} characters"
    return (
        ""
        if found.err.replace("\n", "").isprintable() or not found.code
        else "a message that is not printable"
    )


# The child


def _child(case: Case, folder: Path, logs: Path, terminals: list[Any]) -> None:
    """Become the process of a case; never returns."""
    code = 70
    try:
        os.setsid()  # so that what it starts can be ended with it
        os.chdir(folder)
        environment = _usual(folder) | case.environment
        os.environ.clear()
        os.environ.update(environment)
        sys.argv = ["glass", *case.arguments]
        _connect_all(case, logs, terminals)
        _limit(case.largest_file)
        code = _work(case)
    except BaseException:
        _limit(resource.RLIM_INFINITY)
        (logs / "trace").write_text(traceback.format_exc(), errors="replace")
    finally:
        os._exit(code)


def _limit(largest_file: int) -> None:
    """Bound memory and files; a crash leaves no image of its memory."""
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    limits = {"AS": mapped + MEMORY, "FSIZE": largest_file, "CORE": 0}
    for name, value in limits.items():
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (value, resource.RLIM_INFINITY))


def _usual(folder: Path) -> dict[str, str]:
    """An environment in which everything is kept inside the folder."""
    import glassformer

    return {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(Path(glassformer.__file__).parents[1]),  # for processes that the case starts
        "HOME": str(folder),
        "TMPDIR": str(folder),
        "GLASSFORMER_HOME": str(folder / "home"),
        "HF_HOME": str(folder / "hub"),
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
    }


def _work(case: Case) -> int:
    """Run the command or the function, and end as Python does."""
    from glassformer.errors import GlassError

    if case.call is not None:
        try:
            case.call()
        except GlassError as error:
            print(f"glass: {error}", file=sys.stderr, flush=True)
            return error.code
        return 0

    from glassformer import interrupt
    from glassformer.cli import main

    interrupt.install()
    if case.interrupts:
        sys.setprofile(Interrupts(case.interrupts))
    try:
        main()
    except SystemExit as end:
        sys.setprofile(None)
        try:
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
        except Exception:
            return 120  # as Python has it
        return int(end.code or 0)
    return 0


class Interrupts:
    """Ctrl-C after a number of function calls: a random moment that comes again with the same seed."""

    def __init__(self, counts: tuple[int, ...]) -> None:
        self.counts = list(counts)

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if event != "call" or not self.counts:
            return
        self.counts[0] -= 1
        if self.counts[0] <= 0 and not _is_deaf(frame):
            del self.counts[0]
            signal.raise_signal(signal.SIGINT)


def _is_deaf(frame: FrameType | None) -> bool:
    """Whether Python would drop an exception here, whatever the program does."""
    while frame is not None:
        name, file = frame.f_code.co_name, frame.f_code.co_filename
        if name in ("__del__", "_remove", "callback", "remove") or file.endswith(
            ("weakref.py", "_weakrefset.py")
        ):
            return True
        frame = frame.f_back
    return False


def _connect_all(case: Case, logs: Path, terminals: list[tuple[int, int] | None]) -> None:
    given = case.stdin
    if isinstance(given, bytes):
        (logs / "in").write_bytes(given)
        given = "file"
    ways = (given, case.stdout, case.stderr)
    for number, (name, way) in enumerate(zip(("stdin", "stdout", "stderr"), ways, strict=True)):
        if way == "closed":
            setattr(sys, name, None)  # as Python has it
            continue
        terminal = terminals[number]
        path = str(logs / ("in", "out", "err")[number])
        os.dup2(terminal[1] if terminal else _connect(way, path, reading=number == 0), number)
        mode = "w" if number else "r"
        errors = "backslashreplace" if number == 2 else "strict"
        setattr(sys, name, os.fdopen(number, mode, encoding=case.encoding, errors=errors, closefd=False))
    for number, way in enumerate(ways):
        if way == "closed":  # last: a file that is opened takes the lowest number that is free
            os.close(number)


def _connect(way: str, path: str, *, reading: bool) -> int:
    """The descriptor of a stream."""
    if way == "pipe":  # whose other end is closed
        ends = os.pipe()
        os.close(ends[1] if reading else ends[0])
        return ends[0] if reading else ends[1]
    places = {"file": path, "full": "/dev/full", "null": "/dev/null", "zeros": "/dev/zero"}
    flags = os.O_RDONLY if reading else os.O_WRONLY | os.O_CREAT
    return os.open(places[way], flags)
