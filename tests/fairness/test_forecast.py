"""Forecasts compared with a slow search over many instants, and with the later events."""

import math
import random
from collections.abc import Callable

import pytest

from allocator.fairness import policies
from allocator.fairness.forecast import NOTICEABLE, Passing, above_after, below_after
from allocator.fairness.pool import Pool
from allocator.fairness.quantities import Quantities
from tests.fairness.forecasts import forecast_cost, forecast_passings, forecast_turn

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


def drawn(
    seed: int,
    policy: str,
    parameters: dict[str, object],
    users: int = 6,
    *,
    now: float = 1e9,
    waiting: float = 0.0,
) -> Pool[str]:
    chance = random.Random(seed)
    pool: Pool[str] = Pool(policies.create(policy, parameters), now=now, capacity=CAPACITY)
    for number in range(users):
        user = f"u{number}"
        pool.add(
            user,
            weight=chance.choice([0.5, 1.0, 2.0]),
            commitment={name: chance.random() for name in CAPACITY},
        )
        pool.set_active(user, chance.random() < 0.9 or number == 0)
    pool.advance(now + waiting)
    for _ in range(3):
        pool.advance(pool.now + chance.random() * HALF_LIFE)
        for number in range(users):
            amounts = {name: chance.randint(0, 4000) for name in CAPACITY}
            pool.allocate(f"u{number}", Quantities(amounts))
    return pool


def slow(pool: Pool[str], user: str) -> list[Passing[str]]:
    """Look at many instants, and bisect each interval in which two users changed their order."""
    active = [rival for rival in pool if rival != user]

    def lead(rival: str) -> Callable[[float], float]:
        still = pool.still()

        def by(after: float) -> float:
            at = {s.user: s.priority for s in still.standings_at(pool.now + after)}
            return at[rival] - at[user]

        return by

    collected = []
    for rival in active:
        by = lead(rival)
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
                pair = (user, rival) if samples[step] <= 0 else (rival, user)
                collected.append(Passing(pool.now + high, *pair))
    return sorted(collected)


@pytest.mark.parametrize(("policy", "parameters"), POLICIES)
@pytest.mark.parametrize("seed", [0, 1, 6])  # with seed 6, two users pass each other more than once
def test_forecast_passings_equal_those_of_a_slow_search(
    seed: int, policy: str, parameters: dict[str, object]
) -> None:
    pool = drawn(seed, policy, parameters, users=5)
    predicted = forecast_passings(pool, "u0", pool.now + HORIZON)
    expected = slow(pool, "u0")
    assert [passing[1:] for passing in predicted] == [passing[1:] for passing in expected]
    assert [passing.when for passing in predicted] == pytest.approx(
        [passing.when for passing in expected]
    )
    assert forecast_passings(pool, "u0", pool.now) == []


@pytest.mark.parametrize(
    ("policy", "waiting"),
    [("sdrf", 0.0), ("sdrf", 1000.0), ("dynamic-drf", 0.0), ("dynamic-drf", 80_000.0)],
)
def test_a_passing_is_forecast_until_it_has_happened(policy: str, waiting: float) -> None:
    parameters: dict[str, object] = {"half_life": HALF_LIFE} if policy == "sdrf" else {}
    foretold = 0
    for seed in range(12):
        pool = drawn(seed, policy, parameters, now=0.0, waiting=waiting)
        until = pool.now + 5 * HORIZON
        predicted = forecast_passings(pool, "u0", until)
        foretold += len(predicted)
        for number, passing in enumerate(predicted):
            assert pool.now < passing.when < until
            if policy == "dynamic-drf":  # its time is that of the pool
                assert forecast_passings(pool, "u0", passing.when) == predicted[:number]
            for when in (passing.when - 1.0, passing.when):  # forecast early, except for rounding
                later = pool.twin()
                later.advance(max(when, pool.now))
                still = [passing[1:] for passing in forecast_passings(later, "u0", until)]
                behind = sum(passing.when < later.now for passing in predicted)
                come = list(later).index(passing.passing) < list(later).index(passing.passed)
                assert still == [
                    passing[1:] for passing in predicted[behind + (come and number == behind) :]
                ]
    assert foretold >= 5


def test_random_pools_have_passings_to_forecast() -> None:
    counts = [
        len(
            forecast_passings(
                pool := drawn(seed, "sdrf", {"half_life": HALF_LIFE}), "u0", pool.now + HORIZON
            )
        )
        for seed in range(20)
    ]
    assert sum(counts) > 10


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("level", [0.01, 0.2])
def test_a_commitment_falls_below_a_level_at_the_forecast_time(seed: int, level: float) -> None:
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
def test_the_number_of_tasks_at_once_equals_that_of_single_allocations(
    seed: int, policy: str
) -> None:
    pool = drawn(seed, policy, {"half_life": HALF_LIFE} if policy == "sdrf" else {})
    demand, tasks = Quantities.parse("cpus:1;mem:0.5"), 40
    newcomer = pool.twin()
    newcomer.add("new", weight=2.0)
    newcomer.set_active("new", True)
    forecast = forecast_turn(newcomer, "new", demand, tasks, pool.now + HORIZON)
    given, giving = 0, newcomer.twin()
    while given < tasks and giving.minimum() == "new":
        giving.allocate("new", demand)
        given += 1
    assert forecast.at_once == given
    assert forecast.ahead == 0
    if given == tasks:
        assert forecast.first_after == 0.0
        return
    rest = newcomer.twin()
    rest.allocate("new", demand.times(tasks - 1), times=tasks - 1)
    if forecast.first_after is None:
        rest.advance(rest.now + HORIZON)
        assert rest.minimum() != "new"
    elif forecast.first_after:
        early = rest.twin()
        early.advance(early.now + forecast.first_after - 1.0)
        assert early.minimum() != "new"
        rest.advance(rest.now + forecast.first_after + 1e-3)
        assert rest.minimum() == "new"


@pytest.mark.parametrize("seed", range(10))
def test_the_forecast_cost_of_a_burst_equals_the_later_cost(seed: int) -> None:
    pool = drawn(seed, "sdrf", {"half_life": HALF_LIFE})
    burst, seconds = Quantities.parse("cpus:30"), 1200.0
    before = pool.standings()
    forecast = forecast_cost(pool, "u0", burst, seconds, pool.now + seconds + HORIZON)
    assert pool.standings() == before  # A forecast changes nothing.
    really, otherwise = pool.twin(), pool.twin()
    really.allocate("u0", burst)
    for twin in (really, otherwise):
        twin.advance(pool.now + seconds)
    really.release("u0", burst)
    assert forecast.after == pytest.approx(really.standing("u0").commitment)
    assert forecast.without == pytest.approx(otherwise.standing("u0").commitment)
    assert forecast.after > forecast.without
    place, alternative = list(really), list(otherwise)
    ahead = set(place[: place.index("u0")]) - set(alternative[: alternative.index("u0")])
    assert {user for user, _ in forecast.overtaken} == ahead
    for user, after in forecast.overtaken:
        if after is not None:
            later = really.twin()
            later.advance(later.now + after + 1e-3)
            order = list(later)
            assert order.index("u0") < order.index(user)
    assert forecast.recovered is not None
    for twin in (really, otherwise):
        twin.advance(twin.now + forecast.recovered)
    owes, would = (twin.standing("u0").commitments for twin in (really, otherwise))
    assert max(owes[name] - would[name] for name in owes) <= NOTICEABLE * (1 + 1e-9)


def leads_from(after: float | None, pool: Pool[str], user: str, rival: str | None = None) -> bool:
    """Return whether a user begins to precede another user, or all others, at `after` seconds.

    None for `after`: the user never takes the lead within the horizon.
    """
    still, rivals = pool.still(), [rival for rival in pool if rival != user]

    def leads(seconds: float) -> bool:
        at = {s.user: (s.priority, s.user) for s in still.standings_at(pool.now + seconds)}
        return all(at[user] < at[rival] for rival in (rivals if rival is None else [rival]))

    instants = [HORIZON * step / 60 for step in range(61)]
    return (after is None or leads(after + 1e-3)) and not any(
        leads(seconds) for seconds in instants if after is None or seconds < after
    )


@pytest.mark.parametrize("tasks", [1, 2, 12])
@pytest.mark.parametrize("policy", ["sdrf", "drf"])
def test_the_forecast_turn_of_any_users_tasks_equals_that_of_a_slow_search(
    policy: str, tasks: int
) -> None:
    demand = Quantities.parse("cpus:1;mem:0.5")
    for seed in range(4):
        pool = drawn(seed, policy, {"half_life": HALF_LIFE} if policy == "sdrf" else {})
        for user in pool:
            forecast = forecast_turn(pool, user, demand, tasks, pool.now + HORIZON)
            assert forecast.ahead == list(pool).index(user)
            giving, given = pool.twin(), 0
            while given < tasks and giving.minimum() == user:
                giving.allocate(user, demand)
                given += 1
            assert forecast.at_once == given
            rest = pool.twin()
            rest.allocate(user, demand.times(tasks - 1), times=tasks - 1)
            assert leads_from(forecast.first_after, rest, user)


@pytest.mark.parametrize("others", ["ac", "bc"])
def test_of_equal_users_the_first_in_the_pool_has_the_first_turn(others: str) -> None:
    for user in others:
        pool: Pool[str] = Pool(policies.create("drf", {}), capacity=CAPACITY)
        for member in others:
            pool.add(member)
            pool.set_active(member, True)
            pool.allocate(member, Quantities.parse("cpus:1"))
        first = user == min(others)
        at_once = forecast_turn(pool, user, Quantities.parse("cpus:1"), 3, pool.now).at_once
        assert at_once == (1 if first else 0)


@pytest.mark.parametrize("seed", range(4))
def test_turns_of_users_with_equal_shares_equal_those_of_single_allocations(seed: int) -> None:
    chance, one_cpu = random.Random(seed), Quantities.parse("cpus:1")
    for _ in range(15):
        pool: Pool[str] = Pool(policies.create("drf", {}), capacity=CAPACITY)
        for user in "abc":
            pool.add(user)
            pool.set_active(user, True)
            pool.allocate(user, one_cpu.times(chance.randint(0, 3)), times=chance.randint(0, 3))
        user, tasks = chance.choice("abc"), chance.randint(1, 4)
        giving, given = pool.twin(), 0
        while given < tasks and giving.minimum() == user:
            giving.allocate(user, one_cpu)
            given += 1
        forecast = forecast_turn(pool, user, one_cpu, tasks, pool.now + HORIZON)
        assert forecast.at_once == given
        assert forecast.first_after == (0.0 if given == tasks else None)


def has_had(pool: Pool[str], users: dict[str, tuple[int, int, int]]) -> None:
    """Let users hold one allocation for 100 s and another from then on, after some allocations."""
    for user in users:
        pool.add(user)
        pool.set_active(user, True)
    for place in (0, 1):
        for user, state in users.items():
            pool.hold(user, Quantities({"cpus": 1000 * state[place]}), state[2])
        pool.advance(pool.now + 100.0 * (place == 0))


@pytest.mark.parametrize(
    ("users", "turn_after"),
    [
        # Both u and x pass b at once, whose use grows by 10 a second; u has fewer allocations.
        ({"u": (1, 0, 1), "b": (0, 10, 1), "x": (1, 1, 3)}, 100 / 9),
        ({"u": (1, 0, 1), "b": (0, 10, 1), "a": (1, 1, 2)}, None),  # a is like u, and before u
        # When u passes b, x has passed u, although u preceded x.
        ({"u": (10, 0, 1), "b": (0, 4, 1), "x": (12, 0, 1)}, None),
        ({"u": (10, 0, 1), "b": (0, 4, 1), "x": (60, 0, 1)}, 1000 / 3),
    ],
)
def test_the_turn_comes_when_the_last_preceding_user_has_been_passed(
    users: dict[str, tuple[int, int, int]], turn_after: float | None
) -> None:
    pool: Pool[str] = Pool(policies.create("dynamic-drf", {}), capacity=CAPACITY)
    has_had(pool, users)
    forecast = forecast_turn(pool, "u", Quantities.parse("cpus:1"), 2, pool.now + 2000.0)
    assert forecast.first_after == (None if turn_after is None else pytest.approx(turn_after))


@pytest.mark.parametrize("cpus", [2, 40])
def test_users_overtaken_because_of_a_burst_lead_until_the_forecast_time(
    cpus: int,
) -> None:
    outcomes = set()
    for seed in range(6):
        pool = drawn(seed, "sdrf", {"half_life": HALF_LIFE})
        burst = Quantities({"cpus": 1000 * cpus})
        forecast = forecast_cost(pool, "u0", burst, 600.0, pool.now + 600.0 + HORIZON)
        really, otherwise = pool.twin(), pool.twin()
        really.allocate("u0", burst)
        for twin in (really, otherwise):
            twin.advance(pool.now + 600.0)
        really.release("u0", burst)
        for user, after in forecast.overtaken:
            assert leads_from(after, really, "u0", user)
            outcomes.add(after is None)
        owes, would = (twin.standing("u0").commitments for twin in (really, otherwise))
        surplus = max(owes[name] - would[name] for name in owes)
        faded = HALF_LIFE * math.log2(max(surplus / 0.01, 1.0))
        assert forecast.recovered == pytest.approx(faded)
    assert outcomes if cpus == 40 else True, "at least one user leads"


@pytest.mark.parametrize("capacity", [CAPACITY, Quantities()])
def test_under_a_policy_without_memory_a_burst_costs_nothing(capacity: Quantities) -> None:
    pool: Pool[str] = Pool(policies.create("drf", {}), capacity=capacity)
    pool.add("a")
    forecast = forecast_cost(pool, "a", Quantities.parse("cpus:1"), 60.0, 600.0)
    assert forecast == (0.0, 0.0, 0.0, [])
    assert below_after(pool.standing("a"), None, 0.01) == 0.0


@pytest.mark.parametrize(
    ("owed", "held", "level", "half_lives"),
    [
        ({"cpus": 0.4}, "", 0.1, 2.0),
        ({"cpus": 0.4, "mem": 0.8}, "", 0.1, 3.0),
        ({"cpus": 0.6}, "cpus:75", 0.4, math.log2(0.35 / 0.15)),  # an overuse of 0.25
        ({"cpus": 0.6}, "cpus:75", 0.25, None),  # approaches the level only asymptotically
        ({"cpus": 0.25}, "cpus:100", 0.25, 0.0),  # at the level now, although it rises
        (
            {"cpus": 0.2},
            "mem:100",
            0.1,
            None,
        ),  # when this commitment has decayed, another has risen
        ({"cpus": 0.2}, "mem:60", 0.1, 1.0),
        ({"cpus": 0.2}, "mem:65", 0.1, 1.0),  # another commitment rises above the level later
    ],
)
def test_a_commitment_is_below_a_level_after_the_forecast_number_of_half_lives(
    owed: dict[str, float], held: str, level: float, half_lives: float | None
) -> None:
    pool: Pool[str] = Pool(policies.create("sdrf", {"half_life": HALF_LIFE}), capacity=CAPACITY)
    pool.add("a", commitment=owed)
    pool.add("b")
    pool.allocate("a", Quantities.parse(held))
    expected = None if half_lives is None else pytest.approx(half_lives * HALF_LIFE)
    assert below_after(pool.standing("a"), pool.policy.tau, level) == expected


@pytest.mark.parametrize(
    ("held", "level", "half_lives"),
    [
        ("cpus:100", 0.3, math.log2(0.4 / 0.2)),  # an overuse of 0.5, from a commitment of 0.1
        ("cpus:100;mem:90", 0.35, math.log2(0.4 / 0.15)),  # the first of two resources
        ("cpus:70", 0.2, None),  # approaches the level only asymptotically
        ("cpus:40", 0.2, None),
        ("cpus:100", 0.05, 0.0),
    ],
)
def test_a_commitment_rises_above_a_level_after_the_forecast_number_of_half_lives(
    held: str, level: float, half_lives: float | None
) -> None:
    pool: Pool[str] = Pool(policies.create("sdrf", {"half_life": HALF_LIFE}), capacity=CAPACITY)
    pool.add("a", commitment={"cpus": 0.1})
    pool.add("b")
    pool.allocate("a", Quantities.parse(held))
    after = above_after(pool.standing("a"), pool.policy.tau, level)
    if half_lives is None or after is None:
        assert half_lives is after
        return
    assert after == pytest.approx(half_lives * HALF_LIFE)
    pool.advance(after - 1.0)
    assert half_lives == 0.0 or pool.standing("a").commitment < level
    pool.advance(after + 1.0)
    assert pool.standing("a").commitment > level


def test_commitments_of_a_former_policy_decay_below_a_level_too() -> None:
    pool: Pool[str] = Pool(policies.create("drf", {}), capacity=CAPACITY)
    pool.add("a", commitment={"cpus": 0.4})
    pool.set_fading(100.0 / math.log(2.0))
    after = below_after(pool.standing("a"), 100.0 / math.log(2.0), 0.1)
    assert after == pytest.approx(200.0)
    assert below_after(pool.standing("a"), None, 0.1) is None


def test_a_fork_and_its_original_develop_alike_and_independently() -> None:
    for seed in range(10):
        pool = drawn(seed, "sdrf", {"half_life": HALF_LIFE})
        twin, before = pool.twin(), pool.standings()
        twin.advance(twin.now + 500.0)
        twin.allocate("u1", Quantities.parse("cpus:5"))
        assert pool.standings() == before
        pool.advance(pool.now + 500.0)
        pool.allocate("u1", Quantities.parse("cpus:5"))
        assert list(pool) == list(twin)
        for standing, twin_standing in zip(pool.standings(), twin.standings(), strict=True):
            assert standing.commitments == pytest.approx(twin_standing.commitments)
