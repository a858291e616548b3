"""A framework sorter has the order of a pool under DRF after the same changes."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.fairness import policies
from allocator.fairness.framework_sorter import FrameworkSorter
from allocator.fairness.pool import Pool
from allocator.fairness.quantities import Quantities

USERS = ["a", "b", "c", "d", "e", "f"]
GIFTS = [Quantities.parse(text) for text in ("cpus:1", "mem:100", "cpus:1;mem:50", "disk:3", "")]

change = st.one_of(
    st.tuples(st.just("give"), st.sampled_from(USERS), st.sampled_from(GIFTS)),
    st.tuples(st.just("take"), st.sampled_from(USERS), st.just(0)),
    st.tuples(st.just("wake"), st.sampled_from(USERS), st.booleans()),
    st.tuples(
        st.just("grow"),
        st.just(""),
        st.builds(
            lambda cpus, mem, disk: Quantities({"cpus": cpus, "mem": mem, "disk": disk}),
            st.integers(90_000, 110_000) | st.integers(1, 10**6),
            st.integers(9_000_000, 11_000_000) | st.integers(1, 10**9),
            st.sampled_from([0, 100_000]),
        ),
    ),
)


class Both:
    """The same users in a framework sorter, and in a pool under DRF."""

    def __init__(self) -> None:
        capacity = Quantities({"cpus": 100_000, "mem": 10_000_000})
        self.pool: Pool[str] = Pool(
            policies.create("drf", {}), capacity=capacity, excluded=("disk",), exact_ties=True
        )  # without weights, so that both round in the same way
        self.peers: FrameworkSorter[str] = FrameworkSorter(capacity, ("disk",))
        for user in USERS:
            self.pool.add(user)
            self.peers.add(user)

    def change(self, kind: str, user: str, value: object) -> None:
        for sorter in (self.pool, self.peers):
            if isinstance(value, Quantities) and kind == "grow":
                sorter.set_capacity(value)
            elif isinstance(value, Quantities):
                sorter.allocate(user, value, times=2)
            elif kind in {"take", "go"}:
                sorter.release(user, sorter.held(user))
                if kind == "go":  # removed and added again
                    sorter.remove(user)
                    sorter.add(user)
            else:
                sorter.set_active(user, bool(value))


@given(st.lists(change, max_size=40))
def test_a_framework_sorter_has_the_order_of_drf(changes: list[tuple[str, str, object]]) -> None:
    both = Both()
    pool, peers = both.pool, both.peers
    for change in changes:
        both.change(*change)
        assert list(peers) == list(pool)
        assert peers.active == pool.active
        assert peers.held() == pool.held()
        for member in peers:
            added = Quantities.parse("cpus:3;mem:7")
            assert peers.holding(member) == pool.holding(member)
            assert peers.prospect(member).rank == pool.prospect(member).rank
            assert peers.prospect(member).rank_of(added) == pool.prospect(member).rank_of(added)


@pytest.mark.parametrize("seed", range(3))
def test_a_framework_sorter_has_the_order_of_drf_after_many_changes(seed: int) -> None:
    chance, both = random.Random(seed), Both()
    for user in USERS:
        both.change("wake", user, True)
    for _ in range(300):
        user = chance.choice(USERS)
        match chance.randrange(9):
            case 0:
                names = chance.choice([("cpus",), ("cpus", "mem"), ("cpus", "mem", "disk")])
                amounts = {name: chance.randint(98_000, 102_000) for name in names}
                both.change("grow", "", Quantities(amounts))
            case 1 | 2:
                both.change(chance.choice(["take", "go"]), user, 0)
            case 3:
                both.change("wake", user, chance.random() < 0.8)
            case _:
                both.change("give", user, chance.choice(GIFTS))
        assert list(both.peers) == list(both.pool)
        assert both.peers.active == both.pool.active


def test_frameworks_with_equal_shares_are_ordered_by_allocation_count() -> None:
    both = Both()
    for user, gift, often in (("a", "mem:2500", 2), ("b", "cpus:26", 1), ("c", "cpus:25.999", 3)):
        both.change("wake", user, True)
        for _ in range(often):
            both.change("give", user, Quantities())
        both.change("give", user, Quantities.parse(gift))
    assert list(both.peers) == list(both.pool) == ["a", "c", "b"]
    both.change("grow", "", Quantities.parse("cpus:104;mem:10000"))
    assert list(both.peers) == list(both.pool) == ["c", "b", "a"]
    both.change("give", "c", Quantities.parse("mem:2550"))
    assert list(both.peers) == list(both.pool) == ["b", "a", "c"]


def test_frameworks_without_counted_resources_are_ordered_by_allocation_count() -> None:
    peers: FrameworkSorter[str] = FrameworkSorter(Quantities({"cpus": 1000}), ("disk",))
    for often, user in enumerate(USERS):
        peers.add(user)
        peers.set_active(user, active=True)
        peers.allocate(user, Quantities({"disk": 1000} if often % 2 else {}), times=often)
    assert list(peers) == USERS
