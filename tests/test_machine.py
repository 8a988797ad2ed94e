"""What the machine is, and how the package protects itself on one where bf16 kills."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from glassformer import machine
from glassformer.cli import run

DYING = "import os, signal; os.kill(os.getpid(), signal.SIGILL)"
DYING_WITH_AMX = f"import os\nif 'ONEDNN_MAX_CPU_ISA' not in os.environ:\n    {DYING}\nprint('sound')"


@pytest.fixture
def announces_amx(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        machine, "cpu", lambda: {"name": "a processor", "sets": ["avx512f", "amx_tile", "amx_bf16"]}
    )
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)


@pytest.mark.parametrize(("probe", "verdict"), [
    ("print('sound')", "safe"), (DYING_WITH_AMX, "safe without AMX"), (DYING, "crashes"), ("print('wrong')", "crashes"),
])  # fmt: skip
def test_the_probe_dies_in_a_child(
    monkeypatch: pytest.MonkeyPatch, home: Path, probe: str, verdict: str
) -> None:
    """Whatever the probe does, this process goes on and keeps its result."""
    monkeypatch.setattr(machine, "BF16_PROBE", probe)
    assert machine.bf16() == verdict
    monkeypatch.setattr(machine, "BF16_PROBE", "print('not run again')")
    assert machine.bf16() == verdict
    assert verdict in (home / "machine.json").read_text()
    assert machine.bf16(probe_again=True) == "crashes"


def test_the_real_probe() -> None:
    """On the machine of this test, bf16 works in one way or another."""
    assert machine.bf16() in ("safe", "safe without AMX")


def test_unknown_amx_is_disabled(announces_amx: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A processor that announces AMX is not trusted until it was tried."""
    machine.guard_bf16()
    assert os.environ.pop("ONEDNN_MAX_CPU_ISA") == "AVX512_CORE_BF16"
    monkeypatch.setattr(machine, "BF16_PROBE", "print('sound')")
    assert machine.bf16() == "safe"
    machine.guard_bf16()
    assert "ONEDNN_MAX_CPU_ISA" not in os.environ


def test_a_users_own_choice_stays(announces_amx: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the environment sets is not overwritten."""
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    machine.guard_bf16()
    assert os.environ["ONEDNN_MAX_CPU_ISA"] == "AVX2"


def test_other_processors_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without AMX there is nothing to guard."""
    monkeypatch.setattr(machine, "cpu", lambda: {"name": "a processor", "sets": ["avx2"]})
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    machine.guard_bf16()
    assert "ONEDNN_MAX_CPU_ISA" not in os.environ


def test_bf16_is_refused_where_it_crashes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asking for it there is answered in words."""
    from glassformer.errors import InputError
    from glassformer.hub.folder import parse_dtype

    monkeypatch.setattr(machine, "BF16_PROBE", DYING)
    with pytest.raises(InputError, match="crashes on this machine"):
        parse_dtype("bfloat16")
    parse_dtype("float32")


def test_memory_and_cores() -> None:
    """Plausible numbers."""
    assert 1 <= machine.cores() <= 4096
    assert 50e6 < machine.available_memory() < 1e15


def test_a_home_that_cannot_be_written_to(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Costs a probe, nothing else."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("GLASSFORMER_HOME", str(tmp_path / "file" / "below"))
    monkeypatch.setattr(machine, "BF16_PROBE", "print('sound')")
    assert machine.bf16() == "safe"


def test_a_home_of_a_missing_user(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One sentence where it is needed; the package is imported all the same."""
    monkeypatch.setenv("GLASSFORMER_HOME", "~no-such-user/x")
    assert run(["tokenize", "a text"]) == 2
    assert capsys.readouterr().err == (
        "glass: no home folder is known for ~no-such-user/x; set GLASSFORMER_HOME to a folder\n"
    )
    monkeypatch.setattr(machine, "BF16_PROBE", "print('sound')")
    assert machine.bf16() == "safe"
    machine.guard_bf16()


@pytest.mark.parametrize("notes", ["[" * 100_000, "[1]", "3", "\ufffd"])
def test_notes_that_are_none(notes: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cost a probe, nothing else."""
    home.mkdir()
    (home / "machine.json").write_text(notes)
    monkeypatch.setattr(machine, "BF16_PROBE", "print('sound')")
    assert machine.bf16() == "safe"


@pytest.mark.parametrize("wish", ["\u0663", "9" * 5000, "-1", "0", "many", ""])
def test_threads_that_cannot_be(wish: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Are those of the machine."""
    monkeypatch.setenv("OMP_NUM_THREADS", wish)
    assert machine.threads() == machine.cores()
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert machine.threads() == 3


# What Windows does not have. Libraries choose by sys.platform what to import, so they are imported first; torch, which
# takes seconds, does not: modules that import it are read by the test below this one.
AS_ON_WINDOWS = """
import importlib, os, pkgutil, signal, sys
import filelock, huggingface_hub, numpy, rich.live, rich.progress, tokenizers
for name in ("resource", "fcntl", "termios", "tty", "pwd", "grp", "pty", "torch"):
    sys.modules[name] = None
for module, names in {
    os: "sysconf sched_getaffinity getuid fork mkfifo getloadavg O_NONBLOCK",
    signal: "SIGHUP SIGKILL SIGALRM SIGUSR1 alarm pthread_sigmask",
}.items():
    for name in names.split():
        delattr(module, name)

import glassformer
from glassformer import machine
imported = 0
for module in pkgutil.walk_packages(glassformer.__path__, "glassformer.", onerror=print):
    try:
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
            imported += 1
    except ImportError as error:
        assert error.name.startswith("torch"), f"{module.name}: {error}"
assert imported > 60, imported
import glassformer.tasks.bench

open_as_before = open
def no_proc(self, *how, **more):
    if str(self).startswith(("/proc/", "/sys/")):
        raise FileNotFoundError(str(self))
    return open_as_before(self, *how, **more)
machine.Path.open = no_proc
assert machine.cores() >= 1
assert machine.available_memory() == machine.UNKNOWN
machine.check_memory(10**15, what="anything")
from glassformer.hub.unpickle import confine
confine(1)
"""


def test_every_module_is_imported_without_what_windows_lacks() -> None:
    """And where memory is not known nothing is refused for lack of it; a pickle is not read without limits."""
    done = subprocess.run([sys.executable, "-c", AS_ON_WINDOWS], capture_output=True, text=True)
    assert (
        done.stderr == "a pickle is read within limits on memory and time, which this system does not have\n"
    )
    assert done.returncode == 1


def test_modules_that_windows_lacks_are_imported_with_care() -> None:
    """In a `try`, wherever they are imported: the part of the test above for modules that import torch."""
    lacking = {"resource", "fcntl", "termios", "tty", "pwd", "grp", "pty"}
    found = []
    for path in Path(machine.__file__).parent.rglob("*.py"):
        for node in ast.parse(path.read_text()).body:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) else []
            found += [f"{path.name} imports {name}" for name in names if name in lacking]
    assert not found


def test_glass_env_reports_everything(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As data: versions, cores, sets, bf16, where models are kept."""
    monkeypatch.setattr(machine, "BF16_PROBE", "print('sound')")
    assert run(["env", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["bf16"] == "safe"
    assert facts["torch"].startswith("2.")
    assert facts["models_kept_in"] == str(home / "models")
    assert {"glassformer", "python", "cores", "instruction_sets", "bf16", "hub_cache"} <= set(facts)


def test_what_is_kept_at_home(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its size, what it is, and what may be deleted; without a home there is nothing, and no error."""
    assert [one["size"] for one in machine.kept_at_home()] == [0] * 5
    (home / "engine" / "one").mkdir(parents=True)
    (home / "engine" / "one" / "numbers").write_bytes(bytes(2_000_000))
    kept = {Path(one["folder"]).name: one for one in machine.kept_at_home()}
    assert [kept[name]["may_be_deleted"] for name in ("models", "engine", "data")] == [False, True, True]
    assert kept["engine"]["size"] == 2_000_000
    assert run(["env"]) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if f"{home}/engine" in line)
    assert "2.0 MB  may be deleted: quantized copies of models" in line


def test_the_version_is_known_in_python(capsys: pytest.CaptureFixture[str]) -> None:
    """As `glass --version` says it."""
    import glassformer

    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"glassformer {glassformer.__version__}\n"
