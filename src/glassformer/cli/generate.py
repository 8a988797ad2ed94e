"""glass generate"""

import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glassformer.cli import flags
from glassformer.cli.flags import PATH, TEXT, Loading, Picture, option, switch
from glassformer.cli.lines import located, on_one_line, split_lines
from glassformer.cli.printing import log, print_json, save_answer
from glassformer.errors import InputError, counted

if TYPE_CHECKING:
    from glassformer.tasks.complete import LanguageModel
    from glassformer.tasks.completion import Completion

SEED = "Same seed, same text, on the same engine, device and dtype. None: a new one each time."
LOOKUP = "Speculative decoding, native engine, same text: draft at most N repeated tokens; 0: off. [7]"
RULE = "─" * 20  # between several answers
GROUP = 8  # lines that are continued together: none is lost once its group is printed
# Flags of choosing token after token, which beam search does not do.
DRAWING = ("temperature", "top_k", "top_p", "min_p", "typical_p", "seed", "prompt_lookup_num_tokens")


@dataclass(frozen=True)
class Way:
    """Where prompts come from, and how answers are shown."""

    prompt: str | None
    file: Path | None
    examples: Path | None
    interactive: bool
    lines: bool
    no_echo: bool
    no_stream: bool

    def check(self, picture: Picture, *, several: bool) -> None:
        """Refuse flags that do not go together, before anything is loaded."""
        if self.lines and self.prompt not in (None, "-"):
            raise InputError("--lines reads its prompts from a file (-f) or a pipe; it takes no prompt")
        if self.lines and (self.interactive or several or picture.output is not None):
            raise InputError(
                "--lines gives one answer to every line;"
                " it does not go with --interactive, --num-return-sequences or -o"
            )
        fixed = self.prompt is not None or self.file is not None
        if self.interactive and (fixed or picture.as_json or several):
            raise InputError(
                "--interactive asks for its prompts;"
                " it takes no prompt, --file, --json or --num-return-sequences"
            )
        if self.interactive and self.no_stream:
            raise InputError("--no-stream does not go with --interactive, which shows answers as they come")
        if picture.output is not None and (self.interactive or several):
            raise InputError(
                "-o saves one answer; it does not go with --interactive or --num-return-sequences"
            )
        if picture.as_json:
            flags.refuse("no_echo", why="does not go with --json, whose text is always without the prompt")
        picture.check_format()


@dataclass(frozen=True)
class Shown:
    """A prompt, and what of it is printed: all, nothing, or of a few-shot prompt the question alone."""

    prompt: str
    text: str
    counts: dict[str, int]  # of examples, for --json


class Prompts:
    """Makes prompts: as they are given, or behind examples of the task."""

    def __init__(
        self, lm: "LanguageModel", examples: list[str], options: dict[str, Any], *, echo: bool
    ) -> None:
        self.lm, self.examples, self.echo = lm, examples, echo
        self.reserve = options.get("max_new_tokens", 0)

    def make(self, text: str) -> Shown:
        """The prompt of a text; which examples were dropped is said on stderr."""
        printed = text if self.echo else ""
        if not self.examples:
            return Shown(text, printed, {})
        from glassformer.tasks.few_shot import few_shot

        made = few_shot(self.lm, text, examples=self.examples, reserve=self.reserve)
        if made.dropped:
            log(made.summary())
        return Shown(made.prompt, printed, {"examples_used": made.used, "examples_dropped": made.dropped})


# The defaults in brackets are those of this package; a model's own generation_config.json goes before them.
@flags.verb
@flags.argument(
    "prompt",
    "The text to continue; '-' or a pipe reads stdin. None: generate without a prompt.",
    type=TEXT,
    required=False,
)
@flags.file
@option("-n", "--max-new-tokens", type=int, help="Generate at most N tokens. [384]")
@option("--min-new-tokens", type=int, help="Do not end before N tokens. [0]")
@option("--temperature", type=float, help="0 takes the likeliest token; higher is wilder. [0.7]")
@option("--top-k", type=int, help="Draw among the k likeliest tokens; 0: all. [40]")
@option("--top-p", type=float, help="Draw among the likeliest tokens that make up this share. [1.0]")
@option("--min-p", type=float, help="Draw among tokens with at least this share of the likeliest's. [0.0]")
@option("--repetition-penalty", type=float, help="Above 1: avoid tokens of prompt and answer. [1.0]")
@option("--presence-penalty", type=float, help="Above 0: avoid tokens of the answer. [0.0]")
@option("--frequency-penalty", type=float, help="Above 0: avoid frequent tokens of the answer. [0.0]")
@option("--logit-bias", multiple=True, help="ID=BIAS, added to a token's score; may be given several times.")
@option("-s", "--seed", type=int, help=SEED)
@option("--stop", multiple=True, type=TEXT, help="End before this text; may be given several times.")
@option("--num-return-sequences", type=int, help="Generate N answers. [1]")
@option("--num-beams", type=int, help="Beam search with N beams (no sampling); 1: off. [1]")
@option("--length-penalty", type=float, help="Beam search: above 0 favors long answers. [1.0]")
@option("--early-stopping/--no-early-stopping", default=None, help="Beam search: stop at enough answers.")
@option("--prompt-lookup-num-tokens", type=int, help=LOOKUP)
@switch("--slide", help="At the end of the context continue with its last half.")
@switch("--special", help="Read <|endoftext|> in the prompt as the token.")
@option("--examples", type=PATH, help="A file of examples of the task, put before the prompt (few-shot).")
@option("--edit", type=flags.EDITS, help=flags.EDIT)
@switch("-i", "--interactive", help="Ask for prompt after prompt.")
@switch("--lines", help="Every line of a file (-f) or a pipe is a prompt; one line each, in order.")
@switch("--no-echo", help="Print only what is new, without the prompt.")
@switch("--no-stream", help="Print the whole text at the end.")
@flags.loading_by_any_engine
@flags.picture(flags.output, flags.dark, flags.width, flags.png_scale, flags.as_json)
@flags.collect(Way, "way")
def generate(way: Way, loading: Loading, picture: Picture, **given: Any) -> None:
    """Continue a prompt, or generate without one.

    \b
    glass generate "Once upon a time"            a story, a new one each time
    glass generate -n 40 -s 7 "The dragon"       forty tokens, the same ones each time
    glass generate --temperature 0 "The cat"     always the likeliest token
    glass generate -m gpt2 --num-beams 4 "In a"  beam search with GPT-2
    echo "One day" | glass generate --json       prompt from a pipe, result as JSON
    glass generate --json "One day" | jq -r .text    only what is new, as --no-echo prints it
    glass generate -o story.svg "Once upon a"    also a picture: every token in the color of its probability
    glass generate --examples sums.txt "3 + 4 =" few-shot: examples first, as many as fit the context
    glass generate --interactive                 prompt after prompt
    glass generate --lines -f prompts.txt --json     every line a prompt, every answer a line of JSON

    What is not given is as the model's makers recommend (its generation_config.json), else as in [brackets].
    A file of examples is text with blank lines between them, or lines of JSON with a prompt and a completion;
    the answer then ends at the end of its line, unless --stop says where.

    --json prints an object, or with --num-return-sequences above 1 a list of them. Its text ends before a
    stop string; tokens, pieces and logprobs include those that it is made of; seconds is the time it took.
    -o x.json saves something else: the numbers of the picture, every token with its probability.

    --lines answers several prompts at once and prints as it goes. A line break in an answer is printed as a
    blank, except in JSON; an empty line stays one, in JSON null.
    """
    from glassformer.tasks.options import check_options

    options = options_of(given)
    # What is no option of choosing tokens.
    calls: dict[str, Any] = {key: options.pop(key) for key in ("special", "stop", "edits") if key in options}
    chosen = check_options(options)  # what is wrong is said before the model is loaded
    way.check(picture, several=chosen.num_return_sequences > 1)
    text = "" if way.interactive else flags.read_text(way.prompt, way.file)
    examples = _read_examples(way.examples, calls)

    lm = loading.load_language_model()
    chosen = lm.options(**options)
    _check_search(chosen.num_beams, has_examples=bool(examples))
    prompts = Prompts(lm, examples, options, echo=not way.no_echo)
    options |= calls
    whole = way.no_stream or picture.as_json or chosen.num_return_sequences > 1 or chosen.num_beams > 1
    if way.interactive:
        converse(prompts, options)
    elif way.lines:
        answer_lines(prompts, text, options=options, file=way.file, as_json=picture.as_json)
    elif whole:
        print_whole(prompts.make(text), lm, options=options, picture=picture)
    else:
        save(stream(prompts.make(text), lm, options=options), picture)


def _check_search(num_beams: int, *, has_examples: bool) -> None:
    """Refuse flags that have no meaning with beam search, or without it."""
    if num_beams == 1:
        flags.refuse("length_penalty", "early_stopping", why="is for beam search: it needs --num-beams")
        return
    if has_examples:
        raise InputError("--examples ends an answer at a line end, which beam search (--num-beams) cannot do")
    flags.refuse(*DRAWING, why="does not go with --num-beams: beam search neither draws nor drafts")


def options_of(given: dict[str, Any]) -> dict[str, Any]:
    """The options of a generation that a user gave; all others are as the model has them."""
    bias, slide, edit = given.pop("logit_bias"), given.pop("slide"), given.pop("edit")
    special, stop = given.pop("special"), given.pop("stop")
    options = {name: value for name, value in given.items() if value is not None}
    if special:
        options["special"] = True
    if stop:
        options["stop"] = stop
    if bias:
        options["logit_bias"] = parse_bias(bias)
    if slide:
        options["overflow"] = "slide"
    if edit is not None:
        options["edits"] = edit
    return options


def parse_bias(given: Sequence[str]) -> dict[int, float]:
    """`50256=-100` and the like."""
    bias = {}
    for pair in given:
        id, _, value = pair.partition("=")
        try:
            bias[flags.parse_whole(id)] = flags.parse_number(value)
        except ValueError:
            raise InputError(f"--logit-bias {pair[:40]!r} is not ID=BIAS, as in 50256=-100") from None
    return bias


def _read_examples(path: Path | None, calls: dict[str, Any]) -> list[str]:
    """The examples of a file; answers then end where an example does, unless other stops are given."""
    if path is None:
        return []
    from glassformer.tasks.few_shot import read_examples

    examples = read_examples(path)
    calls.setdefault("stop", ("\n",))
    return examples


def print_whole(shown: Shown, lm: "LanguageModel", *, options: dict[str, Any], picture: Picture) -> None:
    """Print answers when they are complete."""
    found = lm.generate_many([shown.prompt], **options)
    save(found[0], picture)
    if not picture.as_json:
        print(f"\n{RULE}\n".join(shown.text + one.text for one in found))
        full = [one for one in found if one.finish_reason == "context"]
        for one in full[:1]:
            report_end(one)
        return
    results = [as_data(one, shown) for one in found]
    print_json(results if len(results) > 1 else results[0])


def as_data(completion: "Completion", shown: Shown) -> dict[str, Any]:
    """What --json prints of an answer."""
    about = {"model": completion.lm.name, "seconds": round(completion.seconds, 4)}
    return completion.to_dict() | about | shown.counts


def answer_lines(
    prompts: Prompts, text: str, *, options: dict[str, Any], file: Path | None, as_json: bool
) -> None:
    """Continue every line, some at once, and print the answers in their order, one line each."""
    from glassformer.cli.progress import progress_bar

    lines = split_lines(text)
    if not any(line.strip() for line in lines):
        raise InputError("--lines: there is no prompt, every line is empty")
    # One seed for all: a line has the same answer as alone, whichever lines are around it.
    options = {"seed": int.from_bytes(os.urandom(4))} | options
    with progress_bar("generating") as progress:
        for start in range(0, len(lines), GROUP):
            group = lines[start : start + GROUP]
            for at, found in enumerate(_group(prompts, group, options)):
                if isinstance(found, InputError):
                    raise located(found, f"{file or 'stdin'}, line ", before=start + at)
                print(_line_of(found, as_json))
            sys.stdout.flush()
            progress(start + len(group), len(lines))


Answered = tuple[Shown, "Completion"]


def _group(
    prompts: Prompts, lines: list[str], options: dict[str, Any]
) -> "Iterator[Answered | InputError | None]":
    """The answers to some lines, None for an empty one; where one cannot be read, the error in its place."""
    made = [prompts.make(line) for line in lines if line.strip()]
    try:
        found = iter(prompts.lm.generate_many([one.prompt for one in made], **options))
    except InputError as error:
        if len(lines) == 1:
            yield error
            return
        for line in lines:  # alone, to find the one that is meant
            yield from _group(prompts, [line], options)
        return
    shown = iter(made)
    for line in lines:
        yield (next(shown), next(found)) if line.strip() else None


def _line_of(answered: Answered | None, as_json: bool) -> str:
    if answered is None:
        return "null" if as_json else ""
    shown, completion = answered
    if as_json:
        return json.dumps(as_data(completion, shown), ensure_ascii=False)
    return on_one_line(shown.text + completion.text)


def save(completion: "Completion", picture: Picture) -> None:
    """Save the picture of an answer, if one is wanted."""
    if picture.output is not None:
        save_answer(completion.probabilities(), picture)


def stream(shown: Shown, lm: "LanguageModel", *, options: dict[str, Any]) -> "Completion":
    """Print a text while it is generated; Ctrl-C keeps what was printed."""
    pieces = lm.stream(shown.prompt, **options)
    sys.stdout.write(shown.text)
    try:
        for piece in pieces:
            sys.stdout.write(piece)
            sys.stdout.flush()
    finally:
        sys.stdout.write("\n")
        sys.stdout.flush()

    report_end(pieces.completion)
    return pieces.completion


def report_end(completion: "Completion") -> None:
    """Say on stderr why a text ended, where that is not its own end."""
    tokens = counted(len(completion.tokens), "new token")
    if completion.finish_reason == "context":
        context = completion.lm.backend.context
        log(f"({tokens}, and the context of {context:,} is full; --slide continues with its last half)")
    elif completion.finish_reason == "length" and sys.stderr.isatty():
        log(f"({tokens}, seed {completion.seed}; -n asks for more)", style="dim")


def converse(prompts: Prompts, options: dict[str, Any]) -> None:
    """Prompt after prompt: an empty line generates without one, Ctrl-C ends one text, Ctrl-D ends it all."""
    lm = prompts.lm
    log(f"{lm.name}: type the beginning of a text; an empty line starts from nothing, Ctrl-D ends.")
    while True:
        try:
            sys.stderr.write("> ")
            sys.stderr.flush()
            line = sys.stdin.readline()
        except KeyboardInterrupt:
            line = ""
        if not line:
            sys.stderr.write("\n")
            return
        try:
            stream(prompts.make(line.rstrip("\r\n")), lm, options=options)
        except InputError as error:
            log(f"glass: {error}")
        except KeyboardInterrupt:
            log("(stopped)")
