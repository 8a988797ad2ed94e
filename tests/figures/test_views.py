"""Views: what they hold, what they are drawn as, and that both renderers draw the same."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jsonschema
import numpy as np
import pytest
from drawn import drawings

from glassformer.answers import QUESTIONS
from glassformer.answers.answer import Answer as Look
from glassformer.figures.color import HUES, SERIES, THEMES, at, ink_on, luminance, magnitude
from glassformer.figures.curves import ticks
from glassformer.figures.grids import numbers
from glassformer.figures.labels import cells, cut, number, percent, tick, visible, wrap
from glassformer.figures.layout import figure
from glassformer.figures.marks import Sheet, width_of
from glassformer.figures.svg import svg
from glassformer.figures.view import View, packed
from glassformer.tasks.complete import LanguageModel

SCHEMA = json.loads((Path(__file__).parents[2] / "src/glassformer/figures/view.schema.json").read_text())
SCRIPT = """
import { figure } from %s;
import { readFileSync } from "node:fs";
const made = JSON.parse(readFileSync(0, "utf8")).map(([view, room, theme]) => figure(view, room, theme));
console.log(JSON.stringify(made.map(({ width, height, marks }) => ({ width, height, marks }))));
"""
PLAIN: dict[str, Any] = {"title": "a", "sentence": "b", "caption": "c", "table": {"columns": [], "rows": []}}
MATRIX: dict[str, Any] = {"rows": ["a"] * 100, "columns": ["b"] * 100, "scale": magnitude("x")}
VIEWS_JS = Path(__file__).parents[2] / "src/glassformer/figures/views.js"


def test_every_kind_of_answer_is_drawn(looks: dict[str, Look]) -> None:
    """None is forgotten here, and none has no picture."""
    assert set(looks) == set(QUESTIONS)


def test_views_keep_to_their_schema(
    looks: dict[str, Look], hostile: dict[str, Look], long: dict[str, Look]
) -> None:
    """The JSON is what is documented."""
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    checker = jsonschema.Draft202012Validator(SCHEMA)
    for name, spec in drawings(looks, hostile, long):
        assert not [f"{name}: {error.json_path} {error.message[:200]}" for error in checker.iter_errors(spec)]
        assert spec["sentence"]
        assert "Glassformer" in spec["caption"]
    broken = looks["attention"].view().spec | {"kind": "pie"}
    assert list(checker.iter_errors(broken))


def near(one: Any, other: Any, where: str) -> None:
    """Equal; numbers to a twentieth of a unit."""
    if isinstance(one, float | int) and not isinstance(one, bool):
        assert one == pytest.approx(other, abs=0.05), where
    elif isinstance(one, list):
        assert len(one) == len(other), where
        for n, (a, b) in enumerate(zip(one, other, strict=True)):
            near(a, b, f"{where}.{n}")
    elif isinstance(one, dict):
        assert one.keys() == other.keys(), f"{where}: {one} {other}"
        for key in one:
            near(one[key], other[key], f"{where}.{key}")
    else:
        assert one == other, where


def javascript(jobs: list[tuple[dict[str, Any], float, str]]) -> list[dict[str, Any]]:
    """What views.js makes of views."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not here, which runs views.js")
    code = SCRIPT % json.dumps(VIEWS_JS.as_uri())
    done = subprocess.run(
        [node, "--input-type=module", "-e", code], input=json.dumps(jobs), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout))


@pytest.mark.parametrize(("room", "theme"), [(960.0, "light"), (360.0, "dark")])
def test_both_renderers_make_the_same_marks(
    looks: dict[str, Look],
    hostile: dict[str, Look],
    scripts: dict[str, Look],
    long: dict[str, Look],
    room: float,
    theme: str,
) -> None:
    """Every rectangle, text, line and arc, at the same place, in the same color, saying the same."""
    chosen = list(drawings(looks, hostile, scripts, long))
    made = javascript([(spec, room, theme) for _, spec in chosen])
    for (name, spec), theirs in zip(chosen, made, strict=True):
        ours = figure(spec, room, theme)
        near({"width": ours.width, "height": ours.height, "marks": ours.marks}, theirs, name)


def test_the_comparison_sees_a_difference(looks: dict[str, Look]) -> None:
    """A mark that moved, one that has another color and one that is gone do not pass."""
    spec = looks["attention"].view().spec
    ours = figure(spec)
    for change in ({"x": 1e3}, {"fill": "#123456"}, {"tip": "something else"}):
        marks = [dict(mark) for mark in ours.marks]
        marks[30] |= change
        with pytest.raises(AssertionError):
            near(ours.marks, marks, "")
    with pytest.raises(AssertionError):
        near(ours.marks, ours.marks[:-1], "")


def texts(sheet: Sheet) -> Iterator[tuple[float, float, float, float, str]]:
    """The boxes of all texts: left, top, right, bottom."""
    for mark in sheet.marks:
        if mark["mark"] == "text" and mark["text"].strip():
            long, size = width_of(mark["text"], mark["size"]), mark["size"]
            back = {"start": 0.0, "middle": long / 2, "end": long}[mark["anchor"]]
            x, y = mark["x"], mark["y"]
            if mark.get("turn"):
                yield x - size * 0.7, y - long + back, x, y + back, mark["text"]
            else:
                yield x - back, y - size * 0.7, x - back + long, y, mark["text"]


@pytest.mark.parametrize(("room", "theme"), [(960.0, "light"), (360.0, "light")])
def test_labels_are_neither_clipped_nor_overlapping(
    looks: dict[str, Look],
    hostile: dict[str, Look],
    scripts: dict[str, Look],
    long: dict[str, Look],
    room: float,
    theme: str,
) -> None:
    """Every text lies inside the picture, and on no other text."""
    wrong = []
    for name, spec in drawings(looks, hostile, scripts, long):
        sheet = figure(spec, room, theme)
        boxes = sorted(texts(sheet))
        for n, (left, top, right, bottom, text) in enumerate(boxes):
            if left < -1 or top < -1 or right > sheet.width + 1 or bottom > sheet.height + 1:
                wrong.append(f"{name}: {text!r} is clipped")
            for other_left, other_top, _, other_bottom, other in boxes[n + 1 :]:
                if other_left >= right - 1:
                    break
                if other_top < bottom - 1 and other_bottom > top + 1:
                    wrong.append(f"{name}: {text!r} over {other!r}")
    assert not wrong


def test_svg_is_well_formed_and_text_stays_text(
    looks: dict[str, Look], hostile: dict[str, Look], long: dict[str, Look]
) -> None:
    """No token becomes an element, an attribute or a script; a screen reader has a sentence."""
    allowed = {"svg", "title", "defs", "pattern", "path", "rect", "text"}
    for name, spec in drawings(looks, hostile, long):
        drawn = svg(figure(spec), spec["sentence"])
        root = ElementTree.fromstring(drawn)
        assert {one.tag.rpartition("}")[2] for one in root.iter()} <= allowed, name
        assert not any(
            key.lower().startswith("on") or "href" in key for one in root.iter() for key in one.attrib
        ), name
        assert root.attrib["aria-label"]
        assert root.attrib["role"] == "img"
        assert len(drawn) < 5e6, f"{name}: {len(drawn):,} characters"


def test_a_long_text_is_pooled_and_shown_in_part(long: dict[str, Look]) -> None:
    """1,024 tokens: an overview with a frame, and a part that can be read; under 5 MB in every form."""
    look = long["0 attention"]
    sheet = figure(look.view().spec)
    assert any("all 1024 × 1024" in mark.get("text", "") for mark in sheet.marks)
    assert sheet.width <= 960
    assert (
        sum(mark["mark"] == "text" and bool(mark.get("turn")) for mark in sheet.marks) == 40
    )  # columns one by one
    moved = figure(look.view().spec | {"window": [100, 50]})
    assert any("100–139, columns 50–89" in mark.get("text", "") for mark in moved.marks)
    for name, one in long.items():
        assert len(one.to_html()) < 5e6, name


def test_numbers_survive_the_packing() -> None:
    """Few are kept with four digits, many as halves; what is masked stays so."""
    rng = np.random.default_rng(0)
    for shape in ((3, 4), (100, 101)):
        values = rng.normal(size=shape)
        values[0, 0] = np.nan
        values[1, 1] = -np.inf
        back = numbers(json.loads(json.dumps(packed(values))))
        assert back[0][0] is None
        assert back[1][1] is None
        filled = np.array([[0 if one is None else one for one in row] for row in back])
        np.testing.assert_allclose(filled, np.where(np.isfinite(values), values, 0), rtol=1e-3, atol=1e-6)
    large = np.full((100, 100), 1e6)
    assert numbers(packed(large))[0][0] == 1e6
    made = javascript([({**PLAIN, "kind": "matrix", **MATRIX, "values": packed(large)}, 960.0, "light")])
    assert any(mark.get("tip", "").endswith(": 1,000,000") for mark in made[0]["marks"])


def test_colors_can_be_read() -> None:
    """Whatever is written, on paper or on a cell, has at least 4.5 : 1 to what is behind it."""

    def contrast(one: str, other: str) -> float:
        dark, bright = sorted((luminance(one), luminance(other)))
        return (bright + 0.05) / (dark + 0.05)

    for theme, colors in THEMES.items():
        for name in ("ink", "soft"):
            assert contrast(colors[name], colors["paper"]) >= 4.5
        for one in (*SERIES[theme], colors["mark"]):
            assert contrast(one, colors["paper"]) >= 4.5
    for hue in HUES.values():
        assert contrast("#000000", hue) >= 4.5
    for grey in range(0, 256, 5):
        fill = "#" + f"{grey:02x}" * 3
        assert contrast(ink_on(fill), fill) >= 4.5


@pytest.mark.parametrize(
    ("text", "shown", "width"),
    [
        (" girl", "␣girl", 5), ("\n\n", "⏎⏎", 2), ("\t", "⇥", 1), ("\u200b", "‹U+200B›", 8), ("\u202e", "‹U+202E›", 8),
        ("机器", "机器", 4), ("\u0301", "◌\u0301", 1), ("שלום", "שלום", 4), ("\x00", "‹U+0000›", 8), ("👩", "👩", 2), ("", "", 0),
    ],
)  # fmt: skip
def test_what_cannot_be_seen_is_marked(text: str, shown: str, width: int) -> None:
    assert visible(text) == shown
    assert cells(visible(text)) == width


def test_labels_and_numbers() -> None:
    """Cut, wrapped and rounded."""
    assert cut("abcdef", 4) == "abc…"
    assert cut("机器人", 4) == "机…"
    assert wrap("one two three", 7) == ["one two", "three"]
    assert wrap("", 7) == [""]
    assert [number(one) for one in (0, 1234.5, 12.34, 1.234, 0.1234, -0.5, -0.0001)] == [
        "0", "1,235", "12.3", "1.23", "0.123", "−0.500", "−1e−4",
    ]  # fmt: skip
    assert [percent(one) for one in (0, 0.5, 0.999, 1, -0.0123)] == [
        "0 %",
        "50 %",
        "99.9 %",
        "100 %",
        "−1.2 %",
    ]
    assert [tick(value, step) for value, step in ((0.2, 0.2), (1.5, 0.5), (100, 50), (1000, 500), (-0.5, 0.5))] == [
        "0.2", "1.5", "100", "1,000", "−0.5",
    ]  # fmt: skip
    for low, high in ((2.311, 2.33), (100.2, 102.4), (0, 1), (1e-7, 9e-7), (0, 3e6)):
        places, step = ticks(low, high)
        assert len({tick(one, step) for one in places}) == len(places) >= 3
    assert [number(one) for one in (8e-7, -8.123e-7, 1e20, -np.inf)] == ["8e−7", "−8e−7", "1e20", "−∞"]
    assert percent(8e-7) == "8e−5 %"


def test_views_with_gaps() -> None:
    """Nothing, null, one point and equal values are drawn, by both renderers alike."""
    scale = magnitude("x")
    series = [{"name": "one", "values": [1.0, None, 3.0]}, {"name": "two", "values": [None, None, None]}]
    jobs: list[dict[str, Any]] = [
        {"kind": "bars", "labels": [], "series": [{"name": "", "values": []}]},
        {"kind": "bars", "labels": ["a", "b", "c"], "series": series},
        {"kind": "sparks", "tokens": ["a", "b", "c"], "series": series},
        {"kind": "lines", "x": [1.0, 2.0, 3.0], "series": series},
        {"kind": "lines", "x": ["a"], "series": [{"name": "", "values": [2.0]}]},
        {"kind": "lines", "x": [], "series": []},
        {"kind": "tokens", "tokens": [], "values": [], "scale": scale},
        {"kind": "arcs", "tokens": ["a"], "edges": [[0, 0, 1.0]], "scale": scale},
        {"kind": "boxes", "rows": []},
        {"kind": "panels", "panels": []},
        {"kind": "matrix", "rows": ["a"], "columns": ["b"], "values": [[None]], "scale": scale, "void": "–"},
    ]
    specs = [{"view": 1, **PLAIN, **job} for job in jobs]
    for spec, theirs in zip(specs, javascript([(spec, 960.0, "light") for spec in specs]), strict=True):
        ours = figure(spec)
        near({"width": ours.width, "height": ours.height, "marks": ours.marks}, theirs, spec["kind"])
        assert View(spec).to_text(80, color=False)
    assert any(mark.get("text") == "–" for mark in figure(specs[-1]).marks)


def test_columns_with_scales_of_their_own_keep_them_in_the_overview() -> None:
    """A small share beside a large number is still to be seen."""
    scales = [magnitude("a", 100.0), magnitude("b", 1.0)]
    values = [[50.0, 0.0] for _ in range(300)]
    values[7] = [50.0, 1.0]
    spec = {
        **PLAIN,
        "kind": "matrix",
        "rows": ["r"] * 300,
        "columns": ["a", "b"],
        "values": values,
        "scale": scales[0],
    }
    marks = figure(spec | {"scales": scales}).marks
    seen = [mark for mark in marks if "overview" in mark.get("keys", ())]
    assert at(scales[1], 1.0, "light") in {mark["fill"] for mark in seen}


def test_one_column_of_a_paper(looks: dict[str, Look], long: dict[str, Look]) -> None:
    """Every drawing can be had in 360 units."""
    wide = {name: width for name, spec in drawings(looks, long) if (width := figure(spec, 360.0).width) > 361}
    assert not wide


def test_what_is_left_out_is_said(storyteller: LanguageModel) -> None:
    """A picture that does not show all says so."""
    out = storyteller.generate("Once upon a time", max_new_tokens=14, temperature=0)
    assert out.saliency(tested=False).view().spec["title"].endswith("; the first 12 of 14 tokens")
    assert "; the first 24 of " in out.attribution(0).view().spec["title"]
    letters = storyteller.merges("believable" * 60).view()
    assert "more steps" in letters.spec["rows"][-1]["pieces"][0]
    assert len(letters.to_svg()) < 5e6


def test_a_query_of_a_long_text_is_in_sight(storyteller: LanguageModel) -> None:
    """The part that is shown ends at the query, and the title says where that is."""
    out = storyteller.generate(
        "One day a robot met a girl. They ran up the hill. " * 12, max_new_tokens=1, temperature=0
    )
    spec = out.steps(1, 0, position=60).view().spec
    assert spec["title"].endswith("at 60")
    assert any("rows 21–60" in mark.get("text", "") for mark in figure(spec).marks)


def test_a_prompt_does_not_look_unlikely(looks: dict[str, Look]) -> None:
    """What was given has no box; what was written has one, however unlikely it was."""
    rects = [
        mark
        for mark in figure(looks["probabilities"].view().spec).marks
        if "t0" in mark.get("keys", ()) or "t12" in mark.get("keys", ())
    ]
    assert ["stroke" in mark for mark in rects] == [False, True]
