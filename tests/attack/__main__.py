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


def described(case: Case, found: Outcome) -> str:
    """A case and its end, in a few lines."""
    lines = [f"glass {shlex.join(case.arguments)}"[:1000]] if case.call is None else []
    lines += [case.what] if case.what else []
    usual = vars(Case())
    around = {
        key: value
        for key, value in vars(case).items()
        if value != usual[key] and key not in ("arguments", "call", "what")
    }
    lines += [", ".join(f"{key} {value!r:.200}" for key, value in around.items())]
    lines += [f"exit code {found.code} after {found.seconds:.1f} s"]
    lines += [f"| {line[:300]}" for line in (found.trace or found.err).strip().splitlines()[-8:]]
    return "".join(f"\n  {line}" for line in lines if line).encode("utf-8", "backslashreplace").decode()


def run_kind(seed: int, kind: str, root: Path) -> int:
    """Run all cases of a kind; how many of them went wrong."""
    started = time.monotonic()
    codes: Counter[str] = Counter()
    failures = 0
    for number in range(KINDS[kind][1]):
        case, found, wrong = attempt(seed, kind, number, root)
        codes["stopped" if found.stopped else str(found.code)] += 1
        if wrong:
            failures += 1
            repeat = f"cd tests && {sys.executable} -m attack {seed} {kind} {number}"
            print(f"\n{kind} {number}: {wrong}{described(case, found)}\n  repeat it: {repeat}", flush=True)
        shutil.rmtree(root / "cases", ignore_errors=True)
    seconds = time.monotonic() - started
    print(f"{kind}: {codes.total()} cases in {seconds:.0f} s, exit codes {dict(codes)}", flush=True)
    return failures


def run_one(seed: int, kind: str, number: int, root: Path) -> int:
    """Run one case and show everything."""
    case, found, wrong = attempt(seed, kind, number, root)
    print(f"{kind} {number}: {wrong or 'as it should be'}{described(case, found)}")
    for name in ("out", "err", "trace"):
        print(f"--- {name}\n{getattr(found, name)}".encode("utf-8", "backslashreplace").decode())
    return bool(wrong)


def main(seed: int, kind: str | None = None, number: str | None = None) -> int:
    """Run cases; how many of them went wrong."""
    print(f"seed {seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="attack-", ignore_cleanup_errors=True) as name:
        root = Path(name)
        os.environ |= {"HF_HOME": f"{name}/hub", "GLASSFORMER_HOME": f"{name}/home"}  # never the user's own
        preload()
        material.build(root / "sound")
        if kind is not None and number is not None:
            return run_one(seed, kind, int(number), root)
        return sum(run_kind(seed, one, root) for one in ([kind] if kind else KINDS))


if __name__ == "__main__":
    sys.exit(1 if main(int(sys.argv[1]), *sys.argv[2:]) else 0)
