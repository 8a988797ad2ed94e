"""Targets: one-hot rows, and what a model predicts in their place."""

import numpy as np
import pytest
import torch
from translators import small_translator

from glassformer.answers.answer import labels
from glassformer.models.transformer import Transformer
from glassformer.tasks.translated import Translated


@pytest.fixture(scope="module")
def out() -> Translated:
    return small_translator(seed=5).translate("She liked to play.", to="fr", max_new_tokens=4)


@pytest.mark.parametrize("target", [None, "a park"])
def test_rows_are_softmax_over_the_small_vocabulary(out: Translated, target: str | None) -> None:
    """Of the trained model, and of one with the weights that a training starts from."""
    found, model = out.targets(target, also=[" Lily"], seed=7), out.model
    wanted = out.tokens if target is None else [*model.encode(target), min(model.ends)]
    columns = list(dict.fromkeys([*wanted, model.encode(" Lily")[0]]))
    assert found.tokens == labels(model.tokenizer, wanted)
    assert found.vocabulary == labels(model.tokenizer, columns)
    np.testing.assert_array_equal(found.target, np.eye(len(columns))[[columns.index(one) for one in wanted]])

    untrained = Transformer(model.net.config).initialize(7).eval()
    source = torch.tensor([out.source_tokens])
    inputs = torch.tensor([[model.net.config.start, *wanted[:-1]]])
    for name, net in (("trained", model.net), ("untrained", untrained)):
        with torch.no_grad():
            logits = net(source, inputs)[0].double()
        np.testing.assert_allclose(getattr(found, name), logits[:, columns].softmax(-1), atol=1e-6)
        loss = torch.nn.functional.cross_entropy(logits, torch.tensor(wanted))
        assert found.loss[name] == pytest.approx(float(loss), abs=1e-5)
        if name == "trained":
            np.testing.assert_allclose(found.share, logits.softmax(-1)[:, columns].sum(-1))


def test_the_sentence_counts_rows(out: Translated) -> None:
    """How often the right token is first."""
    found = out.targets()
    right = sum(a.argmax() == b.argmax() for a, b in zip(found.target, found.trained, strict=True))
    assert f"first in {right} of {len(found.tokens)} rows" in found.sentence()
    assert [one["title"] for one in found.view().spec["panels"]] == [
        "target: one-hot",
        "untrained model",
        "trained model",
    ]
