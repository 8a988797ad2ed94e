"""Vocabulary files: `tokenizer.json`, `vocab.json` + `merges.txt`, OpenAI's `encoder.json` + `vocab.bpe`,
Marian's `source.spm` + `target.spm` + `vocab.json` (and `target_vocab.json`, if targets have other ids).

The files decide which tokenizer they hold: GPT-2's works on bytes, GPT-1's has tokens that end with `</w>`.
A model whose sources have a vocabulary of their own keeps it in a second file, `source_tokenizer.json`.
"""

import json
import re
from collections.abc import Callable
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from glassformer.errors import CheckpointError, InputError
from glassformer.files import MEGABYTE, read_bytes, read_json, read_text
from glassformer.tokenizers.bpe import ByteBPE, Merge
from glassformer.tokenizers.music import MODEL as MUSIC
from glassformer.tokenizers.music import Music, read_music
from glassformer.tokenizers.sentence_pieces import SentencePieces
from glassformer.tokenizers.tokenizer import Tokenizer, with_source
from glassformer.tokenizers.train import PADDING
from glassformer.tokenizers.word_bpe import END_OF_WORD, UNKNOWN, WordBPE, is_word_vocabulary

LIMIT = 64 * MEGABYTE
SOURCE = "source_tokenizer.json"
SPECIAL = re.compile(r"<\S+>|\[[A-Z]+\]")  # how these files, which cannot say it, write their special tokens
GPT1_NORMALIZER = {
    "type": "BertNormalizer",
    "clean_text": True,
    "handle_chinese_chars": True,
    "strip_accents": None,
    "lowercase": True,
}


def load_tokenizer(folder: Path, *, check: bool = True) -> Tokenizer | None:
    """The tokenizer that lies in a folder, in whichever form; None if there is none.

    `check=False` is for files that were read before and have not changed since: it takes half the time.
    """
    present = {name for name in FILES if (folder / name).is_file()}
    for names, read in FORMS.items():
        if present.issuperset(names):
            paths = [folder / name for name in names]
            return _with_source(_checked(paths[0], partial(read, *paths, check)), folder, check)
    nearest = max(FORMS, key=lambda names: len(present.intersection(names)))
    if present.intersection(nearest):
        one = next(name for name in nearest if name in present)
        other = next(name for name in nearest if name not in present)
        raise CheckpointError(f"{folder}: holds {one} without {other}")
    if (folder / SOURCE).is_file():
        raise CheckpointError(f"{folder}: holds {SOURCE} without tokenizer.json")
    return None


def _with_source(tokenizer: Tokenizer, folder: Path, check: bool) -> Tokenizer:
    """The tokenizer, with the vocabulary of sources if the folder holds one."""
    path = folder / SOURCE
    if not path.is_file():
        return tokenizer
    return _checked(path, lambda: with_source(tokenizer, _read_tokenizer_json(path, check)))


def tokenizer_files(
    tokenizer: Tokenizer, *, post_processor: dict[str, Any] | None = None
) -> dict[str, str | bytes]:
    """The files of a folder that hold a tokenizer, and their content.

    The `post_processor` says to other libraries what surrounds a text; it is not read here.
    """
    if isinstance(tokenizer, SentencePieces):
        return _marian_files(tokenizer)
    content = tokenizer.to_json()
    if post_processor is not None:
        whole = json.loads(content) | {"post_processor": post_processor}
        content = json.dumps(whole, ensure_ascii=False, separators=(",", ":"))
    files: dict[str, str | bytes] = {"tokenizer.json": content}
    if tokenizer.source is not None:
        files[SOURCE] = tokenizer.source.to_json()
    return files


def folder_tokenizer(
    folder: Path, vocab: int, *, source_vocab: int = 0, check: bool = True
) -> Tokenizer | None:
    """The tokenizer of a model's folder, whose configuration says which token ends a text."""
    tokenizer = load_tokenizer(folder, check=check)
    if tokenizer is None:
        return None
    end = read_json(folder / "config.json").get("eos_token_id")
    tokenizer.end_token = next(
        (token for token, id in tokenizer.special.items() if id == end), tokenizer.end_token
    )
    if tokenizer.source is not None:
        tokenizer.source.end_token = tokenizer.end_token
    check_fits(tokenizer, folder, vocab=vocab, source_vocab=source_vocab)
    return tokenizer


def check_fits(tokenizer: Tokenizer, folder: Path, *, vocab: int, source_vocab: int = 0) -> None:
    """Refuse vocabularies that a model has no vectors for. `source_vocab` is 0 where it has one for both."""
    if len(tokenizer) > vocab:
        raise CheckpointError(f"{folder}: the tokenizer has {len(tokenizer):,} tokens, the model {vocab:,}")
    if tokenizer.source is None and source_vocab:
        raise CheckpointError(
            f"{folder}: {SOURCE} is missing, and the model has {source_vocab:,} vectors for tokens of sources"
        )
    if tokenizer.source is not None and not source_vocab and not _shares_ids(tokenizer):
        raise CheckpointError(
            f"{folder}: {SOURCE} does not belong to a model that has one vocabulary for sources and targets"
        )
    if tokenizer.source is not None and len(tokenizer.source) > (source_vocab or vocab):
        raise CheckpointError(
            f"{folder}: {SOURCE} has {len(tokenizer.source):,} tokens, the model {source_vocab:,}"
        )


def tokenizer_config(tokenizer: Tokenizer, context: int | None, *, pads: bool = False) -> dict[str, object]:
    """The content of `tokenizer_config.json`: the class and the special tokens, for `transformers`.

    `pads`: texts of several lengths are read together there.
    """
    if isinstance(tokenizer, SentencePieces):
        separate = not _shares_ids(tokenizer)
        return {
            "tokenizer_class": "MarianTokenizer",
            "model_max_length": context,
            "separate_vocabs": separate,
        }
    if isinstance(tokenizer, Music):
        return {"model_max_length": context, "eos_token": tokenizer.end_token}
    is_word = isinstance(tokenizer, WordBPE)
    config: dict[str, object] = {
        "tokenizer_class": "OpenAIGPTTokenizer" if is_word else "GPT2Tokenizer",
        "model_max_length": context,
        "add_prefix_space": tokenizer.prefix_space,
    }
    if tokenizer.end is not None:
        config |= dict.fromkeys(("bos_token", "eos_token", "unk_token"), tokenizer.end_token)
    if pads and PADDING in tokenizer.special:
        config["pad_token"] = PADDING
    return config | ({"unk_token": UNKNOWN} if is_word else {})


def _read_marian(
    source_path: Path, target_path: Path, vocab_path: Path, target_vocab_path: Path | bool, check: bool = True
) -> Tokenizer:
    """Marian's pair: the tokenizer of targets, with that of sources beside it."""
    if isinstance(target_vocab_path, bool):
        target_vocab_path = vocab_path
    target_vocab, vocab = (_vocab(read_json(path, LIMIT), path) for path in (target_vocab_path, vocab_path))
    target = _checked(target_path, lambda: SentencePieces(read_bytes(target_path, LIMIT), target_vocab))
    source = _checked(source_path, lambda: SentencePieces(read_bytes(source_path, LIMIT), vocab))
    return with_source(target, source)


def _shares_ids(tokenizer: Tokenizer) -> bool:
    """Whether sources are only cut in another way, into pieces with the same ids as those of targets."""
    source = tokenizer.source
    return (
        isinstance(tokenizer, SentencePieces)
        and isinstance(source, SentencePieces)
        and source.vocab == tokenizer.vocab
    )


def _marian_files(tokenizer: SentencePieces) -> dict[str, str | bytes]:
    source = tokenizer.source
    assert isinstance(source, SentencePieces)
    files: dict[str, str | bytes] = {"source.spm": source.model, "target.spm": tokenizer.model}
    files["vocab.json"] = json.dumps(source.vocab, ensure_ascii=False)
    if not _shares_ids(tokenizer):
        files["target_vocab.json"] = json.dumps(tokenizer.vocab, ensure_ascii=False)
    return files


def _checked(path: Path, read: Callable[[], Tokenizer]) -> Tokenizer:
    """What `read` reads; an error in the vocabulary is reported with the file's name."""
    try:
        return read()
    except CheckpointError:
        raise
    except InputError as error:
        raise CheckpointError(f"{path}: {error}") from None


def _read_pair(vocab_path: Path, merges_path: Path, check: bool) -> Tokenizer:
    vocab = _vocab(read_json(vocab_path, LIMIT), vocab_path)
    text = read_text(merges_path, LIMIT)
    if text.count("\n") > 2 * len(vocab) + 100:
        raise CheckpointError(f"{merges_path}: more lines than {len(vocab):,} tokens can have merges")
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    if lines and lines[0].startswith("#version"):
        del lines[0]
    while lines and not lines[-1]:
        lines.pop()
    merges = _merges([_pair(line) for line in lines], merges_path)

    made = {left + right for left, right in merges if left[0] in "<["}
    found = (token for token in vocab if token[:1] in "<[" and SPECIAL.fullmatch(token) and token not in made)
    special = {token: vocab[token] for token in found}
    if is_word_vocabulary(vocab):
        special = {token: id for token, id in special.items() if not token.endswith(END_OF_WORD)}
        return WordBPE(vocab, merges, special=special, check=check)
    return ByteBPE(vocab, merges, special=special, check=check)


def _read_tokenizer_json(path: Path, check: bool) -> Tokenizer:
    whole = read_json(path, LIMIT)
    model = _part(whole, "model", path)
    if model.get("type") == MUSIC:
        return read_music(model)
    cut = _part(whole, "pre_tokenizer", path)
    is_word = model.get("end_of_word_suffix") == END_OF_WORD
    _check_form(whole, is_word, path)
    if not isinstance(model.get("merges"), list) or not isinstance(whole.get("added_tokens", []), list):
        raise CheckpointError(f"{path}: merges and added_tokens should be lists")
    vocab = _vocab(_part(model, "vocab", path), path)
    merges = _merges([_pair(merge) for merge in model["merges"]], path)
    special = _special(whole.get("added_tokens", []), vocab, path)
    if is_word:
        special |= {UNKNOWN: vocab[UNKNOWN]} if UNKNOWN in vocab else {}
        return WordBPE(vocab, merges, special=special, check=check)
    prefix_space = cut.get("add_prefix_space") is True
    return ByteBPE(vocab, merges, special=special, prefix_space=prefix_space, check=check)


def _check_form(whole: dict[str, Any], is_word: bool, path: Path) -> None:
    """Refuse every kind of tokenizer but GPT-2's and GPT-1's."""
    model, cut, normal = whole["model"], whole["pre_tokenizer"], whole.get("normalizer")
    form = "BertPreTokenizer" if is_word else "ByteLevel"
    if model.get("type", "BPE") != "BPE" or cut.get("type") != form or cut.get("use_regex") is False:
        raise CheckpointError(
            f"{path}: neither GPT-2's byte-level BPE nor GPT-1's, the tokenizers known here"
        )
    odd = next((key for key in ("dropout", "continuing_subword_prefix", "fuse_unk") if model.get(key)), None)
    if odd is not None:
        raise CheckpointError(f"{path}: {odd} is not supported")
    if is_word and normal != GPT1_NORMALIZER:
        raise CheckpointError(f"{path}: the normalizer is not GPT-1's, which lower-cases and strips accents")
    if is_word and model.get("unk_token") != UNKNOWN:
        raise CheckpointError(f"{path}: unk_token should be {UNKNOWN!r}")
    if not is_word and model.get("end_of_word_suffix"):
        raise CheckpointError(f"{path}: end_of_word_suffix is not supported")
    if not is_word and normal is not None:
        raise CheckpointError(f"{path}: a normalizer is not supported")


def _special(added: list[Any], vocab: dict[str, int], path: Path) -> dict[str, int]:
    """The special tokens that a `tokenizer.json` lists, with their ids."""
    special: dict[str, int] = {}
    for token in added:
        content, id = (token.get("content"), token.get("id")) if isinstance(token, dict) else (None, None)
        if not isinstance(content, str) or type(id) is not int:
            raise CheckpointError(f"{path}: an added token has no content or no id")
        if special.get(content, vocab.get(content, id)) != id:
            raise CheckpointError(f"{path}: the added token {content[:40]!r} has another id before")
        special[content] = id
    return special


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
    # All at once, which is fast; the one that is wrong is looked for only if there is one.
    if not whole or not set(map(type, parts)) <= {str} or "" in parts:
        for rank, pair in enumerate(pairs):
            if (
                not isinstance(pair, tuple)
                or len(pair) != 2
                or not all(isinstance(part, str) and part for part in pair)
            ):
                raise CheckpointError(f"{path}: merge {rank} is not a pair: {str(pair)[:60]}")
    return pairs


# The files that together hold a tokenizer, and what reads them; the first form that is whole is read.
FORMS: dict[tuple[str, ...], Callable[..., Tokenizer]] = {
    ("tokenizer.json",): _read_tokenizer_json,
    ("vocab.json", "merges.txt"): _read_pair,
    ("encoder.json", "vocab.bpe"): _read_pair,
    ("source.spm", "target.spm", "vocab.json", "target_vocab.json"): _read_marian,
    ("source.spm", "target.spm", "vocab.json"): _read_marian,
}
FILES = tuple(name for names in FORMS for name in names)
