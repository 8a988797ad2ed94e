"""glass generate"""

import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glassformer.cli.options import (
    DEFAULT_MODEL,
    Dark,
    Device,
    Dtype,
    Engine,
    File,
    Json,
    Model,
    Offline,
    Output,
    Revision,
    Width,
    log,
    print_json,
    read_prompt,
)
from glassformer.errors import InputError

if TYPE_CHECKING:
    from glassformer.tasks.complete import LanguageModel
    from glassformer.tasks.written import Completion


def generate(
    prompt: Annotated[
        str | None, typer.Argument(help="The text to continue; '-' or a pipe reads stdin. None: ramble.")
    ] = None,
    model: Model = DEFAULT_MODEL,
    file: File = None,
    max_new_tokens: Annotated[
        int, typer.Option("-n", "--max-new-tokens", help="Write at most so many tokens.")
    ] = 384,
    min_new_tokens: Annotated[int, typer.Option(help="Do not end before so many tokens.")] = 0,
    temperature: Annotated[float, typer.Option(help="0 takes the likeliest token; higher is wilder.")] = 0.7,
    top_k: Annotated[int, typer.Option(help="Draw among the k likeliest tokens; 0: all.")] = 40,
    top_p: Annotated[
        float, typer.Option(help="Draw among the likeliest tokens that make up this share.")
    ] = 1.0,
    min_p: Annotated[
        float, typer.Option(help="Draw among tokens at least so likely as this share of the likeliest.")
    ] = 0.0,
    repetition_penalty: Annotated[
        float, typer.Option(help="Above 1: shun what stands in prompt or answer.")
    ] = 1.0,
    presence_penalty: Annotated[float, typer.Option(help="Above 0: shun what stands in the answer.")] = 0.0,
    frequency_penalty: Annotated[
        float, typer.Option(help="Above 0: shun what stands often in the answer.")
    ] = 0.0,
    logit_bias: Annotated[
        list[str] | None, typer.Option(help="ID=BIAS, added to a token's score; repeatable.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option("-s", "--seed", help="Same seed, same text. None: a new one each time.")
    ] = None,
    stop: Annotated[list[str] | None, typer.Option(help="End before this text; repeatable.")] = None,
    num_return_sequences: Annotated[int, typer.Option("--num-return-sequences", help="So many answers.")] = 1,
    num_beams: Annotated[int, typer.Option(help="Beam search with so many beams (no sampling); 1: off.")] = 1,
    length_penalty: Annotated[float, typer.Option(help="Beam search: above 0 favours long answers.")] = 1.0,
    early_stopping: Annotated[
        bool, typer.Option("--early-stopping", help="Beam search: stop at enough answers.")
    ] = False,
    slide: Annotated[
        bool, typer.Option("--slide", help="At the context's edge go on over its last half.")
    ] = False,
    special: Annotated[
        bool, typer.Option("--special", help="Read <|endoftext|> in the prompt as the token.")
    ] = False,
    edit: Annotated[
        Path | None, typer.Option(help="A file of edits to make to the model first; see glass edit.")
    ] = None,
    interactive: Annotated[
        bool, typer.Option("-i", "--interactive", help="Ask for prompt after prompt.")
    ] = False,
    no_stream: Annotated[bool, typer.Option("--no-stream", help="Print the whole text at the end.")] = False,
    engine: Engine = "auto",
    device: Device = "cpu",
    dtype: Dtype = "float32",
    revision: Revision = None,
    offline: Offline = False,
    output: Output = None,
    dark: Dark = False,
    width: Width = 960,
    as_json: Json = False,
) -> None:
    """Write on from a prompt, or from nothing.

    \b
    glass generate "Once upon a time"            a story, a new one each time
    glass generate -n 40 -s 7 "The dragon"       forty tokens, the same ones each time
    glass generate --temperature 0 "The cat"     always the likeliest token
    glass generate -m gpt2 --num-beams 4 "In a"  beam search with GPT-2
    echo "One day" | glass generate --json       prompt from a pipe, result as JSON
    glass generate -o story.svg "Once upon a"    also a picture: every token in the color of its probability
    glass generate --interactive                 prompt after prompt
    """
    if interactive and (prompt is not None or file is not None or as_json or num_return_sequences > 1):
        raise InputError(
            "--interactive asks for its prompts; it takes no prompt, --file, --json or --num-return-sequences"
        )
    if output is not None and (interactive or num_return_sequences > 1):
        raise InputError("-o saves one answer; it does not go with --interactive or --num-return-sequences")
    if output is not None:
        check_file(output)
    options: dict[str, Any] = {
        "max_new_tokens": max_new_tokens, "min_new_tokens": min_new_tokens, "temperature": temperature, "top_k": top_k,
        "top_p": top_p, "min_p": min_p, "repetition_penalty": repetition_penalty, "presence_penalty": presence_penalty,
        "frequency_penalty": frequency_penalty, "logit_bias": parse_bias(logit_bias or []), "seed": seed,
        "num_beams": num_beams, "length_penalty": length_penalty, "early_stopping": early_stopping,
        "overflow": "slide" if slide else "stop", "special": special, "stop": tuple(stop or ()),
    }  # fmt: skip
    text = None if interactive else read_prompt(prompt, file)
    from glassformer.tasks.complete import check_options
    from glassformer.tasks.load import load

    knobs = {key: value for key, value in options.items() if key not in ("special", "stop")}
    check_options(
        knobs | {"seed": seed or 0, "num_return_sequences": num_return_sequences}
    )  # complain before loading
    lm = load(
        model,
        engine=engine,
        revision=revision,
        device=device,
        dtype=dtype,
        offline=offline,
        say=lambda text: log().print(text),
    )
    with lm.edit(edit) if edit is not None else nullcontext():
        if interactive:
            converse(lm, options)
        elif num_return_sequences > 1 or as_json or no_stream or num_beams > 1:
            found = lm.generate_many([text or ""], num_return_sequences=num_return_sequences, **options)
            if output is not None:
                save(found[0], output, dark=dark, width=width)
            if as_json:
                print_json(
                    [one.to_dict() for one in found] if num_return_sequences > 1 else found[0].to_dict()
                )
            else:
                print(f"\n{'─' * 20}\n".join(map(str, found)))
        else:
            written = show(lm, text or "", options)
            if output is not None:
                save(written, output, dark=dark, width=width)


def check_file(output: Path) -> None:
    """Complain about a file that cannot be, before anything is done."""
    from glassformer.cli.asked import check_file

    check_file(output)


def save(written: "Completion", output: Path, **how: Any) -> None:
    """Save the picture of an answer."""
    from glassformer.cli.asked import answer

    answer(written.probabilities(), False, output, **how)


def show(lm: "LanguageModel", prompt: str, options: dict[str, Any]) -> "Completion":
    """Print a text while it is written; Ctrl-C keeps what is there."""
    stream = lm.stream(prompt, **options)
    sys.stdout.write(prompt)
    try:
        for piece in stream:
            sys.stdout.write(piece)
            sys.stdout.flush()
    finally:
        sys.stdout.write("\n")
        sys.stdout.flush()
    if stream.completion.finish_reason == "length" and sys.stderr.isatty():
        log().print(
            f"({len(stream.completion.tokens)} tokens, seed {stream.completion.seed}; -n asks for more)",
            style="dim",
        )
    return stream.completion


def converse(lm: "LanguageModel", options: dict[str, Any]) -> None:
    """Prompt after prompt: an empty line rambles, Ctrl-C ends one text, Ctrl-D ends it all."""
    log().print(f"{lm.name}: type the beginning of a text; an empty line starts from nothing, Ctrl-D ends.")
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
            show(lm, line.rstrip("\r\n"), options)
        except InputError as error:
            log().print(f"glass: {error}")
        except KeyboardInterrupt:
            log().print("(stopped)")


def parse_bias(given: Sequence[str]) -> dict[int, float]:
    """`50256=-100` and the like."""
    bias = {}
    for pair in given:
        id, _, value = pair.partition("=")
        try:
            bias[int(id)] = float(value)
        except ValueError:
            raise InputError(f"--logit-bias {pair!r} is not ID=BIAS, as in 50256=-100") from None
    return bias
