"""The house rules: which room may import which, what is loaded when, what is public, how a function may grow."""

import ast
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import glassformer

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "glassformer"

# Room -> rooms it may import (itself always). `errors`, `interrupt`, `machine`, `durable`, `files` and `waiting` are open
# to all.
MAY_IMPORT: dict[str, set[str]] = {
    "trace": set(),
    "nn": {"trace"},
    "models": {"trace", "nn"},
    "tokenizers": set(),
    "hub": {"models", "nn", "tokenizers"},
    "pretrained": set(),  # weights and cards, no code
    "data": {"tokenizers"},
    "training": {"trace", "nn"},
    "generation": set(),
    "engine": set(),
    "explain": {"trace", "nn"},
    "figures": set(),
    "answers": {"explain", "figures", "tokenizers", "data", "generation"},
    "tasks": {"answers", "hub", "tokenizers", "data", "training", "generation", "engine", "explain", "trace"},
    "verification": {"tasks", "answers", "hub", "tokenizers", "generation", "trace"},
    "server": {"tasks", "answers", "generation", "tokenizers"},
    "cli": {"server", "verification", "tasks", "answers", "figures"},
    "errors": set(),
    "interrupt": set(),
    "machine": set(),
    "durable": set(),
    "files": set(),
    "waiting": set(),
    "__main__": {"cli"},
    "__init__": {"tasks", "tokenizers", "trace", "training", "verification"},
}
OPEN_TO_ALL = {"errors", "interrupt", "machine", "durable", "files", "waiting"}
NO_TORCH = {
    "generation",
    "tokenizers",
    "data",
    "figures",
    "answers",
    "cli",
    "server",
    "engine",
    *OPEN_TO_ALL,
    "__init__",
}
LONGEST_FUNCTION, MOST_PARAMETERS, MOST_POSITIONAL = 50, 7, 2
DENSEST_FILE, DENSEST_PACKAGE = 13.0, 10.0  # nodes of the syntax tree per line; nanoGPT has 8.9
# Equations and forward passes take tensors in the order in which the article names them (q, k, v).
EQUATIONS = {"nn", "models"}

HOUSE = runpy.run_path(str(ROOT / "docs" / "house.py"))
FILES = sorted(SOURCE.rglob("*.py"))
each_file = pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))


def foreign_imports(path: Path) -> set[str]:
    """The libraries that a file imports, wherever in the file; what only a type checker sees does not count."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = [ast.Pass()]
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            found.add((node.module or "").split(".")[0])
    return found


@each_file
def test_imports_go_one_way(path: Path) -> None:
    """A room imports only the rooms below it; rooms without torch do not import it."""
    room = HOUSE["room_of"](path)
    allowed = MAY_IMPORT[room] | OPEN_TO_ALL | {room}
    assert HOUSE["imported"](path) <= allowed, room
    if room in NO_TORCH and room != "engine":
        assert not foreign_imports(path) & {"torch", "safetensors"}


def test_every_room_is_named() -> None:
    """A new room must declare what it may import, and a room that is gone must go from the table."""
    rooms = {
        path.name.removesuffix(".py")
        for path in SOURCE.iterdir()
        if path.name not in ("__pycache__", "py.typed")
    }
    assert rooms == set(MAY_IMPORT)


def test_the_house_page_is_that_of_the_code() -> None:
    """Made by docs/house.py, not by hand."""
    assert (ROOT / "docs" / "house.md").read_text() == HOUSE["page"]()


def test_the_hops_of_the_house_page_exist() -> None:
    """Every function on a token's way is in the file that the page names."""
    page = (ROOT / "docs" / "house.md").read_text()
    hops = re.findall(r"`([\w/]+\.(?:py|cpp))` · `([\w.]+)`", page)
    assert len(hops) >= 20
    for file, name in hops:
        source = (SOURCE / file).read_text()
        last = name.split(".")[-1]
        assert re.search(rf"\b(def|class) {last}\b|\b{last}\(", source), f"{file} has no {name}"


def functions(path: Path) -> Iterator[ast.FunctionDef]:
    """Every function of a file, inner ones too."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef):
            yield node


@each_file
def test_functions_stay_readable(path: Path) -> None:
    """At most 50 lines and 7 parameters; a forward pass at most 30 lines."""
    for function in functions(path):
        assert function.end_lineno is not None
        lines = function.end_lineno - function.lineno + 1
        most = 30 if function.name == "forward" else LONGEST_FUNCTION
        assert lines <= most, f"{function.name} has {lines} lines"
        given = function.args
        names = [one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
        count = len([name for name in names if name not in ("self", "cls")])
        assert count <= MOST_PARAMETERS, f"{function.name} has {count} parameters"


@each_file
def test_public_functions_name_their_arguments(path: Path) -> None:
    """At most two are positional: a call reads without the definition."""
    if HOUSE["room_of"](path) in EQUATIONS:
        return
    for function in public(ast.parse(path.read_text())):
        # A decorated function of `cli/` is called by click, with names; progress is a callback of three
        # numbers.
        called_by_name = HOUSE["room_of"](path) == "cli" and (
            function.decorator_list or function.name in ("convert", "progress")
        )
        if isinstance(function, ast.FunctionDef) and not called_by_name:
            given = function.args
            names = [one.arg for one in (*given.posonlyargs, *given.args) if one.arg not in ("self", "cls")]
            assert len(names) <= MOST_POSITIONAL, f"{function.name}({', '.join(names)})"


def density(path: Path) -> tuple[int, int]:
    """Nodes of the syntax tree, and lines that are not blank."""
    source = path.read_text()
    return sum(1 for _ in ast.walk(ast.parse(source))), sum(1 for line in source.splitlines() if line.strip())


def test_one_thought_a_line() -> None:
    """No file packs more into a line than a person reads at once, and the package as a whole packs less."""
    measured = {path: density(path) for path in FILES}
    for path, (nodes, lines) in measured.items():
        assert nodes <= DENSEST_FILE * max(lines, 10), f"{path.name}: {nodes / lines:.1f} nodes a line"
    nodes, lines = (sum(one[at] for one in measured.values()) for at in (0, 1))
    assert nodes <= DENSEST_PACKAGE * lines


def test_tests_mirror_the_rooms() -> None:
    """A test file is in the folder of its room, and its name begins with that of a module there."""
    for path in (ROOT / "tests").glob("*/test_*.py"):
        room = path.parent.name
        modules = {file.stem for file in (SOURCE / room).glob("*.py")}
        assert modules, f"{path}: no room {room}"
        name = path.stem.removeprefix("test_")
        whole_room = name in WHOLE_ROOM.get(room, ())
        assert whole_room or any(name == one or name.startswith(f"{one}_") for one in modules), path


# Tests of a room as a whole, by what they are about.
WHOLE_ROOM: dict[str, tuple[str, ...]] = {
    "cli": ("cli",),
    "engine": ("amx", "arm", "kernels"),
    "explain": ("family", "limits", "mutants", "storyteller", "transformerlens"),
    "server": ("clients", "load", "replicas"),
}


@pytest.mark.parametrize("code", [
    "import glassformer; dir(glassformer)",
    "from glassformer.cli import run; run(['--help'])",
    "from glassformer.cli import run; run([])",
    "from glassformer.cli import run; run(['generate', '--help'])",
    "from glassformer.cli import run; run(['train', '--help'])",
    "from glassformer.cli import run; run(['models'])",
    "from glassformer.cli import run; run(['tokenize', 'a text'])",
    "import glassformer.answers, glassformer.answers.answer",
    "import glassformer.hub.families, glassformer.tasks.load, glassformer.tasks.recipe",
])  # fmt: skip
def test_no_torch_before_it_is_needed(code: str) -> None:
    """Importing the package and asking for help load no torch."""
    check = f"{code}\nimport sys\nassert 'torch' not in sys.modules, 'torch was imported'"
    done = subprocess.run(
        [sys.executable, "-c", check], capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, done.stderr


def test_public_names() -> None:
    """Every public name exists, and no other."""
    assert sorted(glassformer.__all__) == dir(glassformer)
    for name in glassformer.__all__:
        assert callable(getattr(glassformer, name)), name
    with pytest.raises(AttributeError, match="no attribute 'lod'"):
        glassformer.lod  # noqa: B018


def public(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.ClassDef]:
    """Public functions and classes, and public methods of public classes that are more than a name or a
    one-liner.
    """
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            yield node
            inside = node.body if isinstance(node, ast.ClassDef) else []
            methods = (
                one for one in inside if isinstance(one, ast.FunctionDef) and not one.name.startswith("_")
            )
            yield from (one for one in methods if len(one.body) > 1)


def test_public_things_have_a_sentence() -> None:
    """Every public function and class has a docstring."""
    for path in FILES:
        for node in public(ast.parse(path.read_text())):
            small = node.name in ("forward", "asks", "alters", "read", "offer", "advance")
            assert ast.get_docstring(node) or small, f"{path.name}: {node.name}"


def test_no_package_index_is_named() -> None:
    """No package index is named by its address anywhere in the tree."""
    hosts = ["pypi" + ".org", "python" + "hosted", "npm" + "js"]
    files = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True).stdout.split()
    for name in files:
        path = ROOT / name
        if (
            path.suffix in (".py", ".md", ".toml", ".txt", ".json", "")
            and path.is_file()
            and path.stat().st_size < 1 << 20
        ):
            text = path.read_text(errors="replace")
            assert not any(host in text for host in hosts), name
