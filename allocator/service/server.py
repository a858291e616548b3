"""Assembles and runs the service: gRPC for masters and operators, HTTP for metrics and pages."""

import asyncio
import resource
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from allocator.cluster.engine import Engine
from allocator.cluster.memory import Memory
from allocator.cluster.settings import EngineSettings
from allocator.fairness.metering import Meter
from allocator.fairness.policies import Policy
from allocator.files import reason
from allocator.service.accounting.accountant import Accountant, running_accountant
from allocator.service.accounting.place import database_location, missing_reason
from allocator.service.config import Config, ConfigError, StoreSection
from allocator.service.connections import Connections
from allocator.service.listening import listening
from allocator.service.loop.cooperative import BACKGROUND_REST, running_repeatedly
from allocator.service.loop.engine_lock import EngineLock
from allocator.service.loop.loop_latency import LoopLatency
from allocator.service.masters.session import SessionStatistics
from allocator.service.masters.sessions import Sessions
from allocator.service.masters.timestamp_guard import Timeline
from allocator.service.operators.admin import Admin
from allocator.service.record.event_log import EventLog, LoggedEngine
from allocator.service.rights import Rights
from allocator.service.show import mesos_metrics, metrics
from allocator.service.show.curves import Accounts, Curves
from allocator.service.show.metric_definitions import register
from allocator.service.show.offer_history import OfferTrail, StandingHistory
from allocator.service.show.recorder import Recorder
from allocator.service.show.shadows import Shadows
from allocator.service.show.status import Status
from allocator.service.show.wait_reasons import Waits, examining
from allocator.service.show.web import serving
from allocator.service.store import Store, StoreError, StoreInUse, StoreUnavailable
from allocator.service.store.sqlite import SqliteStore
from allocator.service.store.writer import StoreWriter, saving_to_store
from allocator.service.store.zookeeper import ZookeeperStore
from allocator.service.supervision import systemd_notifications

if TYPE_CHECKING:
    from allocator.service.accounting.database import Database

_FLUSH_EVERY = 1.0
"""Seconds between flushes of the recorder's file and of the event log."""
_LOOK_EVERY = 0.05
"""Seconds between rounds of background work."""
_REPORT_EVERY = 60.0
"""Minimum seconds between two log lines about a failing policy."""

_log = structlog.get_logger(__name__)


async def serve(config: Config, latency: LoopLatency, record: Path | None = None) -> None:
    """Serve until SIGTERM or SIGINT; SIGHUP reopens the recorder's file after log rotation.

    Args:
        config: The configuration.
        latency: Measurement of the event loop that runs the service, for the metrics.
        record: Path of the event log to write; None for no log.

    Raises:
        ConfigError: an address, the recorder's file, the store or the accounts cannot be used.
        StoreUnavailable: the store does not answer.
    """
    _raise_file_limit()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with AsyncExitStack() as stack:
        store, memory = await stack.enter_async_context(_store(config.store))
        event_log = await stack.enter_async_context(_event_log(record, config))
        recorder = await stack.enter_async_context(_recorder(config, record))
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, _reopen_recorder, recorder)
        standing_history, offer_trail = StandingHistory(), OfferTrail()
        await stack.enter_async_context(
            running_repeatedly(standing_history.backlog.steps, _LOOK_EVERY)
        )
        accounts, engine_lock = _accounts(config), EngineLock()
        meter = Meter() if accounts is not None else None
        shadows = Shadows(config.shadows())
        observers = (
            standing_history.sample_until,
            *_recorder_observer(recorder),
            *_shadows_observer(shadows),
        )
        engine = _engine(config.engine_settings(), memory, observers, event_log, meter)
        engine.watch(offer_trail, *((shadows,) if shadows.followers else ()))
        accountant: Accountant | None = None
        if accounts is not None and meter is not None:
            connect = partial(_database, accounts)
            accountant = Accountant(engine, meter, connect, config.accounting, engine_lock)
            await _lock_accounts(accountant, accounts)
            await stack.enter_async_context(running_accountant(accountant, _LOOK_EVERY))
        await stack.enter_async_context(_watch_policy(engine.settings.policy))
        statistics, connections, rights = (
            SessionStatistics(),
            Connections(),
            Rights(config.listen.rights),
        )
        store_writer: StoreWriter | None = None
        if store is not None:
            store_writer = await stack.enter_async_context(
                saving_to_store(
                    engine, store, config.store.every, engine_lock, lambda: statistics.connected
                )
            )
        sessions = Sessions(
            engine,
            statistics,
            max_waiting=config.listen.sessions,
            most_parts=config.listen.most_parts,
            recall=store_writer.recall if store_writer is not None else _no_memory,
            took_over=store_writer.take_over if store_writer is not None else lambda: None,
            timeline=Timeline.from_now(memory.time if memory is not None else 0.0),
            virtual_clocks=config.listen.virtual_clocks,
            rights=rights,
            engine_lock=engine_lock,
            before_message=recorder.allow if recorder is not None else lambda: None,
        )
        stored = store_writer.statistics if store_writer is not None else None
        registry = mesos_metrics.registry(engine, statistics, event_log=event_log)
        register(
            registry,
            (metrics.POOL, engine),
            (metrics.LOOP, latency),
            (metrics.GRPC, (rights, connections)),
            (metrics.STORE, stored),
            (metrics.RECORDER, recorder),
            (metrics.ACCOUNTING, None if accountant is None else accountant.statistics),
            (metrics.SHADOWS, shadows if shadows.followers else None),
        )
        waits = Waits(engine, statistics, shadows)
        await stack.enter_async_context(examining(waits, engine_lock))
        if shadows.followers:
            await stack.enter_async_context(
                running_repeatedly(shadows.replay, _LOOK_EVERY, rest=BACKGROUND_REST)
            )
        status = Status(engine, waits, offer_trail, stored, shadows)
        curves = Curves(
            engine, standing_history, None if accountant is None else Accounts(accountant)
        )
        await stack.enter_async_context(
            serving(config.metrics, engine, registry, status, curves, engine_lock, accountant)
        )
        admin = Admin(engine, waits, store_writer, accountant, engine_lock, shadows)
        await stack.enter_async_context(
            listening(config.listen, sessions, admin, rights, connections)
        )
        _log.info("ready", policy=engine.pool.policy.name)
        await stack.enter_async_context(systemd_notifications())
        await stop.wait()
        _log.info("stopping")
        sessions.end("the allocator is stopping")


def _raise_file_limit() -> None:
    """Raise this process's limit on open files to its hard limit.

    Idle connections then do not exhaust the limit.
    """
    _, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard_limit, hard_limit))


async def _no_memory() -> Memory | None:
    """Return None as the content of another service's store, for a service without a store."""
    return None


def _accounts(config: Config) -> str | None:
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
        ConfigError: another service has the file open.
    """
    if "://" in accounts:
        return
    try:
        await accountant.open()
    except StoreInUse as error:
        advice = "stop it, or choose another path"
        raise ConfigError(f"accounting.database: {error}; {advice}") from error


def _database(accounts: str) -> "Database":
    """Open the accounting database at a URL or path.

    The module `database` is imported only now, because importing SQLAlchemy takes time.
    """
    from allocator.service.accounting.database import Database, parse_location  # noqa: PLC0415

    return Database(parse_location(accounts))


@asynccontextmanager
async def _store(section: StoreSection) -> AsyncIterator[tuple[Store | None, Memory | None]]:
    """Open the configured store, load its content, and close the store after the block.

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
        store = await asyncio.to_thread(_open_store, section)
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


def _open_store(section: StoreSection) -> Store:
    """Open the configured store (SQLite or ZooKeeper); called in a worker thread.

    Raises:
        StoreError: the store cannot be used.
    """
    set_aside = section.on_damage == "set aside"
    if section.kind == "sqlite":
        return SqliteStore(section.path, set_aside=set_aside)
    assert section.hosts is not None
    return ZookeeperStore(section.hosts, section.znode, section.secret(), set_aside=set_aside)


@asynccontextmanager
async def _event_log(path: Path | None, config: Config) -> AsyncIterator[EventLog | None]:
    """Open the event log, flush it regularly while the block runs, and close it.

    Yields:
        The event log; None if `path` is None.

    Raises:
        ConfigError: the file cannot be written.
    """
    if path is None:
        yield None
        return
    try:
        event_log = EventLog(path, config.apart_from("--record", path))
    except OSError as error:
        raise ConfigError(f"--record: {path}: {reason(error)}") from error
    task = asyncio.create_task(_flush(event_log))
    try:
        yield event_log
    finally:
        task.cancel()
        event_log.close()


@asynccontextmanager
async def _recorder(config: Config, record: Path | None) -> AsyncIterator[Recorder | None]:
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
    task = asyncio.create_task(_flush(recorder))
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


_Observer = Callable[[Engine, float], None]
"""Callback invoked just before a change: receives the engine and the change's time, in seconds
since the epoch of the master's clock."""


def _recorder_observer(recorder: Recorder | None) -> tuple[_Observer, ...]:
    """Return the recorder's method for `_engine` to call before each change, in a tuple.

    The tuple is empty without a recorder.
    """
    return () if recorder is None else (recorder.sample_until,)


def _shadows_observer(shadows: Shadows) -> tuple[_Observer, ...]:
    """Return the shadows' method for `_engine` to call before each change, in a tuple.

    The tuple is empty without shadow policies.
    """
    return (shadows.before_change,) if shadows.followers else ()


def _engine(
    settings: EngineSettings,
    memory: Memory | None,
    observers: Sequence[_Observer],
    event_log: EventLog | None,
    meter: Meter | None,
) -> Engine:
    """Create the engine, and call the observers before each change of its state.

    Args:
        settings: The engine's settings.
        memory: The stored commitments and operator settings; None if nothing is stored.
        observers: Callbacks that receive the engine and the time of the next change.
        event_log: The event log; None for no log.
        meter: Meter of the users' usage; None without accounting.
    """

    def notify(instant: float) -> None:
        for observe in observers:
            observe(engine, instant)

    if event_log is None:
        engine = Engine(settings, memory=memory, before_change=notify, meter=meter)
    else:
        engine = LoggedEngine(settings, event_log, memory=memory, before_change=notify, meter=meter)
    return engine


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


async def _flush(file: Recorder | EventLog) -> None:
    """Flush the buffered lines of a file to disk once a second, until cancelled."""
    while True:
        await asyncio.sleep(_FLUSH_EVERY)
        file.flush()
