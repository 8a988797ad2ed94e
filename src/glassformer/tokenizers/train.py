"""A new vocabulary from a text of one's own."""

import codecs
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

import tokenizers as fast
from tokenizers import models, pre_tokenizers, trainers

from glassformer.errors import InputError
from glassformer.tokenizers.bpe import END_OF_TEXT, SYMBOL_OF, ByteBPE, Merge, scalars
from glassformer.tokenizers.tokenizer import Tokenizer, with_source
from glassformer.tokenizers.word_bpe import END_OF_WORD, UNKNOWN, WordBPE, normalizer

PADDING = "<pad>"
ALPHABET = [chr(code) for code in range(0x21, 0x7F) if not chr(code).isupper()]
CHUNK = 1 << 20
LONGEST = 1 << 26  # characters without a blank
LARGEST_VOCABULARY = 1 << 20  # the library that learns it sets memory aside for all of it at once
BEFORE_A_BLANK = re.compile(r".*\S(?=[ \n])", re.DOTALL)


def train_tokenizer(
    source: Iterable[str] | Sequence[Path],
    vocab_size: int,
    *,
    special: Sequence[str] = (END_OF_TEXT,),
    progress: Callable[[int], object] | None = None,
) -> ByteBPE:
    """Learn merges from `source` (texts, or paths of text files) until there are `vocab_size` tokens.

    `progress` is called with the number of characters read since the last call.
    """
    _check_size(vocab_size, 256, "bytes", special)
    learner = fast.Tokenizer(models.BPE())
    learner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - len(special), initial_alphabet=list(SYMBOL_OF.values()), show_progress=False
    )
    learner.train_from_iterator(_watched(_texts(source), progress), trainer)
    vocab, merges = _learned(learner, special)
    return ByteBPE(vocab, merges, special={token: vocab[token] for token in special})


def train_pair_tokenizer(
    source: Iterable[str] | Sequence[Path],
    vocab_size: int,
    *,
    special: Sequence[str] = (),
    progress: Callable[[int], object] | None = None,
) -> ByteBPE:
    """Learn a vocabulary for sources and targets: it also has a token that fills up short rows."""
    return train_tokenizer(source, vocab_size, special=(END_OF_TEXT, PADDING, *special), progress=progress)


def train_separate_tokenizers(
    sources: Sequence[str], targets: Sequence[str], *, vocab_size: int, special: Sequence[str] = ()
) -> Tokenizer:
    """Learn a vocabulary for targets, and another one, its `source`, for sources.

    Both have as many tokens, at most `vocab_size` each: special tokens come last, and so have the same ids.
    """
    target = train_pair_tokenizer(targets, vocab_size, special=special)
    source = train_pair_tokenizer(sources, len(target), special=special)
    if len(source) < len(target):  # there was not enough text for more
        target = train_pair_tokenizer(targets, len(source), special=special)
    return with_source(target, source)


def train_word_tokenizer(
    source: Iterable[str] | Sequence[Path],
    vocab_size: int,
    *,
    special: Sequence[str] = (END_OF_TEXT,),
    progress: Callable[[int], object] | None = None,
) -> WordBPE:
    """Learn a vocabulary of GPT-1's form; `<unk>` is always in it, and a token that ends a text as well."""
    special = (*special, UNKNOWN) if UNKNOWN not in special else special
    _check_size(vocab_size, 2 * len(ALPHABET), "characters, each inside and at the end of a word,", special)
    words = _count_words(_watched(_texts(source), progress))
    letters = _letters(words, vocab_size // 4)
    learner = fast.Tokenizer(models.BPE(end_of_word_suffix=END_OF_WORD))
    learner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - len(special),
        # Unlisted, these get ids in the order of a hash map, and ids break ties: other merges in every run.
        special_tokens=[letter + END_OF_WORD for letter in letters],
        initial_alphabet=letters,
        limit_alphabet=len(letters),
        end_of_word_suffix=END_OF_WORD,
        show_progress=False,
    )
    repeated = (" ".join([word] * count) for word, count in words.items())
    learner.train_from_iterator(repeated, trainer)
    vocab, merges = _learned(learner, special)
    return WordBPE(vocab, merges, special={token: vocab[token] for token in special})


def _count_words(texts: Iterable[str]) -> Counter[str]:
    """How often each word comes in the texts, cut as the tokenizer will cut them."""
    normal, cut = normalizer(), pre_tokenizers.BertPreTokenizer()
    counts: Counter[str] = Counter()
    for text in texts:
        words = cut.pre_tokenize_str(normal.normalize_str(text))
        counts.update(word for word, _ in words)
    return counts


def _letters(words: Mapping[str, int], limit: int) -> list[str]:
    """The characters that get tokens of their own: ASCII, and the most frequent others up to a limit."""
    counts: Counter[str] = Counter()
    for word, count in words.items():
        for letter in word:
            counts[letter] += count
    others = sorted(counts.keys() - set(ALPHABET), key=lambda letter: (-counts[letter], letter))
    return sorted([*ALPHABET, *others[: max(0, limit - len(ALPHABET))]])


def _check_size(vocab_size: int, basic: int, what: str, special: Sequence[str]) -> None:
    smallest = basic + len(special)
    if vocab_size < smallest:
        parts = f"{basic} {what} and {len(special)} special"
        raise InputError(f"a vocabulary must have at least {smallest} tokens ({parts}), not {vocab_size}")
    if vocab_size > LARGEST_VOCABULARY:
        raise InputError(f"a vocabulary must have at most {LARGEST_VOCABULARY:,} tokens, not {vocab_size:,}")
    if len(set(special)) != len(special):
        raise InputError("special: a token is a duplicate")


def _learned(learner: fast.Tokenizer, special: Sequence[str]) -> tuple[dict[str, int], list[Merge]]:
    """What was learned, with the special tokens behind it."""
    model = json.loads(learner.to_str())["model"]
    vocab = model["vocab"] | {token: len(model["vocab"]) + i for i, token in enumerate(special)}
    return vocab, [(left, right) for left, right in model["merges"]]


def _texts(source: Iterable[str | Path]) -> Iterator[str]:
    for item in source:
        if isinstance(item, Path):
            yield from _read(item)
        else:
            yield scalars(item)


def text_pieces(file: BinaryIO, name: Path) -> Iterator[str]:
    """A text file in pieces, cut where a blank follows a word: no token could reach across the cut."""
    rest: list[str] = []
    for text in _decoded(file, name):
        cut = BEFORE_A_BLANK.match(text)
        at = cut.end() if cut else 0
        if at:
            yield "".join([*rest, text[:at]])
            rest = []
        rest.append(text[at:])
        # Without a blank in sight, a word of megabytes is cut anywhere, so that memory stays bounded.
        if sum(map(len, rest)) > LONGEST:
            yield "".join(rest)
            rest = []
    if any(rest):
        yield "".join(rest)


def _read(path: Path) -> Iterator[str]:
    try:
        with path.open("rb") as file:
            yield from text_pieces(file, path)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None


def _decoded(file: BinaryIO, name: Path) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8")()
    start = done = 0  # the place of the first byte that is not decoded yet; how many bytes were read
    try:
        while raw := file.read(CHUNK):
            yield decoder.decode(raw)
            done += len(raw)
            start = done - len(decoder.getstate()[0])
        decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        raise InputError(
            f"{name} is not UTF-8 text: {error.reason} at byte {start + error.start};"
            " if it is Latin-1 or Windows text, convert it, as with `iconv -f WINDOWS-1252 -t UTF-8 FILE`"
        ) from None


def _watched(texts: Iterable[str], progress: Callable[[int], object] | None) -> Iterator[str]:
    for text in texts:
        yield text
        if progress is not None:
            progress(len(text))
