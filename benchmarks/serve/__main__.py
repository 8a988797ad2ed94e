"""`glass serve` under load, beside llama.cpp's own server, on this machine and its loopback alone.

    python benchmarks/serve [DATA] [--rounds 5] [--minutes 10] [--only PART …] [--tries 4] [--json FILE]
    [--write docs]

GPT-2 small with random weights at its true size and GPT-2's real vocabulary (gpt2_bpe in DATA, or in
GLASSFORMER_DATA), the same number of threads for both. Parts, in this order:

    throughput  16 clients with a stream of 64 tokens each: ours, `llama-server` (built the first time from the
                sources that llama-cpp-python carries, which takes many minutes), and ours one request at a time
    overhead    one streaming client beside the bare engine
    idle        1,000 connections that are open and ask for nothing
    lane        four streams while another client asks for insides, and without it
    mixed       minutes of everything at once, while memory is sampled

Sides are sampled in turn; a sample during which other processes took more than a tenth of the machine is taken
again, up to three times (`--tries 1`: never, on a machine that others use). `--write FOLDER` writes serve.json and the table in serving.md there; with `--only`, other parts keep their figures.
What must hold is at the end, with whether it did.
"""

import argparse
import asyncio
import json
import os
import platform
import resource
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from checkpoints import RUNS, with_words  # noqa: E402  (after its folder is known)
from serve import servers  # noqa: E402
from serve.client import Load, ask, asked, idle, middle, one_by_one, percentile, together  # noqa: E402
from serve.mixed import Run  # noqa: E402
from serve.table import facts, write  # noqa: E402
from sides import BUSY, REST, Peer, busy_seconds  # noqa: E402

THREADS = 2
CLIENTS, TOKENS = 16, 64
IDLE, STREAMS = 1000, 4
OURS = f"glass serve, {CLIENTS} clients"
THEIRS = f"llama-server q8_0, {CLIENTS} clients"
ALONE = "glass serve, one request at a time"
PARTS = ("throughput", "overhead", "idle", "lane", "mixed")


class Bench:
    """One run: the servers, what was sampled, and how often other processes disturbed it."""

    def __init__(self, folder: Path, rounds: int, *, tries: int) -> None:
        self.folder, self.rounds, self.tries = folder, rounds, tries
        self.disturbed = 0
        self.number = 0  # of the next prompt: none is sent twice, so that no cache helps
        self.ours = servers.ours(folder, slots=CLIENTS, threads=THREADS)
        self.running = [self.ours]

    def numbers(self, count: int) -> range:
        """The next prompts."""
        self.number += count
        return range(self.number - count, self.number)

    def sample(self, work: Callable[[], Awaitable[Load]]) -> Load:
        """One sample, again if others disturbed it; the servers' processor time and our own are not others'."""
        for _ in range(self.tries):
            time.sleep(REST)
            began, before, own = time.perf_counter(), busy_seconds(), self._own()
            found = asyncio.run(_finished(work()))
            others = (busy_seconds() - before) - (self._own() - own)
            if others / (time.perf_counter() - began) / (os.cpu_count() or 1) <= BUSY:
                break
            self.disturbed += 1
        return found

    def _own(self) -> float:
        mine = resource.getrusage(resource.RUSAGE_SELF)
        return mine.ru_utime + mine.ru_stime + sum(one.cpu() for one in self.running)

    def throughput(self) -> dict[str, Any]:
        """Tokens a second of all clients, sides in turn; the first round warms up."""
        theirs = servers.theirs(self.folder, slots=CLIENTS, threads=THREADS)
        self.running.append(theirs)
        port, other = self.ours.port, theirs.port
        sides: dict[str, Callable[[], Awaitable[Load]]] = {
            OURS: lambda: together(port, self.numbers(CLIENTS), TOKENS),
            THEIRS: lambda: together(other, self.numbers(CLIENTS), TOKENS),
            ALONE: lambda: one_by_one(port, self.numbers(CLIENTS), TOKENS),
        }
        found: dict[str, list[Load]] = {name: [] for name in sides}
        for turn in range(self.rounds + 1):
            for name in sides if turn % 2 else reversed(sides):
                load = self.sample(sides[name])
                if turn:
                    found[name].append(load)
        self.running.remove(theirs)
        theirs.end()
        return {name: self._summary(found[OURS], loads) for name, loads in found.items()}

    def _summary(self, ours: list[Load], loads: list[Load]) -> dict[str, Any]:
        firsts = [first for load in loads for first in load.firsts]
        about = {"tokens/s": middle(load.speed for load in loads), "late": percentile(firsts, 0.95)}
        if loads is not ours:
            pairs = zip(ours, loads, strict=True)
            about["ratio"] = middle(mine.speed / other.speed for mine, other in pairs)
        return about

    def overhead(self) -> dict[str, float]:
        """What a streaming client waits for beside the engine's own time."""
        command = [sys.executable, str(HERE / "bare.py"), str(self.folder.resolve())]
        os.environ["GLASSFORMER_HOME"] = str(RUNS / "home")
        bare = Peer(command, threads=THREADS)
        port = self.ours.port
        ratios, speeds, bares = [], [], []
        for turn in range(self.rounds + 1):
            (number,) = self.numbers(1)
            seconds = self._quiet(bare, [number, 2 * TOKENS])
            load = self.sample(lambda: together(port, self.numbers(1), 2 * TOKENS))
            if turn:
                ratios.append(load.seconds / seconds)
                speeds.append(load.speed)
                bares.append(2 * TOKENS / seconds)
        bare.end()
        return {"served": middle(speeds), "bare": middle(bares), "overhead": middle(ratios) - 1}

    def _quiet(self, peer: Peer, work: Any) -> float:
        for _ in range(self.tries):
            seconds, others = peer.sample(work)
            if others <= BUSY:
                break
            self.disturbed += 1
        return seconds

    def idle(self) -> dict[str, float]:
        """Throughput and memory beside many connections that do nothing."""
        port, held = self.ours.port, {"memory": 0.0}

        async def beside() -> Load:
            opened = await idle(port, IDLE)
            load = await together(port, self.numbers(CLIENTS), TOKENS)
            held.update(self.ours.size())
            for _, writer in opened:
                writer.close()
            return load

        befores, besides, grown = [], [], []
        for turn in range(self.rounds + 1):
            before = self.sample(lambda: together(port, self.numbers(CLIENTS), TOKENS))
            memory = self.ours.size()["memory"]
            load = self.sample(beside)
            grown.append(held["memory"] - memory)  # the first time counts, too: later ones use what it took
            if turn:
                befores.append(before.speed)
                besides.append(load.speed)
        about = {"connections": IDLE, "files": held["files"], "MB": max(grown)}
        return about | {"tokens/s": middle(besides), "before": middle(befores)}

    def lane(self) -> dict[str, float]:
        """Four streams with and without a client that asks for insides, one after the other."""
        port, explained = self.ours.port, 0

        async def with_insides() -> Load:
            nonlocal explained
            more = {
                "explain": {"attention": True, "lens": {"k": 3}, "saliency": {"tested": False}},
                "stream": False,
            }
            over = asyncio.Event()

            async def explain() -> int:
                done = 0
                while not over.is_set():
                    (number,) = self.numbers(1)
                    body = asked(number, 16, **more)
                    del body["stream_options"]
                    answer = await ask(port, "/v1/completions", body)
                    if answer.status != 200:
                        sys.exit(f"insides were refused: {answer.body[:500]!r}")
                    done += 1
                return done

            asking = asyncio.create_task(explain())
            load = await together(port, self.numbers(STREAMS), 2 * TOKENS)
            over.set()
            explained += await asking
            return load

        shares, withs, withouts = [], [], []
        for turn in range(self.rounds + 1):
            without = self.sample(lambda: together(port, self.numbers(STREAMS), 2 * TOKENS))
            with_ = self.sample(with_insides)
            if turn:  # the first time loads torch
                shares.append(with_.speed / without.speed)
                withs.append(with_.speed)
                withouts.append(without.speed)
        about = {"with": middle(withs), "without": middle(withouts), "share": middle(shares)}
        return about | {"explained": explained}

    def mixed(self, minutes: float) -> dict[str, Any]:
        """Minutes of everything."""
        return asyncio.run(Run(self.ours, minutes).play())


async def _finished(work: Awaitable[Load]) -> Load:
    return await work


def musts(report: dict[str, Any]) -> dict[str, bool]:
    """What must hold, and whether it did."""
    found = {}
    if one := report.get("throughput"):
        found["at least twice as fast as llama-server"] = one[THEIRS]["ratio"] >= 2
        found["at least three times as fast as one request at a time"] = one[ALONE]["ratio"] >= 3
    if one := report.get("overhead"):
        found["less than 20 % more time than the bare engine"] = one["overhead"] < 0.2
    if one := report.get("mixed"):
        found["no growth of memory, no 5xx"] = one["growth"] < 0.02 and not one["5xx"]
    return found


def about(bench: Bench) -> dict[str, Any]:
    """The machine, the day and the versions of a run."""
    from glassformer import machine

    return {
        "processor": machine.cpu()["name"],
        "system": platform.platform(),
        "threads": THREADS,
        "date": time.strftime("%Y-%m-%d"),
        "versions": f"glassformer {machine.installed('glassformer')}, llama-server of {servers.version()}",
        "rounds": bench.rounds,
        "disturbed": bench.disturbed,
    }


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", nargs="?", type=Path, help="the folder that has gpt2_bpe")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--minutes", type=float, default=10.0, help="of mixed load")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--tries", type=int, default=4, help="of a sample that others disturbed")
    parser.add_argument("--json", type=Path, help="write the figures here")
    parser.add_argument("--write", type=Path, help="write serve.json and the table of serving.md here")
    return parser.parse_args()


def main() -> None:
    """Measure, print, write."""
    given = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the servers are ended, too
    folder = with_words("gpt2", given.data)
    if folder is None:
        sys.exit("GPT-2's vocabulary is missing: name the folder that has gpt2_bpe, or set GLASSFORMER_DATA")
    if "throughput" in given.only:  # before anything runs that it would disturb
        servers.binary("llama-server")
        servers.gguf(folder)
    servers.clean()
    bench = Bench(folder, given.rounds, tries=given.tries)
    report: dict[str, Any] = {}
    try:
        for part in PARTS:
            if part in given.only:
                report[part] = bench.mixed(given.minutes) if part == "mixed" else getattr(bench, part)()
                print(f"{part}: {json.dumps(report[part])}", file=sys.stderr, flush=True)
    finally:
        for one in bench.running:
            one.end()
    report |= about(bench)
    for name, found in report.get("throughput", {}).items():
        print(f"{name:<40} {found['tokens/s']:,.0f} tok/s, first token {found['late']:.2f} s (95 %)"
              + (f", ours is {found['ratio']:.2f} ×" if "ratio" in found else ""))  # fmt: skip
    for name, value in facts(report).items():
        print(f"{name}: {value}")
    for name, held in musts(report).items():
        print(f"{'holds ' if held else 'FAILED'} {name}")
    if given.json:
        given.json.write_text(json.dumps(report, indent=2) + "\n")
    if given.write:
        file = given.write / "serve.json"
        if set(given.only) != set(PARTS) and file.is_file():
            if given.only == ["mixed"]:  # which has no samples that could be disturbed
                del report["rounds"], report["disturbed"]
            report = json.loads(file.read_text()) | report
        file.write_text(json.dumps(report, indent=2) + "\n")
        write(given.write)


if __name__ == "__main__":
    main()
