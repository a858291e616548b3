"""Peers against a pool under DRF: the same order after the same changes."""

from hypothesis import given
from hypothesis import strategies as st

from allocator.fairness import policies
from allocator.fairness.peers import Peers
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


@given(st.lists(change, max_size=40))
def test_peers_are_in_the_order_of_drf(changes: list[tuple[str, str, object]]) -> None:
    capacity = Quantities({"cpus": 100_000, "mem": 10_000_000})
    pool: Pool[str] = Pool(policies.create("drf", {}), capacity=capacity, excluded=("disk",))
    peers: Peers[str] = Peers(capacity, ("disk",))
    for user in USERS:
        pool.add(user)
        peers.add(user)
    for kind, user, what in changes:
        if isinstance(what, Quantities) and kind == "grow":
            pool.set_capacity(what)
            peers.set_capacity(what)
        elif isinstance(what, Quantities):
            pool.allocate(user, what, times=2)
            peers.allocate(user, what, times=2)
        elif kind == "take":
            held = peers.held(user)
            pool.release(user, held)
            peers.release(user, held)
        else:
            pool.set_active(user, bool(what))
            peers.set_active(user, bool(what))
        assert list(peers) == list(pool)
        assert peers.active == pool.active
        assert peers.held() == pool.held()
        for member in peers:
            more = Quantities.parse("cpus:3;mem:7")
            assert peers.prospect(member).rank == pool.prospect(member).rank
            assert peers.prospect(member).rank_of(more) == pool.prospect(member).rank_of(more)


def test_who_holds_nothing_that_counts_comes_by_how_often_it_got_something() -> None:
    peers: Peers[str] = Peers(Quantities({"cpus": 1000}), ("disk",))
    for often, user in enumerate(USERS):
        peers.add(user)
        peers.set_active(user, active=True)
        peers.allocate(user, Quantities({"disk": 1000} if often % 2 else {}), times=often)
    assert list(peers) == USERS
