"""Two replicas behind nginx, by the configuration of docs/serving.md: streams pass, and a restart loses nothing."""

import json
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path

import httpx
import pytest
from serving import serving, tiny_model, until

import glassformer as gf

PAGE = (Path(__file__).parents[2] / "docs" / "serving.md").read_text()
(CONFIGURATION,) = re.findall(r"```nginx\n(.*?)```", PAGE, re.S)
WHOLE = """\
daemon off;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
{inside}
}}
"""
needs_nginx = pytest.mark.skipif(
    shutil.which("nginx") is None, reason="nginx is not here: apt-get install nginx"
)
BODY = {"model": "storyteller", "prompt": "Once upon a time", "max_tokens": 60, "seed": 1, "ignore_eos": True}


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on."""
    with ExitStack() as stack:
        taken = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [one.getsockname()[1] for one in taken]


def answers(port: int) -> bool:
    """Whether a server is healthy."""
    try:
        return httpx.get(f"http://127.0.0.1:{port}/health", trust_env=False, timeout=30).status_code == 200
    except httpx.TransportError:
        return False


def replica(port: int, name: str) -> "subprocess.Popen[bytes]":
    """`glass serve` as the page starts it."""
    command = [sys.executable, "-m", "glassformer", "serve", "--port", str(port), "--allow-host", name]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until(lambda: answers(port), 120)
    return process


@contextmanager
def proxied(
    folder: Path, replicas: list[int], port: int, *, configuration: str = CONFIGURATION
) -> Iterator[None]:
    """nginx before two replicas."""
    inside = configuration
    for old, new in zip((8001, 8002, 8000), (*replicas, port), strict=True):
        inside = inside.replace(f"127.0.0.1:{old}", f"127.0.0.1:{new}")
    file = folder / "nginx.conf"
    file.write_text(WHOLE.format(folder=folder, inside=inside))
    folder.chmod(0o755)
    process = subprocess.Popen(["nginx", "-p", str(folder), "-c", str(file)])
    try:
        until(lambda: answers(port), 30)
        yield
    finally:
        process.terminate()
        process.wait(30)


def running(ports: list[int]) -> float:
    """Texts that are being written, of all replicas."""
    found = 0.0
    for port in ports:
        text = httpx.get(f"http://127.0.0.1:{port}/metrics", trust_env=False, timeout=30).text
        found += sum(map(float, re.findall(r"^glass_requests_running\{.*\} (\S+)$", text, re.M)))
    return found


class Clients(threading.Thread):
    """Clients that ask all the time, each request once; what came back that is no whole answer."""

    def __init__(self, url: str, expected: str) -> None:
        super().__init__(daemon=True)
        self.url, self.expected = url, expected
        self.over = threading.Event()
        self.done, self.failures = 0, list[str]()

    def run(self) -> None:
        """Streamed and whole in turn."""
        with httpx.Client(base_url=self.url, trust_env=False, timeout=120) as client:
            while not self.over.is_set():
                stream = bool(self.done % 2)
                try:
                    answer = client.post("/v1/completions", json=BODY | {"stream": stream})
                    answer.raise_for_status()
                    text = streamed(answer.text) if stream else answer.json()["choices"][0]["text"]
                    if text != self.expected:
                        self.failures.append(answer.text)
                except (httpx.HTTPError, ValueError, KeyError) as error:
                    self.failures.append(repr(error))
                self.done += 1


def streamed(text: str) -> str:
    """The text of a whole stream."""
    *events, done, rest = text.split("\n\n")
    assert (done, rest) == ("data: [DONE]", "")
    return "".join(json.loads(one.removeprefix("data: "))["choices"][0]["text"] for one in events)


OFF, ON, IGNORED = "proxy_buffering off;", "proxy_buffering on;", "proxy_ignore_headers X-Accel-Buffering;"
CHUNKED, CLOSED = "proxy_http_version 1.1;", "proxy_http_version 1.0;"


@pytest.mark.slow
@needs_nginx
@pytest.mark.parametrize(("version", "buffering", "token_by_token"), [
    (CHUNKED, OFF, True),  # as the page has it
    (CHUNKED, f"{ON} {IGNORED}", True),  # an answer in chunks is passed on chunk by chunk
    (CLOSED, f"{OFF} {IGNORED}", True),
    (CLOSED, ON, True),  # the header of the stream switches it off
    (CLOSED, f"{ON} {IGNORED}", False),  # without all three nginx fills its buffers first
])  # fmt: skip
def test_a_stream_passes_token_by_token(
    tmp_path: Path, version: str, buffering: str, token_by_token: bool
) -> None:
    """By each of three means, of which the page has all; without them it does not: this check can fail."""
    assert CONFIGURATION.count(OFF) == CONFIGURATION.count(CHUNKED) == 1
    (front,) = free_ports(1)
    model = tiny_model()
    model.net.register_forward_pre_hook(lambda *_: time.sleep(0.05))
    body = {
        "model": "tiny",
        "prompt": "Once",
        "max_tokens": 14,
        "seed": 1,
        "ignore_eos": True,
        "stream": True,
    }
    configuration = CONFIGURATION.replace(OFF, buffering).replace(CHUNKED, version)
    with (
        serving({"tiny": model}, allow_hosts=(f"127.0.0.1:{front}",)) as server,
        proxied(tmp_path, [server.port, server.port], front, configuration=configuration),
        httpx.stream(
            "POST", f"http://127.0.0.1:{front}/v1/completions", json=body, trust_env=False
        ) as stream,
    ):
        times = [time.monotonic() for line in stream.iter_lines() if line.startswith("data: {")]
    pauses = sum(later - one > 0.02 for one, later in pairwise(times))
    assert len(times) >= 10  # bytes of one character come together
    assert pauses >= len(times) - 3 if token_by_token else pauses <= 2


@pytest.mark.slow
@needs_nginx
def test_two_replicas_and_a_rolling_restart(tmp_path: Path) -> None:
    """Streams begin at once, who leaves is left, and each replica restarts while clients go on."""
    *ports, front = free_ports(3)
    url = f"http://127.0.0.1:{front}"
    processes = [replica(port, f"127.0.0.1:{front}") for port in ports]
    try:
        with proxied(tmp_path, ports, front):
            long = BODY | {"max_tokens": 500, "n": 4, "stream": True}
            with httpx.stream("POST", f"{url}/v1/completions", json=long, trust_env=False) as stream:
                parts = stream.iter_bytes()  # kept: without it the client would leave
                next(parts)
                assert running(ports) > 0  # the first token is here, and the texts are still being written
            until(lambda: running(ports) == 0)

            lm = gf.load("storyteller")
            whole = lm.generate("Once upon a time", max_new_tokens=60, min_new_tokens=60, seed=1).text
            clients = [Clients(url, whole) for _ in range(4)]
            for one in clients:
                one.start()
            for at, port in enumerate(ports):
                before = [one.done for one in clients]
                time.sleep(0.5)
                processes[at].send_signal(signal.SIGTERM)
                assert processes[at].wait(60) == 0
                until(
                    lambda seen=before: all(one.done > n + 1 for one, n in zip(clients, seen, strict=True)),
                    60,
                )
                processes[at] = replica(port, f"127.0.0.1:{front}")
            for one in clients:
                one.over.set()
            for one in clients:
                one.join(60)
            assert [one.failures for one in clients] == [[]] * 4
            assert sum(one.done for one in clients) >= 16
    finally:
        for process in processes:
            process.kill()
            process.wait()
