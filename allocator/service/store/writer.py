"""Keeps a store up to date with an engine, without making the engine wait."""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace

import structlog

from allocator.cluster.engine import Engine
from allocator.cluster.memory import Memory, MemoryChanges
from allocator.service.loop.engine_lock import EngineLock
from allocator.service.store import Store, StoreError, StoreTaken, StoreUnavailable

LONGEST_PAUSE = 30.0
"""Seconds between attempts while a store fails."""
ORDER_PATIENCE = 2.0
"""Seconds that an operator waits to hear that an order has been stored."""
TAKEN_PATIENCE = 30.0
"""Seconds after which a service takes the store back from another if its own master still leads:
one that no longer does has exited by then."""
RECALL_PATIENCE = 10.0
"""Seconds that a new leader waits for what another service may have stored."""
_RECALL_AGAIN = 0.2
"""Seconds until a store that was not available is asked again."""

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class StoreStatistics:
    """How saving goes."""

    degraded: bool = False
    """Whether the latest attempt failed: what users owe is in memory alone."""
    saves: int = 0
    failures: int = 0
    last_save: float | None = None
    """Seconds since the Unix epoch, by this machine's clock."""


class StoreWriter:
    """Saves what an engine must remember.

    Args:
        engine: Looked at in the event loop's thread.
        store: Written in another thread, one save at a time.
        every: Seconds between saves while something changes, and so what a crash may cost.
        turn: Waited for before the engine is looked at.
        leads: Whether a leading master is connected.
    """

    def __init__(
        self,
        engine: Engine,
        store: Store,
        every: float,
        turn: EngineLock | None = None,
        leads: Callable[[], bool] = lambda: True,
    ) -> None:
        self.statistics = StoreStatistics()
        self._engine = engine
        self._store = store
        self._every = every
        self._turn = EngineLock() if turn is None else turn
        self._leads = leads
        self._saving = asyncio.Lock()
        self._reading: asyncio.Task[None] | None = None
        self._news: Memory | None = None
        """What another service had saved when that was last read."""
        self._current = False
        """Whether the latest reading has told what others had stored."""
        self._takes_over = False
        """Whether the next save is to replace what others store meanwhile."""
        self._taken: float | None = None
        """Since when another service has been known to have written in between."""
        self._ordered: set[asyncio.Task[bool]] = set()
        """Saves that somebody has asked for."""
        self._stopping = asyncio.Event()
        self._wake = asyncio.Event()
        """Ends a pause: it is time to stop, or the store is well again."""
        self._saved: tuple[int, int] | None = self._state()

    async def remember_now(self) -> bool:
        """Save at once, as after an operator's order; return whether that was possible."""
        async with self._saving:
            state = self._state()
            try:
                async with self._turn:
                    changes = self._engine.changes()
                await asyncio.to_thread(self._save, changes)
            except Exception as error:  # noqa: BLE001 - whatever it is, offers go on
                self._saved = None
                self._failed(error)
                return False
            self._saved = state
            self._succeeded()
            return True

    async def remember_soon(self) -> bool:
        """Save at once, and wait for it not too long; return whether it is done by then."""
        saving = asyncio.create_task(self.remember_now())
        self._ordered.add(saving)
        saving.add_done_callback(self._ordered.discard)
        done, _ = await asyncio.wait([saving], timeout=ORDER_PATIENCE)
        return bool(done) and saving.result()

    async def recall(self) -> Memory | None:
        """Return what another service has saved meanwhile, until somebody takes over with it.

        None: nobody has, or it cannot be read in time; then what the engine knows is all there is.
        """
        if not self._store.shared:
            return None  # and do not wait for a save that is under way
        if self._reading is None or self._reading.done():
            self._current = False
            self._reading = asyncio.create_task(self._read_news())
        done, _ = await asyncio.wait([self._reading], timeout=RECALL_PATIENCE)
        if not done:
            _log.warning("the store is slow; a master is served without what others have stored")
            return None
        return self._news

    async def _read_news(self) -> None:
        """Read; where no server answers, again: another may, once this one is given up."""
        async with self._saving:
            until = time.monotonic() + RECALL_PATIENCE
            while True:
                try:
                    memory = await asyncio.to_thread(self._store.recall)
                except Exception as error:  # noqa: BLE001 - whatever it is, a master is to be served
                    self._failed(error)
                    if not isinstance(error, StoreUnavailable) or time.monotonic() >= until:
                        return
                else:
                    self._current = True
                    if memory is not None:
                        self._news = self._later(memory)
                    return
                await asyncio.sleep(_RECALL_AGAIN)

    def take_over(self) -> None:
        """Save at once, and over whatever another service saves that does not know yet.

        Not if it is unknown what others had stored: then somebody has to look at it.
        """
        self._takes_over = self._current and self._store.shared
        self._news, self._taken = None, None
        self._wake.set()

    def _save(self, changes: MemoryChanges) -> None:
        if self._takes_over:
            self._store.take_over()
        self._store.save(changes)
        self._takes_over, self._taken = False, None

    def _follow_taken(self, now: float) -> None:
        """Take the store back if our master still leads when one that does not has exited."""
        if self._taken is None or not self._leads():
            self._taken = now
        elif now - self._taken >= TAKEN_PATIENCE and self._current:
            self.take_over()

    def _later(self, memory: Memory) -> Memory:
        """Say that what another service has stored is later than what the engine knows.

        The store's order is what counts: that service's clock, or its master's, may be behind ours.
        """
        return replace(memory, time=max(memory.time, math.nextafter(self._engine.now, math.inf)))

    async def run(self) -> None:
        """Save regularly until told to stop, then once more."""
        pause = self._every
        while not self._stopping.is_set():
            begun = time.monotonic()
            if self._state() != self._saved:
                kept = await self.remember_now()
                pause = self._every if kept else min(2 * pause, LONGEST_PAUSE)
            elif not self.statistics.degraded:
                pause = self._every
            await self._sleep(pause - (time.monotonic() - begun))
        await asyncio.gather(*self._ordered)
        if self._state() != self._saved:
            await self.remember_now()

    def stop(self) -> None:
        """Make `run` save and end."""
        self._stopping.set()
        self._wake.set()

    def _state(self) -> tuple[int, int]:
        """Return what changes with everything that a master says."""
        return self._engine.sequence, self._engine.statistics.snapshots

    async def _sleep(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._wake.wait(), max(seconds, 0.0))
        self._wake.clear()

    def _succeeded(self) -> None:
        told = self.statistics
        if told.degraded:
            _log.info("what users owe is kept in the store again", failures=told.failures)
            self._wake.set()  # perhaps somebody's order was stored in a long pause between attempts
        told.degraded = False
        told.saves += 1
        told.last_save = time.time()

    def _failed(self, error: Exception) -> None:
        told = self.statistics
        told.failures += 1
        if isinstance(error, StoreTaken):
            self._follow_taken(time.monotonic())
        if not told.degraded:
            _log.warning(
                "what users owe cannot be stored and is kept in memory alone; trying on",
                reason=str(error) or repr(error),
                exc_info=None if isinstance(error, StoreError) else error,
            )
        told.degraded = True


@asynccontextmanager
async def keeping(
    engine: Engine,
    store: Store,
    every: float,
    turn: EngineLock | None = None,
    leads: Callable[[], bool] = lambda: True,
) -> AsyncIterator[StoreWriter]:
    """Keep a store up to date while the block runs; save a last time at its end."""
    keeper = StoreWriter(engine, store, every, turn, leads)
    running = asyncio.create_task(keeper.run())
    try:
        yield keeper
    finally:
        keeper.stop()
        await running
