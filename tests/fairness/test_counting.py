"""Users count in n by their usage: the equation, its bound, and the effect in a pool."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.fairness import policies
from allocator.fairness.counting import CountedUser, counted_weight
from allocator.fairness.pool import Pool
from allocator.fairness.quantities import Quantities

TIMES = 4.0
HALF_LIFE = 600.0

weights = st.floats(0.01, 100.0)
uses = st.one_of(st.just(0.0), st.floats(1e-6, 1.5))
users = st.lists(st.builds(CountedUser, weights, uses, st.booleans()), min_size=1, max_size=12)


def counts(user: CountedUser, total: float) -> float:
    return user.weight if user.named else min(user.weight, TIMES * user.use * total)


def by_bisection(known: list[CountedUser]) -> float:
    """Return the largest total that equals the sum of the users' counts, by bisection."""
    low, high = 0.0, math.fsum(user.weight for user in known)
    for _ in range(200):
        middle = (low + high) / 2
        if sum(counts(user, middle) for user in known) >= middle:
            low = middle
        else:
            high = middle
    return high


@given(users)
def test_the_total_is_the_sum_of_the_users_counts(known: list[CountedUser]) -> None:
    total = counted_weight(known, TIMES)
    assert total == pytest.approx(by_bisection(known), rel=1e-6, abs=1e-9)


@given(users, st.lists(st.builds(CountedUser, weights, uses, st.just(False)), max_size=12))
def test_users_count_for_at_most_a_multiple_of_their_use(
    honest: list[CountedUser], names: list[CountedUser]
) -> None:
    everyone = [*honest, *names]
    together = counted_weight(everyone, TIMES)
    used = TIMES * sum(name.use for name in names)
    everybody = sum(user.weight for user in honest)
    for user in honest:
        # An entitlement is weight / divisor. In the papers, without the names, all users count.
        divisor = together - user.weight_of(together, TIMES) + user.weight
        assert (1.0 - used) * divisor <= everybody * (1 + 1e-9)
        assert divisor <= (everybody + sum(name.weight for name in names)) * (1 + 1e-9)


@given(st.lists(weights, min_size=1))
def test_users_that_use_their_entitlement_count_as_in_the_papers(
    known: list[float],
) -> None:
    everybody = math.fsum(known)
    users = [CountedUser(weight, weight / everybody, named=False) for weight in known]
    assert counted_weight(users, TIMES) == everybody


def new_pool(times: float = TIMES) -> Pool[str]:
    pool: Pool[str] = Pool(
        policies.create("sdrf", {"half_life": HALF_LIFE}),
        capacity=Quantities({"cpus": 1000}),
        counts_for=times,
    )
    for user in "ab":
        pool.add(user)
    return pool


def look(pool: Pool[str]) -> None:
    pool.look()
    pool.count_users()


def test_mean_use_decays_like_commitments() -> None:
    pool = new_pool()
    pool.allocate("a", Quantities({"cpus": 500}))
    pool.look()
    pool.advance(HALF_LIFE)
    pool.look()
    assert pool.mean_use("a") == {"cpus": pytest.approx(0.25)}
    pool.release("a", Quantities({"cpus": 500}))
    pool.allocate("b", Quantities({"cpus": 900}))
    pool.advance(2 * HALF_LIFE)
    look(pool)
    assert pool.mean_use("a") == {"cpus": pytest.approx(0.125)}
    counts = TIMES * 0.125 / 2  # half of the mean use, as user a uses nothing now
    assert pool.entitlement("b") == pytest.approx(1 - counts)
    pool.advance(4 * HALF_LIFE)
    look(pool)
    assert pool.entitlement("b") == pytest.approx(1 - counts / 4)


def test_use_at_alternate_looks_has_a_mean_of_zero() -> None:
    pool = new_pool()
    for number in range(10):
        pool.advance(60.0 * number)
        if number % 2:
            pool.allocate("a", Quantities({"cpus": 500}))
        else:
            pool.release("a", pool.held("a"))
        pool.look()
    assert pool.mean_use("a") == {}


def test_a_user_counts_as_soon_as_it_replaces_another_user_of_equal_weight() -> None:
    pool = new_pool()
    pool.add("c")
    pool.allocate("a", Quantities({"cpus": 400}))
    pool.allocate("b", Quantities({"cpus": 400}))
    look(pool)
    pool.release("b", pool.held("b"))
    pool.allocate("c", Quantities({"cpus": 400}))
    pool.look()
    pool.count_users(0.01)
    assert dict(pool.accounts()["c"].counted)["cpus"] == 1.0


def test_offered_resources_do_not_count_as_used() -> None:
    pool = new_pool()
    pool.allocate("a", Quantities({"cpus": 500}))
    pool.look({"a": Quantities({"cpus": 100}), "b": Quantities({"cpus": 900})})
    accounts = pool.accounts()
    assert (accounts["a"].in_use, accounts["b"].in_use) == ({"cpus": 0.1}, {}), (
        "used resources are at most the allocation"
    )


def test_a_user_is_entitled_to_everything_while_little_is_used() -> None:
    pool = new_pool()
    pool.allocate("a", Quantities({"cpus": 200}))
    look(pool)
    assert [pool.entitlement(user) for user in "ab"] == [1.0, 1.0]


def test_named_users_count_whole_and_an_infinite_factor_is_the_papers_form() -> None:
    pool = new_pool()
    pool.set_named("b", True)
    pool.allocate("a", Quantities({"cpus": 1000}))
    look(pool)
    assert pool.entitlement("a") == 0.5
    assert new_pool(math.inf).entitlement("a") == 0.5


RESOURCES = ("cpus", "mem", "fpga")
CAPACITY = Quantities({"cpus": 10_000, "mem": 10_000, "fpga": 1000})
holdings = st.fixed_dictionaries({name: st.integers(0, 1000) for name in RESOURCES})


@given(st.lists(holdings, min_size=1, max_size=5), st.lists(holdings, max_size=30))
def test_names_dilute_the_entitlement_to_a_resource_by_their_use_of_this_resource(
    honest: list[dict[str, int]], names: list[dict[str, int]]
) -> None:
    pool: Pool[str] = Pool(
        policies.create("sdrf", {"half_life": HALF_LIFE}), capacity=CAPACITY, counts_for=TIMES
    )
    for user, held in (
        *((f"h{number}", held) for number, held in enumerate(honest)),
        *((f"n{number}", held) for number, held in enumerate(names)),
    ):
        pool.add(user)
        pool.allocate(user, Quantities(held))
    look(pool)
    pool.advance(1.0)
    for number in range(len(honest)):
        entitlements = pool.entitlements(f"h{number}")
        overuse = pool.standing(f"h{number}").overuse
        for name in RESOURCES:
            used = sum(held[name] for held in names) / CAPACITY[name]
            bound = (1.0 - TIMES * used) / len(honest)
            papers = 1.0 / (len(honest) + len(names))
            assert entitlements[name] >= max(bound, papers) - 1e-9
            share = honest[number][name] / CAPACITY[name]
            assert overuse[name] == max(share - entitlements[name], 0.0)


def test_a_user_that_holds_an_idle_resource_is_still_charged_for_others() -> None:
    pool = new_pool()
    pool.set_capacity(Quantities({"cpus": 1000, "disk": 1000}))
    pool.allocate("a", Quantities({"cpus": 700, "disk": 1000}))
    pool.allocate("b", Quantities({"cpus": 300}))
    look(pool)
    assert pool.entitlement("a") == 1.0, "to its dominant resource, which only it uses"
    pool.advance(1.0)
    assert pool.standing("a").overuse == {"cpus": pytest.approx(0.2), "disk": 0.0}


def test_the_entitlement_of_a_user_without_an_allocation_is_to_the_most_used_resource() -> None:
    pool = new_pool()
    pool.set_capacity(Quantities({"disk": 1000, "cpus": 1000}))
    pool.allocate("a", Quantities({"cpus": 800, "disk": 600}))
    pool.add("c")
    look(pool)
    assert list(pool.counted) == ["cpus", "disk", ""]
    assert pool.entitlement("c") == pytest.approx(0.5)
