"""Pictures in files: every form, every mistake; and an answer as frame, array and notebook output."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from glassformer.answers.answer import Answer as Look
from glassformer.errors import InputError
from glassformer.figures.show import bundle
from glassformer.figures.view import View

FIXTURES = Path(__file__).parents[1] / "fixtures"


def test_every_form(looks: dict[str, Look], tmp_path: Path) -> None:
    """Each file has the format of its name."""
    for kind in ("attention", "lens", "steps", "saliency"):
        look = looks[kind]
        csv = look.to_csv().encode()[:20]
        starts = {
            ".svg": b"<svg",
            ".png": b"\x89PNG",
            ".pdf": b"%PDF",
            ".html": b"<!doctype html>",
            ".json": b"{",
            ".csv": csv,
        }
        for suffix, start in starts.items():
            path = look.save(tmp_path / f"{kind}{suffix}")
            assert path.read_bytes().startswith(start)
            assert path.stat().st_size > 100
        saved = json.loads((tmp_path / f"{kind}.json").read_text())
        assert saved["values"]
        assert saved["view"]["kind"] == look.view().spec["kind"]
    assert looks["lens"].view().save(tmp_path / "view.csv").read_text().splitlines()[0] == ",".join(
        looks["lens"].columns
    )
    assert looks["lens"].save(tmp_path / "LENS.SVG").read_text().startswith("<svg")


def test_width_and_theme(looks: dict[str, Look], tmp_path: Path) -> None:
    """One column of a paper; a dark ground."""
    wide, narrow = (View.to_svg(looks["probabilities"].view(), width=width) for width in (960, 360))
    assert (
        float(narrow.split('width="')[1].split('"')[0]) <= 360 < float(wide.split('width="')[1].split('"')[0])
    )
    dark = looks["attention"].save(tmp_path / "dark.svg", theme="dark").read_text()
    assert 'fill="#14171a"' in dark
    png = looks["attention"].save(tmp_path / "x.png").read_bytes()
    width = int.from_bytes(png[16:20], "big")  # two pixels for a unit
    drawn = float(looks["attention"].view().to_svg().split('width="')[1].split('"')[0])
    assert abs(width - 2 * drawn) <= 2
    png = looks["attention"].save(tmp_path / "slide.png", scale=4).read_bytes()
    assert abs(int.from_bytes(png[16:20], "big") - 4 * drawn) <= 4


@pytest.mark.parametrize(
    ("name", "how", "words"),
    [
        ("x.doc", {}, "a picture is saved as .svg, .png, .pdf, .html, numbers as .json or .csv"),
        ("nowhere/x.svg", {}, "cannot be written"),
        ("x.svg", {"theme": "pink"}, "theme must be light or dark, not 'pink'"),
        ("x.svg", {"width": 3}, "width must be between 120 and 10,000, not 3"),
        ("x.png", {"scale": 100}, "scale must be between 0.5 and 10, not 100"),
        ("x.svg", {"drawing": "pie"}, "'pie' is not a drawing of attention; there is matrix, arcs"),
    ],
)
def test_mistakes(looks: dict[str, Look], tmp_path: Path, name: str, how: dict[str, Any], words: str) -> None:
    """One sentence each."""
    with pytest.raises(InputError, match=words):
        looks["attention"].save(tmp_path / name, **how)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "cannot be read"),
        ("{", "is not JSON"),
        ("[]", "is not a view"),
        ('{"view": 1}', "is not a view"),
    ],
)
def test_files_that_are_no_views(tmp_path: Path, content: str | None, words: str) -> None:
    """One sentence each."""
    if content is not None:
        (tmp_path / "x.json").write_text(content)
    with pytest.raises(InputError, match=words):
        View.load(tmp_path / "x.json")


@pytest.mark.parametrize(
    ("key", "value"),
    [("caption", True), ("title", {}), ("sentence", None), ("kind", [[]]), ("series", [{}]), ("series", "x"), ("labels", [[]]),
     ("labels", ["a"] * 6), ("series", [{"name": "", "values": [10**400] * 5}])],
)  # fmt: skip
def test_views_with_something_wrong_inside(tmp_path: Path, key: str, value: object) -> None:
    """They are refused when they are loaded, not by an error of Python when they are drawn."""
    path = Path(shutil.copy(FIXTURES / "view-1.json", tmp_path))
    View.load(path)
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))
    with pytest.raises(InputError, match=rf"^{path}: is not a view that this version can draw"):
        View.load(path)


@pytest.mark.parametrize(("library", "suffix"), [("vl_convert", ".png"), ("vl_convert", ".pdf")])
def test_without_the_library(
    looks: dict[str, Look], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library: str, suffix: str
) -> None:
    """The sentence names what to install; vectors need nothing."""
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(InputError, match=r"pip install 'glassformer\[figures\]'"):
        looks["attention"].save(tmp_path / f"x{suffix}")
    looks["attention"].save(tmp_path / "x.svg")


def test_as_frame_and_array(looks: dict[str, Look], monkeypatch: pytest.MonkeyPatch) -> None:
    """The table as pandas has it, the numbers as NumPy has them."""
    frame = looks["lens"].to_frame()
    assert list(frame.columns) == looks["lens"].columns
    assert len(frame) == len(looks["lens"].rows)
    table = looks["attention"].to_numpy()["weights"]
    np.testing.assert_allclose(table.sum(1), 1, atol=1e-5)
    assert looks["lens"].to_numpy()["ranks"].shape == (13, len(looks["lens"].tokens))
    assert set(looks["rankings"].to_numpy()) == {"stages", "ranks", "logprobs", "first"}
    drawn = looks["attention"].view().to_numpy()
    np.testing.assert_allclose(np.nan_to_num(drawn), table, atol=1e-3)
    assert np.isnan(drawn[0, 1])
    assert set(looks["rankings_watch"].view().to_numpy()) == {"&", "'", "("}
    assert len(looks["robot"].view().to_numpy()) == 4
    assert looks["attention"].view("arcs").to_numpy().shape[1] == 3
    assert list(looks["lens"].view().to_frame().columns) == looks["lens"].columns
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(InputError, match=r"pip install 'glassformer\[notebook\]'"):
        looks["lens"].to_frame()


def test_outside_of_a_notebook(looks: dict[str, Look], capsys: pytest.CaptureFixture[str]) -> None:
    """A still picture and text; `show` prints the text."""
    forms = bundle(looks["attention"].view())
    assert set(forms) == {"image/svg+xml", "text/plain"}
    assert looks["attention"]._repr_mimebundle_() == forms
    looks["attention"].show()
    assert "storyteller: layer 1, head 0: attention" in capsys.readouterr().out


def test_a_page_needs_nothing_and_lets_nothing_in(hostile: dict[str, Look]) -> None:
    """No address, and no text that ends its script."""
    for look in hostile.values():
        page = look.to_html()
        assert page.count("</script>") == 2
        assert "onload=alert(1)>" not in page.replace("&lt;svg onload=alert(1)&gt;", "")
        for name in ("http://www.w3.org/2000/svg", "http://www.w3.org/XML/1998/namespace", "http-equiv"):
            page = page.replace(name, "")
        assert "http" not in page
