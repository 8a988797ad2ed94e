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
import torch
from composers import small_composer

import glassformer as gf
from glassformer.hub.folder import save_folder
from glassformer.hub.vocabulary import load_tokenizer
from glassformer.tokenizers.music import Chorale

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


def chorales(data: Path) -> None:
    """A few pieces in the form of the collection: chords that wander, never below the bass's lowest."""
    pieces = [
        [[67 + (at + n) % 5, 62, 57 + at % 3, 45 + (n * at) % 7] for at in range(24 + 4 * n)]
        for n in range(5)
    ]
    (data / "jsb_chorales").mkdir(parents=True)
    with gzip.open(data / "jsb_chorales" / "jsb-16th-voices.json.gz", "wt") as file:
        json.dump({"train": pieces[:3], "valid": pieces[3:4], "test": pieces[4:]}, file)


def test_chorales(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both layouts, in every key within the voices' ranges; the measures run, and see copies."""
    chorales(tmp_path)
    monkeypatch.syspath_prepend(RECIPES)
    run("chorales", monkeypatch, tmp_path, tmp_path / "out")
    for ahead in (0, 16):
        folder = tmp_path / "out" / f"ahead-{ahead}"
        lines = {
            file.stem: [json.loads(line)["text"] for line in file.read_text().splitlines()]
            for file in folder.glob("*.jsonl")
        }
        assert [len(lines[name]) for name in ("train", "valid", "test")] == [3, 1, 1]
        assert set(lines["train"]) <= set(lines["transposed"])
        assert (
            lines["train"][0].split()[:ahead]
            == [word for word in lines["train"][0].split() if word[0] == "S"][:ahead]
        )
    model = small_composer(Chorale(2), context=64)
    save_folder(tmp_path / "m", model.net, tokenizer=model.events)
    capsys.readouterr()
    run("chorale_scores", monkeypatch, tmp_path, tmp_path / "m")
    cells = capsys.readouterr().out.splitlines()[-1].split(" | ")
    piece = program("chorales").read_chorales(tmp_path)["test"][0]
    # By hand, where the piece fits into one window: 4 · 40 + 2 words do not, so of its first 15 steps.
    scores = program("chorale_scores")
    found = list(scores.nats(model, piece[:15]))
    ids = [model.events.end, *Chorale(2).lay(piece[:15])]
    logits = torch.from_numpy(model.logits(ids[:-1])).log_softmax(-1)
    right = [-float(logits[at, id]) for at, id in enumerate(ids[1:])]
    kept = [loss for id, loss in zip(ids[1:], right, strict=True) if model.events.decode([id]) != "S."]
    assert [loss for _, loss in found] == pytest.approx(kept, abs=1e-4)
    assert len(list(scores.nats(model, piece))) == 4 * len(piece)
    assert 1 < float(cells[3]) < 20


def test_the_figures_of_a_card() -> None:
    """Each sees what it counts, and nothing in a piece without it."""
    sys.path.insert(0, str(RECIPES))
    card = program("composer_card")
    sys.path.remove(str(RECIPES))
    plain = [[72, 67, 64, 48]] * 4 + [[71, 67, 62, 55]] * 4 + [[72, 64, 60, 48]] * 8
    known = card.Known([plain, [[80, 70, 60, 40], [60, 55, 50, 36]] * 9])
    found = card.measure(plain, known)
    assert (found.out_of_range, found.crossings, found.fifths, found.repetition) == (0, 0, 0, 0)
    assert found.copied == pytest.approx(15 / 4)
    up = [[pitch + 3 for pitch in step] for step in plain]
    assert card.measure(up, known).copied == found.copied  # in another key it is the same
    other = [[74, 65, 62, 50]] * 2 + up[3:9]
    assert card.measure(other, known).copied == pytest.approx(5 / 4)
    moved = [72, 67, 60, 48], [74, 69, 62, 50]
    assert (card.parallel(*moved, 0), card.parallel(*moved, 7)) == (3, 2)  # octaves, fifths
    assert card.parallel([72, 67, 64, 48], [71, 67, 62, 55], 0) == 0
    crossed = [[60, 67, 55, 48], [72, 67, 55, 48]]
    assert card.measure(crossed, known).crossings == 0.5
    assert card.measure([[90, 67, 55, 48]] * 2, known).out_of_range == 0.25
    assert card.measure(plain + plain, known).repetition == 0.5
    assert card.measure(plain, known).density == pytest.approx((3 + 2 + 3 + 3) / 4 / 4)


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


def test_figures_of_several_machines_come_together(tmp_path: Path) -> None:
    """A run that is here replaces its entry; entries of others stay; a run that is not done has none."""
    gathered = program("gathered")
    for name, score in {"last-1": 20.6, "last-2": 20.1}.items():
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "figures.json").write_text(json.dumps({"bleu": score}))
    (tmp_path / "runs" / "last-3").mkdir()
    file = tmp_path / "figures.json"
    gathered.write(file, {"mean-1": {"bleu": 28.2}, "last-1": {"bleu": 0.0}})
    gathered.gather(tmp_path / "runs", file)
    assert gathered.known(file) == {
        "last-1": {"bleu": 20.6},
        "last-2": {"bleu": 20.1},
        "mean-1": {"bleu": 28.2},
    }
    assert list(gathered.known(file)) == ["last-1", "last-2", "mean-1"]
    assert gathered.known(tmp_path / "none.json") == {}
