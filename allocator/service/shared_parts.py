"""Opens and runs the parts of the service that are the same for all schedulers."""

import asyncio
import resource
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import structlog
from prometheus_client import CollectorRegistry

from allocator.fairness.metering import Meter
from allocator.fairness.policies import Policy
from allocator.files import reason
from allocator.service.accounting.accountant import Accountant, running_accountant
from allocator.service.accounting.place import database_location, missing_reason
from allocator.service.config import ConfigError, SharedConfig, StoreSection
from allocator.service.connections import Connections
from allocator.service.loop.cooperative import BACKGROUND_REST, Work, running_repeatedly
from allocator.service.loop.engine_lock import EngineLock
from allocator.service.loop.loop_latency import LoopLatency
from allocator.service.operators.admin import Admin
from allocator.service.rights import Rights
from allocator.service.scheduler_commands import Scheduler
from allocator.service.scheduler_contact import SchedulerContact
from allocator.service.show import metrics
from allocator.service.show.curves import Accounts, Curves
from allocator.service.show.metric_definitions import register
from allocator.service.show.offer_trail import Trail
from allocator.service.show.recorder import Recorder
from allocator.service.show.shadows import Shadows
from allocator.service.show.standing_history import StandingHistory
from allocator.service.show.status import Status
from allocator.service.show.wait_reasons import Waits, examining
from allocator.service.show.web import serving
from allocator.service.store import OtherScheduler, Store, StoreError, StoreInUse, StoreUnavailable
from allocator.service.store.sqlite import SqliteStore
from allocator.service.store.writer import StoreWriter, saving_to_store
from allocator.service.store.zookeeper import ZookeeperStore
from allocator.users.adapter import SchedulerAdapter
from allocator.users.memory import Memory

if TYPE_CHECKING:
    from allocator.service.accounting.database import Database

_FLUSH_EVERY = 1.0
"""Seconds between flushes of the recorder's file and of the event log."""
_LOOK_EVERY = 0.05
"""Seconds between rounds of background work."""
_REPORT_EVERY = 60.0
"""Minimum seconds between two log lines about a failing policy."""

_log = structlog.get_logger(__name__)


class BufferedFile(Protocol):
    """A file with buffered lines."""

    def flush(self) -> None:
        """Pass buffered lines to the operating system."""


@dataclass
class SharedParts:
    """The shared parts of the service: opened before the adapter exists, and then run with it."""

    config: SharedConfig
    store: Store | None
    memory: Memory | None
    """Content of the store at the start; None without a store, or if nothing is stored."""
    recorder: Recorder | None
    accounts: str | None
    """URL or path of the accounting database; None if no accounts are kept."""
    meter: Meter | None
    """The meter that the adapter must attach to its users; None without accounting."""
    shadows: Shadows
    rights: Rights
    history: StandingHistory = field(default_factory=StandingHistory)
    engine_lock: EngineLock = field(default_factory=EngineLock)
    connections: Connections = field(default_factory=Connections)
    accountant: Accountant | None = None
    store_writer: StoreWriter | None = None

    def before_change(self, adapter: SchedulerAdapter, instant: float) -> Work[None] | None:
        """Take samples and follow shadow policies; the adapter calls this before each change.

        Args:
            adapter: The adapter, before the change.
            instant: Time of the change, in seconds since the epoch of the scheduler's clock.

        Returns:
            Steps that must end before the change; None if no sample is due.
        """
        if self.shadows.followers:
            self.shadows.before_change(adapter, instant)
        history = self.history.sampling(adapter, instant)
        rows = None if self.recorder is None else self.recorder.sampling(adapter, instant)
        if history is None or rows is None:
            return rows if history is None else history
        return _in_turn(history, rows)

    async def keep(
        self, stack: AsyncExitStack, adapter: SchedulerAdapter, contact: SchedulerContact
    ) -> None:
        """Write accounts and commitments from now on, until the stack is closed.

        Args:
            stack: Ends the writers when it is closed; they write once more then.
            adapter: The adapter to read.
            contact: Whether the scheduler is in contact.

        Raises:
            ConfigError: another service has the accounting file open.
        """
        await stack.enter_async_context(running_repeatedly(self.history.backlog.steps, _LOOK_EVERY))
        if self.accounts is not None and self.meter is not None:
            connect = partial(_database, self.accounts, self.config.scheduler)
            section = self.config.accounting
            accountant = Accountant(adapter, self.meter, connect, section, self.engine_lock)
            await _lock_accounts(accountant, self.accounts)
            await stack.enter_async_context(running_accountant(accountant, _LOOK_EVERY))
            self.accountant = accountant
        await stack.enter_async_context(_watch_policy(adapter.pool.policy))
        if self.store is not None:
            every = self.config.store.every
            self.store_writer = await stack.enter_async_context(
                saving_to_store(
                    adapter, self.store, every, self.engine_lock, lambda: contact.connected
                )
            )

    async def show(  # noqa: PLR0913, PLR0917 - every source of the displays
        self,
        stack: AsyncExitStack,
        adapter: SchedulerAdapter,
        contact: SchedulerContact,
        trail: Trail,
        registry: CollectorRegistry,
        latency: LoopLatency,
    ) -> Admin:
        """Serve metrics and pages from now on, until the stack is closed; call `keep` before.

        Args:
            stack: Ends the displays when it is closed.
            adapter: The adapter to read.
            contact: Whether the scheduler is in contact.
            trail: The latest offers or starts.
            registry: Metrics of the adapter; the metrics of the shared parts are added.
            latency: Measurement of the event loop.

        Returns:
            The service for operators, which still has to be served on a port.

        Raises:
            ConfigError: the address of the metrics cannot be used.
        """
        config, engine_lock = self.config, self.engine_lock
        stored = self.store_writer.statistics if self.store_writer is not None else None
        register(
            registry,
            (metrics.POOL, adapter),
            (metrics.LOOP, latency),
            (metrics.GRPC, (self.rights, self.connections)),
            (metrics.STORE, stored),
            (metrics.RECORDER, self.recorder),
            (metrics.ACCOUNTING, None if self.accountant is None else self.accountant.statistics),
            (metrics.SHADOWS, self.shadows if self.shadows.followers else None),
        )
        waits = Waits(adapter, contact, self.shadows)
        await stack.enter_async_context(examining(waits, engine_lock))
        if self.shadows.followers:
            await stack.enter_async_context(
                running_repeatedly(self.shadows.replay, _LOOK_EVERY, rest=BACKGROUND_REST)
            )
        status = Status(adapter, waits, trail, stored, self.shadows)
        chronicle = None if self.accountant is None else Accounts(self.accountant)
        curves = Curves(adapter, self.history, chronicle)
        await stack.enter_async_context(
            serving(config.metrics, adapter, registry, status, curves, engine_lock, self.accountant)
        )
        return Admin(adapter, waits, self.store_writer, self.accountant, engine_lock, self.shadows)


@asynccontextmanager
async def opening(config: SharedConfig, record: Path | None = None) -> AsyncIterator[SharedParts]:
    """Open the store and the recorder's file, and close both after the block.

    Args:
        config: The configuration.
        record: Path of the event log, which the recorder must not overwrite; None for no log.

    Raises:
        ConfigError: the store, the recorder's file or the accounts cannot be used.
        StoreUnavailable: the store does not answer.
    """
    async with AsyncExitStack() as stack:
        opened = _store(config.store, config.scheduler)
        store, memory = await stack.enter_async_context(opened)
        recorder = await stack.enter_async_context(_recorder(config, record))
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGHUP, _reopen_recorder, recorder)
        accounts = _accounts(config)
        yield SharedParts(
            config,
            store,
            memory,
            recorder,
            accounts,
            meter=Meter() if accounts is not None else None,
            shadows=Shadows(config.shadows()),
            rights=Rights(config.listen.rights),
        )


def stop_signal() -> asyncio.Event:
    """Return an event that SIGTERM and SIGINT set."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


def raise_file_limit() -> None:
    """Raise this process's limit on open files to its hard limit.

    Idle connections then do not exhaust the limit.
    """
    _, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard_limit, hard_limit))


def _accounts(config: SharedConfig) -> str | None:
    """Return the accounting database's URL or path; None if no accounts are kept.

    If no accounts are kept only because a package is missing, a warning is logged.
    """
    if reason := missing_reason(config):
        _log.warning(reason)
    return database_location(config)


async def _lock_accounts(accountant: Accountant, accounts: str) -> None:
    """Open a SQLite accounting file at the start, so that no other service can open the file.

    A PostgreSQL database is opened later, because services for several masters may share it.

    Args:
        accountant: Writes to the database.
        accounts: URL or path of the database.

    Raises:
        ConfigError: another service has the file open, or the file belongs to another scheduler.
    """
    if "://" in accounts:
        return
    try:
        await accountant.open()
    except StoreInUse as error:
        advice = "stop it, or choose another path"
        raise ConfigError(f"accounting.database: {error}; {advice}") from error
    except OtherScheduler as error:
        raise ConfigError(f"accounting.database: {error}") from error


def _in_turn(first: Work[None], second: Work[None]) -> Work[None]:
    yield from first
    yield from second


def _database(accounts: str, scheduler: Scheduler) -> "Database":
    """Open the accounting database of a scheduler at a URL or path.

    The module `database` is imported only now, because importing SQLAlchemy takes time.
    """
    from allocator.service.accounting.database import Database, parse_location  # noqa: PLC0415

    return Database(parse_location(accounts), scheduler)


@asynccontextmanager
async def _store(
    section: StoreSection, scheduler: Scheduler
) -> AsyncIterator[tuple[Store | None, Memory | None]]:
    """Open the configured store, load its content, and close the store after the block.

    Args:
        section: The configuration of the store.
        scheduler: The scheduler of this service; the store of another scheduler is refused.

    Yields:
        The store and its content: commitments and operator settings. Both are None without a store;
            the content is None if nothing is stored.

    Raises:
        ConfigError: the store cannot be used.
        StoreUnavailable: the store does not answer.
    """
    if section.kind == "none":
        _log.warning("commitments will be lost when the service ends (store.kind is none)")
        yield None, None
        return
    try:
        store = await asyncio.to_thread(_open_store, section, scheduler)
        memory = await asyncio.to_thread(store.load)
    except StoreUnavailable:
        raise
    except StoreError as error:
        raise ConfigError(f"store: {error}") from error
    _log.info(
        "store opened",
        kind=section.kind,
        users=len(memory.users) if memory is not None else 0,
        saved_at=memory.time if memory is not None else None,
    )
    try:
        yield store, memory
    finally:
        await asyncio.to_thread(store.close)


def _open_store(section: StoreSection, scheduler: Scheduler) -> Store:
    """Open the configured store (SQLite or ZooKeeper); called in a worker thread.

    Args:
        section: The configuration of the store.
        scheduler: The scheduler of this service.

    Raises:
        StoreError: the store cannot be used.
    """
    set_aside = section.on_damage == "set aside"
    if section.kind == "sqlite":
        return SqliteStore(section.path, scheduler, set_aside=set_aside)
    assert section.hosts is not None
    return ZookeeperStore(
        section.hosts,
        section.znode,
        section.secret(),
        scheduler=scheduler,
        set_aside=set_aside,
    )


@asynccontextmanager
async def _recorder(config: SharedConfig, record: Path | None) -> AsyncIterator[Recorder | None]:
    """Open the configured recorder, run its pending work while the block runs, and close it.

    The recorder writes users' shares to a CSV file.

    Yields:
        The recorder; None if none is configured.

    Raises:
        ConfigError: the recorder's file cannot be written.
    """
    section = config.recorder
    if section is None:
        yield None
        return
    try:
        apart = config.apart_from("recorder.file", record)
        recorder = Recorder(section.file, section.every, apart)
    except OSError as error:
        raise ConfigError(f"recorder.file: {section.file}: {reason(error)}") from error
    task = asyncio.create_task(flush_regularly(recorder))
    try:
        async with running_repeatedly(recorder.backlog.steps, _LOOK_EVERY):
            yield recorder
    finally:
        task.cancel()
        recorder.close()


def _reopen_recorder(recorder: Recorder | None) -> None:
    """Reopen the recorder's file after log rotation; do nothing without a recorder."""
    if recorder is not None:
        recorder.reopen()


@asynccontextmanager
async def _watch_policy(policy: Policy) -> AsyncIterator[None]:
    """While the block runs, log failures of an external policy, at most once a minute.

    The policy's file is logged at the start. A built-in policy is not watched.
    """
    if policy.origin is None:
        yield
        return
    _log.info("external policy loaded", file=policy.origin.file, sha256=policy.origin.sha256)

    async def watch() -> None:
        reported = 0
        while True:
            await asyncio.sleep(_LOOK_EVERY)
            if policy.faults.count > reported:
                reported = policy.faults.count
                _log.error("policy failed", latest=policy.faults.latest, times=reported)
                await asyncio.sleep(_REPORT_EVERY)

    task = asyncio.create_task(watch())
    try:
        yield
    finally:
        task.cancel()


async def flush_regularly(file: BufferedFile) -> None:
    """Flush the buffered lines of a file to disk once a second, until cancelled."""
    while True:
        await asyncio.sleep(_FLUSH_EVERY)
        file.flush()
