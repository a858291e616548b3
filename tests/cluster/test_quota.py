"""What quotas leave: as by the plain rules, and at a cost that does not grow with the quotas."""

import sys
from types import FrameType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocator.cluster.quota import Headroom, Quota
from allocator.contract import allocator_pb2 as contract
from allocator.fairness.quantities import Quantities
from tests.cluster.master_side import START_NS, MasterSide, agent_call, framework_info

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
    """Headroom by the letter: all of it is worked out anew whenever it is asked for."""

    def __init__(
        self, quotas: dict[str, Quota], consumed: dict[str, Quantities], available: Quantities
    ) -> None:
        self.quotas = quotas
        self.consumed = dict(consumed)
        self.available = available
        self.required = Quantities()
        for role, quota in quotas.items():
            self.required += less(quota.guarantees, consumed[role])

    def admits(self, role: str, more: Quantities) -> bool:
        top = role.partition("/")[0]
        if top in self.quotas and any(
            more[name] and self.consumed[top][name] + more[name] > limit
            for name, limit in self.quotas[top].limits.items()
        ):
            return False
        return less(self.available, more).contains(self.required)

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


@settings(max_examples=50)
@given(quotas, st.builds(Quantities, some), st.builds(Quantities, some), steps)
def test_what_is_kept_up_step_by_step_is_what_the_rules_say(
    quotas: dict[str, Quota],
    held: Quantities,
    available: Quantities,
    steps: list[tuple[str, str, Quantities]],
) -> None:
    consumed = dict.fromkeys(quotas, held)
    headroom = Headroom(quotas, dict(consumed), available)
    plainly = Plainly(quotas, consumed, available)
    for what, role, amounts in steps:
        for one in ("a", "b/y", "d"):
            assert headroom.admits(one, amounts) == plainly.admits(one, amounts)
        assert headroom.spare() == less(plainly.available, plainly.required)
        slack = headroom.slack(["cpus", "mem"])
        lack = [n for n, amount in plainly.required.items() if plainly.available[n] < amount]
        assert (slack is None) == bool(lack)
        assert slack is None or slack == {
            name: plainly.available[name] - plainly.required[name]
            for name in ("cpus", "mem")
            if name in plainly.required
        }
        if what == "give":
            headroom.give(role, amounts)
            plainly.give(role, amounts)
        elif role in quotas:
            towards = less(amounts, less(amounts, headroom.missing(role)))
            headroom.give_guaranteed(role, towards, amounts)
            plainly.give_guaranteed(role, towards, amounts)


def work(quotas: int, agents: int) -> int:
    """Return how many functions of ours are called for a snapshot of so many."""
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
    calls = 0

    def count(frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event == "call" and "allocator" in frame.f_code.co_filename

    sys.setprofile(count)
    try:
        master.engine.restore(master.options, snapshot)
    finally:
        sys.setprofile(None)
    return calls


def test_an_agent_costs_the_same_however_many_quotas_there_are() -> None:
    few, many = (work(quotas, 20) - work(quotas, 10) for quotas in (10, 300))
    assert many == pytest.approx(few, rel=0.05)
