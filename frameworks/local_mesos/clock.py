"""The embedded master's clock, which may run faster than real time, and its timers."""

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

SECOND = 1_000_000_000


@dataclass(slots=True, eq=False)
class Timer:
    """A callback that runs once at its deadline, unless cancelled."""

    callback: Callable[[], None] | None

    def cancel(self) -> None:
        """Prevent the callback from running."""
        self.callback = None


class Clock:
    """A virtual clock: its time passes only during calls of `advance`, which also runs due timers.

    Args:
        now_ns: Initial time in nanoseconds since the Unix epoch.
    """

    def __init__(self, now_ns: int) -> None:
        self._now_ns = now_ns
        self._timers: list[tuple[int, int, Timer]] = []
        self._serial = count()

    @property
    def now_ns(self) -> int:
        """Current time in nanoseconds since the Unix epoch."""
        return self._now_ns

    @property
    def now(self) -> float:
        """Current time in seconds since the Unix epoch."""
        return self._now_ns / SECOND

    @property
    def next_deadline_ns(self) -> int | None:
        """Deadline of the next timer in nanoseconds since the Unix epoch, or None."""
        while self._timers and self._timers[0][2].callback is None:
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def after(self, seconds: float, callback: Callable[[], None]) -> Timer:
        """Schedule a callback. Return its timer, which can be cancelled.

        Args:
            seconds: Delay by this clock, in seconds.
            callback: Function to call at the deadline.
        """
        timer = Timer(callback)
        deadline = self._now_ns + round(seconds * SECOND)
        heapq.heappush(self._timers, (deadline, next(self._serial), timer))
        return timer

    def advance(self, nanoseconds: int) -> None:
        """Advance the clock. Timers that become due run in order, each at exactly its deadline.

        Args:
            nanoseconds: Time to pass.
        """
        target = self._now_ns + nanoseconds
        while (deadline := self.next_deadline_ns) is not None and deadline <= target:
            self._now_ns = max(self._now_ns, deadline)
            timer = heapq.heappop(self._timers)[2]
            callback, timer.callback = timer.callback, None
            if callback is not None:
                callback()
        self._now_ns = target
