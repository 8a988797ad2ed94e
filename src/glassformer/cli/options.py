"""Flags that several verbs share, and the few ways in which they print."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glassformer.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

Model = Annotated[
    str,
    typer.Option(
        "-m",
        "--model",
        help="A shipped name, a folder, a hub id (owner/name@revision) or a name kept at home.",
    ),
]
Revision = Annotated[str | None, typer.Option(help="Which revision of a hub model.")]
Offline = Annotated[bool, typer.Option("--offline", help="Never use the network.")]
Engine = Annotated[
    str, typer.Option(help="Who computes: native (int8, fast), torch (exact), or auto: native where it fits.")
]
Device = Annotated[str, typer.Option(help="Where to compute: cpu, cuda, mps.")]
Dtype = Annotated[str, typer.Option(help="float32, float64, bfloat16 or float16.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
File = Annotated[Path | None, typer.Option("-f", "--file", help="Read the text from a file.")]
Output = Annotated[
    Path | None,
    typer.Option(
        "-o", "--output", help="Save a picture (.svg, .png, .pdf, .html) or the numbers (.json, .csv)."
    ),
]
Dark = Annotated[bool, typer.Option("--dark", help="Save the picture on a dark ground.")]
Width = Annotated[int, typer.Option(help="How wide a saved picture may be; 360 suits one column of a paper.")]
DEFAULT_MODEL = "storyteller"


def out() -> "Console":
    """Results: stdout, plain where it is not a terminal; NO_COLOR is honoured."""
    from rich.console import Console

    return Console(highlight=False, soft_wrap=True, markup=False, emoji=False)


def log() -> "Console":
    """Progress and remarks: stderr."""
    from rich.console import Console

    return Console(stderr=True, highlight=False, soft_wrap=True, markup=False, emoji=False)


def print_json(value: Any) -> None:
    """One JSON document on stdout."""
    print(json.dumps(value, ensure_ascii=False, indent=2))


def read_prompt(text: str | None, file: Path | None) -> str:
    """A text from the argument, from a file, or from stdin (named "-", or piped in)."""
    if text is not None and file is not None:
        raise InputError("give a text or --file, not both")
    try:
        if file is not None:
            return _unended(file.read_bytes().decode("utf-8"))
        if text == "-" or (text is None and sys.stdin is not None and not sys.stdin.isatty()):
            return _unended(sys.stdin.buffer.read().decode("utf-8"))
    except OSError as error:
        raise InputError(f"{file}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise InputError(f"{file or 'stdin'}: not UTF-8 text") from None
    return as_text(text or "")


def as_text(given: str) -> str:
    """An argument, which may be any bytes, as text."""
    return given.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _unended(text: str) -> str:
    """Without the one line end that editors and `echo` put at the end of a text."""
    return text.removesuffix("\n").removesuffix("\r")
