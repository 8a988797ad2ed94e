"""What goes wrong over HTTP: every failure is OpenAI's error object, whose words its clients show."""

import sys
import traceback
from collections.abc import Iterable
from typing import Any

from starlette.responses import JSONResponse

from glassformer.errors import GlassError, InputError

TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
    500: "server_error",
    503: "unavailable_error",
}
LONGEST_MESSAGE = 1000  # characters; a message may quote what was sent
# What an option of a generation is called in requests.
FIELDS = {
    "max_new_tokens": "max_tokens",
    "min_new_tokens": "min_tokens",
    "num_return_sequences": "n",
}
# Fields that the message of an option begins with.
NAMED = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "typical_p",
    "seed",
    "stop",
    "logit_bias",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "edits",
    "prompt",
    *FIELDS,
)


class QueueFull(GlassError):
    """As many requests wait as may; the client should come again."""


class ApiError(Exception):
    """A request that is refused or failed: its status, and the field that is wrong, where there is one."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message = status, message
        self.param, self.code = param, code
        self.headers = headers or {}

    @property
    def body(self) -> dict[str, Any]:
        """The error object."""
        return error_object(self.status, self.message, param=self.param, code=self.code)


def error_object(
    status: int, message: str, *, param: str | None = None, code: str | None = None
) -> dict[str, Any]:
    """OpenAI's error object: `{"error": {"message", "type", "param", "code"}}`."""
    if len(message) > LONGEST_MESSAGE:
        message = f"{message[:LONGEST_MESSAGE]} …"
    about = {"message": _writable(message), "type": TYPES.get(status, "invalid_request_error")}
    return {"error": {**about, "param": None if param is None else _writable(param), "code": code}}


def _writable(text: str) -> str:
    """A text that UTF-8 can hold: half of a surrogate pair, which JSON can escape, becomes a ?."""
    return text.encode("utf-8", "replace").decode()


def invalid(param: str, message: str, *, code: str | None = None) -> ApiError:
    """A field that cannot be used; the message begins with its name."""
    return ApiError(400, f"{param}: {message}", param=param, code=code)


def unknown_model(name: str, served: Iterable[str]) -> ApiError:
    """No model of this name is served; these are."""
    some = ", ".join(list(served)[:5]) or "none yet"
    message = f"model: {name[:100]!r} is not served here; served models: {some} (GET /v1/models lists all)"
    return ApiError(404, message, param="model", code="model_not_found")


def jobs_off() -> ApiError:
    """The server was started without jobs."""
    message = (
        "files and jobs are off on this server: it was started with --no-jobs, or for others without a key"
    )
    return ApiError(403, message, code="jobs_off")


def context_exceeded(tokens: int, context: int, *, counted: bool = True) -> ApiError:
    """A prompt that is longer than the model's context; if it was not counted, `tokens` is a lower bound."""
    message = (
        f"This model's maximum context length is {context} tokens, and the prompt has"
        f" {'' if counted else 'at least '}{tokens};"
        " shorten the prompt"
    )
    return ApiError(400, message, param="prompt", code="context_length_exceeded")


def stopping() -> ApiError:
    """The server is stopping, and finishes what is running."""
    return ApiError(503, "the server is stopping; ask again in a moment", headers={"Retry-After": "2"})


def still_loading() -> ApiError:
    """The models of the server are not there yet; the official clients ask again by themselves."""
    message = "the server is loading its models; ask again in a moment"
    return ApiError(503, message, code="model_loading", headers={"Retry-After": "1"})


def not_read() -> GlassError:
    """A client does not read, and others wait for what it holds."""
    return GlassError("the client does not read what is sent to it")


def api_error(error: Exception) -> ApiError:
    """Any error as one of the API; an unexpected one is a 500 without details."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, QueueFull):
        message = "too many requests are waiting; ask again in a moment"
        return ApiError(429, message, code="queue_full", headers={"Retry-After": "1"})
    if isinstance(error, InputError):
        return _of_input(str(error))
    once = {"x-should-retry": "false"}  # the official clients would try twice more
    if isinstance(error, GlassError):
        return ApiError(500, str(error), headers=once)
    return ApiError(500, "something went wrong inside the server; its log has the reason", headers=once)


def late_error(error: Exception) -> ApiError:
    """An error of a stream that has begun: its status was sent before, so the reason is logged here."""
    known = api_error(error)
    if known.status >= 500 and not isinstance(error, ApiError):
        traceback.print_exception(error, file=sys.stderr)
    return known


def _of_input(message: str) -> ApiError:
    first = message.replace(":", " ").split(" ", 1)[0]
    if first not in NAMED:
        return ApiError(400, message)
    field = FIELDS.get(first, first)
    return ApiError(400, message.replace(first, field, 1), param=field)


def response(error: ApiError) -> JSONResponse:
    """An error as a response."""
    return JSONResponse(error.body, error.status, headers=error.headers)
