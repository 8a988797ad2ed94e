"""Attack the package: hundreds of hostile command lines, files, streams, interrupts and values from one seed.

    python -m attack SEED                  all kinds                            (in tests/)
    python -m attack SEED files            one kind
    python -m attack SEED files 17         one case, with everything it printed

Each case must end with a result or with one sentence: exit code 0, 1, 2 or 130, no traceback, no signal, no hang, no code run
from a pickle.
"""

import os
import shlex
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["OMP_NUM_THREADS"] = "1"

from attack import material
from attack.cases import KINDS, make
from attack.process import Case, Outcome, fault, run

# What verbs import when they run: imported once, here.
MODULES = (
    "glassformer.answers.lens", "glassformer.cli.panel", "glassformer.cli.progress", "glassformer.figures.page", "glassformer.hub.convert", "glassformer.hub.gpt1",
    "glassformer.hub.gpt2", "glassformer.hub.gpt3", "glassformer.tasks.complete", "glassformer.tasks.few_shot", "glassformer.tasks.language_modeling",
    "glassformer.tasks.load", "glassformer.tasks.train", "glassformer.verification.verify", "huggingface_hub", "pickles", "engine.boundary", "rich.live",
    "rich.progress", "rich.table", "sklearn.cluster", "sklearn.decomposition", "torch._dynamo", "torch.nn.parallel", "vl_convert", "zstandard",
)  # fmt: skip


def preload() -> None:
    """Import what the cases need, so that a fork has it."""
    import importlib

    import torch

    torch.set_num_threads(1)
    for name in MODULES:
        importlib.import_module(name)


def attempt(seed: int, kind: str, number: int, root: Path) -> tuple[Case, Outcome, str]:
    """Make a case, run it and judge it."""
    folder = root / "cases" / kind / str(number) / "a" / "b"  # deep enough for ../../x to stay inside
    shutil.copytree(root / "sound", folder)
    case = make(seed, kind, number, folder)
    found = run(case, folder, folder.parents[1] / "logs")
    wrong = fault(case, found)
    if (folder / "canary").exists():
        wrong = "a pickle was obeyed"
    return case, found, wrong


def described(case: Case, found: Outcome, wrong: str) -> str:
    """A case and its end, in a few lines."""
    streams = f"stdin {case.stdin!r:.60}, stdout {case.stdout}, stderr {case.stderr}, {case.encoding}"
    environment = {key: value[:60] for key, value in case.environment.items()}
    lines = [
        f"  glass {shlex.join(case.arguments)}"[:1000] if case.call is None else f"  {case.what}",
        f"  {case.what + '; ' if case.call is None and case.what else ''}{streams}; interrupts {case.interrupts}; files up to {case.largest_file:,}; {environment}",
        f"  exit code {found.code}, {found.seconds:.1f} s: {wrong or 'as it should be'}",
    ]
    tail = (found.trace or found.err).strip().splitlines()[-8:]
    return "\n".join([*lines, *(f"  | {line[:300]}" for line in tail)]).encode("utf-8", "backslashreplace").decode()


def main(seed: int, kinds: list[str], only: int | None) -> int:
    """Run cases; returns how many of them went wrong."""
    print(f"seed {seed}", flush=True)
    preload()
    root = Path(tempfile.mkdtemp(prefix="attack-"))
    material.build(root / "sound")
    failures = 0
    for kind in kinds:
        started = time.monotonic()
        codes: Counter[str] = Counter()
        for number in range(KINDS[kind][1]) if only is None else [only]:
            case, found, wrong = attempt(seed, kind, number, root)
            codes["stopped" if found.stopped else str(found.code)] += 1
            if wrong:
                failures += 1
                repeat = f"cd tests && {sys.executable} -m attack {seed} {kind} {number}"
                print(f"\n{kind} {number}: {wrong}\n{described(case, found, wrong)}\n  repeat it: {repeat}", flush=True)
            if only is not None:
                print(f"{described(case, found, wrong)}\n{found.out}\n{found.err}\n{found.trace}\n{root}")
            else:
                shutil.rmtree(root / "cases" / kind / str(number), ignore_errors=True)
        print(f"{kind}: {codes.total()} cases in {time.monotonic() - started:.0f} s, exit codes {dict(codes)}", flush=True)
    if only is None:
        shutil.rmtree(root, ignore_errors=True)
    return failures


if __name__ == "__main__":
    given = sys.argv[1:]
    number = int(given[2]) if len(given) > 2 else None
    sys.exit(1 if main(int(given[0]), given[1:2] or [*KINDS], number) else 0)
