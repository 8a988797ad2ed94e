"""Toy families with other capabilities than GPT's, for the tests of what a house of several families needs."""

import itertools
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from small import shake, small_config, small_tokenizer
from torch import Tensor

from glassformer.hub.families import FAMILIES, Entry, family
from glassformer.hub.folder import save_folder
from glassformer.models.gpt import GPT

NUMBERS = itertools.count()  # a module's family is read once, so every one has a name of its own


class Encoder(GPT):
    """Reads a text and continues none."""

    kind = "encoder"
    capabilities = frozenset({"encodes", "attends"})


class WithoutAttention(GPT):
    """Has no attention patterns."""

    kind = "without-attention"
    capabilities = frozenset({"writes", "causal"})


class Translating(GPT):
    """Continues a text behind a source."""

    kind = "translating"
    capabilities = frozenset({"writes", "causal", "attends", "source"})

    def forward(self, *given: Any, last: bool = False) -> Tensor:  # type: ignore[override]
        ids = [one for one in given if isinstance(one, Tensor)]
        if len(ids) == 1:
            return super().forward(*given, last=last)
        return super().forward(torch.cat(ids, 1), last=last)[:, -ids[1].shape[1] :]

    def given(self, source: Sequence[int]) -> "Bound":
        """A view that is bound to a source."""
        return Bound(self, source)


class Bound:
    """A stepper whose cache begins with the source: what it generates is what GPT does behind both texts."""

    def __init__(self, net: Translating, source: Sequence[int]) -> None:
        self.net, self.source = net, list(source)

    @property
    def context(self) -> int:
        return int(self.net.config.context) - len(self.source)

    @property
    def vocab(self) -> int:
        return self.net.vocab

    def new_cache(self, rows: int, capacity: int, *, padding: Any = None) -> Any:
        assert padding is None or not padding.any()
        cache = self.net.new_cache(rows, capacity + len(self.source))
        self.net.step(np.array([self.source] * rows), cache)
        return cache

    def cache_size(self, rows: int, capacity: int) -> int:
        return self.net.cache_size(rows, capacity + len(self.source))

    def step(self, ids: Any, cache: Any) -> Any:
        return self.net.step(ids, cache)

    def log_sums(self, logits: Any) -> list[float]:
        return self.net.log_sums(logits)

    def logits(self, ids: Any) -> Any:
        whole = np.concatenate([np.array([self.source] * len(ids)), ids], 1)
        return self.net.logits(whole)[:, len(self.source) :]


def add_family(monkeypatch: pytest.MonkeyPatch, net: type[GPT], **changes: Any) -> None:
    """Register a family as a line in FAMILIES and a module do it, until the test ends."""
    gpt2, model_type = family("gpt2"), f"glass-{net.kind}"
    module = ModuleType(f"toy_{next(NUMBERS)}")
    module.FAMILY = replace(  # type: ignore[attr-defined]
        gpt2,
        kind=net.kind,
        model_type=model_type,
        build=net,
        write_config=lambda config: gpt2.write_config(config) | {"model_type": model_type},
        **changes,
    )
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(FAMILIES, net.kind, Entry(model_type, module.__name__))


def toy_folder(folder: Path, net: type[GPT], **sizes: Any) -> str:
    """A folder with a small random model of a toy family."""
    tokenizer = small_tokenizer()
    model = net(small_config(vocab=len(tokenizer), **sizes)).initialize(0)
    with torch.no_grad():
        shake(model, 0)
    save_folder(folder, model.eval(), tokenizer=tokenizer)
    return str(folder)
