"""Other work for a decoder: pairs become sequences with a tag, and the half behind the tag is learned.

The mechanism is one for all tasks: a way to write an example as one sequence, a loss mask, a way to read the
answer. Model, loop, checkpoints and folders are those of language modeling.
"""

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from glassformer import machine
from glassformer.data.pairs import Pair, PairStream
from glassformer.data.sequences import Sequences, Written, write, write_summary
from glassformer.durable import hash_file, hash_json
from glassformer.errors import InputError, counted
from glassformer.hub.families import family
from glassformer.hub.folder import outline
from glassformer.hub.locate import locate
from glassformer.tasks.complete import LanguageModel
from glassformer.tasks.decoder_translate import DecoderTranslator
from glassformer.tasks.evaluate import CARD_DIGITS
from glassformer.tasks.jobs import Progress
from glassformer.tasks.load import base_of
from glassformer.tasks.recipe import Recipe, SummarizedText, TranslatedText
from glassformer.tasks.summarize import BEAMS
from glassformer.tasks.tags import SUMMARIZE, tag
from glassformer.tasks.training_job import TrainingJob, named_vocabulary, own_vocabulary
from glassformer.tasks.translation import read_divided
from glassformer.tokenizers import Tokenizer
from glassformer.tokenizers.bpe import BPE, END_OF_TEXT
from glassformer.training.loop import HeldOut, Objective
from glassformer.training.new_tokens import add_tokens
from glassformer.training.objectives import learned_token

if TYPE_CHECKING:
    from glassformer.nn.net import Net

CHUNK = 2000  # pairs that are tokenized between two reports of progress
ID_SIZE = 8  # bytes of a token in a batch


class Example(NamedTuple):
    """A pair in one direction, with the tag that says what is to be done."""

    source: str
    target: str
    tag: str


@dataclass(frozen=True)
class TaggedPairs(TrainingJob):
    """Train a decoder on pairs: a job (see tasks/jobs.py)."""

    rows: Sequences
    held: Sequences
    changed: Counter[str]  # how many pairs were left out or cut, by what was done to them
    read: int  # pairs to learn from, before any was left out; in both directions, each twice

    @classmethod
    def prepare(cls, recipe: Recipe, out: Path, *, offline: bool, progress: Progress) -> "TaggedPairs":
        """Read the pairs, find or learn the vocabulary, and write them as sequences."""
        text = _section(recipe)
        if isinstance(text, TranslatedText) and not text.languages:
            raise InputError("languages: name that of the source and that of the target, such as en, fr")
        learn, held = read_divided(text)
        tokenizer = _vocabulary(recipe, learn, out=out, offline=offline, progress=progress)
        writer = _Writer(tokenizer, text, _context(recipe, offline=offline))
        rows = writer.write(learn, progress)
        changed = Counter(writer.changed)
        count = sum(1 for _ in writer.examples(learn))
        return cls(recipe, tokenizer, offline, rows, writer.write(held, progress), changed, count)

    def _base(self) -> "Net":
        """The model to go on from, with rows for the tags that it does not know yet."""
        net = super()._base()
        if len(self.tokenizer) > net.vocab and self.recipe.lora.rank:
            raise InputError(
                "rank: LoRA learns no new token, and the base has no token for this task; train all weights"
            )
        # One text ends at a tag and another begins, which the end token says already.
        add_tokens(net, len(self.tokenizer), seed=self.recipe.train.seed, like=self.tokenizer.end)
        return net

    @property
    def objective(self) -> Objective:
        """Cross-entropy of every token behind the tag."""
        return partial(learned_token, smoothing=self.recipe.train.label_smoothing)

    def batches(self, net: "Net") -> PairStream:
        """Shuffled sequences, those of a batch of similar lengths. Refuses what does not fit the context."""
        longest = max(self.rows.longest, self.held.longest)
        if net.context is not None and longest > net.context:
            raise InputError(
                f"longest: a pair has {longest:,} tokens with its tag, {longest - net.context:,} more than"
                f" the model's context of {net.context:,}; choose a smaller `longest`, or a larger context"
            )
        self._check_step(net)
        plan = self.recipe.train
        return PairStream(self.rows, batch=plan.batch, seed=plan.seed)

    def _check_step(self, net: "Net") -> None:
        """Refuse a step whose tokens and logits alone would not fit in memory."""
        train, longest = self.recipe.train, self.rows.longest
        at_once = min(train.batch, train.micro_batch or train.batch)
        tokens = train.batch * (longest + 1) * ID_SIZE
        learned = int((self.rows.lengths - self.rows.given).max(initial=0))
        logits = at_once * learned * net.vocab * self.dtype.itemsize
        share = int(os.environ.get("WORLD_SIZE", "1"))  # under torchrun, each process has its share
        machine.check_memory((tokens + logits) // share, what=f"a step of batch = {train.batch:,} rows")

    def held_out(self, net: "Net", *, rows: int) -> HeldOut | None:
        """The held-out pairs, or an even selection of `eval_tokens` of them."""
        if not len(self.held):
            return None
        return partial(self.held.in_order, batch=rows, tokens=self.recipe.evaluation.eval_tokens)

    def identity(self) -> dict[str, Any]:
        """The hash of all tokens, of how they are divided, and of which of them are learned."""
        parts = [[one.rows.ids.tolist(), one.rows.ends.tolist(), one.given.tolist()] for one in self._both]
        return {"pairs (sha256)": hash_json(parts)}

    @property
    def _both(self) -> tuple[Sequences, Sequences]:
        return self.rows, self.held

    def sizes(self) -> tuple[int, int]:
        """Tokens behind a tag to learn, and those held out."""
        return self.rows.learned, self.held.learned

    def check_preview(self, net: Any) -> None:
        """Refuse a preview that does not fit the context; a text to be summarized is cut."""
        text = self.recipe.show.preview
        if text and isinstance(_section(self.recipe), TranslatedText):
            try:
                DecoderTranslator(net, self.tokenizer).encode_source(text, to=self._preview_to)
            except InputError as error:
                raise InputError(f"preview: {error}") from None

    @property
    def _preview_to(self) -> str:
        """The language of the preview's translation: that of the targets."""
        text = _section(self.recipe)
        assert isinstance(text, TranslatedText)
        return text.languages[1]

    def preview(self, net: Any) -> str:
        """The preview's text, translated or summarized."""
        text, section = self.recipe.show.preview, _section(self.recipe)
        if not text.strip():
            return ""
        if isinstance(section, TranslatedText):
            out = DecoderTranslator(net, self.tokenizer).translate(text, to=self._preview_to)
            return f"{text} → {out.text}"
        summary = LanguageModel(net, self.tokenizer).summarize(text, max_new_tokens=section.room)
        return f"{text} → {summary.text}"

    def _generation(self) -> dict[str, Any]:
        """What a task's answers are made with, here and by other libraries."""
        text = _section(self.recipe)
        longest = text.room if isinstance(text, SummarizedText) else text.longest
        settings = {"num_beams": BEAMS, "do_sample": False, "max_new_tokens": longest}
        return super()._generation() | settings

    def describe_data(self) -> list[str]:
        """What it is trained on, and what was cut."""
        paths = [Path(file) for file in _section(self.recipe).data]
        files = ", ".join(f"`{path.name}` (sha256 {hash_file(path)[:CARD_DIGITS]} …)" for path in paths)
        done = "".join(f"; {one}" for one in self._done)
        count = counted(len(self.rows), "pair")
        return [f"- {files}: {count} to learn from, {len(self.held):,} held out{done}"]

    def messages(self) -> list[str]:
        """How many pairs were cut, or left out, of how many."""
        return [f"of {counted(self.read, 'pair')} {'; '.join(self._done)}"] if self.changed else []

    @property
    def _done(self) -> list[str]:
        return [f"{count:,} {what}" for what, count in sorted(self.changed.items())]


def _section(recipe: Recipe) -> TranslatedText | SummarizedText:
    assert isinstance(recipe.text, TranslatedText | SummarizedText)  # as recipes with a task have it
    return recipe.text


def _context(recipe: Recipe, *, offline: bool) -> int | None:
    """How many tokens the model reads at once, known before it is built."""
    if not recipe.model.base:
        return int(getattr(recipe.model, "context", 0)) or None
    net, _, _ = outline(base_of(locate(recipe.model.base, offline=offline), offline=offline))
    return net.context


def _tags(text: TranslatedText | SummarizedText) -> list[str]:
    """The tags of a task: that of a summary, or those of the languages that are translated to."""
    if isinstance(text, SummarizedText):
        return [SUMMARIZE]
    return [tag(language) for language in (text.languages if text.both_ways else text.languages[1:])]


def _vocabulary(
    recipe: Recipe, pairs: Sequence[Pair], *, out: Path, offline: bool, progress: Progress
) -> Tokenizer:
    """The vocabulary that the recipe names, with the tags behind it, or a new one, learned from the pairs."""
    text = _section(recipe)
    name, tags = recipe.model.base or text.tokenizer, _tags(text)

    def learned() -> Tokenizer:
        progress("learning the vocabulary", 0, len(pairs))
        halves = (half for pair in pairs for half in pair)
        special = (END_OF_TEXT, *tags)
        return family(recipe.model.kind).train_tokenizer(halves, text.vocab, special=special)

    if not name:
        return own_vocabulary(out, hash_json([text.vocab, tags, hash_json(pairs)]), learn=learned)
    found = named_vocabulary(name, offline=offline)
    if found.end is None or not isinstance(found, BPE):
        raise InputError(f"{name}: its vocabulary has no token that ends a text, which this training needs")
    return found.with_special(tags)


class _Writer:
    """Writes pairs as sequences by the rules of a task, and counts what did not fit."""

    def __init__(
        self, tokenizer: Tokenizer, text: TranslatedText | SummarizedText, context: int | None
    ) -> None:
        self.tokenizer, self.text, self.context = tokenizer, text, context
        self.changed: Counter[str] = Counter()

    def write(self, pairs: Sequence[Pair], progress: Progress) -> Sequences:
        """All of them; those that are left out are counted."""
        assert self.tokenizer.end is not None
        both = isinstance(self.text, TranslatedText) and self.text.both_ways
        rows = []
        for number, example in enumerate(self.examples(pairs)):
            if number % CHUNK == 0:
                progress("tokenizing", number, len(pairs) * (2 if both else 1))
            written = self._written(example)
            rows += [] if written is None else [written]
        return Sequences.of(rows, pad=self.tokenizer.end)

    def examples(self, pairs: Iterable[Pair]) -> Iterator[Example]:
        """Every pair with its tag; in both directions, if so asked."""
        text = self.text
        for pair in pairs:
            if isinstance(text, SummarizedText):
                yield Example(pair.source, pair.target, SUMMARIZE)
                continue
            first, second = text.languages
            yield Example(pair.source, pair.target, tag(second))
            if text.both_ways:
                yield Example(pair.target, pair.source, tag(first))

    def _written(self, example: Example) -> Written | None:
        source, target = self.tokenizer.encode(example.source), self.tokenizer.encode(example.target)
        marks = self.tokenizer.special[example.tag]
        if isinstance(self.text, SummarizedText):
            return self._cut(source, target, tag=marks)
        if max(len(source), len(target)) + 1 > self.text.longest:  # with a tag, or with an end
            self.changed["longer ones were left out"] += 1
            return None
        return write(source, target, tag=marks, end=self.tokenizer.end)

    def _cut(self, source: list[int], target: list[int], *, tag: int) -> Written:
        """The beginning of a text, and a summary for which there is room."""
        assert isinstance(self.text, SummarizedText)
        how: dict[str, Any] = {"context": self.context, "room": self.text.room}
        written = write_summary(source, target, tag=tag, end=self.tokenizer.end, **how)
        if written.cut_source:
            self.changed["texts were cut to their beginning"] += 1
        if written.cut_target:
            self.changed["summaries were cut, and their ends not learned"] += 1
        return written.row
