"""Translation: a model learns to write a target from a source, pair by pair."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch

from glassformer.data.pairs import OwnTokens, Pair, Pairs, PairStream, Rows, read_pairs, without_leaks
from glassformer.durable import hash_file, hash_json
from glassformer.errors import InputError, counted
from glassformer.hub.families import family
from glassformer.hub.folder import outline
from glassformer.hub.locate import locate
from glassformer.tasks.evaluate import CARD_DIGITS
from glassformer.tasks.jobs import Progress
from glassformer.tasks.load import base_of
from glassformer.tasks.recipe import PairedText, Recipe, SummarizedText, TranslatedText
from glassformer.tasks.tags import tag
from glassformer.tasks.training_job import TrainingJob, named_vocabulary, own_vocabulary
from glassformer.tasks.translate import Translator
from glassformer.tokenizers import Tokenizer
from glassformer.tokenizers.extend import with_special
from glassformer.tokenizers.tokenizer import source_tokenizer
from glassformer.tokenizers.train import PADDING, train_separate_tokenizers
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
    too_long: int  # pairs that were left out, or cut
    hashes: tuple[str, ...]  # of the files that were read: they may be gone when the model is saved

    @classmethod
    def prepare(cls, recipe: Recipe, out: Path, *, offline: bool, progress: Progress) -> "Translation":
        """Read the pairs, find or learn the vocabulary, and tokenize them."""
        _check_forcing(recipe)
        text = _section(recipe)
        learn, held = read_divided(text)
        hashes = tuple(hash_file(Path(file))[:CARD_DIGITS] for file in text.data)
        tokenizer = _vocabulary(recipe, learn, out=out, offline=offline, progress=progress)
        fill = _fill(recipe, tokenizer, offline=offline)
        encoded, too_long = _encode(learn, tokenizer, text=text, fill=fill, progress=progress)
        held_out, _ = _encode(held, tokenizer, text=text, fill=fill, progress=progress)
        return cls(recipe, tokenizer, offline, encoded, held_out, too_long, hashes)

    def vocabulary_fields(self) -> dict[str, int]:
        """How many tokens there are, and two that a model knows by their ids."""
        source = self.tokenizer.source
        sizes = {"vocab": len(self.tokenizer)} | ({} if source is None else {"source_vocab": len(source)})
        return sizes | _new_fill(self.tokenizer)._asdict()

    def _base(self) -> Any:
        """The model to go on from; a decoder becomes both halves of an encoder-decoder."""
        net: Any = super()._base()
        if "source" in net.capabilities:
            return net
        kind, model = family(self.recipe.model.kind), self.recipe.model
        known = {one.name for one in fields(kind.config)}
        sizes = {one.name: getattr(net.config, one.name) for one in fields(net.config) if one.name in known}
        own = ("layers", "decoder_layers", "dropout", "attention_dropout")
        chosen = {key: getattr(model, key) for key in own}
        made: Any = kind.build(kind.config(**sizes | chosen | self.vocabulary_fields()))
        return made.initialize(self.recipe.train.seed).adopt(net).to(self.dtype)

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
        """Shuffled pairs, those of a batch of similar lengths. Refuses pairs that do not fit the context."""
        longest = max((max(pairs.longest) for pairs in (self.pairs, self.held) if len(pairs)), default=0)
        if net.context is not None and longest > net.context:
            raise InputError(
                f"longest: a pair has {longest:,} tokens on one side, {longest - net.context:,} more than the"
                f" model's context of {net.context:,}; choose a smaller `longest`, or a larger context"
            )
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
        if not self.recipe.show.preview:
            return
        try:
            Translator(net, self.tokenizer).encode_source(self.recipe.show.preview, to=self._preview_to)
        except InputError as error:
            raise InputError(f"preview: {error}") from None

    @property
    def _preview_to(self) -> str | None:
        """The language of the preview's translation: that of the targets."""
        languages = _section(self.recipe).languages
        return languages[1] if languages else None

    def preview(self, net: Any) -> str:
        """The preview's text, translated."""
        text = self.recipe.show.preview
        if not text:
            return ""
        out = Translator(net, self.tokenizer).translate(text, to=self._preview_to)
        return f"{text} → {out.text}"

    def describe_data(self) -> list[str]:
        """What it is trained on."""
        names = [Path(file).name for file in _section(self.recipe).data]
        read = zip(names, self.hashes, strict=True)
        files = ", ".join(f"`{name}` (sha256 {hash} …)" for name, hash in read)
        left = "".join(f"; {one}" for one in self.messages())
        return [
            f"- {files}: {counted(len(self.pairs), 'pair')} to learn from, {len(self.held):,} held out{left}"
        ]

    def messages(self) -> list[str]:
        """How many pairs were longer than `longest`, and what was done to them."""
        done = "cut" if _section(self.recipe).cut else "left out"
        return [f"{self.too_long:,} longer ones were {done}"] if self.too_long else []


def _check_forcing(recipe: Recipe) -> None:
    """Shards of a model are gathered by all processes at once, but each writes rows of other lengths."""
    if recipe.train.parallel == "fsdp" and recipe.inputs.forcing in ("scheduled", "professor"):
        raise InputError(
            f"forcing {recipe.inputs.forcing} writes token by token, which parallel fsdp cannot;"
            " use ddp, or forcing parallel"
        )


def _section(recipe: Recipe) -> PairedText:
    if not isinstance(recipe.text, PairedText):
        raise InputError(
            f"{recipe.model.base}: a model that reads pairs is fine-tuned by a recipe of its own kind, which"
            f" [model] names; kind is {recipe.model.kind}"
        )
    return recipe.text


class Fill(NamedTuple):
    """The token ids around a target: the one that fills up short rows, and the one that it begins with."""

    pad: int
    start: int


def _fill(recipe: Recipe, tokenizer: Tokenizer, *, offline: bool) -> Fill:
    """Those of the model to go on from, or those of a new one."""
    if not recipe.model.base:
        return _new_fill(tokenizer)
    net, _, _ = outline(base_of(locate(recipe.model.base, offline=offline), offline=offline))
    return Fill(net.config.pad, net.config.start) if "source" in net.capabilities else _new_fill(tokenizer)


def _new_fill(tokenizer: Tokenizer) -> Fill:
    """A target begins with the token that ends it, as in the article."""
    assert tokenizer.end is not None
    return Fill(tokenizer.special[PADDING], tokenizer.end)


def _vocabulary(
    recipe: Recipe, pairs: Sequence[Pair], *, out: Path, offline: bool, progress: Progress
) -> Tokenizer:
    """The vocabulary that the recipe names, or a new one, learned from the pairs."""
    text = _section(recipe)
    name = recipe.model.base or text.tokenizer
    tags = [tag(language) for language in _written(text)]
    separate = text.vocabularies == "separate"

    def learned() -> Tokenizer:
        progress("learning the vocabulary", 0, len(pairs))
        if separate:
            sources, targets = ([pair[side] for pair in pairs] for side in (0, 1))
            return train_separate_tokenizers(sources, targets, vocab_size=text.vocab, special=tags)
        halves = (half for pair in pairs for half in pair)
        return family(recipe.model.kind).train_tokenizer(halves, text.vocab, special=tags)

    if not name:
        wanted = hash_json([text.vocab, tags, hash_json(pairs), *(["separate"] if separate else [])])
        return own_vocabulary(out, wanted, learn=learned)

    tokenizer = named_vocabulary(name, offline=offline)
    missing = [token for token in (PADDING, *tags) if token not in tokenizer.special]
    if tokenizer.end is not None and family(recipe.model.kind).made_of:
        return with_special(tokenizer, missing)  # both halves are new, and learn more tokens
    if missing or tokenizer.end is None:
        raise InputError(
            f"{name}: its vocabulary has no token {missing[0] if missing else 'that ends a text'},"
            " which this training needs"
        )
    if separate and tokenizer.source is None:
        raise InputError(f"vocabularies: {name} has one for sources and targets, not separate ones")
    return tokenizer


def _written(text: PairedText) -> tuple[str, ...]:
    """The languages that are translated to."""
    return text.languages if text.both_ways else text.languages[1:]


def read_divided(text: PairedText | TranslatedText | SummarizedText) -> tuple[list[Pair], list[Pair]]:
    """The pairs to learn from, and those held out."""
    pairs = read_pairs([Path(file) for file in text.data])
    if text.validation:
        return pairs, read_pairs([Path(file) for file in text.validation])
    return without_leaks(pairs, text.held_out)


def _encode(
    pairs: Sequence[Pair], tokenizer: Tokenizer, *, text: PairedText, fill: Fill, progress: Progress
) -> tuple[Pairs, int]:
    """Pairs as token ids, in both directions if so asked; and how many were too long: left out, or cut."""
    sources: list[list[int]] = []
    targets: list[list[int]] = []
    reader = source_tokenizer(tokenizer)
    too_long = 0
    assert tokenizer.end is not None
    assert reader.end is not None
    for number, (source, target, language) in enumerate(_directed(pairs, text)):
        if number % CHUNK == 0:
            progress("tokenizing", number, len(pairs) * (2 if text.both_ways else 1))
        begin = [reader.special[tag(language)]] if language else []
        source_ids = [*begin, *reader.encode(source), reader.end]
        target_ids = [fill.start, *tokenizer.encode(target), tokenizer.end]
        if max(len(source_ids), len(target_ids)) > text.longest:
            too_long += 1
            if not text.cut:
                continue
            source_ids, target_ids = _cut(source_ids, text.longest), _cut(target_ids, text.longest)
        sources.append(source_ids)
        targets.append(target_ids)
    return Pairs(Rows.of(sources), Rows.of(targets), fill.pad), too_long


def _cut(ids: list[int], longest: int) -> list[int]:
    """At most `longest` ids, the last of which ends the text."""
    return ids if len(ids) <= longest else [*ids[: longest - 1], ids[-1]]


def _directed(pairs: Iterable[Pair], text: PairedText) -> Iterable[tuple[str, str, str]]:
    """Source, target, and the target's language, if languages are named."""
    first, second = text.languages or ("", "")
    for pair in pairs:
        yield pair.source, pair.target, second
        if text.both_ways:
            yield pair.target, pair.source, first
