"""`glass VERB [ARGUMENTS]`: one table of verbs, each imported when it is called."""

import difflib
import io
import sys
from importlib import import_module
from typing import NamedTuple

from glassformer import machine
from glassformer.errors import GlassError


class Verb(NamedTuple):
    """Where a verb lives, and what it does in a few words."""

    module: str
    function: str
    help: str


VERBS = {
    "generate": Verb("glassformer.cli.generate", "generate", "write on from a prompt, or from nothing"),
    "top": Verb("glassformer.cli.tokens", "top", "the ten likeliest next tokens; pick one and go on"),
    "tokenize": Verb(
        "glassformer.cli.tokens", "tokenize", "the tokens of a text, and the merges that make them"
    ),
    "attention": Verb(
        "glassformer.cli.look", "attention", "who looks at whom: heads, their kinds, one query step by step"
    ),
    "lens": Verb("glassformer.cli.look", "lens", "what every layer would say next"),
    "saliency": Verb(
        "glassformer.cli.look",
        "saliency",
        "which tokens made the next ones likely, with a test of the answer",
    ),
    "neurons": Verb(
        "glassformer.cli.look", "neurons", "which neurons fire at which tokens, and their factors"
    ),
    "edit": Verb(
        "glassformer.cli.edit",
        "edit",
        "change heads, neurons or layers while it runs, and see what it says then",
    ),
    "diff": Verb("glassformer.cli.look", "diff", "two models on one text, token by token"),
    "train": Verb("glassformer.cli.train", "train", "a model of your own, from text"),
    "finetune": Verb(
        "glassformer.cli.train", "finetune", "teach a model that is there, all of it or by LoRA"
    ),
    "eval": Verb(
        "glassformer.cli.evaluate",
        "evaluate",
        "how well a model knows a text: perplexity, bits per byte, LAMBADA",
    ),
    "models": Verb("glassformer.cli.models", "models", "the models on this machine"),
    "show": Verb("glassformer.cli.models", "show", "a model's parameters, counted from its file"),
    "pull": Verb("glassformer.cli.models", "pull", "fetch a model from the hub"),
    "rm": Verb("glassformer.cli.models", "rm", "remove a model from this machine"),
    "convert": Verb("glassformer.cli.models", "convert", "turn a .pt or .bin checkpoint into a safe folder"),
    "bench": Verb("glassformer.cli.bench", "bench", "how fast a model reads and writes here"),
    "env": Verb("glassformer.cli.env", "env", "what this machine is and can do"),
}

WELCOME = """\
Glassformer, the language model you can see through. Try:
  glass generate "Once upon a time"        a story from the model that ships
  glass top "Once upon a"                  the ten likeliest next tokens
  glass tokenize "unbelievable"            which tokens a text is made of
  glass --help                             all verbs; glass VERB --help explains one"""


def main() -> None:
    """The command `glass`."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command line; returns the exit code: 0, 1 (failed) or 2 (bad input)."""
    if not arguments:
        print(WELCOME)
        return 0
    first = arguments[0]
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(
                errors="replace"
            )  # a terminal that is not UTF-8 shows "?" for what it does not have
    if first in ("-h", "--help", "help"):
        print(overview())
        return 0
    if first in ("-V", "--version", "version"):
        print(f"glassformer {machine.installed('glassformer')}")
        return 0
    if first in VERBS:
        return call(first, arguments[1:])
    if " " in first.strip():  # several words: a prompt
        return call("generate", arguments)
    close = difflib.get_close_matches(first, VERBS, n=1)
    hint = f"did you mean `glass {close[0]}`?" if close else "`glass --help` lists the verbs."
    return complain(f"{first!r} is not a verb; {hint} To continue a single word: glass generate {first}", 2)


def overview() -> str:
    """The text of `glass --help`."""
    width = max(map(len, VERBS))
    verbs = "\n".join(f"  {name:<{width}}  {verb.help}" for name, verb in VERBS.items())
    return f"""\
Usage: glass VERB [ARGUMENTS]
       glass "a prompt of several words"     the same as: glass generate "…"

Verbs:
{verbs}

`glass VERB --help` explains a verb with examples. Results go to stdout, progress and errors to stderr; --json gives
results as data. Exit codes: 0 done, 1 failed, 2 bad input. A model is a shipped name (storyteller, the default), a folder,
a name from `glass models`, or a hub id (gpt2, owner/name@revision).

Environment: GLASSFORMER_HOME (models and prepared text), GLASSFORMER_DATA (texts that recipes and eval name), HF_HOME,
HF_TOKEN, HF_HUB_OFFLINE, NO_COLOR."""


def call(name: str, arguments: list[str]) -> int:
    """Run a verb; whatever goes wrong becomes one sentence."""
    import typer

    verb = VERBS[name]
    app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    try:
        function = getattr(import_module(verb.module), verb.function)
        if hasattr(function, "for_arguments"):  # its flags depend on what was typed
            function = function.for_arguments(arguments)
        app.command(context_settings={"help_option_names": ["-h", "--help"]})(function)
        code = app(arguments, prog_name=f"glass {name}", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except GlassError as error:
        return complain(str(error), error.code)
    except typer.Exit as stop:
        return stop.exit_code
    except (KeyboardInterrupt, typer.Abort):
        return complain("stopped", 130)
    except SystemExit:  # typer's answer to a reader that left, as in `glass … | head`
        return 0
    except OSError as error:
        return complain(f"{error.filename}: {error.strerror}" if error.filename else str(error), 1)
    except MemoryError:
        return complain("out of memory", 1)
    except Exception as error:
        if not hasattr(
            error, "format_message"
        ):  # what typer calls bad use has one, whichever click it is built on
            raise
        return complain(
            f"{' '.join(error.format_message().split()).removesuffix('.')}; see `glass {name} --help`", 2
        )


def complain(message: str, code: int) -> int:
    """Say in one line on stderr what was wrong."""
    shown = "".join(char if char.isprintable() or char == "\n" else f"\\x{ord(char):02x}" for char in message)
    print(f"glass: {shown}", file=sys.stderr)
    return code
