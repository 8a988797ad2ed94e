"""Text <-> token ids. No torch here."""

from glassformer.tokenizers.bpe import ByteBPE
from glassformer.tokenizers.stream import TextStream
from glassformer.tokenizers.tokenizer import Tokenizer, pieces
from glassformer.tokenizers.train import train_tokenizer, train_word_tokenizer
from glassformer.tokenizers.watch import MergeStep, WatchedWord
from glassformer.tokenizers.word_bpe import WordBPE

__all__ = [
    "ByteBPE",
    "MergeStep",
    "TextStream",
    "Tokenizer",
    "WatchedWord",
    "WordBPE",
    "pieces",
    "train_tokenizer",
    "train_word_tokenizer",
]
