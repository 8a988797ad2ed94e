"""The programs beside the recipes."""

import gzip
import importlib.util
import json
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any
from xml.etree import ElementTree

import pytest

import glassformer as gf
from glassformer.hub.vocabulary import load_tokenizer

RECIPES = Path(__file__).parent.parent / "recipes"
STORY = (
    "Once upon a time, there was a little cat named Tom. Tom liked to play in the park with his friend, a big dog. "
    * 6
)


def program(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, RECIPES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(name: str, monkeypatch: pytest.MonkeyPatch, *arguments: object) -> None:
    monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
    program(name).main()


def pack(path: Path, *records: dict[str, Any]) -> None:
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.write("".join(json.dumps(record) + "\n" for record in records))


def test_stories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """One form for all; what was cut is marked; books apart from tales; the same bytes each time."""
    stories = [{"text": f"“No,” said Tom’s cat {i}.\nIt ran – home. ", "whole": i != 2} for i in range(5)]
    pack(tmp_path / "synthetic_train.jsonl.gz", *stories)
    pack(tmp_path / "tinystories_train.jsonl.gz", {"text": "One day.\n\nThe end."})
    kinds = {"tale": "CC BY (African Storybook)", "book": "Public domain", "short": "CC BY 4.0 (StoryWeaver)"}
    tales = [
        {"text": kind, "kind": kind, "author": f"Who told a {kind}", "licence": under}
        for kind, under in kinds.items()
    ]
    pack(tmp_path / "tales_train.jsonl.gz", *tales)
    for out in ("one", "two"):
        run("stories", monkeypatch, tmp_path, tmp_path / out, "--vocab", 270)
    one, two = (re.sub("one|two", "", text) for text in capsys.readouterr().out.split("vocabulary\n")[:2])
    assert one == two
    found = {
        path.stem: [json.loads(line) for line in path.read_text().splitlines()]
        for path in (tmp_path / "one").glob("*.jsonl")
    }
    assert sorted(found["simple"], key=lambda record: record["text"]) == [
        {"text": f'"No," said Tom\'s cat {i}.\n\nIt ran - home.', "whole": i != 2} for i in range(5)
    ]
    assert found["simple"][0]["text"] != found["simple"][-1]["text"]
    assert found["tinystories"] == [{"text": "One day.\n\nThe end."}]
    assert sorted(record["text"] for record in found["tales"]) == ["short", "tale"]
    assert found["books"] == [{"text": "book"}]
    credits = (tmp_path / "one" / "credits.md").read_text()
    assert "CC BY, African Storybook**: Who told a tale." in credits
    assert "StoryWeaver**: Who told a short." in credits
    vocabulary = load_tokenizer(tmp_path / "one" / "vocabulary")
    assert vocabulary is not None
    assert len(vocabulary) == 270


def test_curve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two parts of a training make one line, inside the picture."""
    for part, start in (("a", 6.0), ("b", 4.0)):
        steps = [{"step": i, "loss": start - i / 1000, "tokens": 1000 * i} for i in range(1, 1001)]
        lines = [*steps, {"step": 1000, "held_out": start - 0.9}, {"step": 1000, "preview": "Once"}]
        (tmp_path / f"{part}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    run("curve", monkeypatch, tmp_path / "a.jsonl", tmp_path / "b.jsonl", "-o", tmp_path / "c.svg")
    picture = ElementTree.parse(tmp_path / "c.svg").getroot()
    lines = [
        line
        for line in picture.iter("{http://www.w3.org/2000/svg}path")
        if line.attrib.get("stroke-width") == "2"
    ]
    steps, held_out = (
        [tuple(map(float, point.split())) for point in line.attrib["d"][1:].split("L")] for line in lines
    )
    assert len(steps) == 300  # of 400: those above 5.5 would press the rest together
    assert len(held_out) == 2
    width, height = map(float, picture.attrib["viewBox"].split()[2:])
    assert all(0 < x < width and 0 < y < height for x, y in steps + held_out)
    assert [x for x, _ in steps] == sorted(x for x, _ in steps)
    assert steps[0][1] < steps[-1][1]  # a lower loss is further down


def test_card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Its figures are those of `glass eval`, its tables have a row a block, its samples are the model's own."""
    for name in ("tinystories_val", "tales_val"):
        pack(tmp_path / f"{name}.jsonl.gz", {"text": STORY})
    card = program("card")
    monkeypatch.setattr(card, "SAMPLES", 1)
    monkeypatch.setattr(card, "GREEDY", 1)
    monkeypatch.setattr(card, "FIRST_SENTENCES", ["Tom had a kite."])
    monkeypatch.setattr(sys, "argv", ["card", "storyteller", str(tmp_path)])
    card.main()
    found = capsys.readouterr().out
    lm = gf.load("storyteller")
    right = next(card.evaluate(lm, str(tmp_path / "tales_val.jsonl.gz"), characters=900))
    assert f"| tales_val | {right.bits_per_byte:.4f} |" in found
    layers = lm.net.config.layers
    assert re.findall(r"^\| (\d+) \|", found, re.MULTILINE) == [str(layer) for layer in range(layers)]
    assert f"| {layers - 1} | 100% |" in found
    assert found.count(".attn.pattern: what followed last time") == 2 * layers  # random tokens and stories
    text = re.sub(r"^> ?", "", found, flags=re.MULTILINE)
    for prompt, how in (
        ("Once upon a time", {"seed": 1}),
        ("Tom had a kite.", {"seed": 1}),
        ("Once upon a time", {"temperature": 0}),
    ):
        first = str(lm.generate(prompt, **how)).strip().split("\n")[0].rstrip()
        assert len(first) > len(prompt)
        assert first in text
