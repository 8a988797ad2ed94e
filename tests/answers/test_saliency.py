"""Saliency: the shares of what was generated, beside the same by hand."""

import csv
import io

import numpy as np
import pytest
import torch

import glassformer as gf
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
