"""glass top: the likeliest next tokens."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from glassformer.engine.native import ways
from glassformer.generation.sampling import log_softmax
from glassformer.tasks.load import load

TEXT = "The cat sat. The cat"


def test_top_shows_bars_that_fit_the_numbers(glass, model: str) -> None:
    """Ten rows, falling; the data is the same."""
    code, out, _ = glass("top", "-m", model, "Once upon")
    assert code == 0
    shown = [float(share) for share in re.findall(r"([\d.]+)%", out)]
    data = json.loads(glass("top", "-m", model, "--json", "Once upon")[1])["next"]
    assert len(shown) == len(data) == 10
    assert shown == sorted(shown, reverse=True)
    assert shown == pytest.approx([100 * one["probability"] for one in data], abs=0.051)


def test_top_interactive_picks_and_goes_back(glass, model: str) -> None:
    """Pick the first, pick the second, take it back, end."""
    code, out, err = glass("top", "-m", model, "-i", "Once", stdin="1\n2\n0\nnine\n\n")
    assert code == 0
    best = json.loads(glass("top", "-m", model, "--json", "-k", "1", "Once")[1])["next"][0]["text"]
    assert out.splitlines()[-1] == f"Once{best}".splitlines()[-1]
    assert "'nine' is not a number" in err


def test_interactive_top_starts_from_a_file(glass, model: str, tmp_path: Path) -> None:
    """And `00` picks nothing."""
    (tmp_path / "p.txt").write_text("Once upon")
    code, out, err = glass("top", "-m", model, "-i", "-f", str(tmp_path / "p.txt"), stdin="00\n\n")
    assert code == 0
    assert out.splitlines()[-1] == "Once upon"
    assert "'00' is not a number" in err


def test_the_next_token_as_it_would_be_drawn(printed) -> None:
    """Temperature, cut and data are the same as in words."""
    cold = json.loads(printed("top", "--json", "--temperature", "0.2", "--top-k", "2", "-k", "4", TEXT))[
        "next"
    ]
    warm = json.loads(printed("top", "--json", "-k", "4", TEXT))["next"]
    assert cold[0]["probability"] > warm[0]["probability"]
    assert [one["kept"] for one in cold] == [True, True, False, False]
    assert "--json prints and -o saves" in printed("top", "--json", "-o", "x.svg", TEXT, code=2)


@pytest.mark.skipif(not ways(), reason="no native engine was built here")
def test_the_native_engine_needs_no_torch() -> None:
    """Once the model is quantized, nothing of torch is loaded: not for top, not for generate, not for bench."""
    commands = [["top", "Once upon a"], ["generate", "-n", "2", "Once"], ["bench", "--rounds=1", "--no-cold"]]
    code = "import sys; from glassformer.cli import run\n"
    code += "".join(f"assert run({one!r}) == 0\n" for one in commands)
    load("storyteller")  # which quantizes it, in this test's own home
    check = "assert 'torch' not in sys.modules, 'torch was imported'"
    done = subprocess.run(
        [sys.executable, "-c", code + check], capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, done.stderr


def test_by_the_engine_that_is_asked_for(glass, model: str) -> None:
    """Torch is exact, the native engine near it; a model that it cannot run is torch's."""
    exact, near = (
        json.loads(glass("top", "-m", model, "--json", "--engine", engine, "Once")[1])["next"]
        for engine in ("torch", "auto")
    )
    assert {one["token"] for one in exact[:3]} & {one["token"] for one in near[:3]}
    assert exact[0]["probability"] == pytest.approx(near[0]["probability"], rel=0.2)


def test_small_probabilities_differ(printed) -> None:
    """0.0% ten times would say nothing; the JSON names the model."""
    shares = re.findall(r"([\d.]+)%", printed("top", "Once upon a"))
    assert shares[0] == "99.5"
    assert len(set(shares)) > 8
    assert json.loads(printed("top", "--json", "Once upon a"))["model"] == "storyteller"


def test_how_probable_each_token_of_a_text_is(glass, model: str, tmp_path: Path) -> None:
    """The same as in Python, where it is the softmax of the logits before each token."""
    lm = load(model, engine="torch")
    code, out, _ = glass("top", "-m", model, "--engine", "torch", "--each", "--json", TEXT)
    assert code == 0
    found, ids = json.loads(out), lm.encode(TEXT)
    rows = [log_softmax(row)[id] for row, id in zip(lm.logits(ids), ids[1:], strict=False)]
    assert [row[0] for row in found["rows"]] == list(range(1, len(ids)))
    assert [row[3] for row in found["rows"]] == pytest.approx(rows, abs=1e-4)
    assert len(lm.probabilities(TEXT, given=3).rows) == len(ids) - 3
    last = log_softmax(lm.next_logits(ids[:-1]))
    assert found["columns"][-1]["name"] == "entropy (bits)"
    assert found["rows"][-1][-1] == pytest.approx(-(np.exp(last) * last).sum() / np.log(2), abs=1e-3)
    for more, words in ((["-k", "3"], "-k does not go with --each"), (["-i"], "--interactive does not go")):
        assert words in glass("top", "-m", model, "--each", *more, TEXT)[2]
    assert "1 token; at least 2 are needed" in glass("top", "-m", model, "--each", "a")[2]
