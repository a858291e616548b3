"""Quota since Mesos 1.9: limits apart from guarantees, and the smallest sufficient headroom."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.cluster.engine import Engine
from allocator.cluster.input.errors import InvalidEvent
from allocator.cluster.input.limits import Limits
from allocator.contract import allocator_pb2 as contract
from allocator.contract import mesos_pb2 as mesos
from tests.cluster.conformance.quota_side import (
    REVOCABLE,
    BatchMaster,
    add_agent,
    freed,
    revocable,
    told,
)
from tests.cluster.master_side import START_NS, Offered, framework_info, resources


def quota(role: str, guarantees: str = "", limits: str = "") -> contract.UpdateQuota:
    """Return a quota with guarantees and limits in the flag syntax."""
    return contract.UpdateQuota(
        role=role,
        guarantees=contract.Quantities(amounts=_amounts(guarantees)),
        limits=contract.Quantities(amounts=_amounts(limits)),
    )


def _amounts(text: str) -> dict[str, float]:
    return {
        name: float(value)
        for name, _, value in (entry.partition(":") for entry in text.split(";") if entry)
    }


def limited(limits: str, guarantees: str = "") -> BatchMaster:
    """Start with f1 in role `quota`, which has a quota."""
    master = BatchMaster()
    master.send(quota("quota", guarantees, limits))
    master.add_framework("f1", "quota")
    return master


def test_a_role_is_offered_resources_up_to_its_limit_and_other_roles_get_the_rest() -> None:
    master = limited("cpus:2;mem:1024")
    assert told(master.add_agent("s1", "cpus:4;mem:4096;ports:[1-9]")) == {
        ("f1", "s1", "cpus:2;mem:1024;ports:[1-9]")
    }
    assert told(master.add_framework("f2", "plain")) == {("f2", "s1", "cpus:2;mem:3072")}


def test_resources_without_a_limit_are_not_limited() -> None:
    master = limited("cpus:1")
    assert told(master.add_agent("s1", "cpus:4;mem:4096;disk:100")) == {
        ("f1", "s1", "cpus:1;disk:100;mem:4096")
    }


def test_a_limit_of_zero_is_not_the_same_as_no_limit() -> None:
    master = limited("cpus:0")
    assert told(master.add_agent("s1", "cpus:4;mem:4096")) == {("f1", "s1", "mem:4096")}


def test_since_mesos_1_9_a_guarantee_is_no_limit() -> None:
    master = BatchMaster()
    master.send(quota("quota", "cpus:1;mem:512"))
    master.add_framework("f1", "quota")
    assert told(master.add_agent("s1", "cpus:4;mem:4096")) == {("f1", "s1", "cpus:4;mem:4096")}
    assert told(master.add_agent("s2", "cpus:4;mem:4096")) == {("f1", "s2", "cpus:4;mem:4096")}


def test_reservations_count_against_the_limit_and_are_offered_nevertheless() -> None:
    master = limited("cpus:4")
    offers = told(master.add_agent("s1", "cpus(quota):3;cpus:8;mem:64"))
    assert offers == {("f1", "s1", "cpus(quota):3;cpus:1;mem:64")}
    assert master.consumed("quota")["cpus"] == 4.0


def test_reservations_beyond_the_limit_leave_no_capacity_for_unreserved_resources() -> None:
    master = limited("cpus:2")
    assert told(master.add_agent("s1", "cpus(quota):3;cpus:8")) == {("f1", "s1", "cpus(quota):3")}


def test_allocations_of_sub_roles_count_and_sub_roles_are_limited_too() -> None:
    master = BatchMaster()
    master.send(quota("quota", limits="cpus:3"))
    master.add_framework("f1", "quota/a")
    assert told(master.add_agent("s1", "cpus:2;mem:64")) == {("f1", "s1", "cpus:2;mem:64")}
    assert told(master.add_agent("s2", "cpus:2;mem:64")) == {("f1", "s2", "cpus:1;mem:64")}


def test_revocable_resources_do_not_count_against_limits() -> None:
    master = BatchMaster()
    master.send(quota("quota", limits="cpus:0;mem:0"))
    master.add_framework("f1", "quota", capabilities=[REVOCABLE])
    assert told(master.send(add_agent("s1", [*resources("cpus:1"), *revocable("cpus:8")]))) == {
        ("f1", "s1", "cpus:8")
    }


def test_recovered_resources_can_be_offered_under_the_limit_again() -> None:
    master = limited("cpus:1;mem:1024")
    [offer] = master.add_agent("s1", "cpus:4;mem:4096")
    assert master.tick() == []
    master.send(freed(offer))
    assert told(master.tick()) == {("f1", "s1", "cpus:1;mem:1024")}


def test_removing_a_limit_releases_the_remaining_resources() -> None:
    master = limited("cpus:1;mem:1024")
    master.add_agent("s1", "cpus:4;mem:4096")
    master.send(quota("quota"))
    assert told(master.tick()) == {("f1", "s1", "cpus:3;mem:3072")}
    assert master.engine.quotas() == {}


def test_required_headroom_is_no_more_than_the_guarantees() -> None:
    master = BatchMaster()
    master.send(quota("absent", "cpus:1;mem:512"))
    master.add_framework("f1", "plain")
    assert told(master.add_agent("s1", "cpus:4;mem:4096")) == {("f1", "s1", "cpus:3;mem:3584")}


def test_headroom_is_required_for_the_guarantee_not_for_the_limit() -> None:
    master = BatchMaster()
    master.send(quota("absent", "cpus:1", "cpus:3"))
    master.add_framework("f1", "plain")
    assert told(master.add_agent("s1", "cpus:4;mem:64")) == {("f1", "s1", "cpus:3;mem:64")}


def test_a_role_exceeds_its_guarantee_only_beyond_the_headroom_of_other_roles() -> None:
    master = BatchMaster()
    master.send(quota("absent", "cpus:1"))
    master.send(quota("quota", "cpus:1", "cpus:4"))
    master.add_framework("f1", "quota")
    assert told(master.add_agent("s1", "cpus:4;mem:64")) == {("f1", "s1", "cpus:3;mem:64")}


def test_a_guarantee_is_satisfied_although_the_cluster_cannot_satisfy_all_guarantees() -> None:
    master = BatchMaster()
    master.send(quota("absent", "cpus:100"))
    master.send(quota("quota", "cpus:2"))
    master.add_framework("f1", "quota")
    assert told(master.add_agent("s1", "cpus:4;mem:64")) == {("f1", "s1", "cpus:2;mem:64")}


def test_a_task_beyond_the_limit_is_not_offered_in_part() -> None:
    master = BatchMaster(min_allocatable=())
    master.send(quota("quota", limits="cpus:3"))
    info = mesos.FrameworkInfo.FromString(framework_info("f1", "quota"))
    info.labels.labels.add(key="longshare.demand", value="cpus:2;mem:64")
    master.send(
        contract.AddFramework(framework_id="f1", info=info.SerializeToString(), active=True)
    )
    assert told(master.add_agent("s1", "cpus:8;mem:4096")) == {("f1", "s1", "cpus:2;mem:64")}


def test_identical_tasks_stay_within_the_limit_of_their_own_role_to_the_last_thousandth() -> None:
    master = BatchMaster(min_allocatable=())
    master.engine = Engine(replace(master.settings, limits=Limits(smallest_demand=0.0)))
    master.restore(contract.Snapshot(time_ns=START_NS))
    limits = {"r1": 3.0, "r2": 0.5, "r3": 1.25}
    for role, cpus in limits.items():
        master.send(quota(role, limits=f"cpus:{cpus}"))
        info = mesos.FrameworkInfo.FromString(framework_info(f"of-{role}", role))
        info.labels.labels.add(key="longshare.demand", value="cpus:0.001")
        call = contract.AddFramework(framework_id=f"of-{role}", active=True)
        call.info = info.SerializeToString()
        master.send(call)
    offers = master.add_agent("s1", "cpus:8;mem:64")
    assert told(offers) == {(f"of-{role}", "s1", f"cpus:{cpus:g}") for role, cpus in limits.items()}


def test_a_guarantee_above_the_limit_is_satisfied_up_to_the_limit() -> None:
    master = limited("cpus:1", guarantees="cpus:5")
    assert told(master.add_agent("s1", "cpus:4;mem:64")) == {("f1", "s1", "cpus:1;mem:64")}
    assert told(master.add_framework("f2", "plain")) == {("f2", "s1", "cpus:3")}


def test_the_default_role_can_be_limited_too() -> None:
    master = BatchMaster()
    master.send(quota("*", limits="cpus:0;mem:0;disk:0"))
    master.add_framework("f1", "*")
    assert master.add_agent("s1", "cpus:2;mem:1024;disk:1024") == []
    assert told(master.add_framework("f2", "a")) == {("f2", "s1", "cpus:2;disk:1024;mem:1024")}
    master.send(quota("*", limits="cpus:1;mem:512;disk:512"))
    assert told(master.add_agent("s2", "cpus:2;mem:1024;disk:1024")) == {
        ("f1", "s2", "cpus:1;disk:512;mem:512"),
        ("f2", "s2", "cpus:1;disk:512;mem:512"),
    }


@pytest.mark.parametrize("role", ["a/b", ""])
def test_only_top_level_roles_can_have_a_limit(role: str) -> None:
    with pytest.raises(InvalidEvent, match="cannot have a quota"):
        BatchMaster().send(quota(role, limits="cpus:1"))


@pytest.mark.parametrize("amount", [-1.0, math.nan, math.inf, 1e300])
def test_an_invalid_limit_is_rejected(amount: float) -> None:
    wrong = contract.UpdateQuota(role="a", limits=contract.Quantities(amounts={"cpus": amount}))
    with pytest.raises(InvalidEvent, match="quota of 'a': cpus"):
        BatchMaster().send(wrong)


def test_limits_are_restored_by_an_election_and_by_a_snapshot() -> None:
    given = quota("quota", "cpus:1", "cpus:2")
    elected = BatchMaster()
    elected.send(contract.Recover(expected_agents=1, limited_quotas=[given]))
    restored = BatchMaster()
    restored.restore(contract.Snapshot(time_ns=START_NS, limited_quotas=[given]))
    for master in (elected, restored):
        master.add_framework("f1", "quota")
        assert told(master.add_agent("s1", "cpus:4;mem:64")) == {("f1", "s1", "cpus:2;mem:64")}


def test_a_role_with_two_quotas_is_rejected() -> None:
    given = quota("quota", "cpus:1")
    with pytest.raises(InvalidEvent, match="two quotas"):
        BatchMaster().send(contract.Recover(limited_quotas=[given, given]))


ROLES = ("a", "b", "plain")
amounts = st.integers(0, 12)


class Books:
    """A sum of all offers that shares no code with the allocator's quota accounting."""

    def __init__(self, limits: dict[str, int], guarantees: dict[str, int]) -> None:
        self.limits, self.guarantees = limits, guarantees
        self.total = 0.0
        self.reserved = dict.fromkeys(ROLES, 0.0)
        self.open: list[Offered] = []

    def held(self, role: str) -> float:
        return sum(unreserved(offer) for offer in self.open if offer.role == role)

    def take(self, made: list[Offered]) -> None:
        """Add the offers of a cycle, and check the results against limits and guarantees."""
        self.open += made
        free = self.total - sum(map(self.held, ROLES))
        for role in {offer.role for offer in made if unreserved(offer)}:
            consumed = self.held(role) + self.reserved[role]
            assert consumed <= self.limits.get(role, math.inf), "more than its limit"
            if role == "plain":
                missing = sum(
                    max(guarantee - self.held(owner) - self.reserved[owner], 0.0)
                    for owner, guarantee in self.guarantees.items()
                )
                assert free >= missing, "an offer uses another role's guarantee"


def unreserved(offer: Offered) -> float:
    messages = map(mesos.Resource.FromString, offer.messages)
    return sum(message.scalar.value for message in messages if not message.reservations)


@given(
    quotas=st.lists(st.tuples(amounts, amounts).map(sorted), min_size=2, max_size=2),
    agents=st.lists(st.tuples(amounts, st.integers(1, 12), st.sampled_from(ROLES)), max_size=6),
    data=st.data(),
)
def test_offers_stay_within_the_limit_and_outside_the_guarantees_of_other_roles(
    quotas: list[list[int]], agents: list[tuple[int, int, str]], data: st.DataObject
) -> None:
    master = BatchMaster(min_allocatable=())
    given_quotas = dict(zip(ROLES, quotas, strict=False))
    books = Books(
        {role: limit for role, (_, limit) in given_quotas.items()},
        {role: guarantee for role, (guarantee, _) in given_quotas.items()},
    )
    for role, (guarantee, limit) in given_quotas.items():
        master.send(quota(role, f"cpus:{guarantee}", f"cpus:{limit}"))
    for role in ROLES:
        master.add_framework(f"of-{role}", role)
    for number, (plain, kept, owner) in enumerate(agents):
        books.total += plain
        books.reserved[owner] += kept
        books.take(master.add_agent(f"s{number}", f"cpus:{plain};cpus({owner}):{kept}"))
        gives_back: bool = data.draw(st.booleans())
        if books.open and gives_back:
            back = books.open.pop(data.draw(st.integers(0, len(books.open) - 1)))
            master.send(freed(back))
            books.take(master.tick())
