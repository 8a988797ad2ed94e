"""Shared flags: groups reach a verb as one argument, former names are taken, combinations are checked."""

from dataclasses import dataclass

import click
import pytest

from glassformer.cli import flags
from glassformer.errors import InputError


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


def test_flags_that_do_not_go_together() -> None:
    """One sentence that names them."""
    with pytest.raises(InputError, match=r"^--b does not go with --a, which is alone$"):
        flags.only("--a", "is alone", others={"--none": None, "--empty": (), "--b": 0})
    flags.only("--a", "is alone", others={"--none": None, "--empty": ()})
    with pytest.raises(InputError, match=r"^--a and --c are 2 questions; ask one at a time$"):
        flags.one_question({"--a": "x", "--b": 0, "--c": True, "--d": (), "--e": None})
    with pytest.raises(InputError, match=r"^-k must be at least 1, not 0$"):
        flags.at_least("-k", 0, least=1)
