"""Translation: a model learns to write a target from a source, pair by pair."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from glassformer.data.pairs import OwnTokens, Pair, Pairs, PairStream, Rows, read_pairs, without_leaks
from glassformer.durable import hash_json
from glassformer.errors import InputError, counted
from glassformer.hub.families import family
from glassformer.tasks.jobs import Progress
from glassformer.tasks.recipe import PairedText, Recipe
from glassformer.tasks.training_job import TrainingJob, named_vocabulary, own_vocabulary
from glassformer.tasks.translate import Translator, tag
from glassformer.tokenizers import Tokenizer
from glassformer.tokenizers.train import PADDING
from glassformer.training.forcing import (
    DISCRIMINATOR,
    Discriminator,
    parallel_sampling,
    professor_forcing,
    scheduled_sampling,
    without_discriminator,
)
from glassformer.training.loop import HeldOut, Objective
from glassformer.training.objectives import target_token

OBJECTIVES = {"teacher": target_token, "scheduled": scheduled_sampling, "parallel": parallel_sampling}
CHUNK = 5000  # pairs that are tokenized between two reports of progress


@dataclass(frozen=True)
class Translation(TrainingJob):
    """Train an encoder-decoder on pairs: a job (see tasks/jobs.py)."""

    pairs: Pairs
    held: Pairs
    left_out: int  # pairs that are too long

    @classmethod
    def prepare(cls, recipe: Recipe, out: Path, *, offline: bool, progress: Progress) -> "Translation":
        """Read the pairs, find or learn the vocabulary, and tokenize them."""
        _check_forcing(recipe)
        text = _section(recipe)
        learn, held = _read(text)
        name = recipe.model.base or text.tokenizer
        tags = [tag(language) for language in text.languages]

        def learned() -> Tokenizer:
            progress("learning the vocabulary", 0, len(learn))
            halves = (half for pair in learn for half in pair)
            return family(recipe.model.kind).train_tokenizer(halves, text.vocab, special=tags)

        wanted = hash_json([text.vocab, tags, hash_json(learn)])
        tokenizer = (
            named_vocabulary(name, offline=offline) if name else own_vocabulary(out, wanted, learn=learned)
        )
        if PADDING not in tokenizer.special or tokenizer.end is None:
            raise InputError(
                f"{name}: a vocabulary for pairs needs the token {PADDING} and one that ends a text"
            )

        encoded, left_out = _encode(learn, tokenizer, text, progress)
        held_out, _ = _encode(held, tokenizer, text, progress)
        return cls(recipe, tokenizer, offline, encoded, held_out, left_out)

    def token_ids(self) -> dict[str, int]:
        """A target begins with the token that ends it, as in the article."""
        assert self.tokenizer.end is not None
        return {"pad": self.tokenizer.special[PADDING], "start": self.tokenizer.end}

    @property
    def objective(self) -> Objective:
        """Cross-entropy of every token of the target, with the decoder's inputs as the recipe has them."""
        smoothing, inputs = self.recipe.train.label_smoothing, self.recipe.inputs
        if inputs.forcing == "professor":
            return partial(professor_forcing, weight=inputs.professor_weight, smoothing=smoothing)
        return partial(OBJECTIVES[inputs.forcing], smoothing=smoothing)

    def build(self, device: torch.device) -> Any:
        """The model before the first step; for professor forcing, with a discriminator."""
        net = super().build(device)
        if self.recipe.inputs.forcing == "professor":
            if "recurrent" not in net.capabilities:
                raise InputError(
                    "forcing professor compares the hidden states of a recurrent decoder, and a"
                    f" {net.kind} has none; scheduled and parallel fit it"
                )
            judge = Discriminator(net.config.decoder_width).initialize(self.recipe.train.seed)
            net.add_module(DISCRIMINATOR, judge.to(device, self.dtype))
        return net

    def export(self, folder: Path, net: Any, *, about: str) -> None:
        """Write the model, without what only its training needed."""
        with without_discriminator(net):
            super().export(folder, net, about=about)

    def batches(self, net: Any) -> PairStream | OwnTokens:
        """Shuffled pairs, those of a batch of similar lengths."""
        plan, inputs = self.recipe.train, self.recipe.inputs
        stream = PairStream(self.pairs, batch=plan.batch, seed=plan.seed)
        if not inputs.samples:
            return stream
        return OwnTokens(stream, true_share=partial(inputs.true_share, steps=plan.steps))

    def held_out(self, net: Any, *, rows: int) -> HeldOut | None:
        """The held-out pairs, or an even selection of `eval_tokens` of them."""
        if not len(self.held):
            return None
        return partial(self.held.in_order, batch=rows, tokens=self.recipe.evaluation.eval_tokens)

    def identity(self) -> dict[str, Any]:
        """The hash of all tokens, and of how they are divided."""
        rows = (self.pairs.sources, self.pairs.targets, self.held.sources, self.held.targets)
        return {"pairs (sha256)": hash_json([[row.ids.tolist(), row.ends.tolist()] for row in rows])}

    def sizes(self) -> tuple[int, int]:
        """Target tokens to learn from, and target tokens held out."""
        return len(self.pairs.targets.ids), len(self.held.targets.ids)

    def check_preview(self, net: Any) -> None:
        """Refuse a preview that does not fit the context."""
        show = self.recipe.show
        if (
            show.preview
            and net.context is not None
            and len(self.tokenizer.encode(show.preview)) >= net.context
        ):
            raise InputError(f"preview: the text is longer than a context of {net.context} tokens")

    def preview(self, net: Any) -> str:
        """The preview's text, translated."""
        show, languages = self.recipe.show, _section(self.recipe).languages
        if not show.preview:
            return ""
        model = Translator(net, self.tokenizer)
        out = model.translate(show.preview, to=languages[1] if languages else None)
        return f"{show.preview} → {out.text}"

    def describe_data(self) -> list[str]:
        """What it is trained on."""
        files = ", ".join(f"`{Path(file).name}`" for file in _section(self.recipe).data)
        left = f"; {self.left_out:,} longer ones were left out" if self.left_out else ""
        return [
            f"- {files}: {counted(len(self.pairs), 'pair')} to learn from, {len(self.held):,} held out{left}"
        ]


def _check_forcing(recipe: Recipe) -> None:
    """Shards of a model are gathered by all processes at once, but each writes rows of other lengths."""
    if recipe.train.parallel == "fsdp" and recipe.inputs.forcing in ("scheduled", "professor"):
        raise InputError(
            f"forcing {recipe.inputs.forcing} writes token by token, which parallel fsdp cannot;"
            " use ddp, or forcing parallel"
        )


def _section(recipe: Recipe) -> PairedText:
    assert isinstance(recipe.text, PairedText)  # as recipes of these families have it
    return recipe.text


def _read(text: PairedText) -> tuple[list[Pair], list[Pair]]:
    """The pairs to learn from, and those held out."""
    pairs = read_pairs([Path(file) for file in text.data])
    if text.validation:
        return pairs, read_pairs([Path(file) for file in text.validation])
    return without_leaks(pairs, text.held_out)


def _encode(
    pairs: Sequence[Pair], tokenizer: Tokenizer, text: PairedText, progress: Progress
) -> tuple[Pairs, int]:
    """Pairs as token ids, in both directions if so asked; and how many were too long."""
    sources: list[list[int]] = []
    targets: list[list[int]] = []
    end, left_out = tokenizer.end, 0
    assert end is not None
    for number, (source, target, language) in enumerate(_directed(pairs, text)):
        if number % CHUNK == 0:
            progress("tokenizing", number, len(pairs) * (2 if text.both_ways else 1))
        begin = [tokenizer.special[tag(language)]] if language else []
        source_ids = [*begin, *tokenizer.encode(source), end]
        target_ids = [end, *tokenizer.encode(target), end]
        if max(len(source_ids), len(target_ids)) > text.longest:
            left_out += 1
            continue
        sources.append(source_ids)
        targets.append(target_ids)
    return Pairs(Rows.of(sources), Rows.of(targets), tokenizer.special[PADDING]), left_out


def _directed(pairs: Iterable[Pair], text: PairedText) -> Iterable[tuple[str, str, str]]:
    """Source, target, and the target's language, if languages are named."""
    first, second = text.languages or ("", "")
    for pair in pairs:
        yield pair.source, pair.target, second
        if text.both_ways:
            yield pair.target, pair.source, first
