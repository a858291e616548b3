"""Runs an embedded master: its clock, its HTTP face, its link to the allocator."""

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any

import structlog
from aiohttp import web

from allocator.contract import allocator_pb2 as contract
from allocator.contract import mesos_pb2 as mesos
from frameworks.local_mesos import MESOS_VERSION
from frameworks.local_mesos.bag import Resource
from frameworks.local_mesos.clock import SECOND, Clock
from frameworks.local_mesos.http import application
from frameworks.local_mesos.link import AllocatorLink
from frameworks.local_mesos.master import Master

LONGEST_STEP = 0.05
"""Wall seconds: after a hiccup of the machine, time goes on from where it was."""
_SHORTEST_STEP = 0.001
_AT_ONCE = 100
"""Agents that are made before signals are looked at."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class AgentSpec:
    """Agents that are alike."""

    count: int
    resources: list[Resource]
    """Of each."""
    attributes: list[mesos.Attribute] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class MasterSettings:
    """What an embedded Mesos consists of."""

    agents: list["AgentSpec"]
    allocator: str
    """gRPC target of the allocator service."""
    speed: float = 1.0
    """How many seconds of the master's time go by in one of the wall's."""
    host: str = "127.0.0.1"
    port: int = 5050
    """0: any that is free."""
    hostname_prefix: str = "agent-"
    """Of the agents; their numbers follow."""
    interval: float = 1.0
    """Allocation interval in the master's seconds."""
    offer_timeout: float = 30.0
    """The master's seconds after which an offer without an answer is rescinded; 0: never."""
    task_seconds: float = 10.0
    """How long a task runs whose command is not `sleep N`, in the master's seconds."""
    seed: int | None = None
    """Of ids; None: another one each time."""


@dataclass(frozen=True, slots=True)
class Embedded:
    """A master that is being served."""

    master: Master
    link: AllocatorLink
    background: asyncio.Future[Any]
    """Ends only if the clock or the link fails, and so the master."""

    @property
    def address(self) -> str:
        """HOST:PORT."""
        host, port = self.master.address
        return f"{host}:{port}"


async def run(settings: MasterSettings, ready: Callable[[str], None]) -> None:
    """Serve until SIGTERM or SIGINT.

    Args:
        settings: What to run.
        ready: Told the address once it is served.

    Raises:
        OSError: the address cannot be listened on.
    """
    stop, starting = asyncio.Event(), asyncio.current_task()
    assert starting is not None
    _on_signals(starting.cancel)
    try:
        await _serve(settings, ready, stop)
    except asyncio.CancelledError:
        _log.info("stopped before it had started")


async def _serve(
    settings: MasterSettings, ready: Callable[[str], None], stop: asyncio.Event
) -> None:
    async with serving(settings) as embedded:
        _on_signals(stop.set)
        ready(embedded.address)
        stopping = asyncio.ensure_future(stop.wait())
        both: list[asyncio.Future[Any]] = [embedded.background, stopping]
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if embedded.background.done():
            embedded.background.result()
        _log.info("stopping")


def _on_signals(stop: Callable[[], object]) -> None:
    for caught in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(caught, stop)


@asynccontextmanager
async def serving(settings: MasterSettings) -> AsyncIterator[Embedded]:
    """Serve a master for as long as the context lasts.

    Raises:
        OSError: the address cannot be listened on.
    """
    clock = Clock(time.time_ns())
    link = AllocatorLink(settings.allocator, _hello(settings))
    master = Master(
        clock,
        link,
        Random(settings.seed),  # noqa: S311 - ids, not secrets
        task_seconds=settings.task_seconds,
        interval=settings.interval,
        offer_timeout=settings.offer_timeout,
    )
    every = [group for group in settings.agents for _ in range(group.count)]
    width = len(str(len(every)))
    for number, group in enumerate(every, 1):
        hostname = f"{settings.hostname_prefix}{number:0{width}}"
        master.add_agent(hostname, group.resources, attributes=group.attributes)
        if number % _AT_ONCE == 0:
            await asyncio.sleep(0)  # a signal is heard
    runner = web.AppRunner(
        application(master, link),
        access_log=None,
        shutdown_timeout=0.5,
        handler_cancellation=True,  # a scheduler that goes away is noticed at once
    )
    await runner.setup()
    try:
        await web.TCPSite(runner, settings.host, settings.port).start()
        master.address = runner.addresses[0]
        driving = _drive(clock, settings.speed, lambda: _pace(settings.speed, master, link))
        background = asyncio.gather(driving, link.run(master))
        try:
            yield Embedded(master, link, background)
        finally:
            background.cancel()
            with suppress(asyncio.CancelledError):
                await background
    finally:
        for framework in master.frameworks.values():
            if framework.subscriber is not None:
                framework.subscriber.close()
        await runner.cleanup()


def _pace(speed: float, master: Master, link: AllocatorLink) -> float:
    """Return the master's seconds in one of the wall's, as things are.

    What comes of an experiment does not depend on how fast its parts are: until they have answered,
    time stands still. Others may mean to keep an offer, or never answer; for their sake it goes no
    faster than the wall's.
    """
    if master.owed or (master.expecting and link.awaiting):
        return 0.0
    return min(speed, 1.0) if link.awaiting or master.awaiting else speed


async def _drive(clock: Clock, speed: float, pace: Callable[[], float]) -> None:
    """Let the clock follow the wall's, `speed` times as fast, or as is said at the moment.

    It stops at each timer, as what happens then may be somebody's to answer, and does not go on
    while somebody is to answer what has happened meanwhile.
    """

    def left() -> int:
        """Return the nanoseconds until something is to happen."""
        deadline = clock.next_deadline_ns
        return round(LONGEST_STEP * speed * SECOND) if deadline is None else deadline - clock.now_ns

    last = time.monotonic()
    while True:
        rate = pace()
        until = left() / SECOND / rate if rate > 0.0 else LONGEST_STEP
        longest = LONGEST_STEP / 2 if rate == speed else _SHORTEST_STEP
        await asyncio.sleep(min(max(until, _SHORTEST_STEP), longest))
        now = time.monotonic()
        passed = min(now - last, LONGEST_STEP) * min(rate, pace())
        clock.advance(min(round(passed * SECOND), left()))
        last = now


def _hello(settings: MasterSettings) -> contract.Hello:
    """Introduce the master with Mesos's default flags."""
    return contract.Hello(
        mesos_version=MESOS_VERSION,
        master=f"{settings.host}:{settings.port}",
        virtual_clock=settings.speed != 1.0,
        options=contract.Options(
            allocation_interval_ns=round(settings.interval * SECOND),
            filter_gpu_resources=True,
            min_allocatable=[
                contract.Quantities(amounts={"cpus": 0.01}),
                contract.Quantities(amounts={"mem": 32.0}),
            ],
        ),
    )
