"""`/v1/fine_tuning/jobs`: a served model learns from an uploaded file, and the result is served beside it.

OpenAI's objects know no state of being paused: such a job is `queued`, with `"paused": true` beside it.
"""

import asyncio
import secrets
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from glassformer.errors import GlassError, InputError
from glassformer.server import training_file
from glassformer.server.errors import ApiError, invalid
from glassformer.server.events import Event, EventLog
from glassformer.server.files import FileStore, unknown_file
from glassformer.server.jobs import (
    DATA,
    VALIDATION,
    Job,
    Jobs,
    JobsBusy,
    JobsElsewhere,
    Progress,
    result_folder,
)
from glassformer.server.schemas import FineTuningRequest, TuningOptions, page
from glassformer.server.served import Served
from glassformer.server.sse import DONE, EventStream, event
from glassformer.server.state import State
from glassformer.tasks.finetune import DEFAULT_RANK
from glassformer.tasks.library import base_for_training

JOBS = "/v1/fine_tuning/jobs"
COPIES = {"training_file": DATA, "validation_file": VALIDATION}  # what a job's folder calls its own copies
POLL = 0.1  # seconds between two looks for new events
STREAM = {"text/event-stream": {"schema": {"type": "string"}}}
Limit = Annotated[int, Query(ge=1, le=100)]


def router(state: State) -> APIRouter:
    """The routes."""
    routes = APIRouter(tags=["fine-tuning"])
    _add_reading(routes, state)
    _add_changing(routes, state)
    return routes


def _add_reading(routes: APIRouter, state: State) -> None:
    @routes.get(JOBS)
    async def jobs(request: Request, after: str | None = None, limit: Limit = 20) -> dict[str, Any]:
        """All jobs, the newest first."""
        runner = state.jobs_or_refuse()
        wanted = {
            key.removeprefix("metadata[").removesuffix("]"): value
            for key, value in request.query_params.items()
            if key.startswith("metadata[")
        }
        found = [job for job in runner.list() if job.kind == "finetune"]
        found = [job for job in found if wanted.items() <= (job.about.get("metadata") or {}).items()]
        return page([to_dict(runner, job) for job in reversed(found)], after=after, limit=limit)

    @routes.get(f"{JOBS}/{{job_id}}")
    async def job(job_id: str) -> dict[str, Any]:
        """One job."""
        runner = state.jobs_or_refuse()
        return to_dict(runner, _found(runner, job_id))

    @routes.get(f"{JOBS}/{{job_id}}/events", responses={200: {"content": STREAM}})
    async def events(
        job_id: str, after: str | None = None, limit: Limit = 20, stream: bool = False
    ) -> Response:
        """What happened to a job, the newest first; or as a stream, as it happens, from the first one on."""
        found = _found(state.jobs_or_refuse(), job_id)
        if stream:
            return EventStream(_follow(state, found, after), ping=state.settings.ping)
        return JSONResponse(page(found.events()[::-1], after=after, limit=limit))

    @routes.get(f"{JOBS}/{{job_id}}/checkpoints")
    async def checkpoints(job_id: str, after: str | None = None, limit: Limit = 10) -> dict[str, Any]:
        """The checkpoints that a job has saved, the newest first."""
        found = _found(state.jobs_or_refuse(), job_id)
        listed = [_checkpoint(found, one) for one in found.progress.checkpoints]
        return page(listed[::-1], after=after, limit=limit)


def _add_changing(routes: APIRouter, state: State) -> None:
    @routes.post(JOBS)
    async def create(body: FineTuningRequest) -> dict[str, Any]:
        """Fine-tune a model that is served here on an uploaded file."""
        runner = state.jobs_or_refuse()
        return to_dict(runner, await _create(state, runner, body))

    @routes.post(f"{JOBS}/{{job_id}}/pause")
    async def pause(job_id: str) -> dict[str, Any]:
        """Save, and do not go on until the job is resumed."""
        return _change(state, job_id, Jobs.pause)

    @routes.post(f"{JOBS}/{{job_id}}/resume")
    async def resume(job_id: str) -> dict[str, Any]:
        """Let a paused job go on, as if it had never been paused."""
        return _change(state, job_id, Jobs.resume)

    @routes.post(f"{JOBS}/{{job_id}}/cancel")
    async def cancel(job_id: str) -> dict[str, Any]:
        """End a job for good."""
        return _change(state, job_id, Jobs.cancel)


def refused(error: GlassError, *, param: str = "job_id") -> ApiError:
    """Why the runner does not do something, as an error of the API."""
    once = {"x-should-retry": "false"}
    if isinstance(error, JobsBusy):
        return ApiError(429, str(error), code="queue_full", headers={"Retry-After": "10"})
    if isinstance(error, JobsElsewhere):
        return ApiError(503, str(error), code="jobs_elsewhere", headers=once)
    if isinstance(error, InputError):
        return invalid(param, str(error))
    return ApiError(500, str(error), headers=once)


def _found(runner: Jobs, id: str) -> Job:
    job = runner.find(id)
    if job is None or job.kind != "finetune":
        raise ApiError(404, "job_id: there is no such job", param="job_id", code="job_not_found")
    return job


def _change(state: State, id: str, change: Any) -> dict[str, Any]:
    runner = state.jobs_or_refuse()
    job = _found(runner, id)
    try:
        change(runner, job)
    except GlassError as error:
        raise refused(error) from None
    return to_dict(runner, job)


# A new job


async def _create(state: State, runner: Jobs, body: FineTuningRequest) -> Job:
    if body.integrations:
        raise invalid("integrations", "are not offered")
    served = state.library.find(body.model)
    sources = _sources(state.files_or_refuse(), body)
    base = _base(state, runner, served)
    _check_room(state, runner)

    def fill(folder: Path) -> None:
        for param, source in sources.items():
            training_file.convert(source, folder / COPIES[param])

    try:
        for param, source in sources.items():
            if served.turns and await asyncio.to_thread(training_file.has_conversations, source):
                message = f"{served.id} has learned turns in a form of its own; send prompts and completions"
                raise invalid(param, message)
        work = partial(
            runner.finetune,
            served.id,
            base,
            fill=fill,
            hyperparameters=_chosen(body),
            training_file=body.training_file,
            validation_file=body.validation_file,
            suffix=body.suffix,
            seed=secrets.randbelow(1 << 31) if body.seed is None else body.seed,
            metadata=body.metadata,
        )
        return await asyncio.to_thread(work)
    except FileNotFoundError as error:  # it has just been deleted
        missing = [param for param, source in sources.items() if str(source) == error.filename]
        raise unknown_file(missing[0] if missing else "training_file") from None
    except OSError as error:
        raise GlassError(f"the job could not be kept ({error.strerror or error})") from None
    except GlassError as error:
        raise refused(error, param="training_file") from None


def _sources(files: FileStore, body: FineTuningRequest) -> dict[str, Path]:
    """The files to learn from and to evaluate on, by the fields that name them."""
    found = {}
    for param in COPIES:
        id = getattr(body, param)
        if id is None:
            continue
        if files.find(id) is None:
            raise unknown_file(param)
        found[param] = files.path(id)
    return found


def _base(state: State, runner: Jobs, served: Served) -> str:
    """What the job's process loads: the folder of the served model."""
    assert served.writer is not None  # or the sentence that it does not continue texts
    made = next((job for job in runner.list() if job.model_id == served.id), None)
    if made is not None:
        return str(result_folder(made))
    try:
        return base_for_training(served.model.name, revision=state.settings.revision)
    except GlassError:
        message = f"{served.id} is not kept in a folder of this machine, so it cannot be fine-tuned"
        raise invalid("model", message) from None


def _check_room(state: State, runner: Jobs) -> None:
    """Every result is a model in memory."""
    made = [job for job in runner.list() if job.model_id is not None or job.progress.end is None]
    if len(made) >= state.settings.most_results:
        message = (
            f"{state.settings.most_results} models of jobs are served or under way, and no more may be;"
            " DELETE /v1/models/{id} removes one"
        )
        raise ApiError(400, message, code="too_many_models")


def _chosen(body: FineTuningRequest) -> dict[str, Any]:
    """The hyperparameters; None where the size of the file decides."""
    method = body.method.supervised if body.method is not None else None
    given = (method and method.hyperparameters) or body.hyperparameters or TuningOptions()
    if given.steps is not None and given.n_epochs not in (None, "auto"):
        raise invalid("hyperparameters", "n_epochs and steps cannot both be given")

    def number(value: Any) -> Any:
        return None if value == "auto" else value

    return {
        "n_epochs": number(given.n_epochs),
        "batch_size": number(given.batch_size),
        "learning_rate_multiplier": number(given.learning_rate_multiplier) or 1.0,
        "steps": given.steps,
        "rank": DEFAULT_RANK if given.rank is None else given.rank,
    }


# Objects


def to_dict(runner: Jobs, job: Job) -> dict[str, Any]:
    """OpenAI's job object."""
    about, progress, status = job.about, job.progress, runner.status(job)
    shown = _hyperparameters(about["hyperparameters"], progress)
    tokens = None if progress.result is None else progress.result.get("trained_tokens")
    return {
        "id": job.id,
        "object": "fine_tuning.job",
        "created_at": int(about["created"]),
        "finished_at": progress.finished_at,
        "estimated_finish": progress.estimate if status == "running" else None,
        "model": about["model"],
        "fine_tuned_model": job.model_id,
        "organization_id": "glassformer",
        "status": status,
        "paused": progress.paused and progress.end is None,
        "hyperparameters": shown,
        "method": {"type": "supervised", "supervised": {"hyperparameters": shown}},
        "training_file": about.get("training_file", ""),
        "validation_file": about.get("validation_file"),
        "result_files": [],
        "trained_tokens": tokens if progress.end is not None else None,
        "seed": about["seed"],
        "error": progress.error,
        "metadata": about.get("metadata"),
        "integrations": [],
    }


def _hyperparameters(given: dict[str, Any], progress: Progress) -> dict[str, Any]:
    """As they were asked for, and once the file was looked at, as they are."""
    known = {name: progress.plan[name] for name in ("n_epochs", "batch_size", "steps") if progress.plan}
    return {name: "auto" if value is None else value for name, value in (given | known).items()}


def _checkpoint(job: Job, saved: Event) -> dict[str, Any]:
    data = saved["data"]
    numbers = {name: data.get(name) for name in ("step", "train_loss", "valid_loss")}
    return {
        "id": saved["id"].replace("ftevent-", "ftckpt_"),
        "object": "fine_tuning.job.checkpoint",
        "created_at": saved["created_at"],
        "fine_tuning_job_id": job.id,
        "fine_tuned_model_checkpoint": f"{job.about['result']}:ckpt-step-{data['step']}",
        "step_number": data["step"],
        "metrics": {name: value for name, value in numbers.items() if value is not None},
    }


async def _follow(state: State, job: Job, after: str | None) -> AsyncIterator[bytes]:
    """The events of a job as they come, until it ends or the server does."""
    log = EventLog(job.log.path)
    waiting = after is not None
    while True:
        ended = job.progress.end is not None  # before the events are read: the last one is among them
        for one in log.new():
            if not waiting:
                yield event(one)
            waiting = waiting and one["id"] != after
        if ended or state.stopping:
            yield DONE
            return
        await asyncio.sleep(POLL)


def delete_model(state: State, id: str) -> Path:
    """Remove the model that a job made; the folder in which it was."""
    runner = state.jobs_or_refuse()
    job = next((one for one in runner.list() if one.model_id == id and one.kind == "finetune"), None)
    if job is None:
        state.library.find(id)  # a 404 for what is not served
        raise ApiError(403, f"model: {id} was not made by a job of this server", param="model")
    folder = result_folder(job)
    try:
        runner.delete_result(job)
    except GlassError as error:
        raise refused(error, param="model") from None
    return folder
