"""Lock that serialises access to the engine."""

import asyncio
import time
from collections.abc import Callable
from types import TracebackType
from typing import TypeVar

from allocator.service.loop.cooperative import Work, run_in_slices

BUDGET = 0.005
"""Seconds that work may hold the event loop in one slice before other tasks run."""
ANSWERS = 2
"""Maximum number of answers about single users that are computed at the same time. Each of them
takes the lock in turn with the messages of masters."""

T = TypeVar("T")


class EngineLock:
    """Lock that lets one asyncio task at a time change or read the engine, in order of arrival.

    Tasks that do not need the engine (watchdog, health checks, new connections) run meanwhile.
    """

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._answers = asyncio.Semaphore(ANSWERS)

    async def __aenter__(self) -> None:
        """Wait for the lock."""
        await self._lock.acquire()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Release the lock."""
        self._lock.release()

    async def answer(self, work: Work[T]) -> T:
        """Run work that answers a question in slices, and hold the lock during each slice.

        At most `ANSWERS` such works run at once; others wait in order of arrival. So messages of
        masters wait for few slices, however many peers ask.
        """
        async with self._answers:
            return await run_in_slices(work, self)

    async def run(self, begin: Callable[[], Work[T]]) -> T:
        """Acquire the lock, run work in slices, and release the lock; other tasks run in between.

        Work that has started is completed even if the caller is cancelled.

        Args:
            begin: Called once the lock is acquired; returns the work, or raises if the work is
                obsolete.

        Returns:
            The result of the work.
        """
        await self._lock.acquire()
        try:
            work = begin()
            result = _run_slice(work)
        except BaseException:
            self._lock.release()
            raise
        if result:
            self._lock.release()
            return result[0]
        task = asyncio.create_task(self._run_rest(work))
        task.add_done_callback(_retrieve_exception)
        return await asyncio.shield(task)

    async def _run_rest(self, work: Work[T]) -> T:
        """Complete work that `run` has started, release the lock, and return the work's result."""
        try:
            while True:
                await asyncio.sleep(0)
                result = _run_slice(work)
                if result:
                    return result[0]
        finally:
            self._lock.release()


def _run_slice(work: Work[T]) -> list[T]:
    """Run cooperative work (a generator) for at most `BUDGET` seconds, as one slice.

    Returns:
        A list with the result of the work; empty if the work is not done yet.
    """
    until = time.perf_counter() + BUDGET
    while True:
        try:
            next(work)
        except StopIteration as end:
            return [end.value]
        if time.perf_counter() >= until:
            return []


def _retrieve_exception(task: "asyncio.Task[T]") -> None:
    """Retrieve a task's exception, so that asyncio logs no error if the caller was cancelled."""
    if not task.cancelled():
        task.exception()
