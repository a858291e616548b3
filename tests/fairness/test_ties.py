"""Users whose priorities differ only by rounding are equal, and the rule for ties orders them."""

import random
from collections import Counter

import pytest

from allocator.fairness import policies
from allocator.fairness.pool import Pool
from allocator.fairness.priorities import NEAR, Level
from allocator.fairness.quantities import Quantities
from allocator.fairness.sorter_snapshot import SorterSnapshot
from tests.examples import scaled
from tests.fairness.forecasts import forecast_passings

CAPACITY = Quantities.parse("cpus:8;mem:8")
ONE = Quantities.parse("cpus:1;mem:1")
HALF = Quantities.parse("cpus:4;mem:4")
THREE = Quantities.parse("cpus:3;mem:3")
REMEMBERING: list[tuple[str, dict[str, object]]] = [
    ("slurm-fair-tree", {}),
    ("slurm-fair-tree", {"billing": "cpus=0.3,mem=0.7", "half_life": "1h"}),
    ("kueue-afs", {}),
    ("kueue-afs", {"resource_weights": "cpus=0.1,mem=3"}),
    ("volcano", {}),
    ("volcano", {"half_life": "90s"}),
    ("htcondor", {}),
    ("htcondor", {"slots": 8.0}),
    ("dynamic-drf", {}),
    ("dynamic-mmf", {}),
    ("karma", {"alpha": 0.0}),
    ("sdrf", {"half_life": "1h"}),
    ("sdrf", {"half_life": "90s", "form": "thesis"}),
    ("stsf", {"half_life": "1h"}),
]
STATEFUL: list[tuple[str, dict[str, object]]] = [
    (policy, {"half_life": 3600.0, **parameters, "ranking": ranking})
    for policy, parameters in (("sdrf", {}), ("sdrf", {"form": "thesis"}), ("stsf", {}))
    for ranking in ("live-tree", "scan")
]


def instants(number: int) -> list[float]:
    """Return seconds like those of a master's clock."""
    chance = random.Random(43)
    return sorted(1.7e9 + chance.uniform(0.0, 1e6) for _ in range(scaled(number)))


def equals(
    policy: str, parameters: dict[str, object], now: float, *, users: str = "abcd"
) -> Pool[str]:
    pool: Pool[str] = Pool(policies.create(policy, parameters), now=now, capacity=CAPACITY)
    for user in users:
        pool.add(user)
        pool.set_active(user, active=True)
    return pool


@pytest.mark.slow
@pytest.mark.parametrize(
    ("gift", "number"), [(HALF, 2000), (THREE, 200)], ids=["half", "three-sevenths"]
)
@pytest.mark.parametrize(("policy", "parameters"), REMEMBERING)
def test_a_user_that_has_just_received_much_is_not_next(
    policy: str, parameters: dict[str, object], gift: Quantities, number: int
) -> None:
    pool = equals(policy, parameters, 1.7e9 - 1000.0, users="ab")
    if gift is THREE:
        pool.set_capacity(Quantities.parse("cpus:7;mem:7"))
    for now in instants(number):
        pool.advance(now)
        pool.allocate("a", gift, times=0)
        assert list(pool) == ["b", "a"]
        assert pool.minimum() == "b"
        pool.release("a", gift)
        assert pool.minimum() == "a", "equal in everything: ordered by name"


@pytest.mark.parametrize(("policy", "parameters"), REMEMBERING)
def test_resources_that_are_free_at_one_instant_are_shared_equally_by_equal_users(
    policy: str, parameters: dict[str, object]
) -> None:
    """The users have had equal allocations before, and some of them none."""
    chance = random.Random(1)
    for start in instants(100):
        pool = equals(policy, parameters, start)
        for now in (start + 700.0 * chance.random(), start + 1e4 * chance.random() + 700.0):
            pool.advance(now)
            given = Counter[str]()
            for _ in range(8):
                user = pool.minimum()
                given[user] += 1
                pool.allocate(user, ONE, times=0)
            assert set(given.values()) == {2}, (start, now)
            pool.advance(now + 10.0)
            for user in given:
                pool.release(user, pool.held(user))


@pytest.mark.parametrize(("policy", "parameters"), REMEMBERING)
def test_a_sorter_snapshot_shares_free_resources_like_the_pool(
    policy: str, parameters: dict[str, object]
) -> None:
    for start in instants(50):
        pool = equals(policy, parameters, start)
        pool.advance(start + 333.3)
        front = SorterSnapshot(pool)
        for _ in range(8):
            user = next(iter(front))
            front.set_held(user, front.held(user) + ONE, 1)
        held = {user: total for user, total, _gifts in front.changed()}
        assert held == dict.fromkeys("abcd", ONE.times(2))


@pytest.mark.parametrize(("policy", "parameters"), REMEMBERING)
def test_equal_use_that_was_computed_in_other_steps_is_equal(
    policy: str, parameters: dict[str, object]
) -> None:
    """User a accrues use in many steps, which round in another way than b's single step."""
    chance = random.Random(2)
    for start in instants(20):
        pool = equals(policy, parameters, start, users="ab")
        for user in "ab":
            pool.allocate(user, ONE, times=0)
        now = start
        for _ in range(10):
            now += chance.uniform(1.0, 1e5)
            pool.advance(now)
            pool.allocate("a", HALF)
            pool.release("a", HALF)
        assert pool.minimum() == "b", "user a has more allocations"
        pool.allocate("b", ONE, times=0)
        assert pool.minimum() == "a", "user b has the larger allocation"


@pytest.mark.parametrize("policy", ["slurm-fair-tree", "kueue-afs", "volcano"])
def test_equal_users_share_equally_after_any_number_of_whole_half_lives(policy: str) -> None:
    """After 38 or 39 half-lives, the use is half a step in which priorities are compared."""

    def given(half_lives: int, chance: random.Random, *, steps_from_zero: bool) -> set[int]:
        parameters = {"half_life": 3600.0}
        pool: Pool[str] = Pool(
            policies.create(policy, parameters), capacity=CAPACITY, steps_from_zero=steps_from_zero
        )
        for user in "abcd":
            pool.add(user)
            pool.set_active(user, active=True)
            pool.allocate(user, Quantities.parse("cpus:2;mem:2"), times=0)
        pool.advance(3600.0)
        for user in "abcd":
            pool.release(user, pool.held(user))
        for part in sorted(chance.random() for _ in range(6)):
            pool.advance(3600.0 * (1.0 + part * half_lives))
            user = chance.choice("abcd")
            pool.allocate(user, ONE, times=0)
            pool.release(user, ONE)
        pool.advance(3600.0 * (1.0 + half_lives))
        numbers = Counter[str]()
        for _ in range(8):
            user = pool.minimum()
            numbers[user] += 1
            pool.allocate(user, ONE, times=0)
        return set(numbers.values())

    seeds = range(scaled(20))
    for half_lives in range(34, 42):
        for seed in seeds:
            shares = given(half_lives, random.Random(seed), steps_from_zero=False)
            assert shares == {2}, (half_lives, seed)
    former = [
        given(half_lives, random.Random(seed), steps_from_zero=True)
        for half_lives in (38, 39)
        for seed in seeds
    ]
    assert any(shares != {2} for shares in former), "the case is one that the former rule lost"


@pytest.mark.parametrize("policy", ["slurm-fair-tree", "kueue-afs", "volcano", "htcondor"])
def test_use_that_has_decayed_to_almost_nothing_counts_as_nothing(policy: str) -> None:
    """At 2^-40 of the cluster the use is less than a task of a millisecond."""
    for half_lives in (41, 60, 100, 400, 1000, 2000):
        pool = equals(policy, {"half_life": 10.0}, 0.0, users="ab")
        pool.allocate("a", HALF)
        pool.advance(10.0)
        pool.release("a", HALF)
        pool.advance(10.0 + 10.0 * half_lives)
        pool.allocate("b", ONE)
        assert pool.minimum() == "a"


def test_of_users_at_htcondors_lower_bound_the_one_with_the_smaller_allocation_is_next() -> None:
    """Half a slot of eight is half a CPU: a smaller allocation does not change a priority."""
    pool = equals("htcondor", {"slots": 8.0}, 1.7e9)
    quarter = Quantities.parse("cpus:0.1")
    for user, times in zip("abcd", (4, 3, 2, 1), strict=True):
        pool.allocate(user, quarter.times(times), times=0)
    pool.advance(1.7e9 + 10.0)
    assert list(pool) == ["d", "c", "b", "a"]


@pytest.mark.parametrize(
    ("policy", "parameters"), [case for case in REMEMBERING if case[0] != "htcondor"]
)
def test_users_with_equal_use_over_weight_share_by_weight(
    policy: str, parameters: dict[str, object]
) -> None:
    """Under HTCondor users with more weight come first: weights divide the lower bound too."""
    for start in instants(20):
        for cpus in range(8, 20):
            pool = equals(policy, parameters, start, users="ab")
            pool.set_capacity(ONE.times(cpus))
            pool.set_weight("b", 3.0)
            pool.advance(start + 77.7)
            for _ in range(8):
                pool.allocate(pool.minimum(), ONE, times=0)
            assert (pool.held("a"), pool.held("b")) == (ONE.times(2), ONE.times(6))


@pytest.mark.parametrize(
    ("policy", "parameters"), [case for case in REMEMBERING if case[0] not in ("sdrf", "stsf")]
)
def test_use_that_truly_differs_decides_whatever_the_allocations(
    policy: str, parameters: dict[str, object]
) -> None:
    if policy == "htcondor":
        parameters = {"slots": 1e9}
    pool = equals(policy, parameters, 0.0, users="ab")
    pool.allocate("a", ONE)
    pool.advance(1.0)
    pool.release("a", ONE)
    pool.allocate("b", HALF)
    assert pool.minimum() == "b"


def exact_starts(number: int) -> list[float]:
    """Return seconds to which half-lives can be added without rounding."""
    return [round(64.0 * start) / 64.0 for start in instants(number)]


def order(pool: Pool[str]) -> list[str]:
    """Return the order of a pool, after a check that snapshot, fork and first user agree."""
    ranking = list(pool)
    assert list(SorterSnapshot(pool)) == list(pool.twin()) == ranking
    assert pool.minimum() == ranking[0]
    return ranking


@pytest.mark.parametrize(("policy", "parameters"), STATEFUL)
def test_with_equal_share_and_commitment_the_user_with_the_falling_commitment_is_first(
    policy: str, parameters: dict[str, object]
) -> None:
    """The name of user b is between the others, so the name does not decide."""
    for start in exact_starts(400):
        pool = equals(policy, parameters, 1.7e9 - 1000.0, users="abc")
        for user in "abc":
            pool.set_demand(user, ONE)
        pool.advance(start)
        pool.set_commitment("b", 0.5)
        pool.advance(start + 3600.0)
        for user in "ac":
            pool.allocate(user, ONE.times(2), times=0)
        assert order(pool) == ["b", "a", "c"], start


@pytest.mark.parametrize(("policy", "parameters"), STATEFUL)
def test_equal_commitments_of_other_instants_leave_the_decision_to_count_and_name(
    policy: str, parameters: dict[str, object]
) -> None:
    for start in exact_starts(400):
        pool = equals(policy, parameters, 1.7e9 - 1000.0, users="abcd")
        for number, user in enumerate("dcba"):
            pool.advance(start + 3600.0 * number)
            pool.set_commitment(user, 0.5 / 2**number)
        pool.advance(start + 4.0 * 3600.0)
        assert order(pool) == ["a", "b", "c", "d"], start
        pool.allocate("b", ONE)
        pool.release("b", ONE)
        assert order(pool) == ["a", "c", "d", "b"], start


@pytest.mark.parametrize(("policy", "parameters"), STATEFUL)
def test_a_commitment_that_has_decayed_to_almost_nothing_counts_as_nothing(
    policy: str, parameters: dict[str, object]
) -> None:
    for start in exact_starts(400):
        pool = equals(policy, parameters, 1.7e9 - 1000.0, users="abc")
        pool.advance(start)
        pool.set_commitment("b", 1.0)
        pool.set_commitment("c", 0.5)
        pool.advance(start + 45.0 * 3600.0)
        assert order(pool) == ["a", "b", "c"], start
        pool.allocate("a", ONE)
        assert order(pool) == ["b", "c", "a"], start


@pytest.mark.parametrize(("policy", "parameters"), STATEFUL)
@pytest.mark.parametrize("half_lives", [38.0, 41.0, 45.0])
def test_many_users_with_decayed_commitments_keep_their_order_however_often_it_is_read(
    policy: str, parameters: dict[str, object], half_lives: float
) -> None:
    chance = random.Random(44)
    users = [f"u{number:02}" for number in range(40)]
    pool: Pool[str] = Pool(policies.create(policy, parameters), now=1.7e9, capacity=ONE.times(3000))
    for user in chance.sample(users, len(users)):
        pool.add(user, commitment=chance.random())
        pool.set_active(user, active=True)
        pool.set_demand(user, ONE)
        pool.allocate(user, ONE.times(chance.randint(0, 2)), times=chance.randint(0, 3))
    pool.advance(1.7e9 + 3600.0 * half_lives)
    for _ in range(20):
        unread = pool.twin()
        first = order(pool)
        if half_lives > 42.0:
            assert first == sorted(
                users, key=lambda user: (pool.held(user)["cpus"], pool.holding(user)[1], user)
            )
        assert order(pool) == first == order(unread)
        pool.advance(pool.now + 60.0)
        pool.allocate(pool.minimum(), ONE)


@pytest.mark.parametrize(("policy", "parameters"), STATEFUL)
def test_the_order_changes_at_a_crossing_and_not_before(
    policy: str, parameters: dict[str, object]
) -> None:
    """The commitment of b decays to the share of a after one half-life."""
    for start in exact_starts(100):
        pool = equals(policy, parameters, start, users="ab")
        for user in "ab":
            pool.set_demand(user, ONE)
        pool.allocate("a", ONE.times(2))
        pool.set_commitment("b", 0.5)
        [passing] = forecast_passings(pool, "b", start + 1e5)
        assert passing[1:] == ("b", "a")
        assert round(passing.when - start, 3) == 3600.0
        for later, first in ((0.0, "a"), (3599.999, "a"), (3600.0, "b"), (3600.001, "b")):
            pool.advance(start + later)
            assert order(pool)[0] == first, later
            assert len(forecast_passings(pool, "b", start + 1e5)) == (first == "a")


@pytest.mark.parametrize("policy", ["drf", "cmmf", "yarn-fair", "drfh", "per-machine-drf"])
def test_equal_shares_with_other_weights_are_equal(policy: str) -> None:
    """Among equal users the one with fewer allocations is first: b, with one, before a."""
    parameters: dict[str, object] = {"resource": "cpus"} if policy in ("cmmf", "yarn-fair") else {}
    for total in range(4, 60):
        for held in range(1, total // 4 + 1):
            pool: Pool[str] = Pool(policies.create(policy, parameters), capacity=ONE.times(total))
            for user, weight in (("a", 3.0), ("b", 1.0)):
                pool.add(user, weight=weight)
                pool.set_active(user, active=True)
            pool.allocate("a", ONE.times(3 * held), times=3)
            pool.allocate("b", ONE.times(held), times=1)
            assert pool.minimum() == "b", (total, held)
            assert next(iter(SorterSnapshot(pool))) == "b"


def test_the_exact_rule_of_former_event_logs_is_available() -> None:
    """Rounding decides: at some instants, the user that has just received half is next."""
    pool: Pool[str] = Pool(
        policies.create("volcano", {}), now=1.7e9, capacity=CAPACITY, exact_ties=True
    )
    for user in "ab":
        pool.add(user)
        pool.set_active(user, active=True)
    first = Counter[str]()
    for now in instants(200):
        pool.advance(now)
        pool.allocate("a", HALF, times=0)
        first[pool.minimum()] += 1
        pool.release("a", HALF)
    assert set(first) == {"a", "b"}


def test_steps_of_a_level_grow_with_its_value() -> None:
    values = [0.0, 1e-20, 1e-3, 0.999999, 1.0, 1.5, 2.0, 3e7, 1e300]
    levels = [Level(0, value, 0.0) for value in values]
    assert sorted(levels, key=lambda level: level.key) == levels
    for level in levels:
        assert abs(level.value - level.key[1]) <= NEAR * max(1.0, level.value)
    assert Level(0, 1e-20, 0.0).key == (0, 0.0, 0.0)
    assert Level(0, 0.3 - 0.1 - 0.2, 3 / 7 / 3).key == Level(0, 0.0, 1 / 7).key
