"""Headroom of quotas by the plain rules, at a cost that does not grow with the number of quotas."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.cluster.quota import Headroom, Quota
from allocator.cluster.resources import NOTHING, parse_total
from allocator.contract import allocator_pb2 as contract
from allocator.fairness.quantities import Quantities
from tests.cluster.conformance.quota_side import (
    REVOCABLE,
    BatchMaster,
    add_agent,
    allocated,
    revocable,
)
from tests.cluster.master_side import START_NS, MasterSide, agent_call, framework_info, resources
from tests.counted import counted
from tests.examples import examples

ROLES = ["a", "b", "c"]
some = st.dictionaries(st.sampled_from(["cpus", "mem", "disk"]), st.integers(0, 9))
quotas = st.dictionaries(
    st.sampled_from(ROLES), st.builds(Quota, st.builds(Quantities, some), some), min_size=1
)
steps = st.lists(
    st.tuples(
        st.sampled_from(["give", "give_guaranteed"]),
        st.sampled_from([*ROLES, "a/x", "d"]),
        st.builds(Quantities, some),
    ),
    max_size=6,
)


class Plainly:
    """Headroom by the definition: computed completely at each question."""

    def __init__(
        self, quotas: dict[str, Quota], consumed: dict[str, Quantities], available: Quantities
    ) -> None:
        self.quotas = quotas
        self.consumed = dict(consumed)
        self.available = available
        self.required = Quantities()
        for role, quota in quotas.items():
            self.required += less(quota.guarantees, consumed[role])

    def admits(self, role: str, added: Quantities) -> bool:
        top = role.partition("/")[0]
        if top in self.quotas and any(
            added[name] and self.consumed[top][name] + added[name] > limit
            for name, limit in self.quotas[top].limits.items()
        ):
            return False
        return less(self.available, added).contains(self.required)

    def give(self, role: str, quantities: Quantities) -> None:
        top = role.partition("/")[0]
        if top in self.consumed:
            self.consumed[top] += quantities
        self.available = less(self.available, quantities)

    def give_guaranteed(self, role: str, towards: Quantities, quantities: Quantities) -> None:
        self.give(role, quantities)
        self.required = less(self.required, towards)


def less(a: Quantities, b: Quantities) -> Quantities:
    return Quantities({name: max(amount - b[name], 0) for name, amount in a.items()})


@examples(50)
@given(quotas, st.builds(Quantities, some), st.builds(Quantities, some), steps)
def test_headroom_after_each_step_is_that_of_the_plain_rules(
    quotas: dict[str, Quota],
    held: Quantities,
    available: Quantities,
    steps: list[tuple[str, str, Quantities]],
) -> None:
    consumed = dict.fromkeys(quotas, held)
    headroom = Headroom(quotas, dict(consumed), available)
    plainly = Plainly(quotas, consumed, available)
    for action, role, amounts in steps:
        for top_role in ("a", "b/y", "d"):
            assert headroom.admits(top_role, amounts) == plainly.admits(top_role, amounts)
        assert headroom.spare() == less(plainly.available, plainly.required)
        slack = headroom.slack(["cpus", "mem"])
        lack = [n for n, amount in plainly.required.items() if plainly.available[n] < amount]
        assert (slack is None) == bool(lack)
        assert slack is None or slack == {
            name: plainly.available[name] - plainly.required[name]
            for name in ("cpus", "mem")
            if name in plainly.required
        }
        if action == "give":
            headroom.allocate(role, amounts)
            plainly.give(role, amounts)
        elif role in quotas:
            towards = less(amounts, less(amounts, headroom.missing(role)))
            headroom.allocate_guarantee(role, towards, amounts)
            plainly.give_guaranteed(role, towards, amounts)


def work(quotas: int, agents: int) -> int:
    """Return the number of function calls for a snapshot with so many quotas and agents."""
    master = MasterSide()
    snapshot = contract.Snapshot(time_ns=START_NS)
    for number in range(quotas):
        quota = snapshot.limited_quotas.add(role=f"q{number}")
        quota.guarantees.amounts["cpus"] = 0.001
        quota.limits.amounts["cpus"] = 10.0
    snapshot.agents.extend(agent_call(f"s{n}", "cpus:4;mem:4096", {}) for n in range(agents))
    for number in range(3):
        snapshot.frameworks.add(
            framework_id=f"f{number}",
            info=framework_info(f"f{number}", f"q{number}"),
            active=True,
        )
    return counted(lambda: master.engine.restore(master.options, snapshot))


def test_an_agent_costs_the_same_however_many_quotas_there_are() -> None:
    few, many = (work(quotas, 20) - work(quotas, 10) for quotas in (10, 300))
    assert many == pytest.approx(few, rel=0.05)


def test_a_cycle_costs_the_same_however_many_roles_held_resources_before() -> None:
    master = MasterSide()
    guarantees = contract.Quantities(amounts={"cpus": 1.0})
    master.send(contract.UpdateQuota(role="q", guarantees=guarantees))

    def come_and_go(number: int) -> int:
        name = f"{number:04}"
        held = {name: resources("cpus:1", f"of-{name}")}
        work = counted(lambda: master.add_agent(name, "cpus:4;mem:64", held))
        master.add_framework(name, f"of-{name}", active=False)
        master.send(contract.RemoveFramework(framework_id=name))
        master.remove_agent(name)
        return work

    costs = [come_and_go(number) for number in range(60)]
    assert costs[-1] == pytest.approx(costs[1], rel=0.05)


def headroom(available: str) -> Headroom:
    """Return headroom for role `q`: a guarantee of two cores, and no allocation."""
    quotas = {"q": Quota(Quantities.parse("cpus:2"))}
    return Headroom(quotas, {"q": Quantities()}, Quantities.parse(available))


def test_headroom_includes_the_last_thousandth_of_a_guarantee() -> None:
    remaining = headroom("cpus:3")
    most = Quantities.parse("cpus:1.999")
    remaining.allocate_guarantee("q", most, most)
    assert remaining.missing("q") == Quantities.parse("cpus:0.001")
    assert remaining.spare() == Quantities.parse("cpus:1")
    assert remaining.admits("other", Quantities.parse("cpus:1"))
    assert not remaining.admits("other", Quantities.parse("cpus:1.001"))


def test_a_guarantee_satisfied_despite_too_little_headroom_blocks_no_other_role() -> None:
    remaining = headroom("cpus:1;mem:64")
    assert not remaining.admits("other", Quantities.parse("mem:64"))
    assert remaining.slack(["cpus"]) is None
    whole = Quantities.parse("cpus:2")
    remaining.allocate_guarantee("q", whole, whole)
    assert remaining.admits("other", Quantities.parse("mem:64"))


def test_the_shown_limit_is_the_largest_possible_allocation_of_a_role() -> None:
    guaranteed = Quantities.parse("cpus:2")
    assert Quota(guaranteed, {"cpus": 4000}).shown_limits == {"cpus": 4000}
    assert Quota(guaranteed, capped=True).shown_limits == {"cpus": 2000}


def test_allocated_revocable_resources_do_not_reduce_the_available_headroom() -> None:
    master = BatchMaster()
    guaranteed = contract.Quantities(amounts={"cpus": 3.0, "mem": 64.0})
    master.send(contract.UpdateQuota(role="absent", guarantees=guaranteed))
    master.add_framework("f1", "a", capabilities=[REVOCABLE])
    spare = allocated(revocable("cpus:4"), "a")
    total = [*resources("cpus:4;mem:128"), *revocable("cpus:4")]
    [offer] = master.send(add_agent("s1", total, {"f1": spare}))
    assert offer.resources == "cpus:1;mem:64"


def test_headroom_that_is_just_enough_blocks_no_other_resource() -> None:
    remaining = headroom("cpus:2;mem:64")
    assert remaining.admits("other", Quantities.parse("mem:64"))
    assert not remaining.admits("other", Quantities.parse("cpus:0.001"))
    remaining.allocate("other", Quantities.parse("cpus:0.001"))
    assert not remaining.admits("other", Quantities.parse("mem:64")), (
        "too little headroom remains now"
    )


def test_a_guarantee_of_a_resource_that_no_agent_has_lacks_headroom() -> None:
    quotas = {"q": Quota(Quantities.parse("gpus:0.001"))}
    remaining = Headroom(quotas, {"q": Quantities()}, Quantities.parse("mem:64"))
    assert not remaining.admits("other", Quantities.parse("mem:64"))


def test_satisfied_guarantees_require_no_headroom() -> None:
    remaining, whole = headroom("cpus:2;mem:64"), Quantities.parse("cpus:2")
    remaining.allocate_guarantee("q", whole, whole)
    assert remaining.slack(["cpus", "mem"]) == {}


def test_without_guarantees_all_of_an_agent_is_offered() -> None:
    """With overallocated agents, the cluster has less free than one of the other agents."""
    remaining = Headroom(
        {"q": Quota(Quantities(), {"cpus": 8000})}, {"q": Quantities()}, Quantities()
    )
    total = parse_total(resources("cpus:4"))
    assert remaining.within("other", total) == total
    assert remaining.within("q", total) == total
    assert headroom("cpus:1").within("other", total) == NOTHING


def test_available_headroom_is_unallocated_unreserved_and_not_revocable() -> None:
    master = MasterSide()
    limited = contract.UpdateQuota(role="q")
    limited.limits.amounts["cpus"] = 1.0
    master.send(limited)
    total = [*resources("cpus:4;mem:64;disk:8;cpus(r):3;disk(r):5;gpus:2")]
    total += revocable("cpus:5;gpus:1")
    held = [*resources("cpus:1;mem:64;cpus(r):1", "r"), *allocated(revocable("cpus:2"), "r")]
    master.send(add_agent("s1", total, {"f1": held}))
    free = master.engine._cluster.ledger.quotas.headroom().spare()
    assert free == Quantities.parse("cpus:3;disk:8;gpus:2")
