"""The embedded master's own time, and what is to happen when."""

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

SECOND = 1_000_000_000


@dataclass(slots=True, eq=False)
class Timer:
    """Something that will happen once, unless cancelled."""

    callback: Callable[[], None] | None

    def cancel(self) -> None:
        """Make it not happen."""
        self.callback = None


class Clock:
    """A time in nanoseconds that moves only when told to, and timers in order of it."""

    def __init__(self, now_ns: int) -> None:
        self._now_ns = now_ns
        self._timers: list[tuple[int, int, Timer]] = []
        self._serial = count()

    @property
    def now_ns(self) -> int:
        """Nanoseconds since the Unix epoch."""
        return self._now_ns

    @property
    def now(self) -> float:
        """Seconds since the Unix epoch."""
        return self._now_ns / SECOND

    @property
    def next_deadline_ns(self) -> int | None:
        """When the next timer is due."""
        while self._timers and self._timers[0][2].callback is None:
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def after(self, seconds: float, callback: Callable[[], None]) -> Timer:
        """Call back once so much time has passed."""
        timer = Timer(callback)
        deadline = self._now_ns + round(seconds * SECOND)
        heapq.heappush(self._timers, (deadline, next(self._serial), timer))
        return timer

    def advance(self, nanoseconds: int) -> None:
        """Let time pass; each timer that comes due runs at its own instant, in order."""
        target = self._now_ns + nanoseconds
        while (deadline := self.next_deadline_ns) is not None and deadline <= target:
            self._now_ns = max(self._now_ns, deadline)
            timer = heapq.heappop(self._timers)[2]
            callback, timer.callback = timer.callback, None
            if callback is not None:
                callback()
        self._now_ns = target
