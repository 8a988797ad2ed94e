"""The process of a job: `python -m glassformer.server.worker FOLDER`. It trains as `glass finetune` does.

What happens is written to the job's events. When standard input ends, whether the server asks to stop or is
gone, the state is saved and the process ends.
"""

import contextlib
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

from glassformer import machine
from glassformer.durable import replace_file
from glassformer.errors import GlassError, InputError, counted
from glassformer.files import read_json
from glassformer.server.events import EventLog
from glassformer.server.jobs import DATA, VALIDATION, fail

if TYPE_CHECKING:
    from glassformer.tasks.recipe import Recipe

RECIPE, RUN, BASE = "recipe.toml", "run", "base"
PARAMS = {DATA: "training_file", VALIDATION: "validation_file"}
DEFAULT_KIND = "gpt2"
LOOK = 0.5  # seconds between two looks whether the process of an earlier server has ended
NICENESS = 5  # of 19: requests go first
FIRST_KILLED = "500"  # of 1000: when memory runs out, this process shall be killed, not the server
MOST_STEP_EVENTS = 1000
FETCHED_EVERY = 0.3  # seconds between two events about a download


def main(folder: Path) -> int:
    """Do the job of a folder until it is done, or the server asks to stop, or is gone."""
    stop = _listen()
    _step_back()
    do_job(folder, stop=stop)
    return 0


def do_job(folder: Path, *, stop: Callable[[], bool]) -> None:
    """Do a job, and write down how it ended."""
    log = EventLog(folder / "events.jsonl")
    try:
        with _claimed(folder, log=log, stop=stop):
            about = read_json(folder / "job.json", 1 << 24)
            WORK[about["kind"]](folder, about, log=log, stop=stop)
    except GlassError as error:
        code = "invalid_request" if isinstance(error, InputError) else "server_error"
        message = str(error).replace(f"{folder}{os.sep}", "")  # clients need not know where files are
        named = [param for file, param in PARAMS.items() if message.startswith(file)]
        fail(log, message, code=code, param=named[0] if named else None)
    except KeyboardInterrupt:
        log.append("stopped", "The job was stopped before it began to train")
    except Exception as error:
        traceback.print_exc()
        fail(log, f"something went wrong inside ({type(error).__name__}); log.txt of the job has the reason")


@contextlib.contextmanager
def _claimed(folder: Path, *, log: EventLog, stop: Callable[[], bool]) -> Iterator[None]:
    """Only one process works at a job. One of a server that was killed may still be saving: wait for it."""
    lock = FileLock(folder / "lock")
    waits = False
    while True:
        try:
            lock.acquire(timeout=LOOK)
            break
        except Timeout:
            if stop():
                raise KeyboardInterrupt from None
            if not waits:
                log.append("message", "An earlier process of the job is still saving; waiting for its end")
            waits = True
    try:
        yield
    finally:
        lock.release()


def _listen() -> Callable[[], bool]:
    """Whether to stop: standard input has ended, or SIGTERM came."""
    asked = threading.Event()

    def wait() -> None:
        with contextlib.suppress(OSError):
            while os.read(0, 1024):
                pass
        asked.set()

    threading.Thread(target=wait, daemon=True).start()
    signal.signal(signal.SIGTERM, lambda number, frame: asked.set())
    return asked.is_set


def _step_back() -> None:
    """Let the server go first where cores or memory are scarce."""
    with contextlib.suppress(OSError, AttributeError):  # Windows has none
        os.setpriority(os.PRIO_PROCESS, 0, max(NICENESS, os.getpriority(os.PRIO_PROCESS, 0)))
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(FIRST_KILLED)


def _finetune(folder: Path, about: dict[str, Any], *, log: EventLog, stop: Callable[[], bool]) -> None:
    """Fine-tune a model on data.jsonl."""
    from glassformer.tasks.finetune import Amount, fit_to_text, gentle_recipe
    from glassformer.tasks.load import kind_of_base
    from glassformer.tasks.recipe import Recipe

    path = folder / RECIPE
    if not path.is_file():  # the first start decides, once and for all
        given = about["hyperparameters"]
        base = _without_lora(about["base"], folder) if given["rank"] else about["base"]
        recipe = gentle_recipe(kind_of_base(base) or DEFAULT_KIND, lora=bool(given["rank"]))
        recipe = recipe.changed(
            base=base,
            data=[str(folder / DATA)],
            validation=[str(path) for path in [folder / VALIDATION] if path.is_file()],
            rank=given["rank"],
            lr=recipe.train.lr * given["learning_rate_multiplier"],
            seed=about["seed"],
            preview_tokens=0,
            tensorboard=False,
        )
        amount = Amount(epochs=given.get("n_epochs"), steps=given.get("steps"), batch=given.get("batch_size"))
        recipe, epochs = fit_to_text(recipe, amount, out=folder / RUN)
        train = recipe.train
        log.append(
            "planned",
            f"{counted(train.steps, 'step')} of {counted(train.batch, 'row')}: {counted(epochs, 'epoch')}",
            n_epochs=epochs,
            batch_size=train.batch,
            steps=train.steps,
        )
        replace_file(path, recipe.to_toml())
    _train(Recipe.read(path), folder, about, log=log, stop=stop)


def _without_lora(base: str, folder: Path) -> str:
    """A model beside which LoRA can train: a LoRA folder is merged with its base first."""
    from glassformer.tasks.library import describe_adapter
    from glassformer.tasks.load import load

    if describe_adapter(base, offline=True) is None:
        return base
    merged = folder / BASE
    if not merged.is_dir():
        load(base, engine="torch", offline=True).save(merged)
    return str(merged)


def _by_recipe(folder: Path, about: dict[str, Any], *, log: EventLog, stop: Callable[[], bool]) -> None:
    """Train as a recipe says."""
    from glassformer.tasks.recipe import Recipe

    path = folder / RECIPE
    if not path.is_file():
        replace_file(path, about["recipe"])
    _train(Recipe.read(path), folder, about, log=log, stop=stop)


def _train(
    recipe: "Recipe", folder: Path, about: dict[str, Any], *, log: EventLog, stop: Callable[[], bool]
) -> None:
    machine.keep_memory()  # before torch is imported
    from glassformer.tasks.train import Finished, train

    def progress(what: str, done: int, total: int) -> None:
        if stop():  # there is nothing to save yet
            raise KeyboardInterrupt

    how = {"device": about["device"], "offline": about.get("offline", True)}
    writer = _EventWriter(log, steps=recipe.train.steps)
    for event in train(recipe, folder / RUN, progress=progress, stop=stop, **how):
        writer.write(event)
        if isinstance(event, Finished):
            message = f"All {counted(event.step, 'step')} are done, {counted(event.tokens, 'token')}"
            log.append("trained", message, folder=f"{RUN}/model", trained_tokens=event.tokens)
            return
    log.append("stopped", f"The job was stopped at step {writer.step:,}, which is saved")


class _EventWriter:
    """Writes what a training reports as events of the job."""

    def __init__(self, log: EventLog, *, steps: int) -> None:
        self.log, self.steps, self.step = log, steps, 0
        self.every = -(-steps // MOST_STEP_EVENTS)
        self.loss: float | None = None
        self.held_out: float | None = None

    def write(self, event: Any) -> None:
        """One event of the training."""
        kind = type(event).__name__
        if kind == "Started":
            self._start(event)
        elif kind == "Stepped":
            self._count(event)
        elif kind == "Evaluated":
            self.held_out = event.loss
            message = f"Step {event.step}: held-out loss {event.loss:.4f}"
            self.log.append("evaluated", message, step=event.step, valid_loss=event.loss)
        elif kind == "Saved":
            numbers = {"step": event.step, "train_loss": self.loss, "valid_loss": self.held_out}
            self.log.append("checkpoint", f"Step {event.step}: a checkpoint was saved", **numbers)
        elif kind == "Message":
            self.log.append("message", event.text)

    def _start(self, event: Any) -> None:
        self.step = event.resumed
        begin = f"from step {event.resumed} on" if event.resumed else "from the beginning"
        message = f"Training {event.trained:,} of {event.parameters:,} parameters, {begin}"
        facts = {"steps": event.steps, "resumed": event.resumed, "tokens": event.tokens}
        self.log.append("training", message, **facts, held_out=event.held_out)

    def _count(self, event: Any) -> None:
        self.step, self.loss = event.step, event.loss
        if event.step % self.every and event.step not in (1, self.steps):
            return
        message = f"Step {event.step}/{self.steps}: training loss={event.loss:.4f}"
        numbers = {"train_loss": event.loss, "learning_rate": event.lr, "tokens": event.tokens}
        speed = round(event.tokens_per_second, 1)
        self.log.append("step", message, step=event.step, **numbers, tokens_per_second=speed)


def _pull(folder: Path, about: dict[str, Any], *, log: EventLog, stop: Callable[[], bool]) -> None:
    """Fetch a model from the hub. What was downloaded before a kill is not downloaded again."""
    from glassformer.tasks.library import pull

    done = threading.Event()
    threading.Thread(target=_leave, args=(stop, done, log), daemon=True).start()
    fetched = _Fetched(log)
    found = pull(about["model"], offline=about["offline"], progress=fetched)
    done.set()
    if fetched.total:  # files that were there before are not fetched
        fetched(fetched.total, fetched.total)
    log.append("trained", "The model was fetched", folder=str(found.absolute()))


class _Fetched:
    """Writes how much of a model was fetched, now and then: the hub's client reports every piece."""

    def __init__(self, log: EventLog) -> None:
        self.log, self.latest = log, 0.0
        self.done = self.total = 0
        self._lock = threading.Lock()  # files are fetched by several threads

    def __call__(self, done: int, total: int) -> None:
        with self._lock:
            self.done, self.total = max(self.done, done), max(self.total, total)
            whole = self.done == self.total
            if time.monotonic() - self.latest < FETCHED_EVERY and not whole:
                return
            self.latest = time.monotonic()
            message = f"{self.done:,} of {self.total:,} bytes were fetched"
            self.log.append("fetched", message, done=self.done, total=self.total)


def _leave(stop: Callable[[], bool], done: threading.Event, log: EventLog) -> None:
    """End the process when the server asks for it: a download cannot be asked, and goes on where it was."""
    while not done.wait(LOOK):
        if stop():
            log.append("stopped", "The download was stopped; what was fetched is kept")
            os._exit(0)


WORK = {"finetune": _finetune, "train": _by_recipe, "pull": _pull}

if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
