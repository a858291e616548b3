"""A principal's clients share an agent in a limited number of offers, and no client starves."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.cluster.allocation import sharing_limit
from allocator.cluster.allocation.fair_share_stage import FairShareStage
from allocator.cluster.allocation.offer_builder import OfferBuilder
from allocator.cluster.engine import Engine
from allocator.contract import allocator_pb2 as contract
from allocator.contract import mesos_pb2 as mesos
from allocator.cooperative import run_to_completion
from tests.cluster.master_side import SECOND, MasterSide, Offered, framework_info


def limited(*, limits_sharing: bool = True, whole_from: int = 0) -> MasterSide:
    """Return a master with an engine without agents and frameworks."""
    master = MasterSide()
    master.settings = replace(master.settings, limits_sharing=limits_sharing, whole_from=whole_from)
    master.engine = Engine(master.settings)
    master.restore(contract.Snapshot(time_ns=master.now_ns))
    return master


def add(
    master: MasterSide, framework: str, *roles: str, demand: str | None, principal: str = "p"
) -> list[Offered]:
    info = mesos.FrameworkInfo.FromString(framework_info(framework, *roles, principal=principal))
    if demand is not None:
        info.labels.labels.add(key="longshare.demand", value=demand)
    call = contract.AddFramework(framework_id=framework, info=info.SerializeToString(), active=True)
    return master.send(call)


def declined(offer: Offered, seconds: float = 0.0) -> contract.RecoverResources:
    return contract.RecoverResources(
        framework_id=offer.framework,
        agent_id=offer.agent,
        resources=offer.messages,
        filters=mesos.Filters(refuse_seconds=seconds).SerializeToString(),
    )


def names(number: int) -> list[str]:
    return [f"r{place:03}" for place in range(number)]


@contextmanager
def most_sharers(number: int) -> Iterator[None]:
    with patch.object(sharing_limit, "_MOST_SHARERS", number):
        yield


@pytest.mark.parametrize("frameworks", [1, 250])
def test_many_clients_of_a_principal_cannot_split_each_agent(frameworks: int) -> None:
    """250 roles or frameworks got 250 offers of each of 40 agents, and 10,000 after a decline."""
    master, calls = limited(), Counter[str]()
    for number in range(40):
        master.add_agent(f"s{number}", f"cpus:{16 + number / 100};mem:65536")
    step, node = OfferBuilder.add_offer, FairShareStage._node

    def count_offer(*args: object) -> None:
        calls["offers"] += 1
        step(*args)  # type: ignore[arg-type]

    def count_node(*args: object, **options: bool) -> object:
        calls["nodes"] += 1
        return node(*args, **options)  # type: ignore[arg-type]

    with (
        patch.object(OfferBuilder, "add_offer", count_offer),
        patch.object(FairShareStage, "_node", count_node),
    ):
        demand, roles = "cpus:0.064;mem:262", names(250)
        [*offers] = add(master, "whole", "whole", demand=None)
        for number in range(frameworks):
            own = roles[number :: max(frameworks, 1)]
            add(master, f"f{number}", *own, demand=demand)
        calls.clear()
        offers = master.send(*(declined(offer, 3600.0) for offer in offers))
        assert 40 <= len(offers) <= 256
        offers = master.send(*map(declined, offers))
        assert 40 <= len(offers) <= 256
        master.tick()
    assert calls["offers"] <= 2 * 256
    assert calls["nodes"] <= 4 * 256


def test_many_clients_of_a_principal_with_several_task_shapes_are_not_served_in_bulk() -> None:
    """Roles that declined different agents differ in their task shapes."""
    numbers = []
    for limits_sharing in (True, False):
        master = limited(limits_sharing=limits_sharing, whole_from=50)
        for number in range(50):
            master.add_agent(f"s{number}", "cpus:16;mem:65536")
        offers = add(master, "f", *names(100), demand="cpus:0.064;mem:262")
        numbers.append(len(master.send(*map(declined, offers))))
    assert numbers[0] <= 256 < numbers[1]


def test_agents_that_are_freed_one_by_one_are_not_split_further_and_further() -> None:
    master = limited()
    for number in range(100):
        master.add_agent(f"s{number}", f"cpus:{16 + number / 100};mem:65536")
    offers = add(master, "f", *names(250), demand="cpus:0.064;mem:262")
    for _ in range(2):
        by_agent: dict[str, list[Offered]] = {}
        for offer in offers:
            by_agent.setdefault(offer.agent, []).append(offer)
        offers = []
        for own in by_agent.values():
            offers += master.send(*map(declined, own))
    assert max(Counter(offer.agent for offer in offers).values()) <= 41
    assert len(offers) < sharing_limit._HELD


@pytest.mark.parametrize("cpus", [16, 64])
def test_fifty_frameworks_of_one_principal_share_one_agent_as_before(cpus: int) -> None:
    offers = []
    for limits_sharing in (True, False):
        master = limited(limits_sharing=limits_sharing)
        for number in range(50):
            add(master, f"f{number}", f"role{number % 10}", demand="cpus:1;mem:64")
        offers.append(master.add_agent("s", f"cpus:{cpus};mem:65536"))
    assert offers[0] == offers[1]
    assert len(offers[0]) == min(cpus, 50)


def test_clients_beyond_the_slots_wait_for_their_turn_and_get_the_next_offers() -> None:
    """Limits keep resources free although clients wait; `explain` tells which client is next."""
    master = limited()
    with most_sharers(3):
        for role in "abcdefgh":
            limit = contract.Quantities(amounts={"cpus": 1.0})
            master.send(contract.UpdateQuota(role=role, limits=limit))
            add(master, f"f-{role}", role, demand="cpus:1;mem:64")
        served = [offer.role for offer in master.add_agent("s", "cpus:16;mem:65536")]
        assert len(served) == 3
        while len(served) < 8:
            survey = run_to_completion(master.engine.survey())
            waits = {
                client.role: run_to_completion(survey.explain(client, closely=True))
                for client in master.engine.clients()
            }
            reasons = {role: wait.reason for role, wait in waits.items() if wait is not None}
            assert reasons == {role: "quota" if role in served else "turn" for role in "abcdefgh"}
            passed_over = run_to_completion(master.engine.unservable_users())
            first = next(user for user in master.engine.pool if user not in passed_over)
            assert passed_over == {*served}
            served += [offer.role for offer in master.tick()]
            assert served[-1] == first
    assert sorted(served) == [*"abcdefgh"]


def test_agents_are_shared_as_evenly_as_the_offers_allow() -> None:
    """50 frameworks of a principal get at least five offers of 256 in a cycle."""
    master = limited()
    for number in range(30):
        master.add_agent(f"s{number}", f"cpus:64;mem:{65536 + number}")
    offers = add(master, "whole", "whole", demand=None)
    for number in range(50):
        add(master, f"f{number}", f"role{number}", demand="cpus:1;mem:64")
    offers = master.send(*(declined(offer, 3600.0) for offer in offers))
    cpus = Counter[str]()
    for offer in offers:
        cpus[offer.framework] += int(offer.resources.split(";")[0].removeprefix("cpus:"))
    assert sum(cpus.values()) == 30 * 64
    assert len(cpus) == 50
    assert max(cpus.values()) - min(cpus.values()) <= 64 // 8


def test_the_first_clients_in_order_share_an_agent() -> None:
    with most_sharers(2):
        master = limited()
        for role in "abcd":
            add(master, role, role, demand="cpus:1;mem:64")
        master.add_agent("s1", "cpus:2;mem:1024")  # for a and b
        offers = master.add_agent("s2", "cpus:4;mem:1024")
        assert {offer.role: offer.resources for offer in offers} == {
            "c": "cpus:2;mem:128",
            "d": "cpus:2;mem:128",
        }


def test_other_principals_do_not_lose_slots() -> None:
    with most_sharers(1):
        master = limited()
        for role in "abcd":
            add(master, role, role, demand="cpus:1;mem:64", principal="p" if role < "d" else "q")
        offers = master.add_agent("s", "cpus:4;mem:1024")
        assert [offer.role for offer in offers] == ["a", "d"]
        assert {offer.resources for offer in offers} == {"cpus:2;mem:128"}


def test_what_the_first_clients_leave_is_offered_to_others_at_the_next_tick() -> None:
    with most_sharers(1):
        master = limited()
        add(master, "f1", "a", demand="cpus:1")
        add(master, "f2", "b", demand="mem:512")
        [first] = master.add_agent("s", "cpus:4;mem:1024")
        assert (first.role, first.resources) == ("a", "cpus:4")
        [second] = master.tick()
        assert (second.role, second.resources) == ("b", "mem:1024")
        assert not master.tick()


def test_a_client_that_declines_takes_no_slot() -> None:
    with most_sharers(1):
        master = limited()
        add(master, "f1", "a", "b", demand="cpus:1;mem:64")
        [first] = master.add_agent("s", "cpus:4;mem:1024")
        assert first.role == "a"
        [second] = master.send(declined(first, 3600.0))
        assert second.role == "b"
        master.send(declined(second, 3600.0))
        assert not master.tick()


def test_reserved_resources_are_offered_in_turn() -> None:
    """The first roles in order decline without a filter; the last roles still get their offers."""
    roles = names(12)
    reserved = ";".join(f"cpus({role}):1" for role in roles)
    with most_sharers(2):
        master = limited()
        add(master, "f", *roles, demand=None)
        offers = master.add_agent("s", reserved)
        seen = Counter(offer.role for offer in offers)
        for _ in range(12):
            offers = [*master.send(*map(declined, offers)), *master.tick()]
            seen.update(offer.role for offer in offers)
        assert seen.keys() == set(roles)


@given(
    st.lists(
        st.tuples(
            st.integers(0, 2),
            st.sampled_from([None, "cpus:1", "mem:64", "cpus:1;mem:64", "cpus:0.5;mem:32"]),
        ),
        min_size=3,
        max_size=8,
    ),
    st.sets(st.integers(0, 7)),
    st.integers(1, 3),
    st.integers(1, 2),
)
def test_no_client_starves(
    clients: list[tuple[int, str | None]], reserving: set[int], agents: int, most: int
) -> None:
    """Each client is offered resources, although all clients decline all offers."""
    with most_sharers(most):
        master = limited()
        for number, (principal, demand) in enumerate(clients):
            add(master, f"f{number}", f"r{number}", demand=demand, principal=f"p{principal}")
        reserved = "".join(
            f";cpus(r{number}):0.5" for number in sorted(reserving) if number < len(clients)
        )
        seen, offers = set[str](), list[Offered]()
        for number in range(agents):
            offers += master.add_agent(f"s{number}", f"cpus:4;mem:1024{reserved}")
        for _ in range(3 * len(clients)):
            seen |= {offer.role for offer in offers}
            master.now_ns += SECOND // 2
            freed = master.send(*map(declined, offers))
            offers = freed + master.tick(0.5)
        assert seen == {f"r{number}" for number in range(len(clients))}


@given(
    st.lists(st.sampled_from([None, "cpus:1", "mem:64", "cpus:1;mem:256"]), min_size=2, max_size=6)
)
def test_the_limit_leaves_no_resources_that_a_client_could_use(demands: list[str | None]) -> None:
    """Without declines, a cycle without the limit finds nothing more to offer after some ticks."""
    with most_sharers(1):
        master = limited()
        for number, demand in enumerate(demands):
            add(master, f"f{number}", f"r{number}", demand=demand)
        for number in range(2):
            master.add_agent(f"s{number}", "cpus:4;mem:1024")
        for _ in demands:
            master.tick()
        cluster = master.engine._cluster
        cluster.limits_sharing = False
        cluster.mark_all_changed()
        assert not master.tick()


def test_reserved_resources_of_many_roles_bring_few_offers_in_a_cycle() -> None:
    """Each round of a framework that declines all costs as much as its offers."""
    master, roles = limited(), names(70)
    reserved = "".join(f";cpus({role}):0.05;mem({role}):64" for role in roles)
    for number in range(20):
        master.add_agent(f"s{number}", f"cpus:{16 + number / 100};mem:65536{reserved}")
    offers = add(master, "f", *roles, demand="cpus:0.01;mem:1")
    for _ in range(3):
        assert 0 < len(offers) <= 2 * 256
        offers = master.send(*map(declined, offers)) or master.tick()
