"""A host that runs the real service: starts, stops, kills and reconfigures the service."""

import asyncio
import contextvars
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any
from unittest import mock

import grpc

from allocator.contract import log_pb2 as log
from allocator.service import server
from allocator.service.config import Config
from allocator.service.loop.loop_latency import LoopLatency
from allocator.service.record.event_log import EventLog
from allocator.service.store import zookeeper
from allocator.service.store.sqlite import SqliteStore
from tests.world.simulated.clocks import HERE, Clock
from tests.world.simulated.disk import STORE, Disk
from tests.world.simulated.loop import VirtualLoop
from tests.world.simulated.wire import Network, Server
from tests.world.simulated.zookeeper import Ensemble

RECORD = "events.log"


class Incarnation:
    """A run of a service, from its start to its end."""

    def __init__(self, host: "Host", number: int) -> None:
        self.host = host
        self.number = number
        self.alive = True
        self.server: Server | None = None
        self.signals: dict[int, Callable[[], object]] = {}
        self.task: asyncio.Task[None]
        self.context: contextvars.Context

    def __repr__(self) -> str:
        return f"{self.host.name}#{self.number}"


INCARNATION: ContextVar[Incarnation | None] = ContextVar("INCARNATION", default=None)
"""The service in which the present task runs."""


class Watcher:
    """Receives events inside services; the base class ignores all events."""

    def began(self, life: Incarnation) -> None:
        """A service has been started."""

    def logged(self, life: Incarnation, entry: log.LogEntry) -> None:
        """Something has been done to an engine."""

    def saved(self, life: Incarnation) -> None:
        """A memory is on the disk."""

    def stopped(self, life: Incarnation, record: Path) -> None:
        """A service has ended on request, and has left a record."""

    def ended(self, life: Incarnation, error: BaseException | None) -> None:
        """A service has ended by itself."""


class Host:
    """A machine with a service.

    Args:
        name: The display name.
        address: The listening address of the service.
        clock: The machine's clock.
        disk: The persistent files.
        ensemble: The ZooKeeper of the store, if the store is a ZooKeeper.
        settings: The configuration, as parsed TOML.
    """

    def __init__(
        self,
        name: str,
        address: str,
        clock: Clock,
        *,
        disk: Disk,
        ensemble: Ensemble | None,
        settings: Mapping[str, Any],
        watcher: Watcher,
    ) -> None:
        self.name = name
        self.address = address
        self.clock = clock
        self.disk = disk
        self.ensemble = ensemble
        self.settings = dict(settings)
        self.life: Incarnation | None = None
        self._watcher = watcher
        self._lives = 0
        self._stopping = False

    @property
    def up(self) -> bool:
        """Whether the service runs, or has not ended yet."""
        return self.life is not None or self._stopping

    @property
    def keeps(self) -> bool:
        """Whether the store keeps writes, in time."""
        return self.disk.well and (self.ensemble is None or self.ensemble.well)

    def start(self) -> None:
        """Start the service."""
        assert not self.up
        self._lives += 1
        life = self.life = Incarnation(self, self._lives)
        self._watcher.began(life)
        life.context = contextvars.copy_context()
        life.context.run(INCARNATION.set, life)
        life.context.run(HERE.set, self.clock)
        record = self.disk.present / RECORD
        life.task = asyncio.get_running_loop().create_task(
            server.serve(self.config(), LoopLatency(), record), context=life.context
        )
        life.task.add_done_callback(lambda task: self._ended(life, task))

    def start_again(self) -> None:
        """Start the service unless it runs."""
        if not self.up:
            self.start()

    def config(self) -> Config:
        """Return how the service is configured."""
        host, _, port = self.address.rpartition(":")
        store: dict[str, Any] = {"kind": "zookeeper", "hosts": "zk:2181"}
        if self.ensemble is None:
            store = {"path": self.disk.present / STORE}
        return Config.model_validate(
            {
                "listen": {"address": self.address},
                "metrics": {"address": f"{host}:{int(port) + 1000}"},
                "accounting": {"database": str(self.disk.present / "accounting.sqlite")},
                **self.settings,
                "store": {**store, **self.settings.get("store", {})},
            }
        )

    def kill(self, *, torn: bool = False) -> None:
        """Kill the service: no last word, no last save."""
        life = self.life
        if life is None:
            return
        life.alive, self.life = False, None
        if life.server is not None:
            life.server.unlisten()
            for call in list(life.server.calls):
                call.reset()
        self.disk.crash(torn=torn)
        life.task.cancel()

    async def stop(self) -> None:
        """Stop the service, and wait for its end."""
        life = self.life
        if life is None:
            return
        stop = life.signals.get(signal.SIGTERM)
        if stop is None:  # the service has just begun to start
            self.kill()
            return
        self.life, self._stopping = None, True
        life.context.run(stop)
        await asyncio.wait([life.task])
        self._stopping = False
        error = life.task.exception()
        if error is None:
            self._watcher.stopped(life, self.disk.present / RECORD)
        else:  # the service was still opening its store
            self._watcher.ended(life, error)
        self.disk.crash(torn=False)

    def _ended(self, life: Incarnation, task: "asyncio.Task[None]") -> None:
        if self.life is life and life.alive:
            self.life = None
            self.disk.crash(torn=False)
            error = None if task.cancelled() else task.exception()
            self._watcher.ended(life, error)


@contextmanager
def inside(loop: VirtualLoop, network: Network, watcher: Watcher) -> Iterator[None]:
    """Let services run in the block in the world's loop, network and disks, and be watched."""
    some_milliseconds = loop.thread_time

    def new_server(**options: Any) -> Server:  # noqa: ANN401 - gRPC's own
        made = network.server(**options)
        life = INCARNATION.get()
        assert life is not None
        life.server = made
        return made

    def thread_time() -> tuple[float, float]:
        life = INCARNATION.get()
        return life.host.disk.thread_time() if life is not None else some_milliseconds()

    def on_signal(number: int, run: Callable[[], object]) -> None:
        life = INCARNATION.get()
        assert life is not None
        life.signals[number] = run

    loop.thread_time = thread_time
    loop.on_signal = on_signal
    with (
        mock.patch.object(grpc.aio, "server", new_server),
        _stores(watcher),
        _records(watcher),
    ):
        yield


@contextmanager
def _stores(watcher: Watcher) -> Iterator[None]:
    """Let stores in the block write to their host's disk, or to the world's ZooKeeper."""
    save, send = SqliteStore.save, zookeeper.ZookeeperStore.save

    def saved(store: SqliteStore, *arguments: Any) -> None:  # noqa: ANN401 - whatever is saved
        life = INCARNATION.get()
        if life is None or not life.alive:
            return  # the service is dead, and its disk has a new owner
        with life.host.disk.writing():
            save(store, *arguments)
        watcher.saved(life)

    def sent(store: zookeeper.ZookeeperStore, *arguments: Any) -> None:  # noqa: ANN401 - likewise
        life = INCARNATION.get()
        if life is None or not life.alive:
            return
        send(store, *arguments)
        life.host.disk.saves += 1
        watcher.saved(life)

    def new_client(**options: Any) -> Any:  # noqa: ANN401 - kazoo's own
        life = INCARNATION.get()
        assert life is not None
        assert life.host.ensemble is not None
        return life.host.ensemble.client(**options)

    with (
        mock.patch.object(SqliteStore, "save", saved),
        mock.patch.object(zookeeper.ZookeeperStore, "save", sent),
        mock.patch.object(zookeeper, "KazooClient", new_client),
    ):
        yield


@contextmanager
def _records(watcher: Watcher) -> Iterator[None]:
    """Let a watcher see entries of event logs during the block."""
    write = EventLog.write

    def written(event_log: EventLog, entry: log.LogEntry) -> None:
        write(event_log, entry)
        life = INCARNATION.get()
        if life is not None and life.alive:
            watcher.logged(life, entry)

    with mock.patch.object(EventLog, "write", written):
        yield
