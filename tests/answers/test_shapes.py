"""The shapes of recurrent networks: counted in runs of real networks, and drawn as columns."""

import json
from pathlib import Path

import pytest
from small import TEXT, small_net
from translators import small_translator

import glassformer as gf
from glassformer.cli import run
from glassformer.errors import InputError
from glassformer.explain.shapes import steps_of
from glassformer.hub.families import family
from glassformer.tasks.label import Labeler


def drawn(steps: list[dict[str, object]]) -> list[str]:
    """Every step in a few letters: what goes in, the state, what comes out; `~` is its own output."""
    return [
        f"{'~' * bool(step.get('own'))}{step['input'] or '-'} {step['state']} {step['output'] or '-'}"
        for step in steps
    ]


def test_the_four_shapes() -> None:
    """Each has the inputs, states and outputs that its name says."""
    found = {one.name: drawn(one.steps) for one in gf.shapes().shapes}
    assert found == {
        "one to many": ["x₁ s₁ y₁", "~y₁ s₂ y₂", "~y₂ s₃ y₃", "~y₃ s₄ y₄"],
        "many to one": ["x₁ h₁ -", "x₂ h₂ -", "x₃ h₃ -", "x₄ h₄ y₁"],
        "many to many, in step": ["x₁ h₁ y₁", "x₂ h₂ y₂", "x₃ h₃ y₃", "x₄ h₄ y₄"],
        "many to many, encoder and decoder": [
            *["x₁ h₁ -", "x₂ h₂ -", "x₃ h₃ -"],
            *["- s₁ y₁", "~y₁ s₂ y₂", "~y₂ s₃ y₃"],
        ],
    }
    assert [row[3:] for row in gf.shapes().rows] == [[1, 4, 4], [4, 4, 1], [4, 4, 4], [3, 6, 3]]


def test_the_picture() -> None:
    """Arrows, dashed ones for what is fed back, and the same steps as text; in a narrow picture in laps."""
    answer = gf.shapes()
    marks = answer.view().to_marks()["marks"]
    boxes = [mark for mark in marks if mark["mark"] == "rect"]
    assert len(boxes) == (4 + 4 + 4) + (4 + 4 + 1) + (4 + 4 + 4) + (5 + 6 + 3)
    dashed = [mark for mark in marks if mark.get("dash")]
    assert len(dashed) == 3 * 5  # of each: its way back, its edge, its arrow
    texts = {mark["text"] for mark in marks if mark["mark"] == "text"}
    assert {"encoder", "decoder", "one to many", "many to many, in step"} <= texts
    narrow = answer.view().to_marks(width=200)
    assert len([mark for mark in narrow["marks"] if mark["mark"] == "rect"]) == len(boxes)
    assert max(mark["x"] + mark["w"] for mark in narrow["marks"] if mark["mark"] == "rect") <= 200
    shown = answer.view().to_text(80, color=False)
    assert " x₁     x₂     x₃           (y₁)   (y₂)" in shown
    assert "h₁ → h₂ → h₃ → h₄" in shown


def test_a_translation(capsys: pytest.CaptureFixture[str]) -> None:
    """With its own tokens; an encoder of two directions has arrows both ways, its decoder has not."""
    out = small_translator("seq2seq", seed=1, bidirectional=True).translate(
        "She liked to play.", to="fr", max_new_tokens=3
    )
    (shape,) = out.shape().shapes
    assert (shape.reads, shape.writes) == (len(out.source_tokens), 3)
    assert shape.steps[1]["input"] == "She"
    both = [bool(step.get("both_ways")) for step in shape.steps]
    assert both == [True] * (shape.reads - 1) + [False] * 4
    assert "⇄" in out.shape().view().to_text(200, color=False)
    with pytest.raises(InputError, match="shapes: this model has no recurrent state"):
        small_translator(seed=1).translate("She", to="fr", max_new_tokens=2).shape()


@pytest.mark.parametrize("shape", ["classify", "tag"])
def test_a_network_that_labels(shape: str) -> None:
    """Its labels above the last token of a word, or above the last token of all."""
    tokenizer = family("rnn").train_tokenizer([TEXT], 300)
    net = small_net("rnn", vocab=len(tokenizer), shape=shape, labels=("noun", "verb"))
    model = Labeler(net, tokenizer, name="small")
    found = model.shape("Lily liked parks")
    (one,) = found.shapes
    assert one.name == ("many to one" if shape == "classify" else "many to many, in step")
    said = [step["output"] for step in one.steps if step["output"] is not None]
    if shape == "classify":
        assert said == [model.classify("Lily liked parks").label]
        assert one.steps[-1]["output"] == said[0]
    else:
        assert said == [label.label for label in model.tag("Lily liked parks")]
        assert len(one.steps) > 3
    with pytest.raises(InputError, match="there is nothing to label"):
        model.shape(" ")


def test_a_transformer_has_none() -> None:
    """One sentence."""
    with pytest.raises(InputError, match="no recurrent state"):
        steps_of(small_net("transformer"), [1, 2], [1])


def test_glass_show(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As text, as JSON, as pictures."""
    assert run(["show", "--shapes", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["kind"] == "shapes"
    for name in ("shapes.svg", "shapes.html", "shapes.csv"):
        assert run(["show", "--shapes", "-o", str(tmp_path / name)]) == 0
        assert "many to many, in step" in (tmp_path / name).read_text()
    capsys.readouterr()
    assert run(["show", "storyteller", "--shapes"]) == 2
    assert "MODEL does not go with --shapes" in capsys.readouterr().err
    assert run(["show", "--shapes", "--curve"]) == 2
