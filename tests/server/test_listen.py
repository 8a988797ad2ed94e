"""The page on serving: its examples work as they are."""

import re
import shlex
from pathlib import Path

import openai
import pytest
from serving import Running, serving

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
def story() -> object:
    """The server that the page starts."""
    with serving({"storyteller": gf.load("storyteller")}) as running:
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
    assert (len(CURLS), len(PROGRAMS)) == (7, 3)


def test_an_address_that_is_not_ours() -> None:
    """One sentence with the remedy."""
    with pytest.raises(InputError, match="--port 0 takes a free one"):
        bind("192.0.2.1", 8000)
    with bind("127.0.0.1", 0) as listening, pytest.raises(InputError, match="in use"):
        bind("127.0.0.1", listening.getsockname()[1])
