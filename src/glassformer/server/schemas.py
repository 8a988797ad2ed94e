"""What requests may hold: a type for every field, with ranges that are checked before anything else."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, Strict, model_validator

from glassformer.server.errors import invalid

MOST_CHOICES = 8
MOST_LOGPROBS = 20
MOST_STOPS = 16
MOST_PROMPTS = 256
MOST_NAMED = 256
MOST_IDS = 1 << 17  # of all prompts together
MOST_FIELDS = 256
IGNORED = frozenset(
    {
        "metadata",
        "parallel_tool_calls",
        "prompt_cache_key",
        "prompt_cache_retention",
        "reasoning",
        "reasoning_effort",
        "safety_identifier",
        "service_tier",
        "store",
        "tool_choice",
        "truncation",
        "user",
        "verbosity",
    }
)

# Neither "1" nor true is a number, nor is 1 true: a mistake is named, not guessed at.
Whole = Annotated[int, Strict()]
Number = Annotated[float, Strict()]
Bool = Annotated[bool, Strict()]

TokenId = Annotated[Whole, Field(ge=0, lt=1 << 31)]  # every field that holds ids has this type
TokenKey = Annotated[str, Field(pattern=r"^[0-9]{1,10}$")]
# At the first wrong entry: of a million there would be a million errors, and others would wait for them.
Ids = Annotated[list[TokenId], Field(fail_fast=True)]
Texts = Annotated[list[str], Field(fail_fast=True)]
Stop = Annotated[str, Field(min_length=1, max_length=256)]
Stops = Stop | Annotated[list[Stop], Field(max_length=MOST_STOPS, fail_fast=True)]
Seed = Annotated[Whole, Field(ge=-(1 << 63), lt=1 << 63)]
Count = Annotated[Whole, Field(ge=0, le=1_000_000)]
Bias = Annotated[Number, Field(ge=-100, le=100)]
Penalty = Annotated[Number, Field(ge=-2, le=2)]
Engine = Literal["auto", "torch"]
Edits = Annotated[list[dict[str, Any]], Field(max_length=64)]
Salt = Annotated[str, Field(min_length=1, max_length=256)]


def _not_too_many(value: Any) -> Any:
    """Refuse a list that is too long to be checked entry by entry, or that mixes types."""
    if isinstance(value, list):
        ids = sum(len(one) if isinstance(one, list) else 0 for one in value[:MOST_PROMPTS])
        count = max(ids, len(value))
        if count > MOST_IDS:
            raise ValueError(f"at most {MOST_IDS:,} token ids, or {MOST_PROMPTS} texts, not {count:,}")
        if len({type(one) for one in value}) > 1:
            raise ValueError("a list must be of texts, of token ids, or of lists of ids, not a mixture")
    return value


Prompt = Annotated[
    str | Texts | Ids | Annotated[list[Ids], Field(fail_fast=True)],
    BeforeValidator(_not_too_many),
]


def _as_count(value: Any) -> Any:
    """Some clients ask for log-probabilities with `true`, as in a chat: those of one token."""
    return {True: 1, False: None}[value] if isinstance(value, bool) else value


class Request(BaseModel):
    """A body. A field that is not known is accepted: clients add some every month."""

    model_config = ConfigDict(extra="allow", allow_inf_nan=False, protected_namespaces=())

    @model_validator(mode="before")
    @classmethod
    def _not_too_many_fields(cls, given: Any) -> Any:
        if isinstance(given, dict) and len(given) > MOST_FIELDS:
            raise ValueError(f"at most {MOST_FIELDS} fields, not {len(given):,}")
        return given

    @property
    def unknown(self) -> list[str]:
        """The names of fields that nothing here reads, but for those of OpenAI that change no text."""
        return sorted((self.model_extra or {}).keys() - IGNORED)


class Sampling(Request):
    """How tokens are chosen; what is not given is as the model's makers recommend."""

    temperature: Annotated[Number, Field(ge=0, le=2)] | None = None
    top_p: Annotated[Number, Field(gt=0, le=1)] | None = None
    top_k: Annotated[Whole, Field(ge=-1, lt=1 << 31)] | None = None
    min_p: Annotated[Number, Field(ge=0, le=1)] | None = None
    typical_p: Annotated[Number, Field(gt=0, le=1)] | None = None
    repetition_penalty: Annotated[Number, Field(ge=0.01, le=100)] | None = None
    seed: Seed | None = None


class StreamOptions(Request):
    """What a stream says beside its text."""

    include_usage: Bool | None = None
    continuous_usage_stats: Bool | None = None


class Generation(Sampling):
    """What completions and chats have in common."""

    model: str
    stream: Bool | None = None
    stream_options: StreamOptions | None = None
    n: Annotated[Whole, Field(ge=1, le=MOST_CHOICES)] | None = None
    stop: Stops | None = None
    frequency_penalty: Penalty | None = None
    presence_penalty: Penalty | None = None
    logit_bias: Annotated[dict[TokenKey, Bias], Field(max_length=1024)] | None = None
    min_tokens: Count | None = None
    ignore_eos: Bool | None = None
    stop_token_ids: Annotated[Ids, Field(max_length=MOST_NAMED)] | None = None
    return_token_ids: Bool | None = None
    logprob_token_ids: Annotated[Ids, Field(max_length=MOST_NAMED)] | None = None
    logprob_tokens: Annotated[list[str], Field(max_length=MOST_NAMED, fail_fast=True)] | None = None
    cache_salt: Salt | None = None  # texts of another salt do not share what was read
    engine: Engine | None = None
    explain: dict[str, Any] | None = None
    edits: Edits | None = None


class CompletionRequest(Generation):
    """`POST /v1/completions`"""

    prompt: Prompt | None = None
    max_tokens: Count | None = 16
    echo: Bool | None = None
    best_of: Annotated[Whole, Field(ge=1, le=MOST_CHOICES)] | None = None
    logprobs: Annotated[
        Annotated[Whole, Field(ge=0, le=MOST_LOGPROBS)] | None, BeforeValidator(_as_count)
    ] = None
    suffix: str | None = None


class Part(Request):
    """A part of a message."""

    type: str
    text: str | None = None


Parts = Annotated[list[Part], Field(max_length=1024, fail_fast=True)]


class Message(Request):
    """One turn of a conversation."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | Parts | None = None


class ChatRequest(Generation):
    """`POST /v1/chat/completions`"""

    messages: Annotated[list[Message], Field(min_length=1, max_length=1024)]
    max_tokens: Count | None = None
    max_completion_tokens: Count | None = None
    logprobs: Bool | None = None
    top_logprobs: Annotated[Whole, Field(ge=0, le=MOST_LOGPROBS)] | None = None
    tools: list[Any] | None = None
    functions: list[Any] | None = None
    response_format: dict[str, Any] | None = None
    modalities: Texts | None = None
    audio: dict[str, Any] | None = None
    prediction: dict[str, Any] | None = None
    web_search_options: dict[str, Any] | None = None


class ResponsesItem(Request):
    """One item of the input of a response."""

    type: Literal["message"] | None = None
    role: Literal["system", "developer", "user", "assistant"]
    content: str | Parts


class ResponsesRequest(Sampling):
    """`POST /v1/responses`"""

    model: str
    input: str | Annotated[list[ResponsesItem], Field(min_length=1, max_length=1024)]
    instructions: str | None = None
    max_output_tokens: Count | None = None
    stream: Bool | None = None
    include: Texts | None = None
    top_logprobs: Annotated[Whole, Field(ge=0, le=MOST_LOGPROBS)] | None = None
    metadata: dict[str, Any] | None = None
    text: dict[str, Any] | None = None
    tools: list[Any] | None = None
    previous_response_id: str | None = None
    conversation: Any = None
    background: Bool | None = None
    prompt: Any = None
    stop: Stops | None = None  # not OpenAI's here, and useful
    cache_salt: Salt | None = None  # texts of another salt do not share what was read
    engine: Engine | None = None
    explain: dict[str, Any] | None = None
    edits: Edits | None = None


class EmbeddingRequest(Request):
    """`POST /v1/embeddings`"""

    model: str
    input: Prompt
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Annotated[Whole, Field(ge=1, le=1 << 20)] | None = None


class TokenizeRequest(Request):
    """`POST /tokenize`: `prompt` as vLLM calls the text, or `content` as llama.cpp does, or messages."""

    model: str | None = None
    prompt: str | None = None
    content: str | None = None
    messages: Annotated[list[Message], Field(min_length=1, max_length=1024)] | None = None
    add_special_tokens: Bool | None = None
    parse_special: Bool | None = None
    with_pieces: Bool | None = None
    return_token_strs: Bool | None = None


class DetokenizeRequest(Request):
    """`POST /detokenize`"""

    model: str | None = None
    tokens: Annotated[Ids, Field(max_length=1 << 20)]


LongText = Annotated[str, Field(max_length=1_000_000)]


class TaskRequest(Request):
    """`POST /v1/tasks/{verb}`: the text, and options of the verb as fields beside it.

    Several texts are for models that compare them.
    """

    model: str | None = None
    text: LongText | Annotated[list[LongText], Field(min_length=1, max_length=16)] = ""


Auto = Literal["auto"]
Epochs = Annotated[Whole, Field(ge=1, le=100)]
Rows = Annotated[Whole, Field(ge=1, le=256)]
Factor = Annotated[Number, Field(ge=0.001, le=100)]


class TuningOptions(Request):
    """How to fine-tune; `steps` and `rank` are ours."""

    n_epochs: Auto | Epochs | None = None
    batch_size: Auto | Rows | None = None
    learning_rate_multiplier: Auto | Factor | None = None
    steps: Annotated[Whole, Field(ge=1, le=100_000)] | None = None
    rank: Annotated[Whole, Field(ge=0, le=256)] | None = None  # of LoRA; 0 trains all weights


class Supervised(Request):
    """The method that there is."""

    hyperparameters: TuningOptions | None = None


class TuningMethod(Request):
    """A method of fine-tuning."""

    type: Literal["supervised"]
    supervised: Supervised | None = None


class FineTuningRequest(Request):
    """`POST /v1/fine_tuning/jobs`"""

    model: str
    training_file: str
    validation_file: str | None = None
    suffix: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,64}$")] | None = None
    seed: Annotated[Whole, Field(ge=0, lt=1 << 32)] | None = None
    method: TuningMethod | None = None
    hyperparameters: TuningOptions | None = None
    integrations: list[Any] | None = None
    metadata: (
        Annotated[
            dict[
                Annotated[str, Field(max_length=64)],
                Annotated[str, Field(max_length=512)],
            ],
            Field(max_length=16),
        ]
        | None
    ) = None


def page(found: list[dict[str, Any]], *, after: str | None, limit: int) -> dict[str, Any]:
    """A part of a list: what comes after an id, at most `limit`; a client asks on while `has_more`."""
    if after is not None:
        ids = [one["id"] for one in found]
        if after not in ids:
            raise invalid("after", "is not an id of this list")
        found = found[ids.index(after) + 1 :]
    shown = found[:limit]
    ends = {"first_id": shown[0]["id"], "last_id": shown[-1]["id"]} if shown else {}
    return {"object": "list", "data": shown, "has_more": len(found) > limit, **ends}
