"""Keeps a store up to date with an engine, without making the engine wait."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import structlog

from allocator.cluster.engine import Engine
from allocator.cluster.memory import Memory
from allocator.service.loop.turn import Turn
from allocator.service.store import Store, StoreError, StoreUnavailable

LONGEST_PAUSE = 30.0
"""Seconds between attempts while a store fails."""
ORDER_PATIENCE = 2.0
"""Seconds that an operator waits to hear that an order has been stored."""
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


class Keeper:
    """Saves what an engine must remember.

    Args:
        engine: Looked at in the event loop's thread.
        store: Written in another thread, one save at a time.
        every: Seconds between saves while something changes, and so what a crash may cost.
        turn: Waited for before the engine is looked at.
    """

    def __init__(
        self, engine: Engine, store: Store, every: float, turn: Turn | None = None
    ) -> None:
        self.statistics = StoreStatistics()
        self._engine = engine
        self._store = store
        self._every = every
        self._turn = Turn() if turn is None else turn
        self._saving = asyncio.Lock()
        self._reading: asyncio.Task[Memory | None] | None = None
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
                await asyncio.to_thread(self._store.save, changes)
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
        """Return what another service has saved meanwhile.

        None: nobody has, or it cannot be read in time; then what the engine knows is all there is.
        """
        if not self._store.shared:
            return None  # and do not wait for a save that is under way
        if self._reading is None:
            self._reading = asyncio.create_task(self._read_news())
        done, _ = await asyncio.wait([self._reading], timeout=RECALL_PATIENCE)
        if not done:  # the next one who asks gets it
            _log.warning("the store is slow; a master is served without what others have stored")
            return None
        reading, self._reading = self._reading, None
        return reading.result()

    async def _read_news(self) -> Memory | None:
        """Read; where no server answers, again: another may, once this one is given up."""
        async with self._saving:
            until = time.monotonic() + RECALL_PATIENCE
            while True:
                try:
                    return await asyncio.to_thread(self._store.recall)
                except Exception as error:  # noqa: BLE001 - whatever it is, a master is to be served
                    self._failed(error)
                    if not isinstance(error, StoreUnavailable) or time.monotonic() >= until:
                        return None
                await asyncio.sleep(_RECALL_AGAIN)

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
        if not told.degraded:
            _log.warning(
                "what users owe cannot be stored and is kept in memory alone; trying on",
                reason=str(error) or repr(error),
                exc_info=None if isinstance(error, StoreError) else error,
            )
        told.degraded = True


@asynccontextmanager
async def keeping(
    engine: Engine, store: Store, every: float, turn: Turn | None = None
) -> AsyncIterator[Keeper]:
    """Keep a store up to date while the block runs; save a last time at its end."""
    keeper = Keeper(engine, store, every, turn)
    running = asyncio.create_task(keeper.run())
    try:
        yield keeper
    finally:
        keeper.stop()
        await running
