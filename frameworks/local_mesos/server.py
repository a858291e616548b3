"""Runs an embedded Mesos: the master, its clock, its HTTP server, and its link to the allocator."""

import asyncio
import logging
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any

import structlog
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from allocator.contract import allocator_pb2 as contract
from allocator.contract import mesos_pb2 as mesos
from frameworks.local_mesos import MESOS_VERSION
from frameworks.local_mesos.bag import Resource
from frameworks.local_mesos.clock import SECOND, Clock
from frameworks.local_mesos.http import application
from frameworks.local_mesos.link import AllocatorLink
from frameworks.local_mesos.master import Master

MAX_STEP_S = 0.05
"""Largest step of an accelerated clock in seconds of real time.

After a pause of the machine, the clock therefore does not jump ahead. A clock of speed 1 follows
real time instead, as the clock of a real master does.
"""
_SHORTEST_STEP = 0.001
_AT_ONCE = 100
"""Number of agents that are created before the event loop gets a turn to handle signals."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class AgentSpec:
    """A group of agents to create, which differ only in their host names."""

    count: int
    resources: list[Resource]
    """Resources of each agent."""
    attributes: list[mesos.Attribute] = field(default_factory=list)
    hostname_prefix: str = "agent-"
    """Prefix of the host names. A number follows, which counts the agents with this prefix."""


@dataclass(frozen=True, slots=True)
class MasterSettings:
    """Options of an embedded Mesos."""

    agents: list["AgentSpec"]
    allocator: str
    """gRPC address of the allocator service: `HOST:PORT` or `unix:///PATH`."""
    speed: float = 1.0
    """Seconds of the master's clock per second of real time."""
    host: str = "127.0.0.1"
    port: int = 5050
    """Port to listen on; 0 selects a free port."""
    interval: float = 1.0
    """Seconds between batch allocations, by the master's clock."""
    offer_timeout: float = 30.0
    """Seconds after which an unanswered offer is rescinded, by the master's clock; 0: never."""
    task_seconds: float = 10.0
    """Run time of a task whose command is not `sleep N`, in seconds of the master's clock."""
    seed: int | None = None
    """Seed of the random ids; None: ids differ in each run."""


@dataclass(frozen=True, slots=True)
class Embedded:
    """A running embedded Mesos, as `serving` yields it."""

    master: Master
    link: AllocatorLink
    background: asyncio.Future[Any]
    """Runs the clock and the link. The future ends only if one of them fails."""

    @property
    def address(self) -> str:
        """Address of the HTTP server, as HOST:PORT."""
        host, port = self.master.address
        return f"{host}:{port}"


class MalformedRequests(logging.Filter):
    """Shortens log records of malformed requests, such as of a gRPC client, to a line."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Remove the traceback from the record of a malformed request."""
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, HttpProcessingError):
            record.exc_info = None
            record.msg, record.args = "a client sent a request that is not HTTP/1", ()
        return True


async def run(settings: MasterSettings, ready: Callable[[str], None]) -> None:
    """Run an embedded Mesos until SIGTERM or SIGINT.

    Args:
        settings: Settings of the embedded Mesos.
        ready: Called with HOST:PORT once the server listens.

    Raises:
        OSError: The server cannot listen on the address.
    """
    stop, starting = asyncio.Event(), asyncio.current_task()
    assert starting is not None
    _on_signals(starting.cancel)
    logging.getLogger("aiohttp.server").addFilter(MalformedRequests())
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
        futures: list[asyncio.Future[Any]] = [embedded.background, stopping]
        await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)
        if embedded.background.done():
            embedded.background.result()
        _log.info("stopping")


def _on_signals(stop: Callable[[], object]) -> None:
    for caught in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(caught, stop)


@asynccontextmanager
async def serving(settings: MasterSettings) -> AsyncIterator[Embedded]:
    """Context in which an embedded Mesos runs. Its value gives access to the running master.

    Raises:
        OSError: The server cannot listen on the address.
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
    for created, (hostname, group) in enumerate(_named_agents(settings.agents), 1):
        master.add_agent(hostname, group.resources, attributes=group.attributes)
        if created % _AT_ONCE == 0:
            await asyncio.sleep(0)  # lets the event loop handle signals
    runner = web.AppRunner(
        application(master, link),
        access_log=None,
        shutdown_timeout=0.5,
        handler_cancellation=True,  # the departure of a scheduler is noticed at once
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


def _named_agents(groups: Iterable[AgentSpec]) -> Iterator[tuple[str, AgentSpec]]:
    """Yield the host name and the group of each agent.

    Agents with the same prefix are numbered together, with leading zeros, so that their names sort
    by number.
    """
    by_prefix: dict[str, list[AgentSpec]] = {}
    for group in groups:
        by_prefix.setdefault(group.hostname_prefix, []).extend([group] * group.count)
    for prefix, agents in by_prefix.items():
        width = len(str(len(agents)))
        for number, group in enumerate(agents, 1):
            yield f"{prefix}{number:0{width}}", group


def _pace(speed: float, master: Master, link: AllocatorLink) -> float:
    """Return the speed at which the clock may run now, in the master's seconds per real second.

    The result of an experiment must not depend on the speed of its components. The clock therefore
    stops (speed 0) until the frameworks of the experiment and the allocator have answered.

    Other schedulers may keep an offer or never answer. While one of their offers is unanswered, or
    the allocator has calls to process, the clock runs at most at real time.

    Args:
        speed: The speed chosen by the user, in the master's seconds per real second.
        master: The master.
        link: The master's connection to the allocator.
    """
    if master.answer_due or (master.expecting and link.awaiting):
        return 0.0
    return min(speed, 1.0) if link.awaiting or master.awaiting else speed


async def _drive(clock: Clock, speed: float, pace: Callable[[], float]) -> None:
    """Run the clock forever: advance it with real time, multiplied by the current speed.

    A step never passes a timer, because its callback may send messages that must be answered before
    the clock continues. The speed is read before and after each step, and the lower value counts.

    At a speed of 1 the clock makes up for late steps, because the allocator compares such a clock
    with its own. It loses only the time for which `pace` stops it.

    Args:
        clock: The master's clock.
        speed: Highest speed, in the master's seconds per real second.
        pace: Function that returns the current speed.
    """
    follows_real_time = speed == 1.0

    def remaining_ns() -> int:
        """Return the nanoseconds of the master's time until the next timer.

        Without a timer, the length of a maximum step is returned.
        """
        deadline = clock.next_deadline_ns
        return round(MAX_STEP_S * speed * SECOND) if deadline is None else deadline - clock.now_ns

    last = time.monotonic()
    while True:
        rate = pace()
        behind = time.monotonic() - last
        time_left = remaining_ns() / SECOND / rate - behind if rate > 0.0 else MAX_STEP_S
        maximum = MAX_STEP_S / 2 if rate == speed else _SHORTEST_STEP
        await asyncio.sleep(min(max(time_left, _SHORTEST_STEP), maximum))
        now = time.monotonic()
        elapsed = now - last if follows_real_time else min(now - last, MAX_STEP_S)
        rate = min(rate, pace())
        step_ns = min(round(elapsed * rate * SECOND), remaining_ns())
        clock.advance(step_ns)
        last = last + step_ns / SECOND if follows_real_time and rate > 0.0 else now


def _hello(settings: MasterSettings) -> contract.Hello:
    """Return the first message to the allocator: Mesos version, address and default flags."""
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
