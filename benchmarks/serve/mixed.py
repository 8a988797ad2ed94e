"""Minutes of mixed load: all that clients do, well and badly, while the server's memory is sampled."""

import asyncio
import random
import time
from collections import Counter
from typing import Any

from serve.client import Answer, ask, asked, middle, prompt
from serve.servers import Server

CLIENTS = 8
WARM = 0.25  # share of the time after which memory counts
EVERY = 1.0  # seconds between two samples


def kinds(number: int, draw: random.Random) -> tuple[str, str, Any, int]:
    """What one client does: its name, the path, the body, and after how many bytes it leaves (0: never)."""
    path = "/v1/completions"
    whole = asked(number, draw.randint(4, 48))
    del whole["stream"], whole["stream_options"]
    chat: dict[str, Any] = {
        "model": "gpt2",
        "messages": [{"role": "user", "content": prompt(number)}],
        "max_tokens": 16,
    }
    insides: dict[str, Any] = {"explain": {"lens": {"k": 1}, "top": 3}}
    every: list[tuple[str, str, Any, int]] = [
        ("stream", path, asked(number, draw.randint(4, 96)), 0),
        ("whole", path, whole, 0),
        ("several", path, {**whole, "n": 3, "temperature": 1.0, "seed": number}, 0),
        ("log-probabilities", path, {**whole, "logprobs": 5, "echo": True}, 0),
        ("long prompt", path, {**whole, "prompt": prompt(number, 600)}, 0),
        ("chat", "/v1/chat/completions", {**chat, "stream": draw.random() < 0.5}, 0),
        ("insides", path, {**whole, "max_tokens": 8, **insides}, 0),
        ("embeddings", "/v1/embeddings", {"model": "gpt2", "input": prompt(number)}, 0),
        ("tokenize", "/tokenize", {"prompt": prompt(number, 300)}, 0),
        ("left", path, asked(number, 400), draw.randint(1, 20_000)),
        ("malformed", path, b'{"prompt": [1, "a"', 0),
        ("refused", path, {**whole, "prompt": "word " * 3000}, 0),
    ]
    return draw.choices(every, weights=[30, 20, 5, 8, 4, 10, 2, 2, 5, 8, 4, 2])[0]


class Run:
    """A mixed load that runs for some minutes."""

    def __init__(self, server: Server, minutes: float, *, seed: int = 0) -> None:
        self.server, self.seconds = server, 60 * minutes
        self.draw = random.Random(seed)
        self.statuses: Counter[int] = Counter()
        self.done: Counter[str] = Counter()
        self.firsts: list[tuple[float, float]] = []  # when, and seconds to the first token of a stream
        self.samples: list[tuple[float, dict[str, float]]] = []
        self.number = 500_000

    async def play(self) -> dict[str, Any]:
        """All clients until the time is over; what was found."""
        begun = time.monotonic()
        clients = [self._client(begun) for _ in range(CLIENTS)]
        await asyncio.gather(self._sample(begun), *clients)
        await asyncio.sleep(1)
        return self._report()

    async def _client(self, begun: float) -> None:
        while time.monotonic() - begun < self.seconds:
            self.number += 1
            name, path, body, leave = kinds(self.number, self.draw)
            answer: Answer = await ask(self.server.port, path, body, leave=leave)
            self.done[name] += 1
            self.statuses[answer.status] += 1
            if name == "stream":
                self.firsts.append((time.monotonic() - begun, answer.first))

    async def _sample(self, begun: float) -> None:
        while (now := time.monotonic() - begun) < self.seconds:
            self.samples.append((now, self.server.size()))
            await asyncio.sleep(EVERY)

    def _report(self) -> dict[str, Any]:
        warm = [(at, found) for at, found in self.samples if at >= WARM * self.seconds]
        third = max(1, len(warm) // 3)
        begin, end = ([found for _, found in part] for part in (warm[:third], warm[-third:]))
        first = {name: middle(one[name] for one in begin) for name in begin[0]}
        last = {name: middle(one[name] for one in end) for name in end[0]}
        memory = [found["memory"] for _, found in self.samples]
        return {
            "minutes": self.seconds / 60,
            "requests": sum(self.done.values()),
            "kinds": dict(self.done),
            "statuses": {str(status): count for status, count in sorted(self.statuses.items())},
            "5xx": sum(count for status, count in self.statuses.items() if status >= 500),
            "memory": first["memory"],
            "growth MB": last["memory"] - first["memory"],
            "growth": last["memory"] / first["memory"] - 1,
            "most MB": max(memory),
            "files": [first["files"], last["files"]],
            "threads": [first["threads"], last["threads"]],
        }
