"""`POST /v1/embeddings`: a vector for a text. How it is made is named in the answer."""

import base64
from typing import Any

import numpy as np
from fastapi import APIRouter
from starlette.requests import Request

from glassformer.server.errors import invalid
from glassformer.server.schemas import MOST_PROMPTS, EmbeddingRequest
from glassformer.server.served import Served
from glassformer.server.state import State, unless_gone
from glassformer.tasks.embedding import POOLING, embed


def router(state: State) -> APIRouter:
    """The route."""
    routes = APIRouter(tags=["text"])

    @routes.post("/v1/embeddings")
    async def embeddings(body: EmbeddingRequest, request: Request) -> dict[str, Any]:
        """The vectors of texts or of token ids, as numbers or as base64 of little-endian float32."""
        served = state.library.find(body.model)
        check(served, body)
        texts = await served.prompts(body.input, param="input")

        def work() -> list[np.ndarray[Any, Any]]:
            return [embed(served.model, ids) for ids in texts]

        vectors = await unless_gone(request, served.lane.run(work))
        data = [
            {"object": "embedding", "index": at, "embedding": encoded(vector, body.encoding_format)}
            for at, vector in enumerate(vectors)
        ]
        count = sum(map(len, texts))
        usage = {"prompt_tokens": count, "total_tokens": count}
        return {"object": "list", "data": data, "model": served.id, "usage": usage, "pooling": POOLING}

    return routes


def check(served: Served, body: EmbeddingRequest) -> None:
    """Refuse what has no vector, or is not offered."""
    if "layers" not in served.model.capabilities:
        raise invalid("model", f"{served.id} has no stack of layers whose vectors could be taken")
    if body.dimensions is not None:
        raise invalid("dimensions", "a vector is as wide as the model; leave this out")
    if not body.input or any(one in ("", []) for one in body.input if not isinstance(body.input, str)):
        raise invalid("input", "is empty")
    if isinstance(body.input, list) and len(body.input) > MOST_PROMPTS and not isinstance(body.input[0], int):
        raise invalid("input", f"at most {MOST_PROMPTS} texts, not {len(body.input):,}")


def encoded(vector: "np.ndarray[Any, Any]", form: str | None) -> list[float] | str:
    """A vector as a request wants it."""
    if form != "base64":
        return [float(number) for number in vector]
    return base64.b64encode(vector.astype("<f4").tobytes()).decode()
