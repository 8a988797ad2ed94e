"""Draw the rooms of the package and their imports from the code: `python docs/house.py` writes docs/house.md
anew.

The text of the page is its own; the part between the two marks is made here, and a test compares it with the
code.
"""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "glassformer"
PAGE = ROOT / "docs" / "house.md"
START, END = "<!-- from here on made by docs/house.py -->", "<!-- made by docs/house.py up to here -->"
SHARED = ("errors", "interrupt", "machine", "durable", "files", "waiting")  # every room may import these
Graph = dict[str, set[str]]


def room_of(path: Path) -> str:
    """The room of a file: its folder, or its own name."""
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported(path: Path) -> set[str]:
    """The rooms that a file imports, wherever in the file; what only a type checker sees does not count."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = [ast.Pass()]
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module == "glassformer":
            names |= {f"glassformer.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
        elif isinstance(node, ast.Constant) and re.fullmatch(r"glassformer(\.\w+)+", str(node.value)):
            names.add(str(node.value))  # modules that are imported on demand stand in tables, by name
    return {name.split(".")[1] for name in names if name.startswith("glassformer.")}


def graph() -> Graph:
    """Room -> the rooms that it imports."""
    found: Graph = {}
    for path in sorted(SOURCE.rglob("*.py")):
        room = room_of(path)
        found.setdefault(room, set()).update(imported(path) - {room})
    rooms = found.keys() - {"__init__", "__main__", *SHARED}
    return {room: found[room] & rooms for room in sorted(rooms)}


def layers(found: Graph) -> list[list[str]]:
    """Rooms by height: each imports only rooms of lower layers."""
    height: dict[str, int] = {}
    while len(height) < len(found):
        ready = [room for room, below in found.items() if room not in height and below <= height.keys()]
        assert ready, f"rooms import each other in a circle: {sorted(found.keys() - height.keys())}"
        for room in ready:
            height[room] = 1 + max((height[below] for below in found[room]), default=-1)
    top = max(height.values())
    return [sorted(room for room in found if height[room] == level) for level in range(top, -1, -1)]


def reduced(found: Graph) -> Graph:
    """Without the arrows that follow from others: if a imports b and b imports c, a → c is not drawn."""

    def reach(room: str) -> set[str]:
        return found[room].union(*(reach(below) for below in found[room]))

    direct = {}
    for room, below in found.items():
        indirect = set().union(*(reach(one) for one in below))
        direct[room] = below - indirect
    return direct


def sentence(room: str) -> str:
    """The first sentence of a room's docstring."""
    path = SOURCE / room / "__init__.py"
    tree = ast.parse((path if path.is_file() else SOURCE / f"{room}.py").read_text())
    first = (ast.get_docstring(tree) or "").split("\n\n")[0].replace("\n", " ")
    return first.rstrip(".")


def section() -> str:
    """The part of the page that is made of the code."""
    found = graph()
    arrows = [
        f"    {room} --> {below}" for room, all_of in reduced(found).items() for below in sorted(all_of)
    ]
    rows = [
        f"| `{room}` | {sentence(room)} | {', '.join(f'`{below}`' for below in sorted(found[room])) or '–'} |"
        for level in layers(found)
        for room in level
    ]
    shared = [f"| `{name}` | {sentence(name)} |" for name in SHARED]
    lines = [
        "```mermaid",
        "graph TD",
        *arrows,
        "```",
        "",
        "An arrow points to what a room imports; one that follows from others is left out of the drawing, not of the table.",
        "",
        "| room | what lives there | imports |",
        "|---|---|---|",
        *rows,
        "",
        "Every room may also import these files:",
        "",
        "| file | what it has |",
        "|---|---|",
        *shared,
    ]
    return "\n".join(lines)


def page() -> str:
    """The page with its made part as the code is now."""
    before, _, rest = PAGE.read_text().partition(START)
    _, _, after = rest.partition(END)
    return f"{before}{START}\n{section()}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(page())
