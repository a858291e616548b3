"""Measurement of event-loop latency: how long the loop works without handling new events."""

import asyncio
import selectors
import sys
import time
from collections.abc import Callable, Coroutine
from typing import Any

from typing_extensions import override

from allocator.service.loop import gc_tuning

BUDGET = 0.02
"""Tolerated seconds of uninterrupted work of the event loop; longer stretches are counted."""
_WINDOW = 60.0
"""Length of a window of the statistics, in seconds."""
_SWITCH = 0.0005
"""Python's thread switch interval in seconds. After this time, a computing thread yields to the
event loop's thread."""
_FRESH = 0.0001
"""Seconds after a wait within which the event loop does not look for new events, if work is ready.

A message causes two such looks, each soon after the event that made the work ready.
"""


class LoopLatency:
    """Measures how long the event loop works between two waits for events, for metrics.

    Args:
        clock: Returns seconds from any origin; never goes back.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.long = 0
        """Number of stretches of work longer than `BUDGET`."""
        self._clock = clock
        self._longest = self._previous_longest = 0.0
        self.unremarkable = 0.0
        """Seconds of work, or fewer, that change nothing before `window_end`."""
        self.window_end = clock() + _WINDOW
        """End of the present minute, by the clock."""

    def note(self, seconds: float) -> None:
        """Record how long the event loop has just worked without waiting for events.

        Args:
            seconds: Duration of the work.
        """
        if seconds > BUDGET:
            self.long += 1
        if self._clock() >= self.window_end:
            self._start_window()
        self._longest = max(self._longest, seconds)
        self.unremarkable = min(self._longest, BUDGET)

    @property
    def longest(self) -> float:
        """Longest time that the loop worked without waiting for events, in seconds.

        The time covers the last one to two minutes.
        """
        if self._clock() >= self.window_end:
            self._start_window()
        return max(self._longest, self._previous_longest)

    def _start_window(self) -> None:
        """Begin to measure the next minute, and keep the longest time of the previous minute."""
        late = self._clock() - self.window_end
        self._previous_longest = self._longest if late < _WINDOW else 0.0
        self._longest = self.unremarkable = 0.0
        self.window_end = self._clock() + _WINDOW


class _MeasuringSelector(selectors.DefaultSelector):
    """Event-loop selector that measures how long the loop works between two waits for events."""

    def __init__(self, latency: LoopLatency) -> None:
        super().__init__()
        self._latency = latency
        self._wait = super().select
        self._since = time.perf_counter()

    @override
    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        now, latency = time.perf_counter(), self._latency
        worked = now - self._since
        if timeout == 0 and worked < _FRESH:
            return []
        if worked > latency.unremarkable or now >= latency.window_end:
            latency.note(worked)  # a call for each wait of a message is costly
        ready = self._wait(timeout)
        self._since = time.perf_counter()
        return ready


def run(main: Callable[[LoopLatency], Coroutine[Any, Any, None]]) -> None:
    """Run a coroutine as `asyncio.run` does, in an event loop whose latency is measured.

    Garbage collection and thread switching are tuned so that they rarely block the loop.

    Args:
        main: Coroutine function that receives the measurement.
    """
    latency = LoopLatency()
    gc_tuning.enable()
    sys.setswitchinterval(_SWITCH)

    def make_loop() -> asyncio.AbstractEventLoop:
        return asyncio.SelectorEventLoop(_MeasuringSelector(latency))

    with asyncio.Runner(loop_factory=make_loop) as runner:
        runner.run(main(latency))
