"""What the rest of the house knows of a tokenizer."""

from collections.abc import Iterable
from typing import Protocol

from glassformer.errors import InputError
from glassformer.tokenizers.watch import WatchedWord


class Tokenizer(Protocol):
    """Text to ids and back; ids are 0 … len - 1."""

    merges: list[tuple[str, str]]  # pairs of symbols in order of rank
    special: dict[str, int]  # special tokens and their ids
    prefix_space: bool  # whether a text is read as if it began with a space
    end_token: str  # the special token that ends a text, if `special` has it
    source: "Tokenizer | None"  # the vocabulary of sources, for a model that has another one for them

    def __len__(self) -> int:
        """How many tokens there are."""

    @property
    def end(self) -> int | None:
        """The id of the token that a text starts from and ends with; None if there is none."""

    def encode(self, text: str, *, special: bool = False) -> list[int]:
        """Ids of a text. Special tokens in it are plain text, unless `special` asks for them."""

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids; bytes that make no character become U+FFFD."""

    def bytes_of(self, id: int, after: int | None = None) -> bytes:
        """The bytes that a token adds to a text behind the token `after` (None: at the start of a text).

        Where tokens end words, the blank between two words belongs to the later token.
        """

    def watch(self, text: str, *, special: bool = False) -> list[WatchedWord]:
        """The merges that make the ids of a text: word by word, step by step."""

    def shown(self, symbols: str) -> str:
        """The symbols of a vocabulary file as text for people."""

    def to_json(self) -> str:
        """The content of a `tokenizer.json` that the `tokenizers` and `transformers` libraries load."""


def source_tokenizer(tokenizer: Tokenizer) -> Tokenizer:
    """What reads the sources of a model that translates: its own vocabulary for them, or the common one."""
    return tokenizer if tokenizer.source is None else tokenizer.source


def with_source(tokenizer: Tokenizer, source: Tokenizer) -> Tokenizer:
    """A tokenizer of targets, beside which sources have a vocabulary of their own.

    A model has one id for padding, and so have its files: special tokens must have the same ids in both.
    """
    if source.special != tokenizer.special:
        names = sorted(dict(source.special.items() ^ tokenizer.special.items()))
        raise InputError(
            f"the vocabularies of sources and targets differ in {', '.join(names)[:100]}:"
            " special tokens must have the same ids in both"
        )
    tokenizer.source = source
    return tokenizer


def pieces(tokenizer: Tokenizer | None, ids: Iterable[int], *, after: int | None = None) -> list[bytes]:
    """The bytes of every token in its place: joined, they are the text. An id without a token is `<id>`."""
    known = 0 if tokenizer is None else len(tokenizer)
    found = []
    for id in ids:
        if tokenizer is None or not 0 <= id < known:
            found.append(f"<{id}>".encode())
        else:
            found.append(tokenizer.bytes_of(id, after if after is not None and after < known else None))
        after = id
    return found
