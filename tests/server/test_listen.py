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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import openai
import pytest
from serving import Running, serving, tiny_model, until

import glassformer as gf
from glassformer.errors import InputError
from glassformer.server.app import make_app
from glassformer.server.listen import Server, bind
from glassformer.server.settings import Settings
from glassformer.tasks.model import Model

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
    model = tiny_model("long", context=4096)
    model.net.register_forward_pre_hook(lambda *_: time.sleep(0.002))  # eight seconds on any machine
    with serving({"long": model}, grace=0.5) as running:
        *_, error, done, rest = told_to_stop(running, 4000).split("\n\n")
        assert (done, rest) == ("data: [DONE]", "")
        assert "stopping" in json.loads(error.removeprefix("data: "))["error"]["message"]


def test_answers_on_a_kept_connection_come_at_once(story: Running) -> None:
    """Headers and body are two packets: the second must not wait until the first is confirmed (40 ms)."""
    times = []
    for _ in range(10):
        begun = time.perf_counter()
        assert story.get("/health").status_code == 200
        times.append(time.perf_counter() - begun)
    assert min(times[1:]) < 0.03, times


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


@contextmanager
def told_to_load(load: Callable[[], dict[str, Model]]) -> Iterator[tuple[str, Server, threading.Thread]]:
    """A server whose models are loaded after it has begun to listen."""
    listening = bind("127.0.0.1", 0)
    settings = Settings(port=listening.getsockname()[1])
    server = Server(make_app(settings, load, load=gf.load), settings)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{settings.port}", server, thread
    finally:
        server.should_exit = True
        thread.join(20)
        listening.close()
        assert not thread.is_alive()


def test_while_models_load_clients_are_told_to_come_again() -> None:
    """At once, on every route and on /health; and when the models are there, all answer."""
    may_end = threading.Event()

    def load() -> dict[str, Model]:
        may_end.wait(20)
        return {"tiny": tiny_model()}

    body = {"model": "tiny", "prompt": "Once", "max_tokens": 1}
    with told_to_load(load) as (url, _, _), httpx.Client(base_url=url, trust_env=False, timeout=20) as client:
        for early in (
            client.get("/health"),
            client.get("/v1/models"),
            client.post("/v1/completions", json=body),
        ):
            assert (early.status_code, early.headers["retry-after"]) == (503, "1")
            assert early.json()["error"]["code"] == "model_loading"
        may_end.set()
        until(lambda: client.get("/health").status_code == 200)
        assert client.post("/v1/completions", json=body).status_code == 200


def test_the_official_client_waits_until_models_are_loaded() -> None:
    """A 503 with the time to wait is one that it sends again by itself."""

    def load() -> dict[str, Model]:
        time.sleep(0.5)
        return {"tiny": tiny_model()}

    with told_to_load(load) as (url, _, _), openai.OpenAI(base_url=f"{url}/v1", api_key="none") as client:
        assert client.completions.create(model="tiny", prompt="Once", max_tokens=1).choices


def test_models_that_cannot_be_loaded_end_the_server() -> None:
    """With one sentence that says why; in a process of its own, which might end too well."""
    command = [sys.executable, "-m", "glassformer", "serve", "--port", "0", "-m", "/no/such/folder"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "/no/such/folder" in done.stderr


LOADS = """
import os, signal, threading, time
from glassformer.server import listen
from glassformer.server.settings import Settings

def load():
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGTERM)).start()
    time.sleep(600)

with listen.bind("127.0.0.1", 0) as listening:
    listen.run(Settings(port=1, grace=0.2), load, listening=listening, log=print)
"""


def test_a_signal_ends_a_server_that_still_loads() -> None:
    """At once, and well."""
    paths = {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", LOADS], env=os.environ | paths, timeout=60)
    assert done.returncode == 0
