"""Long work for somebody: it ends before the model runs again when they leave, and says how far it is."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
from serving import tiny_model
from translators import small_translator

from glassformer.answers import ask
from glassformer.answers.answer import Text
from glassformer.waiting import Cancelled, Waiting, cancellable, is_cancelled, raise_if_cancelled, report

TINY = tiny_model()
TEXT = "Once upon a time"
CLEAN, CORRUPTED = "Once upon a", "Once upon t"


def saliency() -> Any:
    ids = TINY.encode(TEXT)
    return ask("saliency", Text(TINY, ids, len(ids) - 1), method="occlusion")


def sweep() -> Any:
    return ask("sweep", TINY, CLEAN, corrupted=CORRUPTED, answer=" a", foil="e", sites="blocks.*.attn.mix[*]")


def edit() -> Any:
    how = {"edits": [{"site": "blocks.0.attn", "do": "zero"}], "max_new_tokens": 8}
    return ask("edit", Text(TINY, TINY.encode(TEXT)), **how)


def translation() -> Any:
    how = {"max_new_tokens": 4, "num_beams": 1}
    return TRANSLATOR.translate("She liked to play.", to="fr", **how).saliency()


TRANSLATOR = small_translator(seed=6, layers=1, decoder_layers=2)
LONG: dict[str, tuple[Callable[[], Any], Any]] = {
    "saliency and its tests": (saliency, TINY.net),
    "a sweep": (sweep, TINY.net),
    "an edit": (edit, TINY.net),
    "the saliency of a translation": (translation, TRANSLATOR.net),
}


class Runs:
    """Counts the runs of a model; whoever waits leaves during one of them."""

    def __init__(self, waits: Waiting, *, leave_in: int = -1) -> None:
        self.waits, self.leave_in, self.count = waits, leave_in, 0
        self.shares: list[float] = []

    def __call__(self, *_: Any) -> None:
        self.count += 1
        if self.count == self.leave_in:
            self.waits.cancelled.set()
        if self.waits.total:
            self.shares.append(self.waits.done / self.waits.total)


@pytest.mark.parametrize("name", LONG)
def test_who_leaves_ends_it_before_the_model_runs_again(name: str) -> None:
    work, net = LONG[name]
    counts = []
    for leave_in in (-1, 3):
        runs = Runs(Waiting(), leave_in=leave_in)
        hook = net.register_forward_pre_hook(runs)
        try:
            with cancellable(runs.waits):
                if leave_in < 0:
                    work()
                else:
                    with pytest.raises(Cancelled):
                        work()
        finally:
            hook.remove()
        counts.append(runs.count)
    assert counts[0] > 8
    assert counts[1] == 3
    work()  # and the next one, for which nobody in particular waits, is as ever


@pytest.mark.parametrize("name", ["saliency and its tests", "a sweep", "the saliency of a translation"])
def test_it_says_how_far_it_is(name: str) -> None:
    """More and more, up to all, and in steps that show that it moves."""
    work, net = LONG[name]
    runs = Runs(Waiting())
    hook = net.register_forward_pre_hook(runs)
    try:
        with cancellable(runs.waits):
            work()
    finally:
        hook.remove()
    assert runs.shares == sorted(runs.shares)
    assert len(set(runs.shares)) >= 5
    assert 0 < runs.waits.done <= runs.waits.total


def test_it_is_one_threads_own() -> None:
    """Work in another thread is not ended by who leaves this one, and reports nothing to them."""
    waits, seen = Waiting(), []
    waits.cancelled.set()
    with pytest.raises(Cancelled), cancellable(waits):
        pass
    waits.cancelled.clear()

    def other() -> None:
        raise_if_cancelled()
        report(1, 2)
        seen.append(is_cancelled())

    with cancellable(waits):
        waits.cancelled.set()
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        assert is_cancelled()
        for ask_again in (raise_if_cancelled, lambda: report(1, 2)):
            with pytest.raises(Cancelled):
                ask_again()
    assert seen == [False]
    assert (waits.done, waits.total) == (0, 0)
    assert not is_cancelled()
    raise_if_cancelled()
    report(1, 2)
