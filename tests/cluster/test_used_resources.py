"""Used resources compared with units that are counted separately."""

import random
from collections import Counter

from allocator.cluster.agents.agent import Agent
from allocator.cluster.agents.used_resources import UsedResources
from allocator.cluster.frameworks.framework import Client
from allocator.cluster.resources import NOTHING, Resources, parse_total
from allocator.contract import mesos_pb2 as mesos
from allocator.fairness.quantities import Quantities
from tests.cluster.conformance.quota_side import disk
from tests.cluster.master_side import resources
from tests.examples import scaled

CLIENTS = (Client("a", "f1"), Client("b", "f1"), Client("a", "f2"))


def bag(units: Counter[str]) -> Resources:
    return parse_total(resources(";".join(f"{name}:{n}" for name, n in units.items() if n)))


def test_used_resources_are_those_of_running_tasks_and_at_most_the_allocation() -> None:
    for seed in range(scaled(200)):
        lot, running = random.Random(seed), UsedResources()
        agents = [
            Agent(name, mesos.SlaveInfo(), frozenset(), parse_total(resources("cpus:9;mem:9")))
            for name in ("s1", "s2")
        ]
        runs = {(agent.id, client): Counter[str]() for agent in agents for client in CLIENTS}
        held = {place: Counter[str]() for place in runs}
        for _ in range(30):
            agent, client = lot.choice(agents), lot.choice(CLIENTS)
            mine, has = runs[agent.id, client], held[agent.id, client]
            taken = Counter({name: lot.randrange(3) for name in ("cpus", "mem")})
            match lot.randrange(3):
                case 0:
                    all_ = all(has[name] - mine[name] >= n for name, n in taken.items())
                    assert running.begin(agent, client, bag(taken)) == all_, seed
                    mine += taken
                    mine &= has
                case 1:
                    running.end(agent.id, client, bag(taken))
                    mine -= taken
                case _:
                    has.clear()
                    has.update(taken)
                    agent.set_held(client.framework, client.role, bag(taken))
                    running.clip(agent, client)
                    mine &= has
            runs[agent.id, client] = mine
            assert running.by_agent == {
                agent.id: places
                for agent in agents
                if (places := {c: bag(runs[agent.id, c]) for c in CLIENTS if runs[agent.id, c]})
            }, seed
            for owner in CLIENTS:
                together = sum((bag(runs[a.id, owner]) for a in agents), NOTHING)
                assert running.of(owner) == together.scalars, seed


def test_used_shared_volumes_are_subtracted_from_the_quantities_apart_from_volumes() -> None:
    for seed in range(20):
        lot, used, client = random.Random(seed), UsedResources(), CLIENTS[0]
        volumes = [disk(2**n, reserved=["a"], volume=f"v{n}", shared=True) for n in range(4)]
        total = parse_total([*volumes, *resources("cpus:9")])
        agents = [Agent(name, mesos.SlaveInfo(), frozenset(), total) for name in ("s1", "s2")]
        for agent in agents:
            agent.set_held(client.framework, client.role, total)
        for _ in range(30):
            agent = lot.choice(agents)
            part = parse_total(lot.sample(volumes, 2) + resources("cpus:1"))
            if lot.randrange(2):
                used.begin(agent, client, part)
            else:
                used.end(agent.id, client, part)
            cpus = used.of(client)["cpus"]
            assert used.apart_from_volumes(client) == Quantities({"cpus": cpus}), seed
        for agent in agents:
            used.end(agent.id, client, used.on(agent.id, client))
        assert not used.volumes
        assert not used._volume_sizes
