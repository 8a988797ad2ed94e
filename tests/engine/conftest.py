"""Small models for the engine, and the float model each was made of."""

from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
import torch

from glassformer.engine import native
from glassformer.engine.native import Engine
from glassformer.engine.quantize import pack
from glassformer.models.gpt import GPT, Config


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Without a compiler there is no engine to test."""
    if not native.ways():
        for item in items:
            if "/engine/" in str(item.path):
                item.add_marker(
                    pytest.mark.skip(reason="the native engine was not built: there was no C++ compiler")
                )


def random_model(seed: int = 0, **sizes: Any) -> GPT:
    """A model whose logits are as wide as a trained one's: every weight counts."""
    model = GPT(
        Config(**({"layers": 2, "heads": 3, "width": 48, "vocab": 200, "context": 64} | sizes))
    ).eval()
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            around = 1.0 if name.endswith(("norm.weight", "norm1.weight", "norm2.weight")) else 0.0
            spread = 0.3 if parameter.dim() == 1 else 1.0 / parameter.shape[1] ** 0.5
            parameter.copy_(around + spread * torch.randn(parameter.shape, generator=draw))
    return model


def engine_of(model: GPT, *, bits: int = 8, **how: Any) -> Engine:
    """The engine of a model in torch."""
    config = asdict(model.config)
    weights = {name: parameter.detach().numpy() for name, parameter in model.named_parameters()}
    return Engine(config, pack(config, weights, bits=bits), **how)


@pytest.fixture(scope="session")
def model() -> GPT:
    return random_model()


@pytest.fixture(scope="session")
def engine(model: GPT) -> Engine:
    return engine_of(model, threads=2)


@pytest.fixture(scope="session", params=[8, 4], ids=["int8", "int4"])
def any_engine(model: GPT, request: pytest.FixtureRequest) -> Engine:
    """An engine with weights of eight bits, and one of four."""
    return engine_of(model, threads=2, bits=request.param)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)
