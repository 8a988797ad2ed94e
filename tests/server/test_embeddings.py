"""`/v1/embeddings`: the vector of a text, in both encodings."""

from typing import Any

import numpy as np
import openai
import pytest
from serving import Running

from glassformer.server.embeddings import encoded


def vectors(server: Running, given: Any, **fields: Any) -> list[Any]:
    """The embeddings of texts."""
    answer = server.post("/v1/embeddings", {"model": "tiny", "input": given} | fields)
    assert answer.status_code == 200, answer.text
    return [one["embedding"] for one in answer.json()["data"]]


def test_the_mean_of_the_last_layer(server: Running) -> None:
    """By a trace of our own, and named in the answer."""
    served = server.state.library.find("tiny")
    ids = served.tokenizer.encode("Once upon a time")
    _, seen = served.model.run_with_cache(ids)
    expected = seen["final"][0].detach().numpy().mean(0)
    (found,) = vectors(server, "Once upon a time")
    assert np.allclose(found, expected, atol=1e-6)
    body = server.post("/v1/embeddings", {"model": "tiny", "input": "Once upon a time"}).json()
    assert body["pooling"] == "mean of the last layer, after its norm"
    assert body["usage"] == {"prompt_tokens": len(ids), "total_tokens": len(ids)}


def test_four_forms_and_their_order(server: Running) -> None:
    """A text, texts, ids, lists of ids."""
    ids = server.post("/tokenize", {"model": "tiny", "prompt": "Lily"}).json()["tokens"]
    one, other = vectors(server, ["Lily", "the park"])
    assert one != other
    assert vectors(server, ids) == [one]
    assert vectors(server, [ids, ids]) == [one, one]


def test_the_official_client_decodes_base64(server: Running) -> None:
    """It asks for base64 unless told otherwise: little-endian float32."""
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        found = client.embeddings.create(model="tiny", input=["Lily"])
    assert np.allclose(found.data[0].embedding, vectors(server, "Lily")[0])
    assert encoded(np.array([1.0], dtype=np.float32), "base64") == "AACAPw=="


REFUSED = [
    ("input", ""), ("input", []), ("input", [""]), ("input", [[]]), ("input", [100_000]), ("input", [-1]), ("input", None),
    ("input", ["a"] * 300), ("dimensions", 8), ("encoding_format", "int8"),
]  # fmt: skip


@pytest.mark.parametrize(("field", "value"), REFUSED, ids=lambda value: str(value)[:24])
def test_a_wrong_field_is_named(server: Running, field: str, value: Any) -> None:
    """A 400 that names it; ids of another vocabulary are never silent nonsense."""
    answer = server.post("/v1/embeddings", {"model": "tiny", "input": "a", field: value})
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert error["param"] == field
    if value == [100_000]:
        assert "check_embedding_ctx_length" in error["message"]
