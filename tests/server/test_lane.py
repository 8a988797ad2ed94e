"""The lane of what torch computes: one job at a time, a bounded queue, and the engine goes first."""

import asyncio
import os
import sys
import threading

import pytest

from glassformer.server.errors import QueueFull
from glassformer.server.lane import NICENESS, Lane


def test_a_bounded_queue() -> None:
    """More jobs than fit are refused; one that was cancelled before its turn never runs."""

    async def run() -> list[int]:
        lane, done, held = Lane(most=2), [], threading.Event()
        first = asyncio.create_task(lane.run(held.wait))
        second = asyncio.create_task(lane.run(lambda: done.append(2)))
        await asyncio.sleep(0)
        with pytest.raises(QueueFull):
            await lane.run(lambda: done.append(3))
        second.cancel()
        await asyncio.sleep(0)
        held.set()
        await first
        await lane.run(lambda: done.append(4))
        lane.close()
        return done

    assert asyncio.run(run()) == [4]


def test_an_error_reaches_who_waits() -> None:
    """And the lane goes on."""

    async def run() -> int:
        lane = Lane(most=2)
        with pytest.raises(ZeroDivisionError):
            await lane.run(lambda: 1 / 0)
        return await lane.run(lambda: 5)

    assert asyncio.run(run()) == 5


@pytest.mark.skipif(sys.platform != "linux", reason="a thread has a priority of its own on Linux alone")
def test_it_steps_back() -> None:
    """The engine's threads go first; the rest of the process keeps its priority."""

    async def run() -> int:
        return await Lane(most=1).run(lambda: os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))

    before = os.getpriority(os.PRIO_PROCESS, 0)
    assert asyncio.run(run()) == max(before, NICENESS)
    assert os.getpriority(os.PRIO_PROCESS, 0) == before
