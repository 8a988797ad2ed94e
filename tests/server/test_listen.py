"""A server's life from its socket to its last request; and the page on serving, whose examples work as they are."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import openai
import pytest
from serving import Running, serving, tiny_model

import glassformer as gf
from glassformer.errors import InputError
from glassformer.server.listen import bind

PAGE = (Path(__file__).parents[2] / "docs" / "serving.md").read_text()
CURLS = [
    line.strip()
    for block in re.findall(r"```sh\n(.*?)```", PAGE, re.S)
    for line in re.findall(r"curl .*?(?=\ncurl|\n*\Z)", block, re.S)
]
PROGRAMS = re.findall(r"```openai\n(.*?)```", PAGE, re.S)


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> object:
    """The server that the page starts."""
    home = tmp_path_factory.mktemp("home")
    with serving({"storyteller": gf.load("storyteller")}, home=home) as running:
        yield running


@pytest.mark.parametrize("command", CURLS)
def test_commands_of_the_page(story: Running, command: str) -> None:
    """What curl would send, and what it would show."""
    words = shlex.split(command.replace("\\\n", " ").replace("$URL", story.url))
    url = next(word for word in words if word.startswith("http"))
    name, _, value = words[words.index("-H") + 1].partition(": ")
    answer = story.client.post(url, content=words[words.index("-d") + 1], headers={name: value})
    assert answer.status_code == 200, answer.text
    assert "error" not in answer.text


@pytest.mark.parametrize("program", PROGRAMS)
def test_programs_of_the_page(story: Running, program: str, capsys: pytest.CaptureFixture[str]) -> None:
    """By the official client."""
    exec(program, {"OpenAI": openai.OpenAI, "URL": story.url})
    assert capsys.readouterr().out.strip()


def test_there_are_examples() -> None:
    """The patterns find them."""
    assert (len(CURLS), len(PROGRAMS)) == (7, 4)


LONG = {"model": "long", "prompt": "Once", "ignore_eos": True, "stream": True}


def told_to_stop(running: Running, tokens: int) -> str:
    """A stream during which the server is told to stop; what the client reads."""
    texts = []
    body = LONG | {"max_tokens": tokens}
    reader = threading.Thread(target=lambda: texts.append(running.post("/v1/completions", body).text))
    reader.start()
    while not running.state.library.find("long").runner.running:
        time.sleep(0.01)
    running.server.handle_exit(signal.SIGTERM, None)
    with httpx.Client(base_url=running.url, trust_env=False, verify=False, timeout=60) as other:
        late = other.post("/v1/completions", json=body)
    assert (late.status_code, late.json()["error"]["type"]) == (503, "unavailable_error")
    assert late.headers["retry-after"]
    reader.join()
    return texts[0]


def test_running_texts_finish_and_new_ones_are_refused() -> None:
    """The first signal."""
    with serving({"long": tiny_model("long", context=4096)}) as running:
        text = told_to_stop(running, 500)
        assert '"finish_reason":"length"' in text
        assert text.endswith("data: [DONE]\n\n")


def test_a_text_that_takes_too_long_ends_with_an_error() -> None:
    """After the time of grace."""
    with serving({"long": tiny_model("long", context=4096)}, grace=0.5) as running:
        *_, error, done, rest = told_to_stop(running, 4000).split("\n\n")
        assert (done, rest) == ("data: [DONE]", "")
        assert "stopping" in json.loads(error.removeprefix("data: "))["error"]["message"]


def test_an_address_that_is_not_ours() -> None:
    """One sentence with the remedy."""
    with pytest.raises(InputError, match="--port 0 takes a free one"):
        bind("192.0.2.1", 8000)
    with bind("127.0.0.1", 0) as listening, pytest.raises(InputError, match="in use"):
        bind("127.0.0.1", listening.getsockname()[1])


ENDS = """
import os, signal, socket, sys, threading, time
from serving import tiny_model
from glassformer.server import listen
from glassformer.server.served import Library
from glassformer.server.settings import Settings

models = {"tiny": tiny_model()}
listening = listen.bind("127.0.0.1", 0)
start = Library.start

async def busy(self):
    await start(self)
    self.served["tiny"].lane.put(lambda: (os.kill(os.getpid(), signal.SIGTERM), time.sleep(600)))

Library.start = busy
settings = Settings(port=listening.getsockname()[1], grace=0.2)
listen.run(settings, models, listening=listening, log=print)
"""


def test_an_end_does_not_wait_for_what_torch_computes() -> None:
    """A job of the lane cannot be interrupted; the process ends all the same, and well."""
    paths = {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", ENDS], env=os.environ | paths, timeout=60)
    assert done.returncode == 0
