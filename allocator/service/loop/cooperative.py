"""Long work, cut into slices between which others are heard: those in the event loop's thread."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Generic, TypeAlias, TypeVar

from allocator.cluster.cooperative import Cooperative, run_to_completion

T = TypeVar("T")
Work: TypeAlias = Cooperative[T]

SLICE = 0.001
"""Seconds of work at a stretch; a step between two yields may take longer."""
_OTHERS = 4.0
"""The loop belongs to others for so many times what a slice took, where nothing else is said."""
PACE = 2.0
"""The loop belongs to others for so many times what it took to follow, or to add up, what waits."""
_BURST = 0.0001
"""Seconds for which another thread than the loop's computes at a stretch."""
_BREATH = 0.0003
"""Seconds that it leaves to the loop's after that."""
_REST = 2.0
"""Before an answer is made again, the loop belongs to others for so many times what it took."""


async def spread(
    work: Work[T], turn: AbstractAsyncContextManager[None] | None = None, *, rest: float = _OTHERS
) -> T:
    """Do work in slices, and in between leave the loop to others.

    If work waited long for its turn, for example during consecutive snapshots, its slice lasts as
    much longer. Work then gets the same part of the time, and does not wait once for each slice.
    The loop runs other tasks meanwhile.

    Args:
        work: What is to be done.
        turn: Waited for before each slice, for work that looks at what others change.
        rest: For how many times what a slice took the loop is left to others.
    """
    while True:
        asked = time.perf_counter()
        async with turn or nullcontext():
            begun = time.perf_counter()
            allowed = max(SLICE, (begun - asked) / _OTHERS)
            spent, breath = 0.0, SLICE
            while spent < allowed:
                try:
                    next(work)
                except StopIteration as end:
                    result: T = end.value
                    return result
                spent = time.perf_counter() - begun
                if breath <= spent < allowed:
                    await asyncio.sleep(0)
                    breath = spent + SLICE
        await asyncio.sleep(rest * spent)


def giving_way(work: Work[T]) -> T:
    """Do work in another thread than the loop's, and give way to that again and again.

    Whoever has to take the interpreter's lock from a thread that computes waits for some time,
    and the loop has to whenever it has received or sent something.
    """
    while True:
        until = time.perf_counter() + _BURST
        while time.perf_counter() < until:
            try:
                next(work)
            except StopIteration as end:
                result: T = end.value
                return result
        time.sleep(_BREATH)


@asynccontextmanager
async def repeating(
    work: Callable[[], Work[None]], every: float, *, rest: float = _OTHERS
) -> AsyncIterator[None]:
    """Do what waits in slices, again and again while the block runs; what is left then is left.

    Args:
        work: What waits now.
        every: Seconds between two looks.
        rest: For how many times what a slice took the loop is left to others.
    """

    async def repeat() -> None:
        while True:
            await asyncio.sleep(every)
            await spread(work(), rest=rest)

    repeated = asyncio.create_task(repeat())
    try:
        yield
    finally:
        repeated.cancel()


class Backlog:
    """Work that waits to be done in slices; before other work comes, it is done at a stretch."""

    def __init__(self) -> None:
        self._work: Work[None] | None = None

    def put(self, work: Work[None]) -> None:
        """Have work done some time."""
        self.finish()
        self._work = work

    def finish(self) -> None:
        """Do now what is left."""
        work, self._work = self._work, None
        if work is not None:
            run_to_completion(work)

    def steps(self) -> Work[None]:
        """Do what is there now step by step, unless it is done otherwise meanwhile."""
        work = self._work
        while work is not None and work is self._work:
            try:
                next(work)
            except StopIteration:
                self._work = None
            yield


class Once(Generic[T]):
    """An answer that is made once for all who ask meanwhile.

    Whoever asks gets one that was begun after that. However many ask, the loop is theirs for no
    more than a fixed part of the time.

    Args:
        make: Makes an answer.
    """

    def __init__(self, make: Callable[[], Awaitable[T]]) -> None:
        self._make = make
        self._under_way: asyncio.Task[T] | None = None
        self._next: asyncio.Task[T] | None = None
        self._rested = 0.0
        """When the loop's rest from the latest answer is over, in its own time."""

    async def get(self) -> T:
        """Return an answer."""
        if self._next is None:
            self._next = asyncio.create_task(self._in_turn(self._under_way))
        return await asyncio.shield(self._next)

    async def _in_turn(self, former: "asyncio.Task[T] | None") -> T:
        if former is not None:
            await asyncio.wait([former])
        loop = asyncio.get_running_loop()
        await asyncio.sleep(self._rested - loop.time())
        self._under_way, self._next = self._next, None
        begun = loop.time()
        try:
            return await self._make()
        finally:
            self._rested = loop.time() + _REST * (loop.time() - begun)
