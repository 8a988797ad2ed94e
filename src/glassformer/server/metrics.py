"""What a server counts and times, as Prometheus reads it."""

import time
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from glassformer import machine

if TYPE_CHECKING:
    from glassformer.server.runner import Running
    from glassformer.server.state import State

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
TEXTS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
Labels = tuple[tuple[str, str], ...]

HELP = {
    "requests_running": ("gauge", "Continuations that have a slot"),
    "requests_waiting": ("gauge", "Continuations that wait for a slot"),
    "requests_paused": ("gauge", "Continuations whose clients do not read"),
    "requests_total": ("counter", "Requests by endpoint and status"),
    "rejected_total": ("counter", "Requests that were refused, by reason"),
    "cancelled_total": ("counter", "Requests whose client left, by phase"),
    "prompt_tokens_total": ("counter", "Tokens of prompts"),
    "cached_prompt_tokens_total": ("counter", "Tokens of prompts that were not computed again"),
    "generation_tokens_total": ("counter", "Tokens that were generated"),
    "time_to_first_token_seconds": ("histogram", "From a request to its first token"),
    "inter_token_seconds": ("histogram", "Between two tokens of a text"),
    "queue_seconds": ("histogram", "Waiting for a slot"),
    "prefill_seconds": ("histogram", "Reading a prompt"),
    "decode_seconds": ("histogram", "Generating a text"),
    "e2e_seconds": ("histogram", "From a request to its end"),
    "texts_total": ("counter", "Continuations that were finished, by reason"),
    "step_seconds": ("histogram", "A step of the engine"),
    "batch_size": ("histogram", "Continuations in a step of the engine"),
    "kv_bytes_used": ("gauge", "Memory of the key-value cache that holds tokens"),
    "kv_bytes_limit": ("gauge", "Memory of the key-value cache of all slots"),
    "prefix_cache_queries_total": ("counter", "Prompts that were looked up in the key-value cache"),
    "prefix_cache_hits_total": ("counter", "Prompts of which a part was found there"),
    "insides_total": ("counter", "Questions about insides, by kind"),
    "insides_seconds": ("histogram", "Answering a question about insides"),
    "insides_bytes_total": ("counter", "Bytes of answers about insides"),
    "trace_store_bytes": ("gauge", "Memory of answers that wait to be fetched"),
    "jobs": ("gauge", "Jobs by kind and status"),
    "job_step": ("gauge", "The step of the job that runs"),
    "job_tokens_per_second": ("gauge", "How fast the job that runs learns"),
    "files": ("gauge", "Files that were uploaded"),
    "files_bytes": ("gauge", "Bytes of files that were uploaded"),
    "build_info": ("gauge", "Versions"),
}


class Histogram:
    """How many values fell into which range."""

    def __init__(self, edges: Sequence[float] = SECONDS) -> None:
        self.edges = edges
        self.counts = [0] * (len(edges) + 1)
        self.sum = 0.0

    @property
    def count(self) -> int:
        """How many values there were."""
        return sum(self.counts)

    def add(self, value: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self.edges, value)] += 1
        self.sum += value


class Metrics:
    """Counters and histograms of one server; only the event loop's thread uses them."""

    def __init__(self) -> None:
        self._counters: dict[str, dict[Labels, float]] = {}
        self._histograms: dict[str, dict[Labels, Histogram]] = {}
        self.trace_bytes = 0

    def count(self, name: str, by: float = 1, **labels: str) -> None:
        """Add to a counter."""
        assert HELP[name][0] == "counter", name
        series = self._counters.setdefault(name, {})
        key = tuple(sorted(labels.items()))
        series[key] = series.get(key, 0) + by

    def observe(self, name: str, seconds: float, **labels: str) -> None:
        """Add a value to a histogram."""
        self.histogram(name, **labels).add(seconds)

    def histogram(self, name: str, **labels: str) -> Histogram:
        """A histogram, for one that adds to it often."""
        assert HELP[name][0] == "histogram", name
        key = tuple(sorted(labels.items()))
        return self._histograms.setdefault(name, {}).setdefault(key, Histogram())

    def value(self, name: str, **labels: str) -> float:
        """A counter as it is now."""
        return self._counters.get(name, {}).get(tuple(sorted(labels.items())), 0)

    def clock(self, model: str) -> "Clock":
        """Times one continuation."""
        return Clock(self, model)

    def text(self, state: "State") -> str:
        """Everything, in Prometheus' text format."""
        current = self._current(state) | _job_gauges(state)
        lines = []
        for name, (kind, help) in HELP.items():
            lines += [f"# HELP glass_{name} {help}", f"# TYPE glass_{name} {kind}"]
            if kind == "histogram":
                for labels, histogram in (self._histograms.get(name) or _of_runners(state, name)).items():
                    lines += _histogram_lines(name, labels, histogram)
                continue
            series = current.get(name) or self._counters.get(name, {})
            lines += [f"glass_{name}{_labels(labels)} {_number(value)}" for labels, value in series.items()]
        return "\n".join(lines) + "\n"

    def _current(self, state: "State") -> dict[str, dict[Labels, float]]:
        """What is not counted here, but known elsewhere: gauges, and what runners count."""
        found: dict[str, dict[Labels, float]] = {"trace_store_bytes": {(): self.trace_bytes}}
        found["build_info"] = {(("version", machine.installed("glassformer") or ""),): 1}
        for id, served in state.library.served.items():
            if served.runner is None:
                continue
            labels = (("model", id),)
            found.setdefault("requests_running", {})[labels] = served.runner.running
            found.setdefault("requests_waiting", {})[labels] = served.runner.waiting
            found.setdefault("requests_paused", {})[labels] = served.runner.paused
            found.setdefault("kv_bytes_used", {})[labels] = served.runner.cache_used
            found.setdefault("kv_bytes_limit", {})[labels] = served.runner.cache_bytes
        return found


class Clock:
    """The times of one continuation."""

    def __init__(self, metrics: Metrics, model: str) -> None:
        self.metrics, self.model = metrics, model
        self.begun = time.monotonic()
        self.last: float | None = None
        self.tokens = 0
        self._between = metrics.histogram("inter_token_seconds", model=model)

    def token(self) -> None:
        """A token arrived."""
        now = time.monotonic()
        if self.last is None:
            self.metrics.observe("time_to_first_token_seconds", now - self.begun, model=self.model)
        else:
            self._between.add(now - self.last)
        self.last = now
        self.tokens += 1

    def finish(self, running: "Running", *, prompt: int, reason: str) -> None:
        """The continuation is complete."""
        metrics, model = self.metrics, self.model
        metrics.count("texts_total", model=model, finish_reason=reason)
        metrics.count("prefix_cache_queries_total", model=model)
        metrics.count("prefix_cache_hits_total", int(running.cached_tokens > 0), model=model)
        metrics.observe("e2e_seconds", time.monotonic() - self.begun, model=model)
        metrics.count("prompt_tokens_total", prompt, model=model)
        metrics.count("cached_prompt_tokens_total", running.cached_tokens, model=model)
        metrics.count("generation_tokens_total", self.tokens, model=model)
        timings: Any = running.timings
        for phase in ("queue", "prefill", "decode"):
            seconds = getattr(timings, phase, None)
            if seconds is not None:
                metrics.observe(f"{phase}_seconds", seconds, model=model)


def _of_runners(state: "State", name: str) -> dict[Labels, Histogram]:
    """The histograms that runners have, by their model."""
    attribute = {"step_seconds": "step_times", "batch_size": "batch_sizes"}.get(name, "")
    runners = {id: served.runner for id, served in state.library.served.items() if served.runner is not None}
    if not attribute:
        return {}
    return {(("model", id),): getattr(runner, attribute) for id, runner in runners.items()}


def _job_gauges(state: "State") -> dict[str, dict[Labels, float]]:
    """Of jobs and files, if they are offered."""
    if state.jobs is None or state.files is None:
        return {}
    found: dict[str, dict[Labels, float]] = {"jobs": {}}
    for job in state.jobs.list():
        status = state.jobs.status(job)
        labels = (("kind", job.kind), ("status", status))
        found["jobs"][labels] = found["jobs"].get(labels, 0) + 1
        latest = job.progress.step
        if status == "running" and latest is not None:
            found["job_step"] = {(): latest["data"]["step"]}
            found["job_tokens_per_second"] = {(): latest["data"]["tokens_per_second"]}
    kept = state.files.list()
    found["files"] = {(): len(kept)}
    found["files_bytes"] = {(): sum(one.bytes for one in kept)}
    return found


def _labels(labels: Labels) -> str:
    if not labels:
        return ""
    shown = (f'{name}="{_escaped(value)}"' for name, value in labels)
    return "{" + ",".join(shown) + "}"


def _number(value: float) -> str:
    """With all its digits: a counter that is rounded stands still, and then jumps."""
    return str(int(value)) if value == int(value) else repr(float(value))


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _histogram_lines(name: str, labels: Labels, histogram: Histogram) -> Iterator[str]:
    total = 0
    for edge, count in zip((*map(str, histogram.edges), "+Inf"), histogram.counts, strict=True):
        total += count
        yield f"glass_{name}_bucket{_labels((*labels, ('le', edge)))} {total}"
    yield f"glass_{name}_sum{_labels(labels)} {_number(histogram.sum)}"
    yield f"glass_{name}_count{_labels(labels)} {total}"
