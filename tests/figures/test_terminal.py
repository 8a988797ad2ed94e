"""Views as text: no line is longer than the terminal is wide, and without colors nothing is lost."""

import re

import pytest
from drawn import drawings
from rich.cells import cell_len

from glassformer.answers.answer import Answer as Look
from glassformer.figures.terminal import lines
from glassformer.figures.view import View


@pytest.mark.parametrize("width", [40, 80, 200])
@pytest.mark.parametrize("colored", [True, False])
def test_lines_fit(
    looks: dict[str, Look], hostile: dict[str, Look], long: dict[str, Look], width: int, colored: bool
) -> None:
    """At any width."""
    for name, spec in drawings(looks, hostile, long):
        for line in lines(spec, width, colored=colored):
            assert cell_len(line.plain.rstrip()) <= width, f"{name}: {line.plain!r}"


def shown(looks: dict[str, Look], kind: str, drawing: str | None = None, **how: bool) -> str:
    return looks[kind].view(drawing).to_text(80, **how)


def test_colors_only_where_they_are_wanted(looks: dict[str, Look], hostile: dict[str, Look]) -> None:
    """Escape codes with colors, none without, and never those of a text."""
    for kind in looks:
        assert "\x1b" not in shown(looks, kind, color=False), kind
    assert "\x1b[" in shown(looks, "attention", color=True)
    for kind in hostile:
        assert "\x1b[31m\u202e" not in shown(hostile, kind, color=True), kind
        assert "\x1b" not in shown(hostile, kind, color=False), kind


def test_without_colors_there_are_digits(looks: dict[str, Look]) -> None:
    """Attention in tenths, a token's share behind it, bars as blocks, curves as blocks."""
    first = [
        line for line in shown(looks, "attention", color=False).splitlines() if re.match(r"\s*0 +Once", line)
    ]
    assert first == [" 0   Once  9"]
    assert re.search(r"[⁰-⁹]", shown(looks, "probabilities", color=False))
    assert "█" in shown(looks, "attribution", color=False)
    assert re.search(r"[▁-█]{5}", shown(looks, "rankings_watch", color=False))
    assert "[" in shown(looks, "merges", color=False)


def test_cut_off_candidates_are_below_a_line(looks: dict[str, Look]) -> None:
    """Five of twelve may be sampled."""
    rows = [line for line in shown(looks, "top", color=False).splitlines() if "%" in line or "─" in line]
    assert [n for n, line in enumerate(rows) if "─" in line] == [5]


def test_a_view_from_a_file_is_drawn_as_it_was(
    looks: dict[str, Look], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The JSON is all that a picture needs."""
    folder = tmp_path_factory.mktemp("views")
    for kind, look in looks.items():
        view = look.view()
        back = View.load(view.save(folder / f"{kind}.json"))
        assert back.to_text(80) == view.to_text(80)
        assert back.to_svg() == view.to_svg()


def test_a_hostile_file(looks: dict[str, Look]) -> None:
    """Escape codes in a view do not reach the terminal."""
    spec = looks["probabilities"].view().spec
    evil = View(
        spec
        | {"title": "\x1b]0;x\x07", "caption": "\x1b[2J", "tokens": ["\x1b[31mred"] * len(spec["tokens"])}
    )
    assert "\x1b" not in evil.to_text(80, color=False)
    assert "\x1b]0" not in evil.to_text(80, color=True)


def test_the_scale_is_shown(looks: dict[str, Look]) -> None:
    """The value of a full color, or of a 9."""
    assert re.search(r"9 is 100 % attention weight", shown(looks, "attention", color=False))
    assert re.search(r"9 is [\d.]+ % share", shown(looks, "saliency", color=False))


def test_without_colors_the_legend_says_what_digits_are(looks: dict[str, Look]) -> None:
    """A lens has a digit behind every token, signed values have both ends, arcs have numbers."""
    lens = shown(looks, "lens", color=False)
    assert "digits behind tokens: 9 is 100 % probability of the likeliest token" in lens
    assert re.search(r"^5\.out +\S+[⁰-⁹] +\S+[⁰-⁹]", lens, re.MULTILINE)
    assert not re.search(r"[⁰-⁹]", shown(looks, "lens", color=True))
    assert re.search(r"· is near 0, 9 is [\d.]+, -9 is −[\d.]+ q$", shown(looks, "steps", color=False), re.M)
    attention = shown(looks, "attention", color=False)
    assert "· is near 0 %, 9 is 100 % attention weight;" in attention
    assert "blank: masked" in " ".join(attention.split())
    assert "numbers: of a token's attention" in shown(looks, "attention", "arcs", color=False)


def test_names_and_scales_are_shown(looks: dict[str, Look]) -> None:
    """What a picture writes on a banner, beside a curve or at a line, the terminal writes, too."""
    steps = shown(looks, "steps", color=False).splitlines()
    assert [line for line in steps if line in ("q", "k", "v", "softmax × v", "their sum")] == [
        "q", "k", "v", "softmax × v", "their sum",
    ]  # fmt: skip
    assert re.search(r"factor 0 \S+ 0 to [\d.]+, highest at ", shown(looks, "factors", color=False))
    assert re.search(r"^──── uniform attention [\d.]+ %$", shown(looks, "find_heads", color=False), re.M)


def test_what_is_not_drawn_has_no_legend(looks: dict[str, Look]) -> None:
    """Many small patterns are for pictures alone: the terminal shows neither them nor their scale."""
    assert "100 %" not in shown(looks, "heads", color=False)
    assert "rows: query, the token that attends" in shown(looks, "attention", color=False)
