"""Jobs: fine-tuning, training by a recipe, pulling a model. One runs at a time, in a process of its own.

    HOME/jobs/ftjob-…/
      job.json          what was asked for; never changes
      data.jsonl        what to learn from, copied from an uploaded file
      validation.jsonl  what to evaluate on, if another file was named for that
      events.jsonl      what happened: all that is known about its state
      recipe.toml       the recipe as it is carried out, from the first start on
      run/              the training's folder: see tasks/train.py
      log.txt           what the process printed

The process trains with the same code as `glass finetune`, and saves checkpoints. Whatever is killed, the
process or the server, the job goes on from the newest one. The process notices that its server is gone (its
standard input ends), saves and ends: no training goes on that no server knows of.
"""

import contextlib
import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from glassformer.durable import replace_file, replace_folder
from glassformer.errors import GlassError, InputError, counted
from glassformer.files import read_json
from glassformer.server.events import Event, EventLog
from glassformer.tasks.library import split_name
from glassformer.tasks.recipe import Recipe

NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
JOB_ID = re.compile(r"(?:ft)?job-[0-9a-f]{24}")
KINDS = ("finetune", "train", "pull")
# What job.json has beside what every job has.
NEEDED: dict[str, dict[str, type]] = {
    "finetune": {"model": str, "base": str, "hyperparameters": dict, "seed": int},
    "train": {"recipe": str, "name": str},
    "pull": {"model": str},
}
DATA, VALIDATION = "data.jsonl", "validation.jsonl"
ENDS = ("succeeded", "failed", "cancelled")
MOST_TRIES = 3  # starts without a checkpoint in between, after which a job has failed
MOST_WAITING = 32
MOST_KEPT = 1000
TAKE_OVER = 2.0  # seconds between two looks whether another server has left its jobs
WORKER = "glassformer.server.worker"
Fill = Callable[[Path], object]  # writes what a job needs beside job.json into its new folder


class JobsBusy(GlassError):
    """No more jobs can be taken on now."""


class JobsElsewhere(GlassError):
    """Another server runs the jobs of this home."""


@dataclass
class Progress:
    """What follows from the events of a job."""

    end: str | None = None
    paused: bool = False
    begun: bool = False  # whether its process was ever started
    stopped: bool = False  # whether its process ended because it was asked to, its state saved
    tries: int = 0
    finished_at: int | None = None
    error: dict[str, Any] | None = None
    result: dict[str, Any] | None = None  # what the process made
    deleted: bool = False
    steps: int = 0
    plan: dict[str, Any] = field(default_factory=dict)  # what was chosen where the request left it open
    step: Event | None = None  # the latest
    fetched: tuple[int, int] = (0, 0)  # of a download: the bytes that are there, and those that are needed
    since: tuple[int, int] = (0, 0)  # when the process that runs began to train, and at which step
    checkpoints: list[Event] = field(default_factory=list)

    def add(self, event: Event) -> None:
        """One more event."""
        data = event["data"]
        what = data.get("event")
        if self.end is not None:  # nothing changes an end; its result may be deleted
            self.deleted = self.deleted or what == "deleted"
        elif what in ENDS:
            self.end, self.finished_at = what, event["created_at"]
            self.error = data.get("error")
        elif what == "started":
            self.begun, self.stopped, self.tries = True, False, self.tries + 1
        elif what == "planned":
            self.plan = data
        elif what == "training":
            self.steps = data["steps"]
            self.since = (event["created_at"], data["resumed"])
        elif what == "step":
            self.step = event
        elif what == "fetched":
            self.fetched = data["done"], data["total"]
        elif what == "checkpoint":
            self.checkpoints.append(event)
            self.tries = 0
        elif what == "stopped":
            self.stopped, self.tries = True, 0
        elif what in ("paused", "resumed"):
            self.paused, self.tries = what == "paused", 0
        elif what == "trained":
            self.result = data

    @property
    def estimate(self) -> int | None:
        """When it will be finished, if it goes on as it has."""
        if self.end is not None or self.step is None or not self.steps:
            return None
        begun, first = self.since
        done = self.step["data"]["step"] - first
        if done <= 0:
            return None
        now = self.step["created_at"]
        return int(now + (now - begun) / done * (self.steps - self.step["data"]["step"]))


class Job:
    """A job in its folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.about = _checked(read_json(folder / "job.json"), folder)
        self.log = EventLog(folder / "events.jsonl")
        self._progress = Progress()

    @property
    def id(self) -> str:
        """Its name, which is that of its folder."""
        return self.folder.name

    @property
    def kind(self) -> str:
        """One of KINDS."""
        return str(self.about["kind"])

    @property
    def progress(self) -> Progress:
        """How far it is by now."""
        for event in self.log.new():
            with contextlib.suppress(KeyError, TypeError):  # changed by hand: the others still count
                self._progress.add(event)
        return self._progress

    @property
    def model_id(self) -> str | None:
        """The id under which its result is served, once it succeeded and until it is deleted."""
        progress = self.progress
        served = progress.end == "succeeded" and not progress.deleted
        return str(self.about["result"]) if served else None

    def events(self) -> list[Event]:
        """Everything that happened, the oldest first."""
        return EventLog(self.log.path).new()


class Jobs:
    """All jobs of a home. `start` it and `close` it; every method may be called from any thread."""

    def __init__(self, home: Path, *, serve: Callable[[Job, Path], object], device: str = "cpu") -> None:
        """`serve` is called with a job and the folder of the model that it made, before it has succeeded."""
        self.home, self.folder, self.device = home, home / "jobs", device
        self._serve = serve
        self._owned: FileLock | None = None
        self._jobs: dict[str, Job] = {}
        self._change = threading.Condition(threading.RLock())
        self._closing = False
        self._process: subprocess.Popen[bytes] | None = None
        self._current: Job | None = None
        self._thread = threading.Thread(target=self._work, name="jobs", daemon=True)

    # A server's life

    def start(self) -> None:
        """Serve what jobs have made before, and go on with what is unfinished."""
        if self.folder.is_dir():
            self._own()
            self._find_jobs()
        for job in self.list():
            self._recover(job)
        self._thread.start()

    def close(self, grace: float = 30.0) -> None:
        """Let the process that runs save its state, within the seconds given, and end it."""
        with self._change:
            self._closing = True
            process = self._process
            self._change.notify_all()
        if process is not None:
            _ask_to_stop(process)
            try:
                process.wait(grace)
            except subprocess.TimeoutExpired:
                process.kill()
        if self._thread.is_alive():
            self._thread.join()
        if self._owned is not None:
            self._owned.release()

    def _own(self) -> bool:
        """Whether this server is the one that runs the jobs of the home; the first to ask is."""
        if self._owned is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = FileLock(self.folder / "lock", timeout=0, thread_local=False)
            try:
                lock.acquire()
            except Timeout:
                return False
            self._owned = lock
        return True

    def _find_jobs(self) -> None:
        """Learn of jobs that another server has made."""
        for folder in self.folder.iterdir():
            if JOB_ID.fullmatch(folder.name) and folder.name not in self._jobs:
                with contextlib.suppress(InputError):  # not ours, or damaged: others are unharmed
                    self._jobs[folder.name] = Job(folder)

    def _recover(self, job: Job) -> None:
        """After a start of the server: what was made is served, and the log says that a job goes on."""
        progress = job.progress
        if job.model_id is not None:
            try:
                self._serve(job, result_folder(job))
            except (GlassError, OSError) as error:
                print(f"{job.id}: its model is not served: {error}", file=sys.stderr)
        elif self._owned is not None and progress.begun and progress.end is None and not progress.paused:
            job.log.append("message", "The server was started again; the job goes on where it was saved")

    # What can be asked for

    def create(self, kind: str, about: dict[str, Any], *, fill: Fill = lambda folder: None) -> Job:
        """Take on a job; it waits until those before it have ended."""
        assert kind in KINDS
        with self._change:
            self._check_room()
        id = f"{'ftjob' if kind == 'finetune' else 'job'}-{secrets.token_hex(12)}"
        record = {"kind": kind, "created": time.time(), "device": self.device, **about}
        record["result"] = _result_id(kind, about, id)
        with replace_folder(self.folder / id) as fresh:  # without the lock: a file may be large
            fill(fresh)
            replace_file(fresh / "job.json", json.dumps(record, ensure_ascii=False))
            EventLog(fresh / "events.jsonl").append("created", "The job was created")
        with self._change:
            job = self._jobs[id] = Job(self.folder / id)
            self._change.notify_all()
            return job

    def finetune(
        self, model: str, base: str, *, fill: Fill, hyperparameters: dict[str, Any], **about: Any
    ) -> Job:
        """Fine-tune `base` (a name or a folder), which is served as `model`; `fill` writes its data."""
        record = {"model": model, "base": base, "hyperparameters": hyperparameters, **about}
        return self.create("finetune", record, fill=fill)

    def train(self, recipe: Recipe, *, name: str, offline: bool = True) -> Job:
        """Train by a recipe; the model is served as `trained:NAME:…`."""
        if NAME.fullmatch(name) is None:
            raise InputError(f"name: {name[:100]!r} has other characters than letters, digits, . _ and -")
        return self.create("train", {"recipe": recipe.to_toml(), "name": name, "offline": offline})

    def pull(self, model: str, *, offline: bool = False) -> Job:
        """Fetch a model from the hub, by its id, and serve it under that."""
        split_name(model)  # refuses what cannot be one
        return self.create("pull", {"model": model, "offline": offline})

    def list(self) -> list[Job]:
        """All jobs, the oldest first."""
        with self._change:
            if self._owned is None and self.folder.is_dir():
                self._find_jobs()
            return sorted(self._jobs.values(), key=lambda job: (job.about["created"], job.id))

    def find(self, id: str) -> Job | None:
        """A job by its id."""
        return next((job for job in self.list() if job.id == id), None)

    def status(self, job: Job) -> str:
        """One of `queued`, `running`, `succeeded`, `failed`, `cancelled`, as it is at this moment."""
        with self._change:
            end = job.progress.end
            if end is not None:
                return end
            progress = job.progress
            elsewhere = self._owned is None and progress.begun and not progress.stopped
            return "running" if job is self._current or elsewhere else "queued"

    def pause(self, job: Job) -> None:
        """Stop after the step that is computed now, and save; until it is resumed it does not go on."""
        with self._change:
            self._check_unfinished(job)
            if not job.progress.paused:
                job.log.append(
                    "paused",
                    "The job pauses after the step that is computed, and what it has learned is saved",
                )
            if job is self._current and self._process is not None:
                _ask_to_stop(self._process)

    def resume(self, job: Job) -> None:
        """Let a paused job go on."""
        with self._change:
            self._check_unfinished(job)
            if not job.progress.paused:
                raise InputError(f"{job.id} is not paused")
            job.log.append("resumed", "The job was resumed")
            self._change.notify_all()

    def cancel(self, job: Job) -> None:
        """End a job for good; checkpoints that it saved stay in its folder."""
        with self._change:
            self._check_unfinished(job)
            job.log.append("cancelled", "The job was cancelled")
            if job is self._current and self._process is not None:
                self._process.kill()
            self._change.notify_all()

    def delete_result(self, job: Job) -> None:
        """Remove what a job made; what happened to it is still known."""
        with self._change:
            self._check_owned()
            for other in self.list():
                unneeded = other.progress.deleted or other.progress.end in ("failed", "cancelled")
                if not unneeded and Path(str(other.about.get("base", ""))).is_relative_to(job.folder):
                    raise InputError(f"{other.about['result']} was made from it; delete that one first")
            job.log.append("deleted", "The model was deleted")
            for name in ("run", "base"):
                shutil.rmtree(job.folder / name, ignore_errors=True)

    def _check_owned(self) -> None:
        if not self._own():
            raise JobsElsewhere("another server runs the jobs of this home; ask that one")

    def _check_room(self) -> None:
        self._check_owned()
        if self._closing:
            raise JobsBusy("the server is stopping")
        if len(self._jobs) >= MOST_KEPT:
            raise JobsBusy(f"{MOST_KEPT:,} jobs are kept; remove folders of old ones in {self.folder.name}/")
        waiting = sum(job.progress.end is None for job in self._jobs.values())
        if waiting >= MOST_WAITING:
            raise JobsBusy(f"{counted(waiting, 'job')} are waiting already; try again later")

    def _check_unfinished(self, job: Job) -> None:
        self._check_owned()
        if job.progress.end is not None:
            raise InputError(f"{job.id} has ended: it {_ended(job.progress.end)}")

    # The thread that runs them

    def _work(self) -> None:
        while True:
            with self._change:
                while not self._closing and self._next() is None:
                    self._change.wait(TAKE_OVER)
                job = self._next()
                if self._closing or job is None:
                    return
                self._current = job
                ready = job.progress.result is not None
                process = None if ready else self._begin(job)
            if process is not None:
                process.wait()
            self._finish(job)
            with self._change:
                self._current = None

    def _next(self) -> Job | None:
        """The job whose turn it is."""
        if self._owned is None:
            if not self.folder.is_dir() or not self._own():
                return None
            self._find_jobs()  # the server that ran them is gone
        for job in self.list():
            if job.progress.end is None and not job.progress.paused:
                return job
        return None

    def _begin(self, job: Job) -> "subprocess.Popen[bytes] | None":
        """Start the process of a job."""
        again = "again, from what was saved" if job.progress.begun else ""
        job.log.append("started", f"The job was started {again}".rstrip())
        # The process needs no key, and keeps tokenized texts in the home that the job is in.
        environment = {name: value for name, value in os.environ.items() if name != "GLASSFORMER_API_KEY"}
        environment["GLASSFORMER_HOME"] = str(self.home)
        try:
            with (job.folder / "log.txt").open("ab") as output:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", WORKER, str(job.folder)],
                    stdin=subprocess.PIPE,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=environment,
                    start_new_session=True,  # Ctrl-C in the server's terminal is the server's alone
                )
        except OSError as error:
            self._fail(job, f"its process could not be started ({error.strerror or error})")
            return None
        return self._process

    def _finish(self, job: Job) -> None:
        """What follows from how a process ended."""
        with self._change:
            process, self._process = self._process, None
            if process is not None and process.stdin is not None:
                process.stdin.close()
            progress = job.progress
            if progress.end is not None or self._closing:
                return
            if progress.result is None:
                if process is not None and not progress.stopped:
                    self._died(job, process.returncode)
                return
        try:
            self._serve(job, result_folder(job))
        except Exception as error:  # whatever it is: the server and the other jobs go on
            reason = str(error) if isinstance(error, GlassError) else type(error).__name__
            self._fail(job, f"the model that it made could not be served: {reason}")
            return
        with self._change:
            if job.progress.end is None:
                job.log.append("succeeded", f"The job succeeded; {job.about['result']} is served")
                shutil.rmtree(job.folder / "run" / "checkpoints", ignore_errors=True)

    def _died(self, job: Job, code: int) -> None:
        """A process that ended without a word: killed, or out of memory."""
        how = f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
        if job.progress.tries >= MOST_TRIES:
            self._fail(job, f"its process ended {how}, {MOST_TRIES} times without a checkpoint in between")
            return
        message = f"The process ended {how}; the job goes on from what was saved"
        job.log.append("died", message, level="warn")

    def _fail(self, job: Job, message: str) -> None:
        with self._change:
            if job.progress.end is None:
                fail(job.log, message)


def _checked(about: dict[str, Any], folder: Path) -> dict[str, Any]:
    """What a job.json holds, if it is one of ours."""
    kind = about.get("kind")
    needed = {"created": float, "result": str, "device": str} | NEEDED.get(str(kind), {})
    if kind not in KINDS or not all(isinstance(about.get(name), kind) for name, kind in needed.items()):
        raise InputError(f"{folder}: job.json is not that of a job")
    return about


def fail(log: EventLog, message: str, *, code: str = "server_error", param: str | None = None) -> None:
    """Write down that a job failed, and why."""
    error = {"code": code, "message": message, "param": param}
    log.append("failed", f"The job failed: {message}", level="error", error=error)


def result_folder(job: Job) -> Path:
    """The folder of the model that a job made."""
    result = job.progress.result
    assert result is not None
    return job.folder / str(result["folder"])  # an absolute one (of a pulled model) stays as it is


def _result_id(kind: str, about: dict[str, Any], id: str) -> str:
    """The id under which the result will be served."""
    short = id[-8:]
    if kind == "pull":
        return str(about["model"])
    if kind == "train":
        return f"trained:{about['name']}:{short}"
    model = str(about["model"])
    origin = model.split(":")[1] if model.startswith("ft:") else model
    return f"ft:{origin}:{about.get('suffix') or ''}:{short}"


def _ended(end: str) -> str:
    return "was cancelled" if end == "cancelled" else end


def _ask_to_stop(process: "subprocess.Popen[bytes]") -> None:
    """By the end of its standard input: the same as if the server had gone."""
    if process.stdin is not None:
        with contextlib.suppress(OSError):
            process.stdin.close()
