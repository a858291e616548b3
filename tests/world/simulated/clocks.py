"""Clocks of hosts: they are off, run fast or slow, and jump."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from unittest import mock

from tests.world.simulated.loop import VirtualLoop

EPOCH = 1_600_000_000.0
"""Seconds since the Unix epoch at which the world begins."""


class Clock:
    """What a host takes for the time.

    Args:
        loop: Knows the true one.
        offset: Seconds by which it is ahead in the beginning.
        rate: Seconds that it counts in a true one.
    """

    def __init__(self, loop: VirtualLoop, offset: float = 0.0, rate: float = 1.0) -> None:
        self._loop = loop
        self._since = loop.instant
        self._base = EPOCH + loop.instant + offset
        self.rate = rate

    def now(self) -> float:
        """Return seconds since the Unix epoch."""
        return self._base + (self._loop.instant - self._since) * self.rate

    def now_ns(self) -> int:
        """Return nanoseconds since the Unix epoch."""
        return round(self.now() * 1e9)

    def jump(self, seconds: float) -> None:
        """Be set, ahead or back."""
        self._base += seconds

    def drift(self, rate: float) -> None:
        """Run at another rate from now on."""
        self._base, self._since, self.rate = self.now(), self._loop.instant, rate


HERE: ContextVar[Clock | None] = ContextVar("HERE", default=None)
"""The clock of the host on which the present task runs."""


@contextmanager
def virtual_time(loop: VirtualLoop) -> Iterator[None]:
    """Make the functions of `time` tell virtual time; that of the host at hand, if there is one."""

    def wall() -> float:
        clock = HERE.get()
        return clock.now() if clock is not None else EPOCH + loop.instant

    def steady() -> float:
        return 1000.0 + loop.instant

    with mock.patch.multiple(
        time,
        time=wall,
        time_ns=lambda: round(wall() * 1e9),
        monotonic=steady,
        monotonic_ns=lambda: round(steady() * 1e9),
        perf_counter=steady,
        perf_counter_ns=lambda: round(steady() * 1e9),
    ):
        yield
