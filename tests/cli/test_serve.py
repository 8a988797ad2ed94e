"""`glass serve` in a process of its own: what it prints, how it ends, and what it refuses."""

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from listening import LOOPBACK, listening
from serving import tiny_model

from glassformer.cli import run
from glassformer.cli.serve import Place


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model whose texts may be long."""
    where = tmp_path_factory.mktemp("models") / "tiny"
    tiny_model(context=8192).save(where)
    return where


@contextmanager
def started(*arguments: str, **environment: str) -> Iterator[tuple["subprocess.Popen[str]", list[str]]]:
    """`glass serve --port 0 …`, and the lines that it has printed so far."""
    command = [sys.executable, "-m", "glassformer", "serve", "--port", "0", "--engine", "torch", *arguments]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | environment
    )
    assert process.stdout is not None
    lines = [process.stdout.readline()]
    try:
        yield process, lines
    finally:
        process.kill()
        process.communicate()


def ready(url: str) -> None:
    """Wait until a server answers."""
    for _ in range(600):
        try:
            if httpx.get(f"{url}/health", trust_env=False, verify=False, timeout=60).status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.02)
    raise AssertionError("the server did not start")


def test_the_printed_command_works(folder: Path) -> None:
    """Address, model, engine, memory, a curl that works; told to stop, it ends well."""
    with started("-m", f"mine={folder}") as (process, lines):
        assert process.stdout is not None
        lines += [process.stdout.readline() for _ in range(3)]
        assert lines[0].startswith("Serving mine (torch float32) at http://127.0.0.1:")
        assert lines[1].startswith("Memory: at most ")
        command = shlex.split(lines[3])
        assert command[0] == "curl"
        url = command[1].removesuffix("/v1/completions")
        ready(url)
        body = json.loads(command[-1])
        headers = dict([command[command.index("-H") + 1].split(": ")])
        if sys.platform == "linux":
            assert listening([process.pid]) == {LOOPBACK}
        tried = httpx.post(command[1], json=body | {"wish": 1}, headers=headers, trust_env=False, timeout=60)
        assert tried.status_code == 200
        process.send_signal(signal.SIGTERM)
        _, logged = process.communicate(timeout=60)
        assert process.returncode == 0
    assert "model='mine' prompt_tokens=" in logged
    assert "unknown=['wish']" in logged  # a field that nothing reads, as a mistyped one


def test_keys_logs_and_a_second_signal(folder: Path) -> None:
    """The key of the environment guards; the log has a line for every request, with the text if asked; and whatever
    runs, a second signal ends it.
    """
    with started("-m", f"mine={folder}", "--json", "--log-text", GLASSFORMER_API_KEY="secret") as (
        process,
        lines,
    ):
        first = json.loads(lines[0])
        assert first["models"] == {"mine": "torch float32"}
        ready(first["url"].removesuffix("/v1"))
        ask = {"model": "mine", "prompt": "Once", "max_tokens": 2}
        headers = {"Authorization": "Bearer secret"}
        with httpx.Client(base_url=first["url"], trust_env=False, timeout=60) as client:
            assert client.post("/completions", json=ask).status_code == 401
            assert client.post("/completions", json=ask, headers=headers).status_code == 200
            long = ask | {"max_tokens": 8000, "ignore_eos": True, "stream": True}
            with client.stream("POST", "/completions", json=long, headers=headers) as stream:
                parts = stream.iter_bytes()  # kept: without it the client would leave
                next(parts)
                if sys.platform == "linux":  # never more than what was printed at the start
                    status = Path(f"/proc/{process.pid}/status").read_text()
                    (most,) = (int(line.split()[1]) for line in status.splitlines() if "VmHWM" in line)
                    assert 0 < most << 10 < first["memory_bound"] < first["memory_bound_with_insides"]
                process.send_signal(signal.SIGTERM)
                time.sleep(0.5)
                assert process.poll() is None
                process.send_signal(signal.SIGTERM)
                assert process.wait(20) == 128 + signal.SIGTERM
        out, _ = process.communicate(timeout=20)
        logged = [json.loads(line) for line in out.splitlines()]
        mine = [one for one in logged if one["path"] == "/v1/completions"]
        assert [one["status"] for one in mine] == [401, 200]
        assert mine[1]["prompt"] == ["Once"]
        assert "secret" not in out


def test_what_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """To be reached from elsewhere is a decision; a port in use is known before anything is loaded."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for arguments, words in [
            (["--host", "0.0.0.0"], "add --expose"),
            (["--host", "0.0.0.0", "--expose"], "needs a key"),
            (["--port", "70000"], "--port must be"),
            (["--port", port], "takes a free one"),
            (["--api-key", "käse"], "ASCII"),
            (["--slots", "0"], "--slots"),
            (["-m", "a=storyteller", "-m", "a=storyteller", "--port", "0"], "given twice"),
        ]:
            assert run(["serve", *arguments]) == 2
            assert words in capsys.readouterr().err


@pytest.mark.parametrize(("key", "names", "no_jobs", "offered"), [
    (None, (), False, True),
    (None, (), True, False),
    (None, ("proxy.example",), False, False),
    ("secret", ("proxy.example",), False, True),
    ("secret", ("proxy.example",), True, False),
])  # fmt: skip
def test_who_may_start_jobs(
    key: str | None, names: tuple[str, ...], no_jobs: bool, offered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those on this machine, or with the key; a proxy lets others in, so it needs one."""
    monkeypatch.delenv("GLASSFORMER_API_KEY", raising=False)
    place = Place(host="127.0.0.1", port=0, api_key=key, allow_host=names, expose=False, no_jobs=no_jobs)
    assert place.offers_jobs is offered
