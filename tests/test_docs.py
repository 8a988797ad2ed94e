"""The documents are run: every command and every piece of code in README, docs and examples."""

import json
import os
import re
import runpy
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from xml.etree import ElementTree

import nbclient
import nbformat
import pytest
import yaml

from glassformer import machine
from glassformer.cli import GROUPS, VERBS
from glassformer.cli import run as glass

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
NOT_RUN = re.compile(  # they set up, fetch, or take long; training is tried in tests/cli/test_train.py, `verify` in tests/verification
    r"^(make |source |git |pip |export |python |torchrun |glass (pull|convert|rm|train|finetune) |glass eval (gpt2|runs)|glass translate -m (runs|Helsinki)|glass verify|glass serve|glass studio)"
)


def blocks(kind: str) -> list[tuple[str, str]]:
    """(page, content) of every fenced block of a kind."""
    return [
        (page.name, text)
        for page in PAGES
        for text in re.findall(rf"```{kind}\n(.*?)```", page.read_text(), re.S)
    ]


COMMANDS = [line[2:] for _, text in blocks("console") for line in text.splitlines() if line.startswith("$ ")]
RUNNABLE = sorted({command.split("  #")[0].strip() for command in COMMANDS if not NOT_RUN.match(command[0:])})


@pytest.mark.parametrize("command", RUNNABLE)
def test_commands_of_the_documents(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each succeeds, with nothing on stderr."""
    words = shlex.split(command)
    assert words[0] == "glass"
    monkeypatch.setattr(machine, "BF16_PROBE", "print('sound')")  # the real one is tried elsewhere
    if "-o" in words:
        file = words[words.index("-o") + 1]
        words[words.index("-o") + 1] = str(tmp_path / file)
    with Path("/dev/null").open() as nothing:
        monkeypatch.setattr(sys, "stdin", nothing)
        code = glass(words[1:])
    printed = capsys.readouterr()
    logged = [line for line in printed.err.splitlines(keepends=True) if not line.startswith("… ")]
    if words[1] == "translate" and len(words) > 3:  # a question about a translation, which is logged
        logged = logged[1:]
    said = "".join(logged)
    assert (code, said) == (0, f"{tmp_path / file}\n" if "-o" in words else "")  # progress aside
    assert (tmp_path / file).stat().st_size if "-o" in words else printed.out.strip()


def test_there_are_commands() -> None:
    """The pattern that finds them finds them."""
    assert len(RUNNABLE) >= 8
    assert {"make demo", "make test"} <= {command.split("  #")[0].strip() for command in COMMANDS}


@pytest.mark.parametrize(("page", "code"), [block for block in blocks("python") if block[0] != "gallery.md"])
def test_code_of_the_documents(
    page: str, code: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python in the pages runs unchanged, and prints something."""
    monkeypatch.chdir(tmp_path)
    exec(compile(code, page, "exec"), {"__name__": "__main__"})
    assert capsys.readouterr().out.strip()


BIGRAM = """
import sys
import bigram_hub, torch
import glassformer as gf
from glassformer.errors import InputError
from glassformer.hub.families import FAMILIES, Entry, family
from glassformer.hub.folder import save_folder
from glassformer.tasks.recipe import shape_of
FAMILIES["bigram"] = Entry("glass-bigram", "bigram_hub")
bigram = family("bigram")
tokenizer = bigram.train_tokenizer(["the cat sat on the mat and the dog ran"] * 20, 280)
net = bigram.build(bigram.config(vocab=len(tokenizer), width=16, neurons=32)).initialize(0)
assert bigram.config(vocab=len(tokenizer), width=16, neurons=32).parameters == sum(p.numel() for p in net.parameters())
save_folder(gf_folder := __import__("pathlib").Path(sys.argv[1]) / "model", net, tokenizer=tokenizer)
lm = gf.load(str(gf_folder), engine="torch")
out = lm.generate("the cat", max_new_tokens=6, seed=0)
assert len(out.tokens) == 6
torch.testing.assert_close(lm.net(torch.tensor([[1, 2, 3]])), net(torch.tensor([[1, 2, 3]])))
shares = out.saliency().shares
assert (shares.argmax(1) == torch.arange(len(shares)).numpy() + len(out.prompt_tokens) - 1).all()
out.lens(), out.rankings(), out.neurons(), out.residual(), lm.top("the"), lm.update("the cat"), lm.embedding("the cat")
try:
    out.heads()
except InputError as error:
    print(error)
assert {"width", "neurons"} <= {one.name for one in __import__("dataclasses").fields(shape_of("bigram"))}
"""


def test_the_model_of_the_page_on_adding_one(tmp_path: Path) -> None:
    """Its two files make a model that loads, generates, answers questions, and reports what it lacks."""
    model, hub = re.findall(r"```py\n(.*?)```", (ROOT / "docs" / "adding_a_model.md").read_text(), re.S)
    (tmp_path / "bigram_model.py").write_text(model)
    (tmp_path / "bigram_hub.py").write_text(hub.replace("glassformer.models.bigram", "bigram_model"))
    command = [sys.executable, "-c", BIGRAM, str(tmp_path)]
    path = f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    child = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": path})
    assert child.returncode == 0, child.stderr
    assert "has no layers of attention heads" in child.stdout


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.name)
def test_examples(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every example runs, prints something, and is short."""
    runpy.run_path(str(path), run_name="__main__")
    assert capsys.readouterr().out.strip()
    assert len(path.read_text().splitlines()) < 60


def test_make_targets_of_the_documents() -> None:
    """Every `make` in the pages is a target."""
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    named = {
        word for page in PAGES for word in re.findall(r"(?:^\$ |`)make ([a-z-]+)", page.read_text(), re.M)
    }
    assert named
    assert named <= targets


def test_verbs_of_the_readme() -> None:
    """The table has a row for each group of verbs, and names every verb in it."""
    table = (ROOT / "README.md").read_text().split("| | verbs |")[1].split("\n\n")[0]
    rows = re.findall(r"^\| ([a-z ]+) \| (.*) \|$", table, re.M)
    named = {group: tuple(re.findall(r"`([a-z]+)`", verbs)) for group, verbs in rows}
    assert named == {group.lower(): verbs for group, verbs in GROUPS.items()}


def test_the_readme_begins_with_two_commands_and_a_picture() -> None:
    """In its first screen, and the picture has an alternative text."""
    first = (ROOT / "README.md").read_text().split("\n## ")[0]
    assert first.index("$ make demo\n$ make test") < first.index('<img src="docs/gallery/')
    assert len(re.findall(r'alt="([^"]+)"', first)[0]) > 100


def test_the_citation_is_that_of_the_package() -> None:
    """Name, version, license and keywords as in pyproject.toml, in the form of CFF 1.2.0."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["cff-version"] == "1.2.0"
    assert citation["title"].lower() == project["name"]
    for field in ("version", "license", "keywords"):
        assert citation[field] == project[field], field


def test_the_sites_are_the_sites() -> None:
    """The page is that of a real run."""
    made = runpy.run_path(str(ROOT / "docs" / "sites.py"))
    assert (ROOT / "docs" / "sites.md").read_text() == made["table"]()


def test_the_command_line_page_is_that_of_the_code() -> None:
    """Made by docs/cli.py, not by hand; every verb's own help is in it."""
    made: str = runpy.run_path(str(ROOT / "docs" / "cli.py"))["page"]()
    assert (ROOT / "docs" / "cli.md").read_text() == made, "run `make docs`"
    assert re.findall(r"^### glass (\w+)$", made, re.M) == list(VERBS)
    assert len(re.findall(r"^Usage: glass [a-z]+ ", made, re.M)) == len(VERBS)


def test_the_gallery_is_what_its_lines_make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every picture of the page, light and dark, comes out again: as large, and with the same words on it."""
    monkeypatch.chdir(ROOT)
    runpy.run_path(str(ROOT / "docs" / "gallery.py"))["main"](tmp_path)
    assert (tmp_path / "gallery.md").read_text() == (ROOT / "docs" / "gallery.md").read_text()
    there, made = (
        {path.name for path in (folder / "gallery").iterdir()} for folder in (ROOT / "docs", tmp_path)
    )
    assert there == made
    for name in made:
        old, new = (
            ElementTree.parse(folder / "gallery" / name).getroot() for folder in (ROOT / "docs", tmp_path)
        )
        assert old.attrib["viewBox"] == new.attrib["viewBox"], name
        assert len(list(old.iter())) == len(list(new.iter())), name


def test_the_speed_page_is_that_of_its_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Made of files of figures, not by hand: the page, and the picture."""
    page = runpy.run_path(str(ROOT / "benchmarks" / "peers" / "page.py"))
    runs = json.loads((ROOT / "docs" / "speed.json").read_text())
    file = ROOT / "docs" / "speed-translation.json"
    translation = json.loads(file.read_text()) if file.is_file() else None
    assert (ROOT / "docs" / "speed.md").read_text() == page["page"](runs, translation)
    for way, report in runs.items():
        assert (ROOT / "docs" / f"speed-{way}.svg").read_text() == page["picture"](report).to_svg()


def test_the_tables_of_tasks_are_those_of_their_figures(tmp_path: Path) -> None:
    """Made of files of figures, not by hand: summaries, classes, and the picture of few labels."""
    made = ["summarize.md", "classify.md", "few-labels.svg", "few-labels-dark.svg"]
    for name in (*made[:2], "few-labels.json", "transfer.json"):
        (tmp_path / name).write_text((ROOT / "docs" / name).read_text())
    runpy.run_path(str(ROOT / "docs" / "tasks.py"))["main"](tmp_path)
    for name in made:
        assert (tmp_path / name).read_text() == (ROOT / "docs" / name).read_text(), "run docs/tasks.py"


def test_the_table_of_the_server_is_that_of_its_figures(tmp_path: Path) -> None:
    """Made of a file of figures, not by hand; what a run writes is what the page has."""
    table = runpy.run_path(str(ROOT / "benchmarks" / "serve" / "table.py"))
    page, figures = ROOT / "docs" / "serving.md", ROOT / "docs" / "serve.json"
    assert page.read_text().count(table["BEGIN"]) == page.read_text().count(table["END"]) == 1
    if figures.is_file():
        for file in (page, figures):
            (tmp_path / file.name).write_text(file.read_text())
        table["write"](tmp_path)
        assert (tmp_path / page.name).read_text() == page.read_text()


def test_the_notebook_runs(tmp_path: Path) -> None:
    """The quickstart, in a real kernel: every cell, and its pictures in three forms."""
    notebook = nbformat.read(ROOT / "docs" / "quickstart.ipynb", as_version=4)
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": tmp_path}}).execute()
    forms = [set(one["data"]) for cell in notebook.cells for one in cell.get("outputs", []) if "data" in one]
    live = [one for one in forms if "application/vnd.jupyter.widget-view+json" in one]
    assert len(live) >= 5
    assert all({"image/svg+xml", "text/plain"} <= one for one in live)
    saved = nbformat.read(ROOT / "docs" / "quickstart.ipynb", as_version=4)
    still = [
        one
        for cell in saved.cells
        for one in cell.get("outputs", [])
        if "image/svg+xml" in one.get("data", {})
    ]
    assert len(still) == len(live)  # it reads without being run


def test_links_lead_somewhere() -> None:
    """What the pages link to and show exists: relative links, and pictures in light and dark."""
    relative = re.compile(r"""(?:\]\(|src="|srcset=")(?!https?:)([^)#"]+)""")
    for page in PAGES:
        for target in relative.findall(page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_house_page_names_every_file_and_folder() -> None:
    """Those of the package in its graph, tables and text; those of the repository in the table beside it."""
    package, _, beside = (ROOT / "docs" / "house.md").read_text().partition("Beside the package:")
    source = ROOT / "src" / "glassformer"
    inside = {path.name.removesuffix(".py") for path in source.iterdir() if not path.name.startswith("__pyc")}
    assert inside - {"__init__", "py.typed"} <= set(re.findall(r"`(\w+)`", package))

    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    folders = {name.split("/")[0] for name in listed.split() if "/" in name and not name.startswith(".")}
    table = re.findall(r"^\| `(\w+)` \|", beside.split("\n## ")[0], re.M)
    assert set(table) == folders - {"src"}


def test_slow_checks_are_listed() -> None:
    """Every test that is marked slow is listed in tests/README.md."""
    page = (ROOT / "tests" / "README.md").read_text()
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for name in re.findall(
            r"@pytest\.mark\.slow\n(?:@.*\n|    .*\n|\]\).*\n)*def (test_\w+)", path.read_text()
        ):
            assert f"`{name}`" in page, f"{name} in {path.name} is not listed"
