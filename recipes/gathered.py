"""Figures of many runs in one file: an entry a run, by the name of its folder.

Entries of runs that are not here stay as they are, so that trainings of several machines come together.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from glassformer.durable import replace_file


def known(file: Path) -> dict[str, Any]:
    """The entries that a file has so far; none, if it does not exist."""
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    return found


def finished(runs: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """The folder of every run that is done, and its figures."""
    for file in sorted(runs.glob("*/figures.json")):
        yield file.parent, json.loads(file.read_text(encoding="utf-8"))


def write(file: Path, entries: dict[str, Any]) -> None:
    """All entries, in the order of their names."""
    ordered = dict(sorted(entries.items()))
    replace_file(file, json.dumps(ordered, indent=1, ensure_ascii=False) + "\n")


def gather(runs: Path, file: Path) -> None:
    """Add the figures of the runs that are here."""
    here = {folder.name: figures for folder, figures in finished(runs)}
    write(file, known(file) | here)
