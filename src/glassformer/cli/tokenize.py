"""glass tokenize"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glassformer.answers import ask
from glassformer.cli import flags
from glassformer.cli.flags import PATH, Loading, Picture, option, switch
from glassformer.cli.printing import print_answer, print_json, stdout
from glassformer.errors import InputError, counted

if TYPE_CHECKING:
    from glassformer.answers.tokens import MergedWord
    from glassformer.tokenizers import Tokenizer


@dataclass(frozen=True)
class Which:
    """What to show of a text's tokens."""

    ids: bool
    merges: bool
    special: bool
    embedding: bool

    def check(self, picture: Picture, given: dict[str, Any]) -> None:
        """Refuse flags that do not go together, before anything is loaded."""
        flags.one_question(
            {
                "--ids": self.ids,
                "--merges": self.merges,
                "--embedding": self.embedding,
                "--train": given["train"],
            }
        )
        if self.ids:
            flags.refuse("output", "as_json", why="does not go with --ids, which prints a line of numbers")
        if given["train"]:
            unused = ("text", "file", "special", "model", "revision", "as_json", "dark", "width")
            flags.refuse(*unused, why="does not go with --train, which makes a vocabulary")
            return
        flags.refuse("vocab", why="needs --train")
        picture.check()


@flags.verb
@flags.text
@flags.file
@switch("--ids", help="Print the ids alone, in one line.")
@switch("--merges", help="Show how the tokens are made, merge by merge.")
@switch("--special", help="Read <|endoftext|> as the token.")
@option(
    "--train",
    multiple=True,
    type=PATH,
    help="Train a new vocabulary on this text file; may be given several times.",
)
@option("--vocab", former=["--vocab-size"], default=4096, help="With --train: how many tokens it shall have.")
@switch("--embedding", former=["--vectors"], help="The row of each token + the row of its position.")
@option(
    "-o",
    "--output",
    type=PATH,
    help="Save a picture or numbers (.svg, .html, .csv …); with --train: a folder.",
)
@flags.loading(flags.model, flags.revision, flags.offline)
@flags.picture(flags.dark, flags.width, flags.png_scale, flags.as_json)
@flags.collect(Which, "which")
def tokenize(loading: Loading, picture: Picture, which: Which, **given: Any) -> None:
    """The tokens a text is made of.

    \b
    glass tokenize "unbelievable"                 each token with its id
    glass tokenize --merges "unbelievable"        the merges that made them, in order
    glass tokenize --merges -o merges.svg "unbelievable"   the same as a picture
    glass tokenize --embedding "unbelievable"     what goes into the first block
    glass tokenize -m gpt2 --ids "Hello world"    only the ids
    glass tokenize --train book.txt -o my-vocab   train a vocabulary on a text
    """
    from glassformer.tasks.tokenize import load_tokenizer

    which.check(picture, given)
    if given["train"]:
        train(list(given["train"]), given["vocab"], folder=picture.output)
        return
    text = flags.read_text(given["text"], given["file"])
    if which.embedding:
        lm = loading.load()
        print_answer(lm.embedding(lm.encode(text, special=which.special)), picture)
        return

    tokenizer = load_tokenizer(loading.model, revision=loading.revision, offline=loading.offline)
    if picture.output is not None:
        question = "merges" if which.merges else "tokens"
        answer = ask(question, tokenizer, text, special=which.special, model=loading.model)
        print_answer(answer, picture)
    elif picture.as_json:
        print_json(tokens_as_data(tokenizer, text, which=which))
    elif which.ids:
        print(*tokenizer.encode(text, special=which.special))
    elif which.merges:
        print_merges(tokenizer, text, special=which.special)
    else:
        print_tokens(tokenizer, text, special=which.special)


def tokens_as_data(tokenizer: "Tokenizer", text: str, *, which: Which) -> dict[str, Any]:
    """What --json prints."""
    from glassformer.answers.tokens import merged

    ids = tokenizer.encode(text, special=which.special)
    data: dict[str, Any] = {"tokens": [{"id": id, "text": tokenizer.decode([id])} for id in ids]}
    if which.merges:
        # In the symbols of the vocabulary, as tokenizer.json has them.
        words = [merged(word, shown=str) for word in tokenizer.watch(text, special=which.special)]
        data["merges"] = [word_as_data(word) for word in words]
    return data


def word_as_data(word: "MergedWord") -> dict[str, Any]:
    """A word with its merges, for --json."""
    steps = [{"pair": one.pair, "rank": one.rank, "pieces": one.pieces} for one in word.merges]
    return {
        "symbols": word.text,
        "steps": steps,
        "omitted": word.omitted,
        "pieces": word.pieces,
        "ids": word.ids,
    }


def print_tokens(tokenizer: "Tokenizer", text: str, *, special: bool) -> None:
    """The text with its tokens in brackets, then each with its id."""
    from glassformer.answers.answer import labels
    from glassformer.answers.tokens import split_characters
    from glassformer.figures.labels import cells, visible_start

    ids = tokenizer.encode(text, special=special)
    parts = split_characters(tokenizer, ids)
    shown = [visible_start(token) for token in labels(tokenizer, ids)]
    console = stdout()
    console.print("".join(f"[{token}]" for token in shown))
    console.print(f"{counted(len(ids), 'token')}, {counted(len(text.encode('utf-8', 'replace')), 'byte')}")
    wide = max((cells(token) for token, part in zip(shown, parts, strict=True) if part), default=0)
    for id, token, part in zip(ids, shown, parts, strict=True):
        padded = token + " " * (wide - cells(token))
        console.print(f"{id:>7}  {padded}  {part}" if part else f"{id:>7}  {token}")


def print_merges(tokenizer: "Tokenizer", text: str, *, special: bool) -> None:
    """Every word from its bytes to its ids, merge by merge."""
    from glassformer.answers.tokens import merged
    from glassformer.figures.labels import visible

    console = stdout()
    for watched in tokenizer.watch(text, special=special):
        word = merged(watched, shown=tokenizer.shown)
        console.print(" ".join(map(visible, word.start)))
        for merge in word.merges:
            left, right = map(visible, merge.pair)
            pieces = " ".join(map(visible, merge.pieces))
            console.print(f"  rank {merge.rank:>6}  {left} + {right}  →  {pieces}")
        if word.omitted:
            console.print(f"  … and {counted(word.omitted, 'more merge')}")
        console.print(f"  = {' '.join(map(str, word.ids))}")


def train(files: list[Path], vocab_size: int, *, folder: Path | None) -> None:
    """Train a vocabulary, with a progress bar."""
    from glassformer.cli.progress import progress_bar
    from glassformer.tasks import tokenize as task

    if folder is None:
        raise InputError("--train needs -o FOLDER, the place for the new tokenizer.json")
    missing = next((path for path in files if not path.is_file()), None)
    if missing is not None:
        raise InputError(f"there is no file {missing}")

    total = sum(path.stat().st_size for path in files)
    done = 0
    with progress_bar("reading") as progress:

        def advance(size: int) -> None:
            nonlocal done
            done += size
            progress(done, total)

        made = task.train(files, vocab_size, folder=folder, progress=advance)

    fewer = ""
    if len(made) < vocab_size:
        fewer = f"; the text has no more pairs to merge, so it is fewer than {vocab_size:,}"
    sizes = f"{counted(len(made), 'token')}, {counted(len(made.merges), 'merge')}"
    print(f"{folder / 'tokenizer.json'}: {sizes}{fewer}")
