"""Streams that are closed, full, or lead to a reader that left: processes, as a shell starts them."""

import subprocess
import sys
from pathlib import Path

import pytest

GLASS = f"{sys.executable} -m glassformer"
FULL = "glass: the result could not be written to stdout (No space left on device)\n"


def shell(command: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr; what is left in a buffer is written when Python ends."""
    command = f"unset PYTHONUNBUFFERED; {command}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("streams", "is_shown"),
    [("<&-", True), (">&-", True), ("2>&-", False), ("<&- >&- 2>&-", False), ("2>/dev/full", False)],
)
def test_an_error_keeps_its_code(streams: str, is_shown: bool) -> None:
    """A message goes to stderr or nowhere, never into the results."""
    code, out, err = shell(f"{GLASS} genrate {streams}")
    assert (code, out) == (2, "")
    assert err.startswith("glass: 'genrate' is not a verb; did you mean") if is_shown else err == ""


def test_results_that_cannot_be_written() -> None:
    """A full device is an error; a closed stdout is one that nothing is wanted from."""
    assert shell(f"{GLASS} --help >/dev/full") == (1, "", FULL)
    assert shell(f"{GLASS} env --help >/dev/full") == (1, "", FULL)
    assert shell(f"PYTHONUNBUFFERED=1 {GLASS} env --help >/dev/full") == (1, "", FULL)
    assert shell(f"{GLASS} --help >&-") == (0, "", "")
    assert shell(f"{GLASS} --help 2>&- | head -1") == (0, "Usage: glass VERB [ARGUMENTS]\n", "")


def test_one_error_is_reported() -> None:
    """The first one, where stdout is full as well."""
    code = "from glassformer import cli; cli.run = lambda _: print(1) or cli.complain('no', 2); cli.main()"
    assert shell(f'{sys.executable} -c "{code}" >/dev/full') == (2, "", "glass: no\n")


def test_a_closed_stream_is_an_empty_one(tmp_path: Path) -> None:
    """To read and to write; and no file that is opened later gets its number."""
    code = "import sys; from glassformer.cli.streams import prepare; prepare(); print("
    code += "[stream.fileno() for stream in (sys.stdin, sys.stdout, sys.stderr)], sys.stdin.read() == '')"
    assert shell(f'{sys.executable} -c "{code}" <&- 2>&-') == (0, "[0, 1, 2] True\n", "")
    (tmp_path / "models" / "gem").mkdir(parents=True)
    (tmp_path / "models" / "gem" / "config.json").write_text("{}")
    asked = shell(f"GLASSFORMER_HOME={tmp_path} {GLASS} rm gem <&-")
    assert asked == (2, "", "glass: rm asks before it removes; without a terminal give --yes\n")
