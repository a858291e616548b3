"""Clocks of hosts: they are off, run fast or slow, and jump."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from typing import Any
from unittest import mock

from tests.world.simulated.loop import VirtualLoop

EPOCH = 1_600_000_000.0
"""Seconds since the Unix epoch at which the world begins."""


class Clock:
    """The wall clock of a host.

    Args:
        loop: The loop with the true time.
        offset: Seconds by which the clock is ahead initially.
        rate: Seconds counted per true second.
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
    """Make the functions of `time` return virtual time: the current host's, if there is a host."""

    def wall() -> float:
        clock = HERE.get()
        return clock.now() if clock is not None else EPOCH + loop.instant

    def steady() -> float:
        return 1000.0 + loop.instant

    def steady_ns() -> int:
        return round(steady() * 1e9)

    virtual: dict[str, Callable[..., Any]] = {
        "time": wall,
        "time_ns": lambda: round(wall() * 1e9),
        "monotonic": steady,
        "monotonic_ns": steady_ns,
        "perf_counter": steady,
        "perf_counter_ns": steady_ns,
        "clock_gettime": lambda _clock: steady(),
        "clock_gettime_ns": lambda _clock: steady_ns(),
    }
    real = {getattr(time, name): function for name, function in virtual.items()}
    with ExitStack() as stack:
        for name, value in virtual.items():
            stack.enter_context(mock.patch.object(time, name, value))
        for function in _functions():
            defaults = tuple(real.get(d, d) if callable(d) else d for d in function.__defaults__)
            if defaults != function.__defaults__:
                stack.enter_context(mock.patch.object(function, "__defaults__", defaults))
        yield


def _functions() -> Iterator[Any]:
    """Yield the service's functions with default arguments, which may be clocks."""
    for name, module in list(sys.modules.items()):
        if name.startswith("allocator.service"):
            for value in list(vars(module).values()):
                members = list(vars(value).values()) if isinstance(value, type) else [value]
                yield from (m for m in members if getattr(m, "__defaults__", None))
