"""The measured loop latency includes even the shortest stretches of work."""

import asyncio
import gc
import socket
import sys
import time
from selectors import EVENT_READ
from types import SimpleNamespace

import pytest

from allocator.service.loop import loop_latency
from allocator.service.loop.loop_latency import BUDGET, LoopLatency


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_blocking_work_is_measured_and_waiting_is_not() -> None:
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
        loop_latency.run(main)
    finally:  # run() changes settings of the whole process
        gc.set_threshold(*thresholds)
        gc.callbacks.clear()
        gc.unfreeze()
        sys.setswitchinterval(switch)
    ((longest, long),) = seen
    assert longest >= 2 * BUDGET
    assert long >= 1


def test_the_longest_latency_covers_the_last_one_or_two_minutes() -> None:
    clock = Clock()
    measured = LoopLatency(clock)
    measured.note(3.0)
    clock.now = 59.0
    measured.note(1.0)
    assert measured.longest == 3.0
    clock.now = 61.0
    measured.note(0.5)
    assert measured.longest == 3.0, "the previous minute still counts"
    clock.now = 122.0
    assert measured.longest == 0.5
    clock.now = 500.0
    assert measured.longest == 0.0


def test_only_latencies_above_the_budget_are_counted() -> None:
    measured = LoopLatency(Clock())
    for seconds in (BUDGET / 2, BUDGET, 2 * BUDGET):
        measured.note(seconds)
    assert measured.long == 1


def test_the_loop_with_ready_work_looks_for_events_at_most_once_in_100_microseconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock()
    monkeypatch.setattr(loop_latency, "time", SimpleNamespace(perf_counter=clock))
    sender, receiver = socket.socketpair()
    with sender, receiver, loop_latency._MeasuringSelector(LoopLatency(clock)) as selector:
        selector.register(receiver, EVENT_READ)
        sender.send(b"x")
        clock.now = 0.00005
        assert not selector.select(0)
        assert selector.select(None), "without ready work, the loop looks"
        clock.now = 0.0001
        assert not selector.select(0)
        clock.now = 0.00016
        assert selector.select(0)


def test_work_is_measured_from_the_last_look_for_events(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(loop_latency, "time", SimpleNamespace(perf_counter=clock))
    measured = LoopLatency(clock)
    with loop_latency._MeasuringSelector(measured) as selector:
        clock.now = 0.00009
        selector.select(0)
        clock.now = 0.00018
        selector.select(0)
    assert measured.longest == 0.00018
