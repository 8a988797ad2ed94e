"""A wheel in an empty environment: with its dependencies from a package index it has all that it needs."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import glassformer as gf
from glassformer.engine.build import compiler

ROOT = Path(__file__).parents[1]
PROMPT = "Once upon a time"


def copy_of_the_tracked_files(target: Path) -> Path:
    """What a clone has, as it is now: nothing that is built or ignored."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    for name in listed.stdout.split("\0")[:-1]:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, target / name)
    return target


@pytest.mark.slow
def test_a_wheel_in_an_empty_environment(tmp_path: Path) -> None:
    """`pip wheel`, `pip install`, then `glass` outside the clone: it generates, explains and draws."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    environment |= {"GLASSFORMER_HOME": str(tmp_path / "home"), "HF_HUB_OFFLINE": "1"}
    folder = tmp_path / "venv" / "bin"

    def run(*command: str | Path) -> str:
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    clone = copy_of_the_tracked_files(tmp_path / "clone")
    run(sys.executable, "-m", "venv", tmp_path / "venv")
    run(folder / "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", tmp_path, clone)
    (wheel,) = tmp_path.glob("*.whl")
    shutil.rmtree(clone)
    run(folder / "pip", "install", "--quiet", "--constraint", ROOT / "constraints.txt", wheel)
    run(folder / "pip", "check")

    where = run(folder / "python", "-c", "import glassformer; print(glassformer.__file__)")
    assert Path(where).is_relative_to(tmp_path)
    # On one machine the same seed gives the same text, whichever copy of the package generates it.
    expected = str(gf.load("storyteller").generate(PROMPT, max_new_tokens=30, seed=1))
    assert run(folder / "glass", "generate", "-n", "30", "-s", "1", PROMPT).strip() == expected.strip()
    assert ("native" in run(folder / "glass", "env")) == (compiler() is not None)
    for ending in ("svg", "html"):
        run(folder / "glass", "lens", "-o", f"lens.{ending}", PROMPT)
        assert "logit lens" in (tmp_path / f"lens.{ending}").read_text()
