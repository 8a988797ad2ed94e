"""Shared flags: groups reach a verb as one argument, former names are taken, combinations are checked."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import click
import pytest

from glassformer.cli import VERBS, command_of, flags
from glassformer.errors import InputError

Glass = Callable[..., tuple[int, str, str]]


@dataclass(frozen=True)
class Pair:
    """Two flags."""

    left: int
    right: str = "none"


def called(command: click.Command, *arguments: str) -> object:
    return command.main(list(arguments), standalone_mode=False)


def test_a_group_is_one_argument() -> None:
    """Flags that are fields of a dataclass are collected; a field without a flag has its default."""

    @flags.verb
    @flags.option("--left", default=1)
    @flags.option("--other", former=["--old"], default=0)
    @flags.collect(Pair, "pair")
    def verb(pair: Pair, other: int) -> object:
        """A verb."""
        return pair, other

    assert called(verb) == (Pair(1), 0)
    assert called(verb, "--left", "3", "--old", "2") == (Pair(3), 2)
    shown = verb.get_help(click.Context(verb))
    assert "--other" in shown
    assert "--old" not in shown


def test_a_help_has_arguments_with_a_sentence() -> None:
    """Before the options."""

    @flags.verb
    @flags.argument("what", "What it is about.", required=False)
    @flags.as_json
    def verb(what: str | None, as_json: bool) -> None:
        """A verb."""

    shown = verb.get_help(click.Context(verb))
    assert shown.index("[WHAT]  What it is about.") < shown.index("--json")


def test_an_argument_of_any_bytes_is_text() -> None:
    """What is not UTF-8 becomes U+FFFD, in every flag that takes text."""

    @flags.verb
    @flags.text
    def verb(text: str) -> str:
        """A verb."""
        return text

    assert called(verb, "a\udcff") == "a\ufffd"
    assert called(verb, "\udcc3\udca4") == "ä"
    assert called(verb, "a\ud800b\udfff") == "a\ufffdb\ufffd"  # halves of characters, from Windows


@pytest.mark.parametrize(("text", "value"), [
    ("0", 0), ("-7", -7), ("+7", 7), ("007", 7), (str(2**64 - 1), 2**64 - 1),
    ("1_0", None), ("\u0661", None), (" 1", None), ("1.0", None), ("1e3", None), ("", None), ("9" * 5000, None),
])  # fmt: skip
def test_whole_numbers(text: str, value: int | None) -> None:
    """In plain digits: what Python's `int` takes besides is a typing error."""
    if value is not None:
        assert flags.parse_whole(text) == value
        return
    with pytest.raises(ValueError, match=r"is not a whole number|is too large"):
        flags.parse_whole(text)


@pytest.mark.parametrize(("text", "value"), [
    ("0", 0.0), ("-.5", -0.5), ("+1.", 1.0), ("1e-4", 1e-4), ("2.5E+3", 2500.0),
    ("1_0", None), ("\u0661", None), ("\uff11", None), (" 1", None), ("1\n", None), ("nan", None), ("inf", None),
    ("-Infinity", None), ("1e400", None), ("0x10", None), (".", None), ("", None),
])  # fmt: skip
def test_numbers(text: str, value: float | None) -> None:
    """Finite ones, in plain digits."""
    if value is not None:
        assert flags.parse_number(text) == value
        return
    with pytest.raises(ValueError, match="is not a finite number"):
        flags.parse_number(text)


def test_every_flag_of_every_verb_has_these_numbers() -> None:
    """No flag is left with click's own, which take 1_0 and the digits of any script."""
    for verb in VERBS:
        for one in command_of(verb, []).params:
            assert one.type not in (click.INT, click.FLOAT), f"{verb} {one.name}"


def test_a_text_from_a_pipe(glass, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`-`, /dev/stdin and <(a command) are files to read a text from; an endless one has a limit."""
    tokenize = ["tokenize", "-m", model, "--ids"]
    expected = glass(*tokenize, "a text")
    for file in ("-", "/dev/stdin"):
        assert glass(*tokenize, "-f", file, stdin="a text\n") == expected

    def piped() -> str:
        reader, writer = os.pipe()  # as a shell makes <(echo a text)
        os.write(writer, b"a text\n")
        os.close(writer)
        return f"/dev/fd/{reader}"

    assert glass(*tokenize, "-f", piped()) == expected
    monkeypatch.setattr(flags, "LONGEST", 6)
    for how, name in (([], "stdin"), (["-f", "-"], "stdin"), (["-f", piped()], "/dev/fd/")):
        code, out, err = glass(*tokenize, *how, stdin="a text\n")
        assert (code, out) == (2, "")
        assert err.startswith(f"glass: {name}")
        assert "larger than" in err


def test_a_pipe_beside_a_text(glass, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A text and a pipe with another one are refused, as is an empty pipe; an open one is not waited for."""
    tokenize = ["tokenize", "-m", model, "--ids"]
    code, out, err = glass(*tokenize, "a text", stdin="more")
    assert (code, out) == (2, "")
    assert err.startswith("glass: give a text or a pipe, not both")
    assert glass(*tokenize, "a text", stdin="") == glass(*tokenize, "a text")
    assert glass(*tokenize, stdin="") == (2, "", 'glass: the pipe is empty; to give no text on purpose: ""\n')
    assert glass(*tokenize)[0] == 0  # /dev/null
    reader, writer = os.pipe()
    with os.fdopen(reader) as file, os.fdopen(writer, "w"):
        monkeypatch.setattr("sys.stdin", file)
        assert flags.read_text("a text", None) == "a text"


def test_flags_that_do_not_go_together() -> None:
    """One sentence that names them."""
    with pytest.raises(InputError, match=r"^--b does not go with --a, which is alone$"):
        flags.only("--a", "is alone", others={"--none": None, "--empty": (), "--b": 0})
    flags.only("--a", "is alone", others={"--none": None, "--empty": ()})
    with pytest.raises(InputError, match=r"^--a and --c are 2 questions; ask one at a time$"):
        flags.one_question({"--a": "x", "--b": 0, "--c": True, "--d": (), "--e": None})
    with pytest.raises(InputError, match=r"^-k must be at least 1, not 0$"):
        flags.at_least("-k", 0, least=1)
    with pytest.raises(InputError, match=r"^-k must be at most 1,000, not 1,001$"):
        flags.at_most("-k", 1001, most=1000)


@pytest.mark.parametrize("verb", ["show", "rm", "pull", "verify", "bench", "eval", "finetune"])
def test_a_model_is_an_argument_or_a_flag(verb: str, glass: Glass) -> None:
    """Both ways lead to the same place, and two names to one sentence."""
    behind = {"eval": ["no.txt"], "finetune": ["no.toml"]}.get(verb, [])
    code, _, as_argument = glass(verb, "./none", *behind)
    assert code in (1, 2)
    assert "option" not in as_argument
    for flag in (["-m", "./none"], ["--model=./none"]):
        assert glass(verb, *flag, *behind)[::2] == (code, as_argument)
        assert glass(verb, "./none", *flag, *behind)[::2] == (code, as_argument)
    if verb in ("show", "verify", "bench", "eval"):  # an empty name is not the default
        assert glass(verb, "-m", "", *behind)[2] == "glass: the model's name is empty\n"
    code, _, message = glass(verb, "one", "-m", "other", *behind)
    assert (code, message) == (2, "glass: the model is given twice: one and -m other\n")


def test_a_model_by_flag_leaves_all_arguments_to_the_texts(glass: Glass, model: str, tmp_path: Path) -> None:
    """`eval -m MODEL TEXT` measures as `eval MODEL TEXT` does; two texts are two, with or without -m."""
    text = tmp_path / "part.txt"
    text.write_text("Once upon a time there was a text.\n" * 4)
    ways = [("eval", model, str(text)), ("eval", "-m", model, str(text))]
    one, other = (glass(*way) for way in ways)
    assert one == other
    assert one[0] == 0
    ways = [("eval", model, str(text), "b.txt"), ("eval", "-m", model, str(text), "b.txt")]
    one, other = (glass(*way) for way in ways)
    assert one == other
    assert "one text at a time, not on 2" in one[2]


@pytest.mark.parametrize(("line", "message"), [
    (["eval"], "MODEL is missing (A shipped name, a folder, a run, a hub id or a name from `glass models`);"
               " usage: glass eval [OPTIONS] MODEL WHAT..."),
    (["eval", "-m", "tiny"], "WHAT... is missing (wikitext2, lambada, a file or folder of text or JSON lines; to"
                             " translate or summarize: pairs; to classify: examples with labels); usage: glass eval [OPTIONS] MODEL WHAT..."),
    (["bench", "a", "b"], "too many arguments (b); usage: glass bench [OPTIONS] [MODEL]"),
    (["generate", "gpt2", "Once", "on"],
     "too many arguments (Once on); a text of several words needs quotes, and a model is given by -m"),
    (["diff", "a", "b", "a", "text"], "too many arguments (text); a text of several words needs quotes"),
    (["diff", "-m", "a"], "no such option -m; usage: glass diff [OPTIONS] ONE OTHER [TEXT]"),
])  # fmt: skip
def test_arguments_that_are_missing_or_too_many(line: list[str], message: str, glass: Glass) -> None:
    """One sentence that says how the verb is called."""
    assert glass(*line) == (2, "", f"glass: {message}\n")
