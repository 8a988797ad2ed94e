"""GPT-1's byte pair encoding: lower-cased words, whose last token ends with `</w>`.

Text is cleaned, lower-cased, stripped of accents and cut at blanks and punctuation; the characters of each
word are merged, the pair of lowest rank first. A character that the vocabulary lacks is `<unk>`, so decoding
does not give every text back. The `tokenizers` library does the work, as in `transformers`.
"""

from collections.abc import Iterator, Mapping

import tokenizers as fast
from tokenizers import decoders, models, normalizers, pre_tokenizers

from glassformer.errors import InputError
from glassformer.tokenizers.bpe import BPE, check_ids, check_merges
from glassformer.tokenizers.watch import WatchedWord, watch_each, watch_word

END_OF_WORD = "</w>"
UNKNOWN = "<unk>"
SLICE = 1 << 16


class WordBPE(BPE):
    """GPT-1's: tokens are parts of words; `<unk>` is a special token."""

    def bytes_of(self, id: int, after: int | None = None) -> bytes:
        """The bytes that a token adds to a text behind the token `after` (None: at the start of a text)."""
        blank = b" " if after is not None and self._symbol(after).endswith(END_OF_WORD) else b""
        return blank + self._symbol(id).removesuffix(END_OF_WORD).encode()

    def shown(self, symbols: str) -> str:
        """Symbols of this vocabulary are text already; `</w>` is shown, as it is what ends a word."""
        return symbols

    def _encode_plain(self, text: str) -> list[int]:
        # Slice by slice, by the batch call without offsets: time and memory stay in proportion on long texts.
        ids: list[int] = []
        for part in _slices(text):
            ids += self._fast.encode_batch_fast([part], add_special_tokens=False)[0].ids
        return ids

    def _watch_plain(self, text: str) -> list[WatchedWord]:
        normal = self._fast.normalizer.normalize_str(text)
        words = [word for word, _ in self._fast.pre_tokenizer.pre_tokenize_str(normal)]
        return watch_each(words, self._watch_word)

    def _watch_word(self, word: str) -> WatchedWord:
        letters = [*word[:-1], word[-1] + END_OF_WORD]
        return watch_word(letters, self._ranks, ids=self._ids, unknown=self.special[UNKNOWN])

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
        return self._add_special(built)

    def _check(self) -> None:
        """Every way a vocabulary can be wrong, said in one sentence each."""
        if UNKNOWN not in self.special:
            raise InputError(f"the vocabulary has no special token {UNKNOWN}, for unknown ones")
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
