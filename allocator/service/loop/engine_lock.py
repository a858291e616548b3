"""One at a time at the engine: whoever changes it, and whoever looks, when that takes long."""

import asyncio
import time
from collections.abc import Callable
from types import TracebackType
from typing import TypeVar

from allocator.service.loop.cooperative import Work

BUDGET = 0.005
"""Seconds at a stretch that a message may take before others are let through."""

T = TypeVar("T")


class EngineLock:
    """What two must not do to an engine at once, one does after the other, in order of arrival.

    Those who want nothing of the engine (watchdog, health, new connections) are heard meanwhile.
    """

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    async def __aenter__(self) -> None:
        """Wait for one's turn."""
        await self._lock.acquire()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Let the next one have it."""
        self._lock.release()

    async def through(self, begin: Callable[[], Work[T]]) -> T:
        """Wait for one's turn, then do work, letting others through whenever it takes long.

        What has begun is done to its end, also if whoever asked for it has gone.

        Args:
            begin: Called when it is one's turn; may raise, if it is too late.
        """
        await self._lock.acquire()
        try:
            work = begin()
            done = _part(work)
        except BaseException:
            self._lock.release()
            raise
        if done:
            self._lock.release()
            return done[0]
        rest = asyncio.create_task(self._rest(work))
        rest.add_done_callback(_heard)
        return await asyncio.shield(rest)

    async def _rest(self, work: Work[T]) -> T:
        try:
            while True:
                await asyncio.sleep(0)
                done = _part(work)
                if done:
                    return done[0]
        finally:
            self._lock.release()


def _part(work: Work[T]) -> list[T]:
    """Do work for as long as the budget lasts; return its result, if there is one yet."""
    until = time.perf_counter() + BUDGET
    while True:
        try:
            next(work)
        except StopIteration as end:
            return [end.value]
        if time.perf_counter() >= until:
            return []


def _heard(task: "asyncio.Task[T]") -> None:
    """Whoever asked may have gone, and then nobody hears how it failed."""
    if not task.cancelled():
        task.exception()
