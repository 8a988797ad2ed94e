"""Ctrl-C in the command `glass`: one word and exit code 130, whatever is being imported."""

import subprocess
import sys

import pytest

from glassformer import cli, interrupt

# Sends Ctrl-C to itself when a module is looked for, which no pause in milliseconds would hit.
INTERRUPTED = """
import os, signal, sys

class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[-1]:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupt())
sys.argv = ["glass", "tokenize", "a text", sys.argv[1]]
from glassformer.cli import main
sys.argv.pop()
main()
"""


@pytest.mark.parametrize("module", ["glassformer.machine", "click", "glassformer.tokenizers"])
def test_while_it_imports(module: str) -> None:
    """From the first import of the package on: no traceback, and not the end by a signal."""
    code = INTERRUPTED.replace("sys.argv[-1]", repr(module))
    done = subprocess.run([sys.executable, "-c", code, module], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "glass: stopped\n")


def test_a_program_that_imports_the_package_keeps_its_own_handler() -> None:
    """Only the command installs one; it is recognized by its name."""
    code = "import signal, glassformer; assert signal.getsignal(signal.SIGINT) is signal.default_int_handler"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.parametrize(
    ("name", "is_command"),
    [("/usr/bin/glass", True), ("glass.exe", True), ("-m", True), ("serve.py", False), ("", False)],
)
def test_what_is_the_command(name: str, is_command: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the name of the program."""
    monkeypatch.setattr(sys, "argv", [name])
    assert interrupt.is_command() == is_command


def test_at_work_it_is_an_exception(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that what is open is closed, and what is half printed ends with a line; before and after, it is the end."""
    seen = []
    work = cli.run.__code__
    monkeypatch.setattr(cli, "overview", lambda: seen.append(interrupt.is_handled(sys._getframe(), work)))
    cli.run(["--help"])
    assert seen == [True]
    assert not interrupt.is_handled(sys._getframe(), work)


@pytest.mark.parametrize("where", ["streams.prepare", "interrupt.install", "sys.stdout.flush"])
def test_before_and_after_the_work(where: str) -> None:
    """A moment in which nothing catches an exception: one word all the same."""
    code = f"""
import os, signal, sys
from glassformer import cli, interrupt
from glassformer.cli import streams
interrupt.install()
sys.argv = ["glass", "--version"]
if {where!r} == "sys.stdout.flush":
    streams.prepare()
    streams.prepare = lambda: None
{where} = lambda *_: os.kill(os.getpid(), signal.SIGINT)
cli.main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (130, "glass: stopped\n")


def test_an_error_that_it_caused() -> None:
    """Is known as one, and others are not."""
    error = ImportError("half a module")
    assert not interrupt.is_behind(error)
    error.__context__ = ValueError("half a constant")
    assert not interrupt.is_behind(error)
    error.__context__.__context__ = KeyboardInterrupt()
    assert interrupt.is_behind(error)
