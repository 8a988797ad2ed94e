"""Saliency: the shares of what was generated, beside the same by hand."""

import csv
import io

import numpy as np
import pytest
import torch
from translators import small_translator

import glassformer as gf
from glassformer.errors import InputError
from glassformer.figures.labels import number, percent
from glassformer.tasks.complete import LanguageModel


@pytest.fixture(scope="module")
def lm() -> LanguageModel:
    return gf.load("storyteller")


def test_a_file_has_all_sources(lm: LanguageModel) -> None:
    """A table may be a selection; its CSV is not: the shares of a token add up to 1."""
    out = lm.generate("The cat sat on", max_new_tokens=2, temperature=0)
    why = out.saliency(tested=False)
    shares = list(csv.DictReader(io.StringIO(why.to_csv())))
    assert len(shares) == len(out.prompt_tokens) * 2 + 1
    first = [abs(float(row["share"])) for row in shares if row["position"] == shares[0]["position"]]
    assert sum(first) == pytest.approx(1, abs=1e-5)
    assert {why.tokens[int(row["position"])] for row in shares} == {row["token"] for row in shares}


def test_why_explains_what_was_written(lm: LanguageModel) -> None:
    """A row of shares for every generated token, on all before it; the last token explains nothing."""
    written = lm.generate("Once upon a time", max_new_tokens=3, temperature=0)
    found = written.saliency(tested=False)
    shares = found.shares
    assert shares.shape == (3, len(written.prompt_tokens) + 2)
    assert [target.token for target in found.targets] == written.tokens
    embedded = lm.net.tokens(torch.tensor([written.prompt_tokens])).detach().requires_grad_()
    with gf.trace(lm.net, edits={"embed": lambda x: embedded + lm.net.positions.weight[: x.shape[1]]}):
        logit = lm.net(torch.tensor([written.prompt_tokens]))[0, -1, written.tokens[0]]
    logit.backward()
    assert embedded.grad is not None
    right = (embedded.grad * embedded)[0].norm(dim=-1).detach().numpy()
    np.testing.assert_allclose(shares[0, : len(right)], right / right.sum(), rtol=1e-4)


def test_the_test_of_a_token_is_reported_once(lm: LanguageModel) -> None:
    """Not in every row: in the caption, as a mean of several tokens; values and CSV have each."""
    found = lm.generate("Once upon a", max_new_tokens=2, temperature=0).saliency(
        "integrated_gradients", steps=4
    )
    assert found.columns == ["position", "token", "source", "share"]
    assert found.curves is not None
    np.testing.assert_array_equal(found.deletion, found.curves.deletion_area)
    np.testing.assert_array_equal(found.insertion, found.curves.insertion_area)

    values = found.to_dict()["values"]
    tests = {
        "completeness gap": values["gaps"],
        "deletion": values["deletion"],
        "insertion": values["insertion"],
        "random order": values["random_order"],
    }
    means = ", ".join(f"{name} {number(float(np.mean(each)))}" for name, each in tests.items())
    assert found.caption.partition("\n")[2] == f"{means} (means of 2 tokens)"
    assert means in found.view().spec["caption"]
    for row in csv.DictReader(io.StringIO(found.to_csv())):
        n = int(row["position"]) - 3
        assert [float(row[name]) for name in tests] == pytest.approx([each[n] for each in tests.values()])

    assert found.table_note == ""
    titles = [one["title"] for one in found.view().spec["panels"]]
    areas = [f"{name} {number(tests[name][1])}" for name in ("deletion", "insertion", "random order")]
    assert titles[3] == f"areas: {', '.join(areas)}"


def test_areas_are_those_under_the_lines_of_the_picture(lm: LanguageModel) -> None:
    """Probability ÷ the full one, which the axis names, beside a line of random order."""
    found = lm.generate("Once upon a", max_new_tokens=2, temperature=0).saliency()
    assert found.curves is not None
    plot = found.view().spec["panels"][3]
    areas = {one["name"]: np.trapezoid(one["values"], plot["x"]) for one in plot["series"]}
    assert areas == pytest.approx(
        {
            "deletion": found.curves.deletion_area[1],
            "insertion": found.curves.insertion_area[1],
            "random deletion": found.curves.random_area[1],
        },
        abs=1e-3,
    )
    full = percent(float(found.curves.deletion[1, 0]))
    assert plot["y_title"].endswith(f"÷ the full one, {full}")


def test_what_the_table_selects_is_not_said_in_the_picture(lm: LanguageModel) -> None:
    """A picture has all sources, so the note about the table's selection stays with the table."""
    out = lm.generate("Once upon a time there was", max_new_tokens=1, temperature=0)
    found = out.saliency(tested=False)
    assert found.table_note == f"the 5 strongest of up to {len(out.prompt_tokens)} sources of a token"
    assert "strongest" not in found.view().spec["caption"] + found.view().spec["title"]
    assert found.to_dict()["table_note"] == found.table_note


@pytest.mark.parametrize("kind", ["transformer", "seq2seq"])
def test_one_token_of_a_translation_alone(kind: str) -> None:
    """The same numbers as its row among all has, and its own test."""
    out = small_translator(kind).translate("She liked to play", to="fr", max_new_tokens=4)
    whole, one = out.saliency(tested=False), out.saliency(number=2)
    assert [target.position for target in one.targets] == [whole.targets[2].position]
    assert one.target_words == [whole.target_words[2]]
    np.testing.assert_allclose(one.shares, whole.shares[2:3], rtol=1e-5)
    assert one.deletion is not None
    assert one.deletion.shape == (1,)
    with pytest.raises(InputError, match="token 4 is out of range"):
        out.saliency(number=4)
