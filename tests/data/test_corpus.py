"""Text files to one row of tokens."""

import gzip
import json
from pathlib import Path

import pytest
from small import small_tokenizer

from glassformer.data.corpus import join_tokens, read_texts
from glassformer.errors import InputError
from glassformer.tokenizers import Tokenizer
from glassformer.tokenizers.bpe import SYMBOL_OF

STORIES = ["Once upon a time.", "The end.\n", "é 😀"]


def test_documents_of_every_form(tmp_path: Path) -> None:
    """Plain text is one document, lines of JSON are many, packed or not."""
    lines = "".join(json.dumps({"text": story}) + "\n" for story in STORIES)
    (tmp_path / "a.txt").write_text(STORIES[2])
    (tmp_path / "b.jsonl").write_text(lines)
    (tmp_path / "c.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    assert list(read_texts(tmp_path / "a.txt")) == [STORIES[2]]
    assert list(read_texts(tmp_path / "b.jsonl")) == STORIES
    assert list(read_texts(tmp_path / "c.jsonl.gz")) == STORIES


def test_documents_are_joined_by_end_of_text() -> None:
    """One mark before the first, one after each; the text comes back."""
    tokenizer = small_tokenizer()
    row = join_tokens(STORIES, tokenizer).tolist()
    assert row[0] == row[-1] == tokenizer.end
    assert row.count(tokenizer.end) == len(STORIES) + 1
    assert tokenizer.decode(row).split("<|endoftext|>")[1:-1] == STORIES


def test_a_vocabulary_without_an_end() -> None:
    """Cannot join documents, and says so."""
    bare = Tokenizer({symbol: byte for byte, symbol in SYMBOL_OF.items()}, [])
    with pytest.raises(InputError, match="endoftext"):
        join_tokens(STORIES, bare)
