"""The measured loop latency includes even the shortest stretches of work."""

import asyncio
import gc
import sys
import time

from allocator.service.loop import loop_latency as pauses
from allocator.service.loop.loop_latency import BUDGET, LoopLatency


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_what_holds_the_loop_is_measured_and_what_waits_is_not() -> None:
    seen: list[tuple[float, int]] = []

    async def main(measured: LoopLatency) -> None:
        await asyncio.sleep(5 * BUDGET)
        begun = time.perf_counter()
        while time.perf_counter() - begun < 2 * BUDGET:
            pass
        await asyncio.sleep(0)
        seen.append((measured.longest, measured.long))

    thresholds, switch = gc.get_threshold(), sys.getswitchinterval()
    try:
        pauses.run(main)
    finally:  # it is made for a process of its own
        gc.set_threshold(*thresholds)
        gc.callbacks.clear()
        gc.unfreeze()
        sys.setswitchinterval(switch)
    ((longest, long),) = seen
    assert longest >= 2 * BUDGET
    assert long >= 1


def test_the_longest_is_that_of_the_last_minute_or_two() -> None:
    clock = Clock()
    measured = LoopLatency(clock)
    measured.note(3.0)
    clock.now = 59.0
    measured.note(1.0)
    assert measured.longest == 3.0
    clock.now = 61.0
    measured.note(0.5)
    assert measured.longest == 3.0, "the minute before counts"
    clock.now = 122.0
    assert measured.longest == 0.5
    clock.now = 500.0
    assert measured.longest == 0.0


def test_only_what_takes_longer_than_the_budget_is_counted() -> None:
    measured = LoopLatency(Clock())
    for seconds in (BUDGET / 2, BUDGET, 2 * BUDGET):
        measured.note(seconds)
    assert measured.long == 1
