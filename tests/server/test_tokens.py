"""The vocabulary over HTTP, as vLLM, llama.cpp and lm-eval ask for it."""

import pytest
from serving import Running


def test_there_and_back(server: Running) -> None:
    """Text to ids, ids to text; both names of the text."""
    text = "Once upon a 🙂"
    found = server.post(
        "/tokenize", {"model": "storyteller", "prompt": text, "return_token_strs": True}
    ).json()
    assert found["count"] == len(found["tokens"]) == len(found["token_strs"])
    assert found["max_model_len"] == server.state.library.find("storyteller").context
    back = server.post("/detokenize", {"model": "storyteller", "tokens": found["tokens"]}).json()
    assert back == {"prompt": text, "content": text}
    pieces = server.post("/tokenize", {"model": "storyteller", "content": text, "with_pieces": True}).json()[
        "tokens"
    ]
    assert [one["id"] for one in pieces] == found["tokens"]
    assert "".join(one["piece"] for one in pieces[:3]) == "Once upon a"


def test_without_a_model_the_first_is_meant(server: Running) -> None:
    """As lm-eval sends it."""
    found = server.post("/tokenize", {"prompt": "Lily", "add_special_tokens": False}).json()["tokens"]
    assert found == server.state.library.find("tiny").tokenizer.encode("Lily")
    info = server.get("/tokenizer_info").json()
    assert info["eos_token"] == "<|endoftext|>"
    assert info["chat_template"] is None


def test_a_conversation_as_a_chat_writes_it(server: Running) -> None:
    """The ids that a chat would send to the model."""
    talk = [{"role": "user", "content": "Hi"}]
    ids = server.post("/tokenize", {"messages": talk}).json()["tokens"]
    assert server.post("/detokenize", {"tokens": ids}).json()["prompt"] == "User: Hi\nAssistant:"


def test_special_tokens_are_plain_text_unless_asked(server: Running) -> None:
    """A text may speak of them."""
    plain = server.post("/tokenize", {"prompt": "<|endoftext|>"}).json()["tokens"]
    assert len(plain) > 1
    (end,) = server.post("/tokenize", {"prompt": "<|endoftext|>", "parse_special": True}).json()["tokens"]
    assert end == server.get("/tokenizer_info").json()["eos_token_id"]


@pytest.mark.parametrize(("path", "body", "param"), [
    ("/tokenize", {}, "prompt"),
    ("/tokenize", {"prompt": "a", "content": "b"}, "prompt"),
    ("/tokenize", {"prompt": "a" * 1_000_001}, "prompt"),
    ("/tokenize", {"prompt": 5}, "prompt"),
    ("/detokenize", {"tokens": [-1]}, "tokens"),
    ("/detokenize", {"tokens": [1 << 40]}, "tokens"),
    ("/detokenize", {"tokens": [5000]}, "tokens"),
    ("/detokenize", {}, "tokens"),
])  # fmt: skip
def test_what_is_refused(server: Running, path: str, body: object, param: str) -> None:
    """A 400 that names the field."""
    answer = server.post(path, body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)
