"""The house rules: which room may import which, what is loaded when, what is public, how large a file may grow."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import glassformer

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "glassformer"

# Room -> rooms it may import (itself always). `errors`, `machine` and `durable` are open to all.
MAY_IMPORT = {
    "trace": set(),
    "nn": {"trace"},
    "models": {"trace", "nn"},
    "tokenizers": set(),
    "hub": {"nn", "models", "tokenizers"},
    "data": {"tokenizers"},
    "training": {"trace", "nn"},
    "generation": set(),
    "engine": set(),
    "explain": {"trace", "nn"},
    "figures": set(),
    "answers": {"explain", "figures", "tokenizers", "data", "generation"},
    "tasks": {
        "hub",
        "models",
        "tokenizers",
        "data",
        "training",
        "generation",
        "engine",
        "explain",
        "figures",
        "answers",
        "trace",
    },
    "cli": {"tasks", "answers", "figures"},
    "errors": set(),
    "machine": set(),
    "durable": set(),
    "__main__": {"cli"},
    "__init__": {"tasks", "tokenizers", "trace", "training"},
}
NO_TORCH = {"generation", "tokenizers", "data", "figures", "cli", "errors", "machine", "durable", "__init__"}


def room_of(path: Path) -> str:
    relative = path.relative_to(SOURCE)
    return relative.parts[0].removesuffix(".py")


def imports(path: Path) -> set[str]:
    """Every module that a file imports, wherever in the file; what only a type checker sees does not count."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = [ast.Pass()]
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            module = node.module or ""
            found |= (
                {f"{module}.{alias.name}" for alias in node.names} if module in ("glassformer",) else {module}
            )
    return found


FILES = sorted(SOURCE.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_go_one_way(path: Path) -> None:
    """A room knows only the rooms below it."""
    room = room_of(path)
    allowed = MAY_IMPORT[room] | {room, "errors", "machine", "durable"}
    for module in imports(path):
        parts = module.split(".")
        if parts[0] == "glassformer" and len(parts) > 1:
            assert parts[1] in allowed, f"{room} imports {module}"
        if room in NO_TORCH:
            assert parts[0] not in ("torch", "safetensors"), f"{room} imports {module}"


def test_every_room_is_named() -> None:
    """A new room must say what it may import."""
    assert {room_of(path) for path in FILES} <= set(MAY_IMPORT)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_files_stay_readable(path: Path) -> None:
    """A forward pass has at most 30 lines."""
    source = path.read_text()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef) and node.name == "forward":
            assert node.end_lineno is not None
            assert node.end_lineno - node.lineno < 30


@pytest.mark.parametrize("code", [
    "import glassformer; dir(glassformer)",
    "from glassformer.cli import run; run(['--help'])",
    "from glassformer.cli import run; run([])",
    "from glassformer.cli import run; run(['generate', '--help'])",
    "from glassformer.cli import run; run(['train', '--help'])",
    "from glassformer.cli import run; run(['models'])",
    "from glassformer.cli import run; run(['tokenize', 'a text'])",
])  # fmt: skip
def test_no_torch_before_it_is_needed(code: str) -> None:
    """Importing the package and asking for help load no torch."""
    check = f"{code}\nimport sys\nassert 'torch' not in sys.modules, 'torch was imported'"
    done = subprocess.run(
        [sys.executable, "-c", check], capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, done.stderr


def test_public_names() -> None:
    """What is promised is there, and nothing else is."""
    assert sorted(glassformer.__all__) == dir(glassformer)
    for name in glassformer.__all__:
        assert callable(getattr(glassformer, name)), name
    with pytest.raises(AttributeError, match="no attribute 'lod'"):
        glassformer.lod  # noqa: B018


def public(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.ClassDef]:
    """Public functions and classes, and public methods of public classes that are more than a name or a one-liner."""
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


def test_the_tree_speaks_of_itself_alone() -> None:
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
