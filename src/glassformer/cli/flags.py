"""Flags that several verbs share, as decorators, and groups of them that reach a verb as one argument."""

import difflib
import functools
import json
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from glassformer.cli import streams
from glassformer.cli.printing import log
from glassformer.errors import InputError, warnings_to
from glassformer.files import MEGABYTE, read_bytes, read_stream

if TYPE_CHECKING:
    from glassformer.tasks.complete import LanguageModel
    from glassformer.tasks.model import Model

DEFAULT_MODEL = "storyteller"

Function = Callable[..., Any]
Decorator = Callable[[Function], Function]


# Numbers, as every flag and every other text of a command line has them

WHOLE = re.compile(r"[+-]?[0-9]+")
MOST_DIGITS = 20
NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


def parse_whole(text: str) -> int:
    """A whole number in plain digits; `int` also takes 1_0, blanks and the digits of any script."""
    if not WHOLE.fullmatch(text):
        raise ValueError(f"{text[:40]!r} is not a whole number")
    if len(text) > MOST_DIGITS:
        raise ValueError(f"a number of {len(text):,} digits is too large")
    return int(text)


def parse_number(text: str) -> float:
    """A finite number such as 2, 0.5 or 1e-4; `float` also takes nan, inf, and what `int` takes."""
    if not NUMBER.fullmatch(text) or (value := float(text)) in (float("inf"), float("-inf")):
        raise ValueError(f"{text[:40]!r} is not a finite number")
    return value


def parse_place(text: str, sites: str) -> tuple[int, int] | None:
    """Layer and number of a head or neuron: `4.7`, or an address such as `blocks.4.attn.mix[7]`."""
    number = "([0-9]{1,9})"
    match = re.fullmatch(rf"{number}\.{number}|blocks\.{number}\.(?:{sites})\[{number}\]", text)
    if match is None:
        return None
    layer, index = (int(one) for one in match.groups() if one is not None)
    return layer, index


def parse_head(layer: int | None, head: str | None) -> tuple[int | None, int | None]:
    """The layer and the head of --layer and --head; LAYER.HEAD names both."""
    if head is None:
        return layer, None
    place = parse_place(head, r"attn\.\w+")
    if place is not None and layer in (None, place[0]):
        return place
    try:
        return layer, parse_whole(head)
    except ValueError:
        raise InputError(
            f"--head {head[:40]!r} is neither a head of --layer nor LAYER.HEAD, as in 4.7"
        ) from None


class Number(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.5 only
    """A number of a flag, parsed by one of the functions above."""

    def __init__(self, name: str, parse: Callable[[str], float]) -> None:
        self.name, self.parse = name, parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """As a number; a default is one already."""
        if not isinstance(value, str):
            return value
        try:
            return self.parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


NUMBERS = {click.INT: Number("integer", parse_whole), click.FLOAT: Number("float", parse_number)}


# What click has, with a little more


# What other tools call an option -> what it is called here.
SYNONYMS = {
    "--iters": "--steps",
    "--max-iters": "--steps",
    "--max-steps": "--steps",
    "--epochs": "--steps",
    "--num-train-epochs": "--steps",
    "--learning-rate": "--lr",
    "--min-lr": "--lr-end",
    "--batch-size": "--batch",
    "--block-size": "--context",
    "--n-layer": "--layers",
    "--n-head": "--heads",
    "--n-embd": "--width",
    "--vocab-size": "--vocab",
    "--lora-rank": "--rank",
    "--lora-alpha": "--alpha",
    "--output-dir": "--out",
    "--out-dir": "--out",
    "--max-tokens": "--max-new-tokens",
    "--max-length": "--max-new-tokens",
    "--n-predict": "--max-new-tokens",
    "--num-predict": "--max-new-tokens",
    "--num-samples": "--num-return-sequences",
    "--temp": "--temperature",
    "-t": "--temperature",
    "--format": "--json",
    "--no-display-prompt": "--no-echo",
}
# What other tools have an option for -> how it is here; the latter of verbs that take a text.
WITHOUT_OPTION = {"--threads": "the environment variable OMP_NUM_THREADS sets the number of threads"}
WITHOUT_OPTION_OF_TEXTS = {
    "--prompt": "the prompt is an argument",
    "-p": "the prompt is an argument",
    "--stream": "a text is streamed unless --no-stream is given",
    "--verbose": "--json has the seconds of an answer, and `glass bench` measures speed",
    "--keepalive": "no model stays in memory after the command",
    "--system": "there are no system prompts: these models only continue a text",
}


class Command(click.Command):
    """A verb. Its help begins with its arguments, each with its own sentence."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As click does it; what is wrong with an option or an argument is said in our words."""
        typed = list(args)  # click takes them away one by one
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            name = self.misspelled(ctx, error.option_name, typed=typed)
            raise InputError(f"no such option {name}; {self.hint(ctx, name)}") from None
        except click.MissingParameter as error:
            if isinstance(error.param, Argument):
                raise missing(ctx, error.param) from None
            if not isinstance(error.param, Option):
                raise
            named, note = "/".join(error.param.opts), (error.param.help or "").removesuffix(".")
            raise InputError(f"{named} is missing ({note}); see `{ctx.command_path} --help`") from None
        except click.UsageError as error:
            extra = re.fullmatch(r"Got unexpected extra arguments? \((.*)\)", error.message, re.DOTALL)
            if extra is None:
                raise
            raise self.too_many(ctx, extra[1]) from None

    @property
    def takes_text(self) -> bool:
        """Whether a text is an argument of the verb."""
        return bool({one.name for one in self.params if isinstance(one, Argument)} & {"text", "prompt"})

    def too_many(self, ctx: click.Context, extra: str) -> InputError:
        """An argument that the verb does not take; of a text, what is usually forgotten."""
        if self.takes_text:
            remedy = "a text of several words needs quotes"
            if any("-m" in one.opts for one in self.params):
                remedy += ", and a model is given by -m"
        else:
            remedy = f"usage: {usage(ctx)}"
        return InputError(f"too many arguments ({extra[:80]}); {remedy}")

    def misspelled(self, ctx: click.Context, name: str, *, typed: Sequence[str]) -> str:
        """What was typed as an option: of `-port`, which click reads as four letters, it names the first."""
        before = typed[: typed.index("--")] if "--" in typed else typed
        for word in before:
            found = re.match(r"-\w[\w-]+", word)
            if found and not name.startswith("--") and name[1] in found[0] and self.meant(ctx, found[0]):
                return found[0]
        return name

    def meant(self, ctx: click.Context, name: str) -> str | None:
        """The option that is most like a name."""
        options = [one for one in self.get_params(ctx) if isinstance(one, click.Option)]
        known = {one.lstrip("-"): one for option in options for one in option.opts}
        typed = name.lower().replace("_", "-")
        bare = SYNONYMS.get(typed, typed).lstrip("-")
        # Without the dashes, which make any two short options look alike.
        close = difflib.get_close_matches(bare, known, n=1, cutoff=0.8)
        return known[close[0]] if close else None

    def hint(self, ctx: click.Context, name: str) -> str:
        """The option that was probably meant, and where all are listed."""
        typed = name.lower().replace("_", "-")
        where = f"`{ctx.command_path} --help`"
        instead = WITHOUT_OPTION | (WITHOUT_OPTION_OF_TEXTS if self.takes_text else {})
        if typed in instead:
            return f"{instead[typed]}; see {where}"
        if typed in ("-m", "--model"):
            return f"usage: {usage(ctx)}"
        meant = self.meant(ctx, name)
        return f"did you mean {meant}? See {where}" if meant else f"see {where}"

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The arguments, then the options."""
        shown = [(one.make_metavar(ctx), one.note) for one in self.params if isinstance(one, Argument)]
        if shown:
            with formatter.section("Arguments"):
                formatter.write_dl(shown)
        super().format_options(ctx, formatter)


class Argument(click.Argument):
    """An argument with a sentence for the help; click itself has that since 8.5 only."""

    def __init__(self, names: Sequence[str], *, note: str, **how: Any) -> None:
        super().__init__(names, **how)
        self.note = note


class Option(click.Option):
    """An option that still takes its former names, which its help does not show."""

    def __init__(self, names: Sequence[str], *, former: Sequence[str] = (), **how: Any) -> None:
        super().__init__([*names, *former], **how)
        self.type = NUMBERS.get(self.type, self.type)
        self.former = former

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """The line of the help."""
        every = self.opts
        self.opts = [name for name in every if name not in self.former]
        record = super().get_help_record(ctx)
        self.opts = every
        return record


# Halves of characters, which Windows lets through; the other surrogates are bytes that are not UTF-8.
HALVES = re.compile("[\ud800-\udc7f\udd00-\udfff]")


class Text(click.types.StringParamType):
    """Text of an argument, which may be any bytes: those that are not UTF-8 become U+FFFD."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """As text that can be encoded."""
        text: str = super().convert(value, param, ctx)
        whole = HALVES.sub("\ufffd", text)
        return whole.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


class EditsType(click.types.StringParamType):
    """A list of edits as JSON, or the path of a file that holds one."""

    name = "json or file"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """A list, or a path."""
        if not isinstance(value, str) or value.lstrip()[:1] not in ("[", "{"):
            return Path(value)
        try:
            given = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise InputError(f"--edit: is not JSON ({error})") from None
        return given if isinstance(given, list) else [given]


TEXT = Text()
PATH = click.Path(path_type=Path)
EDITS = EditsType()
EDIT = "Edits: a list in JSON, or a file that holds one; see `glass edit --save`."


def verb(function: Function, kind: type[Command] = Command) -> click.Command:
    """Make a function with flags a verb."""
    settings = {"help_option_names": ["-h", "--help"], "show_default": True}
    return click.command(cls=kind, context_settings=settings)(function)


def usage(ctx: click.Context) -> str:
    """How a verb is called, in one line."""
    return f"{ctx.command_path} {' '.join(ctx.command.collect_usage_pieces(ctx))}"


def missing(ctx: click.Context, one: Argument) -> InputError:
    """The error for a missing argument, with what it is."""
    note = one.note.removesuffix(".")
    return InputError(f"{one.make_metavar(ctx).strip('[]')} is missing ({note}); usage: {usage(ctx)}")


def argument(name: str, note: str, **how: Any) -> Decorator:
    """An argument, with a sentence about it."""
    return click.argument(name, cls=Argument, note=note, **how)


def option(*names: str, former: Sequence[str] = (), **how: Any) -> Decorator:
    """An option; `former` names are taken and not shown."""
    return click.option(*names, cls=Option, former=former, **how)


def switch(*names: str, **how: Any) -> Decorator:
    """An option without a value."""
    return option(*names, is_flag=True, default=False, **how)


def collect(kind: type[Any], name: str = "flags") -> Decorator:
    """Hand the flags that are fields of a dataclass to the function as one argument."""
    own = {one.name for one in fields(kind)}

    def decorate(function: Function) -> Function:
        @functools.wraps(function)
        def collected(*first: Any, **given: Any) -> Any:
            mine = {key: given.pop(key) for key in own & given.keys()}
            return function(*first, **given, **{name: kind(**mine)})

        return collected

    return decorate


def group(kind: type[Any], name: str, *options: Decorator) -> Decorator:
    """Several flags that reach the function as one dataclass."""

    def decorate(function: Function) -> Function:
        function = collect(kind, name)(function)
        for one in reversed(options):  # click puts the decorator that is applied last first
            function = one(function)
        return function

    return decorate


# A text


LONGEST = 64 * MEGABYTE  # of a text that is read as a whole
STDIN = Path("/dev/stdin")

text = argument("text", "The text; '-' or a pipe reads stdin.", type=TEXT, required=False)
FILE = "A file whose whole content is the text, without a newline at its end; '-' (stdin) or <(a command)."
file = option("-f", "--file", type=PATH, help=FILE)


def read_text(text: str | None, file: Path | None, *, is_dialog: bool = False) -> str:
    """A text from the argument, from a file, or from stdin (named "-", or piped in).

    In a dialog stdin has the answers.
    """
    if text is not None and file is not None:
        raise InputError("give a text or --file, not both")
    if text not in (None, "-") and not is_dialog and streams.has_input(wait=False):
        raise InputError("give a text or a pipe, not both; `< /dev/null` behind the command ignores the pipe")
    piped = text is None and sys.stdin is not None and not sys.stdin.isatty()
    if file is None and (text == "-" or piped):
        file = STDIN
    if file is None:
        return text or ""

    if file in (Path("-"), STDIN):
        given = read_stream(sys.stdin.buffer, LONGEST, name="stdin")
        if not given and streams.is_pipe():
            raise InputError('the pipe is empty; to give no text on purpose: ""')
    else:
        given = read_bytes(file, LONGEST, kind=InputError, pipes=True)
    try:
        whole = given.decode("utf-8")
    except UnicodeDecodeError as error:
        line = given[: error.start].count(b"\n") + 1
        raise InputError(f"{'stdin' if file == STDIN else file}, line {line}: not UTF-8 text") from None
    # Editors and `echo` put one line end at the end of a text.
    return whole.removesuffix("\n").removesuffix("\r")


# A model


@dataclass(frozen=True)
class Loading:
    """Which model to load, and how."""

    model: str = DEFAULT_MODEL
    engine: str = "torch"
    device: str = "cpu"
    dtype: str = "float32"
    revision: str | None = None
    offline: bool = False
    quantize: str = "int8"

    def load(self, name: str | None = None) -> "Model":
        """The model, or another one in the same way; messages go to stderr."""
        from glassformer.tasks.load import load

        how = {key: value for key, value in vars(self).items() if key != "model"}
        with warnings_to(log):
            return load(self.model if name is None else name, **how)

    def load_language_model(self) -> "LanguageModel":
        """The model, if it is one that continues text."""
        model = self.load()  # first, because it reads while NumPy is imported
        from glassformer.tasks.complete import LanguageModel

        return model.expect(LanguageModel)


MODEL = "A shipped name, a folder, a hub id (owner/name@revision) or a name from `glass models`."
ENGINE = "What computes: native (quantized, fast), torch (exact), or auto: native where it runs the model."
QUANTIZE = "The native engine's weights: int8, or int4: half the memory, faster, less exact."
DTYPE = "float32, float64, bfloat16 or float16; any but float32 is computed by torch."
model = option("-m", "--model", default=DEFAULT_MODEL, help=MODEL)
engine = option("--engine", default="auto", help=ENGINE)
quantize = option("--quantize", default="int8", help=QUANTIZE)
device = option("--device", default="cpu", help="Where to compute: cpu, cuda, mps.")
dtype = option("--dtype", default="float32", help=DTYPE)
revision = option("--revision", help="Which revision of a hub model.")
offline = switch("--offline", help="Never use the network.")


def model_argument(note: str, *, default: str | None = None, before: str = "") -> Decorator:
    """A model as an argument or by -m; `before` names the argument behind it, which is first with -m."""
    shown = "MODEL" if default is None else "[MODEL]"
    takes = "The same as the argument MODEL." + (f"  [default: {default}]" if default else "")

    def decorate(function: Function) -> Function:
        @functools.wraps(function)
        def placed(*first: Any, model: str | None, model_flag: str | None, **given: Any) -> Any:
            if model_flag is not None and before and model is not None:
                given[before] = _moved_up(model, given[before], flag=model_flag)
            elif None not in (model, model_flag) and model != model_flag:
                raise InputError(f"the model is given twice: {model} and -m {model_flag}")
            # An empty name is a name, and refused as one.
            chosen = next((one for one in (model_flag, model, default) if one is not None), None)
            if chosen is None:
                raise _missing_argument("model")
            if before and given[before] == ():
                raise _missing_argument(before)
            return function(*first, model=chosen, **given)

        with_flag = option("-m", "--model", "model_flag", help=takes)(placed)
        return argument("model", note, required=False, metavar=shown)(with_flag)

    return decorate


def _moved_up(first: str, rest: Any, *, flag: str) -> Any:
    """What the first argument is when -m names the model: one more of the many, or the one behind it."""
    if rest and first == flag:
        return rest
    if isinstance(rest, tuple):
        if rest and not (Path(first).suffix or Path(first).exists()):
            raise InputError(f"the model is given twice: {first} and -m {flag}")
        return (first, *rest)
    if rest is not None:
        raise InputError(f"the model is given twice: {first} and -m {flag}")
    return Path(first)


def _missing_argument(name: str) -> InputError:
    context = click.get_current_context()
    (one,) = (one for one in context.command.params if isinstance(one, Argument) and one.name == name)
    return missing(context, one)


loading = functools.partial(group, Loading, "loading")
loading_by_any_engine = loading(model, engine, quantize, device, dtype, revision, offline)


# A result


@dataclass(frozen=True)
class Picture:
    """How a result is shown: printed, printed as JSON, or saved."""

    output: Path | None = None
    drawing: str | None = None
    dark: bool = False
    width: int = 960
    png_scale: float = 2.0
    as_json: bool = False

    def check_format(self) -> None:
        """Refuse a file that is neither a picture nor numbers, before anything is computed."""
        if self.output is None:
            refuse("dark", "width", why="is for a saved picture: it needs -o")
            return
        from glassformer.figures.view import check_format

        parent = self.output.parent
        if not parent.is_dir():
            raise InputError(f"-o {self.output}: cannot be written (there is no folder {parent})")
        if check_format(self.output) in (".csv", ".json"):
            refuse("dark", "width", why=f"is for pictures, and {self.output.name} holds numbers")

    def check(self) -> None:
        """Refuse what cannot be done, before anything is computed."""
        self.check_format()
        if self.as_json and self.output is not None:
            raise InputError("--json prints and -o saves; give one of them")


OUTPUT = "Save a picture (.svg, .png, .pdf, .html) or the numbers (.json, .csv)."
WIDTH = "How wide a saved picture may be; 360 suits one column of a paper."
output = option("-o", "--output", type=PATH, help=OUTPUT)
drawing = option(
    "--as", "drawing", help="Another drawing of the answer, where there are several: arcs, rank …"
)
dark = switch("--dark", help="Save the picture on a dark ground.")
width = option("--width", default=960, help=WIDTH)
PNG_SCALE = "Pixels of a saved .png per unit of --width; 4 suits a slide."
png_scale = option("--png-scale", default=2.0, help=PNG_SCALE)
as_json = switch("--json", "as_json", help="Print the result as JSON.")

picture = functools.partial(group, Picture, "picture")
picture_of_any_drawing = picture(output, drawing, dark, width, png_scale, as_json)


# What one looks at


layer = option("-l", "--layer", type=int, help="One layer, counted from 0.")
head = option("--head", help="One head of --layer, counted from 0; or LAYER.HEAD.")
STACK = "Which stack of a model that has several: encoder, decoder. None: the last."
stack = option("--stack", default="", show_default=False, help=STACK)
by_word = switch("--words", "by_word", help="Join the tokens of a word.")
seed = option("-s", "--seed", default=0, help="Of what is sampled: same seed, same result.")
temperature = option("--temperature", default=0.0, help="0 takes the likeliest token; higher is wilder.")


# Which flags go together


def only(flag: str, why: str, *, others: dict[str, Any]) -> None:
    """Refuse flags that have no meaning beside another one."""
    given = next((name for name, value in others.items() if value not in (None, ())), None)
    if given is not None:
        raise InputError(f"{given} does not go with {flag}, which {why}")


def refuse(*parameters: str, why: str) -> None:
    """Refuse flags that a user typed and that would have no effect; `why` is the rest of the sentence."""
    context = click.get_current_context()
    for name in parameters:
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            typed = next(one for one in context.command.params if one.name == name)
            names = [one for one in typed.opts if one not in getattr(typed, "former", ())]
            shown = max(names, key=len) if isinstance(typed, Option) else name.upper()
            raise InputError(f"{shown} {why}")


def at_most(flag: str, value: int, *, most: int) -> None:
    """Refuse a number that is too large."""
    if value > most:
        raise InputError(f"{flag} must be at most {most:,}, not {value:,}")


def at_least(flag: str, value: int, *, least: int) -> None:
    """Refuse a number that is too small."""
    if value < least:
        raise InputError(f"{flag} must be at least {least}, not {value}")


def one_question(questions: dict[str, Any]) -> None:
    """Refuse several questions at once."""
    given = [name for name, value in questions.items() if value not in (None, False, 0, ())]
    if len(given) > 1:
        raise InputError(f"{' and '.join(given)} are {len(given)} questions; ask one at a time")
