"""Assemble a world, and run the world."""

import asyncio
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import grpc
import structlog
from google.protobuf.message import Message
from typing_extensions import override

from allocator.contract import admin_pb2 as admin
from allocator.contract import allocator_pb2 as contract
from allocator.contract import log_pb2 as log
from allocator.service.config import ConfigError
from allocator.service.masters import session
from allocator.service.store import StoreUnavailable
from tests.world.checkers import replayed
from tests.world.checkers.answers import Answers
from tests.world.checkers.checker import Checker, Line, Violated
from tests.world.checkers.clocks import Clocks
from tests.world.checkers.conservation import Conservation
from tests.world.checkers.debts import Debts
from tests.world.checkers.effort import Effort
from tests.world.checkers.liveness import Liveness
from tests.world.checkers.memory import Remembrance
from tests.world.faults.gremlin import Gremlin
from tests.world.model.amounts import Amounts, amounts
from tests.world.model.link import Link
from tests.world.model.master import Master
from tests.world.model.site import Machine, Site
from tests.world.plan import ROLES, Plan
from tests.world.service import INCARNATION, Host, Incarnation, Watcher, inside
from tests.world.simulated.clocks import Clock, virtual_time
from tests.world.simulated.disk import Disk
from tests.world.simulated.loop import Spinning, VirtualLoop
from tests.world.simulated.wire import Network, Peer
from tests.world.simulated.zookeeper import Ensemble
from tests.world.trace import Trace
from tests.world.traffic.frameworks import CHARACTERS
from tests.world.traffic.operators import Operator
from tests.world.traffic.pollers import Poller
from tests.world.traffic.scheduler import Scheduler

_SIZES = [
    "cpus:4;mem:4096;disk:1000",
    "cpus:8;mem:16384;disk:2000",
    "cpus:2;mem:8192;disk:500",
]

_SLICE_OFFERS = 3
"""Number of offers in a slice of an answer, instead of the hundreds of a service in production."""


class World(Watcher):
    """A world of services, masters, machines, frameworks and faults.

    Args:
        plan: The composition of the world.
        folder: The folder for disks.
        loop: The event loop with virtual time.
    """

    def __init__(self, plan: Plan, folder: Path, loop: VirtualLoop) -> None:
        self.plan = plan
        self.loop = loop
        self._folder = folder
        self.trace = Trace()
        self.site = Site()
        self.masters: list[Master] = []
        self.schedulers: list[Scheduler] = []
        self.elected: Master | None = None
        self.replayed = 0
        """Number of replayed entries of event logs."""
        self.wrong: Violated | None = None
        """The first violation."""
        self.network = Network(self._latency)
        self.conservation, self.answers = Conservation(), Answers()
        self.liveness = Liveness(self.leader, self.troubled, plan.interval)
        self.debts = Debts()
        self.gremlin: Gremlin = Gremlin(self, self.chance("gremlin"))
        self.remembrance = Remembrance(
            self.debts,
            honest=lambda: self.gremlin.honest_disk,
            serves=lambda life: life.host is self.host,
        )
        self.checkers: list[Checker] = [
            self.conservation,
            self.answers,
            self.liveness,
            self.debts,
            self.remembrance,
            Clocks(),
        ]
        self.operator = Operator(self, self.chance("operator"), plan.pace, plan.operators)
        self.ensemble: Ensemble | None = None
        if plan.store == "zookeeper":
            self.ensemble = Ensemble(loop.time, self.chance("zookeeper"))
        self.poller = Poller(self, self.chance("poller"), plan.pace)
        self.effort: Effort | None = None
        self.awaits_refusal = False
        """Whether the next service is going to refuse to start, and is right."""
        self.hosts = [self._host(number) for number in range(plan.services)]
        self._found = self.hosts[0]
        self._wire = self.chance("wire")
        self._delays = self.chance("delays")
        self._machines = 0
        self._finished = asyncio.Event()
        self.network.on_error = self._failed
        self.network.on_answer = self._answered

    def chance(self, name: str) -> Random:
        """Return the random source of a part of the world."""
        return Random(f"{self.plan.seed} {name}")

    def leader(self) -> Master | None:
        """Return the master that frameworks and agents would find."""
        return self.elected

    @property
    def host(self) -> Host:
        """The host of the leading master, or of the latest leader."""
        if self.elected is not None:
            self._found = self.beside(self.elected)
        return self._found

    def beside(self, master: Master) -> Host:
        """Return the host whose service a master uses."""
        number = int(master.name.partition(":")[0].rpartition(".")[2]) - 1
        return self.hosts[number % len(self.hosts)]

    def troubled(self) -> bool:
        """Whether a fault explains the lack of service."""
        return not self.host.up or self.gremlin.troubles

    def said(self) -> list[bytes]:
        """Return the infos of all frameworks."""
        return [scheduler.info() for scheduler in self.schedulers]

    def sizes(self) -> list[Amounts]:
        """Return the resources of the machines."""
        return [machine.amounts for machine in self.site.machines.values()]

    # Actions of people.

    async def run(self) -> None:
        """Run everything that the plan contains."""
        plan = self.plan
        for _ in range(plan.machines):
            self.add_machine()
        for number in range(plan.masters):
            self.add_master(f"10.0.0.{number + 1}:5050")
        for host in self.hosts:
            host.start()
        for kind, number in plan.frameworks.items():
            for index in range(number):
                self.add_framework(kind, f"{kind}-{index}")
        self.elect(self.masters[0])
        lives = [
            *(self._seconds(), self.gremlin.run()),
            *(self.operator.live(), self.poller.live()),
        ]
        tasks = [asyncio.create_task(life) for life in lives]
        try:
            await self._until(plan.seconds)
            self.gremlin.rest()
            await self._until(plan.seconds + plan.healing)
        finally:
            for task in tasks:
                task.cancel()
        self.check(lambda checker: checker.healed())
        for master in self.masters:
            master.stop()
        for host in self.hosts:
            await host.stop()
        self.check(lambda checker: checker.second())

    def add_machine(self, *, garbled: bool = False) -> Machine:
        """Add an agent, perhaps with a host name of invalid UTF-8."""
        self._machines += 1
        size = self._delays.choice(_SIZES)
        name = f"m{self._machines}"
        attributes = {"rack": str(self._machines % 2)}
        machine = self.site.machines[name] = Machine(
            name, amounts(size), attributes, garbled=garbled
        )
        if self.elected is not None:
            self.elected.register(machine)
        return machine

    def remove_machine(self, name: str) -> None:
        """Remove an agent for good, with all its tasks."""
        del self.site.machines[name]
        for scheduler in self.schedulers:
            for task in [t for t, (where, _) in scheduler.running.items() if where == name]:
                del scheduler.running[task]
        if self.elected is not None:
            self.elected.lose(name)

    def add_master(self, name: str) -> Master:
        """A master starts, on standby."""
        clock = Clock(self.loop, self._offset(), self._rate())
        master = Master(
            name,
            self.site,
            clock,
            version=self.plan.mesos,
            interval=self.plan.interval,
            offer_timeout=self.plan.offer_timeout,
            delay=lambda: self._delays.uniform(0.001, 0.05),
        )
        session = f"{name}/{self.loop.instant:.3f}"
        hello = contract.Hello(
            session_id=session,
            mesos_version=".".join(map(str, self.plan.mesos)),
            master=name,
            options=master.options(),
        )
        peer = Peer(f"ipv4:{name}")
        master.start(Link(self.network, self.beside(master).address, hello, peer, _Ears(self)))
        self.masters.append(master)
        return master

    def restart_master(self, master: Master) -> Master:
        """A master dies, and is started again, on standby."""
        master.stop()
        self.masters.remove(master)
        if self.elected is master:
            self.elected = None
        return self.add_master(master.name)

    def elect(self, master: Master) -> None:
        """Elect a master; agents and frameworks find the new leader gradually."""
        self.note("elected", master.name)
        if self.elected is not None and self.elected is not master:
            self.elected.depose()
        self.elected = master
        master.elected(len(self.site.machines))
        for machine in list(self.site.machines.values()):
            late = self._delays.uniform(0.1, 8.0)
            self.loop.call_later(late, self._register, master, machine)

    def lost(self, link: Link) -> None:
        """Handle the end of a master's stream; a deposed master now learns of the election."""
        for master in list(self.masters):
            if master.link is link and master.deposed:
                self.restart_master(master)

    def add_framework(self, kind: str, name: str, role: str = "") -> Scheduler:
        """A framework begins to look for a master."""
        chance = self.chance(name)
        roles = (role or chance.choice(ROLES),)
        scheduler = CHARACTERS[kind](name, roles, self, chance)
        scheduler.connected, scheduler.pace = True, self.plan.pace
        self.schedulers.append(scheduler)
        self.loop.create_task(scheduler.live())
        return scheduler

    # Observations.

    def check(self, look: Callable[[Checker], None]) -> None:
        """Run all checkers; the first violation ends the world."""
        if self.wrong is not None:
            return
        for checker in self.checkers:
            try:
                look(checker)
            except Violated as error:
                self.fail(error)

    def fail(self, error: Violated) -> None:
        """Something is wrong."""
        if self.wrong is None:
            self.wrong = error
            self.note("WRONG", str(error))
            self._finished.set()

    def note(self, text: str, details: str = "", data: bytes = b"") -> None:
        """Write into the trace."""
        self.trace.note(self.loop.instant, f"{text} {details}".replace(str(self._folder), ""), data)

    @override
    def began(self, life: Incarnation) -> None:
        self.note("service begins", repr(life))
        self.check(lambda checker: checker.began(life))

    @override
    def logged(self, life: Incarnation, entry: log.LogEntry) -> None:
        self.check(lambda checker: checker.logged(life, entry))

    @override
    def saved(self, life: Incarnation) -> None:
        self.note("saved", repr(life))
        if life.host.keeps and life.host is self.host:
            self.gremlin.honest_disk = True
        self.check(lambda checker: checker.saved(life))

    @override
    def stopped(self, life: Incarnation, record: Path) -> None:
        try:
            self.replayed += replayed.check(record)
        except Violated as error:
            self.fail(error)

    @override
    def ended(self, life: Incarnation, error: BaseException | None) -> None:
        self.note("service has ended", repr(error))
        if isinstance(error, StoreUnavailable) and (self.gremlin.troubles or not life.host.keeps):
            self.loop.call_later(2.0, life.host.start_again)  # as systemd would
        elif self.awaits_refusal and isinstance(error, ConfigError):
            self.awaits_refusal = False
        else:
            self.fail(Violated(f"{life} has ended by itself: {error!r}"))

    def told(self, level: str, event: str, fields: dict[str, object]) -> None:
        """A service has logged a line."""
        life = INCARNATION.get()
        if life is not None and life.alive:
            self.note(f"{life} {level}:", f"{event} {fields}")
            line = Line(level, event, fields)
            self.check(lambda checker: checker.told(life, line))

    def _answered(self, reply: Message) -> None:
        life = INCARNATION.get()
        if life is None or not life.alive:
            return
        data = reply.SerializeToString(deterministic=True)
        self.note(f"{life} answers", type(reply).__name__, data)
        if isinstance(reply, admin.SharesReply):
            self.check(lambda checker: checker.shown(life, reply))
        if isinstance(reply, admin.OrderReply):
            self.remembrance.ordered(life, reply)

    def _failed(self, method: str, error: Exception) -> None:
        life = INCARNATION.get()
        if life is None or life.alive:
            self.fail(Violated(f"{method} raised {error!r}"))

    async def _seconds(self) -> None:
        while True:
            await asyncio.sleep(min(self.plan.pace, 30.0))
            self.check(lambda checker: checker.second())

    async def _until(self, instant: float) -> None:
        if self.wrong is None:
            waiting = asyncio.ensure_future(self._finished.wait())
            await asyncio.wait([waiting], timeout=instant - self.loop.instant)
            waiting.cancel()

    def _register(self, master: Master, machine: Machine) -> None:
        if self.elected is master and machine.name in self.site.machines and machine.reachable:
            master.register(machine)

    def _host(self, number: int) -> Host:
        name = f"service {number}" if number else "service"
        return Host(
            name,
            f"127.0.0.{number + 1}:5060",
            Clock(self.loop, self._offset(number), self._rate(number)),
            disk=Disk(self._folder / name, self.chance(f"disk {name}" if number else "disk")),
            ensemble=self.ensemble,
            settings=self.plan.settings,
            watcher=self,
        )

    def _latency(self) -> float:
        return self._wire.uniform(*self.plan.latency)

    def _offset(self, number: int | None = None) -> float:
        most = self.plan.clock_offset
        return self._clock_chance("offset", number).uniform(-most, most)

    def _rate(self, number: int | None = None) -> float:
        drift = self.plan.clock_drift
        return 1.0 + self._clock_chance("rate", number).uniform(-drift, drift)

    def _clock_chance(self, kind: str, number: int | None) -> Random:
        """Return a source of chance for the clock of a host, or of the next master."""
        index = len(self.masters) if number is None else -number
        return self.chance(f"{kind} {self.loop.instant} {index}")


class _Ears:
    """Receives the messages of masters and services, for the trace and the checkers."""

    def __init__(self, world: World) -> None:
        self._world = world

    def opened(self, link: Link) -> None:
        self._world.note("opened", link.hello.master)
        self._world.check(lambda checker: checker.opened(link))

    def said(self, link: Link, message: contract.FromMaster) -> None:
        data = message.SerializeToString(deterministic=True)
        self._world.note("said", f"{link.hello.master} {_summary(message)}", data)
        self._world.check(lambda checker: checker.said(link, message))

    def heard(self, link: Link, message: contract.ToMaster) -> None:
        data = message.SerializeToString(deterministic=True)
        self._world.note("heard", f"{link.hello.master} {_answer(message)}", data)
        self._world.check(lambda checker: checker.heard(link, message))

    def closed(self, link: Link, how: tuple[grpc.StatusCode, str]) -> None:
        self._world.note("closed", f"{link.hello.master} {how[0].name} {how[1]}")
        self._world.lost(link)
        self._world.check(lambda checker: checker.closed(link, how))


def _summary(message: contract.FromMaster) -> str:
    if message.HasField("events"):
        return " ".join(f"{e.sequence}:{e.WhichOneof('call')}" for e in message.events.events)
    return str(message.WhichOneof("message"))


def _answer(message: contract.ToMaster) -> str:
    if message.HasField("decisions"):
        decisions = message.decisions
        offers = [f"{o.framework_id}:{p.agent_id}" for o in decisions.offers for p in o.offers]
        return f"decisions up to {decisions.applied_sequence} {' '.join(offers)}"
    if message.HasField("snapshot_request"):
        return f"asks: {message.snapshot_request.reason}"
    return str(message.WhichOneof("message"))


def run(plan: Plan, prepare: Callable[[World], None] = lambda _world: None) -> World:
    """Run a world to its end, and return the world; `wrong` is its first violation.

    Args:
        plan: The composition of the world.
        prepare: May change the world before its start.
    """
    loop = VirtualLoop(Random(f"{plan.seed} threads"))
    memory = Path("/dev/shm")  # fsync costs nothing there
    folder = Path(tempfile.mkdtemp(prefix="world-", dir=memory if memory.is_dir() else None))
    try:
        with ExitStack() as stack:
            stack.enter_context(virtual_time(loop))
            asyncio.set_event_loop(loop)
            world = loop.run_until_complete(_made(plan, folder, loop))
            stack.enter_context(inside(loop, world.network, world))
            stack.enter_context(_logs(world))
            stack.enter_context(mock.patch.object(session, "SLICE_OFFERS", _SLICE_OFFERS))
            loop.set_exception_handler(lambda _loop, about: _uncaught(world, about))
            if plan.effort:
                world.effort = Effort(world.fail, world.said, world.sizes)
                stack.enter_context(world.effort.counted())
            prepare(world)
            try:
                loop.run_until_complete(world.run())
            except Spinning as error:
                world.fail(Violated(str(error)))
            _wind_up(loop)
        return world
    finally:
        asyncio.set_event_loop(None)
        loop.close()
        shutil.rmtree(folder, ignore_errors=True)


async def _made(plan: Plan, folder: Path, loop: VirtualLoop) -> World:
    return World(plan, folder, loop)


def _wind_up(loop: VirtualLoop) -> None:
    for task in asyncio.all_tasks(loop):
        task.cancel()
    rest = asyncio.gather(*asyncio.all_tasks(loop), return_exceptions=True)
    loop.run_until_complete(asyncio.wait_for(rest, 100.0))
    loop.run_until_complete(loop.shutdown_asyncgens())


def _uncaught(world: World, about: dict[str, Any]) -> None:
    life = INCARNATION.get()
    if life is not None and not life.alive:
        return
    world.fail(Violated(f"nobody caught: {about.get('exception')!r} {about['message']}"))


@contextmanager
def _logs(world: World) -> Iterator[None]:
    """Receive the logs of services during the block."""

    def hear(_logger: object, level: str, fields: MutableMapping[str, Any]) -> str:
        shown = {name: value for name, value in fields.items() if name != "event"}
        if shown.pop("exc_info", None):
            shown["exception"] = repr(sys.exc_info()[1])
        world.told(level, str(fields.get("event")), shown)
        raise structlog.DropEvent

    before = structlog.get_config()
    structlog.configure(processors=[hear], cache_logger_on_first_use=False)
    try:
        yield
    finally:
        structlog.configure(**before)
