"""Lock that serialises access to the engine."""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Generic, TypeVar

from allocator.cooperative import InParts, Part
from allocator.service.loop.cooperative import Work, run_in_slices

BUDGET = 0.005
"""Seconds that work may hold the event loop in one slice before other tasks run."""
ANSWERS = 2
"""Maximum number of answers about single users that are computed at the same time. Each of them
takes the lock in turn with the messages of masters."""

T = TypeVar("T")


class Run(Generic[Part, T]):
    """Work under the engine lock, whose parts can be read while the work goes on.

    Args:
        work: The work, a generator. `EngineLock` runs its steps.
    """

    ended = 0.0
    """Time of the end of the work, by `time.perf_counter`; 0 before the end."""
    in_parts = False
    """Whether the work has had a part."""
    _parts: deque[Part] | None = None
    """Parts that have not been read; None before the first part."""
    _results: Sequence[T] = ()
    _task: asyncio.Task[None] | None = None
    """Runs the steps after the first slice of the work; None if there are none."""
    _changed: asyncio.Event | None = None
    """Set after each part, and at the end of the task."""

    def __init__(self, work: InParts[Part, T]) -> None:
        self._work = work

    @property
    def results(self) -> Sequence[T]:
        """The result, once the work has ended and all parts have been read; else empty."""
        return () if self._parts else self._results

    async def part(self) -> Part | None:
        """Wait for the next part and return it; None once the work has ended."""
        while not self._parts:
            if self._task is None or self._changed is None or self._task.done():
                return None
            self._changed.clear()
            await self._changed.wait()
        return self._parts.popleft()

    async def result(self) -> T:
        """Wait for the end of the work and return its result, or raise its exception."""
        if self._task is not None:
            await asyncio.shield(self._task)
        return self._results[0]

    def advance(self) -> bool:
        """Run one slice of the work, for at most `BUDGET` seconds or until a part is ready.

        Returns:
            True if the work has ended.
        """
        until = time.perf_counter() + BUDGET
        while True:
            try:
                part = next(self._work)
            except StopIteration as end:
                self.ended = time.perf_counter()
                self._results = (end.value,)
                return True
            if part is not None:
                if self._parts is None:
                    self._parts, self.in_parts = deque(), True
                self._parts.append(part)
                if self._changed is not None:
                    self._changed.set()
                return False
            if time.perf_counter() >= until:
                return False

    def complete(self, release: Callable[[], None]) -> None:
        """Run all further slices in a task, and call `release` at the end of the work."""
        self._changed = asyncio.Event()
        self._task = asyncio.create_task(self._complete(self._changed, release))
        self._task.add_done_callback(_retrieve_exception)

    async def _complete(self, changed: asyncio.Event, release: Callable[[], None]) -> None:
        try:
            while True:
                await asyncio.sleep(0)
                if self.advance():
                    return
        finally:
            self.ended = time.perf_counter()
            release()
            changed.set()


class EngineLock:
    """Lock that lets one asyncio task at a time change or read the engine, in order of arrival.

    Tasks that do not need the engine (watchdog, health checks, new connections) run meanwhile.
    """

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._waiting = 0
        """Number of tasks that wait for the lock."""
        self._answers = asyncio.Semaphore(ANSWERS)

    async def __aenter__(self) -> None:
        """Wait for the lock."""
        await self._acquire()

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
        """Run work under the lock, as `start` does, and return the result of the work."""
        return await (await self.start(begin)).result()

    def run_if_free(self, work: Callable[[], None]) -> None:
        """Run short work on the engine at once, or skip it if another task uses the engine."""
        if not self._lock.locked():
            work()

    async def start(self, begin: Callable[[], InParts[Part, T]]) -> Run[Part, T]:
        """Acquire the lock, and run work in slices, between which other tasks run.

        The lock is released at the end of the work. Work that has started is completed even if the
        caller is cancelled.

        Args:
            begin: Called once the lock is acquired; returns the work, or raises if the work is
                obsolete.

        Returns:
            The work, whose first slice has run. If the slice raises an exception, the method
            raises it.
        """
        if self._lock.locked() or self._waiting:
            await self._acquire()
            try:
                run = Run(begin())
                ended = run.advance()
            except BaseException:
                self._lock.release()
                raise
            if ended:
                self._lock.release()
                return run
        else:  # most work ends in its first slice, during which no other task runs
            run = Run(begin())
            if run.advance():
                return run
            await self._lock.acquire()  # does not wait: no task holds the lock or waits for it
        run.complete(self._lock.release)
        return run

    async def _acquire(self) -> None:
        """Acquire the lock, in order of arrival."""
        self._waiting += 1
        try:
            await self._lock.acquire()
        finally:
            self._waiting -= 1


def _retrieve_exception(task: "asyncio.Task[T]") -> None:
    """Retrieve a task's exception, so that asyncio logs no error if the caller was cancelled."""
    if not task.cancelled():
        task.exception()
