"""Ranks, shortfalls and predicted half-lives are correct on random clusters."""

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from allocator.contract import operator_pb2 as operator
from allocator.cooperative import run_to_completion
from allocator.fairness import policies
from allocator.fairness.pool import Pool
from allocator.fairness.quantities import Quantities
from allocator.service.show.explain import explain, halved_after
from allocator.service.show.explanations import ExplanationFacts
from allocator.service.show.shares import UserShare, read_shares, user_shares
from allocator.users.settings import DeclaredUser
from tests.cluster.master_side import MasterSide, resources

ROLES = ("a", "b", "c", "c/d", "c/e", "f")
POLICIES: tuple[tuple[str, dict[str, object]], ...] = (
    ("drf", {}),
    ("sdrf", {"delta": 0.99}),
    ("sdrf", {"delta": 0.99, "form": "thesis"}),
    ("sdrf", {"delta": 0.99, "ranking": "scan"}),
    ("tsf", {}),
    ("stsf", {"delta": 0.99}),
    ("fifo", {}),
    ("dynamic-drf", {"alpha": 0.5}),
)


@st.composite
def clusters(draw: st.DrawFn) -> MasterSide:
    policy, parameters = draw(st.sampled_from(POLICIES))
    users = tuple(
        DeclaredUser(
            name,
            weight=draw(st.sampled_from((0.5, 1.0, 3.0))),
            commitment=draw(st.sampled_from((0.0, 0.1, 0.5, 1.0))),
        )
        for name in draw(st.lists(st.sampled_from(ROLES), unique=True))
    )
    side = MasterSide(policy, parameters, users=users, excluded=["gpus"])
    held = {
        f"f-{role}": resources(
            f"cpus:{draw(st.integers(1, 3))};mem:{draw(st.integers(1, 9))}", role
        )
        for role in draw(st.lists(st.sampled_from(ROLES), unique=True))
    }
    side.add_agent("s1", "cpus:18;mem:54;gpus:3", held)
    for role in draw(st.lists(st.sampled_from(ROLES), unique=True)):
        side.add_framework(f"f-{role}", role, active=draw(st.booleans()))
    side.tick(draw(st.sampled_from((0.5, 10.0, 500.0))))
    return side


def levels(rows: list[UserShare]) -> list[list[UserShare]]:
    parents = dict.fromkeys(row.parent for row in rows)
    return [[row for row in rows if row.parent == parent] for parent in parents]


@given(side=clusters())
def test_ranks_are_a_permutation_in_order_of_priority(side: MasterSide) -> None:
    engine = side.engine
    rows = user_shares(engine)
    assert {row.user for row in rows} == {standing.user for standing in engine.standings()}
    for siblings in levels(rows):
        assert [row.rank for row in siblings] == list(range(1, len(siblings) + 1))
        for ahead, behind in pairwise(siblings):
            assert ahead.standing.priority <= behind.standing.priority
    places = {user: place for place, user in enumerate(engine.pool)}
    wanting = [row for row in rows if row.user in places]
    for ahead, behind in pairwise(wanting):
        if ahead.standing.priority == behind.standing.priority:
            assert places[ahead.user] < places[behind.user], (
                "users of equal priority are ranked in the order of offers"
            )


@given(side=clusters())
def test_top_level_users_have_equal_rows_in_metrics_and_commands(side: MasterSide) -> None:
    at_the_top = [row for row in user_shares(side.engine) if not row.parent]
    engine = side.engine
    of_metrics = run_to_completion(read_shares(engine, list(engine.pool.users())))
    assert [vars(row) for row in of_metrics] == [vars(row) for row in at_the_top]
    held = sum((row.standing.allocation for row in at_the_top), start=Quantities())
    assert held == side.engine.pool.held()


@given(side=clusters())
def test_only_users_that_want_offers_have_a_shortfall(side: MasterSide) -> None:
    for row in user_shares(side.engine):
        own = row.standing
        assert row.shortfall >= 0.0
        if own.active:
            assert max(own.share, own.entitlement) == pytest.approx(own.share + row.shortfall)
        else:
            assert row.shortfall == 0.0


@given(side=clusters())
def test_the_parts_of_every_explanation_add_up(side: MasterSide) -> None:
    rows = user_shares(side.engine)
    for row in rows:
        explanation = explain(side.engine, row, rows, ExplanationFacts())
        parts = explanation.priority
        assert (parts.held + parts.owed) / parts.weight == pytest.approx(row.standing.priority)
        assert explanation.priority_without_debt <= row.standing.priority + 1e-12
        assert 1 <= explanation.rank_without_debt <= row.rank
        assert (explanation.turn > 0) == row.standing.active == (not explanation.no_offers)


@pytest.mark.parametrize(
    ("cpus", "said"),
    [
        ((4, 6), "whose priority value is larger by 0.2000."),
        ((5000, 5001), "whose priority value is larger by less than 0.0001."),
        ((5, 5), "whose priority value is equal."),
    ],
)
def test_an_explanation_says_that_neighbours_have_equal_priorities(
    cpus: tuple[int, int], said: str
) -> None:
    side = MasterSide("drf")
    for framework, user in (("f1", "a"), ("f2", "b")):
        side.add_framework(framework, user)
    for number, amount in enumerate(cpus):
        side.add_agent(f"s{number}", f"cpus:{amount}")
    rows = user_shares(side.engine)
    assert sorted(row.standing.share for row in rows) == [n / sum(cpus) for n in cpus]
    words = " ".join(explain(side.engine, rows[0], rows, ExplanationFacts()).words)
    assert said in words
    assert ("If priorities are equal" in words) == (cpus == (5, 5))


@pytest.mark.parametrize(("commitment", "is_named"), [(0.0004, False), (0.0006, True)])
def test_a_commitment_that_would_be_shown_as_zero_is_not_named_as_a_cause(
    commitment: float, *, is_named: bool
) -> None:
    side = MasterSide("sdrf", {"half_life": "1h"})
    for framework, user in (("f1", "a"), ("f2", "b")):
        side.add_framework(framework, user)
    side.add_agent("s1", "cpus:4;mem:512")
    change = operator.SetCommitments(user="a", others=commitment)
    side.engine.order(operator.Order(set_commitments=change))
    rows = user_shares(side.engine)
    row = next(row for row in rows if row.user == "a")
    words = " ".join(explain(side.engine, row, rows, ExplanationFacts()).words)
    assert ("commitment will" in words) == is_named
    assert ("a commitment of less than 0.1% of" in words) != is_named
    assert " 0.0%" not in words


@example(held=10, owed={"mem": 1.0}, weight=1.0)  # cpus rise to a half and not beyond
@example(held=10, owed={"mem": 0.9}, weight=1.0)  # when mem has halved, cpus are still below it
@given(
    held=st.integers(0, 10),
    owed=st.dictionaries(st.sampled_from(("cpus", "mem")), st.floats(0.001, 1.0)),
    weight=st.sampled_from((0.2, 1.0, 5.0)),
)
def test_commitments_halve_at_the_predicted_time_and_not_without_prediction(
    held: int, owed: dict[str, float], weight: float
) -> None:
    policy = policies.create("sdrf", {"half_life": 100})
    pool: Pool[str] = Pool(policy, capacity=Quantities.parse("cpus:10;mem:10"))
    pool.add("a", weight=weight)
    pool.add("b")
    pool.allocate("a", Quantities.from_doubles({"cpus": held}))
    pool.set_commitment("a", owed)
    now = pool.standing("a")
    after = halved_after(now, policy.tau)
    if after is not None:
        pool.advance(after)
        assert pool.standing("a").commitment == pytest.approx(now.commitment / 2)
        return
    for seconds in (1, 10, 100, 150, 1_000, 10_000):
        pool.advance(seconds)
        assert pool.standing("a").commitment >= now.commitment / 2


def test_commitments_are_shown_while_the_cluster_has_no_agents() -> None:
    side = MasterSide("sdrf", {"delta": 0.999})
    side.add_agent("s1", "cpus:4;mem:4096")
    side.add_framework("f1", "a")
    side.add_framework("f2", "b")
    side.tick(100.0)
    [owed] = [row.dominant_commitment for row in user_shares(side.engine) if row.user == "a"]
    side.remove_agent("s1")
    rows = {row.user: row for row in user_shares(side.engine)}
    assert rows["a"].dominant_commitment == owed > 0.0
    assert rows["b"].dominant_commitment == 0.0
