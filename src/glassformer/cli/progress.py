"""One progress bar for everything that takes a while."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from glassformer.cli.printing import stderr

Advance = Callable[[int, int], None]


@contextmanager
def progress_bar(what: str) -> Iterator[Advance]:
    """A bar on stderr, where that is a terminal. Call what is yielded with how much is done, and of how much.

    A total of 0 means that it is not known.
    """
    console = stderr()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[done]}"),
        TimeRemainingColumn(),
    )
    # Only on a terminal may results go past the bar, to stderr; a file or a pipe must get them.
    live = Progress(
        *columns,
        console=console,
        transient=True,
        disable=not console.is_terminal,
        redirect_stdout=sys.stdout.isatty(),
    )
    with live as shown:
        task = shown.add_task(what, total=None, done="")

        def advance(done: int, total: int) -> None:
            share = f"{done / total:.0%}" if total else f"{done:,}"
            shown.update(task, completed=done, total=total or None, done=share)

        yield advance
