"""Allocation, overuse and commitments of users are counted exactly, by hour."""

import math
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import fields

import pytest

from allocator.fairness import metering, policies
from allocator.fairness.metering import (
    HOUR,
    AccountCheckpoint,
    AccountState,
    Integrals,
    Meter,
    UsageAccumulator,
)
from allocator.fairness.pool import Pool
from allocator.fairness.quantities import Quantities

CAPACITY = Quantities.parse("cpus:160;mem:245760;disk:100")
TASK = Quantities.parse("cpus:1;mem:1024")
BEGIN = 1_700_000_000.0
NODES = (-0.906179845938664, -0.538469310105683, 0.0, 0.538469310105683, 0.906179845938664)
WEIGHTS = (0.236926885056189, 0.478628670499366, 0.568888888888889, 0.478628670499366)
GAUSS = list(zip(NODES, (*WEIGHTS, WEIGHTS[0]), strict=True))
"""Gauss-Legendre quadrature: exact for polynomials of degree 9."""

Sums = dict[tuple[int, str, str], dict[str, float]]


def slow(pool: Pool[str], begin: float, end: float) -> Iterator[tuple[int, float, float]]:
    """Split a time into short intervals; yield instants with their weights in a quadrature."""
    hours = range(math.floor(begin / HOUR) + 1, math.ceil(end / HOUR))
    edges = [begin, *(float(hour * HOUR) for hour in hours)]
    for start, right in zip(edges, [*edges[1:], end], strict=True):
        pieces = max(1, math.ceil((right - start) / 300.0))
        for piece in range(pieces):
            middle = start + (piece + 0.5) * (right - start) / pieces
            half = (right - start) / pieces / 2
            for node, weight in GAUSS:
                yield math.floor(start / HOUR), middle + node * half, weight * half


class Reference:
    """Reads an unmetered pool at many instants, and adds up."""

    def __init__(self, pool: Pool[str]) -> None:
        self.pool = pool
        self.sums: Sums = {}
        self.wanted: dict[tuple[int, str], float] = {}
        self.waited: dict[tuple[int, str], float] = {}

    def advance(self, now: float) -> None:
        capacity = self.pool.capacity
        for hour, when, weight in slow(self.pool, self.pool.now, now):
            for standing in self.pool.still().standings_at(when):
                user = standing.user
                for name, total in capacity.items():
                    sums = self.sums.setdefault((hour, user, name), {})
                    held, entitled = standing.allocation[name], standing.entitlement * total
                    for quantity, amount in {
                        "held": held,
                        "overused": max(held - entitled, 0.0),
                        "owed": standing.commitments.get(name, 0.0) * total,
                        "entitled": entitled,
                    }.items():
                        sums[quantity] = sums.get(quantity, 0.0) + amount * weight
                if standing.active:
                    key = hour, user
                    self.wanted[key] = self.wanted.get(key, 0.0) + weight
                    if standing.share < standing.entitlement:
                        self.waited[key] = self.waited.get(key, 0.0) + weight
        self.pool.advance(now)


def made(policy: str, parameters: dict[str, object], excluded: tuple[str, ...] = ()) -> Pool[str]:
    pool: Pool[str] = Pool(
        policies.create(policy, parameters), now=BEGIN, capacity=CAPACITY, excluded=excluded
    )
    for user in "ABC":
        pool.add(user)
    return pool


def change(pool: Pool[str], chance: random.Random) -> None:
    user = chance.choice(sorted(pool.users()))
    match chance.randrange(8):
        case 0:
            pool.set_active(user, chance.random() < 0.5)
        case 1:
            pool.set_weight(user, chance.choice([0.5, 1.0, 3.0]))
        case 2:
            pool.set_capacity(CAPACITY.times(chance.randint(1, 3)))
        case 3:
            pool.set_commitment(user, {"cpus": chance.random(), "disk": 0.5, "gpus": 0.5})
        case 4 if not pool.held(user):
            pool.remove(user)
        case 5 if "D" not in pool:
            pool.add("D", commitment=0.25)
        case _:
            if pool.held(user) and chance.random() < 0.4:
                pool.release(user, pool.held(user))
            else:
                pool.allocate(user, TASK.times(chance.randint(1, 60)))


@pytest.mark.parametrize("look", [False, True])
@pytest.mark.parametrize(
    ("policy", "parameters"), [("sdrf", {"half_life": "20m"}), ("drf", {})], ids=["sdrf", "drf"]
)
@pytest.mark.parametrize("seed", range(2))
def test_integrals_equal_those_of_a_slow_reference(
    seed: int, policy: str, parameters: dict[str, object], *, look: bool
) -> None:
    chance = random.Random(seed)
    pool, reference = made(policy, parameters), Reference(made(policy, parameters))
    meter, counted = Meter(), UsageAccumulator()
    meter.restart(BEGIN, pool.policy.tau, ())
    pool.attach(meter)
    now = BEGIN
    for _ in range(25):
        now += chance.choice([0.0, 1.0, 90.0, 2000.0])
        pool.advance(now)
        reference.advance(now)
        state = chance.getstate()
        change(pool, chance)
        chance.setstate(state)
        change(reference.pool, chance)
        if look:
            for user in pool.users():
                pool.count(user)
            counted.add(meter.take())
    now += 5000.0
    pool.advance(now)
    reference.advance(now)
    for user in pool.users():
        pool.count(user)
    counted.add(meter.take())
    for (hour, user, name), expected in reference.sums.items():
        tally = counted.users[hour][user]
        for quantity, amount in expected.items():
            metered = getattr(tally.resources[name], quantity)
            assert metered == pytest.approx(amount, rel=1e-9, abs=1e-3)
        assert tally.wanted == pytest.approx(reference.wanted.get((hour, user), 0.0))
        assert tally.waited == pytest.approx(reference.waited.get((hour, user), 0.0))
    assert {(h, u) for h, us in counted.users.items() for u in us} == {
        (hour, user) for hour, user, _ in reference.sums
    }


@pytest.mark.parametrize("seed", range(3))
def test_metering_does_not_change_the_pool(seed: int) -> None:
    chance = random.Random(seed)
    metered, bare = (made("sdrf", {"half_life": "20m"}) for _ in range(2))
    meter = Meter()
    meter.restart(BEGIN, metered.policy.tau, ())
    metered.attach(meter)
    now = BEGIN
    for _ in range(60):
        now += chance.choice([0.0, 1.0, 900.0])
        state = chance.getstate()
        for pool in (metered, bare):
            chance.setstate(state)
            pool.advance(now)
            change(pool, chance)
        assert metered.standings() == bare.standings()
        assert list(metered) == list(bare)


def test_pending_intervals_are_bounded_and_may_be_summed_at_any_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sums = []
    for most, prompt in ((1000, False), (5, False), (1000, True)):
        monkeypatch.setattr(metering, "MOST_WAITING", most)
        pool, meter, waited = made("sdrf", {"half_life": "20m"}), Meter(), list[int]()
        meter.restart(BEGIN, pool.policy.tau, ())
        pool.attach(meter)
        for number in range(200):
            pool.advance(BEGIN + 50.0 * number)
            pool.allocate("AAB"[number % 3], TASK)
            meter.offered(("AAB"[number % 3],), pool.now)
            if prompt:
                next(meter.counted.add_up_in_steps(), None)
            waited.append(max(len(meter.counted.spans), len(meter.counted.offer_events) - 1))
        assert max(waited) <= most if most == 5 else prompt or max(waited) > 100
        sums.append(meter.take())
        sums[-1].add_up()
    assert sums[0] == sums[1] == sums[2]


class Metered:
    """A metered pool under SDRF with the cluster's capacity and offers; disk does not count."""

    def __init__(self) -> None:
        self.pool, self.meter = made("sdrf", {"half_life": "20m"}, ("disk",)), Meter()
        self.meter.restart(BEGIN, self.pool.policy.tau, ("disk",))
        self.pool.attach(self.meter)

    def step(self, now: int, user: str, chance: random.Random) -> None:
        """Offer resources to a user and let the user decline some, then apply a random change."""
        self.pool.advance(now)
        self.meter.offered((user, "all"), now)
        self.meter.refused((user,), now)
        self.meter.count_capacity(self.pool.capacity, now)
        change(self.pool, chance)

    def close(self, number: int) -> None:
        """Begin to close accounts, and close some of them."""
        formers = self.meter.close()
        for user in sorted(self.pool.users())[:number]:
            formers[user] = self.pool.count(user)


def flat(counted: UsageAccumulator) -> dict[tuple[object, ...], object]:
    """Return all nonzero counts, by hour, user, resource and quantity."""
    flattened: dict[tuple[object, ...], float] = {
        (hour, name): amount
        for hour, amounts in counted.capacity.items()
        for name, amount in amounts.items()
    }
    for hour, tallies in counted.users.items():
        for user, tally in tallies.items():
            for name in ("wanted", "waited", "offers", "refused"):
                flattened[hour, user, name] = getattr(tally, name)
            for name, integrals in tally.resources.items():
                for field in fields(integrals):
                    flattened[hour, user, name, field.name] = getattr(integrals, field.name)
    return {key: pytest.approx(value, abs=1e-3) for key, value in flattened.items() if value}


@pytest.mark.parametrize("seed", range(2))
def test_each_instant_and_offer_counts_once_however_accounts_are_closed_and_read(
    seed: int,
) -> None:
    chance = random.Random(seed)
    whole, parts = Metered(), Metered()
    together, counted, expected = (
        UsageAccumulator(),
        UsageAccumulator(),
        Counter[tuple[object, ...]](),
    )
    now = int(BEGIN)
    for _ in range(50):
        before, now = now, now + chance.choice([0, 1, 90, 2000])
        hours = Counter(second // HOUR for second in range(before, now))
        expected.update(
            {
                (hour, name): total * seconds
                for name, total in whole.pool.capacity.items()
                for hour, seconds in hours.items()
            }
        )
        user, state = chance.choice(sorted(whole.pool.users())), chance.getstate()
        expected.update({(now // HOUR, "all", "offers"): 1, (now // HOUR, user, "refused"): 1})
        for metered in (whole, parts):
            chance.setstate(state)
            metered.step(now, user, chance)
        if chance.random() < 0.3:
            parts.close(chance.randint(0, 4))
        if chance.random() < 0.2:
            together.add(parts.meter.take())
        if chance.random() < 0.3:
            parts.meter.counted.add_up()
    for metered in (whole, parts):
        metered.close(4)
    for metered in (parts, parts, whole, whole):
        (together if metered is parts else counted).add(metered.meter.take())
    flattened = flat(counted)
    assert flat(together) == flattened
    assert {key: flattened[key] for key in expected} == expected
    assert not any(key[2:] == ("disk", "entitled") for key in flattened)
    assert not any("gpus" in key for key in flattened), "the cluster has no gpus"


def test_no_capacity_is_counted_before_counting_has_begun() -> None:
    meter = Meter()
    meter.count_capacity(CAPACITY, BEGIN)
    assert not meter.counted.capacity


def test_an_hour_begins_at_each_multiple_of_3600_seconds_since_1970() -> None:
    meter = Meter()
    meter.bridge({"A": former(7200.0, 9)}, {"A": former(14400.0, 9)}, CAPACITY)
    meter.counted.add_up()
    assert {hour: users["A"].resources["cpus"] for hour, users in meter.counted.users.items()} == {
        hour: Integrals(held=9000 * 3600.0, entitled=80_000 * 3600.0) for hour in (2, 3)
    }
    assert {hour: had["cpus"] for hour, had in meter.counted.capacity.items()} == dict.fromkeys(
        (2, 3), 160_000 * 3600.0
    )


def test_a_user_that_holds_exactly_its_entitlement_does_not_wait() -> None:
    pool, meter = made("drf", {}), Meter()
    meter.restart(BEGIN, None, ())
    pool.attach(meter)
    pool.remove("C")
    pool.allocate("A", Quantities.parse("cpus:80"))
    for user in "AB":
        pool.set_active(user, True)
    pool.advance(BEGIN + 60.0)
    waited = {}
    for user in "AB":
        pool.count(user)
        meter.counted.add_up()
        waited[user] = meter.counted.usage(int(BEGIN) // HOUR, user).waited
    assert waited == {"A": 0.0, "B": 60.0}


def test_a_commitment_of_one_task_is_a_thousand_thousandths() -> None:
    meter = Meter()
    owing = [
        AccountCheckpoint(at, AccountState(Quantities(), 0.5, {"tasks": 0.25}, {}, active=False))
        for at in (BEGIN, BEGIN + 60.0)
    ]
    meter.bridge({"A": owing[0]}, {"A": owing[1]}, CAPACITY)
    meter.counted.add_up()
    [users] = meter.counted.users.values()
    assert users["A"].resources["tasks"].owed == 0.25 * 1000 * 60.0


def test_no_instant_is_counted_twice_when_a_clock_goes_back() -> None:
    meter = Meter()
    for begin in (BEGIN, BEGIN - 500.0):  # another master, whose clock is behind
        pool: Pool[str] = Pool(policies.create("drf", {}), now=begin, capacity=CAPACITY)
        meter.restart(begin, None, ())
        pool.attach(meter)
        pool.add("A")
        pool.allocate("A", TASK)
        pool.advance(begin + 1000.0)
        pool.count("A")
    counted = UsageAccumulator()
    counted.add(meter.take())
    held = sum(
        tally.resources["cpus"].held for users in counted.users.values() for tally in users.values()
    )
    assert held == pytest.approx(1000 * 1000.0)  # the second time adds nothing


def former(at: float, cpus: int, *, owed: float = 0.0, over: float = 0.0) -> AccountCheckpoint:
    stretch = AccountState(
        Quantities({"cpus": 1000 * cpus}), 0.5, {"cpus": owed}, {"cpus": over}, active=True
    )
    return AccountCheckpoint(at, stretch)


def test_a_gap_counts_the_allocation_common_to_before_and_after() -> None:
    meter = Meter()
    meter.restart(BEGIN, 1000.0, ())
    before = {"A": former(BEGIN, 90, owed=0.5, over=0.2), "gone": former(BEGIN, 5)}
    after = {"A": former(BEGIN + 60.0, 100, over=0.1), "new": former(BEGIN + 60.0, 5)}
    meter.bridge(before, after, CAPACITY)
    meter.counted.add_up()
    [users] = meter.counted.users.values()
    assert set(users) == {"A"}
    cpus = users["A"].resources["cpus"]
    assert cpus.held == 90_000 * 60.0
    assert cpus.overused == 10_000 * 60.0
    part = -math.expm1(-0.06)
    assert cpus.owed == pytest.approx((0.1 * 60.0 + 0.4 * 1000.0 * part) * 160_000)


def test_a_gap_counts_waiting_and_overuse_only_if_present_before_and_after() -> None:
    meter = Meter()
    meter.restart(BEGIN, 1000.0, ())
    at, stood = former(BEGIN, 90, over=0.5)
    for later in (stood._replace(active=False), stood._replace(overuse={})):
        meter.bridge(
            {"A": AccountCheckpoint(at, stood)},
            {"A": AccountCheckpoint(at + 60.0, later)},
            CAPACITY,
        )
        taken = meter.take()
        taken.add_up()
        [users] = taken.users.values()
        assert users["A"].wanted == (60.0 if later.active else 0.0)
        assert (users["A"].resources["cpus"].owed > 0.0) == bool(later.overuse)


@pytest.mark.parametrize("seconds", [0.5, 7200.0])
def test_a_gap_of_any_length_up_to_the_longest_counts(seconds: float) -> None:
    meter = Meter()
    meter.bridge({"A": former(BEGIN, 9)}, {"A": former(BEGIN + seconds, 9)}, CAPACITY)
    meter.counted.add_up()
    held = sum(users["A"].resources["cpus"].held for users in meter.counted.users.values())
    assert held == pytest.approx(9000 * seconds)


def test_without_a_meter_an_account_has_the_present_time() -> None:
    pool = made("drf", {})
    pool.advance(pool.now + 5.0)
    assert pool.count("A").at == pool.now


@pytest.mark.parametrize("seconds", [0.0, -5.0, 7200.5])
def test_a_gap_that_is_empty_or_too_long_is_not_counted(seconds: float) -> None:
    meter = Meter()
    meter.bridge({"A": former(BEGIN, 9)}, {"A": former(BEGIN + seconds, 9)}, CAPACITY)
    meter.counted.add_up()
    assert not meter.counted.users
    assert not meter.counted.capacity
