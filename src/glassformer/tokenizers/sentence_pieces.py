"""SentencePiece, as Marian's folders have it: a model cuts a text into pieces, a list gives pieces their ids.

Sources and targets have a model each (`source.spm`, `target.spm`); the list, `vocab.json`, is often common to
both. The `sentencepiece` library does the work. A piece that the list lacks is `<unk>`, so decoding does not
give every text back.
"""

import re
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any

from glassformer.errors import InputError
from glassformer.tokenizers.tokenizer import Tokenizer
from glassformer.tokenizers.watch import WatchedWord

BLANK = "▁"  # U+2581: how pieces write a blank
CODE = re.compile(r">>.*?<<", re.DOTALL)  # of a language
UNKNOWN, END, PAD = "<unk>", "</s>", "<pad>"


class SentencePieces:
    """Text to ids and back by a SentencePiece model and a list of pieces: see `Tokenizer`."""

    def __init__(self, model: bytes, vocab: Mapping[str, int]) -> None:
        self.model, self.vocab = model, dict(vocab)
        if sorted(self.vocab.values()) != list(range(len(self.vocab))):
            raise InputError("vocab.json: the ids are not 0, 1, 2 … without a gap")
        lacking = [token for token in (UNKNOWN, END, PAD) if token not in self.vocab]
        if lacking:
            raise InputError(f"vocab.json has no {', '.join(lacking)}")
        self._cutter = _load(model)
        pieces = {self._cutter.id_to_piece(id) for id in range(self._cutter.get_piece_size())}
        if len(pieces & self.vocab.keys()) < len(pieces) / 2:
            raise InputError(
                f"{len(pieces - self.vocab.keys()):,} of its {len(pieces):,} pieces are not in vocab.json"
            )
        self.special = {token: id for token, id in self.vocab.items() if _is_special(token)}
        self.merges: list[tuple[str, str]] = []  # pieces are chosen by their probability, not by merges
        self.prefix_space = True
        self.end_token = END
        self.source: Tokenizer | None = None

    def __len__(self) -> int:
        return len(self.vocab)

    @property
    def end(self) -> int | None:
        """The id of the token that ends a text."""
        return self.special.get(self.end_token)

    def encode(self, text: str, *, special: bool = False) -> list[int]:
        """Ids of a text. A language's code at its start (`>>fra<<`) is a token, as for Marian."""
        code = CODE.match(text)
        rest = text if code is None else text[code.end() :]
        found = [] if code is None else [code[0]]
        found += self._cutter.encode(rest, out_type=str)
        return [self.vocab.get(piece, self.vocab[UNKNOWN]) for piece in found]

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids."""
        return "".join(map(self._piece, ids)).replace(BLANK, " ").strip(" ")

    def bytes_of(self, id: int, after: int | None = None) -> bytes:
        """The bytes that a token adds to a text behind the token `after` (None: at the start of a text)."""
        text = self._piece(id).replace(BLANK, " ")
        return (text.lstrip(" ") if after is None else text).encode()

    def watch(self, text: str, *, special: bool = False) -> list[WatchedWord]:
        """There is nothing to watch."""
        raise InputError("this vocabulary has no merges: SentencePiece chooses the likeliest pieces")

    def shown(self, symbols: str) -> str:
        """Pieces as text for people."""
        return symbols.replace(BLANK, " ")

    def to_json(self) -> str:
        """There is none: a folder of this form holds `source.spm`, `target.spm` and `vocab.json`."""
        raise InputError("a vocabulary of SentencePiece cannot be a tokenizer.json")

    def _piece(self, id: int) -> str:
        try:
            return self._pieces[id]
        except KeyError:
            raise InputError(f"{id!r} is not a token id of this vocabulary (0 to {len(self) - 1})") from None

    @cached_property
    def _pieces(self) -> dict[int, str]:
        return {id: piece for piece, id in self.vocab.items()}


def _is_special(token: str) -> bool:
    """The tokens that no text is made of: those of the model, and the codes of languages."""
    return token in (UNKNOWN, END, PAD) or CODE.fullmatch(token) is not None


def _load(model: bytes) -> Any:
    """SentencePiece's reader of a model."""
    try:
        import sentencepiece
    except ImportError:
        raise InputError(
            "its vocabulary needs the sentencepiece library: pip install 'glassformer[translate]'"
        ) from None
    try:
        reader = sentencepiece.SentencePieceProcessor(model_proto=model)
    except (RuntimeError, ValueError, TypeError):
        reader = None
    if not model or reader is None:  # no bytes at all are no error there
        raise InputError("it is not a model of SentencePiece")
    return reader
