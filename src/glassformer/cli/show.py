"""glass show"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glassformer.answers import ask
from glassformer.cli import flags
from glassformer.cli.flags import DEFAULT_MODEL, TEXT, Loading, Picture, option, switch
from glassformer.cli.printing import out, print_answer, print_json, size
from glassformer.errors import InputError, counted

if TYPE_CHECKING:
    from glassformer.answers.answer import Answer
    from glassformer.hub.lora import AdapterSummary
    from glassformer.tasks.library import ModelSummary, PartSummary, TensorSummary

GPT2_SMALL = 124_439_808
NOTE_124M = """
Why 124M and not 117M: OpenAI's first release note and the paper's table say 117M, a miscount that was
corrected later. Counted, it is 124,439,808: 12 blocks of 7,087,872, a token matrix of
50,257 × 768, a position matrix of 1,024 × 768 and the last layer norm. The output matrix is the token matrix
once more and counts once. (The Illustrated GPT-2's own table sums to 124,410,624: it gives the feed-forward
layer's first bias as 768 instead of 3,072 in each block, and leaves out the last layer norm.)"""


@dataclass(frozen=True)
class Which:
    """What to show of a model instead of its parameters."""

    curve: bool
    training_rows: tuple[str, ...]
    window: int
    target: tuple[str, ...]
    to: str | None
    update: str | None
    lr: float
    shapes: bool


@flags.verb
@flags.model_argument(
    "A shipped name, a folder, a hub id or a name from `glass models`.", default=DEFAULT_MODEL
)
@switch("--curve", help="Instead: the loss of a training (its folder or metrics.jsonl).")
@option(
    "--training-rows",
    type=TEXT,
    multiple=True,
    help="Instead: the rows of features and label that this text becomes; repeatable with --target.",
)
@option("--window", default=8, help="With --training-rows: at most N tokens before each label.")
@option(
    "--target",
    type=TEXT,
    multiple=True,
    help="With --training-rows: the text is a source, and this its target; one for each text.",
)
@option("--to", help="With --target: the language of every target, for a vocabulary of several tags.")
@option("--update", type=TEXT, help="Instead: one training step toward this text's last token, in numbers.")
@option("--lr", default=0.001, help="With --update: the learning rate.")
@switch("--shapes", help="Instead, of no model: the four shapes of recurrent networks, unrolled.")
@flags.loading(flags.revision, flags.offline)
@flags.picture(flags.output, flags.dark, flags.width, flags.png_scale, flags.as_json)
@flags.collect(Which, "which")
def show(loading: Loading, picture: Picture, which: Which) -> None:
    """A model's parameters: per tensor, per block, in total, counted from its file.

    A published size (gpt2 … gpt2-xl, gpt1, gpt3-small … gpt3-175b) needs no file.

    \b
    glass show                    the model that ships
    glass show gpt2               GPT-2 small, and why it says 124M and not 117M
    glass show -o parameters.svg  a picture of where they are
    glass show --curve runs/mine  how a training went; with -o as a picture
    glass show --training-rows "A robot must obey"    features and label, as training sees a text
    glass show runs/decoder --training-rows "I am a student" --target "je suis étudiant" --to fr    a pair
    glass show --update "The cat sat. The cat"        one update: predict, error, weights, predict again
    glass show --shapes           one to many, many to one, many to many: shapes of recurrent networks
    """
    from glassformer.tasks import library

    picture.check()
    if not which.training_rows:
        flags.refuse("window", "target", why="needs --training-rows")
    if not which.target:
        flags.refuse("to", why="needs --target")
    else:
        flags.refuse("window", why="is for a text without a target, which has no window")
    if which.update is None:
        flags.refuse("lr", why="needs --update")
    questions = {"--curve": which.curve, "--training-rows": which.training_rows, "--update": which.update}
    flags.one_question(questions | {"--shapes": which.shapes})
    if which.shapes:
        flags.refuse("model", "model_flag", why="does not go with --shapes, which needs no model")
    answer = about_training(loading, which)
    if answer is not None:
        print_answer(answer, picture)
        return

    how: dict[str, Any] = {"revision": loading.revision, "offline": loading.offline}
    adapter = library.describe_adapter(loading.model, **how)
    if adapter is not None:
        print_adapter(adapter, picture)
        return
    summary = library.describe(loading.model, **how)
    if picture.output is not None:
        print_answer(ask("parameters", summary), picture)
    elif picture.as_json:
        print_json(summary.to_dict())
    else:
        print_parameters(loading.model, summary)


def about_training(loading: Loading, which: Which) -> "Answer | None":
    """The answer to a question about training, or to that of shapes, if one is asked."""
    if which.shapes:
        from glassformer.tasks.shapes import shapes

        return shapes()
    if which.curve:
        return ask("curve", [metrics_of(loading.model)])
    if which.target:
        texts, targets = len(which.training_rows), len(which.target)
        if texts != targets:
            raise InputError(
                f"--training-rows and --target come in pairs, and there are {texts} of the one and"
                f" {targets} of the other"
            )
        pairs = list(zip(which.training_rows, which.target, strict=True))
        return loading.load().pair_rows(pairs, to=which.to)
    if which.training_rows:
        if len(which.training_rows) > 1:
            raise InputError("--training-rows takes one text, or several with a --target each")
        from glassformer.tasks.tokenize import load_tokenizer

        tokenizer = load_tokenizer(loading.model, revision=loading.revision, offline=loading.offline)
        (text,) = which.training_rows
        return ask("training_rows", tokenizer, text, window=which.window, model=loading.model)
    if which.update is not None:
        return loading.load().update(which.update, lr=which.lr)
    return None


def metrics_of(name: str) -> Path:
    """The log of a training: the file itself, or the one in its folder."""
    path = Path(name)
    file = path / "metrics.jsonl" if path.is_dir() else path
    if not file.is_file():
        raise InputError(f"{file}: there is no such log of a training")
    return file


def print_adapter(summary: "AdapterSummary", picture: Picture) -> None:
    """What a LoRA folder adapts, and how."""
    if picture.output is not None:
        raise InputError(
            f"{summary.folder} is a LoRA folder; a picture of the parameters is of its base: {summary.base}"
        )
    if picture.as_json:
        print_json({**vars(summary), "folder": str(summary.folder)})
        return
    layers = ", ".join(f"{name} ({count})" for name, count in summary.layers.items())
    out(
        f"LoRA matrices for {summary.base}  ({summary.folder})",
        "",
        f"rank        {summary.rank}",
        f"alpha       {summary.alpha:g}",
        f"layers      {layers}",
        f"parameters  {summary.parameters:,}",
        "",
        f"The parameters of its base: glass show {summary.base}",
    )


def print_parameters(name: str, summary: "ModelSummary") -> None:
    """Every tensor outside of the blocks, one block of every stack, and the total."""
    width = max(len(tensor.name) for part in summary.parts for tensor in part.tensors) + 2
    out(f"{name}  ({summary.folder or 'not on this machine: counted from its published sizes'})", "")
    for part in summary.parts:
        if part.stack:
            print_stack(part, width)
        else:
            out(*(line_of(tensor, width) for tensor in part.tensors))
    out(f"{'total':<{width + 18}}{summary.total:>15,}")
    if summary.folder is not None:
        out("", f"{size(summary.size)} on disk, {summary.dtype}")
    if summary.total == GPT2_SMALL:
        out(NOTE_124M)


def print_stack(stack: "PartSummary", width: int) -> None:
    """The tensors of one block, and how many parameters one block and all blocks have."""
    blocks = counted(stack.blocks, "block")
    title = blocks if stack.stack == "blocks" else f"{stack.stack}: {blocks}"
    out(f"{title}, each:")
    out(*("  " + line_of(tensor, width - 2) for tensor in stack.tensors))
    out(f"  {'one block':<{width + 16}}{stack.block_total:>15,}")
    out(f"{title:<{width + 18}}{stack.block_total * stack.blocks:>15,}")


def line_of(tensor: "TensorSummary", width: int) -> str:
    """Name, shape and number of a tensor's parameters."""
    shape = " × ".join(f"{n:,}" for n in tensor.shape)
    return f"{tensor.name:<{width}}{shape:>18}{tensor.parameters:>15,}"
