"""The divisible optimum: the papers' examples, an exact reference, and invariances."""

from fractions import Fraction
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from allocator.theory.divisible import optimum as divisible
from allocator.theory.divisible import progressive_filling, water_filling
from allocator.theory.divisible.optimum import Shared, create, optimum
from allocator.theory.divisible.problem import read_problem
from allocator.theory.divisible.progressive_filling import Number, Tank, fill
from tests.examples import examples
from tests.theory import exact_filling


def cpu(cpus: float, gb: float) -> dict[str, float]:
    return {"cpu": cpus, "mem": gb}


def machines(**resources: dict[str, float]) -> list[dict[str, Any]]:
    return [{"name": name, "resources": has} for name, has in resources.items()]


def user(name: str, demand: dict[str, float], *where: str, **options: object) -> dict[str, Any]:
    return {
        "name": name,
        "demand": demand,
        **({"machines": list(where)} if where else {}),
        **options,
    }


def shared(policy: str, cluster: list[dict[str, Any]], *users: dict[str, Any]) -> Shared:
    return optimum(read_problem({"machines": cluster, "users": users}), create(policy, {}))


def tasks(allocation: Shared) -> list[Number]:
    return [part.tasks for part in allocation.users.values()]


def shares(allocation: Shared) -> list[Number]:
    return [part.share for part in allocation.users.values()]


TWO = machines(m1=cpu(18, 18), m2=cpu(18, 18))
THREE = machines(m1=cpu(9, 12), m2=cpu(3, 4), m3=cpu(9, 12))
FIGURE_4 = [
    user("u1", cpu(1, 2), "m1", "m2"),
    user("u2", cpu(3, 1), "m2"),
    user("u3", cpu(1, 4)),
]


def test_constrained_cdrf_gives_the_allocation_of_figure_2a_of_the_tsf_paper() -> None:
    allocation = shared("cdrf", TWO, user("u1", cpu(1, 2)), user("u2", cpu(1, 3), "m2"))
    assert allocation.exact
    assert tasks(allocation) == [12, 4]
    assert shares(allocation) == [Fraction(2, 3)] * 2
    assert allocation.users["u1"].machines == {"m1": 9, "m2": 3}


def test_constrained_cdrf_rewards_the_lie_of_figure_2b() -> None:
    allocation = shared("cdrf", TWO, user("u1", cpu(1, 2)), user("u2", cpu(1, 3)))
    assert tasks(allocation) == [9, 6]


def test_constrained_cdrf_gives_the_allocation_of_figure_3() -> None:
    one_cpu = {"cpu": 1.0}
    allocation = shared(
        "cdrf",
        [{"name": name, "resources": {"cpu": 3}} for name in ("m1", "m2", "m3")],
        user("u1", one_cpu, "m1"),
        user("u2", one_cpu),
        *(user(f"u{i}", one_cpu, "m2" if i < 5 else "m3") for i in range(3, 8)),
    )
    assert tasks(allocation) == [1, 3, 1, 1, 1, 1, 1]
    assert allocation.users["u2"].machines == {"m1": 2, "m2": 1}


def test_tsf_gives_the_allocation_of_figure_4() -> None:
    allocation = shared("tsf", THREE, *FIGURE_4)
    assert tasks(allocation) == [6, 1, 3]
    assert shares(allocation) == [Fraction(3, 7), Fraction(1, 7), Fraction(3, 7)]


def test_drf_gives_the_allocation_of_figure_2_6_of_the_thesis() -> None:
    allocation = shared(
        "drf",
        machines(all=cpu(9, 180)),
        user("A", cpu(1, 40), tasks=4),
        user("B", cpu(3, 10), tasks=3),
    )
    assert tasks(allocation) == [3, 2]  # 3 cores and 120 GB; 6 cores and 20 GB


@pytest.mark.parametrize(
    ("demand", "expected"),
    [(cpu(1, 0.5), 75), (cpu(0.5, 0.5), 100)],
)
def test_monopolies_are_those_of_table_ii(demand: dict[str, float], expected: int) -> None:
    problem = read_problem(
        {
            "machines": [
                {"name": "1-25", "resources": cpu(1, 1), "count": 25},
                {"name": "26-50", "resources": cpu(2, 1), "count": 25},
            ],
            "users": [user("job", demand, "1-25")],
        }
    )
    assert problem.monopoly(problem.users[0]) == expected


@st.composite
def clusters(draw: st.DrawFn) -> dict[str, Any]:
    """Return up to three machines with two resources, and up to four users with constraints."""
    amount = st.integers(1, 6)
    names = [f"m{i}" for i in range(draw(st.integers(1, 3)))]
    return {
        "machines": machines(**{name: cpu(draw(amount), draw(amount)) for name in names}),
        "users": [
            user(
                f"u{i}",
                cpu(draw(amount), draw(amount)),
                *draw(st.lists(st.sampled_from(names), min_size=1, unique=True)),
                weight=draw(st.integers(1, 2)),
            )
            for i in range(draw(st.integers(2, 4)))
        ],
    }


@settings(deadline=None)
@given(clusters())
def test_lemma_1_of_tsf_a_monopoly_is_worth_as_much_as_its_tasks_are_small(
    cluster: dict[str, Any],
) -> None:
    """h_i ≥ ρ_ji h_j, with ρ_ji the least d_jr / d_ir: tasks of i fit into tasks of j."""
    problem = read_problem(cluster)
    for i in problem.users:
        for j in problem.users:
            rho = min(j.demand[r] / i.demand[r] for r in i.demand)
            assert problem.monopoly(i) >= rho * problem.monopoly(j)


@examples(50)
@given(clusters())
def test_lemma_2_of_tsf_a_user_has_the_same_without_the_users_that_stay_active_longer(
    cluster: dict[str, Any],
) -> None:
    together = shared("tsf", cluster["machines"], *cluster["users"]).users
    for gone, part in together.items():
        rest = [member for member in cluster["users"] if member["name"] != gone]
        apart = shared("tsf", cluster["machines"], *rest).users
        for name, separate in apart.items():
            if together[name].share < part.share - 1e-9:
                assert float(separate.tasks) == pytest.approx(float(together[name].tasks))


@examples(50)
@given(clusters(), st.data())
def test_lemma_3_of_tsf_a_lie_changes_nothing_for_users_that_stop_before_the_liar(
    cluster: dict[str, Any], data: st.DataObject
) -> None:
    liar, *honest = cluster["users"]
    lie = {**liar, "demand": cpu(data.draw(st.integers(1, 6)), data.draw(st.integers(1, 6)))}
    true = shared("tsf", cluster["machines"], liar, *honest).users
    lied = shared("tsf", cluster["machines"], lie, *honest).users
    stops = min(true[liar["name"]].share, lied[liar["name"]].share) - 1e-9
    for name in (member["name"] for member in honest):
        if min(true[name].share, lied[name].share) < stops:
            assert float(true[name].tasks) == pytest.approx(float(lied[name].tasks))


def test_tsf_settles_where_the_micro_benchmark_of_the_paper_does() -> None:
    nodes = [
        {"name": "1-10", "resources": cpu(1, 1), "count": 10},
        {"name": "11-25", "resources": cpu(1, 1), "count": 15},
        {"name": "26-35", "resources": cpu(2, 1), "count": 10},
        {"name": "36-50", "resources": cpu(2, 1), "count": 15},
    ]
    job1 = user("job 1", cpu(1, 0.5))
    two = shared("tsf", nodes, job1, user("job 2", cpu(0.5, 0.5), "1-10", "11-25"))
    assert shares(two) == [Fraction(2, 3), Fraction(1, 2)]
    three = shared(
        "tsf",
        nodes,
        job1,
        user("job 3", cpu(0.5, 0.5), "1-10", "26-35"),
        user("job 4", cpu(1, 0.5), "1-10", "26-35"),
    )
    assert shares(three)[0] == Fraction(3, 5)


def test_commitments_come_before_shares_under_sdrf_and_nowhere_else() -> None:
    cluster = machines(all=cpu(10, 10))
    users = [user("new", cpu(1, 1)), user("heavy", cpu(1, 1), commitment=0.5)]
    assert tasks(shared("sdrf", cluster, *users)) == [7.5, 2.5]
    assert tasks(shared("stsf", cluster, *users)) == [7.5, 2.5]
    assert tasks(shared("drf", cluster, *users)) == [5, 5]


def test_a_user_with_an_excessive_commitment_gets_only_otherwise_unwanted_resources() -> None:
    cluster = machines(all=cpu(10, 10))
    heavy = user("heavy", cpu(1, 1), commitment=3)
    assert tasks(shared("sdrf", cluster, user("new", cpu(1, 1)), heavy)) == [10, 0]
    assert tasks(shared("sdrf", cluster, user("new", cpu(1, 1), tasks=4), heavy)) == [4, 6]


def test_weights_are_proportions() -> None:
    allocation = shared(
        "tsf", machines(all=cpu(9, 9)), user("a", cpu(1, 1), weight=2), user("b", cpu(1, 1))
    )
    assert tasks(allocation) == [6, 3]
    assert shares(allocation) == [Fraction(1, 3)] * 2


def test_a_user_that_may_run_nowhere_gets_nothing_and_takes_nothing() -> None:
    cluster = machines(m1={"cpu": 4}, m2={"cpu": 4, "gpu": 1})
    for policy in divisible.names():
        allocation = shared(
            policy,
            cluster,
            user("stuck", {"cpu": 1, "gpu": 1}, "m1"),
            user("well", {"cpu": 1}),
        )
        assert tasks(allocation) == [0, 8], policy


def test_cmmf_shares_the_configured_resource() -> None:
    problem = read_problem(
        {
            "machines": machines(all=cpu(12, 12)),
            "users": [user("a", cpu(1, 2)), user("b", cpu(1, 1))],
        }
    )
    assert tasks(optimum(problem, create("cmmf", {"resource": "cpu"}))) == [4, 4]
    assert tasks(optimum(problem, create("cmmf", {"resource": "mem"}))) == [3, 6]


def test_per_machine_drf_leaves_resources_idle_that_other_policies_use() -> None:
    cluster = machines(m1=cpu(2, 8), m2=cpu(8, 2))
    users = [user("a", cpu(1, 4)), user("b", cpu(4, 1))]
    assert sum(tasks(shared("per-machine-drf", cluster, *users))) < sum(
        tasks(shared("tsf", cluster, *users))
    )


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"users": [user("u", cpu(1, 1), "m9")]}, r"users\[0\]\.machines: 'u' may use 'm9'"),
        ({"users": [user("u", {"gpu": 1})]}, r"users\[0\]\.demand: 'u' needs 'gpu'"),
        ({"users": [user("u", {"cpus": 1})]}, r"'cpus', .* are: cpu, mem; did you mean cpu\?"),
        (
            {"machines": machines(m1=cpu(1, 1), m2={"cpus": 2})},
            r"machines\[1\]\.resources: 'cpus' is not the resource 'cpu' of machines\[0\]",
        ),
        ({"users": [user("u", cpu(0, 0))]}, r"users\[0\]: demand"),
        ({"users": [user("u", cpu(-1, 0))]}, r"users\[0\]\.demand\.cpu: -1.0 is less than 0"),
        ({"users": [user("u", cpu(float("inf"), 0))]}, r"users\[0\]\.demand\.cpu: inf"),
        ({"users": [user("u", cpu(1, 1), weight=0)]}, r"users\[0\]\.weight: 0.0 is not more"),
        ({"users": [user("u", cpu(1, 1), tasks=True)]}, r"users\[0\]\.tasks: True is not a number"),
        ({"users": [user("u", cpu(1, 1), pool=1)]}, r"users\[0\]\.pool: there is no such setting"),
        ({"users": [user("u", cpu(1, 1))] * 2}, r"users: 2 have the name 'u'"),
        ({"users": []}, r"users: .*at least 1"),
        (
            {"machines": [{"name": "m", "resources": {"cpu": 1}, "count": 0}]},
            r"machines\[0\]\.count",
        ),
    ],
)
def test_an_invalid_problem_is_refused_with_the_path_of_the_fault(
    change: dict[str, Any], complaint: str
) -> None:
    good = {"machines": machines(m1=cpu(1, 1)), "users": [user("u", cpu(1, 1))]}
    with pytest.raises(ValueError, match=complaint):
        read_problem(good | change)


def test_per_machine_drf_refuses_limits_and_cmmf_refuses_users_without_its_resource() -> None:
    with pytest.raises(ValueError, match=r"'u'.*leave out 'tasks'"):
        shared("per-machine-drf", TWO, user("u", cpu(1, 1), tasks=1))
    with pytest.raises(ValueError, match="cmmf shares 'cpu', and 'u' does not need this"):
        shared("cmmf", TWO, user("u", cpu(0, 1)))


SMALL = st.integers(1, 6).map(Fraction)


@st.composite
def tanks(draw: st.DrawFn) -> list[Tank]:
    places = draw(st.integers(1, 3))
    has = [{r: draw(SMALL) for r in "ab"} for _ in range(places)]
    made = []
    for _ in range(draw(st.integers(1, 4))):
        demand = {r: draw(st.integers(0, 4)) for r in "ab"}
        demand[draw(st.sampled_from("ab"))] = draw(st.integers(1, 4))
        where = draw(st.sets(st.integers(0, places - 1), min_size=1))
        made.append(
            Tank(
                share=draw(SMALL) / draw(SMALL),
                base=draw(st.sampled_from([Fraction(0), Fraction(1, 2), Fraction(3)])),
                limit=draw(st.sampled_from([None, None, Fraction(0), Fraction(1, 3), Fraction(2)])),
                takes={p: {r: d / has[p][r] for r, d in demand.items() if d} for p in where},
                users=draw(st.integers(1, 2)),
            )
        )
    return made


@given(tanks())
def test_filling_agrees_with_the_papers_algorithm_in_exact_fractions(made: list[Tank]) -> None:
    filled = fill(made)
    expected = exact_filling.levels(made)
    if filled.exact:
        assert filled.tasks == expected
    else:
        assert filled.tasks == pytest.approx([float(value) for value in expected], abs=1e-7)
    for t, by_place in enumerate(filled.placed):
        assert float(sum(by_place.values())) == pytest.approx(float(expected[t]), abs=1e-7)


@examples(50)
@given(tanks())
def test_no_machine_is_allocated_beyond_its_capacity(made: list[Tank]) -> None:
    filled = fill(made)
    used: dict[tuple[int, str], float] = {}
    for tank, by_place in zip(made, filled.placed, strict=True):
        for place, n in by_place.items():
            for resource, part in tank.takes[place].items():
                used[place, resource] = used.get((place, resource), 0) + float(
                    n * part * tank.users
                )
    assert all(part <= 1 + 1e-9 for part in used.values())


def test_a_difference_of_a_billionth_is_not_a_tie_and_freezes_no_user_early() -> None:
    """A user stops a billionth below another user, who may use a further machine."""
    almost = 1 - 1e-9
    allocation = shared(
        "tsf",
        machines(m1={"cpu": almost}, m2={"cpu": 1.0}, m3={"cpu": 5.0}),
        user("a", {"cpu": 1.0}, "m1"),
        user("b", {"cpu": 1.0}, "m2", "m3"),
    )
    assert tasks(allocation) == pytest.approx([almost, 6.0], abs=1e-12)


@examples(30)
@given(
    st.lists(
        st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(1, 3)).filter(
            lambda user: any(user[:2])
        ),
        min_size=1,
    ),
    st.integers(5, 50),
    st.integers(5, 50),
)
def test_on_one_machine_every_drf_equals_water_filling(
    users: list[tuple[int, int, int]], cpus: int, gb: int
) -> None:
    expected = water_filling.drf(
        [[c / cpus / max(c / cpus, g / gb), g / gb / max(c / cpus, g / gb)] for c, g, _ in users],
        [float(weight) for _, _, weight in users],
    )
    for policy in ("drf", "drfh", "tsf", "cdrf", "per-machine-drf"):
        allocation = shared(
            policy,
            machines(all=cpu(cpus, gb)),
            *(user(str(i), cpu(c, g), weight=w) for i, (c, g, w) in enumerate(users)),
        )
        held = [
            [float(n) * c / cpus, float(n) * g / gb]
            for n, (c, g, _) in zip(tasks(allocation), users, strict=True)
        ]
        for has, row in zip(held, expected.allocations, strict=True):
            assert has == pytest.approx(row, abs=1e-7)


@examples(30)
@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 4)).filter(
            lambda user: any(user[:2])
        ),
        min_size=1,
        max_size=6,
    )
)
def test_with_commitments_the_optimum_equals_water_filling(
    users: list[tuple[int, int, int]],
) -> None:
    expected = water_filling.sdrf(
        [[c / max(c, g), g / max(c, g)] for c, g, _ in users],
        [[owes / 5] * 2 for _, _, owes in users],
    )
    allocation = shared(
        "sdrf",
        machines(all=cpu(3, 3)),
        *(user(str(i), cpu(c, g), commitment=owes / 5) for i, (c, g, owes) in enumerate(users)),
    )
    held = [float(share) for share in shares(allocation)]
    assert held == pytest.approx([max(row) for row in expected.allocations], abs=1e-7)


@examples(30)
@given(st.integers(2, 5), st.sampled_from(["tsf", "cdrf", "drfh", "per-machine-drf", "cmmf"]))
def test_a_class_of_machines_equals_its_machines_listed_individually(
    count: int, policy: str
) -> None:
    users = [user("u", cpu(1, 2)), user("v", cpu(3, 1), "small"), user("w", cpu(1, 1))]
    by_class = shared(
        policy,
        [
            {"name": "small", "resources": cpu(4, 3), "count": count},
            {"name": "large", "resources": cpu(8, 16)},
        ],
        *users,
    )
    names = [f"small{i}" for i in range(count)]
    users[1] = user("v", cpu(3, 1), *names)
    one_by_one = shared(
        policy, machines(**dict.fromkeys(names, cpu(4, 3)), large=cpu(8, 16)), *users
    )
    assert tasks(by_class) == tasks(one_by_one)
    assert shares(by_class) == shares(one_by_one)


def test_programs_that_are_too_large_to_be_written_with_their_zeros_have_the_same_solution(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tanks = [
        Tank(
            share=Fraction(1, n + 2),
            base=Fraction(0),
            limit=None,
            takes={m: {"cpu": Fraction(1, 7 + n + m)} for m in range(4) if (n + m) % 4},
        )
        for n in range(6)
    ]
    monkeypatch.setattr(progressive_filling, "_SMALL", 0)  # nothing is remembered
    with_zeros = fill(tanks)
    monkeypatch.setattr(progressive_filling, "_DENSE", 0)
    assert fill(tanks) == with_zeros


def test_a_small_program_is_solved_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Mock(wraps=linprog)
    monkeypatch.setattr(progressive_filling, "linprog", asked)

    def exact(part: Fraction) -> bool:
        takes = {0: {"cpu": part}, 1: {"cpu": Fraction(1)}}
        return fill([Tank(Fraction(1), Fraction(0), None, takes)]).exact

    nearly = Fraction(10**20 + 1, 3 * 10**20)  # as a floating-point number, a third
    progressive_filling._solve_cached.cache_clear()
    assert [exact(Fraction(1, 3)), exact(Fraction(1, 3))] == [True, True]
    assert asked.call_count == 1
    assert not exact(nearly)
    assert asked.call_count == 2
