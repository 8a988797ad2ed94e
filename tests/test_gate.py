"""The gate: no line of the package reads a pickle, runs a text as code or a shell; one line, in the
converter, is excepted.
"""

import ast
from pathlib import Path

import pytest

import glassformer

SOURCE = Path(glassformer.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))
CONVERTER = SOURCE / "hub" / "unpickle.py"

# Modules whose readers run what they read.
MODULES = {"pickle", "_pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve", "jsonpickle"}
CALLS = {
    "eval",
    "exec",
    "compile",
    "__import__",
    "torch.load",
    "torch.serialization.load",
    "torch.jit.load",
    "torch.hub.load",
}
CALLS |= {"yaml.load", "yaml.unsafe_load", "yaml.full_load", "os.system", "os.popen", "subprocess.getoutput"}
SWITCHES = {"shell", "allow_pickle", "trust_remote_code"}  # arguments that may only be False


def faults(source: str) -> list[str]:
    """What a source does that the gate does not let pass, with its line."""
    tree = ast.parse(source)
    full = {"np": "numpy"}  # the name in this file -> its full name
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            full |= {alias.asname: alias.name for alias in node.names if alias.asname}
            found += [
                (node.lineno, alias.name) for alias in node.names if alias.name.split(".")[0] in MODULES
            ]
        elif isinstance(node, ast.ImportFrom):
            full |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
            found += [(node.lineno, str(node.module))] if str(node.module).split(".")[0] in MODULES else []
        elif isinstance(node, ast.Constant) and node.value == "trust_remote_code":
            found.append((node.lineno, "trust_remote_code"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name, dot, rest = ast.unparse(node.func).partition(".")
            name = full.get(name, name) + dot + rest
            found += [(node.lineno, name)] if name in CALLS else []
        if isinstance(node, ast.keyword) and node.arg in SWITCHES and ast.unparse(node.value) != "False":
            found.append((node.lineno, f"{node.arg}={ast.unparse(node.value)}"))
    return [f"line {line}: {what}" for line, what in sorted(found)]


@pytest.mark.parametrize(
    "path", [path for path in FILES if path != CONVERTER], ids=lambda path: str(path.relative_to(SOURCE))
)
def test_no_file_runs_what_it_reads(path: Path) -> None:
    """Not one file of the package has such a line."""
    assert faults(path.read_text(encoding="utf-8")) == []


def test_converter_has_one_such_line() -> None:
    """The converter's child reads a pickle in one line, for weights only, without a way around it."""
    source = CONVERTER.read_text(encoding="utf-8")
    assert [fault.split(": ")[1] for fault in faults(source)] == ["torch.load"]
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    load = next(call for call in calls if ast.unparse(call.func) == "torch.load")
    given = {keyword.arg: ast.unparse(keyword.value) for keyword in load.keywords}
    assert given["weights_only"] == "True"
    assert "pickle_module" not in given
    assert not [call for call in calls if "safe_globals" in ast.unparse(call.func)]


def test_all_files_pass_the_gate() -> None:
    """The gate sees the whole package."""
    assert CONVERTER in FILES
    assert len(FILES) > 30


@pytest.mark.parametrize(
    "source",
    [
        "import pickle", "import pickle as p", "from pickle import loads", "import _pickle", "import dill", "import marshal",
        "def f():\n    import joblib", "import torch\ntorch.load(x)", "import torch as t\nt.load(x)",
        "import torch\ntorch.load(x, weights_only=True)", "from torch import load\nload(x)", "from torch import load as f\nf(x)",
        "from torch import jit\njit.load(x)", "import torch\ntorch.serialization.load(x)",
        "import numpy as np\nnp.load(x, allow_pickle=True)", "import numpy as np\nnp.load(x, allow_pickle=allowed)",
        "eval(x)", "exec(x)", "__import__(x)", "lambda: eval(x)", "f(shell=1)", "import os\nos.system(x)",
        "import subprocess\nsubprocess.run(x, shell=True)", "import subprocess\nsubprocess.run(x, shell=some)",
        "from os import system\nsystem(x)", "import os\nos.popen(x)", "f(trust_remote_code=True)",
        "f(**{'trust_remote_code': True})", "import yaml\nyaml.load(x)", "from yaml import load\nload(x)",
    ],
)  # fmt: skip
def test_gate_stops_what_it_should(source: str) -> None:
    """Each of these lines is stopped, under any name it is imported by."""
    assert len(faults(source)) == 1


@pytest.mark.parametrize(
    "source",
    [
        "model.eval()", "re.compile(x)", "import json\njson.load(x)", "import numpy as np\nnp.load(x)", "load(x)",
        "import numpy as np\nnp.load(x, allow_pickle=False)", "import subprocess\nsubprocess.run(x, shell=False)",
        "import yaml\nyaml.safe_load(x)", "'never a pickle'", "import torch\ntorch.save(x, y)",
    ],
)  # fmt: skip
def test_gate_lets_the_rest_pass(source: str) -> None:
    """What only looks similar is not stopped."""
    assert faults(source) == []
