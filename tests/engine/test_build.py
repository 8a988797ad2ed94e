"""How the core is built: by any C++17 compiler, without one not at all, with warnings as errors, and clean
under sanitizers.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from glassformer.engine import build, native

SAME = Path(__file__).with_name("same.cpp")
FORWARD = build.HERE / "core" / "forward.cpp"
TESTS = Path(__file__).parent


def compiled(way: str, target: Path, *flags: str) -> Path:
    """The check of same.cpp for one instruction set."""
    cxx = build.compiler()
    assert cxx is not None
    plain = [flag for flag in build.FLAGS if flag != "-shared"]
    command = [cxx, *plain, *build.WAYS[way], *flags, str(SAME), str(FORWARD), "-o", str(target)]
    subprocess.run(command, check=True, timeout=600)
    return target


def test_without_a_compiler_nothing_is_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing fails."""
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert build.build(tmp_path / "built") == []
    monkeypatch.delenv("CXX")
    monkeypatch.setenv("PATH", "")
    assert build.build(tmp_path / "built") == []


def test_a_compiler_that_fails_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each instruction set is tried on its own; a failure is reported and leaves no file."""
    fake = tmp_path / "cxx"
    fake.write_text("#!/bin/sh\necho 'this compiler is broken' >&2\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setenv("CXX", str(fake))
    assert build.build(tmp_path / "built") == []
    assert "this compiler is broken" in capsys.readouterr().err
    assert list((tmp_path / "built").glob("*.so")) == []


@pytest.mark.parametrize(
    ("machine", "ways"),
    [
        ("x86_64", ["plain", "avx2", "avxvnni", "avx512", "amx"]),
        ("AMD64", ["plain", "avx2", "avxvnni", "avx512", "amx"]),
        ("aarch64", ["plain", "neon", "dotprod"]),
        ("arm64", ["plain", "neon", "dotprod"]),
        ("riscv64", ["plain"]),
    ],
)
def test_each_machine_has_its_instruction_sets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine: str, ways: list[str]
) -> None:
    """Under the names that the package looks for."""
    fake = tmp_path / "cxx"
    fake.write_text('#!/bin/sh\nfor last; do :; done\necho "$@" > "$last"\n')
    fake.chmod(0o755)
    monkeypatch.setenv("CXX", str(fake))
    monkeypatch.setattr(build.platform, "machine", lambda: machine)
    assert build.build(tmp_path / "built") == ways
    assert {path.name for path in (tmp_path / "built").iterdir()} == {f"core-{way}.so" for way in ways}
    assert set(ways) <= set(native.WAYS)
    for way in ways:
        assert set(build.WAYS[way]) <= set((tmp_path / "built" / f"core-{way}.so").read_text().split())


def test_floats_are_rounded_as_written_and_warnings_are_errors() -> None:
    """The same bits need the first, safety the second."""
    assert {"-ffp-contract=off", "-Werror", "-Wall", "-Wextra", "-Wconversion"} <= set(build.FLAGS)
    assert not {"-ffast-math", "-Ofast", "-march=native"} & set(build.FLAGS)


@pytest.mark.slow
def test_every_instruction_set_gives_the_same_hashes(tmp_path: Path) -> None:
    """Programs of their own, without Python: whole, in pieces, in batches, with one thread and two."""
    found = {
        way: subprocess.run([compiled(way, tmp_path / way)], capture_output=True, text=True)
        for way in native.ways()
    }
    for way, done in found.items():
        assert done.returncode == 0, (way, done.stdout)
    assert len({done.stdout.partition("\n")[2] for done in found.values()}) == 1


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("clang++") is None, reason="clang++ is not installed")
def test_clang_gives_the_hashes_of_gcc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It lays out vectors in its own way; on a Mac it is the compiler that there is."""
    said = []
    for cxx in ("g++", "clang++"):
        monkeypatch.setenv("CXX", cxx)
        program = compiled("plain", tmp_path / cxx)  # its floats are narrow: the compiler lays out the most
        said.append(subprocess.run([program], capture_output=True, text=True, check=True).stdout)
    assert said[0] == said[1]


@pytest.mark.slow
@pytest.mark.parametrize("sanitizer", ["address,undefined", "thread"])
def test_sanitizers_find_nothing(tmp_path: Path, sanitizer: str) -> None:
    """Memory, undefined behavior, races: on every instruction set that this machine has."""
    flags = (f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all", "-O1", "-g", "-Wno-error")
    for way in native.ways():
        done = subprocess.run(
            [compiled(way, tmp_path / way, *flags)], capture_output=True, text=True, timeout=900
        )
        assert done.returncode == 0, (way, done.stdout[-2000:], done.stderr[-4000:])


@pytest.mark.slow
def test_kernels_and_fuzzing_under_sanitizers(tmp_path: Path) -> None:
    """The tests of the kernels, and shapes and lengths of all kinds, with a core that checks every access."""
    flags = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-Wno-error")
    built = build.build(tmp_path / "built", *flags)
    assert "plain" in built
    cxx = build.compiler()
    assert cxx is not None
    libraries = [
        subprocess.run(
            [cxx, f"-print-file-name={name}"], capture_output=True, text=True, check=True
        ).stdout.strip()
        for name in ("libasan.so", "libubsan.so")
    ]
    tests = [str(TESTS / name) for name in ("test_kernels.py", "test_native.py")]
    code = f"""
import sys
from pathlib import Path
from glassformer.engine import native
native.folder = lambda: Path({str(tmp_path / "built")!r})
import pytest
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "-k", "not restart and not forked and not thousand", *{tests!r}]))
"""
    environment = os.environ | {
        "KERNEL_FLAGS": " ".join(flags),
        "LD_PRELOAD": " ".join(libraries),
        "ASAN_OPTIONS": "detect_leaks=0",
        "UBSAN_OPTIONS": "print_stacktrace=1",
    }
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=3000
    )
    assert done.returncode == 0, (done.stdout[-3000:], done.stderr[-3000:])
