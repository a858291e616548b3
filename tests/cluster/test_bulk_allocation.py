"""Bulk allocation gives each client as many tasks as progressive filling of shared agents."""

from collections import Counter
from dataclasses import dataclass, replace
from random import Random
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.cluster.allocation.bulk_allocation import AgentGroup, BulkAllocator
from allocator.cluster.allocation.fair_share_stage import PlacedTasks
from allocator.cluster.engine import Engine
from allocator.cluster.input.limits import Limits
from allocator.cluster.settings import EngineSettings
from allocator.contract import allocator_pb2 as contract
from allocator.contract import mesos_pb2 as mesos
from allocator.cooperative import Cooperative
from allocator.fairness import policies
from allocator.fairness.standing import Standing
from allocator.users.settings import DeclaredUser
from tests.cluster.master_side import SECOND, START_NS, agent_call, framework_info, resources
from tests.cluster.test_progressive_filling import POLICIES, ROLES
from tests.examples import examples

WHOLE = [name for name in POLICIES if name != "per-machine-drf"]
SIZES = ["cpus:4;mem:4096", "cpus:16;mem:65536;disk:64", "cpus:3.3;mem:777", "cpus:0.5;mem:64"]
DEMANDS = ["cpus:1;mem:256", "cpus:0.3;mem:16", "cpus:0.001", "mem:100", "cpus:0.25;disk:1;mem:32"]
OPTIONS = contract.Options(
    allocation_interval_ns=SECOND,
    tells_running=True,
    min_allocatable=[
        contract.Quantities(amounts={"cpus": 0.001}),
        contract.Quantities(amounts={"mem": 1.0}),
    ],
)


@dataclass
class Out:
    """Result of an allocation cycle."""

    offers: Counter[tuple[str, str]]
    """Number of offers by framework and role."""
    cpus: Counter[tuple[str, str]]
    """Offered CPUs in thousandths, by framework and role."""
    mem: Counter[tuple[str, str]]
    agents: Counter[str]
    """Number of offers that contain each agent."""
    standings: list[Standing[str]]


def allocated(made: EngineSettings, snapshot: contract.Snapshot, second: contract.Events) -> Out:
    """Return the offers after the snapshot and after the second message."""
    engine = Engine(made)
    out = Out(Counter(), Counter(), Counter(), Counter(), [])
    for decisions in (engine.restore(OPTIONS, snapshot), engine.apply(second)):
        for offers in decisions.offers:
            for offer in offers.offers:
                client = offers.framework_id, offer.role
                out.offers[client] += 1
                out.agents[offer.agent_id] += 1
                for data in offer.resources:
                    resource = mesos.Resource.FromString(data)
                    amount = round(1000 * resource.scalar.value)
                    out.cpus[client] += amount * (resource.name == "cpus")
                    out.mem[client] += amount * (resource.name == "mem")
    out.standings = engine.standings()
    return out


def agent(number: int, size: str, *, used: bool, disk: str = "") -> contract.AddAgent:
    held = {"f0": resources("cpus:0.2;mem:32", "a")} if used else {}
    return agent_call(f"s{number}", size + disk, held)


def drawn(chance: Random) -> EngineSettings:
    """Return settings with any policy that uses bulk allocation, and any user key."""
    policy = chance.choice(WHOLE)
    return EngineSettings(
        policies.create(policy, POLICIES[policy]),
        user_key=chance.choice(["role", "role", "framework"]),
        users=tuple(
            DeclaredUser(role, chance.choice([0.5, 1.0, 2.0]), chance.choice([0.0, 0.1, 0.3]))
            for role in chance.sample(["a", "b", "c", "d"], chance.randrange(4))
        ),
    )


def world(chance: Random) -> tuple[EngineSettings, contract.Snapshot, contract.Events]:
    """Return an engine's settings, its snapshot, and the message that follows the snapshot."""
    made = replace(drawn(chance), limits=Limits(smallest_demand=chance.choice([0.0, 0.02])))
    demand = chance.choice(DEMANDS)
    snapshot = contract.Snapshot(time_ns=START_NS, leading_since_ns=1)
    roles = ["a", *chance.sample(ROLES, chance.randrange(1, 5))]
    for number in range(chance.randrange(1, 7)):
        info = mesos.FrameworkInfo.FromString(framework_info(f"f{number}", chance.choice(roles)))
        if number == 0:
            info.roles[:] = ["a"]
        info.labels.labels.add(key="longshare.demand", value=demand)
        snapshot.frameworks.add(
            framework_id=f"f{number}", info=info.SerializeToString(), active=True
        )
    few = chance.sample(SIZES, chance.randrange(1, len(SIZES)))
    agents = [
        agent(number, chance.choice(few), used=chance.random() < 0.3)
        for number in range(chance.randrange(2, 9))
    ]
    if chance.random() < 0.3:
        agents[0] = agent(0, "cpus:4;mem:4096;ports:[1-9];cpus(b):1", used=False)
    snapshot.agents.extend(agents)
    later = contract.Events()
    for number in range(3):
        event = later.events.add(sequence=number + 1, time_ns=START_NS + SECOND)
        event.add_agent.CopyFrom(agent(20 + number, chance.choice(few), used=False))
    return made, snapshot, later


def none_dealt(
    _dealing: BulkAllocator, _hand: AgentGroup
) -> Cooperative[dict[str, list[PlacedTasks]]]:
    yield
    return {}


@pytest.mark.slow
@given(st.integers(0, 2**32))
@examples(30)
def test_bulk_allocation_gives_each_client_as_much_as_shared_agents_would(seed: int) -> None:
    made, snapshot, later = world(Random(seed))
    made = replace(made, whole_from=2)
    dealt = allocated(made, snapshot, later)
    with patch.object(
        BulkAllocator, "allocate_group", none_dealt
    ):  # But the order of clients is the same.
        shared = allocated(made, snapshot, later)
    assert (dealt.cpus, dealt.mem) == (shared.cpus, shared.mem)
    assert dealt.standings == shared.standings


def cluster(
    agents: int, frameworks: int, demand: str = "cpus:1;mem:1024"
) -> tuple[EngineSettings, contract.Snapshot]:
    """Return settings with bulk allocation from two agents on, and agents for 16 tasks each."""
    snapshot = contract.Snapshot(time_ns=START_NS, leading_since_ns=1)
    for number in range(agents):
        snapshot.agents.append(agent_call(f"s{number}", "cpus:16;mem:65536", {}))
    for number in range(frameworks):
        info = mesos.FrameworkInfo.FromString(framework_info(f"f{number}", f"r{number}"))
        info.labels.labels.add(key="longshare.demand", value=demand)
        snapshot.frameworks.add(
            framework_id=f"f{number}", info=info.SerializeToString(), active=True
        )
    made = EngineSettings(policies.create("sdrf", {"half_life": 60.0}), whole_from=2)
    return made, snapshot


def test_there_are_about_as_many_offers_as_agents() -> None:
    made, snapshot = cluster(30, 20)
    out = allocated(made, snapshot, contract.Events())
    assert sum(out.cpus.values()) == 30 * 16_000
    assert set(out.cpus.values()) == {24_000}
    assert sum(out.offers.values()) <= 30 + 20
    shared = allocated(replace(made, whole_from=0), snapshot, contract.Events())
    assert sum(shared.offers.values()) == 30 * 16


@pytest.mark.parametrize("minima", [[], [{}], [{}, {"mem": 1.0}]])
def test_agents_are_allocated_in_bulk_if_no_minimum_binds(
    minima: list[dict[str, float]],
) -> None:
    made, snapshot = cluster(0, 20)
    for number in range(30):
        snapshot.agents.append(agent_call(f"s{number}", "cpus:15;mem:65536", {}))
    least = [contract.Quantities(amounts=amounts) for amounts in minima]
    decisions = Engine(made).restore(contract.Options(min_allocatable=least), snapshot)
    assert sum(len(offer.offers) for offer in decisions.offers) <= 30 + 20


def test_an_outstanding_offer_limit_causes_no_more_offers() -> None:
    made, snapshot = cluster(30, 20)
    made = replace(made, limits=replace(made.limits, unanswered=0.9))
    assert sum(allocated(made, snapshot, contract.Events()).offers.values()) <= 30 + 20


def test_one_free_agent_is_allocated_in_bulk_if_the_setting_is_one() -> None:
    made, snapshot = cluster(30, 20)
    out = allocated(replace(made, whole_from=1), snapshot, contract.Events())
    assert sum(out.offers.values()) <= 30 + 20


@pytest.mark.parametrize("why", ["quota", "holds", "per machine"])
def test_agents_are_shared_if_each_must_be_examined_separately(why: str) -> None:
    made, snapshot = cluster(6, 4, "cpus:1;mem:64")
    match why:
        case "quota":
            snapshot.limited_quotas.add(role="r0").limits.amounts["cpus"] = 2.0
        case "holds":
            made = replace(made, hold_for="one")
        case _:
            made = replace(made, policy=policies.create("per-machine-drf", {}))
    decisions = [
        Engine(replace(made, whole_from=number)).restore(OPTIONS, snapshot) for number in (2, 0)
    ]
    assert decisions[0] == decisions[1]
    assert sum(len(offer.offers) for offer in decisions[0].offers) > 6 + 4


def test_reserved_resources_come_with_the_tasks_on_their_agents() -> None:
    made, snapshot = cluster(0, 20)
    for number in range(30):
        snapshot.agents.append(agent_call(f"s{number}", "cpus:16;mem:65536;cpus(r0):1", {}))
    out = allocated(made, snapshot, contract.Events())
    assert sum(out.cpus.values()) == 30 * 17_000


def test_fewer_agents_than_the_setting_are_shared() -> None:
    made, snapshot = cluster(3, 16)
    assert sum(allocated(made, snapshot, contract.Events()).offers.values()) < 3 * 16
    shared = allocated(replace(made, whole_from=4), snapshot, contract.Events())
    assert sum(shared.offers.values()) == 3 * 16


def test_bulk_allocation_obeys_the_outstanding_offer_limit() -> None:
    made, snapshot = cluster(8, 1)
    made = replace(made, limits=replace(made.limits, unanswered=0.5))
    out = allocated(made, snapshot, contract.Events())
    assert sum(out.cpus.values()) == 4 * 16_000
