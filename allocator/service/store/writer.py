"""Saves commitments and operator settings to a store regularly, without delaying the adapter."""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace

import structlog

from allocator.service.loop.engine_lock import EngineLock
from allocator.service.store import Store, StoreError, StoreTaken, StoreUnavailable
from allocator.users.adapter import SchedulerAdapter
from allocator.users.memory import Memory, MemoryChanges

LONGEST_PAUSE = 30.0
"""Maximum pause between two attempts to save while a store fails, in seconds."""
ORDER_PATIENCE = 2.0
"""Seconds that an operator's call waits until the effect of its command is stored."""
TAKEN_PATIENCE = 30.0
"""Seconds after which a service takes the store back from another service, if its own master still
leads.

The other service's master, which has lost the election, has exited by then.
"""
RECALL_PATIENCE = 10.0
"""Seconds that a new leader waits for the store, to read what another service may have saved."""
_RECALL_RETRY = 0.2
"""Seconds between two attempts to read an unavailable store."""

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class StoreStatistics:
    """Counters and present state of the saves to the store, exported as metrics."""

    degraded: bool = False
    """True if the latest attempt failed; commitments are then in this process's memory only."""
    saves: int = 0
    """Number of successful saves."""
    failures: int = 0
    """Number of failed attempts to save or to read."""
    left_out: int = 0
    """Number of users whose commitments the latest save left out for want of room."""
    last_save: float | None = None
    """Time of the latest successful save, in seconds since the Unix epoch by this machine's
    clock."""


class StoreWriter:
    """Saves an adapter's commitments and operator settings regularly, and at once on request.

    Args:
        adapter: The adapter, read in the event loop's thread.
        store: The store, used in another thread with one call at a time.
        every: Seconds between saves while the saved state changes; a crash loses at most the
            changes of this time.
        engine_lock: Lock acquired before the engine is read; None for a new lock.
        leads: Returns whether a leading master is connected.
    """

    def __init__(
        self,
        adapter: SchedulerAdapter,
        store: Store,
        every: float,
        engine_lock: EngineLock | None = None,
        leads: Callable[[], bool] = lambda: True,
    ) -> None:
        self.statistics = StoreStatistics()
        self._adapter = adapter
        self._store = store
        self._every = every
        self._engine_lock = EngineLock() if engine_lock is None else engine_lock
        self._leads = leads
        self._saving = asyncio.Lock()
        self._reading: asyncio.Task[None] | None = None
        """Running or latest task that reads another service's memory."""
        self._others_memory: Memory | None = None
        """Memory that another service had saved when the store was last read; None if none."""
        self._read_succeeded = False
        """True if the latest read of the store succeeded."""
        self._will_replace = False
        """Whether the next save replaces whatever other services have saved."""
        self._taken_since: float | None = None
        """Monotonic time, in seconds, at which another service's saves were first noticed; None if
        there are none."""
        self._order_saves: set[asyncio.Task[bool]] = set()
        """Running saves that operators' commands have requested."""
        self._stopping = asyncio.Event()
        self._wake = asyncio.Event()
        """Set to end a pause of `run`, to stop or because the store works again."""
        self._saved: tuple[int, int] | None = self._state()
        """The numbers returned by `_state` at the latest successful save; None after a failure."""

    async def save_now(self) -> bool:
        """Save commitments and operator settings now; return whether the save succeeded."""
        async with self._saving:
            state = self._state()
            try:
                changes = await self._engine_lock.run(self._adapter.changes_in_steps)
                await asyncio.to_thread(self._save, changes)
            except Exception as error:  # noqa: BLE001 - no failure may stop offers
                self._saved = None
                self._failed(error)
                return False
            self._saved = state
            self._succeeded()
            return True

    async def save_with_time_limit(self) -> bool:
        """Save commitments and operator settings now; wait for at most `ORDER_PATIENCE` seconds.

        Returns:
            Whether the save succeeded in this time. If not, it continues.
        """
        saving = asyncio.create_task(self.save_now())
        self._order_saves.add(saving)
        saving.add_done_callback(self._order_saves.discard)
        done, _ = await asyncio.wait([saving], timeout=ORDER_PATIENCE)
        return bool(done) and saving.result()

    async def recall(self) -> Memory | None:
        """Return the commitments and operator settings that another service saved, if not yet used.

        Returns:
            The commitments and settings. None if no other service has saved any since they were
                last taken over, or if the store cannot be read in time. The engine then continues
                with its own.
        """
        if not self._store.shared:
            return None  # without waiting for a running save
        if self._reading is None or self._reading.done():
            self._read_succeeded = False
            self._reading = asyncio.create_task(self._read_others_memory())
        done, _ = await asyncio.wait([self._reading], timeout=RECALL_PATIENCE)
        if not done:
            _log.warning("the store is slow; a master is served without memory from other services")
            return None
        return self._others_memory

    async def _read_others_memory(self) -> None:
        """Read the commitments and settings that another service has saved, for `recall`.

        An attempt that fails because the store does not answer is repeated for `RECALL_PATIENCE`
        seconds, because ZooKeeper's client may switch to another server. Errors are logged, not
        raised.
        """
        async with self._saving:
            until = time.monotonic() + RECALL_PATIENCE
            while True:
                try:
                    memory = await asyncio.to_thread(self._store.recall)
                except Exception as error:  # noqa: BLE001 - masters must be served
                    self._failed(error)
                    if not isinstance(error, StoreUnavailable) or time.monotonic() >= until:
                        return
                else:
                    self._read_succeeded = True
                    if memory is not None:
                        self._others_memory = self._later(memory)
                    return
                await asyncio.sleep(_RECALL_RETRY)

    def take_over(self) -> None:
        """Save soon, over any content that another leader's service has saved meanwhile.

        The method is called when another stream has become the leader. If the other service's
        content could not be read, nothing is replaced; an operator has to decide.
        """
        self._will_replace = self._read_succeeded and self._store.shared
        self._others_memory, self._taken_since = None, None
        self._wake.set()

    def _save(self, changes: MemoryChanges) -> None:
        """Write changes to the store; replace another service's content if `take_over` was called.

        The method runs in another thread.

        Args:
            changes: Changes of commitments and operator settings since the last save.
        """
        if self._will_replace:
            self._store.take_over()
        self._store.save(changes)
        self._will_replace, self._taken_since = False, None

    def _take_back_if_due(self, now: float) -> None:
        """Let the next save replace another service's data, if this service's master still leads.

        The method is called after each save that fails because another service has written the
        store. If a leading master stays connected for `TAKEN_PATIENCE` seconds, the other service's
        master must have exited. Then the next save replaces the content.

        Args:
            now: Monotonic time, in seconds.
        """
        if self._taken_since is None or not self._leads():
            self._taken_since = now
        elif now - self._taken_since >= TAKEN_PATIENCE and self._read_succeeded:
            self.take_over()

    def _later(self, memory: Memory) -> Memory:
        """Return another service's commitments and settings, with a time later than the engine's.

        The engine compares the two times, and then uses the other service's commitments. The saved
        times themselves would not tell which commitments are newer, because clocks differ between
        machines.

        Args:
            memory: The other service's commitments and operator settings.
        """
        return replace(memory, time=max(memory.time, math.nextafter(self._adapter.now, math.inf)))

    async def run(self) -> None:
        """Save commitments and operator settings regularly until `stop` is called, then again."""
        pause = self._every
        while not self._stopping.is_set():
            started = time.monotonic()
            if self._state() != self._saved:
                saved = await self.save_now()
                pause = self._every if saved else min(2 * pause, LONGEST_PAUSE)
            elif not self.statistics.degraded:
                pause = self._every
            await self._sleep(pause - (time.monotonic() - started))
        await asyncio.gather(*self._order_saves)
        if self._state() != self._saved:
            await self.save_now()

    def stop(self) -> None:
        """Make `run` save once more and end."""
        self._stopping.set()
        self._wake.set()

    def _state(self) -> tuple[int, int]:
        """Return the adapter's revision: two numbers, of which one changes with every message.

        If both are unchanged since the last save, nothing needs to be saved.
        """
        return self._adapter.revision

    async def _sleep(self, seconds: float) -> None:
        """Wait for some seconds, or until `_wake` is set because a save or the end is due."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._wake.wait(), max(seconds, 0.0))
        self._wake.clear()

    def _succeeded(self) -> None:
        """Record a successful save in the statistics; log that saving works after failures."""
        statistics, left_out = self.statistics, self._store.left_out
        if left_out and not statistics.left_out:
            _log.warning(
                "the store has no room for all commitments: the least are left out, and a restart "
                "would cancel them; let users be forgotten earlier (users.forget_after), or use "
                "SQLite",
                users=left_out,
            )
        elif statistics.left_out and not left_out:
            _log.info("the store has room for all commitments again")
        statistics.left_out = left_out
        if statistics.degraded:
            _log.info("commitments are stored again", failures=statistics.failures)
            self._wake.set()  # an order may have been stored during a long pause between attempts
        statistics.degraded = False
        statistics.saves += 1
        statistics.last_save = time.time()

    def _failed(self, error: Exception) -> None:
        """Record a failed access to the store; log it if it is the first of a series.

        If another service has written the store, its content may later be replaced
        (`_take_back_if_due`).
        """
        statistics = self.statistics
        statistics.failures += 1
        if isinstance(error, StoreTaken):
            self._take_back_if_due(time.monotonic())
        if not statistics.degraded:
            _log.warning(
                "commitments cannot be stored and are in memory only; the service tries again",
                reason=str(error) or repr(error),
                exc_info=None if isinstance(error, StoreError) else error,
            )
        statistics.degraded = True


@asynccontextmanager
async def saving_to_store(
    adapter: SchedulerAdapter,
    store: Store,
    every: float,
    engine_lock: EngineLock | None = None,
    leads: Callable[[], bool] = lambda: True,
) -> AsyncIterator[StoreWriter]:
    """Save commitments and operator settings to a store while the block runs, and once at its end.

    Args:
        adapter: The adapter whose commitments and settings are saved.
        store: The store.
        every: Seconds between saves while the commitments or settings change.
        engine_lock: Lock acquired before the engine is read; None for a new lock.
        leads: Returns whether a leading master is connected.
    """
    writer = StoreWriter(adapter, store, every, engine_lock, leads)
    task = asyncio.create_task(writer.run())
    try:
        yield writer
    finally:
        writer.stop()
        await task
