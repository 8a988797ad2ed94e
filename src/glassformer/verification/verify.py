"""Verify: everything that can be proved about a model and the package on this machine, in one table."""

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from glassformer import machine
from glassformer.answers.answer import Progress
from glassformer.answers.verification import Check, Verification
from glassformer.errors import InputError, warnings_to
from glassformer.hub.locate import locate
from glassformer.hub.lora import is_adapter
from glassformer.tasks.backends import TorchBackend, status
from glassformer.tasks.complete import LanguageModel
from glassformer.tasks.evaluate import NAMED, named
from glassformer.tasks.load import load
from glassformer.verification.crash import crash_and_resume
from glassformer.verification.exactness import FLOAT32, NO_BIT, batch, cache, engines, parity
from glassformer.verification.hostile import hostile_files
from glassformer.verification.published import PUBLISHED, figures, find_published
from glassformer.verification.roundtrip import round_trip
from glassformer.waiting import report

Stage = Iterator[Check]  # runs when it is iterated over

SHORTEST, LENGTH = 8, 64  # tokens of the text that is read
BEHIND = 32  # tokens behind a window of banded attention, so that it hides something
TEXT = (
    "Once upon a time, there was a little girl named Lily. She liked to play outside in the park with her"
    " dog. One day the dog saw a red ball under a tree and ran to it. They waited until the sun went down,"
    " but nobody came, so they took it home, and the next morning they met a boy who was looking for it. "
)


def verify(
    model: str = "storyteller",
    *,
    data: str | Path | None = None,
    pull: bool = False,
    progress: Progress = report,
) -> Verification:
    """Check a model and the package here, offline: parity, cache, batches, engines, crashes, files, tokens.

    `data` (or GLASSFORMER_DATA) is the folder of LAMBADA and WikiText-2, which a published GPT-2 is measured
    on. `pull` fetches the model if it is not on this machine.
    """
    began = time.perf_counter()
    folder = locate(str(model), offline=not pull)
    if is_adapter(folder):
        raise InputError(f"{model} is a LoRA folder; merge it first, by gf.load({str(model)!r}).save(FOLDER)")
    notes: list[str] = []
    with warnings_to(notes.append):
        lm = load(str(model), offline=not pull)

    with tempfile.TemporaryDirectory(prefix="glass-verify-") as work:
        stages = [*_of_model(lm, folder, notes), crash_and_resume(Path(work)), hostile_files(Path(work))]
        stages += _of_figures(lm, folder, data=data, notes=notes, progress=progress)
        checks: list[Check] = []
        for number, stage in enumerate(stages):
            progress(number, len(stages))
            checks += stage
        progress(len(stages), len(stages))

    passed = all(check.passed for check in checks)
    seconds = time.perf_counter() - began
    libraries = ", ".join(f"{name} {machine.installed(name)}" for name in ("torch", "numpy"))
    return Verification(
        caption=f"{model}: {len(checks)} checks in {seconds:.0f} s, each with a mutant that it must catch",
        made=f"{libraries}, {status()}, {machine.threads()} threads",
        tokens=[],
        model=str(model),
        seconds=seconds,
        passed=passed,
        checks=checks,
        notes=notes,
    )


def _of_model(lm: LanguageModel, folder: Path, notes: list[str]) -> list[Stage]:
    """What is checked of the model itself."""
    ids, backend = _ids(lm), TorchBackend(lm.net, "torch float32", lock=lm.lock)
    stages = [
        parity(folder, ids),
        cache(backend, ids, limit=FLOAT32),
        batch(backend, ids, limit=FLOAT32),
    ]
    if lm.engine is not None:
        stages += [
            cache(lm.engine, ids, limit=NO_BIT),
            batch(lm.engine, ids, limit=NO_BIT),
            engines(lm, ids, engine=lm.engine),
        ]
    elif not notes:  # otherwise the loader has given the reason
        notes.append(f"the native engine was not checked: this machine has {status()}")
    if lm.tokenizer is None:
        notes.append("the tokenizer was not checked: the model has none")
    else:
        stages.append(round_trip(lm.tokenizer))
    return stages


def _of_figures(
    lm: LanguageModel, folder: Path, *, data: str | Path | None, notes: list[str], progress: Progress
) -> list[Stage]:
    """Published figures, where the model has some and the data sets are here."""
    found = find_published(lm)
    if found is None:
        known = ", ".join(PUBLISHED)
        notes.append(f"published figures were not compared: there are some for {known}, not for {lm.name}")
        return []
    folder_of_data = Path(data) if data else None
    try:
        files = {name: named(name, folder_of_data) for name in NAMED}  # missing ones show now, not later
    except InputError as error:
        if data:
            raise
        notes.append(f"published figures were not compared: {error}, or give --data")
        return []
    return [figures(lm, found, folder=folder, files=files, progress=progress)]


def _ids(lm: LanguageModel) -> list[int]:
    """The text that the model reads, as long as its context and its attention need."""
    config = lm.net.config
    count: int = min(lm.net.context, max(LENGTH, getattr(config, "window", 0) + BEHIND))
    if count < SHORTEST:
        raise InputError(f"{lm.name}: a context of {count} tokens is too short; {SHORTEST} are needed")
    if lm.tokenizer is None:
        return [(7 * place + 3) % lm.net.vocab for place in range(count)]
    ids: list[int] = lm.encode(TEXT)
    return (ids * (1 + count // len(ids)))[:count]
