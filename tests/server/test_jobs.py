"""The runner of jobs: one at a time, in processes of their own; what was saved survives whoever is killed."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from serving import tiny_model

from glassformer.errors import GlassError, InputError
from glassformer.server import jobs as module
from glassformer.server.events import Event
from glassformer.server.jobs import Job, Jobs, JobsBusy, JobsElsewhere, Progress, result_folder
from glassformer.tasks.recipe import Recipe

LINES = [
    {"prompt": "What is it?", "completion": " A cat."},
    {"text": "Once upon a time there was a cat."},
] * 10
GIVEN = {"n_epochs": None, "batch_size": 4, "learning_rate_multiplier": 1.0, "steps": 6, "rank": 8}


class Served(list[tuple[str, Path]]):
    """What a runner has handed over to be served: the ids and folders of models."""

    def __call__(self, job: Job, folder: Path) -> None:
        self.append((job.about["result"], folder))


@contextmanager
def runner(
    home: Path, serve: Callable[[Job, Path], object] | None = None, *, idle: bool = False
) -> Iterator[Jobs]:
    """A runner as a server has it; an idle one takes jobs on, and does none."""
    found = Jobs(home, serve=Served() if serve is None else serve)
    if not idle:
        found.start()
    try:
        yield found
    finally:
        found.close(60)


def until(condition: Callable[[], Any], seconds: float = 120) -> None:
    """Wait for something that happens elsewhere."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


def ended(jobs: Jobs, *which: Job) -> list[str]:
    """How jobs ended."""
    until(lambda: all(job.progress.end for job in which))
    return [jobs.status(job) for job in which]


def kinds(job: Job) -> list[str]:
    """What happened."""
    return [one["data"]["event"] for one in job.events()]


# Processes that need no torch: a model that ships is found without a network.


def test_one_after_the_other_in_processes_of_their_own(tmp_path: Path) -> None:
    """In their order; what they found is handed over; pausing and cancelling those that wait."""
    served = Served()
    with runner(tmp_path, served) as jobs:
        first = jobs.pull("storyteller", offline=True)
        paused, cancelled, last = (
            jobs.pull(name, offline=True) for name in ("storyteller", "gpt2", "no-such")
        )
        jobs.pause(paused)
        jobs.pause(paused)  # twice is once
        jobs.cancel(cancelled)
        with pytest.raises(InputError, match="has ended: it was cancelled"):
            jobs.resume(cancelled)
        with pytest.raises(InputError, match="is not paused"):
            jobs.resume(last)
        assert ended(jobs, first, cancelled, last) == ["succeeded", "cancelled", "failed"]
        assert kinds(first) == ["created", "started", "trained", "succeeded"]
        assert kinds(cancelled) == ["created", "cancelled"]
        assert "downloads are switched off" in (last.progress.error or {})["message"]
        assert (jobs.status(paused), kinds(paused)) == ("queued", ["created", "paused"])
        jobs.resume(paused)
        assert ended(jobs, paused) == ["succeeded"]
        for change in (jobs.pause, jobs.resume, jobs.cancel):
            with pytest.raises(InputError, match="has ended: it succeeded"):
                change(paused)
    assert [id for id, _ in served] == ["storyteller", "storyteller"]
    assert result_folder(first).name == "storyteller"


def test_a_process_that_dies_and_a_model_that_does_not_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job fails after three tries; the next ones run as if nothing had been."""

    def serve(job: Job, folder: Path) -> None:
        if job is broken:
            raise ZeroDivisionError

    with runner(tmp_path, serve) as jobs:
        monkeypatch.setattr(module, "WORKER", "glassformer.nowhere")
        dead = jobs.pull("storyteller", offline=True)
        assert ended(jobs, dead) == ["failed"]
        assert kinds(dead) == ["created", "started", "died", "started", "died", "started", "failed"]
        assert (dead.progress.error or {})["message"] == (
            "its process ended with exit code 1, 3 times without a checkpoint in between"
        )
        monkeypatch.undo()
        broken = jobs.pull("storyteller", offline=True)
        fine = jobs.pull("storyteller", offline=True)
        assert ended(jobs, broken, fine) == ["failed", "succeeded"]
        assert "could not be served: ZeroDivisionError" in (broken.progress.error or {})["message"]


def test_a_start_after_a_kill(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What waited is done; what was made but not yet served is served; a model that is gone hurts nobody."""
    with runner(tmp_path) as jobs:
        made, gone = (jobs.pull("storyteller", offline=True) for _ in range(2))
        assert ended(jobs, made, gone) == ["succeeded", "succeeded"]
        waiting = jobs.pull("storyteller", offline=True)
        jobs.pause(waiting)
    # The server was killed between the two last events, and a line was cut off.
    lines = made.log.path.read_bytes().splitlines(keepends=True)
    made.log.path.write_bytes(b"".join(lines[:-1]) + b'{"cut o')
    trained = gone.log.path.read_text().replace('"folder": "', '"folder": "/nowhere')
    gone.log.path.write_text(trained)
    for digit, content in (("0", "{}"), ("1", '{"kind": "pull", "created": 1.5}'), ("2", "{")):
        (tmp_path / "jobs" / f"job-{digit * 24}").mkdir()
        (tmp_path / "jobs" / f"job-{digit * 24}" / "job.json").write_text(content)
    with waiting.log.path.open("a") as file:
        file.write('{"data": {"event": "training"}}\n')  # changed by hand

    def serve(job: Job, folder: Path) -> None:
        if not folder.is_dir():
            raise GlassError("there is no such folder")
        served(job, folder)

    served = Served()
    with runner(tmp_path, serve) as jobs:
        assert [job.id for job in jobs.list()] == [made.id, gone.id, waiting.id]
        again = jobs.find(made.id)
        assert again is not None
        assert ended(jobs, again) == ["succeeded"]
        assert kinds(again) == ["created", "started", "trained", "message", "succeeded"]  # not started again
        assert [id for id, _ in served] == ["storyteller"]
        assert "its model is not served: there is no such folder" in capsys.readouterr().err
        still = jobs.find(waiting.id)
        assert still is not None
        assert still.progress.paused
        jobs.resume(still)
        assert ended(jobs, still) == ["succeeded"]


def test_two_servers_share_a_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second sees what the first does, and takes over what it leaves when it is gone."""
    monkeypatch.setattr(module, "TAKE_OVER", 0.02)
    with runner(tmp_path) as second:
        with runner(tmp_path) as first:
            job = first.pull("storyteller", offline=True)
            with pytest.raises(JobsElsewhere):
                second.pull("storyteller", offline=True)
            seen = second.find(job.id)
            assert seen is not None
            with pytest.raises(JobsElsewhere):
                second.cancel(seen)
            ended(first, job)
            assert second.status(seen) == "succeeded"
            first._closing = True  # it takes jobs on no longer
            with first._change:
                first._change.notify_all()
            first._thread.join()
            first._closing = False
            left = first.pull("storyteller", offline=True)
        assert ended(first, left) == ["succeeded"]  # the second has found it by itself
        taken = second.find(left.id)
        assert taken is not None
        assert taken.model_id == "storyteller"


WAITS = """
import json, os, sys
from pathlib import Path
from glassformer.server.events import EventLog

folder = Path(sys.argv[1])
own = {"key": "GLASSFORMER_API_KEY" in os.environ, "home": os.environ["GLASSFORMER_HOME"], "leads": os.getsid(0) == os.getpid()}
(folder / "own.json").write_text(json.dumps(own))
while os.read(0, 1) or (folder / "deaf").exists():
    pass
EventLog(folder / "events.jsonl").append("stopped", "saved")
"""


@pytest.fixture
def waiting_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A process in place of a training: it begins at once, and ends when it is asked to."""
    (tmp_path / "waiting_worker.py").write_text(WAITS)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    monkeypatch.setenv("GLASSFORMER_API_KEY", "secret")
    monkeypatch.setattr(module, "WORKER", "waiting_worker")
    return "waiting_worker"


def test_the_process_of_a_job(tmp_path: Path, waiting_worker: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has the home but no key, and a session of its own; paused it ends, and cancelled it is ended."""
    with runner(tmp_path / "home") as jobs:
        job = jobs.pull("storyteller", offline=True)
        own = job.folder / "own.json"
        until(own.exists)
        until(lambda: own.read_text())
        assert json.loads(own.read_text()) == {"key": False, "home": str(tmp_path / "home"), "leads": True}
        jobs.pause(job)
        until(lambda: jobs.status(job) == "queued")
        assert kinds(job) == ["created", "started", "paused", "stopped"]  # it did not die
        own.unlink()
        jobs.resume(job)
        until(own.exists)
        assert jobs.status(job) == "running"
        jobs.cancel(job)
        monkeypatch.undo()
        assert ended(jobs, jobs.pull("storyteller", offline=True)) == ["succeeded"]  # its turn has come
        assert kinds(job)[-1] == "cancelled"


def test_a_process_that_does_not_end_in_time(tmp_path: Path, waiting_worker: str) -> None:
    """A server that stops kills it, which is no death of the job; and takes on no other."""
    jobs = Jobs(tmp_path / "home", serve=Served())
    jobs.start()
    job = jobs.pull("storyteller", offline=True)
    until((job.folder / "own.json").exists)
    (job.folder / "deaf").touch()
    jobs.close(0.2)
    assert kinds(job) == ["created", "started"]
    with pytest.raises(JobsBusy, match="stopping"):
        jobs.pull("storyteller", offline=True)


def test_too_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue has an end."""
    monkeypatch.setattr(module, "MOST_WAITING", 2)
    with runner(tmp_path, idle=True) as jobs:
        for _ in range(2):
            jobs.pull("storyteller", offline=True)
        with pytest.raises(JobsBusy, match="2 jobs are waiting"):
            jobs.pull("storyteller", offline=True)
        monkeypatch.setattr(module, "MOST_KEPT", 2)
        with pytest.raises(JobsBusy, match="2 jobs are kept"):
            jobs.pull("storyteller", offline=True)


def test_a_model_that_another_was_made_from_stays(tmp_path: Path) -> None:
    """Until the other one is gone, too."""
    with runner(tmp_path, idle=True) as jobs:
        first = begun(jobs, "tiny", "base")
        for what in ("trained", "succeeded"):
            first.log.append(what, "", folder="run/model")
        result_folder(first).mkdir(parents=True)
        second = begun(jobs, str(first.model_id), str(result_folder(first)))
        with pytest.raises(InputError, match=f"{second.about['result']} was made from it"):
            jobs.delete_result(first)
        assert result_folder(first).is_dir()
        jobs.cancel(second)
        jobs.delete_result(first)
        assert not result_folder(first).exists()
        assert first.model_id is None


def test_names_that_are_none(tmp_path: Path) -> None:
    """Refused before anything is kept: neither becomes a path or an address."""
    with runner(tmp_path, idle=True) as jobs:
        for name in ("../x", "http://localhost/x", "/etc", ""):
            with pytest.raises(InputError):
                jobs.pull(name)
            with pytest.raises(InputError, match=r"^name: "):
                jobs.train(Recipe(), name=name)
        assert jobs.list() == []
        job = jobs.train(Recipe().changed(steps=7), name="mine")
        assert "steps = 7" in job.about["recipe"]
        assert job.about["result"] == f"trained:mine:{job.id[-8:]}"


def test_a_job_that_cannot_be_kept_leaves_nothing(tmp_path: Path) -> None:
    """Half a folder is no job."""

    def fill(folder: Path) -> None:
        (folder / "data.jsonl").write_text("half")
        raise OSError

    with runner(tmp_path) as jobs:
        with pytest.raises(OSError):  # noqa: PT011
            jobs.finetune("tiny", "nowhere", fill=fill, hyperparameters=GIVEN, seed=1)
        assert jobs.list() == []
        assert [path.name for path in (tmp_path / "jobs").iterdir()] == ["lock"]


def begun(jobs: Jobs, model: str, base: str, *, suffix: str | None = None) -> Job:
    """A fine-tuning that an idle runner does not do."""
    return jobs.finetune(model, base, fill=lambda folder: None, hyperparameters=GIVEN, suffix=suffix, seed=1)


def event(what: str, at: int = 0, **data: Any) -> Event:
    """An event as it is in the file."""
    return {"id": "x", "created_at": at, "data": {"event": what, **data}}


def test_what_follows_from_events() -> None:
    """Nothing changes an end; a checkpoint forgives earlier deaths; the time that is left."""
    progress = Progress()
    for one in (event("started"), event("died"), event("started")):
        progress.add(one)
    assert (progress.tries, progress.begun, progress.estimate) == (2, True, None)
    progress.add(event("training", 100, steps=50, resumed=10))
    progress.add(event("step", 105, step=10))
    assert progress.estimate is None  # no step of this process yet
    progress.add(event("step", 110, step=30))
    assert progress.estimate == 120
    progress.add(event("checkpoint", step=30))
    assert (progress.tries, len(progress.checkpoints)) == (0, 1)
    for forgives in ("stopped", "paused", "resumed"):
        progress.add(event("started"))
        assert progress.tries == 1
        progress.add(event(forgives))
        assert progress.tries == 0
    progress.add(event("cancelled", 130))
    for late in (event("trained", folder="run/model"), event("succeeded"), event("paused")):
        progress.add(late)
    assert (progress.end, progress.finished_at, progress.result, progress.paused) == (
        "cancelled",
        130,
        None,
        False,
    )
    progress.add(event("deleted"))
    assert progress.deleted


@pytest.mark.parametrize(("model", "suffix", "starts"), [
    ("tiny", "cat", "ft:tiny:cat:"), ("a/b", None, "ft:a/b::"), ("ft:tiny:cat:01234567", "dog", "ft:tiny:dog:"),
])  # fmt: skip
def test_what_a_result_is_called(tmp_path: Path, model: str, suffix: str | None, starts: str) -> None:
    """By its origin, not by the chain of its makers."""
    with runner(tmp_path, idle=True) as jobs:
        job = begun(jobs, model, "base", suffix=suffix)
        assert job.about["result"] == f"{starts}{job.id[-8:]}"
        assert job.model_id is None


# Real trainings, killed. Each start of a process takes seconds, so these are slow.


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model in a folder."""
    folder = tmp_path_factory.mktemp("models") / "tiny"
    tiny_model().save(folder)
    return folder


def finetune(jobs: Jobs, base: Path, steps: int) -> Job:
    """Begin a fine-tuning."""

    def fill(folder: Path) -> None:
        (folder / "data.jsonl").write_text("".join(json.dumps(line) + "\n" for line in LINES))

    return jobs.finetune("tiny", str(base), fill=fill, hyperparameters=GIVEN | {"steps": steps}, seed=3)


def weights(job: Job) -> bytes:
    """What a job made."""
    return (job.folder / "run" / "model" / "adapter_model.safetensors").read_bytes()


def saved(job: Job) -> list[int]:
    """The steps of its checkpoints, by its events."""
    return [one["data"]["step"] for one in job.events() if one["data"]["event"] == "checkpoint"]


@pytest.mark.slow
def test_a_job_that_is_killed_again_and_again(tmp_path: Path, base: Path) -> None:
    """By SIGKILL, after its second and fourth checkpoint: it goes on from there to the same bits. SIGTERM is a stop."""
    with runner(tmp_path) as jobs:
        whole = finetune(jobs, base, 100)
        assert ended(jobs, whole) == ["succeeded"]
        job = finetune(jobs, base, 100)
        for number, how in ((2, signal.SIGKILL), (4, signal.SIGKILL), (6, signal.SIGTERM)):
            until(lambda number=number: len(saved(job)) >= number)  # type: ignore[misc]
            assert jobs._process is not None
            os.kill(jobs._process.pid, how)
            until(lambda number=number: kinds(job).count("started") > number // 2)  # type: ignore[misc]
        assert ended(jobs, job) == ["succeeded"]
        assert weights(job) == weights(whole)
        resumed = [one["data"]["resumed"] for one in job.events() if one["data"]["event"] == "training"]
        assert len(resumed) == 4
        assert resumed[1] >= 20
        assert resumed == sorted(resumed)


@pytest.mark.slow
def test_paused_resumed_and_cancelled_while_it_runs(tmp_path: Path, base: Path) -> None:
    """A pause saves where it is; the other job runs meanwhile; a cancel ends the process at once."""
    with runner(tmp_path) as jobs:
        job = finetune(jobs, base, 100_000)
        until(lambda: "step" in kinds(job))
        assert jobs.status(job) == "running"
        jobs.pause(job)
        until(lambda: jobs.status(job) == "queued")
        step = saved(job)[-1]
        other = finetune(jobs, base, 3)
        assert ended(jobs, other) == ["succeeded"]
        assert jobs.status(job) == "queued"
        jobs.resume(job)
        until(lambda: kinds(job).count("training") == 2)
        assert [one for one in job.events() if one["data"]["event"] == "training"][1]["data"][
            "resumed"
        ] == step
        jobs.cancel(job)
        until(lambda: jobs._process is None)
        assert jobs.status(job) == "cancelled"


@contextmanager
def glass_serve(base: Path, home: Path) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """`glass serve` in a process of its own, and its address."""
    command = [sys.executable, "-m", "glassformer", "serve", "--port", "0", "-m", f"tiny={base}", "--json"]
    environment = os.environ | {"GLASSFORMER_HOME": str(home)}
    process = subprocess.Popen(
        [*command, "--engine", "torch"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment,
    )
    assert process.stdout is not None
    url = json.loads(process.stdout.readline())["url"]
    reader = threading.Thread(target=process.stdout.read)
    reader.start()
    try:
        yield process, url
    finally:
        process.kill()
        process.wait()
        reader.join()
        process.stdout.close()


def ask(url: str, path: str, body: Any = None, **how: Any) -> Any:
    """A request to a server that may still be starting."""
    method = "GET" if body is None and not how else "POST"
    for _ in range(600):
        try:
            answer = httpx.request(method, url + path, json=body, trust_env=False, timeout=60, **how)
            assert answer.status_code == 200, answer.text
            return answer.json()
        except httpx.TransportError:
            time.sleep(0.1)
    raise AssertionError("no answer")


@pytest.mark.slow
def test_a_server_that_is_killed(tmp_path: Path, base: Path) -> None:
    """Its job notices, saves and ends; so it does when a server is asked to stop. The next server shows it honestly,
    goes on, and serves what it made.
    """
    home = tmp_path / "home"
    jobs_path = "/fine_tuning/jobs"
    with glass_serve(base, home) as (process, url):
        content = "".join(json.dumps(line) + "\n" for line in LINES).encode()
        form = {"files": {"file": ("a.jsonl", content)}, "data": {"purpose": "fine-tune"}}
        file = ask(url, "/files", **form)["id"]
        how = {"steps": 2000, "batch_size": 4}
        wanted = {"model": "tiny", "training_file": file, "seed": 3, "hyperparameters": how}
        id = ask(url, jobs_path, wanted)["id"]
        job = Job(home / "jobs" / id)
        until(lambda: saved(job))
        assert ask(url, f"{jobs_path}/{id}")["status"] == "running"
        process.kill()
        until(lambda: "stopped" in kinds(job))
    with glass_serve(base, home) as (process, url):
        until(lambda: kinds(job).count("training") == 2)
        process.terminate()
        assert process.wait(60) == 0
        assert kinds(job)[-1] == "stopped"
    with glass_serve(base, home) as (_, url):
        until(lambda: kinds(job).count("training") == 3)
        assert ask(url, f"{jobs_path}/{id}")["status"] == "running"
        until(lambda: ask(url, f"{jobs_path}/{id}")["status"] == "succeeded", 300)
        assert "The server was started again; the job goes on where it was saved" in [
            one["message"] for one in job.events()
        ]
        made = ask(url, f"{jobs_path}/{id}")["fine_tuned_model"]
        assert ask(url, "/completions", {"model": made, "prompt": "What", "max_tokens": 3})["choices"]
    with glass_serve(base, home) as (_, url):
        assert ask(url, "/completions", {"model": made, "prompt": "What", "max_tokens": 3})["choices"]
