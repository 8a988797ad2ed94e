"""One server for most tests of the room: a tiny model with random weights, and the one that ships."""

from collections.abc import Iterator

import pytest
from serving import Running, serving, tiny_model

import glassformer as gf


@pytest.fixture(scope="session")
def server() -> Iterator[Running]:
    """A server with `tiny`, `long` (whose texts take a while), a model of dialogs, and `storyteller`."""
    models = {
        "tiny": tiny_model(),
        "long": tiny_model("long", context=4096),
        "a/DialoGPT-tiny": tiny_model("dialog", seed=1),
        "storyteller": gf.load("storyteller"),
    }
    with serving(models) as running:
        yield running
