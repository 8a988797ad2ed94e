"""GPT-1's byte pair encoding: lower-cased words, whose last token ends with `</w>`.

Text is cleaned, lower-cased, stripped of accents and cut at blanks and punctuation; the characters of each
word are merged, the pair of lowest rank first. A character that the vocabulary lacks is `<unk>`, so decoding
does not give every text back. The `tokenizers` library does the work, as in `transformers`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property

import tokenizers as fast
from tokenizers import decoders, models, normalizers, pre_tokenizers

from glassformer.errors import InputError
from glassformer.tokenizers.bpe import END_OF_TEXT, Merge, check_ids, check_merges, split_special
from glassformer.tokenizers.watch import WatchedWord, watch_word

END_OF_WORD = "</w>"
UNKNOWN = "<unk>"
SLICE = 1 << 16


class WordBPE:
    """Text to ids and back; ids 0 … len - 1."""

    prefix_space = False

    def __init__(
        self,
        vocab: Mapping[str, int],
        merges: Sequence[Merge],
        *,
        special: Mapping[str, int] | None = None,
        check: bool = True,
    ) -> None:
        """A vocabulary, its merges in order of rank, and the special tokens with their ids; `<unk>` is one.

        `check=False` is for what was checked before and has not changed since.
        """
        self.special = dict(special or {})
        self.merges = list(merges)
        self.end_token = END_OF_TEXT
        self._ids = {symbol: id for symbol, id in vocab.items() if symbol not in self.special}
        if check:
            self._check()
        self._fast = self._build()

    def __len__(self) -> int:
        return len(self._ids) + len(self.special)

    @property
    def end(self) -> int | None:
        """The id of the token that a text starts from and ends with; OpenAI's own vocabulary has none."""
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
        """The text of ids: words with one blank between."""
        given = list(ids)
        before = [None, *given[:-1]]
        return b"".join(map(self.bytes_of, given, before)).decode("utf-8", "replace")

    def bytes_of(self, id: int, after: int | None = None) -> bytes:
        """The bytes that a token adds to a text behind the token `after` (None: at the start of a text)."""
        blank = b" " if after is not None and self._symbol(after).endswith(END_OF_WORD) else b""
        return blank + self._symbol(id).removesuffix(END_OF_WORD).encode()

    def watch(self, text: str, *, special: bool = False) -> list[WatchedWord]:
        """The merges that make the ids of a text: word by word, step by step."""
        watched = []
        for piece in split_special(text, self.special if special else {}):
            if special and piece in self.special:
                watched.append(WatchedWord(piece, [], [piece], [self.special[piece]]))
            else:
                watched += [self._watch_word(word) for word in self._words(piece)]
        return watched

    def shown(self, symbols: str) -> str:
        """Symbols of this vocabulary are text already; `</w>` is shown, as it is what ends a word."""
        return symbols

    def to_json(self) -> str:
        """The content of a `tokenizer.json` that the `tokenizers` and `transformers` libraries load."""
        return str(self._fast.to_str(pretty=False))

    def _encode_plain(self, text: str) -> list[int]:
        # Slice by slice, by the batch call without offsets: time and memory stay in proportion on long texts.
        ids: list[int] = []
        for part in _slices(text):
            ids += self._fast.encode_batch_fast([part], add_special_tokens=False)[0].ids
        return ids

    def _words(self, text: str) -> list[str]:
        normal = self._fast.normalizer.normalize_str(text)
        return [word for word, _ in self._fast.pre_tokenizer.pre_tokenize_str(normal)]

    def _watch_word(self, word: str) -> WatchedWord:
        letters = [*word[:-1], word[-1] + END_OF_WORD]
        return watch_word(letters, self._ranks, ids=self._ids, unknown=self.special[UNKNOWN])

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

    def _build(self) -> fast.Tokenizer:
        model = models.BPE(
            vocab=self._ids | self.special,
            merges=self.merges,
            unk_token=UNKNOWN,
            continuing_subword_prefix="",
            end_of_word_suffix=END_OF_WORD,
            fuse_unk=False,
        )
        built = fast.Tokenizer(model)
        built.normalizer = normalizer()
        built.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        built.decoder = decoders.BPEDecoder(suffix=END_OF_WORD)
        added = [fast.AddedToken(symbol, special=True, normalized=False) for symbol in self.special]
        built.add_special_tokens(added)
        built.encode_special_tokens = True  # that is: as the plain text that they are
        return built

    def _check(self) -> None:
        """Every way a vocabulary can be wrong, said in one sentence each."""
        if UNKNOWN not in self.special:
            raise InputError(f"the vocabulary has no special token {UNKNOWN}, which stands for what it lacks")
        check_ids(self._ids, self.special)
        made = check_merges(self.merges, self._ids)
        multiple = (symbol for symbol in self._ids.keys() - made if len(symbol.removesuffix(END_OF_WORD)) > 1)
        lost = next(multiple, None)
        if lost is not None:
            raise InputError(f"no merge makes the token {lost[:40]!r}; the list of merges is not whole")


def normalizer() -> normalizers.Normalizer:
    """What is done to a text before it is cut: control characters out, lower case, no accents."""
    return normalizers.BertNormalizer(lowercase=True)


def _slices(text: str) -> Iterator[str]:
    """A text in parts that begin with a blank, which is no part of any word."""
    start = 0
    while start < len(text):
        end = start + SLICE
        while end < len(text) and text[end] not in " \n\t":
            end += 1
        yield text[start:end]
        start = end


def is_word_vocabulary(vocab: Mapping[str, int]) -> bool:
    """Whether a vocabulary is of this form and not GPT-2's, which always has its symbol for a blank, Ġ."""
    return "Ġ" not in vocab and any(symbol.endswith(END_OF_WORD) for symbol in vocab)
