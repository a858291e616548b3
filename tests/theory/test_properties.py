"""Properties: Table I of the TSF paper, its counterexamples, and the detection of known bugs."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.theory.divisible.optimum import DivisiblePolicy, create, names, optimum
from allocator.theory.divisible.problem import Problem, ProblemUser, read_problem
from allocator.theory.divisible.problem_file import file_of
from allocator.theory.properties import (
    envy_freeness,
    pareto,
    sharing_incentive,
    single_machine,
    single_resource,
    strategy_proofness,
)
from allocator.theory.properties.case import Case, Violation
from allocator.theory.properties.pools import in_pools, weighted
from allocator.theory.properties.search import PROPERTIES, search, smallest
from allocator.theory.properties.shrinking import extent, simpler
from tests.examples import examples

TRIALS = 60
"""Enough to find every planted bug below; `bench/properties.py` tries thousands."""
MORE = 250
"""Enough attempts to find counterexamples that hold for every placement of tasks."""
BY_NAME = {wanted.name: wanted for wanted in PROPERTIES}
TICKS = {
    "per-machine-drf": ["strategy-proofness", "envy-freeness", "single-machine"],
    "drfh": ["strategy-proofness", "envy-freeness", "pareto-optimality", "single-machine"],
    "cdrf": ["sharing-incentive", "pareto-optimality", "single-machine"],
    "tsf": list(BY_NAME)[:6],
}
"""Table I."""
MORE_THAN_THE_TABLE = [("drfh", "single-resource")]
"""With a single resource, the dominant share is the share of that resource, so DRFH is CMMF and
this missing tick has no counterexample.
"""
HELD = [(policy, name) for policy, held in TICKS.items() for name in held] + MORE_THAN_THE_TABLE
LACKED = [(p, name) for p in TICKS for name in TICKS["tsf"] if (p, name) not in HELD]


def problem(machines: dict[str, dict[str, float]], *users: dict[str, Any]) -> Problem:
    listed = [{"name": name, "resources": has} for name, has in machines.items()]
    return read_problem({"machines": listed, "users": users})


def user(name: str, demand: dict[str, float], *where: str, **options: object) -> dict[str, Any]:
    return {
        "name": name,
        "demand": demand,
        **({"machines": list(where)} if where else {}),
        **options,
    }


def find(policy: DivisiblePolicy, name: str, *, trials: int = TRIALS) -> Violation | None:
    return search(policy, BY_NAME[name], trials=trials, seed=1).violation


@pytest.mark.parametrize(("policy", "name"), HELD)
def test_a_tick_of_table_i_survives_a_search(policy: str, name: str) -> None:
    outcome = search(create(policy, {}), BY_NAME[name], trials=TRIALS, seed=1)
    assert outcome.violation is None, outcome.violation
    assert outcome.undecided < TRIALS / 20


@pytest.mark.parametrize(("policy", "name"), LACKED)
def test_a_missing_tick_of_table_i_has_a_small_counterexample(policy: str, name: str) -> None:
    counterexample = find(create(policy, {}), name, trials=MORE)
    assert counterexample is not None
    assert counterexample.certain
    assert len(counterexample.problem.users) <= 4
    assert len(counterexample.problem.machines) <= 3
    read = read_problem(file_of(counterexample.problem))
    assert read == counterexample.problem
    assert optimum(read, create(policy, {})).users[counterexample.user].tasks == counterexample.has


@pytest.mark.parametrize("policy", ["tsf", "cdrf"])
def test_no_lie_pays_where_weights_follow_from_pools(policy: str) -> None:
    """Theorem 3: with these weights TSF equals CDRF, because both share nᵢ / kᵢ."""
    assert find(create(policy, {}), "pooled-strategy-proofness") is None


CPU = {"cpu": 1.0}
FIGURE_2 = problem(
    {"m1": {"cpu": 18, "mem": 18}, "m2": {"cpu": 18, "mem": 18}},
    user("u1", {"cpu": 1, "mem": 2}),
    user("u2", {"cpu": 1, "mem": 3}, "m2"),
)
FIGURE_3 = problem(
    {"m1": {"cpu": 3}, "m2": {"cpu": 3}, "m3": {"cpu": 3}},
    user("u1", CPU, "m1"),
    user("u2", CPU),
    *(user(f"u{i}", CPU, "m2" if i < 5 else "m3") for i in range(3, 8)),
)


def test_the_lie_of_figure_2_pays_under_cdrf_and_not_under_tsf() -> None:
    lie = Case(FIGURE_2, lie=FIGURE_2.users[1].model_copy(update={"machines": None}))
    counterexample = strategy_proofness.violation(create("cdrf", {}), lie)
    assert counterexample is not None
    assert counterexample.user == "u2"
    assert [counterexample.has, counterexample.instead] == [4, 6]
    assert not counterexample.certain  # u1 and u2 could change places
    assert counterexample.placement == {"u1": {"m1": Fraction(9)}, "u2": {"m2": Fraction(6)}}
    assert strategy_proofness.violation(create("tsf", {}), lie) is None


def test_the_envy_of_figure_3_occurs_under_cdrf_and_not_under_tsf() -> None:
    counterexample = envy_freeness.violation(create("cdrf", {}), Case(FIGURE_3))
    assert counterexample is not None
    assert counterexample.certain
    assert counterexample.text == "u1 runs 1 task, and on the resources of u2 it could run 2"
    assert envy_freeness.violation(create("tsf", {}), Case(FIGURE_3)) is None


def test_tasks_on_machines_that_a_liar_cannot_use_or_of_a_wrong_shape_are_of_no_use() -> None:
    two = problem({"m1": {"cpu": 4, "mem": 4}, "m2": {"cpu": 4, "mem": 4}}, user("u1", CPU, "m1"))
    for claim in ({"machines": None}, {"demand": {"mem": Fraction(1)}}):
        lie = Case(two, lie=two.users[0].model_copy(update=claim))
        assert strategy_proofness.violation(create("tsf", {}), lie) is None


def test_weights_follow_from_pools_by_theorem_1() -> None:
    shared = problem(
        {"m1": {"cpu": 4, "mem": 2}, "m2": {"cpu": 2, "mem": 4}},
        user("u1", {"cpu": 1, "mem": 1}),
        user("u2", {"cpu": 2, "mem": 1}, "m1"),
    )
    pools = {"u1": {"m2": {"cpu": 2, "mem": 4}}, "u2": {"m1": {"cpu": 4, "mem": 2}}}
    alone = in_pools(shared, pools)
    assert list(alone.values()) == [2, 2]
    weights = [
        [user.weight for user in weighted(shared, alone, constrained=constrained).users]
        for constrained in (False, True)
    ]
    assert weights == [[3, 4], [1, 2]]  # h = 4 and 3; g = 4 and 2
    case = Case(shared, pools=pools)
    assert sharing_incentive.violation(create("tsf", {}), case) is None
    assert sharing_incentive.violation(create("cdrf", {}), case) is None
    assert sharing_incentive.violation(create("per-machine-drf", {}), case) is not None


def test_waste_is_found_where_each_machine_is_shared_apart() -> None:
    two = problem(
        {"m1": {"cpu": 12, "mem": 2}, "m2": {"cpu": 2, "mem": 12}},
        user("u1", {"cpu": 6, "mem": 1}),
        user("u2", {"cpu": 1, "mem": 6}),
    )
    assert pareto.violation(create("per-machine-drf", {}), Case(two)) is not None
    assert pareto.violation(create("drfh", {}), Case(two)) is None


def monopoly_on_machines_it_may_use(problem: Problem, member: ProblemUser) -> Fraction:
    return 1 / problem.constrained_monopoly(member)


def largest_machine(problem: Problem, member: ProblemUser) -> Fraction:
    return 1 / max(member.fit(machine) for machine in problem.machines)


def number_of_tasks(_problem: Problem, _member: ProblemUser) -> Fraction:
    return Fraction(1)


@pytest.mark.parametrize(
    ("share", "name"),
    [
        (monopoly_on_machines_it_may_use, "strategy-proofness"),
        (monopoly_on_machines_it_may_use, "envy-freeness"),
        (monopoly_on_machines_it_may_use, "single-resource"),
        (largest_machine, "sharing-incentive"),
        (number_of_tasks, "sharing-incentive"),
        (number_of_tasks, "strategy-proofness"),
        (number_of_tasks, "envy-freeness"),
        (number_of_tasks, "single-machine"),
        (number_of_tasks, "single-resource"),
    ],
)
def test_a_bug_planted_in_tsf_is_found(share: Any, name: str) -> None:  # noqa: ANN401
    assert find(DivisiblePolicy("tsf", share), name) is not None


def test_tsf_with_each_machine_shared_apart_is_found_to_waste() -> None:
    tsf = create("tsf", {})
    assert find(replace(tsf, per_machine=True), "pareto-optimality") is not None


@pytest.mark.parametrize("policy", names())
def test_every_policy_can_be_asked(policy: str) -> None:
    for wanted in PROPERTIES:
        outcome = search(create(policy, {}), wanted, trials=3, seed=3)
        assert outcome.undecided < 3


@pytest.mark.parametrize("policy", ["stsf", "sdrf"])
@pytest.mark.parametrize("name", ["pareto-optimality", "single-machine"])
def test_commitments_waste_nothing_and_on_one_machine_count_as_in_sdrf(
    policy: str, name: str
) -> None:
    assert find(create(policy, {}), name) is None


@pytest.mark.parametrize("policy", ["stsf", "sdrf"])
@pytest.mark.parametrize("name", ["sharing-incentive", "envy-freeness"])
def test_a_user_with_a_commitment_gets_less_than_its_pool_and_envies(
    policy: str, name: str
) -> None:
    counterexample = find(create(policy, {}), name)
    assert counterexample is not None
    owing = {user.name for user in counterexample.problem.users if user.commitment}
    assert counterexample.user in owing


def test_a_search_is_reproducible_and_another_seed_gives_another_case() -> None:
    first, repeated, different = (
        search(create("drfh", {}), BY_NAME["sharing-incentive"], trials=TRIALS, seed=seed)
        for seed in (1, 1, 2)
    )
    assert first == repeated
    assert first.tried != different.tried


def test_a_reduction_is_tried_only_on_cases_within_its_scope() -> None:
    assert single_machine.violation(create("cdrf", {}), Case(FIGURE_3)) is None
    assert single_resource.violation(create("cdrf", {}), Case(FIGURE_2)) is None


def test_figure_3_shrinks_to_a_case_that_shows_the_same() -> None:
    cdrf = create("cdrf", {})
    case = Case(FIGURE_3)
    envy = envy_freeness.violation(cdrf, case)
    assert envy is not None
    reduced = smallest(cdrf, envy_freeness.PROPERTY, case, envy)
    assert envy_freeness.violation(cdrf, Case(reduced.problem)) is not None
    assert len(reduced.problem.users) <= 4
    assert len(reduced.problem.machines) == 2


@examples(25)
@given(st.randoms(use_true_random=False), st.sampled_from(PROPERTIES), st.booleans())
def test_simplified_cases_are_smaller_and_still_valid(rng: Any, wanted: Any, debts: bool) -> None:  # noqa: ANN401, FBT001
    case = wanted.draw(rng, 0.5, debts)
    for candidate in simpler(case):
        if extent(candidate) < extent(case):
            read_problem(file_of(candidate.problem))
            if candidate.lie is not None:
                altered = strategy_proofness.problem_with(candidate.problem, candidate.lie)
                read_problem(file_of(altered))
