"""Language modeling: a decoder learns to predict the next token of a text."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from filelock import FileLock

from glassformer import machine
from glassformer.data.batches import Stream, in_order
from glassformer.data.shards import Corpus, prepare
from glassformer.data.sources import find_files, read_pieces
from glassformer.durable import hash_json, remove_leftovers, replace_file
from glassformer.errors import InputError, counted
from glassformer.hub.families import family
from glassformer.hub.folder import load_folder, parse_dtype, save_folder
from glassformer.hub.locate import locate, shipped
from glassformer.hub.lora import LoraWeights, is_adapter, save_adapter
from glassformer.hub.vocabulary import load_tokenizer
from glassformer.tasks.complete import LanguageModel
from glassformer.tasks.evaluate import CARD_DIGITS
from glassformer.tasks.jobs import Progress
from glassformer.tasks.load import base_of, load_adapted
from glassformer.tasks.recipe import Recipe
from glassformer.tokenizers import Tokenizer
from glassformer.training.loop import HeldOut, Objective
from glassformer.training.lora import adapted_layers, attach
from glassformer.training.objectives import next_token
from glassformer.training.optim import freeze

if TYPE_CHECKING:
    from glassformer.nn.net import Net

VOCABULARY, VOCABULARY_NOTE = "tokenizer.json", "vocabulary.sha256"
CHARACTERS = 200_000_000  # of each source, from which a vocabulary is learned
ID_SIZE = 8  # bytes of a token in a batch
ROW = 256  # tokens of a row for a model that reads rows of any length


@dataclass(frozen=True)
class LanguageModeling:
    """Train a decoder on text: a job (see tasks/jobs.py)."""

    recipe: Recipe
    tokenizer: Tokenizer
    corpora: list[Corpus]
    offline: bool

    @classmethod
    def prepare(cls, recipe: Recipe, out: Path, *, offline: bool, progress: Progress) -> "LanguageModeling":
        """Find or learn the vocabulary, and tokenize the text."""
        tokenizer = _tokenizer(recipe, out, offline=offline, progress=progress)
        corpora = [
            prepare(
                Path(source),
                tokenizer,
                held_out=recipe.text.held_out,
                field=recipe.text.field,
                progress=partial(progress, f"tokenizing {Path(source).name}"),
            )
            for source in recipe.text.data
        ]
        return cls(recipe, tokenizer, corpora, offline)

    def with_recipe(self, recipe: Recipe) -> "LanguageModeling":
        """The same job after the recipe was settled."""
        return replace(self, recipe=recipe)

    @property
    def objective(self) -> Objective:
        """Cross-entropy of every next token."""
        return next_token

    def build(self, device: torch.device) -> "Net":
        """The model before the first step, the same one every time."""
        lora, seed = self.recipe.lora, self.recipe.train.seed
        net = self._base() if self.recipe.model.base else self._new()
        if lora.rank:
            attach(
                net,
                lora.targets,
                rank=lora.rank,
                scale=lora.alpha / lora.rank,
                dropout=lora.lora_dropout,
                seed=seed,
            )
        freeze(net, self.recipe.model.freeze)
        return net.to(device)

    def _new(self) -> "Net":
        shape, dtype = self.recipe.model, self._dtype()
        kind = family(shape.kind)
        keys = {one.name for one in fields(kind.config)} & {one.name for one in fields(shape)}
        config = kind.config(**{key: getattr(shape, key) for key in keys}, vocab=len(self.tokenizer))

        # Four numbers for each parameter: itself, its gradient, and the optimizer's two.
        needed = 4 * config.parameters * dtype.itemsize
        machine.check_memory(needed, what=f"training {config.parameters:,} parameters")
        return kind.build(config).initialize(self.recipe.train.seed).to(dtype)

    def _base(self) -> "Net":
        name = self.recipe.model.base
        folder = locate(name, offline=self.offline)
        dropout = getattr(self.recipe.model, "dropout", 0.0)  # some kinds have none
        how: dict[str, Any] = {"dtype": self._dtype(), "dropout": dropout}
        if not is_adapter(folder):
            net = load_folder(folder, **how).model
        elif self.recipe.lora.rank:
            raise InputError(
                f"{name} is a LoRA folder, and LoRA beside LoRA cannot be kept;"
                " train without it, or merge first"
            )
        else:
            net = load_adapted(folder, offline=self.offline, **how).model
        for parameter in net.parameters():
            # One layout in memory, whatever the file had: sums run in the same order, the same bits at every
            # start.
            parameter.data = parameter.data.contiguous()
        return net

    def _dtype(self) -> torch.dtype:
        return parse_dtype("float64" if self.recipe.train.precision == "float64" else "float32")

    def batches(self, net: "Net") -> Stream:
        """Shuffled windows of the text, of the model's context or shorter."""
        self._check_step(net)
        return Stream(
            [corpus.train for corpus in self.corpora],
            context=self._window(net),
            seed=self.recipe.train.seed,
            weights=self.recipe.text.weights,
            beginning=self.tokenizer.end if self.recipe.text.aligned else None,
            names=self.recipe.text.data,
        )

    def _check_step(self, net: "Net") -> None:
        """Refuse a step whose tokens and logits alone would not fit in memory."""
        train, window = self.recipe.train, self._window(net)
        at_once = min(train.batch, train.micro_batch or train.batch)
        tokens = train.batch * (window + 1) * ID_SIZE
        logits = at_once * window * net.vocab * self._dtype().itemsize
        # Under torchrun, each process has its share.
        share = int(os.environ.get("WORLD_SIZE", "1"))
        machine.check_memory((tokens + logits) // share, what=f"a step of batch = {train.batch:,} rows")

    def held_out(self, net: "Net", *, rows: int) -> HeldOut | None:
        """The held-out text in order, or an even selection of `eval_tokens` of it."""
        held_out = self._held_out_rows()
        if not held_out:
            return None
        tokens = self.recipe.evaluation.eval_tokens
        return partial(in_order, held_out, context=self._window(net), batch=rows, tokens=tokens)

    def _held_out_rows(self) -> list[Any]:
        rows = [corpus.held_out for corpus in self.corpora]
        return [row for row in rows if row is not None and len(row) > 1]  # a single token has no next one

    def _window(self, net: "Net") -> int:
        window = self.recipe.train.window or net.context or ROW
        if net.context is not None and window > net.context:
            raise InputError(f"window: {window} tokens are more than the model's context of {net.context}")
        return window

    def identity(self) -> dict[str, Any]:
        """The hash of all tokens, and of how they are divided."""
        return {"text (sha256)": hash_json([corpus.digest for corpus in self.corpora])}

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

    def export(self, folder: Path, net: "Net", *, about: str) -> None:
        """Write the model, or what LoRA learned, as a folder that `glass generate` loads."""
        remove_leftovers(folder)
        card = self._card(folder.parent.name, about)
        if not self.recipe.lora.rank:
            save_folder(folder, net, tokenizer=self.tokenizer, card=card)
            return
        layers = adapted_layers(net)
        weights = {name: LoraWeights(layer.lora_a, layer.lora_b, layer.scale) for name, layer in layers}
        base = self.recipe.model.base
        if Path(base).is_dir() and not shipped(base):
            base = str(locate(base).resolve())
        dropout = self.recipe.lora.lora_dropout
        save_adapter(folder, weights, base=base, family=family(net.kind), dropout=dropout, card=card)

    def _card(self, name: str, about: str) -> str:
        lines = [f"# {name}", "", f"Trained by Glassformer. {about}"]
        lines += ["", "## Text", "", *map(_describe, self.corpora)]
        lines += ["", "## Recipe", "", "```toml", _portable(self.recipe).to_toml().rstrip(), "```", ""]
        return "\n".join(lines)


def _portable(recipe: Recipe) -> Recipe:
    """A recipe without the folders of this machine: a card may be published."""
    data = [Path(source).name for source in recipe.text.data]
    base = recipe.model.base
    return recipe.changed(data=data, base=Path(base).name if Path(base).is_absolute() else base)


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
    if not name:
        return _own_vocabulary(recipe, out, progress)
    folder = locate(name, offline=offline)
    if recipe.model.base:
        folder = base_of(folder, offline=offline)  # a LoRA folder has its base's vocabulary
    found = load_tokenizer(folder)
    if found is None:
        raise InputError(f"{name}: the model has no vocabulary")
    return found


def _own_vocabulary(recipe: Recipe, out: Path, progress: Progress) -> Tokenizer:
    """The vocabulary in the run's folder, learned from the text if it does not exist or is another text's."""
    out.mkdir(parents=True, exist_ok=True)
    with FileLock(out / "vocabulary.lock"):  # every rank comes here: the first learns it, the others read it
        path, note = out / VOCABULARY, out / VOCABULARY_NOTE
        sources = [find_files(Path(source)) for source in recipe.text.data]
        stats = [[file.name, file.stat().st_size] for files in sources for file in files]
        wanted = hash_json([recipe.text.vocab, recipe.text.field, stats])

        # Once there is a checkpoint the vocabulary must stay; whether the text still fits it is checked by
        # hash.
        begun = any((out / "checkpoints").glob("step-*"))
        fits = begun or (note.is_file() and note.read_text() == wanted)
        if not path.is_file() or not fits:
            learned = _learn_vocabulary(recipe, sources, progress)
            replace_file(path, learned.to_json())
            replace_file(note, wanted)
    found = load_tokenizer(out)
    assert found is not None
    return found


def _learn_vocabulary(recipe: Recipe, sources: list[list[Path]], progress: Progress) -> Tokenizer:
    sizes = [sum(file.stat().st_size for file in files) for files in sources]
    total = sum(min(CHARACTERS, size) for size in sizes)
    done = 0

    def count(characters: int) -> None:
        nonlocal done
        done += characters
        progress("learning the vocabulary", done, max(done, total))

    texts = (text for files in sources for text in _first_texts(files, recipe.text.field))
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
