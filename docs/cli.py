"""Write docs/cli.md, the reference of the command line, from the code: what every `--help` prints.

python docs/cli.py
"""

from pathlib import Path

import click

from glassformer.cli import GROUPS, command_of, overview

PAGE = Path(__file__).parent / "cli.md"
WIDTH = 100  # columns of a help text; a terminal may have fewer

HEAD = """\
# The command line

What `glass --help` and `glass VERB --help` print. This page is written by `python docs/cli.py` (`make docs`); a test compares
it with the code.

"""


def page() -> str:
    """The page, as the code is now."""
    contents = [f"- {group}: {', '.join(map(link, names))}" for group, names in GROUPS.items()]
    parts = [HEAD + "\n".join(contents), block(overview())]
    for group, names in GROUPS.items():
        parts.append(f"## {group}")
        for name in names:
            parts += [f"### glass {name}", block(help_of(name))]
    return "\n\n".join(parts) + "\n"


def link(name: str) -> str:
    """A verb, as a link to its part of the page."""
    return f"[`{name}`](#glass-{name})"


def block(text: str) -> str:
    """A text as it is on the terminal."""
    return f"```text\n{text}\n```"


def help_of(name: str) -> str:
    """What `glass VERB --help` prints, without flags that depend on others."""
    command = command_of(name, [])
    context = click.Context(
        command, info_name=f"glass {name}", terminal_width=WIDTH, **command.context_settings
    )
    return command.get_help(context)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
