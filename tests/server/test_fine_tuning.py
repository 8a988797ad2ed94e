"""`/v1/fine_tuning/jobs`: the official client fine-tunes a model and uses it, and what is refused."""

import asyncio
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import openai
import pytest
from serving import Running, serving, tiny_model
from translators import small_translator

import glassformer as gf
from glassformer.server.fine_tuning import _follow, to_dict
from glassformer.server.jobs import Jobs

LINES = [
    {"prompt": "What is it?", "completion": " A cat."},
    {"messages": [{"role": "user", "content": "Hello!"}, {"role": "assistant", "content": "Hi."}]},
    {"text": "Once upon a time there was a cat."},
] * 8
CONTENT = "".join(json.dumps(line) + "\n" for line in LINES).encode()
JOBS = "/v1/fine_tuning/jobs"


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model in a folder."""
    folder = tmp_path_factory.mktemp("models") / "tiny"
    tiny_model().save(folder)
    return folder


def models(base: Path) -> dict[str, Any]:
    """A model that has a folder, one that has none, one of turns, and one that does not continue texts."""
    tiny = gf.load(str(base), engine="torch", offline=True)
    dialog = gf.load(str(base), engine="torch", offline=True)
    return {
        "tiny": tiny,
        "homeless": tiny_model("nowhere"),
        "a/DialoGPT": dialog,
        "other": small_translator(),
    }


def client_of(server: Running) -> openai.OpenAI:
    """The official client, which tries once."""
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)


def test_from_a_file_to_a_model_that_answers(base: Path, tmp_path: Path) -> None:
    """Upload, create, follow, use, delete; pause, resume and cancel what waits; a new server knows it all."""
    with serving(models(base), home=tmp_path) as server:
        client = client_of(server)
        file = client.files.create(file=("cats.jsonl", CONTENT), purpose="fine-tune")
        how = {"n_epochs": 1, "batch_size": 2, "learning_rate_multiplier": "auto"}
        held = client.files.create(file=("dogs.jsonl", b'{"text": "A dog."}'), purpose="fine-tune")
        made = client.fine_tuning.jobs.create(
            model="tiny",
            training_file=file.id,
            validation_file=held.id,
            suffix="cats",
            seed=3,
            method={"type": "supervised", "supervised": {"hyperparameters": how}},  # type: ignore[typeddict-item]
            metadata={"of": "cats"},
        )
        assert (made.object, made.model, made.fine_tuned_model, made.seed) == (
            "fine_tuning.job",
            "tiny",
            None,
            3,
        )
        waits = client.fine_tuning.jobs.create(
            model="tiny", training_file=file.id, hyperparameters={"n_epochs": 100}
        )
        for one in (file, held):
            client.files.delete(one.id)  # jobs have their own copies
        check_a_job_that_waits(client, waits.id)
        check_the_stream(server, client, made.id)
        done = client.fine_tuning.jobs.retrieve(made.id)
        assert (done.training_file, done.validation_file) == (file.id, held.id)
        check_what_is_known_of_it(server, client, done)
        check_the_model(client, str(done.fine_tuned_model))
        check_that_it_can_learn_more(server, client, str(done.fine_tuned_model))
        check_a_file_that_teaches_nothing(client)
    with serving(models(base), home=tmp_path) as server:
        client = client_of(server)
        assert client.fine_tuning.jobs.retrieve(made.id) == done
        check_the_model(client, str(done.fine_tuned_model))
        check_that_it_can_be_deleted(server, client, str(done.fine_tuned_model))


def check_a_job_that_waits(client: openai.OpenAI, id: str) -> None:
    """One job at a time: this one is not begun while the other runs."""
    jobs = client.fine_tuning.jobs
    assert jobs.retrieve(id).status == "queued"
    paused = jobs.pause(id)
    assert (paused.status, paused.paused) == ("queued", True)  # type: ignore[attr-defined]
    assert jobs.resume(id).paused is False  # type: ignore[attr-defined]
    assert jobs.cancel(id).status == "cancelled"
    with pytest.raises(openai.BadRequestError, match="has ended: it was cancelled"):
        jobs.resume(id)
    assert [one.message for one in jobs.list_events(id)] == [
        "The job was cancelled",
        "The job was resumed",
        "The job pauses after the step that is computed, and what it has learned is saved",
        "The job was created",
    ]


def check_the_stream(server: Running, client: openai.OpenAI, id: str) -> None:
    """Events as they come, to the end; while the job runs, others are answered."""
    found = []
    with server.client.stream("GET", f"{JOBS}/{id}/events?stream=true") as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        for line in answer.iter_lines():
            if line.startswith("data: {"):
                found.append(json.loads(line.removeprefix("data: ")))
                assert client.completions.create(model="homeless", prompt="Once", max_tokens=2).choices
        assert line == "" or line == "data: [DONE]"
    whole = [one.to_dict() for one in client.fine_tuning.jobs.list_events(id, limit=100)]
    assert found == whole[::-1]
    what = [one["data"]["event"] for one in found]
    assert what[:4] == ["created", "started", "planned", "training"]
    assert what[-2:] == ["trained", "succeeded"]
    rest = server.get(f"{JOBS}/{id}/events?stream=true&after={found[-2]['id']}").text
    assert rest.count("data: ") == 2
    assert rest.endswith("data: [DONE]\n\n")


def check_what_is_known_of_it(server: Running, client: openai.OpenAI, job: Any) -> None:
    """The object, its events and checkpoints in pages, the list by metadata, the metrics."""
    jobs = client.fine_tuning.jobs
    assert job.status == "succeeded", job.error
    assert job.fine_tuned_model == f"ft:tiny:cats:{job.id[-8:]}"
    assert job.trained_tokens > 0
    assert job.finished_at >= job.created_at
    assert not (server.state.jobs.find(job.id).folder / "run" / "checkpoints").exists()  # needed no longer
    assert (job.hyperparameters.n_epochs, job.hyperparameters.batch_size, job.hyperparameters.rank) == (
        1,
        2,
        8,
    )
    steps = [
        one.data
        for one in jobs.list_events(job.id, limit=3)
        if one.type == "metrics" and "train_loss" in one.data
    ]
    assert [one["step"] for one in steps][::-1] == list(range(1, job.hyperparameters.steps + 1))
    checkpoints = list(jobs.checkpoints.list(job.id, limit=1))
    assert checkpoints[0].step_number == job.hyperparameters.steps
    assert checkpoints[0].metrics.train_loss is not None
    told = [one.data["valid_loss"] for one in jobs.list_events(job.id, limit=100) if "valid_loss" in one.data]
    assert checkpoints[0].metrics.valid_loss == told[0]
    assert [one.id for one in jobs.list(metadata={"of": "cats"})] == [job.id]
    newest, oldest = jobs.list()
    assert (newest.id == job.id, oldest.id) == (False, job.id)
    metrics = server.get("/metrics").text
    assert 'glass_jobs{kind="finetune",status="succeeded"} 1' in metrics
    assert 'glass_jobs{kind="finetune",status="cancelled"} 1' in metrics


def check_that_it_can_learn_more(server: Running, client: openai.OpenAI, id: str) -> None:
    """From what it has learned already, not from its base."""
    file = client.files.create(file=("a", CONTENT), purpose="fine-tune")
    job = client.fine_tuning.jobs.create(model=id, training_file=file.id)
    first = server.state.jobs.find(next(one.id for one in server.state.jobs.list() if one.model_id == id))
    assert server.state.jobs.find(job.id).about["base"] == str(first.folder / "run" / "model")
    client.fine_tuning.jobs.cancel(job.id)


def check_the_model(client: openai.OpenAI, id: str) -> None:
    """It is listed and answers, beside its base."""
    assert [one.id for one in client.models.list()] == ["tiny", "homeless", "a/DialoGPT", "other", id]
    assert client.models.retrieve(id).id == id
    assert client.completions.create(model=id, prompt="What is it?", max_tokens=3).model == id


def check_a_file_that_teaches_nothing(client: openai.OpenAI) -> None:
    """The job fails and says why; all others are answered as before."""
    file = client.files.create(file=("a", b'{"text": "a"}'), purpose="fine-tune")
    job = client.fine_tuning.jobs.create(model="tiny", training_file=file.id)
    while job.status in ("queued", "running"):
        time.sleep(0.05)
        job = client.fine_tuning.jobs.retrieve(job.id)
    assert job.status == "failed"
    assert job.error is not None
    assert (job.error.code, job.error.message[:35]) == (
        "invalid_request",
        "the text is too short to learn from",
    )
    assert client.completions.create(model="tiny", prompt="What is it?", max_tokens=3).choices


def check_that_it_can_be_deleted(server: Running, client: openai.OpenAI, id: str) -> None:
    """Then it is unknown; its job is still known. Other models cannot be."""
    with pytest.raises(openai.PermissionDeniedError):
        client.models.delete("tiny")
    assert client.models.delete(id).deleted
    with pytest.raises(openai.NotFoundError):
        client.completions.create(model=id, prompt="a")
    with pytest.raises(openai.NotFoundError):
        client.models.delete(id)
    (job,) = client.fine_tuning.jobs.list(metadata={"of": "cats"})
    assert (job.status, job.fine_tuned_model) == ("succeeded", None)
    assert not (server.state.jobs.find(job.id).folder / "run").exists()


@pytest.fixture(scope="module")
def asked(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server with an uploaded file, whose jobs would be refused before they begin."""
    with serving(models(base), home=tmp_path_factory.mktemp("home")) as running:
        sent = {"files": {"file": ("a", CONTENT)}, "data": {"purpose": "fine-tune"}}
        running.file = running.client.post("/v1/files", **sent).json()["id"]  # type: ignore[attr-defined]
        yield running


@pytest.mark.parametrize(("fields", "status", "param", "word"), [
    ({"model": "no-such"}, 404, "model", "is not served here"),
    ({"model": "../tiny"}, 404, "model", "is not served here"),
    ({"model": "/etc"}, 404, "model", "is not served here"),
    ({"model": "homeless"}, 400, "model", "not kept in a folder"),
    ({"model": "other"}, 400, "model", "does not continue texts"),
    ({"model": "a/DialoGPT"}, 400, "training_file", "turns in a form of its own"),
    ({"model": None}, 400, "model", "string"),
    ({"training_file": "file-" + "0" * 24}, 404, "training_file", "no such file"),
    ({"training_file": "../../etc/passwd"}, 404, "training_file", "no such file"),
    ({"training_file": "http://localhost/x"}, 404, "training_file", "no such file"),
    ({"training_file": 3}, 400, "training_file", "string"),
    ({"validation_file": "file-1"}, 404, "validation_file", "no such file"),
    ({"validation_file": "/etc/passwd"}, 404, "validation_file", "no such file"),
    ({"validation_file": 3}, 400, "validation_file", "string"),
    ({"suffix": "a/b"}, 400, "suffix", "pattern"),
    ({"suffix": "../x"}, 400, "suffix", "pattern"),
    ({"suffix": "x" * 65}, 400, "suffix", "pattern"),
    ({"seed": -1}, 400, "seed", "greater"),
    ({"seed": 2**32}, 400, "seed", "less"),
    ({"metadata": {"a": 1}}, 400, "metadata", "string"),
    ({"metadata": {str(n): "" for n in range(17)}}, 400, "metadata", "16"),
    ({"integrations": [{"type": "wandb"}]}, 400, "integrations", "not offered"),
    ({"method": {"type": "dpo"}}, 400, "method", "method.type: Input should be 'supervised'"),
    ({"method": {"type": "supervised", "supervised": {"hyperparameters": {"n_epochs": 0}}}}, 400, "method",
     "method.supervised.hyperparameters.n_epochs: Input should be 'auto'; or Input should be greater than or equal to 1"),
    ({"hyperparameters": {"n_epochs": 101}}, 400, "hyperparameters", "hyperparameters.n_epochs: "),
    ({"hyperparameters": {"n_epochs": 1.5}}, 400, "hyperparameters", "hyperparameters.n_epochs: "),
    ({"hyperparameters": {"n_epochs": True}}, 400, "hyperparameters", "hyperparameters.n_epochs: "),
    ({"hyperparameters": {"batch_size": 257}}, 400, "hyperparameters", "hyperparameters.batch_size: "),
    ({"hyperparameters": {"batch_size": "many"}}, 400, "hyperparameters", "hyperparameters.batch_size: "),
    ({"hyperparameters": {"learning_rate_multiplier": 0}}, 400, "hyperparameters", "learning_rate_multiplier: "),
    ({"hyperparameters": {"learning_rate_multiplier": 1e308}}, 400, "hyperparameters", "learning_rate_multiplier: "),
    ({"hyperparameters": {"steps": 0}}, 400, "hyperparameters", "hyperparameters.steps: "),
    ({"hyperparameters": {"steps": 10**6}}, 400, "hyperparameters", "hyperparameters.steps: "),
    ({"hyperparameters": {"rank": -1}}, 400, "hyperparameters", "hyperparameters.rank: "),
    ({"hyperparameters": {"rank": 2**63}}, 400, "hyperparameters", "hyperparameters.rank: "),
    ({"hyperparameters": {"steps": 5, "n_epochs": 2}}, 400, "hyperparameters", "cannot both be given"),
])  # fmt: skip
def test_what_is_refused(asked: Running, fields: dict[str, Any], status: int, param: str, word: str) -> None:
    """The field is named; nothing is begun."""
    wanted = {"model": "tiny", "training_file": asked.file} | fields  # type: ignore[attr-defined]
    answer = asked.post(
        JOBS, {key: value for key, value in wanted.items() if value is not None or key == "model"}
    )
    assert (answer.status_code, answer.json()["error"]["param"]) == (status, param), answer.text
    assert word in answer.json()["error"]["message"]
    assert asked.get(JOBS).json()["data"] == []


@pytest.mark.parametrize("id", ["ftjob-" + "0" * 24, "job-" + "0" * 24, "..", "lock", "%00", "a" * 5000])
def test_jobs_that_are_none(asked: Running, id: str) -> None:
    """One answer to all of them."""
    paths = [(asked.get, ""), (asked.get, "/events"), (asked.get, "/checkpoints")]
    paths += [(asked.post, f"/{verb}") for verb in ("pause", "resume", "cancel")]
    for ask, path in paths:
        assert ask(f"{JOBS}/{id}{path}").status_code in ((404, 405) if id == ".." else (404,))


def test_other_jobs_are_not_fine_tunings(asked: Running) -> None:
    """A model that the runner has pulled is served; OpenAI's routes do not know of the job."""
    job = asked.state.jobs.pull("storyteller", offline=True)
    while job.progress.end is None:
        time.sleep(0.02)
    assert (
        asked.post("/v1/completions", {"model": "storyteller", "prompt": "Once", "max_tokens": 2}).status_code
        == 200
    )
    assert asked.get(f"{JOBS}/{job.id}").status_code == 404
    assert asked.get(JOBS).json()["data"] == []
    assert asked.client.delete("/v1/models/storyteller").status_code == 403


def test_a_job_that_runs(asked: Running, tmp_path: Path) -> None:
    """When it will be done is estimated while it runs; who follows it is let go when the server stops."""
    jobs = Jobs(tmp_path, serve=lambda job, folder: None)
    how = {"n_epochs": 1, "batch_size": 1, "learning_rate_multiplier": 1.0, "steps": None, "rank": 8}
    job = jobs.finetune("tiny", "base", fill=lambda folder: None, hyperparameters=how, seed=1)
    job.log.append("training", "", steps=100, resumed=0)
    job.log.append("step", "", step=50)
    job.log.append("trained", "", folder="run/model", trained_tokens=7)
    assert to_dict(jobs, job)["estimated_finish"] is None
    jobs._current = job
    found = to_dict(jobs, job)
    assert (found["status"], found["trained_tokens"]) == ("running", None)
    assert abs(found["estimated_finish"] - time.time()) < 60

    async def followed() -> list[bytes]:
        stopping = replace(asked.state, stopping=True)
        return [one async for one in _follow(stopping, job, None)]

    *events, done = asyncio.run(asyncio.wait_for(followed(), 10))
    assert (len(events), done) == (4, b"data: [DONE]\n\n")


def test_no_more_models_than_fit(base: Path, tmp_path: Path) -> None:
    """Every result is a model in memory."""
    with serving(models(base), home=tmp_path, most_results=0) as server:
        sent = {"files": {"file": ("a", CONTENT)}, "data": {"purpose": "fine-tune"}}
        file = server.client.post("/v1/files", **sent).json()["id"]
        answer = server.post(JOBS, {"model": "tiny", "training_file": file})
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "too_many_models")
