"""Hundreds of hostile uses of the package from one seed (`make attack`), a few of them here, and the judge."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent


def attack(*arguments: str) -> int:
    """Run cases in a process without threads, which can fork; the exit code."""
    return subprocess.run([sys.executable, "-m", "attack", *arguments], cwd=TESTS).returncode


@pytest.mark.attack
def test_hundreds_of_cases() -> None:
    """No case fails; for one that does, a command that repeats it is printed."""
    seed, cases = os.environ.get("ATTACK_SEED"), os.environ.get("ATTACK_CASES")
    assert attack(*([seed] if seed else []), *(["--cases", cases] if cases else [])) == 0


def test_a_few_cases_of_every_kind() -> None:
    """A fixed seed, so that the attack itself keeps working."""
    assert attack("8", "--cases", "8") == 0


# Commands that end in every way, in children of a process that has imported nothing large.
JUDGED = """
import json, os, signal, sys, tempfile, time, warnings
from pathlib import Path
from attack import process
from attack.process import Case, fault, run
from glassformer import cli

signal.signal(signal.SIGINT, signal.default_int_handler)  # who runs the tests in the background ignores it
process.CPU_LIMIT, process.LONG_LIMIT, process.IDLE_LIMIT = 2.0, 0.2, 2

def report(*lines, code):
    print(*lines, sep="\\n", file=sys.stderr)
    return code

def work():
    while True:
        pass

def ignore():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    work()

ACTIONS = {
    "succeeds": lambda: print("[]"),
    "refuses": lambda: report("glass: no", code=2),
    "works for long": work,
    "ignores Ctrl-C": ignore,
    "waits": lambda: time.sleep(100),
    "raises": lambda: {}["x"],
    "crashes": lambda: os.kill(os.getpid(), signal.SIGSEGV),
    "exits with 3": lambda: report("glass: no", code=3),
    "exits with 1": lambda: report("glass: no", code=1),
    "fails silently": lambda: 2,
    "prints two lines": lambda: report("glass: no", "and why", code=2),
    "prints two errors": lambda: report("glass: no", "glass: no!", code=2),
    "prints a long message": lambda: report("glass: " + "no" * 5000, code=1),
    "prints escapes": lambda: report("glass: \\x1b[2J", code=1),
    "warns": lambda: print("[]") or warnings.warn("no"),
    "exits with 130": lambda: report("glass: stopped", code=130),
    "prints NaN": lambda: print("[NaN]"),
}
found = {}
with tempfile.TemporaryDirectory() as name:
    for action, function in ACTIONS.items():
        cli.call = lambda verb, arguments: function() or 0
        case = Case(["env", "--json"], is_long=action in ("works for long", "ignores Ctrl-C", "waits"))
        if action == "exits with 1":
            case.expected = (2,)
        found[action] = fault(case, run(case, Path(name), Path(name) / action))
print(json.dumps(found))
"""
WRONG = {
    "ignores Ctrl-C": "a hang",
    "waits": "a hang",
    "raises": "a traceback",
    "crashes": "killed by SIGSEGV",
    "exits with 3": "exit code 3, expected 0 or 1 or 2",
    "exits with 1": "exit code 1, expected 2",
    "fails silently": "exit code 2 without a message",
    "prints two lines": "an error of more than one line",
    "prints two errors": "more than one error",
    "prints a long message": "a message of 10,007 characters",
    "prints escapes": "a message that is not printable",
    "warns": "a warning from Python",
    "exits with 130": "exit code 130, expected 0 or 1 or 2",
    "prints NaN": "--json printed something else",
}


def test_the_judge_finds_every_fault() -> None:
    """And no fault in a command that succeeds, refuses, or works until Ctrl-C."""
    done = subprocess.run([sys.executable, "-c", JUDGED], cwd=TESTS, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    valid = {"succeeds", "refuses", "works for long"}
    assert {action: found[action].partition(":")[0] for action in found} == WRONG | dict.fromkeys(valid, "")
