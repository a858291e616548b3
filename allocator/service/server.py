"""Runs the service: gRPC for masters and operators, HTTP for Prometheus, until told to stop."""

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
from allocator.service.accounting.accountant import Accountant, bookkeeping
from allocator.service.accounting.place import kept_at, why_none
from allocator.service.config import Config, ConfigError, StoreSection
from allocator.service.listening import listening
from allocator.service.loop.cooperative import PACE, repeating
from allocator.service.loop.engine_lock import EngineLock
from allocator.service.loop.loop_latency import LoopLatency
from allocator.service.masters.session import SessionStatistics
from allocator.service.masters.sessions import Sessions
from allocator.service.masters.timestamp_guard import Timeline
from allocator.service.operators.admin import Admin
from allocator.service.record.event_log import EventLog, LoggedEngine
from allocator.service.rights import Rights
from allocator.service.show import metrics
from allocator.service.show.curves import Accounts, Curves
from allocator.service.show.offer_history import OfferTrail, StandingHistory
from allocator.service.show.recorder import Recorder
from allocator.service.show.shadows import ShadowCollector, Shadows
from allocator.service.show.status import Status
from allocator.service.show.wait_reasons import Waits, touring
from allocator.service.show.web import serving
from allocator.service.store import Store, StoreError, StoreInUse, StoreUnavailable
from allocator.service.store.sqlite import SqliteStore
from allocator.service.store.writer import StoreWriter, keeping
from allocator.service.store.zookeeper import ZookeeperStore
from allocator.service.supervision import supervised

if TYPE_CHECKING:
    from allocator.service.accounting.database import Database

_FLUSH_EVERY = 1.0
_LOOK_EVERY = 0.05
_TELL_EVERY = 60.0

_log = structlog.get_logger(__name__)


async def serve(config: Config, pauses: LoopLatency, record: Path | None = None) -> None:
    """Serve until SIGTERM or SIGINT; SIGHUP says that the recorder's file has been rotated.

    Args:
        config: What to do.
        pauses: Of the event loop that this runs in.
        record: Where to log everything that is done to the engine; None: nowhere.

    Raises:
        ConfigError: an address, the recorder's file, the store or accounts cannot be used.
        StoreUnavailable: the store does not answer.
    """
    _take_all_descriptors()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with AsyncExitStack() as stack:
        store, memory = await stack.enter_async_context(_store(config.store))
        event_log = await stack.enter_async_context(_event_log(record, config))
        recorder = await stack.enter_async_context(_recorder(config, record))
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, _rotated, recorder)
        past, trail = StandingHistory(), OfferTrail()
        await stack.enter_async_context(repeating(past.backlog.steps, _LOOK_EVERY))
        accounts, turn = _accounts(config), EngineLock()
        meter = Meter() if accounts is not None else None
        shadows = Shadows(config.shadows())
        lookers = (past.sample_until, *_of_recorder(recorder), *_of_shadows(shadows))
        engine = _engine(config.engine_settings(), memory, lookers, event_log, meter)
        engine.watch(trail, *((shadows,) if shadows.followers else ()))
        bookkeeper: Accountant | None = None
        if accounts is not None and meter is not None:
            connect = partial(_database, accounts)
            bookkeeper = Accountant(engine, meter, connect, config.accounting, turn)
            await _claim(bookkeeper, accounts)
            await stack.enter_async_context(bookkeeping(bookkeeper, _LOOK_EVERY))
        await stack.enter_async_context(_policy_watched(engine.settings.policy))
        statistics, rights = SessionStatistics(), Rights(config.listen.rights)
        keeper: StoreWriter | None = None
        if store is not None:
            keeper = await stack.enter_async_context(
                keeping(engine, store, config.store.every, turn, lambda: statistics.connected)
            )
        sessions = Sessions(
            engine,
            statistics,
            max_waiting=config.listen.sessions,
            most_parts=config.listen.most_parts,
            recall=keeper.recall if keeper is not None else _nothing,
            took_over=keeper.take_over if keeper is not None else lambda: None,
            timeline=Timeline.from_now(memory.time if memory is not None else 0.0),
            virtual_clocks=config.listen.virtual_clocks,
            rights=rights,
            engine_lock=turn,
            before_message=recorder.allow if recorder is not None else lambda: None,
        )
        stored = keeper.statistics if keeper is not None else None
        registry = metrics.registry(
            engine,
            statistics,
            recorder=recorder,
            event_log=event_log,
            stored=stored,
        )
        registry.register(metrics.LoopCollector(pauses))
        registry.register(metrics.RefusalCollector(rights))
        if bookkeeper is not None:
            registry.register(metrics.AccountingCollector(bookkeeper.statistics))
        waits = Waits(engine, statistics, shadows)
        await stack.enter_async_context(touring(waits, turn))
        if shadows.followers:
            registry.register(ShadowCollector(shadows))
            await stack.enter_async_context(repeating(shadows.following, _LOOK_EVERY, rest=PACE))
        status = Status(engine, waits, trail, stored, shadows)
        curves = Curves(engine, past, None if bookkeeper is None else Accounts(bookkeeper))
        await stack.enter_async_context(
            serving(config.metrics, engine, registry, status, curves, turn, bookkeeper)
        )
        admin = Admin(engine, waits, keeper, bookkeeper, turn, shadows)
        await stack.enter_async_context(listening(config.listen, sessions, admin, rights))
        _log.info("ready", policy=engine.pool.policy.name)
        await stack.enter_async_context(supervised())
        await stop.wait()
        _log.info("stopping")
        sessions.end("the allocator is stopping")


def _take_all_descriptors() -> None:
    """Have room for peers who only connect, as far as the system allows."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


async def _nothing() -> Memory | None:
    """Recall what a service without a store has stored."""
    return None


def _accounts(config: Config) -> str | None:
    """Return where to keep accounts; if there are none and nobody has said so, say it once."""
    if none := why_none(config):
        _log.warning(none)
    return kept_at(config)


async def _claim(bookkeeper: Accountant, accounts: str) -> None:
    """Open a SQLite file of accounts, which one service at a time may have.

    A PostgreSQL database is opened later: services beside several masters share one.

    Raises:
        ConfigError: Another service has the file open.
    """
    if "://" in accounts:
        return
    try:
        await bookkeeper.open()
    except StoreInUse as error:
        advice = "stop it, or choose another path"
        raise ConfigError(f"accounting.database: {error}; {advice}") from error


def _database(accounts: str) -> "Database":
    """Open the accounting database; what it takes is loaded now, which takes time."""
    from allocator.service.accounting.database import Database, located  # noqa: PLC0415

    return Database(located(accounts))


@asynccontextmanager
async def _store(section: StoreSection) -> AsyncIterator[tuple[Store | None, Memory | None]]:
    """Open the store that is configured, if any, and read what is in it."""
    if section.kind == "none":
        _log.warning("what users owe will not survive this service (store.kind is none)")
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
    set_aside = section.on_damage == "set aside"
    if section.kind == "sqlite":
        return SqliteStore(section.path, set_aside=set_aside)
    assert section.hosts is not None
    return ZookeeperStore(section.hosts, section.znode, section.secret(), set_aside=set_aside)


@asynccontextmanager
async def _event_log(path: Path | None, config: Config) -> AsyncIterator[EventLog | None]:
    """Open the event log that is asked for, if any."""
    if path is None:
        yield None
        return
    try:
        event_log = EventLog(path, config.apart_from("--record", path))
    except OSError as error:
        raise ConfigError(f"--record: {path}: {error.strerror}") from error
    flushing = asyncio.create_task(_flush(event_log))
    try:
        yield event_log
    finally:
        flushing.cancel()
        event_log.close()


@asynccontextmanager
async def _recorder(config: Config, record: Path | None) -> AsyncIterator[Recorder | None]:
    """Open the recorder that is configured, if any."""
    section = config.recorder
    if section is None:
        yield None
        return
    try:
        apart = config.apart_from("recorder.file", record)
        recorder = Recorder(section.file, section.every, apart)
    except OSError as error:
        raise ConfigError(f"recorder.file: {section.file}: {error.strerror}") from error
    flushing = asyncio.create_task(_flush(recorder))
    try:
        async with repeating(recorder.backlog.steps, _LOOK_EVERY):
            yield recorder
    finally:
        flushing.cancel()
        recorder.close()


def _rotated(recorder: Recorder | None) -> None:
    if recorder is not None:
        recorder.reopen()


_Looker = Callable[[Engine, float], None]


def _of_recorder(recorder: Recorder | None) -> tuple[_Looker, ...]:
    return () if recorder is None else (recorder.sample_until,)


def _of_shadows(shadows: Shadows) -> tuple[_Looker, ...]:
    return (shadows.before_change,) if shadows.followers else ()


def _engine(
    settings: EngineSettings,
    memory: Memory | None,
    lookers: Sequence[_Looker],
    event_log: EventLog | None,
    meter: Meter | None,
) -> Engine:
    """Make the engine, with those who look at it before each change."""

    def sample(instant: float) -> None:
        for look in lookers:
            look(engine, instant)

    if event_log is None:
        engine = Engine(settings, memory=memory, before_change=sample, meter=meter)
    else:
        engine = LoggedEngine(settings, event_log, memory=memory, before_change=sample, meter=meter)
    return engine


@asynccontextmanager
async def _policy_watched(policy: Policy) -> AsyncIterator[None]:
    """Say which file a policy from outside is of, and what goes wrong in it, once a minute."""
    if policy.origin is None:
        yield
        return
    _log.info("policy from outside", file=policy.origin.file, sha256=policy.origin.sha256)

    async def watch() -> None:
        told = 0
        while True:
            await asyncio.sleep(_LOOK_EVERY)
            if policy.faults.count > told:
                told = policy.faults.count
                _log.error("policy failed", latest=policy.faults.latest, times=told)
                await asyncio.sleep(_TELL_EVERY)

    watching = asyncio.create_task(watch())
    try:
        yield
    finally:
        watching.cancel()


async def _flush(file: Recorder | EventLog) -> None:
    while True:
        await asyncio.sleep(_FLUSH_EVERY)
        file.flush()
