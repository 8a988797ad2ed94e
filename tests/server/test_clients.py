"""Other people's clients, as they are: lm-eval, LangChain and llm talk to the server and get the numbers and texts that
everybody gets. Each is skipped where its package is missing (`pip install "glassformer[clients]"`).
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import openai
import pytest
from click.testing import CliRunner
from serving import Running, serving

import glassformer as gf

LM = gf.load("storyteller")
PAGE = Path(__file__).parents[2] / "docs" / "serving.md"
CLIENTS = Path(__file__).parents[1] / "clients"


def needs(package: str, name: str) -> pytest.MarkDecorator:
    """Skip where a client is not installed."""
    missing = find_spec(package) is None
    return pytest.mark.skipif(missing, reason=f'{name} is not here: pip install "glassformer[clients]"')


@pytest.fixture(scope="module")
def story() -> Iterator[Running]:
    """A server with one model: these clients do not say which vocabulary they mean."""
    with serving({"storyteller": LM}) as running:
        yield running


# lm-eval

CHOICES = [
    {
        "query": "Once upon a time, there was a little",
        "choices": [" girl", " is", " boy named Tim"],
        "gold": 0,
    },
    {"query": "Lily wanted to play with her", "choices": [" friends", " of", " toys and her cat"], "gold": 0},
    {
        "query": "The sun was shining and the",
        "choices": [" birds were singing", " <|endoftext|>", " é🙂"],
        "gold": 0,
    },
]
TASK = {
    "task": "endings",
    "dataset_path": "json",
    "test_split": "test",
    "output_type": "multiple_choice",
    "doc_to_text": "query",
    "doc_to_choice": "choices",
    "doc_to_target": "gold",
    "metric_list": [{"metric": "acc"}],
}


def scored(context: str, continuation: str) -> tuple[float, bool]:
    """The sum of log p as `glass eval` takes it, token by token, and whether greedy decoding would write it."""
    whole, before = LM.encode(context + continuation), LM.encode(context)
    ids = np.array([whole])
    logits = LM.backend.logits(ids[:, :-1])[0, len(before) - 1 :]
    sums = LM.backend.log_sums(np.ascontiguousarray(logits))
    target = whole[len(before) :]
    each = [float(row[id]) - total for row, id, total in zip(logits, target, sums, strict=True)]
    return sum(each), bool((logits.argmax(-1) == target).all())


@needs("lm_eval", "the lm-evaluation-harness")
def test_lm_eval(story: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its remote tokenizer, on a task of a local file: every likelihood is that of Python to the last bit."""
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    monkeypatch.setenv("HF_DATASETS_OFFLINE", "1")
    import lm_eval
    from lm_eval.models.openai_completions import LocalCompletionsAPI
    from lm_eval.tasks import TaskManager

    data = tmp_path / "endings.jsonl"
    data.write_text("".join(json.dumps(one) + "\n" for one in CHOICES))
    task = TASK | {
        "dataset_kwargs": {"data_files": {"test": str(data)}, "cache_dir": str(tmp_path / "cache")}
    }
    client = LocalCompletionsAPI(
        base_url=f"{story.url}/v1/completions",
        model="storyteller",
        tokenizer_backend="remote",
        batch_size=4,
        max_length=512,
    )
    found = lm_eval.simple_evaluate(
        client, tasks=[task], task_manager=TaskManager(include_defaults=False), bootstrap_iters=0
    )
    samples = found["samples"]["endings"]
    assert len(samples) == len(CHOICES)
    for sample in samples:
        for given, (answer,) in zip(sample["arguments"], sample["resps"], strict=True):
            assert answer == scored(*given)
    assert found["results"]["endings"]["acc,none"] == 1.0


# LangChain


def chat_text(story: Running, text: str, **more: Any) -> str:
    """What a plain request gets."""
    talk = [{"role": "user", "content": text}]
    body = {"model": "storyteller", "messages": talk, "max_tokens": 12, "seed": 3, **more}
    answer = story.post("/v1/chat/completions", body).json()
    return str(answer["choices"][0]["message"]["content"])


@needs("langchain_openai", "LangChain")
def test_langchain_texts(story: Running) -> None:
    """Whole and streamed, as a chat and as a completion, with its usage."""
    from langchain_openai import ChatOpenAI, OpenAI

    how: dict[str, Any] = {
        "base_url": f"{story.url}/v1",
        "api_key": "none",
        "model": "storyteller",
        "max_tokens": 12,
        "seed": 3,
    }
    chat = ChatOpenAI(**how)
    whole = chat.invoke("Tell me a story.")
    assert whole.content == chat_text(story, "Tell me a story.")
    assert (
        whole.usage_metadata["output_tokens"] == whole.response_metadata["token_usage"]["completion_tokens"]
    )
    assert "".join(one.content for one in chat.stream("Tell me a story.")) == whole.content
    writer = OpenAI(**how)
    body = {"model": "storyteller", "prompt": "Once upon", "max_tokens": 12, "seed": 3}
    plain = story.post("/v1/completions", body | {"temperature": writer.temperature}).json()["choices"][0][
        "text"
    ]
    assert writer.invoke("Once upon") == "".join(writer.stream("Once upon")) == plain


@needs("langchain_openai", "LangChain")
def test_langchain_embeddings(story: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts as texts are those of every client. By default it sends ids of a vocabulary that is not ours, which is
    refused with the name of the setting; ids of ours are taken.
    """
    import tiktoken
    from langchain_openai import OpenAIEmbeddings

    how: dict[str, Any] = {"base_url": f"{story.url}/v1", "api_key": "none", "model": "storyteller"}
    found = OpenAIEmbeddings(**how, check_embedding_ctx_length=False).embed_documents(["a dog", "a cat"])
    client = openai.OpenAI(base_url=how["base_url"], api_key="none")
    plain = client.embeddings.create(model="storyteller", input=["a dog", "a cat"])
    assert found == [one.embedding for one in plain.data]

    def vocabulary(first: int) -> tiktoken.Encoding:
        ranks = {bytes([byte]): first + byte for byte in range(256)}
        return tiktoken.Encoding("far", pat_str=".", mergeable_ranks=ranks, special_tokens={})

    monkeypatch.setattr(tiktoken, "encoding_for_model", lambda name: vocabulary(90_000))
    with pytest.raises(openai.BadRequestError, match="check_embedding_ctx_length=False"):
        OpenAIEmbeddings(**how).embed_documents(["a dog"])
    monkeypatch.setattr(tiktoken, "encoding_for_model", lambda name: vocabulary(0))
    (by_ids,) = OpenAIEmbeddings(**how).embed_documents(["a dog"])
    same = client.embeddings.create(model="storyteller", input=[list(b"a dog")]).data[0].embedding
    assert np.allclose(by_ids, same, atol=1e-6)


# llm


@needs("llm", "llm")
def test_llm(story: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Simon Willison's command, told of the server by its own file: a chat, streamed, and a completion."""
    from llm.cli import cli  # a process for each call would take longer than all else here

    models = [{"model_id": "talk"}, {"model_id": "write", "completion": True}]
    shared = {"model_name": "storyteller", "api_base": f"{story.url}/v1"}
    (tmp_path / "extra-openai-models.yaml").write_text(json.dumps([one | shared for one in models]))
    monkeypatch.setenv("LLM_USER_PATH", str(tmp_path))

    def ask(*arguments: str) -> str:
        command = [*arguments, "-o", "max_tokens", "12", "-o", "seed", "3", "--no-log"]
        done = CliRunner().invoke(cli, command)
        assert done.exit_code == 0, done.output
        return done.stdout.removesuffix("\n")

    talk = chat_text(story, "Tell me a story.")
    assert ask("-m", "talk", "Tell me a story.") == talk
    body = {"model": "storyteller", "prompt": "Once upon", "max_tokens": 12, "seed": 3}
    assert ask("-m", "write", "Once upon") == story.post("/v1/completions", body).json()["choices"][0]["text"]


# The examples of the page


def example(kind: str) -> str:
    """The one block of a kind."""
    (found,) = re.findall(rf"```{kind}\n(.*?)```", PAGE.read_text(), re.S)
    return str(found)


def streamed_text(story: Running) -> str:
    """What the examples of a completion write."""
    body = {"model": "storyteller", "prompt": "Once upon a time", "max_tokens": 20, "seed": 1}
    return str(story.post("/v1/completions", body).json()["choices"][0]["text"])


@pytest.mark.skipif(
    shutil.which("node") is None or not (CLIENTS / "node_modules").is_dir(),
    reason="OpenAI's client for JavaScript is not here: npm --prefix tests/clients ci",
)
def test_the_example_in_javascript(story: Running, tmp_path: Path) -> None:
    """As it is on the page."""
    (tmp_path / "example.mjs").write_text(example("javascript"))
    (tmp_path / "node_modules").symlink_to(CLIENTS / "node_modules")
    command = ["node", str(tmp_path / "example.mjs")]
    done = subprocess.run(
        command, env=os.environ | {"URL": story.url}, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (0, streamed_text(story)), done.stderr


@needs("langchain_openai", "LangChain")
def test_the_example_of_langchain(story: Running, capsys: pytest.CaptureFixture[str]) -> None:
    """As it is on the page."""
    exec(example("langchain"), {"URL": story.url})
    talk = [{"role": "user", "content": "Tell me a story."}]
    body = {"model": "storyteller", "messages": talk, "max_tokens": 20, "seed": 1}
    text = story.post("/v1/chat/completions", body).json()["choices"][0]["message"]["content"]
    assert capsys.readouterr().out == text


@needs("llm", "llm")
def test_the_example_of_llm(story: Running, tmp_path: Path) -> None:
    """As it is on the page, but for the address."""
    file = example("yaml").replace("http://127.0.0.1:8000", story.url)
    (tmp_path / "extra-openai-models.yaml").write_text(file)
    where = os.environ | {"LLM_USER_PATH": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    program, *arguments = shlex.split(example("llm"))
    command = [sys.executable, "-m", program, *arguments]
    done = subprocess.run(command, env=where, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, streamed_text(story) + "\n"), done.stderr
