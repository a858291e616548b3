"""Policies with memory or queues compared with slow references, and their special cases."""

from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.fairness import policies
from allocator.fairness.machines import Machines
from allocator.fairness.pool import Pool
from allocator.fairness.quantities import Quantities
from tests.fairness.test_task_share import Filling

CAPACITY = Quantities.parse("cpus:12;mem:24")
TASKS = [Quantities.parse(text) for text in ("cpus:1;mem:1", "cpus:1;mem:4", "cpus:2;mem:1")]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["allocate", "release", "wait", "activity"]),
        st.integers(0, 2),
        st.sampled_from([0.25, 1.0, 3.0, 100_000.0]),
    ),
    max_size=60,
)


def users_of(policy: str, parameters: dict[str, object], **options: object) -> Pool[int]:
    machines: Machines[int] = Machines()
    machines.put("all of it", CAPACITY)
    made: Pool[int] = Pool(
        policies.create(policy, parameters), capacity=CAPACITY, machines=machines
    )
    for user, task in enumerate(TASKS):
        made.add(user, weight=1.0 + user if options.get("weights") else 1.0)
        made.set_demand(user, task)
        made.set_active(user, True)
    return made


def carry_out(pool: Pool[int], step: str, user: int, seconds: float) -> None:
    if step == "allocate" and CAPACITY.contains(pool.held() + TASKS[user]):
        pool.allocate(user, TASKS[user])
    elif step == "release" and pool.held(user).contains(TASKS[user]):
        pool.release(user, TASKS[user])
    elif step == "wait":
        pool.advance(pool.now + seconds)
    elif step == "activity":
        pool.set_active(user, not pool.standing(user).active)


@pytest.mark.parametrize("policy", ["dynamic-drf", "dynamic-mmf"])
@pytest.mark.parametrize("ranking", ["live-tree", "scan"])
@given(steps=STEPS, alpha=st.sampled_from([0.0, 0.5, 1.0]))
def test_dynamic_policies_order_by_use_that_is_added_up_second_by_second(
    policy: str, ranking: str, steps: list[tuple[str, int, float]], alpha: float
) -> None:
    pool = users_of(policy, {"alpha": alpha, "ranking": ranking}, weights=True)
    added_up = [Fraction(0)] * 3
    for step, user, seconds in steps:
        names = CAPACITY if policy == "dynamic-drf" else ["cpus"]
        share = [max(Fraction(pool.held(u)[r], CAPACITY[r]) for r in names) for u in range(3)]
        before = pool.now
        carry_out(pool, step, user, seconds)
        added_up = [
            a + s * Fraction(pool.now - before) for a, s in zip(added_up, share, strict=True)
        ]
        share = [max(Fraction(pool.held(u)[r], CAPACITY[r]) for r in names) for u in range(3)]
        keys = [
            (share[u] >= Fraction(alpha) * Fraction(1 + u, 6), float(added_up[u]) / (1 + u))
            for u in pool
        ]
        for (late, value), (later, next_value) in pairwise(keys):
            assert late <= later
            assert late != later or value <= next_value * (1 + 1e-9) + 1e-9
        for user_ in range(3):
            value = float(added_up[user_]) / (1 + user_)
            if share[user_] < Fraction(alpha) * Fraction(1 + user_, 6):
                value = -1 / (1 + value)
            assert pool.standing(user_).priority == pytest.approx(value)


@given(STEPS)
def test_live_tree_and_scan_give_dynamic_drf_the_same_order(
    steps: list[tuple[str, int, float]],
) -> None:
    live = users_of("dynamic-drf", {"alpha": 0.5})
    scanned = users_of("dynamic-drf", {"alpha": 0.5, "ranking": "scan"})
    for step in steps:
        carry_out(live, *step)
        carry_out(scanned, *step)
        assert list(live) == list(scanned)


def test_the_user_with_less_former_use_is_first_until_it_has_caught_up() -> None:
    pool = users_of("dynamic-drf", {})
    pool.set_active(2, False)
    pool.allocate(0, Quantities.parse("cpus:6"))
    pool.advance(100.0)
    pool.release(0, Quantities.parse("cpus:6"))
    pool.allocate(1, Quantities.parse("cpus:9"))
    assert pool.minimum() == 1
    pool.advance(166.0)
    assert pool.minimum() == 1
    pool.advance(167.0)
    assert pool.minimum() == 0


def test_a_guarantee_comes_before_former_use() -> None:
    pool = users_of("dynamic-mmf", {"alpha": 1.0})
    pool.allocate(0, Quantities.parse("cpus:6"))
    pool.advance(100.0)
    pool.release(0, Quantities.parse("cpus:6"))
    pool.allocate(1, Quantities.parse("cpus:4"))
    pool.allocate(2, Quantities.parse("cpus:4"))
    assert pool.minimum() == 0


def test_fifo_serves_the_first_user_until_it_suppresses_offers() -> None:
    pool = users_of("fifo", {})
    pool.allocate(0, TASKS[0])
    assert list(pool) == [0, 1, 2]
    pool.set_active(0, False)
    pool.set_active(0, True)
    assert list(pool) == [0, 1, 2]
    pool.set_active(0, False)
    pool.release(0, TASKS[0])
    pool.set_active(0, True)
    assert list(pool) == [1, 2, 0]


def test_cmmf_compares_one_resource_only() -> None:
    for resource, first in (("cpus", 0), ("mem", 1)):
        pool = users_of("cmmf", {"resource": resource})
        pool.set_active(2, False)
        pool.allocate(0, Quantities.parse("cpus:1;mem:9"))
        pool.allocate(1, Quantities.parse("cpus:2;mem:1"))
        assert pool.minimum() == first


@pytest.mark.parametrize("minimum", [0.0, 0.5])
def test_yarn_fair_counts_an_absent_resource_as_a_share_of_zero(
    minimum: float,
) -> None:
    pool = users_of("yarn-fair", {"resource": "gpus", "minimum": minimum})
    pool.allocate(0, TASKS[0])
    standing = pool.standing(0)
    assert standing.priority == (-1.0 if minimum else 0.0)
    assert standing.measured == {"gpus": 0.0}


def test_drfh_ignores_resources_that_the_task_does_not_need() -> None:
    for policy, first in (("drf", 1), ("drfh", 0)):
        pool = users_of(policy, {})
        pool.set_active(2, False)
        pool.set_demand(0, Quantities.parse("cpus:1"))
        pool.allocate(0, Quantities.parse("cpus:1;mem:20"))
        pool.allocate(1, Quantities.parse("cpus:2"))
        assert pool.minimum() == first


def test_per_machine_drf_shares_each_machine_regardless_of_allocations_on_other_machines() -> None:
    machines = {"m1": "cpus:4;mem:4", "m2": "cpus:4;mem:4"}
    users = {"u": ("cpus:1;mem:1", {"m1", "m2"}), "v": ("cpus:1;mem:1", {"m2"})}
    apart = Filling("per-machine-drf", machines, users).fill("m1", "m2")
    assert apart.tasks() == {"u": 6, "v": 2}
    together = Filling("drf", machines, users).fill("m1", "m2")
    assert together.tasks() == {"u": 4, "v": 4}


@given(STEPS)
def test_without_commitments_stsf_equals_tsf(steps: list[tuple[str, int, float]]) -> None:
    stsf = users_of("stsf", {"half_life": 10.0})
    tsf = users_of("tsf", {})
    for step, user, _seconds in steps:  # No time passes, so no commitments arise.
        if step != "wait":
            carry_out(stsf, step, user, 0.0)
            carry_out(tsf, step, user, 0.0)
        shares = [tsf.standing(u).task_share for u in tsf]
        assert [stsf.standing(u).priority for u in stsf] == shares
        assert shares == sorted(shares, key=lambda share: share or 0.0)


@given(STEPS)
def test_with_tasks_that_fill_the_machine_stsf_equals_sdrf(
    steps: list[tuple[str, int, float]],
) -> None:
    stsf, sdrf = (users_of(name, {"half_life": 10.0}) for name in ("stsf", "sdrf"))
    for step in steps:
        carry_out(stsf, *step)
        carry_out(sdrf, *step)
        for user in range(3):
            ours, theirs = stsf.standing(user), sdrf.standing(user)
            assert ours.priority == pytest.approx(theirs.priority)
            assert ours.commitment == pytest.approx(theirs.commitment, abs=1e-12)
        assert set(stsf) == set(sdrf)


def test_stsf_remembers_users_above_their_task_share_of_a_constrained_cluster() -> None:
    machines = {"m1": "cpus:8", "m2": "cpus:8"}
    kept: Machines[str] = Machines()
    for name, text in machines.items():
        kept.put(name, Quantities.parse(text))
    policy = policies.create("stsf", {"half_life": 100.0})
    pool: Pool[str] = Pool(policy, capacity=Quantities.parse("cpus:16"), machines=kept)
    for user in ("elephant", "mouse"):
        pool.add(user)
        pool.set_demand(user, Quantities.parse("cpus:1"))
        pool.set_active(user, True)
    kept.restrict("mouse", {"m1"}.__contains__)
    pool.allocate("elephant", Quantities.parse("cpus:16"))
    pool.advance(100.0)
    pool.release("elephant", Quantities.parse("cpus:16"))
    standing = pool.standing("elephant")
    assert standing.commitments["tasks"] == pytest.approx(0.25)  # half of the way to 1 - 1/2
    assert standing.priority == pytest.approx(0.25)
    pool.allocate("mouse", Quantities.parse("cpus:3"))
    assert pool.minimum() == "mouse"
    pool.allocate("mouse", Quantities.parse("cpus:2"))
    assert pool.minimum() == "elephant"
