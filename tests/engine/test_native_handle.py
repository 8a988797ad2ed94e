"""The native engine as people meet it: no torch, the same text by every door, near the float model, and torch
where one looks.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import glassformer as gf
from glassformer.cli import run
from glassformer.errors import InputError
from glassformer.tasks.complete import LanguageModel
from glassformer.tasks.evaluate import evaluate

HEAVY = ("torch", "safetensors.torch", "transformers", "huggingface_hub", "scipy", "pandas")


@pytest.fixture(scope="module")
def native() -> LanguageModel:
    return gf.load("storyteller", engine="native")


@pytest.fixture(scope="module")
def exact() -> LanguageModel:
    return gf.load("storyteller", engine="torch")


def child(code: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_ready_model_writes_without_torch() -> None:
    """`glass generate`, streaming, batches and beams: numpy, tokenizers and the engine."""
    code = f"""
import sys
from glassformer.cli import run
for more in (["-s", "1"], ["--num-return-sequences", "2"], ["--num-beams", "2"], ["--json"]):
    assert run(["generate", "-n", "8", "Once upon a time", *more]) == 0
print("HEAVY", [name for name in {HEAVY!r} if name in sys.modules])
"""
    run(["generate", "-n", "1", "Once"])  # makes it ready, in this test's own home
    assert child(code).splitlines()[-1] == "HEAVY []"


def test_every_door_gives_the_same_text(native: LanguageModel, capsys: pytest.CaptureFixture[str]) -> None:
    """Python, command line, another process, alone and in a batch."""
    want = native.generate("Once upon a time", max_new_tokens=30, seed=3)
    assert run(["generate", "-n", "30", "-s", "3", "--json", "Once upon a time"]) == 0
    described = json.loads(capsys.readouterr().out)
    del described["seconds"], described["model"]
    assert described == want.to_dict()
    assert described["engine"] == "native int8"
    out = child(
        "from glassformer.cli import run; run(['generate', '-n', '30', '-s', '3', '--json', 'Once upon a time'])"
    )
    assert json.loads(out) | described == json.loads(out)
    many = native.generate_many(["The dog", "Once upon a time", "A"], max_new_tokens=30, seed=3)
    assert many[1].tokens == want.tokens
    assert many[1].logprobs == want.logprobs  # to the bit


def test_the_backend_can_be_chosen(native: LanguageModel, exact: LanguageModel) -> None:
    """torch is fp32, native is int8; what does not fit is refused in one sentence."""
    assert native.generate("Once", max_new_tokens=2).engine == "native int8"
    assert exact.generate("Once", max_new_tokens=2).engine == "torch float32"
    assert (
        gf.load("storyteller", dtype="float64").generate("Once", max_new_tokens=2).engine == "torch float64"
    )
    for how, message in (
        ({"engine": "fast"}, "none of auto, native, torch"),
        ({"engine": "native", "dtype": "float64"}, "integers on the cpu"),
        ({"engine": "native", "device": "cuda"}, "integers on the cpu"),
    ):
        with pytest.raises(InputError, match=message):
            gf.load("storyteller", **how)
    assert run(["generate", "--engine", "fast", "Once"]) == 2


def test_edits_and_traces_use_torch() -> None:
    """Inside an edit or a trace the watched model writes, and one that was changed by hand is written with as
    it is.
    """
    lm = gf.load("storyteller")
    plain = lm.generate("Once upon a time", max_new_tokens=12, temperature=0.0, seed=0)
    with lm.edit([{"site": "blocks.3.mlp", "do": "zero"}]):
        edited = lm.generate("Once upon a time", max_new_tokens=12, temperature=0.0, seed=0)
    assert edited.engine == "torch float32"
    with gf.trace(lm.model, "blocks.0.attn.pattern") as seen:
        assert (
            lm.generate("Once upon a time", max_new_tokens=3, temperature=0.0, seed=0).engine
            == "torch float32"
        )
    assert "blocks.0.attn.pattern" in seen
    assert lm.generate("Once upon a time", max_new_tokens=12, temperature=0.0, seed=0) == plain
    with torch.no_grad():
        lm.model.blocks[0].attn.qkv.weight.mul_(0.5)
    changed = lm.generate("Once upon a time", max_new_tokens=12, temperature=0.0, seed=0)
    assert changed.engine == "torch float32"
    assert changed.tokens != plain.tokens or changed.logprobs != plain.logprobs


def test_an_explanation_names_the_backend_and_its_distance_from_torch(
    native: LanguageModel, exact: LanguageModel
) -> None:
    """The gap is the largest distance between the two log-probabilities of a written token."""
    out = native.generate("Once upon a time", max_new_tokens=20, seed=1)
    logits = torch.tensor(exact.logits(out.ids[:-1]))[len(out.prompt_tokens) - 1 :].double().log_softmax(-1)
    apart = np.abs(logits.gather(1, torch.tensor(out.tokens)[:, None])[:, 0].numpy() - out.logprobs)
    assert out.gap() == pytest.approx(apart.max(), abs=1e-5)
    assert 0 < apart.max() < 0.5
    described = out.lens().made
    assert "native int8" in described
    assert f"within {apart.max():.1g} of torch's" in described
    assert "native" not in exact.generate("Once", max_new_tokens=2).lens().made


def test_quality_on_held_out_stories(native: LanguageModel, exact: LanguageModel, stories: Path) -> None:
    """Bits per byte within 1 % of fp32, and the same likeliest token at 97 of 100 places."""
    part = {"documents": 30, "stride": 512}
    both = [next(evaluate(lm, str(stories / "tinystories_val.jsonl.gz"), **part)) for lm in (exact, native)]  # type: ignore[arg-type]
    assert both[0].tokens == both[1].tokens > 5_000
    assert both[1].bits_per_byte is not None
    assert both[0].bits_per_byte is not None
    assert 0.99 < both[1].bits_per_byte / both[0].bits_per_byte < 1.01
    same = total = 0
    assert native.engine is not None
    for seed in range(12):
        ids = native.generate(max_new_tokens=300, seed=seed, temperature=1.0).ids[:512]
        same += int((exact.logits(ids).argmax(1) == native.engine.logits(np.array(ids)).argmax(1)).sum())
        total += len(ids)
    assert same / total >= 0.97


def test_threads_are_those_that_were_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """As torch has it, by OMP_NUM_THREADS."""
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert gf.load("storyteller", engine="native").backend.threads == 3
    monkeypatch.setenv("OMP_NUM_THREADS", "many")
    assert gf.load("storyteller", engine="native").backend.threads == len(os.sched_getaffinity(0))


def test_the_capabilities_of_native_models(native: LanguageModel, exact: LanguageModel) -> None:
    """The same without torch as with torch and the model."""
    assert native.engine is not None
    assert native.capabilities == native.engine.capabilities == exact.capabilities


def test_bench_measures(capsys: pytest.CaptureFixture[str]) -> None:
    """Every figure is reported, as text and as data, for both engines."""
    assert run(["bench", "--rounds", "1", "--json"]) == 0
    described = json.loads(capsys.readouterr().out)
    assert described["engine"] == "native int8"
    names = [one["name"] for one in described["figures"]]
    assert names[-1] == "process start to first token"
    ids = [one["id"] for one in described["figures"]]
    assert ids[:2] == ["prefill", "decode"]
    assert ids[-1] == "first_token"
    assert len(set(ids)) == len(ids)
    assert "the weights alone, once a token" in names
    assert all(one["median"] > 0 for one in described["figures"])
    assert run(["bench", "--rounds", "1", "--no-cold", "--engine", "torch"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("storyteller, torch float32, ")
    assert "the weights alone" not in out
    assert run(["bench", "--rounds", "0"]) == 2
