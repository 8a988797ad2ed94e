"""Edits in words beside the same edits in numbers, and the model outside and inside of them."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import glassformer as gf
from glassformer.answers import ask
from glassformer.answers.answer import Text
from glassformer.answers.edits import read_edits
from glassformer.errors import GlassError, InputError
from glassformer.explain.edits import values_at
from glassformer.tasks.complete import LanguageModel

TEXT = "The boy lost his"


@pytest.fixture(scope="module")
def lm() -> LanguageModel:
    return gf.load("storyteller", dtype="float64")


def by_hand(lm: LanguageModel, edits: dict[str, Any]) -> np.ndarray[Any, Any]:
    with gf.trace(lm.net, edits=edits):
        return lm.logits(lm.encode(TEXT))


def values(lm: LanguageModel, text: str, site: str) -> torch.Tensor:
    return values_at(lm.reading(lm.encode(text)), [site])[site]


def test_texts_are_read_as_numbers(lm: LanguageModel) -> None:
    """`over`, `from` and `pairs` are what the model thinks of those texts; a glob is each of its sites."""
    stream, head = "blocks.1.out", "blocks.1.attn.mix[2]"
    ours = values(lm, "The girl lost her", stream)
    mean = torch.cat([values(lm, text, head) for text in ("A dog", "The cat sat")]).mean(0)
    way = values(lm, "so happy", stream)[-1] - values(lm, "it was sad", stream)[-1]

    def patched(x: torch.Tensor) -> torch.Tensor:
        x = x.clone()
        x[0, 1] = ours[1]
        return x

    kinds: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"site": stream, "do": "patch", "from": "The girl lost her", "at": [1]}, {stream: patched}),
        ({"site": stream, "do": "patch", "from": "The girl lost her"}, {stream: lambda x: ours[None]}),
        ({"site": head, "do": "mean", "over": ["A dog", "The cat sat"]}, {head: lambda x: mean.expand_as(x)}),
        (
            {"site": stream, "do": "add", "by": 2, "pairs": [["so happy", "it was sad"]]},
            {stream: lambda x: x + 2 * way},
        ),
        ({"site": stream, "do": "add", "value": way.tolist()}, {stream: lambda x: x + way}),
        ({"site": "blocks.*.mlp", "do": "scale", "by": 0.5}, {"blocks.*.mlp": lambda x: x / 2}),
    ]
    plain = lm.logits(lm.encode(TEXT))
    for edit, hand in kinds:
        with lm.edit([edit]) as changed:
            found = changed.logits(lm.encode(TEXT))
        np.testing.assert_allclose(found, by_hand(lm, hand), rtol=1e-4, atol=1e-4)
        assert not np.allclose(found, plain), edit
    assert np.array_equal(lm.logits(lm.encode(TEXT)), plain)


def test_a_file_is_a_list(lm: LanguageModel, tmp_path: Path) -> None:
    """The same JSON; what is generated inside differs from outside; questions are answered edited."""
    edits = [
        {"site": "blocks.0.attn", "do": "zero"},
        {"site": "blocks.2.mlp.neurons[5]", "do": "scale", "by": -2},
    ]
    (tmp_path / "edits.json").write_text(json.dumps(edits))
    with lm.edit(edits):
        one = lm.generate(TEXT, max_new_tokens=8, temperature=0, seed=0)
        inside = one.lens(k=1)
    with lm.edit(tmp_path / "edits.json"):
        assert lm.generate(TEXT, max_new_tokens=8, temperature=0, seed=0) == one
    assert lm.generate(TEXT, max_new_tokens=8, temperature=0, seed=0) != one
    assert inside.top[-1, len(one.prompt_tokens) - 1, 0] == one.tokens[0]
    assert not np.array_equal(inside.logprobs, one.lens(k=1).logprobs)


def test_a_result_is_asked_as_it_was_written(lm: LanguageModel) -> None:
    """The end of the prompt stays where it was, and positions that were not there yet are no mistake."""
    for edit in (
        {"site": "blocks.1.out", "do": "zero", "at": [-1]},
        {"site": "blocks.1.out", "do": "patch", "from": "The girl lost her"},
        {"site": "blocks.0.mlp", "do": "scale", "by": 3, "at": [6]},
    ):
        with lm.edit([edit]):
            out = lm.generate(TEXT, max_new_tokens=5, temperature=0)
            found = out.rankings()
            out.saliency(tested=False)
        assert (found.ranks[-1] == 1).all()
        np.testing.assert_allclose(found.logprobs[-1], out.logprobs, atol=1e-5)


def test_which_places_matter(lm: LanguageModel) -> None:
    """Before the last layer it is the word that differs, behind it the last position."""
    found = lm.sweep("The girl lost", "The boy lost", answer=" her", foil=" his")
    np.testing.assert_array_equal(found.to_numpy()["restored"], found.restored)
    restored = found.restored
    assert restored.shape == (len(lm.net.blocks), 3)
    assert restored[0, 1] > 0.5
    assert restored[-1] == pytest.approx([0, 0, 1])
    assert found.caption.endswith("clean 'The girl lost', corrupted 'The boy lost'")
    assert found.view().spec["scale"]["high"] == 1.0
    heads = lm.sweep(
        "The girl lost", "The boy lost", answer=" her", foil=" his", sites="blocks.*.attn.mix[0]"
    )
    assert heads.sites == [f"blocks.{layer}.attn.mix[0]" for layer in range(len(lm.net.blocks))]
    several = lm.sweep(
        "The girl lost", "The boy lost", answer=" her", foil=" his", sites=["embed", "blocks.1.attn.mix[*]"]
    )
    count = lm.net.config.heads
    assert several.sites == ["embed", *(f"blocks.1.attn.mix[{head}]" for head in range(count))]
    assert several.restored[0, 1] == pytest.approx(1, abs=1e-5)


def test_a_sweep_needs_a_difference(lm: LanguageModel) -> None:
    """Where there is none, a share of it would be 0 ÷ 0."""
    with pytest.raises(InputError, match="both texts have the logit difference"):
        lm.sweep(TEXT, TEXT, answer=" her", foil=" his")


@pytest.mark.parametrize(
    ("edits", "words"),
    [
        ({"site": "embed", "do": "zero"}, "edits: not a list of edits"),
        (["zero"], "edit 0 is 'zero', not an object"),
        ([{"do": "zero"}], "edit 0: 'site' must be a text"),
        ([{"site": "embed", "do": "zero"}, {"site": "embed"}], "edit 1: 'do' must be a text"),
        ([{"site": "embed", "do": "burn"}], "edit 0: do 'burn' is none of zero, scale, mean, add, patch"),
        ([{"site": "embed", "do": "zero", "by": 2}], "edit 0: zero takes no 'by'; it takes site, do, at"),
        ([{"site": "embed", "do": "scale"}], "edit 0: scale needs 'by'"),
        ([{"site": "embed", "do": "scale", "by": "much"}], "'by' must be a finite number, not 'much'"),
        ([{"site": "embed", "do": "scale", "by": "2"}], "'by' must be a finite number, not '2'"),
        ([{"site": "embed", "do": "scale", "by": 10**400}], "'by' must be a finite number, not 10000"),
        ([{"site": "embed", "do": "scale", "by": 10**5000}], "not a number that is too large"),
        ([{"site": "embed", "do": "zero", "at": 3}], "'at' must be a list of positions"),
        ([{"site": "embed", "do": "zero", "at": [1.5]}], "'at' must be a list of positions"),
        ([{"site": "embed", "do": "zero", "at": [2**63]}], "'at' must be a list of positions"),
        ([{"site": "embed", "do": "zero", "at": [-(2**63)]}], "'at' must be a list of positions"),
        ([{"site": "embed", "do": "zero", "at": [2**39]}], "no text had a position 549755813888"),
        ([{"site": "embed", "do": "zero", "at": [77]}], "no text had a position 77"),
        ([{"site": "embed", "do": "patch"}], "edit 0: patch needs 'from' or 'value', one of them"),
        ([{"site": "embed", "do": "patch", "from": 3}], "'from' must be a text"),
        ([{"site": "embed", "do": "mean", "over": "text"}], "'over' must be a list"),
        ([{"site": "embed", "do": "mean", "over": [3]}], "'over' must be a list of texts"),
        ([{"site": "embed", "do": "mean", "over": []}], "at least one text"),
        ([{"site": "embed", "do": "add", "pairs": [["one"]]}], "'pairs' must be a list of two texts each"),
        ([{"site": "embed", "do": "add", "value": [[1], [1, 2]]}], "'value' must be finite numbers"),
        ([{"site": "embed", "do": "add", "value": ["1", "2"]}], "'value' must be finite numbers"),
        ([{"site": "embed", "do": "add", "value": [10**400]}], "'value' must be finite numbers"),
        ([{"site": "embed", "do": "add", "value": True}], "'value' must be finite numbers"),
        ([{"site": "embed", "do": "add", "value": [None]}], "'value' must be finite numbers"),
        ([{"site": "embed", "do": "scale", "by": float("nan")}], "'by' must be a finite number, not nan"),
        (
            [{"site": "blocks.0.attn.pattern", "do": "mean", "over": ["A", "A dog"]}],
            "another shape for every text",
        ),
        ([{"site": "embed", "do": "patch", "from": "The girl", "at": [2]}], "the other text has 0 to 1"),
        ([{"site": "embed", "do": "add", "value": [1, 2]}], r"a value of shape \(2,\) does not fit"),
        ([{"site": f"blocks.0.attn.mix[{'9' * 5000}]", "do": "zero"}], "is not an address"),
        ([{"site": "blocks.0.attn.mix[\u0661]", "do": "zero"}], "is not an address"),
        ([{"site": "*" * 60 + ".x", "do": "zero"}], "no site matches"),
        ([{"site": "blocks.77.out", "do": "zero"}], "no site matches 'blocks.77.out'"),
    ],
)
def test_what_cannot_be_done(lm: LanguageModel, edits: Any, words: str) -> None:
    """One sentence each, and the model is as it was."""
    with pytest.raises(GlassError, match=words), lm.edit(edits):
        lm.logits(lm.encode(TEXT))
    assert lm.net.tracer is None
    assert not lm.net._forward_pre_hooks


def test_what_is_no_file(lm: LanguageModel, tmp_path: Path) -> None:
    """Missing, not JSON, not a list, a pipe without a writer, brackets without end."""
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "deep.json").write_text("[" * 100_000)
    (tmp_path / "bad.json").write_text("{")
    (tmp_path / "map.json").write_text("{}")
    for name, words in (
        ("none.json", "cannot be read"),
        ("bad.json", "not valid JSON"),
        ("map.json", "not a list of edits"),
        ("pipe.json", "it is a pipe or a device"),
        ("deep.json", "nested too deeply"),
    ):
        with pytest.raises(GlassError, match=words), lm.edit(tmp_path / name):
            pass


def test_numbers_that_overflow_are_refused(lm: LanguageModel) -> None:
    """An edit may be finite while what the model makes of it is not."""
    with pytest.raises(GlassError, match="the model's logits are not finite"):
        ask("edit", Text(lm, lm.encode(TEXT)), edits=[{"site": "embed", "do": "add", "value": 1e308}])


def test_a_mean_over_many_texts_reports_progress(lm: LanguageModel) -> None:
    """After every text."""
    seen: list[tuple[int, int]] = []
    edits = [{"site": "blocks.0.mlp", "do": "mean", "over": ["A dog", "A cat", "The girl"]}]
    read_edits(lm, edits, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(1, 3), (2, 3), (3, 3)]
