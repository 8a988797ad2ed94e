"""The torch backend: whatever stepper it wraps runs under the lock, with the edits, after the check."""

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from small import small_model

from glassformer.errors import GlassError
from glassformer.tasks.backends import TorchBackend

IDS = np.array([[1, 2, 3]])
RUNS: dict[str, Callable[[TorchBackend], Any]] = {
    "step": lambda backend: backend.step(IDS, backend.new_cache(1, 3)),
    "logits": lambda backend: backend.logits(IDS),
    "new_cache": lambda backend: backend.new_cache(1, 3),  # of a model with a source it is filled by a run
}


class Recorded:
    """A stepper that notes under which circumstances it is called; it is also the edits of these calls."""

    def __init__(self, lock: Any) -> None:
        self.net, self.lock, self.depth = small_model(), lock, 0
        self.calls: list[tuple[str, bool, int]] = []

    def __getattr__(self, name: str) -> Any:
        self.calls.append((name, self.lock._is_owned(), self.depth))
        return getattr(self.net, name)

    def __enter__(self) -> None:
        self.depth += 1

    def __exit__(self, *error: object) -> None:
        self.depth -= 1


@pytest.mark.parametrize("name", RUNS)
def test_every_run_holds_the_lock_and_has_the_edits(name: str) -> None:
    """Inside both; outside neither, and the result is the stepper's own."""
    lock = threading.RLock()
    model = Recorded(lock)
    backend = TorchBackend(model, "torch float32", lock=lock, edits=model)
    found = RUNS[name](backend)
    assert (name, True, 1) in model.calls
    assert not lock._is_owned()  # type: ignore[attr-defined]
    assert model.depth == 0
    if name != "new_cache":
        right = model.net.logits(IDS)
        np.testing.assert_allclose(found, right if name == "logits" else right[:, -1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", RUNS)
def test_a_check_refuses_a_run(name: str) -> None:
    """Before the model is touched."""

    def refuse() -> None:
        raise GlassError("not now")

    model = Recorded(threading.RLock())
    with pytest.raises(GlassError, match="not now"):
        RUNS[name](TorchBackend(model, "torch float32", check=refuse))
    assert not model.calls


def test_what_it_reports_of_the_model() -> None:
    """Name, sizes and sums are handed through."""
    net = small_model()
    backend = TorchBackend(net, "torch float32")
    assert (backend.name, backend.context, backend.vocab) == ("torch float32", 40, 97)
    assert backend.cache_size(2, 7) == net.cache_size(2, 7)
    assert backend.threads >= 1
    logits = backend.logits(IDS)[0]
    assert backend.log_sums(logits) == net.log_sums(logits)
