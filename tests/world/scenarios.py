"""Past failures, as worlds that would reproduce them: a scenario for each row of the track record.

A scenario is a plan, and a script for events that the plan cannot draw.
"""

import asyncio
import math
import os
import sqlite3
from collections.abc import Callable, Coroutine
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any

from allocator.contract import VERSION
from allocator.contract import allocator_pb2 as contract
from allocator.contract import mesos_pb2 as mesos
from allocator.contract import operator_pb2 as operator
from allocator.service.show.guard import MOST
from tests.world.checkers.checker import Violated
from tests.world.model.amounts import amounts
from tests.world.model.books import Step
from tests.world.model.link import METHOD
from tests.world.plan import Plan
from tests.world.simulated.disk import STORE
from tests.world.simulated.http import Connection
from tests.world.simulated.wire import Broken, Call, Peer
from tests.world.traffic import hostile
from tests.world.traffic.pollers import PAGES as POLLED
from tests.world.world import World

QUIET = Plan(
    3,
    seconds=90.0,
    healing=45.0,
    machines=3,
    frameworks={"worker": 2, "waiter": 1},
    settings={
        "policy": {"name": "sdrf", "half_life": 60},
        "users": {"forget_after": 1e9, "counts_for": math.inf},
    },
)
CROWDED = replace(QUIET, frameworks={"worker": 1, "waiter": 1, "greedy": 2})
SHORT = replace(QUIET, seconds=50.0, healing=40.0)
TORN = replace(SHORT, frameworks={"worker": 3, "waiter": 1, "greedy": 1, "stateful": 2})
WHOLE = replace(
    SHORT,
    machines=6,
    frameworks={"worker": 3, "greedy": 2},
    settings={**QUIET.settings, "offers": {"whole_from": 2}},
)
PAIR = replace(
    SHORT, store="zookeeper", services=2, frameworks={"worker": 2, "waiter": 1, "greedy": 1}
)
FOREVER = 2**63 - 1


async def _nothing(_world: World) -> None:
    pass


@dataclass(frozen=True)
class Scenario:
    """A plan and a script that would reproduce a past failure."""

    script: Callable[[World], Coroutine[Any, Any, None]] = _nothing
    plan: Plan = field(default_factory=lambda: QUIET)

    def prepare(self, world: World) -> None:
        """Have the script play when the world runs."""
        world.loop.call_later(0.1, lambda: world.loop.create_task(self.script(world)))


def _says(poison: str) -> Scenario:
    async def script(world: World) -> None:
        await asyncio.sleep(20.0)
        framework = world.add_framework("hostile", "hostile-0", role="a")
        assert isinstance(framework, hostile.Hostile)
        framework.poison = poison

    return Scenario(script, replace(SHORT, seconds=30.0, effort=True))


async def _ahead_then_killed(world: World) -> None:
    """A leading master's clock is three minutes ahead; its successor's is right."""
    await asyncio.sleep(20.0)
    world.masters[1].clock.jump(180.0)
    _fail_over(world)
    await asyncio.sleep(20.0)
    _fail_over(world)


async def _ten_years(world: World) -> None:
    """A clock jumps, and the stream breaks."""
    await asyncio.sleep(40.0)
    world.masters[0].clock.jump(10 * 365 * 86400.0)
    await asyncio.sleep(5.0)
    world.masters[0].link.renew()


async def _before_the_epoch(world: World) -> None:
    await asyncio.sleep(40.0)
    world.masters[0].clock.jump(-2e9)
    await asyncio.sleep(5.0)
    world.masters[0].link.renew()
    await asyncio.sleep(5.0)
    world.host.kill()
    world.host.start()


async def _elected_for_ever(world: World) -> None:
    """A peer claims an election at the end of time, and disconnects."""
    await asyncio.sleep(30.0)
    call = await _stranger(world, "m9", _snapshot(leading_since_ns=FOREVER))
    await asyncio.sleep(5.0)
    call.reset()


async def _snapshot_that_cannot_be_used(world: World) -> None:
    """A peer claims to lead with a snapshot in which an agent comes twice."""
    await asyncio.sleep(30.0)
    agent = contract.AddAgent(agent_id="m1", info=b"\xff\xff")
    for _ in range(20):
        await _stranger(world, "m9", _snapshot(leading_since_ns=FOREVER, agents=[agent, agent]))
        await asyncio.sleep(1.0)


async def _same_session(world: World) -> None:
    """A standby says Hello under an empty session id, and under a name like the leader's."""
    await asyncio.sleep(30.0)
    for name in ("", world.masters[0].name):
        await _stranger(world, name, _snapshot())


async def _silent_streams(world: World) -> None:
    """Sixteen peers open a stream each time they are put out, and say nothing."""

    async def silent() -> None:
        while True:
            try:
                call = world.network.call(world.host.address, METHOD, Peer("ipv4:silent"))
                await call.read()
            except Broken:
                pass
            await asyncio.sleep(0.5)

    for _ in range(16):
        world.loop.create_task(silent())
    await asyncio.sleep(20.0)
    world.host.kill()
    world.host.start()


async def _slow_disk(world: World) -> None:
    """The disk takes three seconds for everything, and a new leader comes."""
    world.answers.patience = 2.0
    await asyncio.sleep(20.0)
    world.host.disk.slow = 3.0
    world.gremlin.honest_disk = False
    for _ in range(3):
        await asyncio.sleep(15.0)
        _fail_over(world)
    world.host.disk.slow = 0.0


async def _order_after_full_disk(world: World) -> None:
    """A disk is full for long; then an order is stored at once, and a crash follows."""
    await asyncio.sleep(10.0)
    world.host.disk.full, world.gremlin.honest_disk = True, False
    await asyncio.sleep(50.0)
    world.host.disk.full = False
    await world.operator.order(operator.Order(reset_commitments=operator.ResetCommitments()))
    await asyncio.sleep(8.0)
    world.host.kill()
    world.host.start()


async def _empty_operation(world: World) -> None:
    """An operator's operation has an empty body, or an unknown kind."""
    for kind in (11, 13, 0):
        await asyncio.sleep(10.0)
        operation = mesos.Operation(type=mesos.Operation.Type.ValueType(kind))
        machine = next(iter(world.site.machines))
        world.masters[0].call(
            update_available=contract.UpdateAvailable(
                agent_id=machine, operations=[operation.SerializePartialToString()]
            )
        )


async def _store_ahead(world: World) -> None:
    """The store is ahead of the master's clock, a commitment is forgiven, and streams break."""
    world.host.clock.jump(100.0)
    await asyncio.sleep(30.0)
    world.host.kill()
    world.host.start()
    await asyncio.sleep(20.0)
    await world.operator.order(operator.Order(reset_commitments=operator.ResetCommitments()))
    for _ in range(3):
        await asyncio.sleep(3.0)
        stream = world.masters[0].link.stream
        if stream is not None:
            stream.reset()


async def _leaps_in_one_message(world: World) -> None:
    """Two hundred ticks, two hours apart in the master's time, arrive together."""
    await asyncio.sleep(30.0)
    master = world.masters[0]
    for step in range(200):
        event = contract.Event(
            time_ns=master.clock.now_ns() + (step + 1) * 7199 * 10**9, tick=contract.Tick()
        )
        master.link.sequence += 1
        event.sequence = master.link.sequence
        master.link._queue.append(event)
    master.link._wake.set()


async def _late_agents(world: World) -> None:
    """After an election some agents return late, which must not change any commitment."""
    for _ in range(2):
        await asyncio.sleep(30.0)
        _fail_over(world)
        for name in list(world.site.machines)[1:]:
            world.site.machines[name].reachable = False
        await asyncio.sleep(12.0)
        for machine in world.site.machines.values():
            machine.reachable = True
            if world.elected is not None:
                world.elected.register(machine)


async def _absurd_weights(world: World) -> None:
    """Master and operators set weights so extreme that divisions overflow or vanish."""
    for weight in (1e308, 5e-324):
        await asyncio.sleep(15.0)
        world.masters[0].weigh("a", weight)
        order = operator.Order()
        order.set_weight.user, order.set_weight.weight = "b", weight
        await world.operator.order(order)
    world.host.kill()
    world.host.start()


async def _damaged_store(world: World) -> None:
    """The disk has corrupted the store, and the operator prefers offers to commitments."""
    await asyncio.sleep(30.0)
    world.host.kill()
    with closing(sqlite3.connect(world.host.disk.present / STORE)) as store:
        store.execute("UPDATE memory SET data = x'ff00'")
        store.commit()
    world.gremlin.honest_disk = False
    world.host.start()


async def _pipe_for_a_store(world: World) -> None:
    """A pipe is in the place of the store: the service reports the pipe at once, and ends."""
    await asyncio.sleep(30.0)
    world.host.kill()
    store = world.host.disk.present / STORE
    store.unlink()
    os.mkfifo(store)
    world.gremlin.honest_disk, world.awaits_refusal = False, True
    world.host.start()
    await asyncio.sleep(1.0)
    if world.awaits_refusal:
        world.fail(Violated("a pipe is waited for"))
    world.host.start_again()


async def _half_sent_requests(world: World) -> None:
    """A client opens connections to the HTTP port, and sends half a request on each."""
    host, _, port = world.host.config().metrics.address.rpartition(":")
    for _ in range(5):
        await asyncio.sleep(10.0)
        opened = [Connection(world.loop, (host, int(port))) for _ in range(1100)]
        for connection in opened:
            connection.say(b"GET /metrics HTTP/1.1\r\nHost: ")
        for path in POLLED:
            await world.poller.look(path)
        kept = sum(not connection.over.is_set() for connection in opened)
        if kept > MOST:
            world.fail(Violated(f"{kept} connections are kept that never ask"))


async def _pollers(world: World) -> None:
    """Fifty clients request the same pages at the same instant, repeatedly."""
    for path in POLLED * 2:
        await asyncio.sleep(5.0)
        await asyncio.gather(*(world.poller.look(path) for _ in range(50)))


async def _hosts_that_are_no_text(world: World) -> None:
    """An agent has a host name of invalid UTF-8."""
    await asyncio.sleep(10.0)
    world.add_machine(garbled=True)


async def _behind_a_follower(world: World) -> None:
    """A service is killed; its successor connects to a ZooKeeper follower that lags by seconds."""
    await asyncio.sleep(30.0)
    world.host.kill()
    assert world.ensemble is not None
    world.ensemble.lags = True
    await asyncio.sleep(1.0)
    world.host.start()


async def _service_beside_each(world: World) -> None:
    """Leadership moves between machines with a service each, and the services take over."""
    for number in range(3):
        await asyncio.sleep(12.0)
        if number == 1:
            world.host.kill()
        _fail_over(world)
        for host in world.hosts:
            host.start_again()


async def _former_leader(world: World) -> None:
    """Another master is elected; the former leader continues, and its service still saves."""
    for _ in range(2):
        await asyncio.sleep(12.0)
        former = world.elected
        assert former is not None
        world.elect(next(m for m in world.masters if world.beside(m) is not world.host))
        await asyncio.sleep(5.0)
        world.restart_master(former)


async def _clocks_of_machines(world: World) -> None:
    """Leadership goes temporarily to a machine whose clock is four minutes behind."""
    behind = world.hosts[1]
    behind.kill()
    behind.clock.jump(-240.0)
    world.masters[1].clock.jump(-240.0)
    behind.start()
    for weight in (3.0, 1.0):
        await asyncio.sleep(20.0)
        order = operator.Order()
        order.set_weight.user, order.set_weight.weight = "a", weight
        await world.operator.order(order)
        _fail_over(world)


async def _clocks_of_masters(world: World) -> None:
    """Leadership alternates between masters whose clocks differ by seconds."""
    ahead = {master.name: off for master, off in zip(world.masters, (4, -4, -4), strict=True)}
    for master in world.masters:
        master.clock.jump(ahead[master.name])
    await asyncio.sleep(10.0)
    order = operator.Order()
    order.set_weight.user, order.set_weight.weight = "a", 9.0
    await world.operator.order(order)  # so that all other users have large commitments
    await asyncio.sleep(20.0)
    first, second, third = ahead
    for name, pause in ((third, 3.0), (second, 0.5), (first, 10.0)) * 3:
        former = world.elected
        assert former is not None
        world.restart_master(former).clock.jump(ahead[former.name])
        world.elect(next(master for master in world.masters if master.name == name))
        await asyncio.sleep(pause)


async def _reserved_in_time(world: World) -> None:
    """An operator reserves offered resources, on agent after agent."""
    master = world.masters[0]
    for name in list(world.site.machines) * 4:
        await asyncio.sleep(3.0)
        kept = Step("RESERVE", amounts("cpus:1;mem:256"), amounts("cpus(b):1;mem(b):256"))
        master.operate(name, [kept])


async def _quotas(world: World) -> None:
    """A role has a guarantee of most of the cluster, and the greedy role has a limit."""
    await asyncio.sleep(5.0)
    world.masters[0].set_quota("a", amounts("cpus:6;mem:4096"), {})
    for role in ("b", "c"):
        world.masters[0].set_quota(role, {}, amounts("cpus:2"))
    await asyncio.sleep(25.0)
    _fail_over(world)


async def _dealt_out(world: World) -> None:
    """All frameworks state the same task demand, so agents free at once are allocated in bulk."""
    for scheduler in world.schedulers:
        scheduler.labels["longshare.demand"] = "cpus:0.5;mem:512"
    await asyncio.sleep(30.0)
    _fail_over(world)


async def _all_at_once(world: World) -> None:
    """All faults happen at the same instant, twice."""
    for _ in range(2):
        await asyncio.sleep(35.0)
        names = (
            *("kill service", "break stream", "fail over", "jump clock", "lose agent"),
            *("disconnect agent", "fill disk", "slow disk", "vanish stream"),
        )
        for name in names:
            world.loop.create_task(world.gremlin.do(name))


def _fail_over(world: World) -> None:
    """The leading master dies, and another master is elected."""
    former = world.host
    if world.elected is not None:
        world.restart_master(world.elected)
    elsewhere = [master for master in world.masters if world.beside(master) is not former]
    world.elect((elsewhere or world.masters)[0])


def _snapshot(**fields: Any) -> contract.FromMaster:  # noqa: ANN401 - fields of a Snapshot
    return contract.FromMaster(snapshot=contract.Snapshot(time_ns=1, **fields))


async def _stranger(world: World, session: str, *messages: contract.FromMaster) -> Call:
    """Open a stream under another session's name, and send messages without reading replies."""
    call = world.network.call(world.host.address, METHOD, Peer("ipv4:stranger"))
    hello = contract.Hello(contract_version=VERSION, session_id=session, master="stranger")
    for message in (contract.FromMaster(hello=hello), *messages):
        await call.write(message.SerializeToString())
    return call


SCENARIOS: dict[str, Scenario] = {
    **{f"a framework says {poison}": _says(poison) for poison in hostile.ALL},
    "a clock that is ahead, and its master killed": Scenario(_ahead_then_killed),
    "a clock that jumps ten years": Scenario(_ten_years),
    "a clock from before the epoch": Scenario(_before_the_epoch),
    "a master elected at the end of time": Scenario(_elected_for_ever),
    "a snapshot that cannot be used": Scenario(_snapshot_that_cannot_be_used),
    "a session id that is empty, or another's": Scenario(_same_session),
    "sixteen silent streams": Scenario(_silent_streams),
    "a slow disk": Scenario(_slow_disk),
    "an order after a full disk": Scenario(_order_after_full_disk),
    "an empty operation": Scenario(_empty_operation),
    "a store that is ahead": Scenario(_store_ahead),
    "leaps in one message": Scenario(_leaps_in_one_message),
    "weights that are absurd": Scenario(_absurd_weights, SHORT),
    "a damaged store that is set aside": Scenario(
        _damaged_store,
        replace(SHORT, settings={**QUIET.settings, "store": {"on_damage": "set aside"}}),
    ),
    "a pipe for a store": Scenario(_pipe_for_a_store, SHORT),
    "requests that are sent by half": Scenario(_half_sent_requests, SHORT),
    "fifty pollers": Scenario(_pollers, SHORT),
    "a host whose name is no text": Scenario(_hosts_that_are_no_text, SHORT),
    "a ZooKeeper that is behind": Scenario(_behind_a_follower, replace(SHORT, store="zookeeper")),
    "a service beside each master": Scenario(_service_beside_each, PAIR),
    "a former leader that talks on": Scenario(_former_leader, PAIR),
    "a machine whose clock is behind": Scenario(_clocks_of_machines, PAIR),
    "masters whose clocks differ": Scenario(
        _clocks_of_masters,
        replace(PAIR, settings={**QUIET.settings, "policy": {"name": "sdrf", "half_life": 30}}),
    ),
    "an operator who reserves": Scenario(
        _reserved_in_time, replace(TORN, frameworks={"waiter": 2, "stateful": 2})
    ),
    "quotas": Scenario(_quotas, replace(TORN, mesos=(1, 11))),
    "quotas of Mesos 1.8": Scenario(_quotas, TORN),
    "agents that are dealt out whole": Scenario(_dealt_out, WHOLE),
    "all faults at once": Scenario(_all_at_once, replace(QUIET, healing=120.0)),
    "agents that are late": Scenario(_late_agents, CROWDED),
}
