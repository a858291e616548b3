"""A framework that leaves offers unanswered leaves the rest of the cluster to other frameworks."""

from random import Random

import pytest

from allocator.cluster.engine.wording import reasons_text
from allocator.cluster.frameworks.framework import Client
from allocator.cluster.input.limits import Limits
from allocator.cluster.reasons import Explanation
from allocator.contract import allocator_pb2 as contract
from allocator.contract import mesos_pb2 as mesos
from allocator.cooperative import run_to_completion
from allocator.fairness.quantities import Quantities
from tests.cluster.conformance.quota_side import freed
from tests.cluster.master_side import (
    MasterSide,
    Offered,
    agent_call,
    framework_info,
    resources,
)
from tests.cluster.test_entitlements import running
from tests.cluster.test_hopeless_clients import lines
from tests.cluster.test_placements import info
from tests.counted import things

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
    """Let a framework use all of its offers."""
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


def why(master: MasterSide, framework: str, role: str) -> Explanation:
    explanation = run_to_completion(
        run_to_completion(master.engine.survey()).explain(Client(role, framework))
    )
    assert explanation is not None
    return explanation


def reason(master: MasterSide, framework: str, role: str) -> str:
    return why(master, framework, role).reason


def explained(master: MasterSide, framework: str, role: str) -> str:
    return reasons_text(why(master, framework, role), 0.0)


@pytest.mark.parametrize(("part", "most"), [(0.01, 1), (0.25, 3), (0.5, 5), (0.51, 6), (1.0, 10)])
def test_a_framework_is_offered_up_to_the_limit_and_the_agent_that_reaches_it(
    part: float, most: int
) -> None:
    assert len(cluster(Limits(unanswered=part)).add_framework("hoarder", "a")) == most


def test_without_a_limit_a_framework_with_all_of_one_resource_is_offered_more() -> None:
    master = cluster(Limits(unanswered=1.0))
    master.add_framework("hoarder", "a")
    assert [offer.framework for offer in master.add_agent("memory", "mem:4096")] == ["hoarder"]


def test_a_later_framework_is_offered_the_rest_at_once() -> None:
    master = cluster()
    master.add_framework("hoarder", "a")
    assert len(master.add_framework("good", "b")) == AGENTS / 2
    assert master.tick() == []


def test_a_framework_that_answers_is_offered_the_rest_in_the_next_batch() -> None:
    master = cluster()
    offers = master.add_framework("lone", "a")
    assert reason(master, "lone", "a") == "unanswered"
    assert not master.tick()
    later_offers = launch(master, offers) + master.tick()
    assert {offer.agent for offer in (*offers, *later_offers)} == {f"s{n}" for n in range(AGENTS)}


def add_of(master: MasterSide, name: str, principal: str, role: str) -> list[Offered]:
    data = framework_info(name, role, principal=principal)
    return master.send(contract.AddFramework(framework_id=name, info=data, active=True))


@pytest.mark.parametrize(("limit", "agents"), [(1.0, 1), (0.75, 2), (0.5, 5)])
def test_the_limit_bounds_many_roles_that_decline_all_offers_at_once_without_a_filter(
    limit: float, agents: int
) -> None:
    """An honest role has tasks on all agents before. Its tasks run for 10 s."""
    master = cluster(Limits(all_unanswered=limit))
    ends = list[tuple[int, Offered]]()
    held = list[tuple[int, Offered]]()

    def answer(offers: list[Offered], now: int) -> None:
        honest = [offer for offer in offers if offer.framework == "good"]
        ends.extend((now + 30, offer) for offer in honest)
        held.extend((now + 1, offer) for offer in offers if offer.framework != "good")
        if honest:
            answer(launch(master, honest), now)

    answer(add_of(master, "good", "ann", "a"), 0)
    answer(master.send(contract.Tick()), 0)
    for number in range(2):
        roles = [f"r{number}-{place}" for place in range(10)]
        data = framework_info(f"evil{number}", *roles, principal="eve")
        call = contract.AddFramework(framework_id=f"evil{number}", info=data, active=True)
        answer(master.send(call), 0)
    running = list[int]()
    for now in range(1, 300):  # thirds of a second
        master.wait(1 / 3)
        for due in [entry for entry in ends if entry[0] <= now]:
            ends.remove(due)
            answer(master.recover(due[1]), now)
        for due in [entry for entry in held if entry[0] <= now]:
            held.remove(due)
            answer(master.recover(due[1], refuse_seconds=0.0), now)
        if now % 3 == 0:
            answer(master.send(contract.Tick()), now)
        running.append(len(ends))
    assert running[0] == AGENTS
    assert min(running[60:]) == agents


@pytest.mark.parametrize(
    ("principals", "most"),
    [(("eve", "eve", "eve"), 8), (("eve", "eve", "ann"), 10), (("", "", ""), 10)],
)
def test_frameworks_of_a_principal_are_offered_up_to_their_common_limit(
    principals: tuple[str, ...], most: int
) -> None:
    """Frameworks without a principal have no common limit."""
    master = cluster(Limits(unanswered=0.5, all_unanswered=0.75))
    offers = [
        offer
        for number, principal in enumerate(principals)
        for offer in add_of(master, f"f{number}", principal, f"r{number}")
    ]
    assert len(offers) == most
    assert reason(master, "f2", "r2") == ("unanswered" if most < AGENTS else "nothing_free")


def test_a_principal_at_its_limit_gets_offers_again_when_a_framework_has_answered() -> None:
    master = cluster(Limits(all_unanswered=0.5))
    first = add_of(master, "a", "eve", "r")
    assert len(first) == AGENTS // 2
    assert not add_of(master, "b", "eve", "s")
    master.send(contract.SuppressOffers(framework_id="a", roles=["r"]))
    assert not master.tick(3.0), "suppressed frameworks keep their outstanding offers"
    assert "another framework of its principal" in explained(master, "b", "s")
    launch(master, first)
    assert len(master.tick(3.0)) == AGENTS // 2


def test_outstanding_offers_of_one_framework_cost_other_frameworks_nothing() -> None:
    master = cluster()
    back = [freed(offer) for offer in master.add_framework("early", "a")]
    master.send(contract.SuppressOffers(framework_id="early"), *back)
    assert len(master.add_framework("hoarder", "b")) == AGENTS / 2
    assert len(master.send(contract.ReviveOffers(framework_id="early"))) == AGENTS / 2


def test_a_resource_that_the_cluster_lost_does_not_count_towards_the_limit() -> None:
    master = MasterSide(limits=HALF)
    master.options.tells_running = True
    master.restore(contract.Snapshot(time_ns=master.now_ns))
    master.add_framework("lone", "a")
    assert len(master.add_agent("s0", "disk:1;mem:64")) == 1
    for number in range(4):
        assert master.add_agent(f"t{number}", "mem:64") == [], "the framework has all disks"
    total = contract.ResourceList(resources=resources("mem:64"))
    data = mesos.SlaveInfo(hostname="h").SerializeToString()
    master.send(contract.UpdateAgent(agent_id="s0", info=data, total=total))
    assert len(master.tick()) == 2, "half of five agents, and the agent that reaches the limit"


def test_declining_is_an_answer() -> None:
    master = cluster()
    for offer in master.add_framework("lone", "a"):
        master.recover(offer, refuse_seconds=100.0)
    assert len(master.tick()) == AGENTS / 2


@pytest.mark.parametrize("reported", [True, False])
@pytest.mark.parametrize("seed", range(6))
def test_outstanding_offers_are_the_allocated_and_unused_resources(
    seed: int, *, reported: bool
) -> None:
    lot, master = Random(seed), cluster(Limits(unanswered=0.9, answered_after=9), tells=reported)
    ledger, known, offers, limited = master.engine._cluster.ledger, set[str](), list[Offered](), 0
    for step in range(80):
        name, roles = f"f{lot.randrange(4)}", lot.sample("abc", lot.randrange(1, 3))
        action = lot.choice(["add", "roles", "remove", "launch", "recover", "agent", "tick"])
        mine = offers.pop(lot.randrange(len(offers))) if offers else None
        if action == "add" and name not in known:
            known.add(name)
            offers += master.add_framework(name, *roles)
        elif action == "roles" and name in known:
            data = framework_info(name, *roles)
            offers += master.send(contract.UpdateFramework(framework_id=name, info=data))
        elif action == "remove" and name in known and lot.random() < 0.3:
            known.remove(name)
            offers = [offer for offer in offers if offer.framework != name]
            master.send(contract.RemoveFramework(framework_id=name))
        elif action == "launch" and mine and reported and mine.framework in known:
            offers += launch(master, [mine])
        elif action == "recover" and mine and mine.framework in known:
            offers += master.recover(mine, lot.choice([None, "cpus:1"]), refuse_seconds=0)
        elif action == "agent":
            used = {name: resources("cpus:2", lot.choice("abc"))}
            offers += master.add_agent(f"t{step}", "cpus:4;mem:4096", used)
        else:
            offers += master.tick(3.0)
        sums = {
            framework: quantities
            for framework in ledger.frameworks
            if (
                quantities := sum(
                    map(ledger.outstanding_of, ledger.clients.of(framework)), Quantities()
                )
            )
        }
        assert ledger.outstanding_offers() == sums, (step, action)
        limited += len(sums)
    assert limited


@pytest.mark.interpreted
def test_frameworks_whose_tasks_use_all_their_resources_cost_a_cycle_nothing() -> None:
    def cost(number: int) -> int:
        master = cluster(Limits(unanswered=0.9))
        for place in range(number):
            roles = [f"x{place}.{role}" for role in range(4)]
            used = {f"x{place}": [data for role in roles for data in resources("cpus:1", role)]}
            master.send(running(f"t{place}", "cpus:4", used))
            data = info(f"x{place}", roles, {"demand": "cpus:1000"})
            add = contract.AddFramework(framework_id=f"x{place}", info=data, active=True)
            assert not master.send(add)
        [offer, *_] = master.add_framework("f", "a")
        master.recover(offer, refuse_seconds=0)
        [offer, *_] = master.tick()
        return lines(lambda: master.recover(offer, refuse_seconds=0))

    few, many = cost(5), cost(25)
    assert abs(many - few) < 20 * 4


def test_roles_of_a_framework_count_together() -> None:
    master = cluster()
    assert len(master.add_framework("hoarder", "a", "b", "c")) == AGENTS / 2


def test_the_limit_applies_to_tasks_of_a_known_demand() -> None:
    master = cluster()
    data = mesos.FrameworkInfo.FromString(framework_info("hoarder", "a"))
    data.labels.labels.add(key="longshare.demand", value="cpus:1;mem:1024")
    hoarder = contract.AddFramework(
        framework_id="hoarder", info=data.SerializeToString(), active=True
    )
    assert len(master.send(hoarder)) == AGENTS / 2


def test_without_assumed_usage_the_limit_needs_mesos_1_10() -> None:
    assert len(cluster(tells=False).add_framework("hoarder", "a")) == AGENTS


def presuming(part: float = 0.5, after: float = 20.0) -> MasterSide:
    """Return a cluster of Mesos 1.8 that assumes resources to be used 20 s after their offer."""
    return cluster(Limits(unanswered=part, answered_after=after), tells=False)


def test_with_assumed_usage_an_offer_is_outstanding_for_the_set_time() -> None:
    master = presuming()
    hoarded = master.add_framework("hoarder", "a")
    assert len(hoarded) == AGENTS / 2
    assert reason(master, "hoarder", "a") == "unanswered"
    assert not master.tick(19.9)
    assert len(master.add_framework("good", "b")) == AGENTS / 2, "at once"
    assert reason(master, "good", "b") == "unanswered"


def test_with_assumed_usage_an_offer_without_an_answer_counts_as_used_after_the_set_time() -> None:
    master = presuming()
    first = master.add_framework("lone", "a")
    assert not master.tick(19.9)
    assert len(master.tick(0.1)) == AGENTS / 2
    assert reason(master, "lone", "a") == "unanswered"
    assert not master.tick(19.9), "the later offers have their own time"
    for offer in first:
        master.recover(offer)
    assert len(master.tick(0.1)) == AGENTS / 2


def test_with_assumed_usage_an_explanation_does_not_claim_that_offers_are_unanswered() -> None:
    master = presuming()
    master.add_framework("lone", "a")
    words = "its offers of the last 20.0 s have reached their limit; this master does not report "
    assert explained(master, "lone", "a") == f"{words}which of them it has accepted"
    reporting = cluster()
    reporting.add_framework("hoarder", "a")
    assert "must first answer outstanding offers" in explained(reporting, "hoarder", "a")


def test_with_assumed_usage_a_full_or_partial_decline_is_an_answer() -> None:
    for text in (None, "cpus:1"):
        master = presuming()
        for offer in master.add_framework("lone", "a"):
            master.recover(offer, text, refuse_seconds=100.0)
        assert len(master.tick()) == AGENTS / 2


def test_with_assumed_usage_neither_the_end_of_a_task_nor_a_rescinded_offer_is_an_answer() -> None:
    master = presuming()
    offers = master.add_framework("hoarder", "a")
    made = master.recover(offers[0], "cpus:1")
    assert made == []
    assert master.tick() == [], (
        "offers of 4.5 of 10 agents are outstanding, and the 5th agent reaches the limit again"
    )


def test_with_assumed_usage_an_operation_is_an_answer() -> None:
    master = presuming(part=0.1)
    [offer] = master.add_framework("lone", "a")
    assert not master.tick()
    call = contract.UpdateAllocation(
        framework_id="lone",
        agent_id=offer.agent,
        offered=offer.messages,
        conversions=[
            contract.Conversion(
                consumed=resources("cpus:1", "a"), converted=resources("cpus(a):1", "a")
            )
        ],
    )
    assert len(master.send(call) + master.tick()) == 1


def test_with_assumed_usage_the_reported_allocations_of_a_new_agent_count_as_used() -> None:
    master = presuming()
    master.add_framework("lone", "a", active=False)
    for number in range(AGENTS):
        used = {"lone": resources("cpus:3;mem:3072", "a")}
        master.add_agent(f"t{number}", "cpus:4;mem:4096", used)
    activate = contract.ActivateFramework(framework_id="lone")
    assert len(master.send(activate)) >= AGENTS


def test_with_assumed_usage_a_snapshot_is_no_answer() -> None:
    master = presuming()
    hoarded = master.add_framework("hoarder", "a")
    master.wait(15.0)
    used = {offer.agent: offer for offer in hoarded}
    agents = [f"s{number}" for number in range(AGENTS)]
    snapshot = contract.Snapshot(
        time_ns=master.now_ns,
        sequence=master.sequence,
        agents=[
            agent_call(
                name,
                "cpus:4;mem:4096",
                {"hoarder": list(used[name].messages)} if name in used else {},
            )
            for name in agents
        ],
        frameworks=[
            contract.AddFramework(
                framework_id="hoarder", info=framework_info("hoarder", "a"), active=True
            )
        ],
    )
    assert master.restore(snapshot) == []
    assert master.tick(4.9) == []
    assert len(master.tick(0.1)) == AGENTS / 2


@pytest.mark.parametrize("tells", [False, True])
def test_a_master_of_an_older_or_newer_mesos_may_take_over(*, tells: bool) -> None:
    master = cluster(Limits(unanswered=0.5, answered_after=20.0), tells=tells)
    master.add_framework("hoarder", "a")
    master.options.tells_running = not tells
    master.restore(contract.Snapshot(time_ns=master.now_ns, sequence=master.sequence))
    for number in range(AGENTS):
        master.add_agent(f"s{number}", "cpus:4;mem:4096")
    assert len(master.add_framework("hoarder", "a")) == AGENTS / 2
    assert master.engine.statistics.faults == 0


def test_assumed_usage_of_removed_frameworks_leaves_no_memory_behind() -> None:
    remainders = []
    for after in (0.0, 20.0):
        master = presuming(part=0.99, after=after)
        for number in range(50):
            name = f"f{number}"
            for offer in master.add_framework(name, f"role-{number}")[:3]:
                master.recover(offer)
            master.send(contract.RemoveFramework(framework_id=name))
        remainders.append(things(master.engine))
    assert remainders[1] - remainders[0] < 20
