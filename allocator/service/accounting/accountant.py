"""Writes what has been counted, and what was ordered, without making anybody wait.

A database that is slow or dead costs accounting alone: what has come together is kept in memory,
within bounds, and written when it answers again.
"""

import asyncio
import math
import time
import uuid
from collections.abc import AsyncIterator, Callable, Container
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import structlog

from allocator.cluster.engine import Engine
from allocator.cluster.settings import UserKey
from allocator.fairness.metering import AccountCheckpoint, HourlyUsage, Meter, UsageAccumulator
from allocator.service.accounting import DAY, TooMuch
from allocator.service.accounting.write_batch import Batch, Ordered
from allocator.service.config import AccountingSection
from allocator.service.loop.cooperative import PACE, Once, Work, repeating, spread
from allocator.service.loop.engine_lock import EngineLock
from allocator.service.store import StoreError, StoreInUse

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from allocator.service.accounting.database import Database

MOST_TALLIES = 50_000
"""Hours of users and roles that wait to be written; beyond, the earliest hour is lost."""
MOST_ORDERS = 1000
"""That wait to be written; beyond, the earliest is in the log alone."""
LEAST_PAUSE = 1.0
"""Seconds between two writes."""
LONGEST_PAUSE = 300.0
"""Seconds between attempts while the database fails."""
ORDER_PATIENCE = 2.0
"""Seconds that an order's answer waits for the database."""
PATIENCE = 30.0
"""Seconds that somebody who asks, or the end of the service, waits for the database."""

T = TypeVar("T")
_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class AccountingStatistics:
    """How writing goes."""

    degraded: bool = False
    """Whether the latest attempt failed: what is counted is in memory alone."""
    writes: int = 0
    failures: int = 0
    lost: int = 0
    """Hours of users and roles that were given up, as the database failed for too long."""
    overtaken: int = 0
    """Batches that were left out, as another service had counted the same time."""
    last_write: float | None = None
    """Seconds since the epoch, by this machine's clock."""


class Accountant:
    """Keeps the accounting database up to date.

    Args:
        engine: Looked at in the event loop's thread, in slices.
        meter: The engine's.
        connect: Opens the database; called in another thread, again after each failure.
        section: How often, and how much is kept.
        turn: Waited for before the engine is looked at.
    """

    def __init__(
        self,
        engine: Engine,
        meter: Meter,
        connect: "Callable[[], Database]",
        section: AccountingSection,
        turn: EngineLock | None = None,
    ) -> None:
        self.statistics = AccountingStatistics()
        self.totals: dict[str, HourlyUsage] = {}
        """What known users have had since the service began, as of the latest write."""
        self._engine = engine
        self._meter = meter
        self._roles = engine.role_meter
        self._connect = connect
        self._section = section
        self._turn = EngineLock() if turn is None else turn
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="accounting")
        self._database: Database | None = None
        self._writing = Once(self._written)
        self._keeping = Once(self._kept)
        self._reading = asyncio.Lock()
        """Of whoever reads; what is to be written waits for one at the most."""
        self._stopping = asyncio.Event()
        self._wake = asyncio.Event()
        """Ends a pause: it is time to stop, or to keep an order that is not kept yet."""
        self._writer = uuid.uuid4().hex
        self._counted = UsageAccumulator()
        self._counted_of_roles = UsageAccumulator()
        """That wait to be written."""
        self._orders: list[Ordered] = []
        self._since: float | None = None
        """The instant from which on that is."""
        self._batch: Batch | None = None
        """That has perhaps been written, as nobody heard."""
        self._number = 0
        self._rolled_up = -1

    @property
    def user_key(self) -> UserKey:
        """What the users are whose accounts are kept."""
        return self._engine.settings.user_key

    def note(self, order: Ordered) -> None:
        """Have an order kept: by `keep`, or with the next write."""
        self._orders.append(order)
        if len(self._orders) > MOST_ORDERS:  # nobody can push out what was carried out
            refused = (number for number, each in enumerate(self._orders) if each.refusal)
            del self._orders[next(refused, 0)]

    async def open(self) -> None:
        """Open the database now; one that fails is tried again with the next write.

        Raises:
            StoreInUse: Another service has the database open.
        """
        try:
            await self._in_thread(self._open)
        except StoreInUse:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, the service starts without
            self._failed(error)

    async def keep(self) -> bool:
        """Write what has been ordered at once, and wait for it not too long.

        Returns:
            Whether it is there by then; what is not comes there as soon as the database can.
        """
        keeping = asyncio.create_task(self._keeping.get())
        done, _ = await asyncio.wait([keeping], timeout=ORDER_PATIENCE)
        return bool(done) and keeping.result()

    def adding_up(self) -> Work[None]:
        """Add up bit by bit what has been counted so far."""
        yield from self._meter.counted.settling()
        if self._roles is not None:
            yield from self._roles.settling()

    async def write(self) -> bool:
        """Write all that there is to be written now; return whether that was possible.

        However many ask, it is done once for all who ask meanwhile.
        """
        return await self._writing.get()

    async def read(self, query: "Callable[[Connection], T]") -> T | None:
        """Return what a query finds of what has been written; None: no database answers.

        Raises:
            TooMuch: that takes too long, or is too long.
        """
        try:
            await asyncio.wait_for(self._reading.acquire(), PATIENCE)
        except TimeoutError:
            return None  # there are many who read
        try:
            reading = self._in_thread(lambda: self._open().read(query))
            return await asyncio.wait_for(reading, PATIENCE)
        except TooMuch:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, who asks is to hear something
            self._failed(error)
            return None
        finally:
            self._reading.release()

    async def run(self) -> None:
        """Write regularly until told to stop, then once more."""
        pause = self._section.every
        while not self._stopping.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), pause)
            self._wake.clear()
            if not self._stopping.is_set():
                written = await self.write()
                pause = self._section.every if written else min(2 * pause, LONGEST_PAUSE)
                await self._rest()
        with suppress(TimeoutError):
            await asyncio.wait_for(self.write(), PATIENCE)
        self._thread.submit(self._close)
        self._thread.shutdown(wait=False)

    def stop(self) -> None:
        """Make `run` write and end."""
        self._stopping.set()
        self._wake.set()

    async def _rest(self) -> None:
        """Keep no more than one write a second, however many orders there are."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), LEAST_PAUSE)

    async def _written(self) -> bool:
        try:
            await self._write()
        except Exception as error:  # noqa: BLE001 - whatever it is, offers go on
            self._failed(error)
            return False
        self._succeeded()
        return True

    async def _kept(self) -> bool:
        waiting = [*(self._batch.orders if self._batch is not None else ()), *self._orders]
        try:
            await self._in_thread(lambda: self._open().keep(waiting))
        except Exception as error:  # noqa: BLE001 - whatever it is, the order has been carried out
            self._failed(error)
            self._wake.set()
            return False
        written = {order.id for order in waiting}
        self._orders = [order for order in self._orders if order.id not in written]
        return True

    async def _write(self) -> None:
        try:
            database = await self._in_thread(self._open)
            if self._batch is not None:  # first of all, as it was counted before
                await self._commit(database, self._batch)
            if self._meter.beginning is not None:
                await self._bridge(database, self._meter.beginning)
        finally:
            role_formers: dict[str, AccountCheckpoint] = {}
            if self._roles is not None:
                of_roles, role_formers = await spread(self._roles.taking(self._engine.now))
                self._counted_of_roles.add(of_roles)
            formers = await spread(self._engine.closing(), self._turn)
            taken = self._meter.take()
            await spread(taken.settling())
            self._counted.add(taken)
            self._add_up(taken, formers)
            self._bound()
        led = self._engine.statistics.snapshots > 0
        until = self._engine.now
        self._number += 1
        self._batch = Batch(
            writer=self._writer,
            number=self._number,
            since=until if self._since is None else self._since,
            until=until,
            counted=self._counted,
            formers=formers if led else {},
            orders=self._orders,
            roles=self._counted_of_roles,
            role_formers=role_formers if led else {},
        )
        self._counted, self._counted_of_roles, self._orders = (
            UsageAccumulator(),
            UsageAccumulator(),
            [],
        )
        self._since = until if led else None
        await self._commit(database, self._batch)
        await self._roll_up(database, until)

    async def _commit(self, database: "Database", batch: Batch) -> None:
        added = await self._in_thread(lambda: database.write(batch, self._section.users))
        self._batch = None
        if not added:
            self.statistics.overtaken += 1
            _log.warning(
                "another service has counted the same time; what this one did is left out",
                since=batch.since,
                until=batch.until,
            )

    async def _bridge(self, database: "Database", beginning: dict[str, AccountCheckpoint]) -> None:
        """Count the time since a former service wrote last, as far as it is certain."""
        until, formers, roles = await self._in_thread(lambda: database.formers(self._writer))
        begun = min((former.at for former in beginning.values()), default=self._engine.now)
        self._meter.bridge(formers, beginning, self._engine.pool.capacity)
        self._since = min(until, begun) if formers else begun
        self._meter.beginning = None
        if self._roles is not None and self._roles.beginning is not None:
            self._roles.bridge(roles, self._roles.beginning)
            self._roles.beginning = None

    async def _roll_up(self, database: "Database", now: float) -> None:
        """Make days of what is long ago, once a day."""
        day = math.floor(now / DAY)
        if day != self._rolled_up:
            hours, days = (DAY * (day - kept) for kept in (self._section.hours, self._section.days))
            await self._in_thread(lambda: database.roll_up(hours, days))
            self._rolled_up = day

    def _add_up(self, taken: UsageAccumulator, known: Container[str]) -> None:
        totals = self.totals
        for tallies in taken.users.values():
            for user, tally in tallies.items():
                totals.setdefault(user, HourlyUsage()).add(tally)
        self.totals = {user: total for user, total in totals.items() if user in known}

    def _bound(self) -> None:
        users, roles = self._counted.users, self._counted_of_roles.users
        while len(users.keys() | roles) > 1 and (
            sum(map(len, (*users.values(), *roles.values()))) > MOST_TALLIES
        ):
            hour = min(users.keys() | roles)
            self.statistics.lost += len(users.pop(hour, ())) + len(roles.pop(hour, ()))
            self._counted.capacity.pop(hour, None)

    def _open(self) -> "Database":
        if self._database is None:
            self._database = self._connect()
            _log.info("accounting opened", database=self._database.name)
        return self._database

    def _close(self) -> None:
        database, self._database = self._database, None
        if database is not None:
            database.close()

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _succeeded(self) -> None:
        told = self.statistics
        if told.degraded:
            _log.info("what is counted is written again", failures=told.failures)
        told.degraded = False
        told.writes += 1
        told.last_write = time.time()

    def _failed(self, error: Exception) -> None:
        told = self.statistics
        told.failures += 1
        if not told.degraded:
            _log.warning(
                "what users have had cannot be written and is kept in memory alone; trying on",
                reason=str(error) or repr(error),
                exc_info=None if isinstance(error, StoreError | TimeoutError) else error,
            )
        told.degraded = True
        self._thread.submit(self._close)  # and opened anew with the next attempt


@asynccontextmanager
async def bookkeeping(bookkeeper: Accountant, every: float = 1.0) -> AsyncIterator[Accountant]:
    """Keep the database up to date while the block runs; write a last time at its end.

    Args:
        bookkeeper: Keeps it.
        every: Seconds after which what has been noted is added up.
    """
    running = asyncio.create_task(bookkeeper.run())
    async with repeating(bookkeeper.adding_up, every, rest=PACE):
        try:
            yield bookkeeper
        finally:
            bookkeeper.stop()
            await running
