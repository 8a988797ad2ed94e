"""What the machine is, and how the package protects itself on one where bf16 kills."""

import json
import os
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
    """Whatever the probe does, we live, and remember what it did."""
    monkeypatch.setattr(machine, "BF16_PROBE", probe)
    assert machine.bf16() == verdict
    monkeypatch.setattr(machine, "BF16_PROBE", "print('not run again')")
    assert machine.bf16() == verdict
    assert verdict in (home / "machine.json").read_text()
    assert machine.bf16(probe_again=True) == "crashes"


def test_the_real_probe() -> None:
    """On the machine of this test, bf16 works in one way or another."""
    assert machine.bf16() in ("safe", "safe without AMX")


def test_unknown_amx_is_kept_away(announces_amx: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A processor that announces AMX is not trusted until it was tried."""
    machine.guard_bf16()
    assert os.environ.pop("ONEDNN_MAX_CPU_ISA") == "AVX512_CORE_BF16"
    monkeypatch.setattr(machine, "BF16_PROBE", "print('sound')")
    assert machine.bf16() == "safe"
    machine.guard_bf16()
    assert "ONEDNN_MAX_CPU_ISA" not in os.environ


def test_a_users_own_choice_stays(announces_amx: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the environment says is not overwritten."""
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


def test_glass_env_tells_it_all(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As data: versions, cores, sets, bf16, where models are kept."""
    monkeypatch.setattr(machine, "BF16_PROBE", "print('sound')")
    assert run(["env", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["bf16"] == "safe"
    assert facts["torch"].startswith("2.")
    assert facts["models kept in"] == str(home / "models")
    assert {"glassformer", "python", "cores", "instruction sets", "bf16", "hub cache"} <= set(facts)
