"""The divisible optimum has the properties that the paper proves (Propositions 1-6)."""

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from allocator.fairness import policies
from allocator.fairness.commitment import time_constant
from allocator.fairness.pool import Pool
from allocator.fairness.quantities import Quantities
from allocator.theory.divisible import FluidUser, drf, equation_10, fluid, mmf, sdrf, smmf

entries = st.floats(0.01, 1.0)


@st.composite
def games(draw: st.DrawFn) -> tuple[list[list[float]], list[list[float]]]:
    """Demands and commitments of two to five users over one to three resources."""
    users, resources = draw(st.integers(2, 5)), draw(st.integers(1, 3))
    row = st.lists(entries, min_size=resources, max_size=resources)
    owed = st.lists(st.floats(0.0, 1.0), min_size=resources, max_size=resources)
    return (
        draw(st.lists(row, min_size=users, max_size=users)),
        draw(st.lists(owed, min_size=users, max_size=users)),
    )


def utility(demand: list[float], allocation: list[float]) -> float:
    """Eq. 2."""
    return max(demand) * min(*(o / d for o, d in zip(allocation, demand, strict=True)), 1.0)


def use(allocations: list[list[float]]) -> list[float]:
    return [math.fsum(column) for column in zip(*allocations, strict=True)]


@given(games())
def test_the_optimum_is_feasible_and_solves_equation_10(
    game: tuple[list[list[float]], list[list[float]]],
) -> None:
    demands, owed = game
    optimum = sdrf(demands, owed)
    assert all(total <= 1 + 1e-9 for total in use(optimum.allocations))
    for demand, owes, got in zip(demands, owed, optimum.allocations, strict=True):
        for o, d in zip(got, demand, strict=True):
            tilde = d / max(demand)
            level = max(0.0, min(d, (optimum.level - max(owes)) * tilde))
            assert o == pytest.approx(level, abs=1e-9)


def test_users_without_demand_for_an_exhausted_resource_continue_to_get_tasks() -> None:
    demands = [[1.0, 0.0], *[[0.0, 1.0]] * 3]
    owed = [[0.2, 0.0], *[[0.0, 0.0]] * 3]
    literal = equation_10(demands, owed)
    assert literal.level == pytest.approx(1 / 3)
    assert literal.allocations[0] == pytest.approx([1 / 3 - 0.2, 0.0])
    optimum = sdrf(demands, owed)
    assert optimum.allocations[0] == [1.0, 0.0]
    assert optimum.allocations[1:] == literal.allocations[1:]
    assert optimum.levels == pytest.approx([1.2, *[1 / 3] * 3])


@given(games())
def test_where_all_need_something_of_everything_the_optimum_is_equation_10_to_the_letter(
    game: tuple[list[list[float]], list[list[float]]],
) -> None:
    assert sdrf(*game) == equation_10(*game)


@given(games())
def test_no_higher_level_is_feasible(game: tuple[list[list[float]], list[list[float]]]) -> None:
    demands, owed = game
    low, high = 0.0, 10.0  # an independent solver: bisection on Eq. 10

    def total(level: float) -> float:
        at = [
            [max(0.0, min(d, (level - max(c)) * d / max(row))) for d in row]
            for row, c in zip(demands, owed, strict=True)
        ]
        return max(use(at))

    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if total(middle) <= 1.0 else (low, middle)
    optimum = sdrf(demands, owed)
    expected = [
        [max(0.0, min(d, (low - max(c)) * d / max(row))) for d in row]
        for row, c in zip(demands, owed, strict=True)
    ]
    for got, wanted in zip(optimum.allocations, expected, strict=True):
        assert got == pytest.approx(wanted, abs=1e-9)


@given(games())
def test_lemma_1_and_corollary_1_every_resource_is_allocated_in_proportion_to_the_demand(
    game: tuple[list[list[float]], list[list[float]]],
) -> None:
    """Lemma 1: o_ir = o_id θ̃_ir. Corollary 1: o_ir / θ̂_ir is the same for every resource."""
    demands, owed = game
    for demand, got in zip(demands, sdrf(demands, owed).allocations, strict=True):
        dominant = max(range(len(demand)), key=demand.__getitem__)
        for o, d in zip(got, demand, strict=True):
            assert o == pytest.approx(got[dominant] * d / demand[dominant])
            assert o / d == pytest.approx(got[dominant] / demand[dominant])


@given(games())
def test_proposition_1_demands_are_met_or_a_resource_is_used_up(
    game: tuple[list[list[float]], list[list[float]]],
) -> None:
    demands, owed = game
    optimum = sdrf(demands, owed)
    if optimum.bottlenecks:
        total = use(optimum.allocations)
        assert all(total[r] == pytest.approx(1.0) for r in optimum.bottlenecks)
    else:
        for got, demand in zip(optimum.allocations, demands, strict=True):
            assert got == pytest.approx(demand)


@given(games(), st.data())
def test_proposition_2_lying_about_a_demand_does_not_pay_in_the_stage_game(
    game: tuple[list[list[float]], list[list[float]]], data: st.DataObject
) -> None:
    demands, owed = game
    liar = data.draw(st.integers(0, len(demands) - 1))
    row = st.lists(entries, min_size=len(demands[0]), max_size=len(demands[0]))
    lie = [*demands[:liar], data.draw(row), *demands[liar + 1 :]]
    honest = utility(demands[liar], sdrf(demands, owed).allocations[liar])
    assert utility(demands[liar], sdrf(lie, owed).allocations[liar]) <= honest + 1e-9


@given(games(), st.data())
def test_proposition_4_nothing_is_given_that_its_user_cannot_use(
    game: tuple[list[list[float]], list[list[float]]], data: st.DataObject
) -> None:
    demands, owed = game
    optimum = sdrf(demands, owed)
    user = data.draw(st.integers(0, len(demands) - 1))
    resource = data.draw(st.integers(0, len(demands[0]) - 1))
    got = optimum.allocations[user]
    assume(got[resource] > 1e-6)
    reduced = list(got)
    reduced[resource] *= 0.9
    assert utility(demands[user], reduced) < utility(demands[user], got)


@given(games())
def test_proposition_5_no_user_can_gain_unless_another_user_loses(
    game: tuple[list[list[float]], list[list[float]]],
) -> None:
    demands, owed = game
    optimum = sdrf(demands, owed)
    total = use(optimum.allocations)
    for demand, got in zip(demands, optimum.allocations, strict=True):
        if utility(demand, got) < max(demand) - 1e-9:
            # More tasks need more of every resource, and one resource is exhausted.
            assert any(total[r] == pytest.approx(1.0) for r in optimum.bottlenecks)
            assert all(demand[r] > 0 for r in optimum.bottlenecks)


@given(games())
def test_proposition_6_a_user_that_never_overused_gets_at_least_an_equal_share(
    game: tuple[list[list[float]], list[list[float]]],
) -> None:
    """The proof's strategy: request 1/n, so have no commitment and get 1/n (Appendix B)."""
    demands, owed = game
    n = len(demands)
    modest = [[1 / n] * len(demands[0]), *demands[1:]]
    clean = [[0.0] * len(demands[0]), *owed[1:]]
    assert sdrf(modest, clean).allocations[0] == pytest.approx(modest[0])


@given(games())
def test_without_commitments_and_with_equal_demands_dominant_shares_are_equal(
    game: tuple[list[list[float]], list[list[float]]],
) -> None:
    demands, _ = game
    endless = [[entry / max(row) for entry in row] for row in demands]
    shares = [max(got) for got in drf(endless).allocations]
    assert shares == pytest.approx([shares[0]] * len(shares))
    assert sdrf(endless, [[0.0] * len(row) for row in demands]) == drf(endless)


@given(st.lists(entries, min_size=1, max_size=6), st.data())
def test_smmf_without_commitments_is_mmf(demands: list[float], data: st.DataObject) -> None:
    assert smmf(demands, [0.0] * len(demands)) == mmf(demands)
    owed = data.draw(st.lists(st.floats(0.0, 1.0), min_size=len(demands), max_size=len(demands)))
    assert smmf(demands, owed) == sdrf([[d] for d in demands], [[c] for c in owed])


@given(games(), st.lists(st.integers(1, 3), min_size=5, max_size=5))
def test_a_user_of_weight_k_gets_the_same_as_k_users(
    game: tuple[list[list[float]], list[list[float]]], weights: list[int]
) -> None:
    demands, owed = game
    weighted = sdrf(demands, owed, weights[: len(demands)])
    parts = [
        ([d / w for d in row], [c / w for c in debts], w)
        for row, debts, w in zip(demands, owed, weights, strict=False)
    ]
    split = sdrf(
        [row for row, _, w in parts for _ in range(w)],
        [debts for _, debts, w in parts for _ in range(w)],
    )
    position = 0
    for got, (_, _, w) in zip(weighted.allocations, parts, strict=True):
        together = use(split.allocations[position : position + w])
        assert together == pytest.approx(got, abs=1e-9)
        position += w


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (([[0.0, 0.0]],), "user 0: demands must be finite"),
        (([[1.0], [math.inf]],), "user 1: demands must be finite"),
        (([[1.0], [1.0, 1.0]],), "user 1 demands 2 resources, user 0 1"),
        (([[1.0]], [[-0.1]]), "user 0: commitment -0.1"),
        (([[1.0]], [[0.1], [0.1]]), "1 demands, 2 commitments and 1 weights"),
        (([[1.0]], [[0.1]], [0.0]), "user 0: weight 0.0"),
    ],
)
def test_bad_numbers_are_refused_by_user(arguments: tuple[object, ...], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        sdrf(*arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("delta", "owed", "cores"),
    [
        (None, [0, 0, 0, 0], {149: [160], 299: [80] * 2, 449: [160 / 3] * 3, 599: [40] * 4}),
        (
            1 - 1e-7,
            [0.5, 0.4, 0.3, 0.2],
            {149: [160], 299: [72, 88], 449: [112 / 3, 160 / 3, 208 / 3], 599: [16, 32, 48, 64]},
        ),
    ],
)
def test_the_fluid_follows_figures_5_and_7(
    delta: float | None, owed: list[float], cores: dict[int, list[float]]
) -> None:
    users = [FluidUser([1.0, 2 / 3], start=150.0 * i, commitment=c) for i, c in enumerate(owed)]
    tau = None if delta is None else time_constant(delta)
    trajectory = fluid(users, tau=tau, end=600.0, step=1.0)
    for second, expected in cores.items():
        held = [160 * user[0] for user in trajectory.allocations[second]]
        assert held == pytest.approx([*expected, 0, 0, 0][:4], abs=0.01)


def test_the_fluid_follows_figure_6() -> None:
    users = [FluidUser([1.0, 2 / 3], start=150.0 * i) for i in range(4)]
    trajectory = fluid(users, tau=time_constant(0.99), end=600.0)
    assert trajectory.commitments[1500][0][0] == pytest.approx(0.75 * (1 - 0.99**150))
    a, b = (160 * trajectory.allocations[1501][i][0] for i in (0, 1))
    assert b - a > 50
    *rest, d = (160 * trajectory.allocations[4501][i][0] for i in range(4))
    assert 0 < d - max(rest) < 25


@pytest.mark.parametrize("parameters", [None, {"delta": 0.9}])
@given(games())
def test_water_filling_with_whole_tasks_approaches_the_optimum_as_tasks_shrink(
    parameters: dict[str, object] | None, game: tuple[list[list[float]], list[list[float]]]
) -> None:
    demands, owed = game
    names = ["cpus", "mem", "disk"][: len(demands[0])]
    size = 10**9
    if parameters is None:
        owed = [[0.0] * len(names) for _ in demands]
    optimum = sdrf(demands, owed)
    for tasks in (20, 400):
        policy = policies.create("drf" if parameters is None else "sdrf", parameters or {})
        pool: Pool[int] = Pool(policy, capacity=Quantities(dict.fromkeys(names, size)))
        task = [
            Quantities({n: math.ceil(d * size / tasks) for n, d in zip(names, row, strict=True)})
            for row in demands
        ]
        for user, owes in enumerate(owed):
            pool.add(user, commitment=dict(zip(names, owes, strict=True)))
            pool.set_active(user, True)
        remaining = [tasks] * len(demands)
        used = Quantities()
        while pool.active:  # Algorithm 1
            user = pool.minimum()
            if not pool.capacity.contains(used + task[user]):
                break
            pool.allocate(user, task[user])
            used = used + task[user]
            remaining[user] -= 1
            if not remaining[user]:
                pool.set_active(user, False)
        # A task is at most 1/tasks of the cluster, and each of n users may lack a task.
        slack = 3 * len(demands) ** 2 / tasks
        for user, got in enumerate(optimum.allocations):
            assert pool.standing(user).share == pytest.approx(max(got), abs=slack)
