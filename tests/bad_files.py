"""Small models to break, and what every refusal has to be: typed, in time, and one sentence that names where
and why.
"""

import json
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from glassformer.errors import CheckpointError, GlassError
from glassformer.hub.folder import save_folder
from glassformer.models.gpt import GPT, Config
from glassformer.tokenizers import Tokenizer, train_tokenizer

SECONDS = 5  # two on a quiet machine; a collector with the objects of many libraries to visit makes it more


@cache
def tiny_tokenizer() -> Tokenizer:
    """A vocabulary with a few merges."""
    return train_tokenizer(["the cat sat on the mat and that was that; the hat, the bat"], 280)


def tiny_folder(folder: Path, *, seed: int = 0, **numbers: Any) -> Path:
    """A whole model of a few thousand numbers, in a folder."""
    tokenizer = tiny_tokenizer()
    model = GPT(
        Config(**{"layers": 2, "heads": 2, "width": 8, "vocab": len(tokenizer), "context": 16} | numbers)
    ).initialize(seed)
    save_folder(folder, model, tokenizer=tokenizer)
    return folder


def copy(folder: Path, target: Path) -> Path:
    """A copy to break."""
    return Path(shutil.copytree(folder, target, dirs_exist_ok=True))


def edit_json(path: Path, change: Callable[[Any], object]) -> None:
    """Change what a JSON file holds, in place."""
    whole = json.loads(path.read_text(encoding="utf-8"))
    change(whole)
    path.write_text(json.dumps(whole), encoding="utf-8")


@contextmanager
def refused(*words: str | Path, kind: type[GlassError] = CheckpointError) -> Iterator[None]:
    """The code inside is refused: with this error, soon, in one readable line that holds the words."""
    start = time.process_time()
    with pytest.raises(kind) as caught:
        yield
    assert time.process_time() - start < SECONDS
    message = str(caught.value)
    assert [str(word) for word in words if str(word) not in message] == [], message[:1000]
    assert len(message) < 5000
    assert message.isprintable(), ascii(message[:1000])
