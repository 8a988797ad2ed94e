"""`glass VERB [ARGUMENTS]`: one table of verbs, each imported when it is called."""

import signal
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from glassformer import interrupt, machine
from glassformer.answers import QUESTIONS
from glassformer.cli import streams
from glassformer.errors import GlassError

if TYPE_CHECKING:
    import click


class Verb(NamedTuple):
    """The module of this package that has a verb's command, and what the verb does in a few words."""

    module: str
    help: str
    command: str = ""  # its name there, if that is not the verb


VERBS = {
    "generate": Verb("generate", "continue a prompt, or generate without one"),
    "translate": Verb("translate", "translate a text, or a file line by line"),
    "summarize": Verb("summarize", "summarize a text"),
    "compose": Verb("compose", "music: a new piece, more of one, or the voices to a melody"),
    "classify": Verb("classify", "which class a text is of, or a file of them, and how probable that is"),
    "top": Verb("top", QUESTIONS["top"].help),
    "tokenize": Verb("tokenize", "the tokens of a text, and the merges that make them"),
    "attention": Verb(
        "attention", f"{QUESTIONS['attention'].help}, what kind each is, one query step by step"
    ),
    "lens": Verb("lens", QUESTIONS["lens"].help),
    "saliency": Verb("saliency", f"{QUESTIONS['saliency'].help}, with a test of the answer"),
    "neurons": Verb("neurons", f"{QUESTIONS['neurons'].help}, and their factors"),
    "edit": Verb("edit", QUESTIONS["edit"].help),
    "diff": Verb("diff", QUESTIONS["diff"].help),
    "train": Verb("train", "a model of your own, from text"),
    "finetune": Verb("train", "fine-tune an existing model, all of it or by LoRA"),
    "eval": Verb(
        "evaluate",
        "how well a model knows a text, translates, summarizes, or does its task",
        "evaluate",
    ),
    "serve": Verb("serve", "models over HTTP, for OpenAI's clients, with their insides where asked"),
    "replay": Verb("replay", "a text of a server again, to the bit, from the recipe that its answer carries"),
    "studio": Verb("studio", "a page on this machine: write with a model, and look inside while you do"),
    "models": Verb("models", "the models on this machine"),
    "show": Verb("show", "a model's parameters, counted from its file; its training"),
    "pull": Verb("models", "fetch a model from the hub"),
    "rm": Verb("models", "remove a model from this machine"),
    "convert": Verb("models", "turn a .pt or .bin checkpoint into a safe folder; keep a run under a name"),
    "bench": Verb("bench", "how fast a model reads and generates here"),
    "verify": Verb("verify", "prove on this machine what the package promises, check by check"),
    "env": Verb("env", "what this machine is and can do"),
}
GROUPS = {  # the verbs as `glass --help` and docs/cli.md list them
    "Write": ("generate", "translate", "summarize", "compose", "classify", "top"),
    "Look inside": ("tokenize", "attention", "lens", "saliency", "neurons", "edit", "diff"),
    "Train": ("train", "finetune", "eval"),
    "Serve": ("serve", "replay", "studio"),
    "Models": ("models", "show", "pull", "rm", "convert"),
    "Machine": ("bench", "verify", "env"),
}

# What other tools call a verb -> what does it here.
GENERATE = 'use `glass generate -m MODEL "a prompt"`'
HABITS = {
    **dict.fromkeys(("run", "complete", "chat"), GENERATE),
    **dict.fromkeys(("list", "ls", "ps"), "use `glass models`"),
    "info": "use `glass show`",
    **dict.fromkeys(("cp", "create", "quantize"), "use `glass convert`"),
}

LONGEST_MESSAGE = 2000  # characters; a name that was typed may have any number
# As torch says it on a processor and on a GPU, and the system where a library does not fit.
OUT_OF_MEMORY = ("can't allocate memory", "out of memory", "failed to map segment")

WELCOME = """\
Glassformer, the language model you can see through. Try:
  glass generate "Once upon a time"        a story from the model that ships
  glass top "Once upon a"                  the ten likeliest next tokens
  glass studio                             write, and look inside while you write
  glass --help                             all verbs; glass VERB --help explains one"""


def main() -> None:
    """The command `glass`."""
    interrupt.install(run)
    streams.prepare()
    code = 0
    try:
        code = run(sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:  # the reader left, as in `glass … | head -1`
        code = 0
    except GlassError as error:  # of the flush; after another error it is not reported
        code = code or complain(str(error), error.code)
    except BaseException as error:
        if not interrupt.is_behind(error):
            raise
        code = complain("stopped", 130)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # there is nothing left to stop
    sys.exit(code)


def run(arguments: list[str]) -> int:
    """Run one command line; returns the exit code: 0, 1 (failed) or 2 (bad input)."""
    if not arguments:
        if streams.has_input(wait=True):
            return call("generate", [])
        print(WELCOME)
        return 0

    first, *rest = arguments
    if first == "help" and rest and rest[0] in VERBS:
        return call(rest[0], ["--help"])
    if first in ("-h", "--help", "help"):
        print(overview())
        return 0
    if first in ("-V", "--version", "version"):
        print(f"glassformer {machine.installed('glassformer')}")
        return 0
    if first in VERBS:
        return call(first, rest)
    if " " in first.strip() or first.startswith("-"):  # several words are a prompt
        return call("generate", arguments)
    return complain(f"{first!r} is not a verb; {_verb_meant(first, alone=not rest)}", 2)


def _verb_meant(name: str, *, alone: bool) -> str:
    """The verb that was probably meant; a single word may be a prompt."""
    if name in HABITS:
        return HABITS[name]
    import difflib

    close = difflib.get_close_matches(name, VERBS, n=1)
    hint = f"did you mean `glass {close[0]}`?" if close else "`glass --help` lists the verbs."
    return f"{hint} To continue a single word: glass generate {name}" if alone else hint


def overview() -> str:
    """The text of `glass --help`."""
    width = max(map(len, VERBS))
    lines = []
    for group, names in GROUPS.items():
        lines += [f"{group}:", *(f"  {name:<{width}}  {VERBS[name].help}" for name in names), ""]
    verbs = "\n".join(lines)
    return f"""\
Usage: glass VERB [ARGUMENTS]
       glass "a prompt of several words"     the same as: glass generate "…"
       echo "a prompt" | glass               the same, from a pipe

{verbs}
`glass VERB --help` explains a verb with examples. Results go to stdout, progress and errors to stderr; --json
gives results as data. Exit codes: 0 done, 1 failed, 2 bad input, 130 stopped by Ctrl-C. A model is a
shipped name (storyteller, the default), a folder, a name from `glass models`, or a hub id (gpt2,
owner/name@revision).

Environment: GLASSFORMER_HOME (models and prepared text), GLASSFORMER_DATA (texts that recipes and eval name),
HF_HOME, HF_TOKEN, HF_HUB_OFFLINE, NO_COLOR."""


def command_of(name: str, arguments: list[str]) -> "click.Command":
    """The click command of a verb; where its flags depend on what is typed, a function makes it."""
    import click

    verb = VERBS[name]
    module = import_module(f"glassformer.cli.{verb.module}")
    found: Any = getattr(module, verb.command or name)
    command: click.Command = found if isinstance(found, click.Command) else found(arguments)
    return command


def call(name: str, arguments: list[str]) -> int:
    """Run a verb; whatever goes wrong becomes one sentence."""
    import click

    try:
        command = command_of(name, arguments)
        code = command.main(arguments, prog_name=f"glass {name}", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except GlassError as error:
        return complain(str(error), error.code)
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except (KeyboardInterrupt, click.Abort):
        return complain("stopped", 130)
    except click.ClickException as error:
        message = " ".join(error.format_message().split()).removesuffix(".")
        end = "" if message.endswith("?") else ";"
        return complain(f"{message}{end} see `glass {name} --help`", 2)
    except SystemExit:  # click's way out when the reader left, as in `glass … | head`
        return 0
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return complain(f"{where}{error.strerror or error}", 1)
    except MemoryError:
        return complain("out of memory", 1)
    except (RuntimeError, ImportError) as error:
        if not any(words in str(error) for words in OUT_OF_MEMORY):
            raise
        return complain("out of memory", 1)


def complain(message: str, code: int) -> int:
    """Report in one line on stderr what was wrong; the middle of a long message is left out."""
    shown = "".join(char if char.isprintable() else _escaped(char) for char in message)
    if len(shown) > LONGEST_MESSAGE:
        half = LONGEST_MESSAGE // 2
        shown = f"{shown[:half]} … {shown[-half:]}"
    print(f"glass: {shown}", file=sys.stderr)
    return code


def _escaped(char: str) -> str:
    return char.encode("unicode_escape").decode()
