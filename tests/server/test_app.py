"""The application as a whole: its document is complete, and requests made from it never break it."""

import json
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import schemathesis
from pydantic import TypeAdapter
from serving import Running, serving, tiny_model

from glassformer.server.app import STATUSES
from glassformer.server.objects import ANSWERS


def test_the_document_is_complete(server: Running) -> None:
    """Every operation has its errors as one object, and a sentence; 422 is none of them."""
    document = server.get("/openapi.json").json()
    assert document["info"]["title"] == "Glassformer"
    paths, schemas = document["paths"], document["components"]["schemas"]
    assert {
        "/v1/completions",
        "/v1/chat/completions",
        "/v1/responses",
        "/v1/embeddings",
        "/tokenize",
        "/metrics",
        "/v1/files",
        "/v1/files/{file_id}/content",
        "/v1/fine_tuning/jobs",
        "/v1/fine_tuning/jobs/{job_id}/events",
        "/v1/fine_tuning/jobs/{job_id}/pause",
    } <= paths.keys()
    assert "multipart/form-data" in paths["/v1/files"]["post"]["requestBody"]["content"]
    for path, methods in paths.items():
        for operation in methods.values():
            assert operation["description"], path
            assert {str(one) for one in STATUSES} <= operation["responses"].keys()
            assert "422" not in operation["responses"]
    for method, path in ANSWERS:
        content = paths[path][method]["responses"]["200"]["content"]
        assert (
            content["application/json"]["schema"]["$ref"].removeprefix("#/components/schemas/") in schemas
        ), path
    assert "text/event-stream" in paths["/v1/completions"]["post"]["responses"]["200"]["content"]
    assert document["components"]["securitySchemes"]


ASK = {"model": "storyteller", "max_tokens": 3, "seed": 1}
TALK = [{"role": "user", "content": "Once"}]


@pytest.mark.parametrize(("path", "body"), [
    ("/v1/completions", {**ASK, "prompt": "Once", "logprobs": 2, "echo": True, "return_token_ids": True}),
    ("/v1/completions", {**ASK, "prompt": ["Once", "upon"], "n": 2, "explain": {"top": 1}}),
    ("/v1/completions", {**ASK, "prompt": "Once", "logprobs": 1, "logprob_tokens": [" a", " the"]}),
    ("/v1/chat/completions", {**ASK, "messages": TALK, "logprobs": True, "top_logprobs": 2, "logprob_tokens": [" a"]}),
    ("/v1/chat/completions", {**ASK, "messages": TALK, "return_token_ids": True, "explain": {"top": 1}}),
    ("/v1/responses", {"model": "storyteller", "input": "Once", "max_output_tokens": 16}),
    ("/v1/responses", {"model": "storyteller", "input": TALK, "max_output_tokens": 16, "explain": {"top": 1}}),
    ("/v1/embeddings", {"model": "storyteller", "input": ["a", "b"]}),
    ("/v1/embeddings", {"model": "storyteller", "input": "a", "encoding_format": "base64"}),
    ("/tokenize", {"prompt": "Once", "return_token_strs": True}),
    ("/tokenize", {"prompt": "Once", "with_pieces": True}),
    ("/detokenize", {"tokens": [1, 2]}),
])  # fmt: skip
def test_answers_are_as_documented(server: Running, path: str, body: dict[str, Any]) -> None:
    """Field by field, and no field more."""
    answer = server.post(path, body)
    assert answer.status_code == 200, answer.text
    kind = TypeAdapter(ANSWERS["post", path])
    kind.validate_json(answer.content, strict=True, extra="forbid")


@pytest.mark.parametrize("path", ["/v1/models", "/health", "/version", "/tokenizer_info"])
def test_what_is_fetched_is_as_documented(server: Running, path: str) -> None:
    """The same of what is fetched."""
    kind = TypeAdapter(ANSWERS["get", path])
    kind.validate_json(server.get(path).content, strict=True, extra="forbid")


def aim(case: Any) -> None:
    """Name what there is: a made-up model or verb is refused before anything else of a request is looked at."""
    if isinstance(case.body, dict) and isinstance(case.body.get("model"), str):
        case.body["model"] = "tiny"
    if isinstance(case.path_parameters, dict) and "verb" in case.path_parameters:
        verbs = ["classify", "compose", "summarize", "tag", "translate"]
        case.path_parameters["verb"] = verbs[len(str(case.body)) % len(verbs)]


def breakable(operation: Any) -> bool:
    """Whether a request can break the document: any text is an id, so a path alone cannot."""
    about = operation.definition.raw
    return "requestBody" in about or any(one["in"] != "path" for one in about.get("parameters", ()))


def check_answer(operation: Any, answer: Any) -> None:
    """An answer is the object that the document describes."""
    kind = ANSWERS.get((operation.method, operation.path))
    if kind is not None and answer.headers["content-type"][0].startswith("application/json"):
        TypeAdapter(kind).validate_json(answer.content, strict=True, extra="forbid")


def answers_of(server: Running, examples: int, *, seed: int) -> dict[int, int]:
    """Send requests that fit the document and requests that do not; how often there was which status."""
    found: dict[int, int] = {}
    schema: Any = schemathesis.openapi.from_dict(server.app.openapi())
    modes = [schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE]
    schema.config.generation.modes = modes
    for operation in schema.get_all_operations():
        for mode in modes if breakable(operation.ok()) else modes[:1]:
            strategy = operation.ok().as_strategy(generation_mode=mode)

            @hypothesis.seed(seed)
            @hypothesis.settings(
                max_examples=examples,
                deadline=None,
                database=None,
                suppress_health_check=list(hypothesis.HealthCheck),
                phases=[hypothesis.Phase.generate],
            )
            @hypothesis.given(case=strategy)
            def send(case: Any) -> None:
                aim(case)
                answer = case.call(base_url=server.url)
                found[answer.status_code] = found.get(answer.status_code, 0) + 1
                assert answer.status_code < 500, answer.text
                documented = case.operation.definition.raw["responses"]
                assert str(answer.status_code) in documented, answer.text
                if answer.status_code == 200:
                    check_answer(case.operation, answer)
                assert answer.elapsed <= 5
                assert answer.headers.get("x-request-id")
                if answer.status_code >= 400:
                    assert set(json.loads(answer.content)["error"]) == {"message", "type", "param", "code"}

            send()
    return found


def test_made_up_requests_never_break_it(tmp_path: Path) -> None:
    """Positive and negative ones: no 5xx, and every error is the error object."""
    with serving({"tiny": tiny_model()}, home=tmp_path) as server:
        found = answers_of(server, 2, seed=1)
        assert found.keys() >= {200, 400, 404}
        assert server.get("/health").status_code == 200


@pytest.mark.slow
def test_many_made_up_requests_never_break_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A hundred of each kind for every operation."""
    with serving({"tiny": tiny_model()}, home=tmp_path) as server:
        found = answers_of(server, 100, seed=2)
        assert sum(found.values()) > 1000
        with capsys.disabled():
            print(f"\n{sum(found.values()):,} requests: {dict(sorted(found.items()))}")
        assert server.get("/health").status_code == 200
