"""Assembles and runs the service for Mesos: gRPC for masters and operators, HTTP for pages."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import structlog

from allocator.cluster.engine import Engine
from allocator.cluster.settings import EngineSettings
from allocator.files import reason
from allocator.service.config import Config, ConfigError
from allocator.service.listening import listening
from allocator.service.loop.cooperative import Work
from allocator.service.loop.loop_latency import LoopLatency
from allocator.service.masters.session import SessionStatistics
from allocator.service.masters.sessions import Sessions
from allocator.service.masters.timestamp_guard import Timeline
from allocator.service.record.event_log import EventLog, LoggedEngine
from allocator.service.shared_parts import (
    SharedParts,
    flush_regularly,
    opening,
    raise_file_limit,
    stop_signal,
)
from allocator.service.show import mesos_metrics
from allocator.service.show.offer_history import OfferTrail
from allocator.service.supervision import systemd_notifications
from allocator.users.memory import Memory

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
    raise_file_limit()
    stop = stop_signal()
    async with AsyncExitStack() as stack:
        parts = await stack.enter_async_context(opening(config, record))
        event_log = await stack.enter_async_context(_event_log(record, config))
        memory, recorder, shadows = parts.memory, parts.recorder, parts.shadows
        engine = _engine(config.engine_settings(), parts, event_log)
        offer_trail, statistics = OfferTrail(), SessionStatistics()
        engine.watch(offer_trail, *((shadows,) if shadows.followers else ()))
        await parts.keep(stack, engine, statistics)
        store_writer = parts.store_writer
        sessions = Sessions(
            engine,
            statistics,
            max_waiting=config.listen.sessions,
            most_parts=config.listen.most_parts,
            limits=config.limits.limits(),
            recall=store_writer.recall if store_writer is not None else _no_memory,
            took_over=store_writer.take_over if store_writer is not None else lambda: None,
            timeline=Timeline.from_now(memory.time if memory is not None else 0.0),
            virtual_clocks=config.listen.virtual_clocks,
            rights=parts.rights,
            engine_lock=parts.engine_lock,
            before_message=recorder.allow if recorder is not None else lambda: None,
        )
        registry = mesos_metrics.registry(engine, statistics, event_log=event_log)
        admin = await parts.show(stack, engine, statistics, offer_trail, registry, latency)
        await stack.enter_async_context(
            listening(config.listen, sessions, admin, parts.rights, parts.connections)
        )
        _log.info("ready", policy=engine.pool.policy.name)
        await stack.enter_async_context(systemd_notifications())
        await stop.wait()
        _log.info("stopping")
        sessions.end("the allocator is stopping")


async def _no_memory() -> Memory | None:
    """Return None as the content of another service's store, for a service without a store."""
    return None


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
    task = asyncio.create_task(flush_regularly(event_log))
    try:
        yield event_log
    finally:
        task.cancel()
        event_log.close()


def _engine(settings: EngineSettings, parts: SharedParts, event_log: EventLog | None) -> Engine:
    """Create the engine, which calls the shared parts before each change of its state.

    Args:
        settings: The engine's settings.
        parts: The shared parts, with the stored commitments and the meter.
        event_log: The event log; None for no log.
    """
    only_history = parts.recorder is None and not parts.shadows.followers
    sampling = parts.history.sampling

    def notify(instant: float) -> Work[None] | None:
        if only_history:  # each event calls this function
            return sampling(engine, instant)
        return parts.before_change(engine, instant)

    memory, meter = parts.memory, parts.meter
    if event_log is None:
        engine = Engine(settings, memory=memory, before_change=notify, meter=meter)
    else:
        engine = LoggedEngine(settings, event_log, memory=memory, before_change=notify, meter=meter)
    return engine
