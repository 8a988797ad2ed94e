"""Views: what they hold, and where everything goes."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jsonschema
import numpy as np
import pytest
from drawn import drawings
from gapped import PLAIN, with_gaps

from glassformer.answers import QUESTIONS
from glassformer.answers.answer import Answer as Look
from glassformer.errors import InputError
from glassformer.figures.cells import flat
from glassformer.figures.color import HUES, SERIES, THEMES, at, ink_on, luminance, magnitude, resolve
from glassformer.figures.curves import ticks
from glassformer.figures.grids import strongest
from glassformer.figures.labels import cells, cut, number, percent, tick, visible, visible_start, wrap
from glassformer.figures.layout import ROOMS, figure, layouts, part
from glassformer.figures.marks import press, width_of
from glassformer.figures.packing import numbers, short
from glassformer.figures.specs import bars, curves, matrix, names, plain, strip
from glassformer.figures.svg import svg
from glassformer.figures.view import View, packed
from glassformer.tasks.complete import LanguageModel

FIGURES = Path(__file__).parents[2] / "src/glassformer/figures"
SCHEMA, MARKS = (json.loads((FIGURES / f"{name}.schema.json").read_text()) for name in ("view", "marks"))


def marks(spec: dict[str, Any], room: float = 960.0) -> list[dict[str, Any]]:
    """The marks of a view, its grids as what they consist of."""
    return list(flat(figure(spec, room), spec))


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


def test_marks_keep_to_their_schema(
    looks: dict[str, Look], hostile: dict[str, Look], long: dict[str, Look]
) -> None:
    """The laid out form is what is documented, wide and narrow."""
    jsonschema.Draft202012Validator.check_schema(MARKS)
    checker = jsonschema.Draft202012Validator(MARKS)
    for room, group in ((960.0, hostile), (360.0, looks), (360.0, long)):
        for name, spec in drawings(group):
            made = json.loads(json.dumps(View(spec).to_marks(width=room), allow_nan=False))
            made["marks"] = sample(made["marks"])
            wrong = [f"{error.json_path} {error.message[:200]}" for error in checker.iter_errors(made)]
            assert not wrong, name
            colors = [mark[key] for mark in made["marks"] for key in ("fill", "stroke") if key in mark]
            named = {color for color in colors if isinstance(color, str)} - {"none"}
            assert named <= set(made["palettes"]["light"]) == set(made["palettes"]["dark"])
    broken = View(looks["attention"].view().spec).to_marks()
    assert list(checker.iter_errors(broken | {"marks": [{"mark": "pie"}]}))


def sample(marks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One mark of every form: a thousand that have the same keys prove no more."""
    return list({str(sorted(mark)) + mark["mark"]: mark for mark in marks}.values())


def test_several_layouts_share_their_marks(looks: dict[str, Look]) -> None:
    """A narrow layout holds only the places of most marks; merged with the wide one it is complete."""
    spec = looks["probabilities"].view().spec
    spec = spec | {"tokens": spec["tokens"] * 4, "values": spec["values"] * 4}
    made = layouts(spec)
    assert [layout["width"] for layout in made] == [figure(spec, room).width for room in ROOMS]
    assert made[0]["marks"] == figure(spec).marks
    for layout, room in zip(made[1:], ROOMS[1:], strict=True):
        assert sum("like" in mark for mark in layout["marks"]) > len(layout["marks"]) / 2
        whole = [
            made[0]["marks"][mark["like"]] | mark if "like" in mark else mark for mark in layout["marks"]
        ]
        alone = [{key: value for key, value in mark.items() if key != "like"} for mark in whole]
        assert alone == figure(spec, room).marks
    narrow = spec | {"tokens": ["a"], "values": [0.5], "caption": "short", "title": "short"}
    assert len(layouts(narrow)) == 1  # it fits anywhere


def test_a_view_of_version_1_is_still_drawn() -> None:
    """One that was saved before marks had a form of their own."""
    view = View.load(Path(__file__).parents[1] / "fixtures/view-1.json")
    assert "␣time" in view.to_svg()
    assert "␣time" in view.to_text(80)


def test_a_view_of_the_future_is_refused(looks: dict[str, Look], tmp_path: Path) -> None:
    """In one sentence that names both versions."""
    path = tmp_path / "x.json"
    path.write_text(json.dumps(looks["lens"].view().spec | {"view": 9}))
    with pytest.raises(InputError, match="version 9; this Glassformer draws versions 1 and 2"):
        View.load(path)


def texts(spec: dict[str, Any], room: float) -> Iterator[tuple[float, float, float, float, str]]:
    """The boxes of all texts: left, top, right, bottom."""
    for mark in marks(spec, room):
        if mark["mark"] == "text" and mark["text"].strip():
            long, size = width_of(mark["text"], mark["size"]), mark["size"]
            back = {"start": 0.0, "middle": long / 2, "end": long}[mark.get("anchor", "start")]
            x, y = mark["x"], mark["y"]
            if mark.get("turn"):
                yield x - size * 0.7, y - long + back, x, y + back, mark["text"]
            else:
                yield x - back, y - size * 0.7, x - back + long, y, mark["text"]


@pytest.mark.parametrize("room", [pytest.param(960.0, marks=pytest.mark.slow), 360.0])
def test_labels_are_neither_clipped_nor_overlapping(
    looks: dict[str, Look],
    hostile: dict[str, Look],
    scripts: dict[str, Look],
    long: dict[str, Look],
    room: float,
) -> None:
    """Every text lies inside the picture, and on no other text."""
    wrong = []
    for name, spec in drawings(looks, hostile, scripts, long):
        sheet = figure(spec, room)
        boxes = sorted(texts(spec, room))
        for n, (left, top, right, bottom, text) in enumerate(boxes):
            if left < -1 or top < -1 or right > sheet.width + 1 or bottom > sheet.height + 1:
                wrong.append(f"{name}: {text!r} is clipped")
            for other_left, other_top, _, other_bottom, other in boxes[n + 1 :]:
                if other_left >= right - 1:
                    break
                if other_top < bottom - 1 and other_bottom > top + 1:
                    wrong.append(f"{name}: {text!r} over {other!r}")
    assert not wrong


def test_svg_is_well_formed_and_text_stays_text(looks: dict[str, Look], hostile: dict[str, Look]) -> None:
    """No token becomes an element, an attribute or a script; a screen reader has a sentence."""
    allowed = {"svg", "title", "defs", "pattern", "path", "rect", "text"}
    for name, spec in drawings(looks, hostile):
        drawn = svg(figure(spec), spec)
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
    seen = marks(look.view().spec)
    assert any("all 1024 × 1024" in mark.get("text", "") for mark in seen)
    assert figure(look.view().spec).width <= 960
    upright = sum(mark["mark"] == "text" and bool(mark.get("turn")) for mark in seen)
    assert upright == 40  # columns one by one
    moved = marks(look.view().spec | {"window": [100, 50]})
    assert any("100–139, columns 50–89" in mark.get("text", "") for mark in moved)
    for name, one in long.items():
        assert len(one.to_html()) < 5e6, name


def test_numbers_survive_the_packing() -> None:
    """Few are kept with nine digits, many as 32-bit floats, very many as halves; what is masked stays so."""
    rng = np.random.default_rng(0)
    for shape, error in (((3, 4), 1e-8), ((100, 101), 1e-6), ((512, 513), 1e-3)):
        values = rng.normal(size=shape)
        values[0, 0] = np.nan
        values[1, 1] = -np.inf
        back = numbers(json.loads(json.dumps(packed(values))))
        assert back[0][0] is None
        assert back[1][1] is None
        filled = np.array([[0 if one is None else one for one in row] for row in back])
        np.testing.assert_allclose(filled, np.where(np.isfinite(values), values, 0), rtol=error, atol=1e-7)
    large = np.full((100, 100), 1e6)
    assert numbers(packed(large))[0][0] == 1e6


def test_percentages_are_rounded_once() -> None:
    """A picture shows the percentage of the true number, not of one that was rounded before; halves go up."""
    given = [0.11045, 0.0104499, 0.55549, 0.99949, 0.5005, 0.0645]
    expected = ["11 %", "1 %", "55.5 %", "99.9 %", "50.1 %", "6.5 %"]
    assert [percent(short(one)) for one in given] == expected
    assert [percent(one) for one in plain(given)] == expected
    many = np.resize(np.array(given, dtype=np.float32), (100, 102))
    assert [percent(one) for one in numbers(packed(many))[0][:4]] == expected[:4]
    assert number(short(1.2345)) == "1.23"


def test_numbers_are_pressed_and_not_cut() -> None:
    """In a narrow cell a word loses its end; half of a number would be another number."""
    texts = [["94.1 %", "together"]]
    spec = matrix(
        ["a"], ["b", "c"], values=np.array([[0.9, 0.1]]), scale=magnitude(""), texts=texts, cell=[38.0, 18.0]
    )
    (grid,) = [mark for mark in part(spec, 240).marks if mark["mark"] == "grid"]
    assert grid["texts"]["94.1 %"][0] == "94.1 %"
    assert 0 < grid["texts"]["94.1 %"][1] < 38
    assert grid["texts"]["together"][0].endswith("…")


def test_patches_are_as_strong_as_their_strongest() -> None:
    """Of either sign; what is masked is no value, and a patch at the edge may be smaller."""
    values = np.array([[1.0, -3, np.nan], [2, 0, np.nan], [-5, 4, 0.5]])
    pooled = strongest(values, down=2, across=2)
    np.testing.assert_array_equal(pooled, [[-3, np.nan], [-5, 0.5]])
    rng = np.random.default_rng(0)
    values = rng.normal(size=(37, 23))
    pooled = strongest(values, down=5, across=4)
    for r in range(8):
        for c in range(6):
            patch = values[5 * r : 5 * r + 5, 4 * c : 4 * c + 4]
            assert pooled[r, c] == max(patch.ravel(), key=abs)


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


def test_a_label_of_a_very_long_token_is_its_beginning() -> None:
    """A million characters are not readable, and measuring each would take long."""
    assert visible_start(" a\n" * 10) == visible(" a\n" * 10)
    assert visible_start("x" * 200) == "x" * 200
    assert visible_start(" " * 1_000_000) == "␣" * 200 + "…"
    assert names(["x" * 1_000_000, "y"]) == ["x" * 200 + "…", "y"]


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
    assert [number(one) for one in (9.4e-5, 9.6e-5, -9.96e-12)] == ["9e−5", "1e−4", "−1e−11"]
    assert [number(one) for one in (1e15, 7.7e15, -9.6e15)] == ["1e15", "8e15", "−1e16"]
    assert [number(one) for one in (1e-307, 5e-324, 1.7e308)] == ["1e−307", "0", "2e308"]


def test_bars_below_zero_and_a_shared_range() -> None:
    """The other color below zero; a bar of the same value is as long wherever the range is the same."""
    long = []
    for values in ([0.5, -0.25], [0.5, 0.25]):
        spec = {**PLAIN, **bars(["a", "b"], values, low=-0.25, high=0.5)}
        first, second = (mark for mark in figure(spec).marks if mark["mark"] == "rect")
        long.append(first["w"])
        assert first["fill"] == "s0"
        assert second["fill"] == ("below" if values[1] < 0 else "s0")
    assert long[0] == long[1]


def test_bars_beside_a_reference() -> None:
    """A line at its value down through all bars, named below; no number is on the line."""
    reference = {"value": 0.2, "label": "uniform attention"}
    spec = {**PLAIN, **bars(["a", "b"], [0.5, 0.18], unit="percent", reference=reference)}
    made = figure(spec).marks
    rects = [mark for mark in made if mark["mark"] == "rect"]
    (line,) = (mark for mark in made if mark["mark"] == "line")
    (x, _), (end, _) = line["points"]
    assert x == end == pytest.approx(rects[0]["x"] + rects[0]["w"] * 0.4, abs=0.1)
    said = {mark["text"]: mark for mark in made if mark["mark"] == "text"}
    assert said["18 %"]["x"] > x > rects[1]["x"] + rects[1]["w"]
    assert said["uniform attention 20 %"]["y"] > max(rect["y"] + rect["h"] for rect in rects)


def test_small_curves_have_a_scale_each() -> None:
    """Its highest value and 0, at its right end."""
    series = [{"name": "a", "values": [0.5, 2.0]}, {"name": "b", "values": [7.25, 0.0]}]
    spec = {**PLAIN, "kind": "sparks", "tokens": ["x", "y"], "series": series}
    said = [mark["text"] for mark in figure(spec).marks if mark["mark"] == "text"]
    assert [text for text in said if text in ("2", "7.25", "0")] == ["2", "0", "7.25", "0"]


def test_notes_below_tokens() -> None:
    """Each below its own token, whose box is as wide as the wider of both."""
    spec = {**PLAIN, **strip(["a", "b"], [1, 1], scale=magnitude("x"), notes=["1234567 1/2 é", "8"])}
    made = figure(spec).marks
    first, second = (mark for mark in made if mark["mark"] == "rect" and mark.get("tip"))
    notes = {mark["text"]: mark for mark in made if mark["mark"] == "text"}
    assert first["x"] < notes["1234567"]["x"] < notes["1/2"]["x"] < notes["é"]["x"] < first["x"] + first["w"]
    assert notes["8"]["x"] > second["x"] >= first["x"] + first["w"]
    assert notes["8"]["y"] > second["y"] + second["h"]


def test_a_legend_of_few_steps() -> None:
    """Ranks: plain numbers, each beside its color."""
    scale = magnitude("rank") | {"steps": [[1, "1"], [0.5, "10"], [1 / 3, "100"]]}
    spec = {**PLAIN, **matrix(["a"], ["b"], values=[[0.5]], scale=scale, y_title="layer", x_title="token")}
    said = [mark["text"] for mark in figure(spec).marks if mark["mark"] == "text"]
    at = said.index("rank")
    assert said[at : at + 4] == ["rank", "1", "10", "100"]
    assert "rows: layer · columns: token" in said


def test_views_with_gaps() -> None:
    """Nothing, null, one point and equal values are drawn."""
    for spec in with_gaps():
        ElementTree.fromstring(View(spec).to_svg())
        assert View(spec).to_text(80, color=False)
    assert any(mark.get("text") == "–" for mark in marks(with_gaps()[-1]))


def test_features_and_labels() -> None:
    """Rows of features with the label that follows them: below each other where there is room."""
    rows = [{"note": str(n), "pieces": ["robot"] * (n + 1), "label": "must"} for n in range(4)]
    spec = {"view": 3, **PLAIN, "kind": "boxes", "rows": rows}
    assert not list(jsonschema.Draft202012Validator(SCHEMA).iter_errors(spec))

    found = [mark for mark in marks(spec) if "label" in mark.get("keys", ())]
    assert [mark["tip"] for mark in found] == ["must"] * 4
    assert len({mark["x"] for mark in found}) == 1
    assert {mark["fill"] for mark in found} == {"k"}
    narrow = figure(spec, 200.0)
    assert narrow.width <= 200
    ends = [mark["x"] + mark["w"] for mark in narrow.marks if "label" in mark.get("keys", ())]
    assert len(ends) == 4
    assert max(ends) <= 200
    text = View(spec).to_text(80, color=False)
    assert "robot robot → must" in text


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
    drawn = marks(spec | {"scales": scales})
    seen = [mark["fill"] for mark in drawn if "overview" in mark.get("keys", ())]
    assert at(scales[1], 1.0, theme="light") in {resolve(fill, [], theme="light") for fill in seen}


def test_one_column_of_a_paper(looks: dict[str, Look], long: dict[str, Look]) -> None:
    """Every drawing can be had in 360 units."""
    wide = {name: width for name, spec in drawings(looks, long) if (width := figure(spec, 360.0).width) > 361}
    assert not wide


def test_what_is_left_out_is_counted(storyteller: LanguageModel) -> None:
    """A picture that does not show all rows gives the number of the others."""
    out = storyteller.generate("Once upon a time", max_new_tokens=14, temperature=0)
    assert out.saliency(tested=False).view().spec["title"].endswith("; the first 12 of 14 tokens")
    attribution = out.attribution(0)
    drawn = attribution.view().spec
    assert drawn["labels"][-1] == f"{len(attribution.rows) - 24} others together"
    assert sum(drawn["series"][0]["values"]) == pytest.approx(attribution.values.sum(), abs=1e-5)
    letters = storyteller.merges("believable" * 60).view()
    assert "more steps" in letters.spec["rows"][-1]["pieces"][0]
    assert len(letters.to_svg()) < 5e6


def test_a_query_of_a_long_text_is_in_sight(storyteller: LanguageModel) -> None:
    """The part that is shown ends at the query, and the title names its position."""
    out = storyteller.generate(
        "One day a robot met a girl. They ran up the hill. " * 12, max_new_tokens=1, temperature=0
    )
    spec = out.steps(1, 0, position=60).view().spec
    assert spec["title"].endswith("at 60")
    assert any("rows 21–60" in mark.get("text", "") for mark in marks(spec))


def test_what_belongs_together_starts_a_row() -> None:
    """Where fewer panels fit than the view asks for, no row has panels of two groups."""
    cell = {"kind": "matrix", "rows": ["r"], "columns": ["c"], "values": [[1.0]], "scale": magnitude("x")}
    small = {**cell, "cell": [90.0, 9.0], "row_labels": False, "column_labels": False, "legend": False}
    spec = {**PLAIN, "kind": "panels", "panels": [small] * 8, "across": 4, "gap": 0}
    places = [(mark["x"], mark["y"]) for mark in figure(spec, 320.0).marks if mark["mark"] == "grid"]
    lefts = [x for x, _ in places]
    assert lefts == [lefts[n] for n in (0, 1, 2, 0)] * 2  # three and one, twice
    assert len({y for _, y in places}) == 4


def test_a_text_beside_itself_is_seen_on_the_diagonal() -> None:
    """A narrow window is a square; between two texts it is as tall as it can be."""
    names = [f"t{n}" for n in range(200)]
    spec = {**PLAIN, "kind": "matrix", "values": np.eye(200).tolist(), "scale": magnitude("x")}

    def window(rows: list[str]) -> list[int]:
        sheet = figure(spec | {"rows": rows, "columns": names}, 360.0)
        (grid,) = (mark for mark in sheet.marks if mark["mark"] == "grid")
        return list(grid["window"])

    top, first, down, across = window(names)
    assert (top, down) == (first, across)
    assert across < 40
    assert window([f"s{n}" for n in range(200)])[2:] == [40, across]


def test_panels_that_ask_for_it_are_in_line() -> None:
    """`label_columns` is room for the names of rows, at least; a longer name takes more."""
    part = {"kind": "matrix", "columns": ["c"], "values": [[1.0]], "scale": magnitude("x"), "legend": False}
    parts = [{**part, "rows": [name], "label_columns": 6} for name in ("a", "abc", "abcdefgh")]
    spec = json.loads(json.dumps({"view": 3, **PLAIN, "kind": "panels", "panels": parts}))
    assert not list(jsonschema.Draft202012Validator(SCHEMA).iter_errors(spec))
    lefts = [mark["x"] for mark in figure(spec).marks if mark["mark"] == "grid"]
    assert lefts[0] == lefts[1] < lefts[2]


def test_names_below_curves_touch_no_point() -> None:
    """Whatever lies on the axis: its point ends above the names and numbers under it."""
    for x in (["embed", "0.mid"], [0.0, 1.0]):
        series = [{"name": "", "values": [1.0, 0.0]}]
        seen = marks({**PLAIN, "kind": "lines", "x": x, "series": series, "height": 60})
        point = max(mark["y"] + mark["h"] for mark in seen if "x1" in mark.get("keys", ()))
        upright = [mark["y"] for mark in seen if mark.get("turn")]
        level = [mark["y"] - mark["size"] * 0.75 for mark in seen if mark.get("anchor") == "middle"]
        assert bool(upright) == isinstance(x[0], str) != bool(level)
        assert min(upright + level) >= point + 2


def test_the_reason_of_a_cut_stays_inside() -> None:
    """However long it is, and the labels beside it."""
    spec = {
        **PLAIN,
        "kind": "bars",
        "labels": ["an internationalized label", "b"],
        "series": [{"name": "", "values": [0.6, 0.4]}],
        "cut": {"after": 1, "label": "cut off by temperature 0.7, top-k 40, top-p 0.95, min-p 0.05"},
    }
    assert figure(spec, 360.0).width <= 360
    shown = " ".join(
        mark["text"] for mark in marks(spec, 360.0) if mark.get("fill") == "mark" and "text" in mark
    )
    assert shown == spec["cut"]["label"]


def test_a_prompt_does_not_look_unlikely(looks: dict[str, Look]) -> None:
    """What was given has no box; what was written has one, however unlikely it was."""
    rects = [
        mark
        for mark in marks(looks["probabilities"].view().spec)
        if "t0" in mark.get("keys", ()) or "t12" in mark.get("keys", ())
    ]
    assert ["stroke" in mark for mark in rects] == [False, True]


@pytest.mark.parametrize(
    ("text", "pressed"),
    [
        ("girl", False),
        ("␣girl", False),
        ("Привет", False),
        ("机器人", False),
        ("…−·", False),
        ("👩", True),
        ("␣👩", True),
        ("family👩", False),
        ("शब्द", True),
        ("الروبوت", False),
    ],
)
def test_only_what_may_be_too_wide_is_pressed(text: str, pressed: bool) -> None:
    """A text that is set to a width is also stretched to it, where it is narrower."""
    assert press(text, 10.0) == (pytest.approx(width_of(text, 10.0), abs=0.06) if pressed else 0)


def test_a_line_with_a_spread() -> None:
    """An upright line from the lowest to the highest of what a value is the mean of; the axis has room for it."""
    spec = {
        "view": 3,
        **PLAIN,
        **curves(["1 %", "10 %"], {"a": [2, 3], "b": [4, 5]}, spread={"a": ([1, 2.5], [6, 4])}),
    }
    jsonschema.validate(spec, SCHEMA)
    drawn = marks(spec)
    upright = [one["points"] for one in drawn if one["mark"] == "line" and one.get("width") == 1]
    assert [points[0][0] == points[1][0] for points in upright] == [True, True]
    lengths = [points[0][1] - points[1][1] for points in upright]
    assert lengths[0] / lengths[1] == pytest.approx(5 / 1.5)
    tips = [one["tip"] for one in drawn if "tip" in one]
    assert tips[0] == "a, 1 %: 2 (1 to 6)"
    assert tips[2] == "b, 1 %: 4"


def test_a_spread_that_is_not_known_everywhere() -> None:
    """Where nothing was measured there is neither a point nor an upright line, and the axis does not mind."""
    lines = curves(["1 %", "10 %"], {"a": [2, None]}, spread={"a": ([1, None], [6, None])})
    spec = {"view": 3, **PLAIN, **lines}
    jsonschema.validate(spec, SCHEMA)
    assert [one["tip"] for one in marks(spec) if "tip" in one] == ["a, 1 %: 2 (1 to 6)"]
