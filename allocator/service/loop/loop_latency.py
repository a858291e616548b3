"""Measures for how long the event loop works at a stretch, in which nobody else is heard."""

import asyncio
import selectors
import sys
import time
from collections.abc import Callable, Coroutine
from typing import Any

from typing_extensions import override

from allocator.service.loop import gc_tuning as garbage

BUDGET = 0.02
"""Seconds at a stretch that anything may take; more is counted."""
_WINDOW = 60.0
_SWITCH = 0.0005
"""Seconds after which a thread that computes, as to store something, gives way to the loop."""


class LoopLatency:
    """What is known of them.

    Args:
        clock: Seconds, monotonic.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.long = 0
        """How many were longer than BUDGET."""
        self._clock = clock
        self._longest = self._before = 0.0
        self._until = clock() + _WINDOW

    def note(self, seconds: float) -> None:
        """Count a stretch of work that has just ended."""
        if seconds > BUDGET:
            self.long += 1
        if self._clock() >= self._until:
            self._turn()
        self._longest = max(self._longest, seconds)

    @property
    def longest(self) -> float:
        """Seconds of the longest within the last minute, or up to two."""
        if self._clock() >= self._until:
            self._turn()
        return max(self._longest, self._before)

    def _turn(self) -> None:
        late = self._clock() - self._until
        self._before = self._longest if late < _WINDOW else 0.0
        self._longest = 0.0
        self._until = self._clock() + _WINDOW


class _Watched(selectors.DefaultSelector):
    """Between two looks at what has come in, the loop works."""

    def __init__(self, pauses: LoopLatency) -> None:
        super().__init__()
        self._pauses = pauses
        self._since = time.perf_counter()

    @override
    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self._pauses.note(time.perf_counter() - self._since)
        ready = super().select(timeout)
        self._since = time.perf_counter()
        return ready


def run(main: Callable[[LoopLatency], Coroutine[Any, Any, None]]) -> None:
    """Run a coroutine as `asyncio.run` does, in a loop that is measured and that little holds."""
    pauses = LoopLatency()
    garbage.tame()
    sys.setswitchinterval(_SWITCH)

    def loop() -> asyncio.AbstractEventLoop:
        return asyncio.SelectorEventLoop(_Watched(pauses))

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(main(pauses))
