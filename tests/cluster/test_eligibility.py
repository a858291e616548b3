"""Sets of eligible clients compared with a separate question for each client and agent."""

from collections.abc import Iterator, Sequence
from random import Random
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
from typing_extensions import override

from allocator.cluster.agents.agent import Agent
from allocator.cluster.allocation import Allocator
from allocator.cluster.allocation.answer import Answer
from allocator.cluster.allocation.bulk_allocation import Eligibility
from allocator.cluster.allocation.client_index import ClientIndex
from allocator.cluster.allocation.client_order import (
    ClientOrder,
    CycleSorters,
    LocalSorterSnapshot,
)
from allocator.cluster.allocation.progressive_filling import ClientTask
from allocator.cluster.engine import Engine
from allocator.cluster.engine.allocation_cycle import AllocationCycle
from allocator.cluster.frameworks.framework import Client
from allocator.cluster.settings import EngineSettings
from allocator.cluster.state import Cluster
from allocator.contract import allocator_pb2 as contract
from allocator.cooperative import Cooperative, run_to_completion
from allocator.fairness import policies
from allocator.fairness.pool import Pool
from allocator.fairness.quantities import Quantities
from allocator.fairness.sorter_snapshot import SorterSnapshot
from tests.cluster.master_side import START_NS, agent_call
from tests.cluster.one_by_one import order as next_first
from tests.cluster.test_bulk_allocation_task_shapes import framework, keeping_off
from tests.examples import scaled

DEMANDS = ["cpus:1;mem:256", "cpus:0.3", "cpus:2", "mem:3000", "cpus:2;disk:1", ""]
ROOMS = [{}, {"cpus": 300}, {"cpus": 999, "mem": 10**7}, {"cpus": 2000, "mem": 256_000, "disk": 10}]


def known(seed: int) -> Cluster:
    """Return a cluster with random frameworks, filters and constraints."""
    chance = Random(seed)
    snapshot = contract.Snapshot(time_ns=START_NS)
    for number in range(chance.randrange(1, 8)):
        roles = chance.sample(["a", "b", "a/b"], chance.randrange(1, 3))
        info = framework(f"f{number}", roles, chance.choice(DEMANDS))
        if chance.random() < 0.5:
            info = keeping_off(info, [f"s{chance.randrange(3)}.example"])
        suppressed = roles[:1] if chance.random() < 0.2 else []
        snapshot.frameworks.add(
            framework_id=f"f{number}", info=info, active=True, suppressed_roles=suppressed
        )
    for number in range(3):
        call = agent_call(f"s{number}", "cpus:4;mem:4096;disk:9")
        for entry in snapshot.frameworks:
            if chance.random() < 0.2:
                call.excluded.exclusions.add(framework_id=entry.framework_id, role="a")
        snapshot.agents.append(call)
    kept: list[Cluster] = []

    class Kept(Allocator):
        @override
        def run(self, agents: Sequence[Agent], answer: Answer) -> Cooperative[int]:
            kept.append(self._cluster)
            yield
            return 0

    with patch.object(AllocationCycle, "allocator", Kept):
        Engine(EngineSettings(policies.create("drf", {}))).restore(contract.Options(), snapshot)
    return kept[-1]


def test_sets_of_eligible_clients_equal_separate_questions() -> None:
    for seed in range(scaled(60)):
        cluster, chance = known(seed), Random(seed)
        ledger = cluster.ledger
        cluster.filters.slot(Client("a", "gone"))  # The first bit belongs to a removed client.
        index = ClientIndex(ledger, cluster.filters)
        index.update()
        clients = list(ledger.clients.wanting_offers)
        tasks = {client: ledger.unit_demand(client) for client in clients}

        def among(mask: int, index: ClientIndex = index) -> set[Client]:
            assert not mask & ~index.wanting
            return {client for bit, client in index.client.items() if mask & bit}

        assert index.wanting == sum(index.client)
        assert among(index.wanting) == set(clients) == set(index.bit)
        assert among(index.unknown_demand) == {
            client for client in clients if tasks[client] is None
        }
        for agent in ledger.agents:
            off = {client for client in clients if not ledger.admits(client, agent)}
            assert among(index.excluded_from(agent)) == off
        for guaranteed in ((), ("a",), ("a", "a/b")):
            rest = {client for client in clients if client.role not in guaranteed}
            assert among(index.without_roles(guaranteed)) == rest
        needs = [task for task in tasks.values() if task is not None]
        for _ in range(5):
            room = dict(chance.choice(ROOMS))
            for name in room:
                room[name] += chance.choice([-1, 0, 1])
            fitting = {
                client
                for client, task in tasks.items()
                if task and all(room.get(name, 0) >= much for name, much in task.items())
            }
            assert among(index.fitting(room)) == fitting
            pairs = [need + second_need for need in needs for second_need in needs]
            two = any(all(room.get(n, 0) >= much for n, much in pair.items()) for pair in pairs)
            assert index.room_for_two(room) or not two
        plenty = dict.fromkeys(("cpus", "mem", "disk"), 10**9)
        for name in plenty:
            least = min((task[name] for task in needs), default=0)
            if least:
                assert index.room_for_two({**plenty, name: 2 * least})
                assert not index.room_for_two({**plenty, name: 2 * least - 1})


def test_the_next_client_in_a_cycle_is_the_next_after_immediate_booking() -> None:
    for seed in range(scaled(60)):
        chance = Random(seed)
        within, plain = known(seed), known(seed).ledger.clients
        clients = within.ledger.clients
        sorters, index = CycleSorters(clients), ClientIndex(within.ledger, within.filters)
        index.update()
        order = ClientOrder(clients, sorters, index)
        agent = next(iter(within.ledger.agents.values()))
        for _ in range(8):
            if not index.wanting:
                break
            client = chance.choice(list(index.bit))
            gift = Quantities({"cpus": chance.choice([1, 500]), "mem": chance.choice([0, 9000])})
            sorters.allocate(client, gift, 1)
            plain.allocate(client, gift)
            assert list(order.clients(agent, index.wanting)) == list(next_first(plain.users))
            eligible = sum(bit for bit in index.client if chance.random() < 0.5)
            assert order.first(agent, eligible) == next(order.clients(agent, eligible), None)
        sorters.commit()
        assert clients.users.standings() == plain.users.standings()
        for client in clients:
            user, plain_node = clients.node(client), plain.node(client)
            assert user.clients.holding(client) == plain_node.clients.holding(client)


class Refused:
    """Offer filters: declined amounts, by agent."""

    def __init__(self, on: dict[str, list[tuple[int, int]]]) -> None:
        self._on = on

    def declined_on(self, agent: str) -> Iterator[tuple[int, Any]]:
        for mask, size in self._on[agent]:
            yield mask, SimpleNamespace(plain=SimpleNamespace(divisible={"cpus": size}))


@pytest.mark.interpreted
def test_a_client_that_declined_parts_gets_more_than_it_declined_on_half_its_agents() -> None:
    clients = [Client("r", f"f{number}") for number in range(3)]
    bit = {client: 1 << number for number, client in enumerate(clients)}
    everybody = sum(bit.values())
    for seed in range(scaled(300)):
        chance = Random(seed)
        free = {f"s{number}": chance.randrange(3, 12) for number in range(chance.randrange(1, 7))}
        odd = chance.choice(clients)
        agents: list[Any] = [
            SimpleNamespace(
                id=name,
                available=SimpleNamespace(divisible={"cpus": size}),
                has_gpus=chance.random() < 0.3,
                region=None,
                multi_role=True,
                hierarchical_role=True,
            )
            for name, size in free.items()
        ]
        refused = {
            name: [
                (chance.randrange(everybody + 1), chance.randrange(1, size + 2))
                for _ in range(chance.randrange(3))
            ]
            for name, size in free.items()
        }
        unknown = chance.choice([0, 0, bit[clients[0]]])
        tasks = {
            client: ClientTask({"cpus": chance.choice([1, 2])}, Quantities()) for client in clients
        }
        if chance.random() < 0.5:
            tasks[clients[1]] = tasks[clients[2]]
        fewest = {
            client: (tasks[client], chance.randrange(1, 3))
            for client in clients
            if chance.random() < 0.9
        }
        may = [chance.choice([everybody, chance.randrange(everybody + 1)]) for _ in agents]
        index: Any = SimpleNamespace(
            bit=bit, client={mask: client for client, mask in bit.items()}, unknown_demand=unknown
        )
        books: Any = SimpleNamespace(
            usable=lambda agent, client: None if agent.has_gpus and client == odd else agent  # noqa: B023
        )
        expected = [0] * len(agents)
        raised = dict(fewest)
        for client, (task, least) in fewest.items():
            needed: dict[int, int] = {}
            for place, agent in enumerate(agents):
                if not may[place] & bit[client] or books.usable(agent, client) is None:
                    continue
                asked = [
                    size // task.needs["cpus"] + 1
                    for mask, size in refused[agent.id]
                    if mask & bit[client] and not bit[client] & unknown
                ]
                if max(asked, default=0) * task.needs["cpus"] <= free[agent.id]:
                    needed[place] = max([least, *asked])
            if needed:
                most = sorted(needed.values())[(len(needed) - 1) // 2]
                raised[client] = task, most
                for place, number in needed.items():
                    expected[place] |= bit[client] * (number <= most)
        taking = Eligibility(Refused(refused), books, index)  # type: ignore[arg-type]
        assert run_to_completion(taking.find_eligible(agents, may, fewest)) == expected
        assert fewest == raised


def test_on_a_machine_clients_without_an_allocation_there_come_first_then_by_share() -> None:
    machine = Quantities.parse("cpus:8;mem:800")
    for seed in range(scaled(60)):
        chance = Random(seed)
        pool = Pool[str](policies.create("per-machine-drf", {}))
        pool.set_capacity(Quantities.parse("cpus:80;mem:8000"))
        for user in "abcde":
            pool.add(user, weight=chance.choice([1.0, 1.0, 2.0]))
            pool.set_active(user, True)
            pool.hold(user, Quantities({"cpus": 1000 * chance.randrange(3)}), chance.randrange(3))
        held = {
            user: Quantities({"cpus": 1000 * chance.randrange(1, 4), "mem": 100_000})
            for user in "abcde"
            if chance.random() < 0.6
        }
        held["c"] = Quantities({"ports": 1000})  # Ports do not count in the share.
        local = LocalSorterSnapshot(SorterSnapshot(pool), pool, machine, held)
        assert list(local) == list(pool.order_on(machine, held))
        sorters = list(local)
        assert sorted(sorters, key=lambda user: local.sort_key(user).position) == sorters
        added = Quantities({"mem": 50_000})
        for user in "abcde":
            then = LocalSorterSnapshot(
                local.snapshot, pool, machine, {**held, user: held.get(user, Quantities()) + added}
            )
            local_key = local.sort_key_after(user, added, 1)
            assert local_key.position[:2] == then.sort_key(user).position[:2]
            assert local_key.position > local.sort_key(user).position
