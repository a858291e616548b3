"""Writes usage and operator commands to the accounting database, without delaying other work.

A slow or dead database affects accounting alone: pending usage is kept in memory, within limits,
and written once the database answers again.
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

from allocator.fairness.metering import AccountCheckpoint, HourlyUsage, Meter, UsageAccumulator
from allocator.service.accounting import DAY, TooMuch
from allocator.service.accounting.write_batch import Batch, OrderRecord
from allocator.service.config import AccountingSection
from allocator.service.loop.cooperative import (
    BACKGROUND_REST,
    SharedComputation,
    Work,
    run_in_slices,
    running_repeatedly,
)
from allocator.service.loop.engine_lock import EngineLock
from allocator.service.store import OtherScheduler, StoreError, StoreInUse
from allocator.users.adapter import SchedulerAdapter

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from allocator.service.accounting.database import Database

MOST_TALLIES = 50_000
"""Maximum number of pending hourly sums, one per hour and user or role. Above it, the earliest
hours are dropped."""
MOST_ORDERS = 1000
"""Maximum number of operator commands that wait to be written. Above it, the earliest is only in
the service's log."""
LEAST_PAUSE = 1.0
"""Minimum seconds between two writes."""
LONGEST_PAUSE = 300.0
"""Maximum seconds between two attempts to write while the database fails."""
ORDER_PATIENCE = 2.0
"""Seconds that an operator's call waits until its command is in the database."""
PATIENCE = 30.0
"""Seconds that a query waits for the database; also the service, when it ends."""

T = TypeVar("T")
_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class AccountingStatistics:
    """Counters and present state of the writes to the accounting database, exported as metrics."""

    degraded: bool = False
    """True if the latest attempt failed; pending usage is then in this process's memory only."""
    writes: int = 0
    """Number of successful writes."""
    failures: int = 0
    """Number of failed attempts to write or read."""
    lost: int = 0
    """Number of hourly sums of users and roles that were dropped because the database failed for
    too long."""
    overtaken: int = 0
    """Number of batches left out because another service had already accounted for the same time.
    """
    last_write: float | None = None
    """Time of the latest successful write, in seconds since the epoch by this machine's clock."""


class _Jobs:
    """Blocking functions of one kind, which the accounting thread runs in order of arrival.

    Args:
        thread: The accounting thread, which also runs jobs of other kinds.
    """

    def __init__(self, thread: ThreadPoolExecutor) -> None:
        self._thread = thread
        self.waited = 0.0
        """Total seconds for which jobs of this kind have waited for jobs of other kinds."""

    async def run(self, work: Callable[[], T]) -> T:
        """Run a blocking function in the thread, and return its result."""
        submitted = time.monotonic()

        def timed() -> T:
            self.waited += time.monotonic() - submitted
            return work()

        return await asyncio.get_running_loop().run_in_executor(self._thread, timed)


class Accountant:
    """Writes usage and operator commands to the accounting database regularly, and reads from it.

    Args:
        adapter: The adapter, read in slices in the event loop's thread.
        meter: The adapter's meter, which measures the usage of users.
        connect: Opens the database; called in another thread, and again after each failure.
        section: The settings `[accounting]`.
        engine_lock: Lock acquired before the engine is read; None for a new lock.
    """

    def __init__(
        self,
        adapter: SchedulerAdapter,
        meter: Meter,
        connect: "Callable[[], Database]",
        section: AccountingSection,
        engine_lock: EngineLock | None = None,
    ) -> None:
        self.statistics = AccountingStatistics()
        self.totals: dict[str, HourlyUsage] = {}
        """Usage of each known user from the service's start to the latest write."""
        self._adapter = adapter
        self._meter = meter
        self._roles = adapter.role_meter
        self._declared = adapter.declared_users
        """Users that always have rows of their own."""
        self._connect = connect
        self._section = section
        self._engine_lock = EngineLock() if engine_lock is None else engine_lock
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="accounting")
        self._database: Database | None = None
        self._writes, self._keeps, self._queries = (_Jobs(self._thread) for _ in range(3))
        # A write that waited long for a query needs no longer pause than another write.
        self._shared_write = SharedComputation(self._try_write, lambda: self._writes.waited)
        self._shared_keep = SharedComputation(self._try_keep, lambda: self._keeps.waited)
        self._query_lock = asyncio.Lock()
        """Lock that admits one query at a time, so that a write waits for at most one query."""
        self._no_write = asyncio.Event()
        """Set unless a write runs, for whose end queries wait."""
        self._no_write.set()
        self._stopping = asyncio.Event()
        self._wake = asyncio.Event()
        """Set to end a pause of `run`, to stop or to write a pending command."""
        self._writer = uuid.uuid4().hex
        """Identifier of this service's process."""
        self._usage = UsageAccumulator()
        """Usage of users that is still to be written."""
        self._role_usage = UsageAccumulator()
        """Usage of roles that is still to be written."""
        self._orders: list[OrderRecord] = []
        """Operator commands that wait to be written."""
        self._since: float | None = None
        """Time at which the pending usage begins, in seconds since the epoch; None if unknown."""
        self._batch: Batch | None = None
        """Batch that may have been written although no confirmation arrived, to be written again;
        else None."""
        self._number = 0
        """Number of the latest batch that this process has made; 0 before the first."""
        self._last_rolled_up = -1
        """Day on which old hours were last summed up by day, in days since the epoch."""

    @property
    def is_tree(self) -> bool:
        """Whether slashes in users' names separate the levels of a tree."""
        return self._adapter.is_tree

    def note(self, order: OrderRecord) -> None:
        """Queue an operator command; `keep` or the next regular write stores it."""
        self._orders.append(order)
        if len(self._orders) > MOST_ORDERS:  # refused orders never displace executed orders
            refused = (number for number, pending in enumerate(self._orders) if pending.refusal)
            del self._orders[next(refused, 0)]

    async def open(self) -> None:
        """Open the database now.

        Any other error than those below is logged, and the next write tries again.

        Raises:
            StoreInUse: another service has the database open.
            OtherScheduler: the database contains accounts of another scheduler's users.
        """
        try:
            await self._writes.run(self._open)
        except (StoreInUse, OtherScheduler):
            raise
        except Exception as error:  # noqa: BLE001 - no failure may stop the service's start
            self._failed(error)

    async def keep(self) -> bool:
        """Store queued operator commands at once, and wait at most `ORDER_PATIENCE` seconds.

        Returns:
            Whether the commands were stored in this time. If not, they are stored as soon as
                possible.
        """
        task = asyncio.create_task(self._shared_keep.get())
        done, _ = await asyncio.wait([task], timeout=ORDER_PATIENCE)
        return bool(done) and task.result()

    def sum_up_in_steps(self) -> Work[None]:
        """Sum up the usage measured so far by user and hour, in cooperative steps.

        A later write then has less to do. The event loop runs these steps regularly.
        """
        yield from self._meter.counted.add_up_in_steps()
        if self._roles is not None:
            yield from self._roles.add_up_in_steps()

    async def write(self) -> bool:
        """Write all pending usage and commands now; return whether the write succeeded.

        Concurrent callers share one write. An error is logged, not raised.
        """
        return await self._shared_write.get()

    async def read(self, query: "Callable[[Connection], T]") -> T | None:
        """Run a query in the accounting thread; usage that is not written yet is not included.

        Callers run one at a time, in order of arrival. A long query should be split into several
        calls. Other callers and writes then take turns with these calls.

        Args:
            query: Function that receives a database connection and returns the result.

        Returns:
            The query's result; None if the database does not answer in time.

        Raises:
            TooMuch: the query takes too long, or its result is too long.
        """
        try:
            await asyncio.wait_for(self._query_lock.acquire(), PATIENCE)
        except TimeoutError:
            return None  # too many queries wait
        try:
            return await asyncio.wait_for(self._read(query), PATIENCE)
        except TooMuch:
            raise
        except Exception as error:  # noqa: BLE001 - the caller must get an answer
            self._failed(error)
            return None
        finally:
            self._query_lock.release()

    async def _read(self, query: "Callable[[Connection], T]") -> T:
        """Run a query in the accounting thread, after the running write.

        Args:
            query: Function that receives a database connection and returns the result.

        Raises:
            TooMuch: the query takes too long, or its result is too long.
        """
        await self._no_write.wait()
        return await self._queries.run(lambda: self._open().read(query))

    async def run(self) -> None:
        """Write usage and commands regularly until `stop` is called, then write once more."""
        pause = self._section.every
        while not self._stopping.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), pause)
            self._wake.clear()
            if not self._stopping.is_set():
                written = await self.write()
                pause = self._section.every if written else min(2 * pause, LONGEST_PAUSE)
                await self._wait_least_pause()
        with suppress(TimeoutError):
            await asyncio.wait_for(self.write(), PATIENCE)
        self._thread.submit(self._close)
        self._thread.shutdown(wait=False)

    def stop(self) -> None:
        """Make `run` write once more and end."""
        self._stopping.set()
        self._wake.set()

    async def _wait_least_pause(self) -> None:
        """Wait `LEAST_PAUSE` seconds, so that several operator commands can share a write."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), LEAST_PAUSE)

    async def _try_write(self) -> bool:
        """Write pending usage and commands; return whether the write succeeded.

        `_failed` handles an error, which is not raised.
        """
        self._no_write.clear()
        try:
            await self._write()
        except Exception as error:  # noqa: BLE001 - no failure may stop offers
            self._failed(error)
            return False
        finally:
            self._no_write.set()
        self._succeeded()
        return True

    async def _try_keep(self) -> bool:
        """Store queued operator commands; return whether they are stored.

        `_failed` handles an error, which is not raised.
        """
        pending = [*(self._batch.orders if self._batch is not None else ()), *self._orders]
        try:
            await self._keeps.run(lambda: self._open().keep(pending))
        except Exception as error:  # noqa: BLE001 - the order has been executed anyway
            self._failed(error)
            self._wake.set()
            return False
        written = {order.id for order in pending}
        self._orders = [order for order in self._orders if order.id not in written]
        return True

    async def _write(self) -> None:
        """Collect the usage and commands since the last write into a batch, and write the batch.

        Collected usage is kept in memory even if the database fails.
        """
        try:
            database = await self._writes.run(self._open)
            if self._batch is not None:  # first, as its usage is older
                await self._commit(database, self._batch)
            if self._meter.first_checkpoints is not None:
                await self._bridge(database, self._meter.first_checkpoints)
        finally:
            role_checkpoints: dict[str, AccountCheckpoint] = {}
            if self._roles is not None:
                role_usage, role_checkpoints = await run_in_slices(
                    self._roles.close_period(self._adapter.settled_at)
                )
                self._role_usage.add(role_usage)
            checkpoints = await run_in_slices(self._adapter.close_accounts(), self._engine_lock)
            usage = self._meter.take()
            await run_in_slices(usage.add_up_in_steps())
            self._usage.add(usage)
            self._add_totals(usage, checkpoints)
            self._drop_excess()
        has_led = self._adapter.has_followed
        until = self._adapter.settled_at
        self._number += 1
        self._batch = Batch(
            writer=self._writer,
            number=self._number,
            since=until if self._since is None else self._since,
            until=until,
            counted=self._usage,
            checkpoints=checkpoints if has_led else {},
            orders=self._orders,
            roles=self._role_usage,
            role_checkpoints=role_checkpoints if has_led else {},
        )
        self._usage, self._role_usage, self._orders = (
            UsageAccumulator(),
            UsageAccumulator(),
            [],
        )
        self._since = until if has_led else None
        await self._commit(database, self._batch)
        await self._roll_up(database, until)

    async def _commit(self, database: "Database", batch: Batch) -> None:
        """Write a batch; log a warning if another service has accounted for the same time.

        If so, only the batch's operator commands are written, and its usage is left out.

        Args:
            database: The open database.
            batch: The batch.
        """
        added = await self._writes.run(
            lambda: database.write(batch, self._section.users, self._declared)
        )
        self._batch = None
        if not added:
            self.statistics.overtaken += 1
            _log.warning(
                "another service has accounted for the same time; this service's usage is omitted",
                since=batch.since,
                until=batch.until,
            )

    async def _bridge(self, database: "Database", beginning: dict[str, AccountCheckpoint]) -> None:
        """Account for the time from another service's latest write to the start of this service.

        No messages of a master are known for this time. Resources therefore count as allocated only
        if they were allocated both before and after this time.

        Args:
            database: The database, which contains the other service's checkpoints of accounts.
            beginning: State of each user's account at the start of this service's measurement.
        """
        until, checkpoints, roles = await self._writes.run(
            lambda: database.last_checkpoints(self._writer)
        )
        started = min(
            (checkpoint.at for checkpoint in beginning.values()), default=self._adapter.settled_at
        )
        self._meter.bridge(checkpoints, beginning, self._adapter.pool.capacity)
        self._since = min(until, started) if checkpoints else started
        self._meter.first_checkpoints = None
        if self._roles is not None and self._roles.beginning is not None:
            self._roles.bridge(roles, self._roles.beginning)
            self._roles.beginning = None

    async def _roll_up(self, database: "Database", now: float) -> None:
        """Sum up old hours by day in the database, if this has not been done today.

        Args:
            database: The database.
            now: Present time, in seconds since the epoch.
        """
        day = math.floor(now / DAY)
        if day != self._last_rolled_up:
            hours, days = (
                DAY * (day - retained) for retained in (self._section.hours, self._section.days)
            )
            await self._writes.run(lambda: database.roll_up(hours, days))
            self._last_rolled_up = day

    def _add_totals(self, usage: UsageAccumulator, known: Container[str]) -> None:
        """Add newly collected usage to `totals`, the sums by user since the service started.

        Args:
            usage: Usage by hour and user since the last write.
            known: Users that still exist; all other users are removed from `totals`.
        """
        totals = self.totals
        for tallies in usage.users.values():
            for user, tally in tallies.items():
                totals.setdefault(user, HourlyUsage()).add(tally)
        self.totals = {user: total for user, total in totals.items() if user in known}

    def _drop_excess(self) -> None:
        """Delete unwritten usage, earliest hours first, until at most `MOST_TALLIES` entries stay.

        An entry is the usage of one user or role in one hour. Usage of the latest hour is never
        deleted.
        """
        users, roles = self._usage.users, self._role_usage.users
        while len(users.keys() | roles) > 1 and (
            sum(map(len, (*users.values(), *roles.values()))) > MOST_TALLIES
        ):
            hour = min(users.keys() | roles)
            self.statistics.lost += len(users.pop(hour, ())) + len(roles.pop(hour, ()))
            self._usage.capacity.pop(hour, None)

    def _open(self) -> "Database":
        """Return the database, which is opened if necessary; runs in the accounting thread."""
        if self._database is None:
            self._database = self._connect()
            _log.info("accounting opened", database=self._database.name)
        return self._database

    def _close(self) -> None:
        """Close the database if it is open; runs in the accounting thread."""
        database, self._database = self._database, None
        if database is not None:
            database.close()

    def _succeeded(self) -> None:
        """Record a successful write in the statistics; log that writing works after failures."""
        statistics = self.statistics
        if statistics.degraded:
            _log.info("usage is written again", failures=statistics.failures)
        statistics.degraded = False
        statistics.writes += 1
        statistics.last_write = time.time()

    def _failed(self, error: Exception) -> None:
        """Count a failure of the database in the statistics, and close the database.

        The first failure of a series is logged. The next write opens the database again.

        Args:
            error: The failure.
        """
        statistics = self.statistics
        statistics.failures += 1
        if not statistics.degraded:
            _log.warning(
                "usage cannot be written and is in memory only; the service tries again",
                reason=str(error) or repr(error),
                exc_info=None if isinstance(error, StoreError | TimeoutError) else error,
            )
        statistics.degraded = True
        self._thread.submit(self._close)  # the next attempt opens the database again


@asynccontextmanager
async def running_accountant(
    bookkeeper: Accountant, every: float = 1.0
) -> AsyncIterator[Accountant]:
    """Keep the accounting database up to date while the block runs; write once more at its end.

    Args:
        bookkeeper: The accountant whose `run` and `sum_up_in_steps` are executed.
        every: Seconds between two rounds of summing up measured usage.
    """
    task = asyncio.create_task(bookkeeper.run())
    async with running_repeatedly(bookkeeper.sum_up_in_steps, every, rest=BACKGROUND_REST):
        try:
            yield bookkeeper
        finally:
            bookkeeper.stop()
            await task
