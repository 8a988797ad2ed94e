"""GPT-2's byte-level byte pair encoding.

Text is cut into words by a pattern, each word is a run of bytes, and pairs of neighbors are merged, the one
of lowest rank first, until no pair is in the list. The `tokenizers` library does the work; `watch` shows the
same merges one by one.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Self

import tokenizers as fast
from tokenizers import decoders, models, pre_tokenizers

from glassformer.errors import InputError
from glassformer.tokenizers.tokenizer import Tokenizer
from glassformer.tokenizers.watch import WatchedWord, watch_each, watch_word

END_OF_TEXT = "<|endoftext|>"
SLICE = 1 << 16
Merge = tuple[str, str]


def _byte_symbols() -> dict[str, int]:
    """The printable character of each byte in GPT-2's vocabulary files."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}


def scalars(text: str) -> str:
    """The text with U+FFFD for every lone surrogate, which is no character and has no bytes."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


BYTE_OF = _byte_symbols()
SYMBOL_OF = {byte: symbol for symbol, byte in BYTE_OF.items()}


class BPE:
    """What byte pair encodings share: ids 0 … len - 1, special tokens, a fast tokenizer for the work."""

    prefix_space = False

    def __init__(
        self,
        vocab: Mapping[str, int],
        merges: Sequence[Merge],
        *,
        special: Mapping[str, int] | None = None,
        check: bool = True,
    ) -> None:
        """A vocabulary, its merges in order of rank, and the special tokens with their ids.

        `check=False` is for what was checked before and has not changed since.
        """
        self.special = dict(special or {})
        self.merges = list(merges)
        self.end_token = END_OF_TEXT
        self.source: Tokenizer | None = None
        self._ids = {symbol: id for symbol, id in vocab.items() if symbol not in self.special}
        if check:
            self._check()
        self._fast = self._build()

    def __len__(self) -> int:
        return len(self._ids) + len(self.special)

    @property
    def end(self) -> int | None:
        """The id of the token that a text starts from and ends with, if the vocabulary has one."""
        return self.special.get(self.end_token)

    def encode(self, text: str, *, special: bool = False) -> list[int]:
        """Ids of a text. Special tokens in it are plain text, unless `special` asks for them."""
        ids: list[int] = []
        for piece in split_special(text, self.special if special else {}):
            if special and piece in self.special:
                ids.append(self.special[piece])
            else:
                ids += self._encode_plain(piece)
        return ids

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids; bytes that make no character become U+FFFD."""
        given = list(ids)
        before = [None, *given[:-1]]
        return b"".join(map(self.bytes_of, given, before)).decode("utf-8", "replace")

    def watch(self, text: str, *, special: bool = False) -> list[WatchedWord]:
        """The merges that make the ids of a text: word by word, step by step."""
        watched = []
        for piece in split_special(text, self.special if special else {}):
            if special and piece in self.special:
                watched.append(WatchedWord(piece, [], [piece], [self.special[piece]]))
            else:
                watched += self._watch_plain(piece)
        return watched

    def to_json(self) -> str:
        """The content of a `tokenizer.json` that the `tokenizers` and `transformers` libraries load."""
        return str(self._fast.to_str(pretty=False))

    def with_special(self, more: Mapping[str, int]) -> Self:
        """The same vocabulary with more special tokens, whose ids go on behind its own."""
        found = type(self)(self._ids, self.merges, special={**self.special, **more}, **self._own())
        found.end_token = self.end_token
        return found

    def _own(self) -> dict[str, Any]:
        """What besides tokens and merges makes another one alike."""
        return {}

    def bytes_of(self, id: int, after: int | None = None) -> bytes:
        """The bytes that a token adds to a text behind the token `after` (None: at the start of a text)."""
        raise NotImplementedError

    def _encode_plain(self, text: str) -> list[int]:
        raise NotImplementedError

    def _watch_plain(self, text: str) -> list[WatchedWord]:
        raise NotImplementedError

    def _build(self) -> fast.Tokenizer:
        raise NotImplementedError

    def _check(self) -> None:
        raise NotImplementedError

    def _symbol(self, id: int) -> str:
        try:
            return self._symbols[id]
        except KeyError:
            raise InputError(f"{id!r} is not a token id of this vocabulary (0 to {len(self) - 1})") from None

    @cached_property
    def _symbols(self) -> dict[int, str]:
        return {id: symbol for symbol, id in (self._ids | self.special).items()}

    @cached_property
    def _ranks(self) -> dict[Merge, int]:
        return {merge: rank for rank, merge in enumerate(self.merges)}

    def _add_special(self, built: fast.Tokenizer) -> fast.Tokenizer:
        tokens = [fast.AddedToken(symbol, special=True, normalized=False) for symbol in self.special]
        built.add_special_tokens(tokens)
        built.encode_special_tokens = True  # that is: as the plain text that they are
        return built


class ByteBPE(BPE):
    """GPT-2's: every text is bytes, and every byte has a token."""

    def __init__(
        self, vocab: Mapping[str, int], merges: Sequence[Merge], *, prefix_space: bool = False, **how: Any
    ) -> None:
        """As `BPE`; with `prefix_space` a text is read as if it began with a space."""
        self.prefix_space = prefix_space
        self._bytes: dict[int, bytes] = {}  # of the tokens that were asked for
        super().__init__(vocab, merges, **how)

    def bytes_of(self, id: int, after: int | None = None) -> bytes:
        """The bytes of one token, whichever token it follows."""
        if id not in self._bytes:
            symbol = self._symbol(id)
            is_text = symbol in self.special
            self._bytes[id] = symbol.encode() if is_text else bytes(BYTE_OF[char] for char in symbol)
        return self._bytes[id]

    def _own(self) -> dict[str, Any]:
        return {"prefix_space": self.prefix_space}

    def shown(self, symbols: str) -> str:
        """Byte symbols as text where they make characters, as `\\xNN` where they do not."""
        if symbols in self.special:
            return symbols
        return bytes(BYTE_OF[char] for char in symbols).decode("utf-8", "backslashreplace")

    def _watch_plain(self, text: str) -> list[WatchedWord]:
        words = [word for word, _ in self._fast.pre_tokenizer.pre_tokenize_str(text)]
        return watch_each(words, lambda word: watch_word(word, self._ranks, ids=self._ids))

    def _encode_plain(self, text: str) -> list[int]:
        # Slice by slice, by the batch call without offsets: time and memory stay in proportion on long texts.
        ids: list[int] = []
        start = 0
        while start < len(text):
            end = self._word_end(text, start + SLICE)
            ids += self._fast.encode_batch_fast([text[start:end]], add_special_tokens=False)[0].ids
            start = end
        return ids

    def _word_end(self, text: str, near: int) -> int:
        """A place soon after `near` where a word must end.

        The kind of character changes there, and no blank or apostrophe comes before: those start a word.
        """
        while near < len(text) and not self.prefix_space:
            for at in range(near, min(near + 64, len(text))):
                pair = text[at - 1 : at + 1]
                if (
                    pair[0] != "'"
                    and not pair[0].isspace()
                    and len(self._fast.pre_tokenizer.pre_tokenize_str(pair)) == 2
                ):
                    return at
            near += SLICE
        return len(text)

    def _build(self) -> fast.Tokenizer:
        built = fast.Tokenizer(models.BPE(vocab=self._ids | self.special, merges=self.merges))
        built.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=self.prefix_space)
        built.decoder = decoders.ByteLevel()
        return self._add_special(built)

    def _check(self) -> None:
        """Every way a vocabulary can be wrong, said in one sentence each."""
        check_ids(self._ids, self.special)
        missing = [byte for symbol, byte in BYTE_OF.items() if symbol not in self._ids]
        if missing:
            count, first = len(missing), f"{missing[0]:#04x}"
            raise InputError(f"the vocabulary has no token for {count} of the 256 bytes, the first {first}")
        # All symbols at once, which is fast; the one that is wrong is looked for only if there is one.
        if "" in self._ids or not BYTE_OF.keys() >= set("".join(self._ids)):
            wrong = (symbol for symbol in self._ids if not symbol or any(c not in BYTE_OF for c in symbol))
            raise InputError(f"the vocabulary's token {next(wrong)[:40]!r} is not written in byte symbols")
        made = check_merges(self.merges, self._ids)
        lost = next((symbol for symbol in self._ids.keys() - made if len(symbol) > 1), None)
        if lost is not None:
            raise InputError(f"no merge makes the token {lost[:40]!r}; the list of merges is not whole")


def split_special(text: str, special: Iterable[str]) -> Iterable[str]:
    """A text in pieces that are either a special token or plain."""
    longest_first = sorted(special, key=len, reverse=True)
    if not longest_first:
        return filter(None, [scalars(text)])
    form = "|".join(map(re.escape, longest_first))
    return filter(None, re.split(f"({form})", scalars(text)))


def check_ids(vocab: Mapping[str, int], special: Mapping[str, int]) -> None:
    """Refuse ids that are not 0, 1, 2 …, and special tokens that are no text."""
    ids = sorted([*vocab.values(), *special.values()])
    if ids != list(range(len(ids))):
        raise InputError("the vocabulary's ids are not the numbers from 0 on, each once")
    odd = next((token for token in special if not token or scalars(token) != token), None)
    if odd is not None:
        raise InputError(f"the special token {odd[:40]!r} is no text")


def check_merges(merges: Sequence[Merge], vocab: Mapping[str, int]) -> set[str]:
    """Refuse merges of, or into, what the vocabulary lacks; the tokens that the merges make."""
    if len(set(merges)) != len(merges):
        raise InputError("the list of merges holds a pair twice")
    made = {left + right for left, right in merges}
    if vocab.keys() >= made.union(*merges):
        return made
    for rank, (left, right) in enumerate(merges):
        for symbol in (left, right, left + right):
            if symbol not in vocab:
                at = f"merge {rank} ({left[:40]!r} + {right[:40]!r})"
                raise InputError(f"{at}: {symbol[:40]!r} is not in the vocabulary")
    raise AssertionError("unreachable")
