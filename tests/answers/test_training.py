"""Training seen from close by: rows of features and label, and one update beside the same step by hand."""

import copy
import json
from pathlib import Path

import numpy as np
import pytest
import torch

import glassformer as gf
from glassformer.answers import ask
from glassformer.errors import InputError
from glassformer.figures.layout import figure
from glassformer.tasks.complete import LanguageModel

TEXT = "A robot must obey the orders given it"


@pytest.fixture(scope="module")
def lm() -> LanguageModel:
    return gf.load("storyteller", engine="torch")


def test_rows_of_a_sentence(lm: LanguageModel) -> None:
    """Every token but the first is a label once; its features are the tokens before it, `window` at most."""
    ids = lm.encode(TEXT)
    for window in (1, 3, 100):
        found = lm.training_rows(TEXT, window=window)
        assert [row.label for row in found.training_rows] == ids[1:]
        for n, row in enumerate(found.training_rows):
            assert row.features == ids[max(0, n + 1 - window) : n + 1]
    found = lm.training_rows(TEXT, window=2)
    assert found.rows[0] == [1, "A", " robot"]
    assert found.rows[1] == [2, "A robot", " must"]
    drawn = found.view().spec["rows"]
    assert drawn[1] == {"note": "row 2", "pieces": ["A", "␣robot", "␣must"], "made": 2}  # the label is marked
    assert "␣robot ␣must" in found.view().to_text(80, color=False)


def test_rows_of_a_long_text_are_drawn_in_part(lm: LanguageModel) -> None:
    """The table has all of them, the picture gives the number that it leaves out."""
    found = lm.training_rows("One day a robot met a girl. " * 40)
    assert found.view().spec["rows"][-1]["pieces"][0].endswith("more rows")
    assert len(found.rows) == len(found.tokens) - 1


def test_an_update_is_a_step_of_gradient_descent(lm: LanguageModel) -> None:
    """The same numbers as a step by hand on the loss of the last token; the label becomes likelier."""
    ids = lm.encode(TEXT)
    found = lm.update(TEXT, lr=0.02)
    net = copy.deepcopy(lm.net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.02)
    given = torch.tensor([ids[:-1]])
    before = net(given)[0, -1]
    loss = torch.nn.functional.cross_entropy(before[None], torch.tensor([ids[-1]]))
    loss.backward()  # type: ignore[no-untyped-call]
    norm = torch.nn.utils.get_total_norm([one.grad for one in net.parameters() if one.grad is not None])
    optimizer.step()
    with torch.no_grad():
        after = net(given)[0, -1]

    assert found.loss == pytest.approx(loss.item(), rel=1e-4)
    assert found.gradient_norm == pytest.approx(float(norm), rel=1e-4)
    assert found.step_norm == pytest.approx(0.02 * float(norm), rel=1e-4)
    np.testing.assert_allclose(found.logits, before[found.ids].detach().numpy(), atol=1e-4)
    np.testing.assert_allclose(found.logits_after, after[found.ids].numpy(), atol=1e-4)
    assert found.label == ids[-1]
    assert found.label in found.ids
    assert found.loss_after < found.loss
    assert found.error[found.ids.index(found.label)] == pytest.approx(np.exp(-found.loss) - 1, abs=1e-5)


def test_an_update_changes_no_bit_of_the_model(lm: LanguageModel) -> None:
    """It is made on a copy: weights, their gradients and the next prediction are as before."""
    before = {name: weight.clone() for name, weight in lm.net.state_dict().items()}
    first = lm.logits(lm.encode(TEXT))
    assert lm.update(TEXT, lr=0.5).to_dict() == lm.update(TEXT, lr=0.5).to_dict()
    for name, weight in lm.net.state_dict().items():
        assert torch.equal(weight, before[name]), name
    assert all(weight.grad is None for weight in lm.net.parameters())
    assert np.array_equal(lm.logits(lm.encode(TEXT)), first)


def test_an_update_leaves_the_native_engine_at_work() -> None:
    """The model was not changed, so what generates stays the same."""
    lm = gf.load("storyteller")
    before = lm.generate("Once", max_new_tokens=4, temperature=0)
    lm.update(TEXT)
    after = lm.generate("Once", max_new_tokens=4, temperature=0)
    assert (after.text, after.engine) == (before.text, before.engine)


def test_what_cannot_be_trained_on(lm: LanguageModel) -> None:
    """One sentence each."""
    for call, words in (
        (lambda: lm.training_rows("A"), "at least two tokens"),
        (lambda: lm.training_rows(TEXT, window=0), "window must be a whole number of at least 1, not 0"),
        (lambda: lm.update("A"), "at least two tokens"),
        (lambda: lm.update(TEXT, lr=float("nan")), "lr must be above 0, not nan"),
    ):
        with pytest.raises(InputError, match=words):
            call()


def test_curves_of_several_parts(tmp_path: Path) -> None:
    """The tokens of a part go on where the part before ended."""
    files = [tmp_path / "one.jsonl", tmp_path / "two.jsonl"]
    for file in files:
        lines = [{"step": n, "loss": 5.0, "tokens": 1_000_000 * n} for n in (1, 2)]
        file.write_text("".join(json.dumps(line) + "\n" for line in [*lines, {"step": 2, "held_out": 4.0}]))
    found = ask("curve", files)
    assert found.tokens_read == [1_000_000 * n for n in (1, 2, 3, 4)]  # type: ignore[attr-defined]
    assert found.rows[-1] == [4_000_000, 5.0, 4.0]
    assert found.caption == "one, two: loss in nats per token"
    with pytest.raises(InputError, match="there is no such file"):
        ask("curve", [tmp_path / "three.jsonl"])


def test_the_best_point_is_in_the_table(tmp_path: Path) -> None:
    """Of many points the table has a few: the first, the last, and the lowest held-out loss, wherever it is."""
    log = tmp_path / "metrics.jsonl"
    lines = []
    for n in range(1, 1000):
        lines.append({"step": n, "loss": 5.0 - n / 1000, "tokens": 100 * n})
        lines.append({"step": n, "held_out": 3.0 if n == 333 else 4.0})
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = ask("curve", [log])
    assert 10 < len(found.rows) <= 20
    assert len(found.every().rows) > 900
    assert found.rows[0][0] < 300
    assert found.rows[-1][0] == 99_900
    assert 33_300 in [row[0] for row in found.rows]


def test_a_curve_has_one_unit_in_all_its_forms(tmp_path: Path) -> None:
    """Tokens and nats in the table, the file, the data and the picture, where large numbers are short."""
    log = tmp_path / "metrics.jsonl"
    log.write_text("".join(json.dumps({"loss": 5.0, "tokens": 500_000 * n}) + "\n" for n in range(1, 5)))
    found = ask("curve", [log])
    assert found.columns == ["tokens", "training (nats)", "held out (nats)"]
    assert found.to_csv().splitlines()[1].startswith("500000,")
    assert found.to_dict()["values"]["tokens_read"][0] == 500_000
    spec = found.view().spec
    assert (spec["x"][0], spec["x_title"], spec["y_title"]) == (500_000, "tokens", "loss (nats per token)")
    said = [mark["text"] for mark in figure(spec).marks if mark["mark"] == "text"]
    assert {"0.5M", "1.0M", "2.0M"} <= set(said)
    assert "loss (nats per token) over tokens" in found.view().to_text(80, color=False)
