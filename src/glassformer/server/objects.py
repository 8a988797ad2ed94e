"""The objects of answers, as the OpenAPI document describes them. Routes make them as plain data."""

from typing import Any, Literal, NotRequired

from pydantic import TypeAdapter
from typing_extensions import TypedDict

Json = dict[str, Any]
Finish = Literal["stop", "length"] | None


class Usage(TypedDict):
    """Tokens that were read and written."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: dict[str, int]


class Logprobs(TypedDict):
    """Log-probabilities of a completion."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float | None] | None] | None
    text_offset: list[int]
    named_logprobs: NotRequired[list[dict[str, float] | None]]


class Choice(TypedDict):
    """What continuations and answers of a chat have in common."""

    index: int
    finish_reason: Finish
    token_ids: NotRequired[list[int]]
    prompt_token_ids: NotRequired[list[int]]
    explain: NotRequired[Json]


class CompletionChoice(Choice):
    """One continuation."""

    text: str
    logprobs: Logprobs | None


class CompletionObject(TypedDict):
    """`POST /v1/completions`; a stream sends the same object with a part of the text, again and again."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    system_fingerprint: str
    choices: list[CompletionChoice]
    usage: NotRequired[Usage | None]


class ScoredToken(TypedDict):
    """A token of a chat and its log-probability, beside the likeliest and those that were asked for."""

    token: str
    logprob: float | None
    bytes: list[int]
    top_logprobs: NotRequired[list[Json]]
    named_logprobs: NotRequired[list[Json]]


class ChatLogprobs(TypedDict):
    """Log-probabilities of a chat."""

    content: list[ScoredToken]
    refusal: None


class Message(TypedDict):
    """What the assistant says; a stream sends parts of it as `delta`."""

    role: NotRequired[Literal["assistant"]]
    content: NotRequired[str | None]
    refusal: NotRequired[None]


class ChatChoice(Choice):
    """One answer of a chat."""

    message: NotRequired[Message]
    delta: NotRequired[Message]
    logprobs: ChatLogprobs | None


class ChatObject(TypedDict):
    """`POST /v1/chat/completions`; a stream sends chunks, whose choices have a `delta`."""

    id: str
    object: Literal["chat.completion", "chat.completion.chunk"]
    created: int
    model: str
    system_fingerprint: str
    choices: list[ChatChoice]
    usage: NotRequired[Usage | None]


class ResponseObject(TypedDict):
    """`POST /v1/responses`; a stream sends events that build it, each with a `type` and a number."""

    id: str
    object: Literal["response"]
    created_at: int
    status: Literal["in_progress", "completed", "incomplete", "failed"]
    error: Json | None
    incomplete_details: Json | None
    instructions: str | None
    max_output_tokens: int | None
    model: str
    output: list[Json]
    parallel_tool_calls: bool
    previous_response_id: None
    store: bool
    temperature: float
    text: Json
    tool_choice: str
    tools: list[Json]
    top_p: float
    truncation: str
    metadata: Json
    usage: Json | None
    explain: NotRequired[Json]


class EmbeddingObject(TypedDict):
    """One vector: numbers, or little-endian float32 in base64."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class EmbeddingList(TypedDict):
    """`POST /v1/embeddings`"""

    object: Literal["list"]
    data: list[EmbeddingObject]
    model: str
    usage: Json
    pooling: str


class ModelObject(TypedDict):
    """A model; alone also what is known of it, and which questions `explain` takes."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    max_model_len: int | None
    meta: NotRequired[Json]
    explain: NotRequired[Json]


class ModelList(TypedDict):
    """`GET /v1/models`"""

    object: Literal["list"]
    data: list[ModelObject]


class Deleted(TypedDict):
    """That something is gone."""

    id: str
    object: str
    deleted: bool


class Tokens(TypedDict):
    """`POST /tokenize`; with `with_pieces` every token is an object of its id and its text."""

    tokens: list[int] | list[Json]
    count: int
    max_model_len: int | None
    token_strs: NotRequired[list[str]]


class TextObject(TypedDict):
    """`POST /detokenize`: the text, by both names that servers have for it."""

    prompt: str
    content: str


class TokenizerInfo(TypedDict):
    """`GET /tokenizer_info`"""

    tokenizer_class: str
    eos_token: str | None
    bos_token: str | None
    pad_token: None
    eos_token_id: int | None
    vocab_size: int
    model_max_length: int | None
    special_tokens: dict[str, int]
    chat_template: None


class TaskObject(TypedDict):
    """`POST /v1/tasks/{verb}`: `result` is what `glass VERB --json` prints."""

    object: Literal["task"]
    verb: str
    model: str
    result: Any


class TraceObject(TypedDict):
    """Which answers a trace has, and the values of each."""

    id: str
    object: Literal["trace"]
    bytes: int
    answers: Json


class TraceValue(TypedDict):
    """One value of an answer, or a part of it."""

    id: str
    value: Any
    start: NotRequired[int]
    total: NotRequired[int]


class FileObject(TypedDict):
    """An uploaded file."""

    id: str
    object: Literal["file"]
    filename: str
    bytes: int
    created_at: int
    examples: int
    purpose: str
    status: str
    status_details: None
    expires_at: None


class JobObject(TypedDict):
    """A fine-tuning."""

    id: str
    object: Literal["fine_tuning.job"]
    created_at: int
    finished_at: int | None
    estimated_finish: int | None
    model: str
    fine_tuned_model: str | None
    organization_id: str
    status: str
    paused: bool
    hyperparameters: Json
    method: Json
    training_file: str
    validation_file: str | None
    result_files: list[str]
    trained_tokens: int | None
    seed: int
    error: Json | None
    metadata: Json | None
    integrations: list[Json]


class EventObject(TypedDict):
    """Something that happened to a job."""

    id: str
    object: Literal["fine_tuning.job.event"]
    created_at: int
    level: str
    message: str
    type: str
    data: Json


class CheckpointObject(TypedDict):
    """A state of a job that was saved."""

    id: str
    object: Literal["fine_tuning.job.checkpoint"]
    created_at: int
    fine_tuning_job_id: str
    fine_tuned_model_checkpoint: str
    step_number: int
    metrics: Json


class Page(TypedDict):
    """A part of a list; `data` holds files, jobs, events or checkpoints."""

    object: Literal["list"]
    data: list[FileObject | JobObject | EventObject | CheckpointObject]
    has_more: bool
    first_id: NotRequired[str | None]
    last_id: NotRequired[str | None]


class Health(TypedDict):
    """`GET /health`"""

    status: str


class Version(TypedDict):
    """`GET /version`"""

    version: str
    name: str


JOBS = "/v1/fine_tuning/jobs"
# What is answered with a 200, by method and path.
ANSWERS: dict[tuple[str, str], Any] = {
    ("post", "/v1/completions"): CompletionObject,
    ("post", "/v1/chat/completions"): ChatObject,
    ("post", "/v1/responses"): ResponseObject,
    ("post", "/v1/embeddings"): EmbeddingList,
    ("get", "/v1/models"): ModelList,
    ("get", "/v1/models/{model}"): ModelObject,
    ("delete", "/v1/models/{model}"): Deleted,
    ("get", "/health"): Health,
    ("get", "/version"): Version,
    ("post", "/tokenize"): Tokens,
    ("post", "/detokenize"): TextObject,
    ("get", "/tokenizer_info"): TokenizerInfo,
    ("post", "/v1/tasks/{verb}"): TaskObject,
    ("get", "/v1/traces/{id}"): TraceObject,
    ("get", "/v1/traces/{id}/{question}/{value}"): TraceValue,
    ("post", "/v1/files"): FileObject,
    ("get", "/v1/files"): Page,
    ("get", "/v1/files/{file_id}"): FileObject,
    ("delete", "/v1/files/{file_id}"): Deleted,
    ("post", JOBS): JobObject,
    ("get", JOBS): Page,
    ("get", f"{JOBS}/{{job_id}}"): JobObject,
    ("get", f"{JOBS}/{{job_id}}/events"): Page,
    ("get", f"{JOBS}/{{job_id}}/checkpoints"): Page,
    **{("post", f"{JOBS}/{{job_id}}/{what}"): JobObject for what in ("pause", "resume", "cancel")},
}
STREAMED = ("/v1/completions", "/v1/chat/completions", "/v1/responses")
STREAM = {"text/event-stream": {"schema": {"type": "string", "description": "with `stream: true`"}}}


def describe(document: dict[str, Any]) -> None:
    """Add the answers to an OpenAPI document."""
    schemas = document["components"]["schemas"]
    for (method, path), kind in ANSWERS.items():
        operation = document["paths"].get(path, {}).get(method)
        if operation is None:  # it is not offered
            continue
        found = TypeAdapter(kind).json_schema(
            ref_template="#/components/schemas/{model}", mode="serialization"
        )
        schemas.update(found.pop("$defs", {}))
        schemas[kind.__name__] = found
        reference = {"schema": {"$ref": f"#/components/schemas/{kind.__name__}"}}
        more = STREAM if path in STREAMED else {}
        content = operation["responses"]["200"].get("content", {})
        operation["responses"]["200"]["content"] = content | {"application/json": reference} | more
