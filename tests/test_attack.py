"""The attack: hundreds of hostile uses of the package, from one seed (`make attack`). Its judge is tested quickly."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
SEED = os.environ.get("GLASSFORMER_ATTACK_SEED") or str(random.SystemRandom().randrange(10**9))


@pytest.mark.attack
def test_the_attack() -> None:
    """Every case ends with a result or one sentence; for one that does not, a command that repeats it is printed."""
    done = subprocess.run([sys.executable, "-m", "attack", SEED], cwd=TESTS)
    assert done.returncode == 0, f"GLASSFORMER_ATTACK_SEED={SEED}"


# What a command could do, in children of one process that has imported nothing large.
JUDGED = """
import json, os, signal, sys, tempfile, time, warnings
from pathlib import Path
from attack import process
from attack.process import Case, fault, run
from glassformer import cli

process.PATIENCE, process.LONG_ENOUGH, process.IDLE = 0.5, 0.2, 1

def say(*lines, code):
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
    "refuses": lambda: say("glass: no", code=2),
    "works for long": work,
    "works for ever": ignore,
    "waits": lambda: time.sleep(100),
    "raises": lambda: {}["x"],
    "crashes": lambda: os.kill(os.getpid(), signal.SIGSEGV),
    "has another code": lambda: say("glass: no", code=3),
    "fails silently": lambda: 2,
    "has two lines": lambda: say("glass: no", "and why", code=2),
    "has two errors": lambda: say("glass: no", "glass: no!", code=2),
    "has many words": lambda: say("glass: " + "no" * 5000, code=1),
    "escapes": lambda: say("glass: \\x1b[2J", code=1),
    "warns": lambda: print("[]") or warnings.warn("no"),
    "stops by itself": lambda: say("glass: stopped", code=130),
    "prints NaN": lambda: print("[NaN]"),
}
found = {}
with tempfile.TemporaryDirectory() as name:
    for action, function in ACTIONS.items():
        cli.call = lambda verb, arguments: function() or 0
        case = Case(["env", "--json"], is_long=action in ("works for long", "works for ever", "waits"))
        found[action] = fault(case, run(case, Path(name), Path(name) / action))
print(json.dumps(found))
"""
WRONG = {
    "works for ever": "a hang",
    "waits": "a hang",
    "raises": "a traceback",
    "crashes": "ended by SIGSEGV",
    "has another code": "exit code 3",
    "fails silently": "exit code 2 without a message",
    "has two lines": "an error of more than one line",
    "has two errors": "more than one error",
    "has many words": "a message of 10,007 characters",
    "escapes": "a message that is not printable",
    "warns": "a warning of Python",
    "stops by itself": "exit code 130 without Ctrl-C",
    "prints NaN": "--json printed something else",
}


def test_the_judge_sees_every_fault() -> None:
    """And no other: what succeeds, refuses, or works until Ctrl-C is sound."""
    done = subprocess.run([sys.executable, "-c", JUDGED], cwd=TESTS, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    sound = {"succeeds", "refuses", "works for long"}
    assert {action: found[action].partition(":")[0] for action in found} == WRONG | dict.fromkeys(sound, "")
