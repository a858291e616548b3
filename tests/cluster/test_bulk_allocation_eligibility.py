"""Bulk allocation if some clients cannot use some agents, or have declined parts of them."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from random import Random

import pytest

from allocator.cluster.engine import Engine
from allocator.contract import allocator_pb2 as contract
from allocator.contract import mesos_pb2 as mesos
from tests.cluster.master_side import MasterSide, Offered, agent_call, resources
from tests.cluster.test_bulk_allocation import allocated
from tests.cluster.test_bulk_allocation_task_shapes import cluster, framework
from tests.cluster.test_hopeless_clients import with_minimums


def master_of(*frameworks: contract.AddFramework) -> MasterSide:
    """Return a master without agents; recovered resources are offered with the next tick."""
    master = MasterSide("sdrf", {"half_life": 60.0})
    master.engine = Engine(replace(master.settings, whole_from=20, allocation="batch"))
    master.restore(contract.Snapshot(time_ns=master.now_ns))
    master.send(*frameworks)
    return master


def joining(name: str, demand: str) -> contract.AddFramework:
    """Return the call that adds a framework with its own role."""
    info = framework(name, [f"r-{name}"], demand)
    return contract.AddFramework(framework_id=name, info=info, active=True)


def back(offer: Offered, refuse_seconds: float) -> contract.RecoverResources:
    """Return the call that declines an offer."""
    return contract.RecoverResources(
        framework_id=offer.framework,
        agent_id=offer.agent,
        resources=offer.messages,
        filters=mesos.Filters(refuse_seconds=refuse_seconds).SerializeToString(),
    )


def got_of(offer: Offered) -> int:
    """Return the CPUs of an offer in thousandths."""
    return processors([offer]).total()


def processors(offers: Iterable[Offered]) -> Counter[str]:
    """Return offered CPUs in thousandths, by framework."""
    processors = Counter[str]()
    for offer in offers:
        for data in offer.messages:
            resource = mesos.Resource.FromString(data)
            processors[offer.framework] += round(1000 * resource.scalar.value) * (
                resource.name == "cpus"
            )
    return processors


LARGE = "cpus:64;mem:65536"
SMALL = "cpus:16;mem:65536"
HONEST = [f"f{number}" for number in range(30)]
JOINING = [joining(name, "cpus:0.5") for name in HONEST]


@pytest.mark.parametrize("hostile", [1, 5, 20])
def test_clients_that_decline_some_agents_cost_other_clients_no_offers(hostile: int) -> None:
    chance = Random(hostile)
    master = master_of(*(joining(f"h{number}", "cpus:0.5") for number in range(hostile)))
    offers = master.send(*(agent_call(f"s{number}", LARGE) for number in range(100)))
    refused = dict[tuple[str, str], int]()
    for _ in range(3):
        declined = {offer: chance.choice([0.0, 3600.0]) for offer in offers}
        for offer, seconds in declined.items():
            where = offer.framework, offer.agent
            most = max(got_of(offer) if seconds else 0, refused.get(where, 0))
            refused[where] = most
        master.send(*(back(offer, seconds) for offer, seconds in declined.items()))
        offers = master.tick()
    master.send(*(back(offer, 0.0) for offer in offers))
    offers = master.send(*JOINING)
    assert len(offers) <= 100 + 5 * (30 + hostile)
    got = processors(offers)
    assert sum(got.values()) == 100 * 64_000
    honest = [got[name] for name in HONEST]
    assert max(honest) - min(honest) <= 2_000
    assert all(got[f"h{number}"] <= max(honest) + 2_000 for number in range(hostile))
    for offer in offers:
        assert got_of(offer) > refused.get((offer.framework, offer.agent), 0)


def test_users_with_agents_of_their_own_get_equal_shares_of_common_agents() -> None:
    made, snapshot = cluster([LARGE] * 60, [])
    for number in range(20):
        info = mesos.FrameworkInfo.FromString(framework(f"f{number}", [f"r{number}"], "cpus:1"))
        numbers = range(20, 30) if number < 10 else range(20)
        hosts = ",".join(f"s{agent}.example" for agent in numbers)
        info.labels.labels.add(key="longshare.blacklist", value=hosts)
        snapshot.frameworks.add(
            framework_id=f"f{number}", info=info.SerializeToString(), active=True
        )
    out = allocated(made, snapshot, contract.Events())
    assert out.offers.total() <= 60 + 5 * 20
    assert sum(out.cpus.values()) == 60 * 64_000
    assert max(out.cpus.values()) - min(out.cpus.values()) <= 2_000


def grown(refused: Sequence[str], sizes: Sequence[str]) -> list[Offered]:
    """Return the offers of grown agents; a framework has declined their former resources."""
    master = master_of(joining("picky", "cpus:0.5"))
    small = [agent_call(f"s{number}", text) for number, text in enumerate(refused)]
    master.send(*(back(offer, 3600.0) for offer in master.send(*small)))
    calls: list[object] = []
    for number, size in enumerate(sizes):
        if number < len(refused):
            calls.append(contract.UpdateAgent(agent_id=f"s{number}"))
            calls[-1].total.resources.extend(resources(size))  # type: ignore[attr-defined]
        else:
            calls.append(agent_call(f"s{number}", size))
    return master.send(*calls, *JOINING)


def test_a_client_that_declined_a_part_of_each_agent_gets_its_share_in_larger_offers() -> None:
    refused = [number % 20 + 1 for number in range(100)]
    offers = grown([f"cpus:{cpus};mem:64" for cpus in refused], [LARGE] * 100)
    assert len(offers) <= 100 + 5 * 31
    got = processors(offers)
    assert sum(got.values()) == 100 * 64_000
    assert got["picky"] >= 0.95 * min(got[name] for name in HONEST)
    for offer in offers:
        if offer.framework == "picky":
            assert got_of(offer) > 1000 * refused[int(offer.agent[1:])]


def test_a_client_that_declined_few_agents_gets_its_share_on_the_remaining_agents() -> None:
    offers = grown(["cpus:60;mem:64"] * 10, [LARGE] * 10 + [SMALL] * 90)
    assert len(offers) <= 100 + 5 * 31
    got = processors(offers)
    assert got["picky"] >= 0.95 * min(got[name] for name in HONEST)
    picky = [offer for offer in offers if offer.framework == "picky"]
    assert all(int(offer.agent[1:]) >= 10 or got_of(offer) > 60_000 for offer in picky)


def test_a_declining_client_without_demand_costs_other_clients_no_offers() -> None:
    chance = Random(1)
    master = master_of(joining("whole", ""))
    offers = master.send(*(agent_call(f"s{number}", LARGE) for number in range(100)))
    master.send(*(back(offer, chance.choice([0.0, 3600.0])) for offer in offers))
    offers = master.send(*JOINING)
    assert len(offers) <= 2 * 100 + 3 * 31, "clients without demand take the remaining memory"
    assert processors(offers)["whole"] >= 2 * 64_000


def test_agents_with_ports_take_part_in_bulk_allocation() -> None:
    ports = ["cpus:64;mem:65536;ports:[31000-32000]"] * 60
    made, snapshot = cluster(ports, ["cpus:0.5"] * 20 + ["cpus:0.5;ports:1"] * 10)
    out = allocated(made, snapshot, contract.Events())
    assert out.offers.total() <= 60 + 3 * 30
    assert sum(out.cpus.values()) == 60 * 64_000
    assert max(out.cpus.values()) - min(out.cpus.values()) <= 1_000


def test_a_framework_whose_tasks_never_reach_its_minimum_offer_stops_no_cycle() -> None:
    master = MasterSide()
    master.settings = replace(master.settings, whole_from=2)
    master.engine = Engine(master.settings)
    master.restore(contract.Snapshot(time_ns=master.now_ns))
    for number in range(4):
        master.send(agent_call(f"s{number}", "cpus:8;mem:8192"))
    info = with_minimums("picky", {"p": [{"gpus": 1.0}]}, "cpus:1")
    master.send(contract.AddFramework(framework_id="picky", info=info, active=True))
    assert master.tick() == []
    assert not master.engine.statistics.faults
    assert len(master.add_framework("other", "o")) == 4
