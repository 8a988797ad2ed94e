"""The work of a job, in this process: the training of `glass finetune`, stopped and resumed, and what it says."""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock
from serving import tiny_model

import glassformer as gf
from glassformer.generation.sampling import log_softmax
from glassformer.server import worker
from glassformer.server.events import Event, EventLog
from glassformer.server.worker import MOST_STEP_EVENTS, _EventWriter, do_job
from glassformer.tasks.finetune import DEFAULT_RANK
from glassformer.tasks.recipe import Recipe
from glassformer.tasks.train import Stepped

GIVEN = {"n_epochs": None, "batch_size": 4, "learning_rate_multiplier": 2.0, "steps": 6, "rank": DEFAULT_RANK}
LINES = [{"prompt": "What is it?", "completion": " A cat."}, {"text": "Once upon a time there was a cat."}]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model in a folder."""
    folder = tmp_path_factory.mktemp("models") / "tiny"
    tiny_model().save(folder)
    return folder


def job(folder: Path, base: Path, lines: list[dict[str, Any]] = LINES * 10, **changes: Any) -> Path:
    """The folder of a job, as the server makes it."""
    folder.mkdir()
    given = GIVEN | changes
    about = {"kind": "finetune", "base": str(base), "hyperparameters": given, "seed": 3, "device": "cpu"}
    (folder / "job.json").write_text(json.dumps(about))
    (folder / "data.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def events(folder: Path, *kinds: str) -> list[Event]:
    """What happened, by kind."""
    found = EventLog(folder / "events.jsonl").new()
    return [one for one in found if one["data"]["event"] in kinds]


def after(steps: int, folder: Path) -> Callable[[], bool]:
    """Stop when so many steps were reported."""
    return lambda: len(events(folder, "step")) >= steps


def result(folder: Path, name: str = "adapter_model.safetensors") -> str:
    """The hash of the model that was made."""
    return hashlib.sha256((folder / "run" / "model" / name).read_bytes()).hexdigest()


def test_what_is_reported(tmp_path: Path, base: Path) -> None:
    """Steps with loss, rate and speed; evaluations; checkpoints; the plan; the end with its tokens."""
    folder = job(tmp_path / "job", base)
    do_job(folder, stop=lambda: False)
    steps = [one["data"] for one in events(folder, "step")]
    assert [one["step"] for one in steps] == [1, 2, 3, 4, 5, 6]
    assert steps[0].keys() >= {"train_loss", "learning_rate", "tokens_per_second", "tokens"}
    # Twice the rate of LoRA; one step in five rises.
    assert max(one["learning_rate"] for one in steps) == pytest.approx(2e-3)
    (plan,) = events(folder, "planned")
    assert (plan["data"]["steps"], plan["data"]["batch_size"]) == (6, 4)
    recipe = Recipe.read(folder / "recipe.toml")
    assert (recipe.train.seed, recipe.lora.rank, recipe.train.steps) == (3, DEFAULT_RANK, 6)
    assert events(folder, "training")[0]["data"]["resumed"] == 0
    assert len(events(folder, "checkpoint")) == len(events(folder, "evaluated")) - 1 == 6
    (end,) = events(folder, "trained")
    assert end["data"]["trained_tokens"] == steps[-1]["tokens"] > 0
    assert gf.load(str(folder / end["data"]["folder"]), engine="torch", offline=True).top("Once", 1)


def test_it_is_evaluated_on_the_validation_file(tmp_path: Path, base: Path) -> None:
    """All of the training file is learned; the loss before the first step is that of the base on the other file."""
    folder = job(tmp_path / "job", base)
    text = "Lily had a red ball."
    (folder / "validation.jsonl").write_text(json.dumps({"text": text}))
    do_job(folder, stop=lambda: False)
    lm = gf.load(str(base), engine="torch", offline=True)
    (end,) = lm.ends
    ids = [end, *lm.encode(text), end]
    (began,) = events(folder, "training")
    assert began["data"]["held_out"] == len(ids)
    learned = [len(lm.encode(part)) for line in LINES * 10 for part in line.values()]
    assert began["data"]["tokens"] == 1 + sum(learned) + len(LINES * 10)  # an end token before and after each
    losses = [-log_softmax(row)[id] for row, id in zip(lm.logits(ids[:-1]), ids[1:], strict=True)]
    first, *later = [one["data"]["valid_loss"] for one in events(folder, "evaluated")]
    assert first == pytest.approx(sum(losses) / len(losses), rel=1e-4)
    assert [one["data"]["valid_loss"] for one in events(folder, "checkpoint")] == later


def test_a_stopped_job_goes_on_to_the_same_bits(tmp_path: Path, base: Path) -> None:
    """Stopped after two steps and after four: the result is that of a job that never stopped."""
    whole = job(tmp_path / "whole", base)
    do_job(whole, stop=lambda: False)
    parts = job(tmp_path / "parts", base)
    for steps in (2, 4):
        do_job(parts, stop=after(steps, parts))
        assert (
            events(parts, "stopped")[-1]["message"] == f"The job was stopped at step {steps}, which is saved"
        )
    do_job(parts, stop=lambda: False)
    assert [one["data"]["resumed"] for one in events(parts, "training")] == [0, 2, 4]
    assert [one["data"]["step"] for one in events(parts, "step")] == [1, 2, 3, 4, 5, 6]
    assert len(events(parts, "planned")) == 1
    assert result(parts) == result(whole)
    # A process that was killed after the last step, before it said so, is started again: nothing is lost.
    do_job(parts, stop=lambda: False)
    assert (len(events(parts, "trained")), result(parts)) == (2, result(whole))


def test_stopped_before_the_first_step(tmp_path: Path, base: Path) -> None:
    """There is nothing to save, and it can begin anew."""
    folder = job(tmp_path / "job", base)
    do_job(folder, stop=lambda: True)
    assert len(events(folder, "stopped")) == 1
    assert not events(folder, "failed")


def test_a_process_of_a_killed_server_is_waited_for(
    tmp_path: Path, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two never work at one job; whoever is asked to stop meanwhile does."""
    monkeypatch.setattr(worker, "LOOK", 0.05)
    folder = job(tmp_path / "job", base)
    earlier = FileLock(folder / "lock", thread_local=False)
    earlier.acquire()
    do_job(folder, stop=lambda: True)
    assert [one["data"]["event"] for one in EventLog(folder / "events.jsonl").new()] == ["stopped"]

    def stop() -> bool:
        if events(folder, "message"):  # it has said that it waits
            earlier.release()
        return False

    do_job(folder, stop=stop)
    assert "still saving" in events(folder, "message")[0]["message"]
    assert events(folder, "trained")


STEPS_BACK = """
import os
from pathlib import Path
from glassformer.server.worker import _listen, _step_back

stop = _listen()
_step_back()
print(os.getpriority(os.PRIO_PROCESS, 0), Path("/proc/self/oom_score_adj").read_text().strip(), stop(), flush=True)
while not stop():
    pass
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says which process is killed first")
@pytest.mark.parametrize("how", ["signal", "stdin"])
def test_the_process_lets_the_server_go_first_and_stops_when_asked(how: str) -> None:
    """Behind requests, and first to be killed; by a signal or by the end of its input it stops by itself."""
    paths = {"PYTHONPATH": os.pathsep.join(sys.path)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", STEPS_BACK], env=os.environ | paths, **pipes) as process:
        nice, killed, stopped = process.stdout.readline().split()
        assert (int(nice) >= worker.NICENESS, killed, stopped) == (True, worker.FIRST_KILLED, "False")
        if how == "signal":
            process.terminate()
        else:
            process.stdin.close()
        assert process.wait(20) == 0


def test_all_weights(tmp_path: Path, base: Path) -> None:
    """Rank 0: a whole model, with the gentler rate."""
    folder = job(tmp_path / "job", base, rank=0, learning_rate_multiplier=1.0)
    do_job(folder, stop=lambda: False)
    assert events(folder, "trained")
    assert (
        result(folder, "model.safetensors")
        != hashlib.sha256((base / "model.safetensors").read_bytes()).hexdigest()
    )
    assert max(one["data"]["learning_rate"] for one in events(folder, "step")) == pytest.approx(1e-4)


def test_a_result_can_be_fine_tuned_further(tmp_path: Path, base: Path) -> None:
    """It is a LoRA folder, which is merged first."""
    first = job(tmp_path / "first", base)
    do_job(first, stop=lambda: False)
    second = job(tmp_path / "second", first / "run" / "model")
    do_job(second, stop=lambda: False)
    assert events(second, "trained")
    assert (second / "base" / "model.safetensors").is_file()
    merged = gf.load(str(first / "run" / "model"), engine="torch", offline=True)
    begun = gf.load(str(second / "base"), engine="torch", offline=True)
    assert (
        merged.generate("Once", max_new_tokens=9, temperature=0).text
        == begun.generate("Once", max_new_tokens=9, temperature=0).text
    )


@pytest.mark.parametrize(("lines", "given", "epochs", "batch"), [
    (LINES * 10, {"steps": None, "n_epochs": 2}, 2, 4),
    (LINES[:1], {"steps": None, "batch_size": None}, 25, 1),
    (LINES * 30, {"steps": None, "batch_size": None}, 25, 8),
])  # fmt: skip
def test_how_long_follows_from_the_text(
    tmp_path: Path, base: Path, lines: Any, given: Any, epochs: int, batch: int
) -> None:
    """A small text is learned several times, in rows that it has."""
    folder = job(tmp_path / "job", base, lines, **given)
    do_job(folder, stop=after(1, folder))
    (plan,) = events(folder, "planned")
    assert (plan["data"]["n_epochs"], plan["data"]["batch_size"]) == (epochs, batch)
    assert len(events(folder, "step")) == 1
    assert not events(folder, "failed")


@pytest.mark.parametrize(("lines", "changes", "why"), [
    ([{"txt": "damaged after it was checked"}], {}, "data.jsonl, line 1: no text under 'text'"),
    ([{"text": "a"}], {}, "too short to learn from"),
    (LINES * 10, {"base": "/nowhere"}, "there is no folder '/nowhere'"),
    (LINES * 10, {"learning_rate_multiplier": 1e30}, "the loss is"),
    (LINES * 10, {"learning_rate_multiplier": "a"}, "something went wrong inside (TypeError)"),
])  # fmt: skip
def test_what_fails(
    tmp_path: Path,
    base: Path,
    lines: Any,
    changes: dict[str, Any],
    why: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One sentence, and no folder of this machine that the request has not named."""
    folder = job(tmp_path / "job", Path(changes.pop("base", base)), lines, **changes)
    do_job(folder, stop=lambda: False)
    (failed,) = events(folder, "failed")
    assert why in failed["data"]["error"]["message"]
    assert str(tmp_path) not in failed["message"]
    assert failed["data"]["error"]["param"] == ("training_file" if "data.jsonl" in why else None)


def test_a_training_by_a_recipe(tmp_path: Path) -> None:
    """From the text of a recipe, into a whole model."""
    text = tmp_path / "text.txt"
    text.write_text("Once upon a time there was a cat. " * 30)
    shape = "[model]\nlayers = 1\nheads = 2\nwidth = 16\ncontext = 16\n"
    recipe = f'[text]\ndata = ["{text}"]\nvocab = 270\n{shape}[train]\nsteps = 3\nbatch = 2\n'
    folder = tmp_path / "job"
    folder.mkdir()
    (folder / "job.json").write_text(
        json.dumps({"kind": "train", "recipe": recipe, "device": "cpu", "offline": True})
    )
    do_job(folder, stop=lambda: False)
    assert not events(folder, "failed")
    assert gf.load(str(folder / events(folder, "trained")[0]["data"]["folder"])).top("Once", 1)


def test_a_long_training_has_a_bounded_record(tmp_path: Path) -> None:
    """The first step, the last, and about a thousand in between."""
    log = EventLog(tmp_path / "events.jsonl")
    diary = _EventWriter(log, steps=100_000)
    for step in [*range(1, 1000), 100_000]:
        diary.write(Stepped(step, 1.0, 1.0, 1.0, step, 1.0))
    assert [one["data"]["step"] for one in log.new()] == [1, *range(100, 1000, 100), 100_000]
    assert diary.every == 100_000 // MOST_STEP_EVENTS
