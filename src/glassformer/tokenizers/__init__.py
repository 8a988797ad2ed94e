"""Text <-> token ids. No torch here."""

from glassformer.tokenizers.bpe import Tokenizer
from glassformer.tokenizers.stream import TextStream
from glassformer.tokenizers.train import train_tokenizer
from glassformer.tokenizers.watch import MergeStep, WatchedWord

__all__ = ["MergeStep", "TextStream", "Tokenizer", "WatchedWord", "train_tokenizer"]
