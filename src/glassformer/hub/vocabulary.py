"""Vocabulary files: `tokenizer.json`, `vocab.json` + `merges.txt`, OpenAI's `encoder.json` + `vocab.bpe`."""

import re
from itertools import chain
from pathlib import Path
from typing import Any

from glassformer.errors import CheckpointError, InputError
from glassformer.hub.files import MEGABYTE, read_json, read_text
from glassformer.tokenizers.bpe import Merge, Tokenizer

LIMIT = 64 * MEGABYTE
PAIRS = (("vocab.json", "merges.txt"), ("encoder.json", "vocab.bpe"))
SPECIAL = re.compile(r"<\S+>|\[[A-Z]+\]")  # how these files, which cannot say it, write their special tokens
FILES = ("tokenizer.json", *(name for pair in PAIRS for name in pair))


def load_tokenizer(folder: Path, *, check: bool = True) -> Tokenizer | None:
    """The tokenizer that lies in a folder, in whichever form; None if there is none.

    `check=False` is for files that were read before and have not changed since: it takes half the time.
    """
    single = folder / "tokenizer.json"
    if single.is_file():
        return _checked(single, lambda path: _read_tokenizer_json(path, check))
    for vocab, merges in PAIRS:
        there = (folder / vocab).is_file(), (folder / merges).is_file()
        if any(there) and not all(there):
            raise CheckpointError(
                f"{folder}: holds {vocab if there[0] else merges} without {merges if there[0] else vocab}"
            )
        if all(there):
            return _checked(
                folder / vocab, lambda path, merges=merges: _read_pair(path, path.parent / merges, check)
            )
    return None


def folder_tokenizer(folder: Path, vocab: int, *, check: bool = True) -> Tokenizer | None:
    """The tokenizer of a model's folder, for a model of so many tokens; which of them ends a text, its configuration says."""
    tokenizer = load_tokenizer(folder, check=check)
    if tokenizer is None:
        return None
    end = read_json(folder / "config.json").get("eos_token_id")
    tokenizer.end_token = next(
        (token for token, id in tokenizer.special.items() if id == end), tokenizer.end_token
    )
    if len(tokenizer) > vocab:
        raise CheckpointError(f"{folder}: the tokenizer has {len(tokenizer):,} tokens, the model {vocab:,}")
    return tokenizer


def _checked(path: Path, read: Any) -> Tokenizer:
    try:
        tokenizer: Tokenizer = read(path)
    except CheckpointError:
        raise
    except InputError as error:
        raise CheckpointError(f"{path}: {error}") from None
    return tokenizer


def _read_pair(vocab_path: Path, merges_path: Path, check: bool) -> Tokenizer:
    vocab = _vocab(read_json(vocab_path, LIMIT), vocab_path)
    text = read_text(merges_path, LIMIT)
    if text.count("\n") > 2 * len(vocab) + 100:
        raise CheckpointError(f"{merges_path}: more lines than {len(vocab):,} tokens can have merges")
    lines = text.split("\n")
    lines = [line.removesuffix("\r") for line in lines]
    if lines and lines[0].startswith("#version"):
        del lines[0]
    while lines and not lines[-1]:
        lines.pop()
    merges = _merges([_pair(line) for line in lines], merges_path)
    made = {left + right for left, right in merges if left[0] in "<["}
    special = {
        token: id
        for token, id in vocab.items()
        if token[:1] in "<[" and SPECIAL.fullmatch(token) and token not in made
    }
    return Tokenizer(vocab, merges, special=special, check=check)


def _read_tokenizer_json(path: Path, check: bool) -> Tokenizer:
    whole = read_json(path, LIMIT)
    model, cut = _part(whole, "model", path), _part(whole, "pre_tokenizer", path)
    if model.get("type", "BPE") != "BPE" or cut.get("type") != "ByteLevel" or cut.get("use_regex") is False:
        raise CheckpointError(f"{path}: not GPT-2's byte-level BPE, the only tokenizer that is known here")
    odd = next(
        (key for key in ("dropout", "continuing_subword_prefix", "end_of_word_suffix") if model.get(key)),
        None,
    )
    if odd is not None:
        raise CheckpointError(f"{path}: {odd} is not supported")
    if whole.get("normalizer") is not None:
        raise CheckpointError(f"{path}: a normalizer is not supported")
    if not isinstance(model.get("merges"), list) or not isinstance(whole.get("added_tokens", []), list):
        raise CheckpointError(f"{path}: merges and added_tokens should be lists")
    vocab = _vocab(_part(model, "vocab", path), path)
    merges = _merges([_pair(merge) for merge in model["merges"]], path)
    special: dict[str, int] = {}
    for token in whole.get("added_tokens", []):
        if (
            not isinstance(token, dict)
            or not isinstance(token.get("content"), str)
            or type(token.get("id")) is not int
        ):
            raise CheckpointError(f"{path}: an added token has no content or no id")
        if special.get(token["content"], vocab.get(token["content"], token["id"])) != token["id"]:
            raise CheckpointError(f"{path}: the added token {token['content'][:40]!r} has another id before")
        special[token["content"]] = token["id"]
    return Tokenizer(
        vocab, merges, special=special, prefix_space=cut.get("add_prefix_space") is True, check=check
    )


def _part(whole: dict[str, Any], key: str, path: Path) -> dict[str, Any]:
    part = whole.get(key)
    if not isinstance(part, dict):
        raise CheckpointError(f"{path}: {key!r} should be an object")
    return part


def _vocab(vocab: dict[str, Any], path: Path) -> dict[str, int]:
    if not set(map(type, vocab.values())) <= {int}:
        strange = next(symbol for symbol, id in vocab.items() if type(id) is not int)
        raise CheckpointError(f"{path}: the id of {strange[:40]!r} is not a whole number")
    return vocab


def _pair(merge: Any) -> Any:
    """A merge as a pair, if it can be one: written with a blank between, or as a list."""
    if isinstance(merge, str):
        return tuple(merge.split(" ", 2))
    return tuple(merge) if isinstance(merge, list) else merge


def _merges(pairs: list[Any], path: Path) -> list[Merge]:
    whole = set(map(type, pairs)) <= {tuple} and set(map(len, pairs)) <= {2}
    parts = list(chain.from_iterable(pairs)) if whole else []
    if (
        not whole or not set(map(type, parts)) <= {str} or "" in parts
    ):  # all at once: which one it is, only if there is one
        for rank, pair in enumerate(pairs):
            if (
                not isinstance(pair, tuple)
                or len(pair) != 2
                or not all(isinstance(part, str) and part for part in pair)
            ):
                raise CheckpointError(f"{path}: merge {rank} is not a pair: {str(pair)[:60]}")
    return pairs
