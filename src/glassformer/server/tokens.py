"""`/tokenize`, `/detokenize`, `/tokenizer_info`: the vocabulary, for clients that count or slice tokens."""

import asyncio
from typing import Any

from fastapi import APIRouter

from glassformer.server.chat import transcript, turns_of
from glassformer.server.errors import invalid
from glassformer.server.schemas import DetokenizeRequest, TokenizeRequest
from glassformer.server.served import SHORT, Served
from glassformer.server.state import State
from glassformer.tokenizers import pieces

LONGEST = 1_000_000  # characters of a text


def router(state: State) -> APIRouter:
    """The routes."""
    routes = APIRouter(tags=["tokens"])

    @routes.post("/tokenize")
    async def tokenize(body: TokenizeRequest) -> dict[str, Any]:
        """The ids of a text (`prompt` or `content`), or of a conversation as a chat writes it."""
        served = state.library.find(body.model)
        ids = await _encode(served, _text(body), special=bool(body.parse_special))
        shown = [raw.decode("utf-8", "replace") for raw in pieces(served.tokenizer, ids)]
        found: dict[str, Any] = {"tokens": ids, "count": len(ids), "max_model_len": served.context}
        if body.return_token_strs:
            found["token_strs"] = shown
        if body.with_pieces:  # as llama.cpp answers
            found["tokens"] = [{"id": id, "piece": text} for id, text in zip(ids, shown, strict=True)]
        return found

    @routes.post("/detokenize")
    async def detokenize(body: DetokenizeRequest) -> dict[str, Any]:
        """The text of ids."""
        served = state.library.find(body.model)
        served.check_ids(body.tokens, param="tokens")
        text = await asyncio.to_thread(served.tokenizer.decode, body.tokens)
        return {"prompt": text, "content": text}

    @routes.get("/tokenizer_info")
    async def tokenizer_info(model: str | None = None) -> dict[str, Any]:
        """The special tokens, and how large the vocabulary is."""
        served = state.library.find(model)
        tokenizer = served.tokenizer
        end = tokenizer.end_token if tokenizer.end is not None else None
        return {
            "tokenizer_class": type(tokenizer).__name__,
            "eos_token": end,
            "bos_token": end,
            "pad_token": None,
            "eos_token_id": tokenizer.end,
            "vocab_size": len(tokenizer),
            "model_max_length": served.context,
            "special_tokens": tokenizer.special,
            "chat_template": None,
        }

    return routes


def _text(body: TokenizeRequest) -> str:
    given = [one for one in (body.prompt, body.content) if one is not None]
    if body.messages is not None:
        given.append(transcript(turns_of(body.messages)))
    if len(given) != 1:
        raise invalid("prompt", "give one of prompt, content and messages")
    if len(given[0]) > LONGEST:
        raise invalid("prompt", f"a text may have at most {LONGEST:,} characters, not {len(given[0]):,}")
    return given[0]


async def _encode(served: Served, text: str, *, special: bool) -> list[int]:
    if len(text) <= SHORT:
        return served.tokenizer.encode(text, special=special)
    return await asyncio.to_thread(served.tokenizer.encode, text, special=special)
