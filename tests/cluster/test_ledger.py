"""Consistency of the ledger in any order of calls, and its memory after removals."""

import random
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from unittest import mock

import pytest

from allocator.cluster.frameworks.framework import Client
from allocator.cluster.offers import offer_filters
from allocator.contract import allocator_pb2 as contract
from allocator.contract import mesos_pb2 as mesos
from allocator.fairness.quantities import Quantities
from tests.cluster.conformance.quota_side import SHARED, add_agent, disk
from tests.cluster.conformance.test_offer_constraints import exclusions
from tests.cluster.master_side import MasterSide, agent_call, framework_info, resources
from tests.cluster.test_placements import info
from tests.cluster.test_task_offers import with_settings
from tests.counted import things

ROLES = ("a", "a/b", "e")
WISHES = ("*", "x-*", "*-s1", "y-s2")
TOTALS = ("cpus:4;mem:64", "cpus:9;mem:20", "cpus:2")

Name = tuple[str, str]
"""A framework and a role."""


@dataclass
class Plainly:
    """A plain record of frameworks, agents, allocations and exclusions."""

    frameworks: dict[str, tuple[str, str, str]] = field(default_factory=dict)
    """Role, demand, and whitelist of hosts."""
    agents: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Host name, and total resources."""
    held: dict[tuple[str, str, str], Quantities] = field(default_factory=dict)
    """Allocations by agent, framework and role."""
    excluded: set[tuple[str, str, str]] = field(default_factory=set)
    """Exclusions: agent, framework, role."""

    def clients(self) -> set[Name]:
        subscribed = {(name, role) for name, (role, _, _) in self.frameworks.items()}
        holding = {(name, role) for _, name, role in self.held if name in self.frameworks}
        return subscribed | holding

    def allows(self, client: Name, agent: str) -> bool:
        wish, host = self.frameworks[client[0]][2], self.agents[agent][0]
        return fnmatchcase(host, wish) and (agent, *client) not in self.excluded

    def slowdown(self, clients: set[Name]) -> float | None:
        """Return the fraction of running tasks to possible tasks; None if unknown."""
        demands = [Quantities.parse(self.frameworks[name][1]) for name, _ in clients]
        needs = {
            name: max(demand[name] for demand in demands) for demand in demands for name in demand
        }
        alone = sum(
            min((Quantities.parse(has)[name] // n for name, n in needs.items()), default=0)
            for agent, (_, has) in self.agents.items()
            if any(self.allows(client, agent) for client in clients)
        )
        if not alone:
            return None
        held = sum((h for place, h in self.held.items() if place[1:] in clients), Quantities())
        return max(held[name] / (amount * alone) for name, amount in needs.items())


class Walk:
    """Applies random calls to an engine and to a plain model."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.plainly = Plainly()
        self.master = MasterSide("cdrf")

    def step(self) -> None:
        chance = self.chance
        framework, agent = chance.choice(("f1", "f2", "f3")), chance.choice(("s1", "s2", "s3"))
        if chance.random() < 0.5:
            self.tell_of_framework(framework, gone=chance.random() < 0.2)
        else:
            self.tell_of_agent(agent, gone=chance.random() < 0.2)

    def tell_of_framework(self, name: str, *, gone: bool) -> None:
        chance, plainly = self.chance, self.plainly
        known = name in plainly.frameworks
        if known and gone:
            self.master.send(contract.RemoveFramework(framework_id=name))
            del plainly.frameworks[name]
            plainly.held = {place: h for place, h in plainly.held.items() if place[1] != name}
            plainly.excluded = {exclusion for exclusion in plainly.excluded if exclusion[1] != name}
            return
        demand = chance.choice(("", "cpus:1", "cpus:2;mem:10"))
        role, wish = chance.choice(ROLES), chance.choice(WISHES)
        description = info(name, role, {"whitelist": wish} | ({"demand": demand} if demand else {}))
        agents = [agent for agent in ("s1", "s2", "s3") if chance.random() < 0.3]
        apart = [contract.ExcludedAgents(role=role, agent_ids=agents)]
        if known:
            plainly.excluded = {exclusion for exclusion in plainly.excluded if exclusion[1] != name}
            call = contract.UpdateFramework(framework_id=name, info=description, excluded=apart)
            self.master.send(call)
        else:
            self.master.send(
                contract.AddFramework(framework_id=name, info=description, excluded=apart)
            )
        plainly.excluded |= {(agent, name, role) for agent in agents}
        plainly.frameworks[name] = role, demand, wish

    def tell_of_agent(self, name: str, *, gone: bool) -> None:
        chance, plainly = self.chance, self.plainly
        known = name in plainly.agents
        if known and gone:
            self.master.remove_agent(name)
            del plainly.agents[name]
            plainly.held = {place: h for place, h in plainly.held.items() if place[0] != name}
            plainly.excluded = {exclusion for exclusion in plainly.excluded if exclusion[0] != name}
            return
        host, total = f"{chance.choice('xy')}-{name}", chance.choice(TOTALS)
        if known and chance.random() < 0.5:
            host, total = plainly.agents[name]
        used = {f: chance.choice(ROLES) for f in ("f1", "f2") if chance.random() < 0.5}
        kept_off = {(f, chance.choice(ROLES)) for f in ("f1", "f2", "f3") if chance.random() < 0.5}
        call = agent_call(name, total, {f: resources("cpus:1", r) for f, r in used.items()})
        described = mesos.SlaveInfo.FromString(call.info)
        described.hostname = host
        call.info = described.SerializeToString()
        call.excluded.CopyFrom(exclusions(*kept_off))
        if known:
            changed = contract.UpdateAgent(agent_id=name, info=call.info, excluded=call.excluded)
            changed.total.resources.extend(call.total)
            self.master.send(changed)
        else:
            self.master.send(call)
            one_cpu = Quantities.parse("cpus:1")
            plainly.held |= {(name, framework, role): one_cpu for framework, role in used.items()}
        plainly.agents[name] = host, total
        plainly.excluded = {exclusion for exclusion in plainly.excluded if exclusion[0] != name}
        plainly.excluded |= {(name, *client) for client in kept_off}

    def check(self) -> None:
        assert self.master.engine.allocations() == self.plainly.held
        clients = self.plainly.clients()
        for standing in self.master.engine.standings():
            name = standing.user
            its = {
                c
                for c in clients
                if c[1] == name.removesuffix("/.") or (c[1] + "/").startswith(name + "/")
            }
            slowdown = self.plainly.slowdown(its)
            expected = standing.shares if slowdown is None else {"tasks": slowdown}
            assert standing.measured == pytest.approx(expected), name


@pytest.mark.parametrize("seed", range(4))
def test_users_are_measured_by_the_agents_of_all_their_tasks_in_any_order_of_calls(
    seed: int,
) -> None:
    walk = Walk(seed)
    for _ in range(150):
        walk.step()
        walk.check()


def come_and_go(master: MasterSide, number: int) -> None:
    """Let two frameworks use every call, on their own agents, and leave."""
    names = [f"{kind}{number}" for kind in "fg"]
    for name in names:
        apart = [contract.ExcludedAgents(role=f"of/{name}", agent_ids=[f"no{number}"])]
        description = info(name, f"of/{name}", {"whitelist": "s*"})
        master.send(
            contract.AddFramework(framework_id=name, info=description, active=True, excluded=apart)
        )
    offers = [
        o for index in range(4) for o in master.add_agent(f"s{number}.{index}", "cpus:4;mem:64")
    ]
    assert len(offers) == 4
    master.recover(offers[0], "cpus:1", refuse_seconds=5)
    master.recover(offers[1], refuse_seconds=5)
    for name in names:
        master.send(contract.RemoveFramework(framework_id=name))
    for index in range(4):
        master.remove_agent(f"s{number}.{index}")
    for _ in range(4):
        master.tick(3.0)
    assert master.engine.users() == []


def test_removed_frameworks_and_agents_leave_no_memory_behind() -> None:
    master = with_settings(MasterSide(), learn_demands=True, forget_after=1.0, hold_for="one")
    sizes = []
    for number in range(4):
        come_and_go(master, number)
        sizes.append(things(master.engine))
    assert sizes[3] == sizes[1]


def change_roles(master: MasterSide, number: int) -> None:
    """Let a framework join a role, use every call there, and change to another role."""
    master.send(contract.UpdateFramework(framework_id="f", info=framework_info("f", f"a{number}")))
    master.tick()
    offers = [
        o for index in range(4) for o in master.add_agent(f"s{number}.{index}", "cpus:4;mem:64")
    ]
    assert len(offers) == 4
    master.recover(offers[0], "cpus:1", refuse_seconds=3600)
    master.recover(offers[1], refuse_seconds=3600)
    master.send(contract.UpdateFramework(framework_id="f", info=framework_info("f", "b")))
    master.recover(offers[2], refuse_seconds=3600)
    for index in range(4):
        master.remove_agent(f"s{number}.{index}")
    for _ in range(4):
        master.tick(3.0)
    assert master.engine.users() == ["b"]
    assert not master.engine.filters


@pytest.mark.parametrize("quota", [False, True])
def test_left_roles_and_removed_agents_of_a_framework_leave_no_memory_behind(
    *, quota: bool
) -> None:
    master = with_settings(MasterSide(), learn_demands=True, forget_after=1.0, hold_for="one")
    master.add_framework("f", "b")
    if quota:
        guarantees = contract.Quantities(amounts={"cpus": 1.0})
        master.send(contract.UpdateQuota(role="b", guarantees=guarantees))
    sizes = []
    with mock.patch.object(offer_filters, "_MANY", 0):
        for number in range(8):
            change_roles(master, number)
            sizes.append(things(master.engine))
    assert max(sizes[4:]) <= max(sizes[:4])


def test_agents_removed_with_outstanding_offers_leave_no_memory_behind() -> None:
    master = with_settings(MasterSide(), learn_demands=True, hold_for="one")
    master.add_framework("f", "b")
    sizes = []
    for number in range(4):
        for index in range(4):
            assert master.add_agent(f"s{number}.{index}", "cpus:4;mem:64")
        for index in range(4):
            master.remove_agent(f"s{number}.{index}")
        sizes.append(things(master.engine))
    assert sizes[3] == sizes[1]


@pytest.mark.parametrize("keeps", ["cpus:3", None])
def test_declining_an_offer_in_a_left_role_creates_no_filter_and_teaches_no_demand(
    keeps: str | None,
) -> None:
    master = with_settings(MasterSide(), learn_demands=True)
    master.add_framework("f", "a", "b")
    [offer] = master.add_agent("s1", "cpus:4;mem:64")
    other_role = "b" if offer.role == "a" else "a"
    master.send(contract.UpdateFramework(framework_id="f", info=framework_info("f", other_role)))
    [next_offer] = master.recover(offer, keeps, refuse_seconds=3600)
    assert (next_offer.role, next_offer.resources) == (other_role, keeps or "cpus:4;mem:64")
    assert not master.engine.filters
    assert not master.engine.demands()


@pytest.mark.parametrize("first", ["framework", "agent"])
def test_users_have_the_same_order_whether_the_framework_or_its_agent_comes_first(
    first: str,
) -> None:
    master = MasterSide()
    agent = agent_call("s1", "cpus:4", {"f1": resources("cpus:1", "b")})
    description = framework_info("f1", "a", "b", "c")
    framework = contract.AddFramework(framework_id="f1", info=description, active=True)
    for call in (framework, agent) if first == "framework" else (agent, framework):
        master.send(call)
    assert master.engine.users() == ["a", "b", "c"]


def test_a_misfit_is_judged_by_the_present_agents() -> None:
    master = MasterSide()
    master.send(
        contract.AddFramework(framework_id="f1", info=info("f1", "a", {"demand": "cpus:8"}))
    )
    for agent, total in (("s1", "cpus:9"), ("s2", "cpus:4")):
        master.add_agent(agent, total)
    assert master.engine.misfits() == {}
    master.remove_agent("s1")
    assert master.engine.misfits() == {"f1": "one task needs cpus:8, and no agent has more than 4"}


def test_an_allocation_moves_to_the_user_of_a_changed_principal() -> None:
    master = MasterSide(user_key="principal")
    master.add_framework("f1", "a", principal="before", active=False)
    master.add_agent("s1", "cpus:4", {"f1": resources("cpus:3", "a")})
    description = framework_info("f1", "a", principal="after")
    master.send(contract.UpdateFramework(framework_id="f1", info=description))
    held = {standing.user: standing.allocation for standing in master.engine.standings()}
    assert held == {"before": Quantities(), "after": Quantities.parse("cpus:3")}


def test_a_left_role_is_forgotten_once_nothing_is_allocated_in_it() -> None:
    master = with_settings(MasterSide(), forget_after=5.0)
    master.add_framework("f1", "a", "b", "c", active=False)
    master.add_agent("s1", "cpus:4", {"f1": resources("cpus:3", "b")})
    description = framework_info("f1", "a")
    master.send(contract.UpdateFramework(framework_id="f1", info=description))
    master.tick(6.0)
    assert set(master.engine.users()) == {"a", "b"}
    master.remove_agent("s1")
    master.tick(6.0)
    master.tick(6.0)
    assert set(master.engine.users()) == {"a"}


def test_a_known_client_is_found_as_the_same_object_at_each_call() -> None:
    master = MasterSide()
    master.add_framework("f1", "a")
    clients = master.engine._cluster.ledger.clients
    [known] = clients
    assert clients.find("a", "f1") is known
    assert clients.find("b", "f1") == Client("b", "f1")
    assert clients.find("a", "f2") == Client("a", "f2")
    assert list(clients) == [known]


def test_ports_of_a_forgotten_client_become_available_again() -> None:
    """The framework keeps one port, leaves the role, and its task ends."""
    master = MasterSide("drf")
    master.add_framework("f", "a")
    (offer,) = master.add_agent("s", "cpus:4;mem:64;ports:[1-9]")
    master.recover(offer, "cpus:4;mem:64;ports:[2-9]", refuse_seconds=60.0)
    left = contract.UpdateFramework(framework_id="f", info=framework_info("f", "b"))
    left.suppressed_roles.append("b")
    master.send(left)
    master.recover(offer, "ports:[1-1]")
    (whole,) = master.send(contract.ReviveOffers(framework_id="f"))
    assert whole.resources == "cpus:4;mem:64;ports:[1-9]"
    assert master.engine.statistics.faults == 0


def test_operations_that_consume_and_add_resources_give_the_resulting_allocation() -> None:
    master = MasterSide()
    master.add_framework("f1", "a", active=False)
    volume = disk(50, reserved=["a"], volume="v1", shared=True, role="a")
    master.add_agent("s1", "cpus:4", {"f1": resources("cpus:3", "a")})
    master.send(
        contract.UpdateAllocation(
            agent_id="s1",
            framework_id="f1",
            offered=resources("cpus:3", "a"),
            conversions=[
                contract.Conversion(consumed=resources("cpus:1", "a")),
                contract.Conversion(converted=[volume]),
            ],
        )
    )
    [standing] = master.engine.standings()
    assert standing.allocation == Quantities.parse("cpus:2;disk:50")


def test_recovering_resources_outside_the_allocation_frees_nothing() -> None:
    master = MasterSide()
    master.add_framework("f1", "a")
    master.add_agent("s1", "cpus:4;mem:64", {"f1": resources("mem:64", "a")})
    call = contract.RecoverResources(framework_id="f1", agent_id="s1")
    call.resources.extend(resources("disk:1", "a"))
    statistics = master.engine.statistics
    looked_at = statistics.candidates
    assert master.send(call) == []
    assert (statistics.clamped, statistics.candidates) == (1, looked_at)


def test_a_shared_volume_offered_again_to_its_holder_counts_once() -> None:
    master = MasterSide()
    master.add_framework("f1", "a", capabilities=[SHARED])
    volume = disk(50, reserved=["a"], volume="v1", shared=True)
    [offer] = master.send(add_agent("s1", [*resources("cpus:4;mem:64"), volume]))
    [next_offer] = master.recover(offer, "cpus:1") or master.tick()
    assert next_offer.resources == "cpus:1;disk(a):50"
    [standing] = master.engine.standings()
    assert standing.allocation == Quantities.parse("cpus:4;mem:64;disk:50")
