"""The choice of backfill holds compared with a full search over all agents for each client."""

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from allocator.cluster.backfill.choosing import choose
from allocator.cluster.backfill.runtime_estimates import TaskRun
from allocator.cluster.frameworks.framework import Client
from allocator.contract import allocator_pb2 as contract
from allocator.contract import mesos_pb2 as mesos
from allocator.fairness.quantities import Quantities
from tests.cluster.master_side import (
    ALL_AGENT_CAPABILITIES,
    MasterSide,
    agent_call,
    framework_info,
    resources,
)
from tests.cluster.test_task_offers import with_settings
from tests.examples import scaled

AGENTS = ("s1", "s2", "s3", "s4", "s5")
ROLES = ("a", "b", "c", "d/e", "f/g")
OLD = [c for c in ALL_AGENT_CAPABILITIES if c != mesos.SlaveInfo.Capability.HIERARCHICAL_ROLE]


def some(lot: random.Random, least: int, most: int, mem: float) -> str:
    """Return a few thousandths of CPU, and of memory with the given probability."""
    amounts = {
        "cpus": lot.randint(least, most),
        "mem": lot.randint(1, most) if lot.random() < mem else 0,
    }
    return ";".join(f"{name}:{amount / 1000}" for name, amount in amounts.items() if amount)


class World:
    """Agents in use, and clients whose tasks may fit on no agent."""

    def __init__(self, seed: int) -> None:
        self.lot = lot = random.Random(seed)
        self.by_turns = seed % 2 == 0
        self.served: list[Client] = []
        master = with_settings(
            MasterSide(), hold_for=lot.choice(["one", "all", "all"]), hold_by_turns=self.by_turns
        )
        demands = some(lot, 3, 6, 0.2), some(lot, 2, 4, 0.2)
        self.labels = {
            role: {"demand": lot.choice(demands)}
            | ({"whitelist": "s1.example s2.example"} if lot.random() < 0.2 else {})
            for role in ROLES
        }
        used: dict[str, list[TaskRun]] = {}
        for agent in AGENTS:
            clients = [Client(role, f"f-{role}") for role in (*ROLES, "gone")]
            stays = [
                TaskRun(
                    client, Quantities.parse(some(lot, 1, 3, 0.6)), master.now_ns - lot.randrange(6)
                )
                for client in lot.choices(clients, k=lot.randrange(5))
            ]
            used[agent] = stays
        master.restore(
            contract.Snapshot(
                time_ns=master.now_ns,
                agents=[self._agent(agent, stays) for agent, stays in used.items()],
                inactive_agents=[agent for agent in AGENTS if lot.random() < 0.1],
                frameworks=[
                    contract.AddFramework(framework_id=f"f-{role}", info=self._info(role))
                    for role in ROLES
                ],
            )
        )
        self.cluster = master.engine._cluster
        times = self.cluster.holds.runtime_estimates
        for agent, stays in used.items():
            times.forget_agent(agent)
            for stay in stays:
                times.record_offer(stay.client, agent, stay.amounts, stay.begun_ns)
        for role in lot.sample(ROLES, 3):
            times.record_offer(Client(role, f"f-{role}"), "before", Quantities({"cpus": 1}), 0)
            times.record_end(
                Client(role, f"f-{role}"), "before", Quantities({"cpus": 1}), lot.randrange(9)
            )
        self.clients = [
            Client(role, f"f-{role}") for role in lot.sample(ROLES, lot.randrange(1, 6))
        ]
        self.excluded = {
            client: {lot.choice(AGENTS)} for client in self.clients if lot.random() < 0.2
        }
        for client, agents in self.excluded.items():
            self.cluster.ledger.exclusions.add_framework(client.framework, {client.role: agents})
        holds = self.cluster.holds
        for client in self.clients:
            before = lot.choice(["nothing"] * 4 + ["has", "had", "paused"])
            free = [agent for agent in AGENTS if holds.on(agent) is None]
            if before == "nothing" or holds.full or len(free) < 3:
                continue
            task = self.cluster.ledger.unit_demand(client)
            assert task is not None
            holds.begin(client, free[0], task, self.cluster.now_ns, self.cluster.now_ns)
            if before != "has":
                assert holds.end_served(client, free[0]) == free[0]
                self.served.append(client)
            if before == "paused":
                holds.declined(client, free[0], self.cluster.now_ns)
        self.given: list[Client] = []

    def _info(self, role: str) -> bytes:
        info = mesos.FrameworkInfo.FromString(framework_info(f"f-{role}", role))
        for key, value in self.labels[role].items():
            info.labels.labels.add(key=f"longshare.{key}", value=value)
        return info.SerializeToString()

    def _agent(self, agent: str, stays: list[TaskRun]) -> contract.AddAgent:
        lot = self.lot
        free = lot.choice(["", "", "", "", f";{some(lot, 1, 2, 0.5)}"])
        total = ";".join(str(stay.amounts) for stay in stays) + free
        reserved = ";cpus(x):1" if lot.random() < 0.1 else ""
        return agent_call(
            agent,
            f"{total or 'cpus:0.001'}{reserved}".strip(";"),
            {
                f"f-{role}": [
                    message
                    for stay in stays
                    if stay.client.role == role
                    for message in resources(str(stay.amounts), role)
                ]
                for role in (*ROLES, "gone")
            },
            OLD if lot.random() < 0.2 else ALL_AGENT_CAPABILITIES,
        )

    def order(self) -> Iterator[Client]:
        """Yield clients in ascending order of their allocation."""
        got = Counter(self.given)
        return iter(sorted(self.clients, key=lambda client: got[client]))

    def give(self, client: Client, task: Quantities) -> None:
        assert task == self.cluster.ledger.unit_demand(client)
        self.given.append(client)


@dataclass
class Plainly:
    """Chooses by a search over all agents for each client."""

    world: World

    def __post_init__(self) -> None:
        self._fits: dict[object, bool] = {}

    def choose(self) -> None:
        world, holds = self.world, self.world.cluster.holds
        if holds.full:
            return
        if world.by_turns:
            self.by_turns()
        else:
            self.in_rounds()
        if not holds.several:
            return
        for hold in list(holds):
            world.give(hold.client, hold.task)
        first = next(world.order())
        while holds.may_have_more(first) and self.hold(first):
            world.give(first, self.task(first))
            first = next(world.order())

    def by_turns(self) -> None:
        """Hold for each client in turn; new clients come before the client that was served last."""
        world, holds = self.world, self.world.cluster.holds
        new = [client for client in world.order() if client not in world.served]
        for client in (*world.served[:-1], *new, *world.served[-1:]):
            if holds.may_have_more(client) and not holds.has(client):
                self.hold(client)

    def in_rounds(self) -> None:
        holds, clients = self.world.cluster.holds, list(self.world.order())
        for _round in range(2):
            for client in clients:
                if holds.may_begin(client):
                    self.hold(client)
            if _round or not holds.next_round():
                break

    def task(self, client: Client) -> Quantities:
        task = self.world.cluster.ledger.unit_demand(client)
        assert task is not None
        return task

    def hold(self, client: Client) -> bool:
        cluster = self.world.cluster
        if self.fits(client):
            return False
        ready = [self.ready(client, agent) for agent in self.usable(client)]
        earliest = min((readiness for readiness in ready if readiness is not None), default=None)
        if earliest is None or earliest[1]:
            return False
        cluster.holds.begin(client, earliest[2], self.task(client), cluster.now_ns, earliest[0])
        return True

    def usable(self, client: Client) -> list[str]:
        """Return the agents on which a client's task would fit if the agents were empty."""
        world = self.world
        ledger, task, possible = world.cluster.ledger, self.task(client), []
        for name, agent in ledger.agents.items():
            white = world.labels[client.role].get("whitelist")
            if (
                agent.active
                and not any(kind.reservation for kind in agent.total)
                and all(agent.total.scalars[name] >= amount for name, amount in task.items())
                and (white is None or f"{name}.example" in white.split())
                and name not in world.excluded.get(client, ())
                and ("/" not in client.role or agent.hierarchical_role)
            ):
                possible.append(name)
        return possible

    def free(self, agent: str) -> Quantities:
        return self.world.cluster.ledger.agents[agent].available.scalars

    def fits(self, client: Client) -> bool:
        """Return whether the task fitted at the first look at a client with the same task."""
        world, task = self.world, self.task(client)
        excludes = client if client in world.excluded else None
        like = str(task), str(world.labels[client.role]), excludes, "/" in client.role
        if like not in self._fits:
            self._fits[like] = any(
                world.cluster.holds.on(agent) is None and self.free(agent).contains(task)
                for agent in self.usable(client)
            )
        return self._fits[like]

    def ready(self, client: Client, agent: str) -> tuple[int, bool, str] | None:
        """Return when the task will fit beside own tasks, and whether one task's end suffices."""
        cluster, task = self.world.cluster, self.task(client)
        if cluster.holds.on(agent) is not None:
            return None
        ends = [
            (when, stay)
            for when, stay in cluster.holds.runtime_estimates.ends(agent, cluster.now_ns)
            if stay.client != client
        ]
        for number in range(1, len(ends) + 1):
            room = self.free(agent)
            for _when, stay in ends[:number]:
                room = room + stay.amounts
            if room.contains(task):
                last_hold = ends[0][1]
                known = last_hold.client.role != "gone"
                next_ = self.task(last_hold.client) if known else last_hold.amounts
                enough = number == 1 and (self.free(agent) + next_).contains(task)
                return ends[number - 1][0], enough, agent
        return None


def test_holds_are_those_of_a_full_search_over_all_agents_for_each_client() -> None:
    several, same_client = 0, 0
    for seed in range(scaled(300)):
        world, plain = World(seed), World(seed)
        choose(world.cluster, world.order, world.give)
        Plainly(plain).choose()
        assert list(world.cluster.holds) == list(plain.cluster.holds), seed
        assert world.given == plain.given, seed
        several += len(list(world.cluster.holds)) > 1
        same_client += (
            max(Counter(hold.client for hold in world.cluster.holds).values(), default=0) > 1
        )
    assert (several > scaled(50), same_client > scaled(5)) == (True, True), (
        "enough seeds have several holds and repeated rounds"
    )


def test_in_one_look_each_of_a_hundred_clients_gets_a_hold_and_the_first_a_hundred_more() -> None:
    master = with_settings(MasterSide(), hold_for="all")
    used = {role: resources("cpus:0.5", role) for role in ("one", "two")}
    agents, names = [f"s{number}" for number in range(203)], [f"f{n}" for n in range(102)]
    master.restore(
        contract.Snapshot(
            time_ns=master.now_ns,
            agents=[agent_call(agent, "cpus:1", used) for agent in agents],
            frameworks=[
                contract.AddFramework(framework_id=name, info=framework_info(name, name))
                for name in names
            ],
        )
    )
    cluster, task = master.engine._cluster, Quantities.parse("cpus:1")
    for name in names:
        cluster.ledger.frameworks[name].demand = task
    clients = [Client(name, name) for name in names]
    choose(cluster, lambda: iter(clients), lambda _client, _task: None)
    held = Counter(hold.client for hold in cluster.holds)
    assert held == dict.fromkeys(clients[:100], 1) | {clients[0]: 101}


def test_clients_beyond_the_first_hundred_are_considered_when_the_first_need_no_hold() -> None:
    """Regression: a hundred clients that declined fitting offers blocked other clients for ever."""
    master = with_settings(MasterSide(), hold_for="one", hold_by_turns=True)
    used = {role: resources("cpus:0.5", role) for role in ("one", "two")}
    names = [f"f{number}" for number in range(150)]
    master.restore(
        contract.Snapshot(
            time_ns=master.now_ns,
            agents=[agent_call("busy", "cpus:1", used), agent_call("free", "cpus:0.25")],
            frameworks=[
                contract.AddFramework(framework_id=name, info=framework_info(name, name))
                for name in names
            ],
        )
    )
    cluster = master.engine._cluster
    for name in names:
        cluster.ledger.frameworks[name].demand = Quantities.parse("cpus:0.25")
    big = cluster.ledger.frameworks["f149"]
    big.demand = Quantities.parse("cpus:1")
    clients = [Client(name, name) for name in names]
    for _look in range(2):
        assert not list(cluster.holds)
        choose(cluster, lambda: iter(clients), lambda _client, _task: None)
    assert [hold.client for hold in cluster.holds] == [clients[-1]]
