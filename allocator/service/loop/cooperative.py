"""Long work in short slices, so that the event loop can run other tasks between two slices."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import CancelledError
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Generic, TypeAlias, TypeVar

from allocator.cooperative import Cooperative, run_to_completion

T = TypeVar("T")
Work: TypeAlias = Cooperative[T]
"""Work in cooperative steps: a generator that yields between two steps and returns a result."""

SLICE = 0.001
"""Target duration of a slice of work, in seconds. A slice takes longer if a single step does."""
_DEFAULT_REST = 4.0
"""Default pause after a slice of work, as a multiple of the slice's duration."""
BACKGROUND_REST = 2.0
"""Pause after a slice of background work, as a multiple of the slice's duration."""
_BURST = 0.0001
"""Seconds that a worker thread computes between two pauses."""
_BURST_PAUSE = 0.0003
"""Duration of a worker thread's pause in seconds, in which the event loop's thread can take the
interpreter lock."""
_REST = 2.0
"""Minimum pause between two computations of an answer, as a multiple of the first one's duration.
"""


async def run_in_slices(
    work: Work[T],
    turn: AbstractAsyncContextManager[None] | None = None,
    *,
    rest: float = _DEFAULT_REST,
) -> T:
    """Run work (a generator) in slices, and let the event loop run other tasks between two slices.

    If the work waited long for the lock, its next slice lasts proportionally longer. The work then
    gets the same share of the time with fewer waits. The loop still runs other tasks during a
    longer slice.

    Args:
        work: The cooperative work.
        turn: Lock held during each slice; required if the work reads state that other tasks change.
        rest: Pause after each slice, as a multiple of the slice's duration.

    Returns:
        The result of the work.
    """
    while True:
        requested = time.perf_counter()
        async with turn or nullcontext():
            started = time.perf_counter()
            budget = max(SLICE, (started - requested) / _DEFAULT_REST)
            spent, next_yield = 0.0, SLICE
            while spent < budget:
                try:
                    next(work)
                except StopIteration as end:
                    result: T = end.value
                    return result
                spent = time.perf_counter() - started
                if next_yield <= spent < budget:
                    await asyncio.sleep(0)
                    next_yield = spent + SLICE
        await asyncio.sleep(rest * spent)


def run_in_thread(work: Work[T], stop: threading.Event | None = None) -> T:
    """Run cooperative work to its end in the calling worker thread, and return the result.

    The thread sleeps regularly, and so releases Python's interpreter lock. Otherwise the event
    loop's thread would wait for this lock after each receive or send.

    Args:
        work: The cooperative work.
        stop: Ends the work early once it is set; None: the work runs to its end.

    Raises:
        concurrent.futures.CancelledError: the work was ended early.
    """
    while True:
        if stop is not None and stop.is_set():
            raise CancelledError
        until = time.perf_counter() + _BURST
        while time.perf_counter() < until:
            try:
                next(work)
            except StopIteration as end:
                result: T = end.value
                return result
        time.sleep(_BURST_PAUSE)


@asynccontextmanager
async def running_repeatedly(
    work: Callable[[], Work[None]], every: float, *, rest: float = _DEFAULT_REST
) -> AsyncIterator[None]:
    """Run recurring work in slices, again and again, while the block runs.

    Work that is unfinished when the block ends is abandoned.

    Args:
        work: Called before each run; returns the work that is to be done now, as a generator.
        every: Seconds between two runs.
        rest: Pause after each slice, as a multiple of the slice's duration.
    """

    async def repeat() -> None:
        while True:
            await asyncio.sleep(every)
            await run_in_slices(work(), rest=rest)

    task = asyncio.create_task(repeat())
    try:
        yield
    finally:
        task.cancel()


class PendingWork:
    """Holds at most one generator of pending work, whose steps run in the background.

    Before a new generator is put, the previous generator is completed at once. So all work is
    completed in the order in which it was put.
    """

    def __init__(self) -> None:
        self._work: Work[None] | None = None

    def put(self, work: Work[None]) -> None:
        """Complete the pending work now, and keep new work to be run by `steps` or `finish`."""
        self.finish()
        self._work = work

    def finish(self) -> None:
        """Complete the pending work at once, without letting the event loop run other tasks."""
        work, self._work = self._work, None
        if work is not None:
            run_to_completion(work)

    def steps(self) -> Work[None]:
        """Run the pending work in cooperative steps, until it ends or `put` has replaced it."""
        work = self._work
        while work is not None and work is self._work:
            try:
                next(work)
            except StopIteration:
                self._work = None
            yield


class SharedComputation(Generic[T]):
    """Runs one computation for all callers that wait for its answer at the same time.

    Each caller receives an answer whose computation began after the call. However many callers
    there are, computations occupy the loop for at most a fixed share of the time.

    Args:
        make: Coroutine function that computes an answer.
        waited: Returns the total seconds in which computations only waited for other work. The
            pause after a computation does not depend on its waits.
    """

    def __init__(
        self, make: Callable[[], Awaitable[T]], waited: Callable[[], float] = lambda: 0.0
    ) -> None:
        self._make = make
        self._waited = waited
        self._running: asyncio.Task[T] | None = None
        """Task of the present or latest computation; None before the first."""
        self._next: asyncio.Task[T] | None = None
        """Computation that has not begun yet, which new callers join; None if there is none."""
        self._pause_end = 0.0
        """End of the pause after the latest computation, in seconds by the loop's clock."""

    async def get(self) -> T:
        """Join or start a computation that has not begun yet, and return its answer."""
        if self._next is None:
            self._next = asyncio.create_task(self._compute(self._running))
        return await asyncio.shield(self._next)

    async def _compute(self, previous: "asyncio.Task[T] | None") -> T:
        """Compute an answer, after the previous computation and the pause that follows it.

        Args:
            previous: Task of the previous computation; None for the first.
        """
        if previous is not None:
            await asyncio.wait([previous])
        loop = asyncio.get_running_loop()
        await asyncio.sleep(self._pause_end - loop.time())
        self._running, self._next = self._next, None
        started, waited = loop.time(), self._waited()
        try:
            return await self._make()
        finally:
            took = loop.time() - started - (self._waited() - waited)
            self._pause_end = loop.time() + _REST * took
