"""Runs the service: gRPC for masters and operators, HTTP for Prometheus, until told to stop."""

import asyncio
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import grpc
import structlog
from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from allocator.cluster.engine import Engine
from allocator.cluster.memory import Memory
from allocator.cluster.settings import EngineSettings
from allocator.contract.admin_pb2_grpc import add_AdminServicer_to_server
from allocator.contract.allocator_pb2_grpc import add_AllocatorServicer_to_server
from allocator.service import metrics
from allocator.service.admin import Admin
from allocator.service.config import Config, ConfigError, RecorderSection, StoreSection
from allocator.service.event_log import EventLog, LoggedEngine
from allocator.service.recorder import Recorder
from allocator.service.session import Sessions, SessionStatistics
from allocator.service.store import Store, StoreError, StoreUnavailable
from allocator.service.store.keeper import Keeper, keeping
from allocator.service.store.sqlite import SqliteStore
from allocator.service.store.zookeeper import ZookeeperStore

LARGEST_MESSAGE = 256 * 2**20
"""Bytes; a snapshot of 10⁴ agents and 10³ frameworks is a tenth of it."""
GRACE = 0.5
"""Seconds that a stream gets to end by itself."""
_FLUSH_EVERY = 1.0

_log = structlog.get_logger(__name__)


async def serve(config: Config, record: Path | None = None) -> None:
    """Serve until SIGTERM or SIGINT.

    Args:
        config: What to do.
        record: Where to log everything that is done to the engine; None: nowhere.

    Raises:
        ConfigError: an address, the recorder's file or the store cannot be used.
        StoreUnavailable: the store does not answer.
    """
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with AsyncExitStack() as stack:
        store, memory = await stack.enter_async_context(_store(config.store))
        event_log = await stack.enter_async_context(_event_log(record))
        recorder = await stack.enter_async_context(_recorder(config.recorder))
        engine = _engine(config.engine_settings(), memory, recorder, event_log)
        keeper: Keeper | None = None
        if store is not None:
            keeper = await stack.enter_async_context(keeping(engine, store, config.store.every))
        statistics = SessionStatistics()
        sessions = Sessions(engine, statistics)
        registry = metrics.registry(
            engine,
            statistics,
            recorder=recorder,
            event_log=event_log,
            stored=keeper.statistics if keeper is not None else None,
        )
        await stack.enter_async_context(_metrics_server(config, registry, statistics))
        admin = Admin(engine, statistics, keeper)
        await stack.enter_async_context(_allocator_server(config, sessions, admin))
        _log.info("ready", policy=engine.pool.policy.name)
        await stop.wait()
        _log.info("stopping")
        sessions.end("the allocator is stopping")


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
    if section.kind == "sqlite":
        return SqliteStore(section.path)
    assert section.hosts is not None
    credentials = None
    if section.credentials is not None:
        try:
            credentials = section.credentials.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"store.credentials: {section.credentials}: {error}") from error
        if not all(credentials.partition(":")):
            raise ConfigError(
                f"store.credentials: {section.credentials} does not contain USER:PASSWORD"
            )
    return ZookeeperStore(section.hosts, section.znode, credentials)


@asynccontextmanager
async def _event_log(path: Path | None) -> AsyncIterator[EventLog | None]:
    """Open the event log that is asked for, if any."""
    if path is None:
        yield None
        return
    try:
        event_log = EventLog(path)
    except OSError as error:
        raise ConfigError(f"--record: {path}: {error.strerror}") from error
    flushing = asyncio.create_task(_flush(event_log))
    try:
        yield event_log
    finally:
        flushing.cancel()
        event_log.close()


@asynccontextmanager
async def _recorder(section: RecorderSection | None) -> AsyncIterator[Recorder | None]:
    """Open the recorder that is configured, if any."""
    if section is None:
        yield None
        return
    try:
        recorder = Recorder(section.file, section.every)
    except OSError as error:
        raise ConfigError(f"recorder.file: {section.file}: {error.strerror}") from error
    flushing = asyncio.create_task(_flush(recorder))
    try:
        yield recorder
    finally:
        flushing.cancel()
        recorder.close()


def _engine(
    settings: EngineSettings,
    memory: Memory | None,
    recorder: Recorder | None,
    event_log: EventLog | None,
) -> Engine:
    """Make the engine, with a recorder that looks at it before each change."""

    def sample(instant: float) -> None:
        if recorder is not None:
            recorder.sample_until(engine, instant)

    if event_log is None:
        engine = Engine(settings, memory=memory, before_change=sample)
    else:
        engine = LoggedEngine(settings, event_log, memory=memory, before_change=sample)
    return engine


async def _flush(file: Recorder | EventLog) -> None:
    while True:
        await asyncio.sleep(_FLUSH_EVERY)
        file.flush()


@asynccontextmanager
async def _allocator_server(
    config: Config, sessions: Sessions, admin: Admin
) -> AsyncIterator[None]:
    address = config.listen.address
    server = grpc.aio.server(
        options=[
            ("grpc.max_receive_message_length", LARGEST_MESSAGE),
            ("grpc.max_send_message_length", LARGEST_MESSAGE),
            ("grpc.so_reuseport", 0),  # a second service on the same port must fail
        ]
    )
    add_AllocatorServicer_to_server(sessions, server)
    add_AdminServicer_to_server(admin, server)
    path = Path(address.removeprefix("unix://")) if address.startswith("unix:") else None
    if path is not None:
        _clear_socket(path)
    try:
        server.add_insecure_port(address)
    except RuntimeError as error:
        raise ConfigError(f"listen.address: cannot listen on {address}: {error}") from error
    if path is not None:
        path.chmod(0o600)
    await server.start()
    _log.info("listening for masters and operators", address=address)
    try:
        yield
    finally:
        await server.stop(GRACE)  # which removes the socket, too


def _clear_socket(path: Path) -> None:
    """Remove a socket that a killed service left behind, but not one that answers."""
    if not path.exists():
        return
    if not path.is_socket():
        raise ConfigError(f"listen.address: {path} exists and is not a socket")
    with suppress(ConnectionRefusedError), socket.socket(socket.AF_UNIX) as probe:
        probe.connect(str(path))
        raise ConfigError(f"listen.address: another service listens on {path}")
    path.unlink()


@asynccontextmanager
async def _metrics_server(
    config: Config, registry: CollectorRegistry, statistics: SessionStatistics
) -> AsyncIterator[None]:

    async def scrape(_: web.Request) -> web.Response:
        return web.Response(
            body=generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_LATEST}
        )

    async def health(_: web.Request) -> web.Response:
        return web.json_response({"status": "ok", "connected": statistics.connected})

    app = web.Application()
    app.add_routes([web.get("/metrics", scrape), web.get("/healthz", health)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    host, _, port = config.metrics.address.rpartition(":")
    site = web.TCPSite(runner, host.strip("[]"), int(port))
    try:
        await site.start()
    except OSError as error:
        await runner.cleanup()
        raise ConfigError(
            f"metrics.address: cannot listen on {config.metrics.address}: {error.strerror}"
        ) from error
    bound = runner.addresses[0][1]
    _log.info("serving metrics", url=f"http://{host}:{bound}/metrics")
    try:
        yield
    finally:
        await runner.cleanup()
