"""A framework that does not answer its offers leaves the rest of the cluster to others."""

import pytest

from allocator.cluster.frameworks import Client
from allocator.cluster.limits import Limits
from allocator.cluster.steps import finished
from allocator.contract import allocator_pb2 as contract
from allocator.contract import mesos_pb2 as mesos
from tests.cluster.conformance.quota_side import freed
from tests.cluster.master_side import MasterSide, Offered, framework_info, resources

HALF = Limits(unanswered=0.5)
AGENTS = 10


def cluster(limits: Limits = HALF, *, tells: bool = True) -> MasterSide:
    master = MasterSide(limits=limits)
    master.options.tells_running = tells
    master.restore(contract.Snapshot(time_ns=master.now_ns))
    for number in range(AGENTS):
        master.add_agent(f"s{number}", "cpus:4;mem:4096")
    return master


def launch(master: MasterSide, offers: list[Offered]) -> list[Offered]:
    """A framework uses all of its offers."""
    return master.send(
        *(
            contract.TransitionOfferedToAllocated(
                framework_id=offer.framework,
                agent_id=offer.agent,
                resources=resources("cpus:4;mem:4096", offer.role),
            )
            for offer in offers
        )
    )


def reason(master: MasterSide, framework: str, role: str) -> str:
    why = finished(finished(master.engine.survey()).look(Client(role, framework)))
    assert why is not None
    return why.reason


@pytest.mark.parametrize(("part", "most"), [(0.01, 1), (0.25, 3), (0.5, 5), (0.51, 6), (1.0, 10)])
def test_a_framework_is_offered_no_more_than_its_part_and_the_agent_that_reaches_it(
    part: float, most: int
) -> None:
    assert len(cluster(Limits(unanswered=part)).add_framework("hoarder", "a")) == most


def test_without_a_bound_who_has_been_offered_all_of_one_resource_is_offered_others() -> None:
    master = cluster(Limits(unanswered=1.0))
    master.add_framework("hoarder", "a")
    assert [offer.framework for offer in master.add_agent("memory", "mem:4096")] == ["hoarder"]


def test_who_comes_later_is_offered_at_once_what_is_left() -> None:
    master = cluster()
    master.add_framework("hoarder", "a")
    assert len(master.add_framework("good", "b")) == AGENTS / 2
    assert master.tick() == []


def test_whoever_answers_gets_the_rest_in_the_next_batch() -> None:
    master = cluster()
    offers = master.add_framework("lone", "a")
    assert reason(master, "lone", "a") == "unanswered"
    assert not master.tick()
    more = launch(master, offers) + master.tick()
    assert {offer.agent for offer in (*offers, *more)} == {f"s{n}" for n in range(AGENTS)}


def test_who_has_left_offers_unanswered_costs_nobody_else_anything() -> None:
    master = cluster()
    back = [freed(offer) for offer in master.add_framework("early", "a")]
    master.send(contract.SuppressOffers(framework_id="early"), *back)
    assert len(master.add_framework("hoarder", "b")) == AGENTS / 2
    assert len(master.send(contract.ReviveOffers(framework_id="early"))) == AGENTS / 2


def test_what_there_is_none_of_any_more_is_no_part_of_anything() -> None:
    master = MasterSide(limits=HALF)
    master.options.tells_running = True
    master.restore(contract.Snapshot(time_ns=master.now_ns))
    master.add_framework("lone", "a")
    assert len(master.add_agent("s0", "disk:1;mem:64")) == 1
    for number in range(4):
        assert master.add_agent(f"t{number}", "mem:64") == [], "it has all disks"
    total = contract.ResourceList(resources=resources("mem:64"))
    info = mesos.SlaveInfo(hostname="h").SerializeToString()
    master.send(contract.UpdateAgent(agent_id="s0", info=info, total=total))
    assert len(master.tick()) == 2, "half of five agents, and the one that reaches that"


def test_declining_is_an_answer() -> None:
    master = cluster()
    for offer in master.add_framework("lone", "a"):
        master.recover(offer, refuse_seconds=100.0)
    assert len(master.tick()) == AGENTS / 2


def test_roles_of_a_framework_count_together() -> None:
    master = cluster()
    assert len(master.add_framework("hoarder", "a", "b", "c")) == AGENTS / 2


def test_tasks_of_a_known_demand_are_bounded_likewise() -> None:
    master = cluster()
    info = mesos.FrameworkInfo.FromString(framework_info("hoarder", "a"))
    info.labels.labels.add(key="longshare.demand", value="cpus:1;mem:1024")
    hoarder = contract.AddFramework(
        framework_id="hoarder", info=info.SerializeToString(), active=True
    )
    assert len(master.send(hoarder)) == AGENTS / 2


def test_what_is_only_offered_is_not_known_before_mesos_1_10() -> None:
    assert len(cluster(tells=False).add_framework("hoarder", "a")) == AGENTS
