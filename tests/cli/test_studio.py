"""`glass studio`: what it prints and refuses, and that it listens to this machine alone."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest
from listening import LOOPBACK, listening

from glassformer.cli import run
from glassformer.cli.studio import _named
from glassformer.errors import InputError
from glassformer.server import pages


def test_without_its_page_one_sentence_names_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(pages.resources, "files", lambda package: tmp_path)
    assert run(["studio", "--no-open", "--port", "0"]) == 2
    message = capsys.readouterr().err
    assert "run `make studio`" in message
    assert message.count("\n") == 1


def test_ports_and_names_are_checked(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run(["studio", "--port", "70000"]) == 2
    assert "--port must be from 0 to 65535" in capsys.readouterr().err
    (tmp_path / "mine").mkdir()
    assert _named(("storyteller", str(tmp_path / "mine"))) == {
        "storyteller": "storyteller",
        "mine": str(tmp_path / "mine"),
    }
    with pytest.raises(InputError, match="two models of the name 'mine'"):
        _named((str(tmp_path / "mine"), "mine"))


@pytest.mark.slow
def test_it_listens_on_loopback_and_loads_in_the_background() -> None:
    """In a process of its own: the address works, no other one does, and Ctrl-C ends it."""
    command = [sys.executable, "-m", "glassformer", "studio", "--no-open", "--json", "--port", "0"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ
    )
    try:
        assert process.stdout is not None
        url = json.loads(process.stdout.readline())["url"]
        base, token = url.split("/#token=")
        assert len(token) >= 22
        assert listening([process.pid]) == {LOOPBACK}
        for _ in range(600):
            try:
                found = httpx.get(
                    f"{base}/studio/status", headers={"authorization": f"Bearer {token}"}, trust_env=False
                )
                if found.json()["statuses"][0]["stage"] == "ready":
                    break
            except httpx.HTTPError:
                pass
            time.sleep(0.1)
        else:
            raise AssertionError("the model was never ready")
        process.terminate()
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.communicate()
