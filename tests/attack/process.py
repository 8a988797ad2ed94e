"""Run one case in a forked process, and judge how it ended.

A fork costs a few hundredths of a second, because everything is imported already. As a shell would, it gives
the child its streams, environment and limits; it can also send Ctrl-C in the middle of the work.
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

CPU_LIMIT = 30.0  # seconds of CPU until a case counts as hung; the usual ones take one or two
LONG_LIMIT = 2.0  # seconds of CPU until a long case gets Ctrl-C
WORKING = 0.03  # a case that uses fewer seconds of CPU in a second waits
IDLE_LIMIT = 10  # seconds of waiting until a case counts as hung
MEMORY = 6 << 30  # bytes that a case may allocate
LONGEST_MESSAGE = 3000  # characters
INTERRUPTED = 130  # the exit code after Ctrl-C
STOPPED = ("glass: stopped", "Stopped ")  # the last line then


@dataclass
class Case:
    """A command line or a function, with its streams, environment and limits."""

    arguments: list[str] = field(default_factory=list)
    call: Callable[[], object] | None = None  # instead of a command line
    note: str = ""  # shown beside the command line
    stdin: bytes | str = b""  # its content, or a kind of stream for `_connect`
    stdout: str = "file"  # a kind of stream for `_connect`
    stderr: str = "file"
    encoding: str = "utf-8"
    environment: dict[str, str] = field(default_factory=dict)  # added to the usual one
    interrupts: tuple[int, ...] = ()  # function calls until Ctrl-C, and from there to the next one
    largest_file: int = 1 << 28
    is_long: bool = False  # it may be minutes of valid work, and gets Ctrl-C then
    expected: tuple[int, ...] = (0, 1, 2)  # exit codes; 130 as well after Ctrl-C


@dataclass
class Outcome:
    """How a case ended."""

    code: int  # negative: killed by that signal
    out: str
    err: str
    trace: str  # of an exception that was not caught
    seconds: float
    stopped: bool  # it took long and got Ctrl-C
    hung: bool  # it had to be killed


def run(case: Case, folder: Path, logs: Path) -> Outcome:
    """Run a case in `folder`; what it prints is kept in `logs`."""
    logs.mkdir(parents=True)
    started = time.monotonic()
    terminals = [
        os.openpty() if kind == "terminal" else None for kind in (case.stdin, case.stdout, case.stderr)
    ]
    child = os.fork()
    if child == 0:
        _child(case, folder, logs, terminals)

    printed = bytearray()
    status, stopped, hung = _watch(case, child, [one[0] for one in terminals if one], printed)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # processes that it started and did not end
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
    """Wait for the end: the status, whether Ctrl-C was needed, and whether SIGKILL was needed.

    Time is measured in seconds of CPU, because the machine may be busy. A long case gets Ctrl-C; a case that waits
    without using the CPU has hung.
    """
    limit = LONG_LIMIT if case.is_long else CPU_LIMIT
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
        if idle > IDLE_LIMIT or busy > limit:
            hung = stopped or not case.is_long or idle > IDLE_LIMIT
            os.kill(child, signal.SIGKILL if hung else signal.SIGINT)
            stopped, limit = True, busy + CPU_LIMIT


def _text(path: Path, encoding: str = "utf-8") -> str:
    return path.read_bytes()[: 1 << 24].decode(encoding, "replace") if path.is_file() else ""


def _busy(group: int) -> tuple[float, bool]:
    """Seconds of CPU that a process group has used, and whether one of its processes is running."""
    ticks, ready = 0, False
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended
            fields = path.read_text().rpartition(")")[2].split()
            if int(fields[2]) == group:
                ticks += sum(map(int, fields[11:15]))
                ready = ready or fields[0] in "RD"
    return ticks / os.sysconf("SC_CLK_TCK"), ready


def _drain(masters: list[int]) -> bytes:
    """What was printed to terminals; waits for a few milliseconds."""
    ready, _, _ = select.select(masters, [], [], 0.005)
    shown = b""
    for master in ready:
        with contextlib.suppress(OSError):  # the other end is closed
            shown += os.read(master, 1 << 16)
    return shown


# Judging


def fault(case: Case, found: Outcome) -> str:
    """What is wrong with the way a case ended; empty if nothing is."""
    if found.trace or "Traceback (most recent call last)" in found.err:
        return "a traceback"
    if found.hung:
        return f"a hang: it did not end within {found.seconds:.0f} seconds"
    if found.code < 0:
        return f"killed by {signal.Signals(-found.code).name}"
    interrupted = found.stopped or bool(case.interrupts)
    if found.code not in case.expected and not (interrupted and found.code == INTERRUPTED):
        return f"exit code {found.code}, expected {' or '.join(map(str, case.expected))}"
    if re.search(r"(Warning: |Exception ignored|Fatal Python)", found.err):
        return "a warning from Python"
    if "--json" in case.arguments and found.code == 0 and case.stdout == "file" and not _is_json(found.out):
        return "--json printed something else"
    if found.code and case.stderr == "file" and case.call is None:
        return _fault_of_message(case, found)
    return ""


def _is_json(text: str) -> bool:
    def refuse(constant: str) -> None:
        raise ValueError(constant)

    try:
        json.loads(text, parse_constant=refuse)
    except ValueError:
        return text.startswith("Usage: ")  # --help goes first
    return True


def _fault_of_message(case: Case, found: Outcome) -> str:
    """An error is one line, the last one on stderr."""
    lines = found.err.rstrip("\n").split("\n")
    starts = STOPPED if found.code == INTERRUPTED else "glass: "
    errors = [line for line in lines if line.startswith(starts)]
    if not errors:
        return f"exit code {found.code} without a message"
    if errors[-1] != lines[-1]:
        return "an error of more than one line"
    # After each of several Ctrl-C, and in answer to each line of a dialog, there may be one.
    if len(errors) > 1 and found.code != INTERRUPTED and "--interactive" not in case.arguments:
        return "more than one error"
    if len(lines[-1]) > LONGEST_MESSAGE:
        return f"a message of {len(lines[-1]):,} characters"
    if not found.err.replace("\n", "").isprintable():
        return "a message that is not printable"
    return ""


# The child


def _child(case: Case, folder: Path, logs: Path, terminals: list[Any]) -> None:
    """Run a case in the child process; never returns."""
    code = 70
    try:
        os.setsid()  # the processes that it starts can be killed with it
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
    """Limit memory and the size of files; write no core dump."""
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
    """Run the command or the function; the exit code that Python would give."""
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
            return 120  # as Python does
        return int(end.code or 0)
    return 0


class Interrupts:
    """Ctrl-C after a number of function calls: a random moment that a seed repeats."""

    def __init__(self, counts: tuple[int, ...]) -> None:
        self.counts = list(counts)

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if event != "call" or not self.counts:
            return
        self.counts[0] -= 1
        if self.counts[0] <= 0 and not _ignores_exceptions(frame):
            del self.counts[0]
            signal.raise_signal(signal.SIGINT)


def _ignores_exceptions(frame: FrameType | None) -> bool:
    """Whether Python drops every exception here: in destructors and callbacks of weak references."""
    while frame is not None:
        name, file = frame.f_code.co_name, frame.f_code.co_filename
        if name in ("__del__", "_remove", "callback", "remove"):
            return True
        if file.endswith(("weakref.py", "_weakrefset.py")):
            return True
        frame = frame.f_back
    return False


def _connect_all(case: Case, logs: Path, terminals: list[tuple[int, int] | None]) -> None:
    given = case.stdin
    if isinstance(given, bytes):
        (logs / "in").write_bytes(given)
        given = "file"
    kinds = (given, case.stdout, case.stderr)
    for number, (name, kind) in enumerate(zip(("stdin", "stdout", "stderr"), kinds, strict=True)):
        if kind == "closed":
            setattr(sys, name, None)  # as Python does
            continue
        terminal = terminals[number]
        path = str(logs / ("in", "out", "err")[number])
        os.dup2(terminal[1] if terminal else _connect(kind, path, reading=number == 0), number)
        mode = "w" if number else "r"
        errors = "backslashreplace" if number == 2 else "strict"
        setattr(sys, name, os.fdopen(number, mode, encoding=case.encoding, errors=errors, closefd=False))
    for number, kind in enumerate(kinds):
        if kind == "closed":  # at the end, because opening a file takes the lowest free number
            os.close(number)


def _connect(kind: str, path: str, *, reading: bool) -> int:
    """The file descriptor of a stream of this kind."""
    if kind == "pipe":  # its other end is closed
        ends = os.pipe()
        os.close(ends[1] if reading else ends[0])
        return ends[0] if reading else ends[1]
    places = {"file": path, "full": "/dev/full", "null": "/dev/null", "zeros": "/dev/zero"}
    flags = os.O_RDONLY if reading else os.O_WRONLY | os.O_CREAT
    return os.open(places[kind], flags)
