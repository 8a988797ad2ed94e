"""The logit lens: what has no value is left out."""

import csv
import io

import numpy as np
import pytest

import glassformer as gf
from glassformer.tasks.complete import LanguageModel


@pytest.fixture(scope="module")
def lm() -> LanguageModel:
    return gf.load("storyteller")


def test_nothing_came_after_the_last_token(lm: LanguageModel) -> None:
    """It has no rank of a next token: not in the table, the picture or the file; all others have."""
    found = lm.generate("Once upon a", max_new_tokens=1, temperature=0).lens()
    last = len(found.tokens) - 1
    for row in csv.DictReader(io.StringIO(found.to_csv())):
        empty = int(row["position"]) == last
        assert (row["rank of next"] == "", row["logprob of next (nats)"] == "") == (empty, empty)
        assert row["entropy (nats)"]
    view = found.view("rank")
    assert np.isnan(view.to_numpy()).nonzero()[1].tolist() == [last] * len(found.stages)
    assert view.spec["texts"][0][:-1] == [f"{rank:,}" for rank in found.ranks[-1, :-1].tolist()]
    assert view.spec["texts"][0][-1] == ""


def test_no_stage_is_before_the_embedding(lm: LanguageModel) -> None:
    """So it has no cosine with one: an empty cell, not 0."""
    found = lm.generate("Once upon a", max_new_tokens=1, temperature=0).residual(position=2)
    at = found.columns.index("cosine with the stage before")
    assert [row[at] is None for row in found.rows] == [True] + [False] * (len(found.rows) - 1)
    assert found.rows[1][at] == pytest.approx(found.cosine[1])
    spec = found.view().spec
    drawn = found.view().to_numpy()[:, 2]
    assert np.isnan(drawn).tolist() == [False] * (len(drawn) - 1) + [True]
    assert "cosine with the stage before" in spec["x_title"]


def test_every_drawing_says_which_it_is(lm: LanguageModel) -> None:
    """Four drawings of one lens have four titles."""
    found = lm.generate("Once upon a", max_new_tokens=1, temperature=0).lens()
    titles = {name: found.view(name).spec["title"] for name in found.views}
    assert titles == {
        "probability": "storyteller: logit lens: the likeliest token and its probability",
        "rank": "storyteller: logit lens: rank of the token that came next",
        "entropy": "storyteller: logit lens: the likeliest token, colored by entropy",
        "divergence": "storyteller: logit lens: the likeliest token, colored by KL divergence from the last stage",
    }
