"""Glassformer's native engine beside other libraries, on this machine, in one run.

    python benchmarks/peers [--models gpt2 gpt2-medium storyteller] [--only NAME …] [--rounds 5] [--write
    docs] [--hide-avx512]

Every side lives in a process of its own, every peer in an environment of its own (made in runs/bench/env the
first time; one is built from its sources, which takes minutes). Samples are taken in turn, one that other
processes disturbed is taken again; medians are shown, and how many times as fast the native engine is. Random
weights at the true size have the speed of trained ones. `--write FOLDER` writes speed.json, speed.md
and its pictures there; figures of other instruction sets stay. With GPT-2's vocabulary (gpt2_bpe in
GLASSFORMER_DATA) the start of `glass generate` is measured too. `--hide-avx512` hides AVX-512 from every
side (hide.py), so that AVX2 is measured on a machine that has more.
"""

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent
ENGINE = HERE.parents[1] / "src" / "glassformer" / "engine"
sys.path.insert(0, str(HERE.parent))

import hide  # noqa: E402  (after its folder is known)
import limits  # noqa: E402
from checkpoints import RUNS, checkpoint, with_words  # noqa: E402
from sides import REST, Peer, environment, in_turn  # noqa: E402

THREADS = 2
STARTS = 15  # of a process: they differ more than what it does then
HIDDEN = "HIDE_AVX512"  # an environment variable, so that a side that is called knows it too
# llama.cpp is built from its sources: its library alone, without its tools, in a third of the time.
LIBRARY_ALONE = " ".join(
    f"-D{part}=OFF" for part in ("MTMD_BUILD", "LLAMA_BUILD_COMMON", "LLAMA_BUILD_TOOLS")
)
AVX2_ALONE = "-DGGML_NATIVE=OFF -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON -DGGML_BMI2=ON"
TORCH_AVX2 = {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"}
OURS, OURS_INT4 = "Glassformer int8", "Glassformer int4"


class Side(NamedTuple):
    """Which script runs a side, in which kind, and what its environment needs besides what is installed here."""

    script: str
    kind: str
    packages: tuple[str, ...] = ()


SIDES = {
    OURS: Side("ours.py", "int8"),
    OURS_INT4: Side("ours.py", "int4"),
    "Glassformer torch fp32": Side("ours.py", "torch"),
    "OpenVINO int8": Side("openvino_peer.py", "int8", ("openvino", "nncf")),
    "OpenVINO int4": Side("openvino_peer.py", "int4", ("openvino", "nncf")),
    "llama.cpp q8_0": Side("llama_peer.py", "q8_0", ("llama-cpp-python", "gguf")),
    "llama.cpp q4_0": Side("llama_peer.py", "q4_0", ("llama-cpp-python", "gguf")),
    "CTranslate2 int8": Side("ctranslate2_peer.py", "int8", ("ctranslate2",)),
    "ONNX Runtime int8": Side("onnxruntime_peer.py", "int8", ("onnxruntime", "onnx")),
}
MODELS = ("gpt2", "gpt2-medium", "storyteller")
CONTEXT = {"storyteller": 512}


def python_of(side: Side) -> Path:
    """The Python of a side's environment."""
    if not side.packages:
        return Path(sys.executable)
    if HIDDEN not in os.environ:
        settings = {"CMAKE_ARGS": LIBRARY_ALONE} if "llama-cpp-python" in side.packages else None
        return environment(RUNS / "env" / side.packages[0], *side.packages, settings=settings)
    folder = RUNS / "env" / f"{side.packages[0]}-avx2"
    settings = {"CMAKE_ARGS": f"{LIBRARY_ALONE} {AVX2_ALONE}"}
    return environment(folder, *side.packages, settings=settings, finish=hide.hide)


def settings_of(side: Side) -> dict[str, str]:
    """The environment variables that a side has besides those of all."""
    if HIDDEN not in os.environ:
        return {}
    return hide.settings(python_of(side).parents[1]) if side.packages else TORCH_AVX2


def command(side: Side, doing: str, *arguments: str) -> list[str]:
    """How a side is called."""
    return [str(python_of(side)), str(HERE / side.script), doing, *arguments]


def target_of(model: str, side: Side) -> Path:
    """Where a side's prepared model is; some libraries lay weights out for the instructions that they find."""
    hidden = side.packages and HIDDEN in os.environ
    folder = RUNS / ("targets-avx2" if hidden else "targets")
    return folder / f"{model}-{Path(side.script).stem}-{side.kind}"


def is_old(target: Path) -> bool:
    """Our own code has changed since it was prepared."""
    written = [file.stat().st_mtime for file in ENGINE.rglob("*") if file.suffix in (".py", ".hpp", ".cpp")]
    return target.is_dir() and target.stat().st_mtime < max(written)


def measure(model: str, names: list[str], rounds: int) -> dict[str, Any]:
    """All figures of one model."""
    targets = {}
    for name in names:
        side = SIDES[name]
        targets[name] = target_of(model, side)
        print(f"{model}: preparing {name}", file=sys.stderr, flush=True)
        if not side.packages and is_old(targets[name]):
            shutil.rmtree(targets[name])
        prepare = command(side, "prepare", str(checkpoint(model)), str(targets[name]), side.kind)
        subprocess.run(prepare, check=True, env=os.environ | settings_of(side))
    calls = {name: (str(targets[name]), SIDES[name].kind, str(THREADS)) for name in names}
    settings = {name: settings_of(SIDES[name]) for name in names}
    peers = {
        name: Peer(command(SIDES[name], "serve", *calls[name]), threads=THREADS, settings=settings[name])
        for name in names
    }
    long = min(512, CONTEXT.get(model, 1024) - 32)
    works = {  # what writing takes is what remains without the reading
        "decode": ([64, 129, 1], [64, 1, 1], 128),
        "prefill": ([long, 1, 1], None, long),
        "batch": ([64, 33, 8], [64, 1, 8], 256),
    }
    report: dict[str, Any] = {"rounds": rounds, "disturbed": 0, "ratios": {}, "ratios of int4": {}}
    for work, (request, reading, tokens) in works.items():
        samples, disturbed = in_turn(peers, request, rounds, less=reading)
        report["disturbed"] += disturbed
        report[work] = {name: tokens / statistics.median(taken) for name, taken in samples.items()}
        report["ratios"][work] = ratios(samples, OURS)
        report["ratios of int4"][work] = ratios(samples, OURS_INT4)
        speeds = ", ".join(
            f"{name} {speed:,.0f} ({report['ratios'][work][name]:.2f} ×)"
            for name, speed in report[work].items()
        )
        print(f"{model}, {work}: {speeds}", flush=True)
    report["ours"] = ours(peers[OURS], CONTEXT.get(model, 1024), rounds)
    if OURS_INT4 in peers:
        report["ours int4"] = ours(peers[OURS_INT4], CONTEXT.get(model, 1024), rounds)
    report["memory"] = {name: peer.ask("memory") for name, peer in peers.items()}
    for peer in peers.values():
        peer.end()
    report["ours"]["contention"] = contention(command(SIDES[OURS], "serve", *calls[OURS]))
    report["first"], generate = first_tokens(model, calls, settings)
    if generate:
        report["ours"]["glass generate"] = generate
    starts = ", ".join(
        f"{name} {report['first'][name]:.2f} s, {report['memory'][name]:,.0f} MB" for name in names
    )
    print(f"{model}, first token and memory: {starts}\n{model}, ours: {report['ours']}", flush=True)
    for name, about in ((OURS, "ours"), (OURS_INT4, "ours int4")):
        if name in names:
            file = next((targets[name] / "home").glob("engine/*/numbers.safetensors"))
            report[about]["file MB"] = file.stat().st_size / 1e6
    limit = limits.measure(model, instructions(), threads=THREADS)
    report["limits"] = limit._asdict() | {"prefill": report["prefill"][OURS] * limits.operations(model) / 1e9}
    return report


def ratios(samples: dict[str, list[float]], ours: str) -> dict[str, float]:
    """How many times as fast as each side one of ours is: medians over rounds."""
    if ours not in samples:
        return {}
    return {
        name: statistics.median(theirs / mine for mine, theirs in zip(samples[ours], taken, strict=True))
        for name, taken in samples.items()
    }


def ours(peer: Peer, context: int, rounds: int) -> dict[str, float]:
    """What is asked of our engine alone, each the median of some rounds taken in turn."""
    asked: dict[str, dict[str, Any]] = {
        "bare loop": {"what": "bare"},
        "default sampling": {"what": "sampled"},
        "at position 100": {"what": "at", "place": 100},
        f"at position {context - 24}": {"what": "at", "place": context - 24},
    }
    found: dict[str, list[float]] = {name: [] for name in asked}
    for _ in range(rounds):
        for name, what in asked.items():
            found[name].append(peer.ask(what))
    return {name: statistics.median(values) for name, values in found.items()}


def contention(called: list[str]) -> float:
    """The share of its quiet speed that decoding keeps while another process takes a core."""
    peer = Peer(called, threads=THREADS)
    shares: list[float] = []
    for _ in range(3):
        quiet = peer.ask({"what": "writing", "seconds": 2})
        other = subprocess.Popen([sys.executable, "-c", "while True: pass"])
        time.sleep(0.5)
        shares.append(float(peer.ask({"what": "writing", "seconds": 4})) / quiet)
        other.kill()
        other.wait()
    peer.end()
    return statistics.median(shares)


def first_tokens(
    model: str, calls: dict[str, tuple[str, str, str]], settings: dict[str, dict[str, str]]
) -> tuple[dict[str, float], float | None]:
    """Seconds from the start of a process to its first token, which is its last: of every side in turn, and of
    `glass generate` where its vocabulary is at hand. The first time does not count.
    """
    commands = {name: command(SIDES[name], "first", *call) for name, call in calls.items()}
    folder = None if HIDDEN in os.environ else with_words(model)
    if folder:
        glass = str(Path(sys.executable).with_name("glass"))
        commands["glass"] = [glass, "generate", "-m", str(folder.resolve()), "-n", "1", "Once upon a time"]
    usual = os.environ | {"OMP_NUM_THREADS": str(THREADS), "GLASSFORMER_HOME": str(RUNS / "home")}
    taken: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(STARTS + 1):
        for name, called in commands.items():
            time.sleep(REST)
            began = time.perf_counter()
            subprocess.run(called, check=True, stdout=subprocess.DEVNULL, env=usual | settings.get(name, {}))
            taken[name].append(time.perf_counter() - began)
    found = {name: statistics.median(seconds[1:]) for name, seconds in taken.items()}
    return {name: found[name] for name in calls}, found.get("glass")


def versions(names: list[str]) -> dict[str, str]:
    """The version of every library that took part."""
    code = "import sys; from importlib.metadata import version; print(*(f'{one} {version(one)}' for one in sys.argv[1:]), sep=', ')"
    found = {}
    for name in names:
        packages = SIDES[name].packages or ("glassformer", "torch", "numpy")
        answer = subprocess.run(
            [str(python_of(SIDES[name])), "-c", code, *packages], capture_output=True, text=True, check=True
        )
        found[name] = answer.stdout.strip()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--only", nargs="+", choices=list(SIDES), default=list(SIDES))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--write", type=Path, help="write speed.json, speed.md and its pictures into this folder"
    )
    parser.add_argument(
        "--draw",
        action="store_true",
        help="measure nothing: write speed.md and its pictures of speed.json anew",
    )
    parser.add_argument(
        "--hide-avx512", action="store_true", help="measure AVX2 on a machine that has AVX-512 too"
    )
    given = parser.parse_args()
    if given.hide_avx512:
        os.environ[HIDDEN] = "1"
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # installed packages have their bytecode; so must ours
    names = [OURS, *(name for name in given.only if name != OURS)]
    if not given.draw:
        for model in given.models:
            report = about(names) | {"models": {model: measure(model, names, given.rounds)}}
            if given.write:  # after each: what was measured is kept
                keep(report, given.write / "speed.json")
    if given.write:
        from page import write

        write(given.write)


def instructions() -> str:
    """The instruction set that the native engine runs on."""
    from glassformer.engine.native import ways

    return "avx2" if HIDDEN in os.environ else ways()[0]


def processor() -> str:
    """Its name, and where Linux tells them family and model: clouds call several generations alike."""
    from glassformer import machine

    file = Path("/proc/cpuinfo")
    lines = file.read_text().splitlines() if file.is_file() else []
    facts = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    named = [f"{key.removeprefix('cpu ')} {facts[key]}" for key in ("cpu family", "model") if key in facts]
    return ", ".join([str(machine.cpu()["name"]), *named])


def about(names: list[str]) -> dict[str, Any]:
    """The machine, the day and the libraries of a run."""
    return {
        "instructions": instructions() + ("-hidden" if HIDDEN in os.environ else ""),
        "processor": processor(),
        "system": f"{platform.system()} {platform.machine()}",
        "threads": THREADS,
        "date": time.strftime("%Y-%m-%d"),
        "versions": versions(names),
    }


def keep(report: dict[str, Any], file: Path) -> None:
    """Put a run among those of other instruction sets; other models of the same machine, libraries and day stay."""
    file.parent.mkdir(parents=True, exist_ok=True)
    runs = json.loads(file.read_text()) if file.is_file() else {}
    before = runs.get(report["instructions"], {})
    if all(before.get(part) == value for part, value in report.items() if part != "models"):
        report = before | {"models": before["models"] | report["models"]}
    file.write_text(json.dumps(runs | {report["instructions"]: report}, indent=2) + "\n")


if __name__ == "__main__":
    main()
