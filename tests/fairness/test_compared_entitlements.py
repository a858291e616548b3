"""Shares are compared with entitlements to the same resource, and new users begin by real use."""

from collections.abc import Mapping
from fractions import Fraction
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import override

from allocator.fairness import policies
from allocator.fairness.account import Account
from allocator.fairness.machines import Machines
from allocator.fairness.policies.sdrf import Sdrf
from allocator.fairness.pool import Pool, restore_accumulated_use
from allocator.fairness.quantities import Quantities
from allocator.fairness.shadow import Shadow

TIMES = 4.0
HALF_LIFE = 600.0
DAY = 86400.0
CAPACITY = {"cpus": 1000, "disk": 1000, "gpus": 10}
HONEST = ("a", "b", "c", "d")
GUARANTEES: dict[str, dict[str, object]] = {
    "karma": {"alpha": 0.5},
    "dynamic-mmf": {"alpha": 0.5},
    "dynamic-drf": {"alpha": 0.5},
    "yarn-fair": {"resource": "cpus", "minimum": 0.5},
}
"""Policies with a guarantee of half of the entitlement."""


def thousandths(text: str) -> Quantities:
    """Return quantities from text like `cpus:1`, in thousandths as in `CAPACITY`."""
    pairs = (entry.split(":") for entry in text.split(";"))
    return Quantities({name: int(amount) for name, amount in pairs})


class Norm(Sdrf):
    """Policy of a site; the measured value is no share of a resource."""

    name: ClassVar[str] = "norm"

    @override
    def measure(self, account: Account) -> dict[str, float]:
        return {"norm": sum(share**2 for share in account.shares.values()) ** 0.5}


def new_pool(policy: policies.Policy, *, by_resource: bool = True) -> Pool[str]:
    machines: Machines[str] = Machines()
    machines.put("all of it", Quantities(CAPACITY))
    return Pool(
        policy,
        capacity=Quantities(CAPACITY),
        machines=machines,
        counts_for=TIMES,
        compares_by_resource=by_resource,
        newcomers_by_use=True,
    )


def crowded(policy: policies.Policy, *, by_resource: bool = True) -> Pool[str]:
    """Return a pool with four users of 175 CPUs each, and `e`, the only user of the disk.

    Each of the five users is entitled to a fifth of the CPUs, `e` to all of the disk and the GPUs.
    """
    pool = new_pool(policy, by_resource=by_resource)
    for user in (*HONEST, "e"):
        pool.add(user)
        pool.set_active(user, True)
        pool.allocate(user, Quantities({"cpus": 175}))
    pool.look()
    pool.count_users()
    pool.release("e", pool.held("e"))
    assert pool.entitlements("e") == pytest.approx({"cpus": 0.2, "disk": 1, "gpus": 1, "": 1})
    return pool


def is_first(pool: Pool[str], user: str, held: Mapping[str, int]) -> bool:
    """Return whether a user with some amounts is below its guarantee."""
    pool.hold(user, Quantities(dict(held)), 1)
    return pool.standing(user).priority < 0.0


@pytest.mark.parametrize("policy", GUARANTEES)
def test_an_idle_resource_raises_no_guarantee(policy: str) -> None:
    former = crowded(policies.create(policy, GUARANTEES[policy]), by_resource=False)
    pool = crowded(policies.create(policy, GUARANTEES[policy]))
    for owner in (former, pool):
        owner.advance(100.0)
        assert is_first(owner, "e", {"cpus": 99})
        assert not is_first(owner, "e", {"cpus": 100})
    held = {"cpus": 400, "disk": 450}
    assert is_first(former, "e", held)  # half of all disk was compared with the share of CPUs
    assert not is_first(pool, "e", held)
    assert is_first(pool, "e", {"cpus": 99, "disk": 450})


def test_a_guarantee_of_dynamic_drf_holds_for_each_resource() -> None:
    pool = crowded(policies.create("dynamic-drf", GUARANTEES["dynamic-drf"]))
    assert is_first(pool, "e", {"cpus": 99, "disk": 499, "gpus": 4})
    assert not is_first(pool, "e", {"cpus": 99, "disk": 500, "gpus": 4})
    assert not is_first(pool, "e", {"cpus": 99, "disk": 499, "gpus": 5})
    assert not is_first(pool, "e", {"cpus": 100})


@pytest.mark.parametrize("policy", GUARANTEES)
@given(
    amounts=st.fixed_dictionaries({name: st.integers(0, most) for name, most in CAPACITY.items()}),
    more=st.fixed_dictionaries({name: st.integers(0, most) for name, most in CAPACITY.items()}),
    alpha=st.sampled_from([0.0, 0.25, 0.5, 1.0]),
)
def test_guarantees_agree_with_the_definition_and_end_with_more_resources(
    policy: str, amounts: dict[str, int], more: dict[str, int], alpha: float
) -> None:
    parameter = "minimum" if policy == "yarn-fair" else "alpha"
    pool = crowded(policies.create(policy, {**GUARANTEES[policy], parameter: alpha}))
    entitled = {"cpus": Fraction(1, 5), "disk": Fraction(1), "gpus": Fraction(1)}
    compared = list(CAPACITY) if policy == "dynamic-drf" else ["cpus"]
    at_first = all(
        Fraction(amounts[name], CAPACITY[name]) < Fraction(alpha) * entitled[name]
        for name in compared
    )
    assert is_first(pool, "e", amounts) is at_first
    both = {name: amounts[name] + more[name] for name in CAPACITY}
    assert at_first or not is_first(pool, "e", both)


@pytest.mark.parametrize("policy", GUARANTEES)
def test_users_with_different_guarantees_share_no_ranks(policy: str) -> None:
    pool = crowded(policies.create(policy, GUARANTEES[policy]))
    for user in HONEST:
        pool.release(user, pool.held(user))
    pool.allocate("a", Quantities({"cpus": 400}))
    pool.look()
    pool.count_users()
    pool.release("a", pool.held("a"))
    assert [pool.entitlements(user)["cpus"] for user in "abc"] == [1.0, 0.5, 0.5]
    first, second = pool.prospect("a"), pool.prospect("b")
    ranks = [preview.rank_of(Quantities({"cpus": 400}))[0] for preview in (first, second)]
    assert ranks[0] != ranks[1]
    assert first.likeness != second.likeness
    assert pool.prospect("c").likeness == second.likeness


def over_use(pool: Pool[str], demand: str, held: str) -> float:
    """Return the over-use in task shares of `e` with a demand and an allocation."""
    pool.set_demand("e", thousandths(demand))
    pool.hold("e", thousandths(held), 1)
    return pool.course("e").overuse["tasks"]


def test_over_use_of_task_shares_begins_at_the_first_entitlement_that_is_reached() -> None:
    policy = policies.create("stsf", {"half_life": HALF_LIFE})
    former, pool = crowded(policy, by_resource=False), crowded(policy)
    # One fifth of the CPUs is 200 tasks. All disk would be 500 tasks, and 200 tasks are 0.4.
    demand, held = "cpus:1;disk:2", "cpus:300;disk:600"
    assert over_use(former, demand, held) == 0.0
    assert over_use(pool, demand, held) == pytest.approx(0.6 - 0.4)
    assert over_use(pool, demand, "cpus:200;disk:400") == pytest.approx(0.0)
    # With few CPUs a task, the user reaches no entitlement.
    assert over_use(pool, "cpus:1;disk:10", "cpus:99;disk:990") == 0.0
    # Without disk, both rules compare with one fifth.
    for owner in (former, pool):
        assert over_use(owner, "cpus:1", "cpus:300") == pytest.approx(0.3 - 0.2)


def test_users_of_a_rare_resource_keep_their_entitlement_to_it_under_stsf() -> None:
    policy = policies.create("stsf", {"half_life": HALF_LIFE})
    former, pool = crowded(policy, by_resource=False), crowded(policy)
    for owner in (former, pool):  # a task needs 0.4 % of the CPUs and 10 % of the GPUs
        assert over_use(owner, "cpus:4;gpus:1", "cpus:32;gpus:8") == 0.0
        owner.set_demand("a", thousandths("gpus:1"))
        owner.hold("a", thousandths("gpus:5"), 1)
        owner.hold("e", thousandths("cpus:20;gpus:5"), 1)
        owner.look()
        owner.count_users()
        assert owner.entitlements("e")["gpus"] == pytest.approx(0.5)
        assert over_use(owner, "cpus:4;gpus:1", "cpus:28;gpus:7") == pytest.approx(0.7 - 0.5)


@given(
    demand=st.fixed_dictionaries({"cpus": st.integers(1, 50), "disk": st.integers(1, 50)}),
    tasks=st.integers(0, 1000),
)
def test_users_without_over_use_hold_at_most_their_entitlements(
    demand: dict[str, int], tasks: int
) -> None:
    pool = crowded(policies.create("stsf", {"half_life": HALF_LIFE}))
    pool.set_demand("e", Quantities(demand))
    pool.hold("e", Quantities({name: amount * tasks for name, amount in demand.items()}), 1)
    if pool.course("e").overuse["tasks"] == 0.0:
        shares, entitled = pool.standing("e").shares, pool.entitlements("e")
        assert all(share <= entitled[name] * (1 + 1e-9) for name, share in shares.items())


def test_a_sites_policy_compares_with_the_least_entitlement_to_a_held_resource() -> None:
    policy = Norm.model_validate({"half_life": HALF_LIFE})
    former, pool = crowded(policy, by_resource=False), crowded(policy)
    for owner, held, free in (
        (pool, "cpus:300", 0.2),
        (pool, "disk:300", 1.0),
        (pool, "cpus:300;disk:400", 0.2),
        (former, "cpus:300;disk:400", 1.0),
    ):
        owner.hold("e", thousandths(held), 1)
        [norm] = owner.standing("e").measured.values()
        assert owner.course("e").overuse == {"norm": pytest.approx(max(norm - free, 0.0))}


def test_commitments_of_sdrf_compare_each_share_with_its_own_entitlement() -> None:
    policy = policies.create("sdrf", {"half_life": HALF_LIFE})
    for by_resource in (False, True):
        pool = crowded(policy, by_resource=by_resource)
        pool.hold("e", thousandths("cpus:300;disk:900"), 1)
        assert pool.course("e").overuse == pytest.approx({"cpus": 0.1, "disk": 0.0, "gpus": 0.0})


@pytest.mark.parametrize("policy", [*GUARANTEES, "stsf"])
def test_the_papers_form_does_not_depend_on_the_rule(policy: str) -> None:
    parameters = GUARANTEES.get(policy, {"half_life": HALF_LIFE})
    ranked = []
    for by_resource in (False, True):
        pool: Pool[str] = Pool(
            policies.create(policy, parameters),
            capacity=Quantities(CAPACITY),
            compares_by_resource=by_resource,
            newcomers_by_use=by_resource,
        )
        for number, user in enumerate((*HONEST, "e"), 1):
            pool.add(user, weight=number)
            pool.set_active(user, True)
            pool.allocate(user, Quantities({"cpus": 50 * number, "disk": 150 - 30 * number}))
            pool.advance(pool.now + 100.0)
        ranked.append([(s.user, s.priority, s.overuse) for s in pool.standings()])
    assert ranked[0] == ranked[1]


def test_copies_of_a_pool_keep_the_rule() -> None:
    policy = policies.create("karma", GUARANTEES["karma"])
    pool = crowded(policy)
    for copied in (pool.twin(), Shadow(policy, pool)._pool):
        assert not is_first(copied, "e", {"cpus": 400, "disk": 450})
        assert copied.newcomers_by_use


# New users under `karma`.


def used(pool: Pool[str], seconds: float, **cpus: int) -> None:
    """Let users hold CPUs for some seconds, sampled each 5 seconds as by the service."""
    for user in pool.users():
        pool.hold(user, Quantities({"cpus": cpus.get(user, 0)}), 1)
    end = pool.now + seconds
    pool.look()
    while pool.now < end:
        pool.advance(min(pool.now + 5.0, end))
        pool.look()


def karma(names: int = 0) -> Pool[str]:
    """Return a pool in which `a` used half and `b` a tenth of the CPUs for 100 s."""
    pool = new_pool(policies.create("karma", {}))
    for user in ("a", "b", *(f"name{number}" for number in range(names))):
        pool.add(user)
    used(pool, 100.0, a=500, b=100)
    assert (pool.accumulated_use("a"), pool.accumulated_use("b")) == pytest.approx((50, 10))
    return pool


@pytest.mark.parametrize("names", [0, 250])
def test_names_that_hold_nothing_do_not_change_the_mean_of_new_users(names: int) -> None:
    pool = karma(names)
    mean = (500 * 50.0 + 100 * 10.0) / 600  # weighted by use
    assert pool.newcomers_use() == pytest.approx(mean)
    for number in range(3):  # nor do new names
        pool.add(f"new{number}", weight=2.0)
        assert pool.accumulated_use(f"new{number}") == pytest.approx(mean)
        assert pool.newcomers_use() == pytest.approx(mean)


def test_a_new_name_gains_nothing_by_names_that_joined_long_ago() -> None:
    pool = karma(250)
    used(pool, 1000.0, a=300, b=300)
    use_of_a, use_of_b = 350.0, 310.0
    assert pool.accumulated_use("a") == pytest.approx(use_of_a)
    assert pool.accumulated_use("b") == pytest.approx(use_of_b)
    assert use_of_b < pool.newcomers_use() < use_of_a


def test_names_that_a_user_has_left_do_not_lower_the_mean_of_new_users() -> None:
    pool = karma()
    for number in range(5):  # each name is left after a short time
        pool.add(f"new{number}")
        restore_accumulated_use(pool, {f"new{number}": 1.0})
        used(pool, 100.0, a=300, b=300, **{f"new{number}": 400})
    used(pool, 100.0, a=300, b=300)
    use_of_a, use_of_b = 50 + 600 * 0.3, 10 + 600 * 0.3
    assert use_of_b < pool.newcomers_use() < use_of_a
    assert pool.accumulated_use("new0") < 50


def test_each_sample_changes_at_once_with_what_new_users_begin() -> None:
    pool = karma()
    assert pool.newcomers_use() == pytest.approx((500 * 50 + 100 * 10) / 600)
    assert pool.twin().newcomers_use() == pytest.approx(pool.newcomers_use())
    pool.set_mean_use("a", {})
    assert pool.newcomers_use() == pytest.approx(10.0)
    pool.set_mean_use("b", {})
    pool.hold("a", Quantities({"cpus": 400}), 1)
    pool.hold("b", Quantities({"cpus": 600}), 1)
    pool.advance(pool.now + 5.0)
    use = {user: pool.accumulated_use(user) for user in "ab"}
    assert pool.newcomers_use() == pytest.approx(0.4 * use["a"] + 0.6 * use["b"])
    pool.look()  # 400 and 100 were in use at both samples
    assert pool.newcomers_use() == pytest.approx(0.8 * use["a"] + 0.2 * use["b"])


def test_users_count_for_new_users_by_their_use_of_the_last_days() -> None:
    pool = karma()
    used(pool, 100.0)  # an idle minute changes next to nothing
    assert pool.newcomers_use() == pytest.approx((500 * 50 + 100 * 10) / 600)
    pool.add("c")
    pool.hold("c", Quantities({"cpus": 600}), 1)
    pool.advance(pool.now + 5 * DAY)
    pool.look()  # `c` has held nothing at the sample before
    assert pool.newcomers_use() == pytest.approx((500 * 50 + 100 * 10) / 600)
    pool.advance(pool.now + 5 * DAY)
    pool.look()
    assert pool.newcomers_use() == pytest.approx(pool.accumulated_use("c"), rel=0.01)


def test_only_use_of_the_accumulated_resource_counts_for_new_users() -> None:
    pool = karma()
    pool.add("c")
    restore_accumulated_use(pool, {"c": 0.0})
    pool.hold("c", Quantities({"disk": 1000}), 1)
    pool.look()
    pool.advance(pool.now + 100.0)
    pool.look()
    assert pool.mean_use("c")["disk"] > 0.0
    assert pool.newcomers_use() == pytest.approx(
        (500 * pool.accumulated_use("a") + 100 * pool.accumulated_use("b")) / 600
    )


def test_without_samples_users_count_for_new_users_by_their_allocations() -> None:
    pool = karma()
    restored = new_pool(policies.create("karma", {}))
    for user in ("a", "b", "name", "new"):
        restored.add(user)
    amounts = {"a": 50.0, "b": 10.0, "name": 0.0}
    restore_accumulated_use(restored, amounts, ["new"])  # nobody holds CPUs: the plain mean
    assert restored.accumulated_use("new") == pytest.approx(20.0)
    restored.hold("b", Quantities({"cpus": 100}), 1)
    restore_accumulated_use(restored, amounts, ["new"])
    assert restored.accumulated_use("new") == pytest.approx(10.0)
    for user in "ab":
        restored.set_mean_use(user, pool.mean_use(user))
    restore_accumulated_use(restored, amounts, ["new"])
    assert restored.accumulated_use("new") == pytest.approx((500 * 50 + 100 * 10) / 600)


def test_under_former_event_logs_all_names_count_for_new_users() -> None:
    pool: Pool[str] = Pool(
        policies.create("karma", {}), capacity=Quantities(CAPACITY), counts_for=TIMES
    )
    for user in ("a", "b", "c", "d"):
        pool.add(user)
    used(pool, 100.0, a=500, b=100)
    assert pool.newcomers_use() == pytest.approx(15.0)
    assert pool.mean_use("a") == {}
