"""The index of clients that want offers follows each change, in proportion to the change."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import reduce
from operator import or_
from random import Random
from typing import Any

import pytest

from allocator.cluster.allocation.client_index import ClientIndex, ClientMask
from allocator.cluster.allocation.client_index import _Amounts as Amounts
from allocator.cluster.allocation.client_index import _Thresholds as Thresholds
from allocator.cluster.engine import Engine
from allocator.cluster.frameworks.subscription import Alternatives
from allocator.contract import allocator_pb2 as contract
from allocator.contract import mesos_pb2 as mesos
from allocator.cooperative import Cooperative, run_to_completion
from allocator.fairness.quantities import Quantities
from tests.cluster.master_side import MasterSide, Offered, agent_call
from tests.cluster.test_hopeless_clients import with_minimums
from tests.cluster.test_placements import info
from tests.counted import counted

DEMANDS = ["", "cpus:1", "cpus:1;mem:9", "mem:9;cpus:1", "gpus:1", "cpus:1;fpgas:1", "cpus:0.001"]
AGENTS = [
    "cpus:4;mem:64;ports:[1-9]",
    "cpus:8;mem:64;gpus:1",
    "cpus:4;mem:64;fpgas:2",
    "cpus(a/b):3;mem:64",
]
MINIMUMS: list[list[dict[str, float]]] = [
    [],
    [{}],
    [{"cpus": 2.0}],
    [{"cpus": 2.0}, {"mem": 9.0}],
    [{"fpgas": 1.0, "none": 1.0}, {"cpus": 4.0, "mem": 9.0}, {"ports": 2.0}],
]
CAPACITIES = ["", "cpus:1", "cpus:3", "cpus:4;mem:9", "mem:10;ports:1", "ports:2", "fpgas:1"]
INPUT = {"ledger", "filters"}
KEPT = {"excluded", "changes", "by_row", "reserved_for"}
"""Results of `excluded_from` and its parts, the changes since, and results of `reserved_for`. The
test compares results instead."""


def content(index: ClientIndex) -> dict[str, Any]:
    """Return all masks and tables of an index."""
    for roles, clients in index._reserved_for.items():
        assert clients == reduce(or_, map(index.in_role, roles), 0)
    known = {name: value for name, value in vars(index).items() if name[1:] not in INPUT | KEPT}
    tables = {name: needs(table) for name, table in known.items() if isinstance(table, Thresholds)}
    minimums = [needs(table) for table in index._minimums]
    return {**known, **tables, "_minimums": minimums, "_least": sorted(known["_least"])}


def needs(table: Thresholds) -> tuple[ClientMask, dict[str, dict[int, ClientMask]]]:
    """Return the clients of a table, then by resource and amount."""
    assert not table.outdated
    return table.clients, {name: by_amount(amounts) for name, amounts in table.needing.items()}


def by_amount(amounts: Amounts) -> dict[int, ClientMask]:
    """Return clients by amount."""
    pairs = [pair for interval in amounts._intervals for pair in interval.clients.items()]
    assert len(dict(pairs)) == len(pairs)
    return dict(pairs)


def unreached(index: ClientIndex, capacity: Quantities, default: Alternatives) -> ClientMask:
    """Return the clients whose minimum offer exceeds a capacity, by comparing each of them."""
    clients = 0
    for client, bit in index.bit.items():
        framework = index._ledger.frameworks[client.framework]
        minimums = framework.min_allocatable.get(client.role, default)
        reached = not minimums or any(map(capacity.contains, minimums))
        clients |= 0 if capacity and reached else bit
    return clients


def excluded(index: ClientIndex, agent: str) -> ClientMask:
    """Return the clients that an agent is not offered to, by testing each of them."""
    admits = index._ledger.admits
    return sum(bit for client, bit in index.bit.items() if not admits(client, agent))


def excluding(chance: Random) -> list[contract.ExcludedAgents]:
    """Return random offer constraints of a framework."""
    names = [f"s{n}" for n in range(len(AGENTS)) if chance.random() < 0.4]
    roles = [role for role in ("a", "b") if chance.random() < 0.4]
    return [contract.ExcludedAgents(role=role, agent_ids=names) for role in roles]


def subscription(framework: str, chance: Random) -> bytes:
    """Return a random FrameworkInfo."""
    roles = chance.sample(["a", "a/b", "a/b/c", "b", "z"], chance.randrange(1, 4))
    labels = {"demand": chance.choice(DEMANDS)}
    if chance.random() < 0.3:
        labels["whitelist"] = f"s{chance.randrange(3)}*"
    if chance.random() < 0.3:
        minimums = chance.choice(MINIMUMS)
        return with_minimums(framework, dict.fromkeys(roles, minimums), labels["demand"])
    return info(framework, roles, {name: text for name, text in labels.items() if text})


def changed_agent(master: MasterSide, chance: Random, known: set[str]) -> contract.UpdateAgent:
    """Return a call that replaces the frameworks that an agent excludes, and perhaps its host."""
    agent = f"s{chance.randrange(master.engine.agents)}"
    call = contract.UpdateAgent(agent_id=agent)
    if chance.random() < 0.5:
        slave = mesos.SlaveInfo.FromString(agent_call(agent, "cpus:1").info)
        slave.hostname = f"s{chance.randrange(len(AGENTS))}.example"
        call.info = slave.SerializeToString()
    call.excluded.exclusions.extend(
        contract.Exclusion(framework_id=name, role=role)
        for name in sorted(known)
        for role in ("a", "b")
        if chance.random() < 0.2
    )
    return call


def events(
    master: MasterSide, chance: Random, offers: list[Offered], known: set[str]
) -> Iterator[object]:
    """Yield calls of the master that change all facts about one framework's clients."""
    framework = f"f{chance.randrange(6)}"
    data = subscription(framework, chance)
    if framework not in known:
        known.add(framework)
        yield contract.AddFramework(
            framework_id=framework, info=data, active=True, excluded=excluding(chance)
        )
    kind = chance.randrange(13)
    if kind == 0:
        known.discard(framework)
        offers[:] = [offer for offer in offers if offer.framework != framework]
        yield contract.RemoveFramework(framework_id=framework)
    elif kind == 1:
        roles = chance.choice([[], ["a"]])
        yield contract.UpdateFramework(
            framework_id=framework, info=data, suppressed_roles=roles, excluded=excluding(chance)
        )
    elif kind == 2:
        yield contract.SuppressOffers(framework_id=framework, roles=chance.choice([[], ["a"]]))
    elif kind == 3:
        yield contract.ReviveOffers(framework_id=framework)
    elif kind in {4, 5}:
        call = contract.ActivateFramework if kind == 4 else contract.DeactivateFramework
        yield call(framework_id=framework)
    elif kind == 6 and master.engine.agents < len(AGENTS):
        number = master.engine.agents
        yield agent_call(f"s{number}", AGENTS[number])
    elif kind in {10, 11} and master.engine.agents:
        yield changed_agent(master, chance, known)
    elif offers:
        offer = offers.pop(chance.randrange(len(offers)))
        filters = mesos.Filters(refuse_seconds=chance.choice([1.0, 100.0])).SerializeToString()
        yield contract.RecoverResources(
            framework_id=offer.framework,
            agent_id=offer.agent,
            resources=offer.messages,
            filters=filters,
        )


@pytest.mark.interpreted
@pytest.mark.parametrize("seed", range(12))
def test_the_index_after_each_message_equals_a_new_index(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    update, compared = ClientIndex.update_in_steps, 0

    def checked(index: ClientIndex) -> Cooperative[None]:
        nonlocal compared
        yield from update(index)
        new = ClientIndex(index._ledger, index._filters, index._default)
        new.counted = index.counted
        yield from update(new)
        assert content(index) == content(new)
        for agent in index._ledger.agents:
            if chance.random() < 0.7:
                assert index.excluded_from(agent) == new.excluded_from(agent)
                assert index.excluded_from(agent) == excluded(index, agent)
        for capacity in map(Quantities.parse, CAPACITIES):
            if index._ledger.floor.knows(capacity):
                for default in ((), (Quantities.parse("cpus:2"), Quantities.parse("mem:10"))):
                    expected = unreached(index, capacity, default)
                    assert index.unreached(capacity, default) == expected
            assert index.fitting(capacity) == new.fitting(capacity)
        compared += bool(index.wanting)

    monkeypatch.setattr(ClientIndex, "update_in_steps", checked)
    chance, master = Random(seed), MasterSide("sdrf", {"half_life": 60.0})
    master.settings = replace(master.settings, skips_refusing_clients=True)
    master.engine = Engine(master.settings)
    master.restore(contract.Snapshot(time_ns=master.now_ns))
    offers, known = list[Offered](), set[str]()
    master.send(agent_call("s0", AGENTS[0]))
    for _ in range(100):
        offers += master.send(*events(master, chance, offers, known))
        offers += master.tick() if chance.random() < 0.5 else []
    assert not master.engine.statistics.faults
    assert compared > 50


@pytest.mark.parametrize("seed", range(4))
def test_amounts_in_intervals_are_found_as_in_one_list(seed: int) -> None:
    chance, amounts, known = Random(seed), Amounts(), dict[ClientMask, int]()
    for highest, most in [(5, 900), (4000, 900), (4000, 90), (60, 10), (10**6, 900), (1, 0)]:
        for number in chance.choices([1, 3, 90], k=40):
            for _ in range(number):
                bit = 1 << chance.randrange(1000)
                if bit in known:
                    clients, amount = amounts.change(known[bit]), known.pop(bit)
                    clients[amount] &= ~bit
                    if not clients[amount]:
                        del clients[amount]
                elif len(known) < most:
                    amount = known[bit] = chance.randrange(1, highest + 1)
                    clients = amounts.change(amount)
                    clients[amount] = clients.get(amount, 0) | bit
            run_to_completion(amounts.renew())
            clients = dict[int, ClientMask]()
            for bit, amount in known.items():
                clients[amount] = clients.get(amount, 0) | bit
            assert by_amount(amounts) == clients
            assert amounts.clients == sum(known)
            assert not known or amounts.least == min(clients)
            for amount in (-2, 0, *chance.sample(sorted(clients), min(len(clients), 3))):
                for capacity in (amount, amount + 1):
                    beyond = sum(bit for bit, needed in known.items() if needed > capacity)
                    assert amounts.beyond(capacity) == beyond
            assert len(amounts._intervals) <= 1 + 2 * len(clients) // 64


def minimums_of_its_own(framework: str, number: int) -> bytes:
    """Return a FrameworkInfo with minimum offers of its own, too large for each agent."""
    roles = [f"{framework}-{role}" for role in range(4)]
    minimums = [{"cpus": 1000.0 + number}]
    return with_minimums(framework, dict.fromkeys(roles, minimums))


def absent(framework: str, number: int) -> bytes:
    """Return a FrameworkInfo with tasks for many absent resources."""
    demand = ";".join(f"none{name}:{1 + number}" for name in range(20))
    return info(framework, [f"{framework}-{role}" for role in range(4)], {"demand": demand})


def too_large(framework: str, number: int) -> bytes:
    """Return a FrameworkInfo whose tasks need more than any agent has."""
    demand = f"cpus:{1000 + number}"
    return info(framework, [f"{framework}-{role}" for role in range(4)], {"demand": demand})


Describe = Callable[[str, int], bytes]


def crowded(describe: Describe, frameworks: int) -> MasterSide:
    """Return the master of a cluster with one agent, and frameworks with too large tasks."""
    master = MasterSide("sdrf", {"half_life": 3600.0}, min_allocatable=())
    master.send(agent_call("s", "cpus:4;mem:4096"))
    for number in range(frameworks):
        name = f"x{number}"
        call = contract.AddFramework(framework_id=name, info=describe(name, number), active=True)
        assert master.send(call) == []
    master.tick()
    return master


@pytest.mark.parametrize("describe", [absent, too_large, minimums_of_its_own])
def test_a_revival_costs_the_same_however_many_frameworks_fit_nowhere(describe: Describe) -> None:
    def cost(frameworks: int) -> int:
        master = crowded(describe, frameworks)

        def revive() -> None:
            master.send(contract.SuppressOffers(framework_id="x0"))
            master.send(contract.ReviveOffers(framework_id="x0"))

        revive()  # computes the shares of all new users
        return counted(revive)

    cost(2)  # fills the caches
    assert cost(240) < cost(80) + 40, "fewer calls than amounts"


@pytest.mark.interpreted
@pytest.mark.parametrize("describe", [absent, too_large])
def test_masks_of_frameworks_that_fit_nowhere_share_one_object_a_client(
    describe: Describe, monkeypatch: pytest.MonkeyPatch
) -> None:
    update, indexes = ClientIndex.update_in_steps, list[ClientIndex]()

    def kept(index: ClientIndex) -> Cooperative[None]:
        indexes.append(index)
        yield from update(index)

    monkeypatch.setattr(ClientIndex, "update_in_steps", kept)
    crowded(describe, 100)
    own = sum(bit.bit_length() for bit in indexes[-1].client)
    assert bits(content(indexes[-1])) < 3 * own


def bits(*roots: object) -> int:
    """Return the number of bits of all different integers in collections."""
    integers, waiting = dict[int, int](), list(roots)
    while waiting:
        item = waiting.pop()
        if isinstance(item, int):
            integers[id(item)] = item.bit_length()
        elif isinstance(item, dict):
            waiting += [*item, *item.values()]
        elif isinstance(item, list | tuple):
            waiting += item
    return sum(integers.values())


def test_a_framework_whose_resource_comes_with_a_new_agent_is_offered_the_agent() -> None:
    master = crowded(absent, 2)
    names = ";".join(f"none{name}:2" for name in range(20))
    offers = master.send(agent_call("new", names), contract.Tick())
    assert [offer.agent for offer in offers] == ["new", "new"]
