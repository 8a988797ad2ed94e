"""Language modeling: a decoder learns to predict the next token of a text."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glassformer import machine
from glassformer.data.batches import Stream, in_order
from glassformer.data.shards import Corpus, prepare
from glassformer.data.sources import find_files, read_pieces
from glassformer.durable import hash_json
from glassformer.errors import InputError, counted
from glassformer.hub.families import family
from glassformer.tasks.complete import LanguageModel
from glassformer.tasks.evaluate import CARD_DIGITS
from glassformer.tasks.jobs import Progress
from glassformer.tasks.recipe import Recipe, Text
from glassformer.tasks.training_job import TrainingJob, named_vocabulary, own_vocabulary
from glassformer.tokenizers import Tokenizer
from glassformer.training.loop import HeldOut, Objective
from glassformer.training.objectives import next_token

if TYPE_CHECKING:
    from glassformer.nn.net import Net

CHARACTERS = 200_000_000  # of each source, from which a vocabulary is learned
ID_SIZE = 8  # bytes of a token in a batch
ROW = 256  # tokens of a row for a model that reads rows of any length


@dataclass(frozen=True)
class LanguageModeling(TrainingJob):
    """Train a decoder on text: a job (see tasks/jobs.py)."""

    corpora: list[Corpus]
    validation: list[Corpus]  # what is evaluated on in place of held-out parts of them

    @classmethod
    def prepare(cls, recipe: Recipe, out: Path, *, offline: bool, progress: Progress) -> "LanguageModeling":
        """Find or learn the vocabulary, and tokenize the text."""
        tokenizer = _tokenizer(recipe, out, offline=offline, progress=progress)
        text = _section(recipe)

        def prepared(source: str, held_out: float) -> Corpus:
            shown = partial(progress, f"tokenizing {Path(source).name}")
            return prepare(Path(source), tokenizer, held_out=held_out, field=text.field, progress=shown)

        corpora = [prepared(source, 0.0 if text.validation else text.held_out) for source in text.data]
        validation = [prepared(source, 0.0) for source in text.validation]
        return cls(recipe, tokenizer, offline, corpora, validation)

    def describe_data(self) -> list[str]:
        """What it is trained on: a line for each source."""
        return [_describe(corpus) for corpus in self.corpora] + [
            f"{_describe(corpus)}; evaluated on" for corpus in self.validation
        ]

    @property
    def objective(self) -> Objective:
        """Cross-entropy of every next token."""
        return next_token

    def batches(self, net: "Net") -> Stream:
        """Shuffled windows of the text, of the model's context or shorter."""
        self._check_step(net)
        text = _section(self.recipe)
        return Stream(
            [corpus.train for corpus in self.corpora],
            context=self._window(net),
            seed=self.recipe.train.seed,
            weights=text.weights,
            beginning=self._beginning,
            names=text.data,
        )

    @property
    def _beginning(self) -> int | None:
        """The token that windows begin with, where they begin with documents."""
        return self.tokenizer.end if _section(self.recipe).aligned else None

    def _check_step(self, net: "Net") -> None:
        """Refuse a step whose tokens and logits alone would not fit in memory."""
        train, window = self.recipe.train, self._window(net)
        at_once = min(train.batch, train.micro_batch or train.batch)
        tokens = train.batch * (window + 1) * ID_SIZE
        logits = at_once * window * net.vocab * self.dtype.itemsize
        # Under torchrun, each process has its share.
        share = int(os.environ.get("WORLD_SIZE", "1"))
        machine.check_memory((tokens + logits) // share, what=f"a step of batch = {train.batch:,} rows")

    def held_out(self, net: "Net", *, rows: int) -> HeldOut | None:
        """The held-out text in order, or an even selection of `eval_tokens` of it."""
        held_out = self._held_out_rows()
        if not held_out:
            return None
        tokens = self.recipe.evaluation.eval_tokens
        window, begins = self._window(net), self._beginning
        return partial(in_order, held_out, context=window, batch=rows, tokens=tokens, beginning=begins)

    def _held_out_rows(self) -> list[Any]:
        parts = [corpus.held_out for corpus in self.corpora]
        rows = [corpus.train for corpus in self.validation] or parts
        return [row for row in rows if row is not None and len(row) > 1]  # a single token has no next one

    def _window(self, net: "Net") -> int:
        window = self.recipe.train.window or net.context or ROW
        if net.context is not None and window > net.context:
            raise InputError(f"window: {window} tokens are more than the model's context of {net.context}")
        return window

    def identity(self) -> dict[str, Any]:
        """The hash of all tokens, and of how they are divided."""
        digests = [corpus.digest for corpus in [*self.corpora, *self.validation]]
        return {"text (sha256)": hash_json(digests)}

    def sizes(self) -> tuple[int, int]:
        """Tokens to learn from, and tokens held out."""
        learned = sum(len(corpus.train) for corpus in self.corpora)
        return learned, sum(map(len, self._held_out_rows()))

    def check_preview(self, net: "Net") -> None:
        """Refuse a prompt that fills the context."""
        show = self.recipe.show
        if not show.preview_tokens or net.context is None:
            return
        if len(self.tokenizer.encode(show.preview)) >= net.context:
            raise InputError(f"preview: the text leaves no room in a context of {net.context} tokens")

    def preview(self, net: Any) -> str:
        """The prompt, continued by the model."""
        show = self.recipe.show
        tokens = show.preview_tokens
        if net.context is not None:
            used = max(
                1, len(self.tokenizer.encode(show.preview))
            )  # an empty prompt begins with the end token
            tokens = min(tokens, net.context - used)
        out = LanguageModel(net, self.tokenizer).generate(show.preview, max_new_tokens=tokens, seed=0)
        return show.preview + out.text


def _describe(corpus: Corpus) -> str:
    hashes = ", ".join(hash[:CARD_DIGITS] for hash in corpus.notes["sha256"][:8])
    return (
        f"- `{Path(corpus.notes['source']).name}`: {counted(corpus.notes['documents'], 'document')},"
        f" {counted(len(corpus.train), 'token')} to learn from, {len(corpus.held_out or ()):,} held out;"
        f" sha256 {hashes}"
    )


def _tokenizer(recipe: Recipe, out: Path, *, offline: bool, progress: Progress) -> Tokenizer:
    """The vocabulary: the base's, or a named model's, or a new one, learned from the text once."""
    name = recipe.model.base or recipe.text.tokenizer
    if name:
        return named_vocabulary(name, offline=offline)
    text = _section(recipe)
    sources = [find_files(Path(source)) for source in text.data]
    stats = [[file.name, file.stat().st_size] for files in sources for file in files]
    wanted = hash_json([text.vocab, text.field, stats])
    return own_vocabulary(out, wanted, learn=lambda: _learn_vocabulary(recipe, sources, progress))


def _section(recipe: Recipe) -> Text:
    assert isinstance(recipe.text, Text)  # as recipes of these families have it
    return recipe.text


def _learn_vocabulary(recipe: Recipe, sources: list[list[Path]], progress: Progress) -> Tokenizer:
    sizes = [sum(file.stat().st_size for file in files) for files in sources]
    total = sum(min(CHARACTERS, size) for size in sizes)
    done = 0

    def count(characters: int) -> None:
        nonlocal done
        done += characters
        progress("learning the vocabulary", done, max(done, total))

    field = _section(recipe).field
    texts = (text for files in sources for text in _first_texts(files, field))
    return family(recipe.model.kind).train_tokenizer(texts, recipe.text.vocab, progress=count)


def _first_texts(files: list[Path], field: str) -> Iterator[str]:
    """The texts of a source, up to as many characters as a vocabulary needs."""
    taken = 0
    for file in files:
        for piece in read_pieces(file, field=field):
            yield piece.text
            taken += len(piece.text)
            if taken > CHARACTERS:
                return
