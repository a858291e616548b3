"""A sorter snapshot predicts the order after allocations; the pool confirms the prediction."""

import gc
import random
from dataclasses import replace
from itertools import pairwise

import pytest

from allocator.fairness import policies
from allocator.fairness.framework_sorter import FrameworkSorter
from allocator.fairness.pool import Pool
from allocator.fairness.quantities import Quantities
from allocator.fairness.sorter_snapshot import SorterSnapshot, SortKey
from tests.fairness.reference import after_gifts, priority_in

CAPACITY = Quantities.parse("cpus:100;mem:200")
GIFTS = [Quantities.parse(text) for text in ("cpus:1", "mem:3", "cpus:2;mem:1", "")]
POLICIES: list[tuple[str, dict[str, object]]] = [
    ("drf", {}),
    ("fifo", {}),
    ("sdrf", {"half_life": 60}),
    ("sdrf", {"half_life": 60, "form": "thesis"}),
    ("dynamic-drf", {"alpha": 0.1}),
    ("volcano", {}),
]


def drawn(
    chance: random.Random, policy: str, parameters: dict[str, object], users: int
) -> Pool[str]:
    """Return users with similar allocations, and some commitments."""
    pool: Pool[str] = Pool(policies.create(policy, parameters), capacity=CAPACITY)
    for number in range(users):
        user = f"u{number}"
        pool.add(user, weight=chance.choice([1.0, 2.0]), commitment=chance.choice([0.0, 0.0, 0.5]))
        pool.set_active(user, number < 2 or chance.random() < 0.9)
        pool.allocate(user, chance.choice(GIFTS))
    pool.advance(20.0)
    return pool


def in_order(
    really: Pool[str] | FrameworkSorter[str], at_first: Pool[str] | FrameworkSorter[str]
) -> list[str]:
    """Return the real order; if allocations do not change priorities, neither does rounding."""
    if isinstance(really, FrameworkSorter) or isinstance(at_first, FrameworkSorter):
        return list(really)
    return after_gifts(really, really, lambda user: priority_in(at_first, user))


def agrees(
    front: SorterSnapshot[str],
    really: Pool[str] | FrameworkSorter[str],
    at_first: Pool[str] | FrameworkSorter[str],
) -> None:
    """Compare the snapshot with the real order: positions, and certain precedences."""
    order = in_order(really, at_first)
    assert list(front) == order
    places = [front.sort_key(user) for user in order]
    assert [place.position for place in places] == sorted(place.position for place in places)
    for place, following in pairwise(places):
        assert not following.surely_before(place)
        assert not following.surely_before(following)
        if not place.tolerance:
            assert place.surely_before(following)


def gives(
    chance: random.Random,
    front: SorterSnapshot[str],
    really: Pool[str] | FrameworkSorter[str],
    at_first: Pool[str] | FrameworkSorter[str],
) -> set[str]:
    """Apply many random allocations and compare at times; return the receiving users."""
    given, users = set(), list(front)
    for _ in range(40):
        user = next(iter(front)) if chance.random() < 0.5 else chance.choice(users)
        gift, times = chance.choice(GIFTS), chance.choice([1, 1, 2])
        after = front.sort_key_after(user, gift, times) if chance.random() < 0.5 else None
        if front.alone and chance.random() < 0.5:
            front.allocate_later(user, gift, times)
        else:
            front.set_held(user, front.held(user) + gift, times)
        really.allocate(user, gift, times=times)
        given.add(user)
        if chance.random() < 0.5:
            agrees(front, really, at_first)
            present = front.sort_key(user)
            assert after in (None, present, replace(present, tolerance=0.0))
    return given


@pytest.mark.parametrize("users", [1, 2, 7])
@pytest.mark.parametrize(("policy", "parameters"), POLICIES)
def test_a_sorter_snapshot_predicts_the_order_of_the_pool_after_allocations(
    policy: str, parameters: dict[str, object], users: int
) -> None:
    chance = random.Random(users)
    pool = drawn(chance, policy, parameters, users)
    front, really, before = SorterSnapshot(pool), pool.twin(), list(pool)
    given = gives(chance, front, really, pool)
    assert {user: after for user, *after in front.changed()} == {
        user: list(really.holding(user)) for user in given
    }
    assert list(pool) == before, "the pool's order is unchanged"
    for user, held, gifts in front.changed():
        pool.hold(user, held, gifts)
    assert list(pool) == list(really)


@pytest.mark.parametrize("users", [1, 2, 7])
def test_a_snapshot_of_a_framework_sorter_predicts_its_order(users: int) -> None:
    chance = random.Random(users)
    peers, really = (FrameworkSorter[str](CAPACITY) for _ in range(2))
    for sorter in (peers, really):
        for number in range(users):
            sorter.add(f"u{number}")
            sorter.set_active(f"u{number}", active=True)
            sorter.allocate(f"u{number}", GIFTS[number % 3])
    front = SorterSnapshot(peers)
    agrees(front, really, peers)
    gives(chance, front, really, peers)
    agrees(front, really, peers)


@pytest.mark.parametrize(("policy", "parameters"), POLICIES)
def test_a_user_is_certainly_first_only_by_more_than_the_tolerance(
    policy: str, parameters: dict[str, object]
) -> None:
    pool = drawn(random.Random(4), policy, parameters, 7)
    front = SorterSnapshot(pool)
    priorities = {standing.user: standing.priority for standing in pool.standings()}
    for user, following in pairwise(pool):
        place, next_place = front.sort_key(user), front.sort_key(following)
        if priorities[following] - priorities[user] > 1e-6:
            assert place.surely_before(next_place)
        elif place.tolerance:
            assert not place.surely_before(next_place)


def test_a_user_certainly_precedes_another_only_by_more_than_both_tolerances() -> None:
    def place(priority: float, blur: float) -> SortKey:
        return SortKey((0, priority, (), 0.0, 0, "u"), blur)

    assert place(1.0, 0.25).surely_before(place(2.0, 0.5))
    assert not place(1.0, 0.5).surely_before(place(2.0, 0.5))
    assert not place(1.0, 0.0).surely_before(place(2.0, 1.0))
    assert not place(1.0, 1.0).surely_before(place(2.0, 0.0))
    assert place(1.0, 0.0).surely_before(SortKey((1, 0.5, (), 0.0, 0, "u"), 3.0))


def test_the_distance_to_a_sort_key_is_known_within_a_class() -> None:
    origin = SortKey((0, 1.0), 0.0)
    assert origin.distance_to(SortKey((0, 4.0), 0.0)) == 3.0
    assert origin.distance_to(SortKey((1, 4.0), 0.0)) is None


def test_only_an_allocation_that_changes_a_priority_adds_tolerance() -> None:
    pool: Pool[str] = Pool(policies.create("sdrf", {"half_life": 60}), capacity=CAPACITY)
    pool.add("u")
    pool.set_active("u", active=True)
    pool.allocate("u", Quantities.parse("cpus:25"))
    front = SorterSnapshot(pool)
    cpus, memory = Quantities.parse("cpus:25"), Quantities.parse("mem:25")
    moved, still = front.sort_key_after("u", cpus, 1), front.sort_key_after("u", memory, 1)
    assert (moved.priority, still.priority) == (0.5, 0.25)
    assert moved.position[2] == still.position[2], "both are exact"
    assert moved.tolerance > 0.0 == still.tolerance
    assert front.holding("u", front.held("u") + cpus, 1) == moved


def test_a_used_snapshot_is_freed_without_the_garbage_collector() -> None:
    """A message with a hundred events makes hundreds of ranked allocations."""
    pool = drawn(random.Random(1), "sdrf", {"half_life": 60}, users=5)
    list(pool)
    gc.collect()
    gc.disable()
    try:
        front = SorterSnapshot(pool)
        for user in list(front):
            front.sort_key_after(user, GIFTS[0], 1)
            front.set_held(user, front.held(user) + GIFTS[1], 1)
        list(front)
        del front
        assert gc.collect() == 0, "objects that refer to each other"
    finally:
        gc.enable()
