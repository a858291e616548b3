"""What is foretold is what a slow look at many instants finds, and what then happens."""

import random
from collections.abc import Callable

import pytest

from allocator.fairness import policies
from allocator.fairness.forecast import NOTICEABLE, Passing, below_after, cost, passings, turn
from allocator.fairness.pool import Pool
from allocator.fairness.quantities import Quantities

CAPACITY = Quantities.parse("cpus:100;mem:100;gpus:100")
HALF_LIFE = 600.0
HORIZON = 6000.0
STEPS = 300
POLICIES: list[tuple[str, dict[str, object]]] = [
    ("sdrf", {"half_life": HALF_LIFE}),
    ("sdrf", {"half_life": HALF_LIFE, "form": "thesis"}),
    ("dynamic-drf", {}),
    ("drf", {}),
]


def drawn(seed: int, policy: str, parameters: dict[str, object], users: int = 6) -> Pool[str]:
    chance = random.Random(seed)
    pool: Pool[str] = Pool(policies.create(policy, parameters), now=1e9, capacity=CAPACITY)
    for number in range(users):
        user = f"u{number}"
        pool.add(
            user,
            weight=chance.choice([0.5, 1.0, 2.0]),
            commitment={name: chance.random() for name in CAPACITY},
        )
        pool.set_active(user, chance.random() < 0.9 or number == 0)
    for _ in range(3):
        pool.advance(pool.now + chance.random() * HALF_LIFE)
        for number in range(users):
            amounts = {name: chance.randint(0, 4000) for name in CAPACITY}
            pool.allocate(f"u{number}", Quantities(amounts))
    return pool


def slow(pool: Pool[str], user: str) -> list[Passing[str]]:
    """Look at many instants, and bisect wherever the order of two has changed."""
    active = [other for other in pool if other != user]

    def lead(other: str) -> Callable[[float], float]:
        still = pool.still()

        def by(after: float) -> float:
            at = {s.user: s.priority for s in still.standings_at(pool.now + after)}
            return at[other] - at[user]

        return by

    found = []
    for other in active:
        by = lead(other)
        samples = [by(HORIZON * step / STEPS) for step in range(STEPS + 1)]
        for step in range(STEPS):
            low, high = HORIZON * step / STEPS, HORIZON * (step + 1) / STEPS
            if (samples[step] > 0) != (samples[step + 1] > 0):
                for _ in range(50):
                    middle = (low + high) / 2
                    if (by(middle) > 0) == (samples[step] > 0):
                        low = middle
                    else:
                        high = middle
                pair = (user, other) if samples[step] <= 0 else (other, user)
                found.append(Passing(pool.now + high, *pair))
    return sorted(found)


@pytest.mark.parametrize(("policy", "parameters"), POLICIES)
@pytest.mark.parametrize("seed", [0, 1, 6])  # in 6 two pass each other more than once
def test_passings_are_those_that_a_slow_look_finds(
    seed: int, policy: str, parameters: dict[str, object]
) -> None:
    pool = drawn(seed, policy, parameters, users=5)
    found = passings(pool, "u0", pool.now + HORIZON)
    expected = slow(pool, "u0")
    assert [each[1:] for each in found] == [each[1:] for each in expected]
    assert [each.when for each in found] == pytest.approx([each.when for each in expected])


def test_there_is_something_to_foretell() -> None:
    counts = [
        len(
            passings(
                pool := drawn(seed, "sdrf", {"half_life": HALF_LIFE}), "u0", pool.now + HORIZON
            )
        )
        for seed in range(20)
    ]
    assert sum(counts) > 10


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("level", [0.01, 0.2])
def test_a_commitment_falls_below_a_level_when_it_is_said_to(seed: int, level: float) -> None:
    pool = drawn(seed, "sdrf", {"half_life": HALF_LIFE})
    after = below_after(pool.standing("u0"), pool.policy.tau, level)
    still = pool.still()

    def owed(seconds: float) -> float:
        [standing] = [s for s in still.standings_at(pool.now + seconds) if s.user == "u0"]
        return standing.commitment

    instants = [HALF_LIFE * 20 * step / 400 for step in range(400)]
    if after is None:
        assert min(map(owed, instants)) > level
    else:
        assert owed(after) <= level * (1 + 1e-9)
        assert all(owed(instant) > level for instant in instants if instant < after * (1 - 1e-9))


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("policy", ["sdrf", "drf"])
def test_tasks_that_come_at_once_are_those_that_giving_one_by_one_gives(
    seed: int, policy: str
) -> None:
    pool = drawn(seed, policy, {"half_life": HALF_LIFE} if policy == "sdrf" else {})
    demand, tasks = Quantities.parse("cpus:1;mem:0.5"), 40
    newcomer = pool.twin()
    newcomer.add("new", weight=2.0)
    newcomer.set_active("new", True)
    said = turn(newcomer, "new", demand, tasks, pool.now + HORIZON)
    given, giving = 0, newcomer.twin()
    while given < tasks and giving.minimum() == "new":
        giving.allocate("new", demand)
        given += 1
    assert said.at_once == given
    assert said.ahead == 0
    if given == tasks:
        assert said.first_after == 0.0
        return
    rest = newcomer.twin()
    rest.allocate("new", demand.times(tasks - 1), times=tasks - 1)
    if said.first_after is None:
        rest.advance(rest.now + HORIZON)
        assert rest.minimum() != "new"
    elif said.first_after:
        early = rest.twin()
        early.advance(early.now + said.first_after - 1.0)
        assert early.minimum() != "new"
        rest.advance(rest.now + said.first_after + 1e-3)
        assert rest.minimum() == "new"


@pytest.mark.parametrize("seed", range(10))
def test_a_burst_costs_what_it_then_turns_out_to_cost(seed: int) -> None:
    pool = drawn(seed, "sdrf", {"half_life": HALF_LIFE})
    burst, seconds = Quantities.parse("cpus:30"), 1200.0
    before = pool.standings()
    said = cost(pool, "u0", burst, seconds, pool.now + seconds + HORIZON)
    assert pool.standings() == before  # asking changes nothing
    really, otherwise = pool.twin(), pool.twin()
    really.allocate("u0", burst)
    for twin in (really, otherwise):
        twin.advance(pool.now + seconds)
    really.release("u0", burst)
    assert said.after == pytest.approx(really.standing("u0").commitment)
    assert said.without == pytest.approx(otherwise.standing("u0").commitment)
    assert said.after > said.without
    place, other = list(really), list(otherwise)
    ahead = set(place[: place.index("u0")]) - set(other[: other.index("u0")])
    assert {user for user, _ in said.overtaken} == ahead
    for user, after in said.overtaken:
        if after is not None:
            later = really.twin()
            later.advance(later.now + after + 1e-3)
            order = list(later)
            assert order.index("u0") < order.index(user)
    assert said.recovered is not None
    for twin in (really, otherwise):
        twin.advance(twin.now + said.recovered)
    owes, would = (twin.standing("u0").commitments for twin in (really, otherwise))
    assert max(owes[name] - would[name] for name in owes) <= NOTICEABLE * (1 + 1e-9)


def test_a_twin_goes_its_own_way_as_the_original_would() -> None:
    for seed in range(10):
        pool = drawn(seed, "sdrf", {"half_life": HALF_LIFE})
        twin, before = pool.twin(), pool.standings()
        twin.advance(twin.now + 500.0)
        twin.allocate("u1", Quantities.parse("cpus:5"))
        assert pool.standings() == before
        pool.advance(pool.now + 500.0)
        pool.allocate("u1", Quantities.parse("cpus:5"))
        assert list(pool) == list(twin)
        for one, other in zip(pool.standings(), twin.standings(), strict=True):
            assert one.commitments == pytest.approx(other.commitments)
