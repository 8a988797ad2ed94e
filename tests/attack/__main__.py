"""Attack the package: hundreds of hostile command lines, files, streams, interrupts and values from one seed.

    python -m attack                       all kinds of cases, from a new seed    (in tests/)
    python -m attack 7                     from seed 7
    python -m attack 7 --cases 50          fewer cases
    python -m attack 7 files               one kind
    python -m attack 7 files 17            one case, with everything that it printed

A case fails on a traceback, a signal, a hang, a wrong exit code, an error that is not one line on stderr, and on
code that a pickle ran.
"""

import argparse
import importlib
import os
import random
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
from attack.cases import ALL, KINDS, make, numbers
from attack.process import Case, Outcome, fault, run
from glassformer.cli import VERBS, command_of

# What commands import when they run. Imported here once, it costs a case nothing; for a few cases it does not pay.
MODULES = (
    "glassformer.answers.lens", "glassformer.cli.panel", "glassformer.cli.progress",
    "glassformer.figures.page", "glassformer.hub.convert", "glassformer.hub.gpt1", "glassformer.hub.gpt2",
    "glassformer.hub.gpt3", "glassformer.tasks.complete", "glassformer.tasks.few_shot",
    "glassformer.tasks.language_modeling", "glassformer.tasks.load", "glassformer.tasks.train",
    "glassformer.verification.verify", "huggingface_hub", "pickles", "engine.boundary", "rich.live",
    "rich.progress", "rich.table", "sklearn.cluster", "sklearn.decomposition", "torch._dynamo",
    "torch.nn.parallel", "vl_convert", "zstandard",
)  # fmt: skip
FEW = 20


def attempt(seed: int, kind: str, number: int, root: Path) -> tuple[Case, Outcome, str]:
    """Make a case, run it and judge it."""
    folder = root / "cases" / kind / str(number) / "a" / "b"  # deep enough for ../../x to stay inside
    shutil.copytree(root / "valid", folder)
    case = make(seed, kind, number, folder)
    found = run(case, folder, folder.parents[1] / "logs")
    wrong = fault(case, found)
    if (folder / "canary").exists():
        wrong = "a pickle ran code"
    return case, found, wrong


def described(case: Case, found: Outcome) -> str:
    """A case and its end, in a few lines."""
    usual = vars(Case())
    shown = ("arguments", "call", "note")
    settings = {key: value for key, value in vars(case).items() if value != usual[key] and key not in shown}
    command = f"glass {shlex.join(case.arguments)}"[:1000] if case.call is None else ""
    printed = (found.trace or found.err).strip().splitlines()[-8:]
    lines = [
        command,
        case.note,
        ", ".join(f"{key} {value!r:.200}" for key, value in settings.items()),
        f"exit code {found.code} after {found.seconds:.1f} s",
        *(f"| {line[:300]}" for line in printed),
    ]
    return "".join(f"\n  {line}" for line in lines if line)


def show(text: str) -> None:
    """Print, with escapes for what is not UTF-8."""
    print(text.encode("utf-8", "backslashreplace").decode(), flush=True)


def run_kind(seed: int, kind: str, *, cases: int, root: Path) -> int:
    """Run the cases of a kind; the number of failures."""
    started = time.monotonic()
    codes: Counter[str] = Counter()
    failures = 0
    for number in numbers(kind, cases):
        case, found, wrong = attempt(seed, kind, number, root)
        codes["stopped" if found.stopped else str(found.code)] += 1
        if wrong:
            failures += 1
            repeat = f"cd tests && {sys.executable} -m attack {seed} {kind} {number}"
            show(f"\n{kind} {number}: {wrong}{described(case, found)}\n  repeat it: {repeat}")
        shutil.rmtree(root / "cases", ignore_errors=True)
    seconds = time.monotonic() - started
    show(f"{kind}: {codes.total()} cases in {seconds:.0f} s, exit codes {dict(sorted(codes.items()))}")
    return failures


def run_one(seed: int, kind: str, number: int, *, root: Path) -> int:
    """Run one case and show everything; 1 if it failed."""
    case, found, wrong = attempt(seed, kind, number, root)
    show(f"{kind} {number}: {wrong or 'no fault'}{described(case, found)}")
    for name in ("out", "err", "trace"):
        show(f"--- {name}\n{getattr(found, name)}")
    return int(bool(wrong))


def main() -> int:
    """Run cases; 1 if one of them failed."""
    parser = argparse.ArgumentParser(prog="python -m attack")
    parser.add_argument("seed", type=int, nargs="?", default=random.SystemRandom().randrange(10**9))
    parser.add_argument("kind", choices=[*KINDS], nargs="?")
    parser.add_argument("number", type=int, nargs="?")
    parser.add_argument("--cases", type=int, default=ALL, help=f"about how many, of all kinds ({ALL})")
    given = parser.parse_args()

    show(f"seed {given.seed}")
    with tempfile.TemporaryDirectory(prefix="attack-", ignore_cleanup_errors=True) as name:
        root = Path(name)
        os.environ |= {"HF_HOME": f"{name}/hub", "GLASSFORMER_HOME": f"{name}/home"}  # never the user's own
        prepare(root, few=given.cases <= FEW)
        if given.number is not None:
            return run_one(given.seed, given.kind, given.number, root=root)
        kinds = [given.kind] if given.kind else [*KINDS]
        failures = sum(run_kind(given.seed, kind, cases=given.cases, root=root) for kind in kinds)
    show(f"seed {given.seed}: {failures or 'no'} failures")
    return int(failures > 0)


def prepare(root: Path, *, few: bool) -> None:
    """Write the valid files, and import what the cases need."""
    import torch

    torch.set_num_threads(1)
    if not few:
        for module in MODULES:
            importlib.import_module(module)
        for verb in VERBS:
            command_of(verb, [])
    material.build(root / "valid")


if __name__ == "__main__":
    sys.exit(main())
