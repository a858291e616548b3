"""Few changes of site factors make Slurm follow an order."""

from hypothesis import given
from hypothesis import strategies as st

from allocator.slurm.factors import is_ours, plan_factors

JOBS = [str(number) for number in range(12)]


def applied(current: dict[str, int], order: list[str], limit: int = 1000) -> dict[str, int]:
    plan = plan_factors(order, current, limit)
    after = current | dict(plan.updates)
    return {job: factor for job, factor in after.items() if factor}


orders = st.lists(st.permutations(JOBS).flatmap(
    lambda jobs: st.integers(0, len(JOBS)).map(lambda count: list(jobs[:count]))
), min_size=1, max_size=8)  # fmt: skip


@given(orders)
def test_after_the_updates_priorities_fall_in_the_wanted_order(wanted: list[list[str]]) -> None:
    current: dict[str, int] = {}
    for order in wanted:
        current = applied(current, order)
        factors = [current[job] for job in order]
        assert factors == sorted(set(factors), reverse=True)
        others = [factor for job, factor in current.items() if job not in order]
        assert max(others, default=0) < min(factors, default=1 << 31), "none passes the order"
        assert all(is_ours(factor) for factor in factors)


@given(orders)
def test_an_unchanged_order_needs_no_update(wanted: list[list[str]]) -> None:
    current: dict[str, int] = {}
    for order in wanted:
        current = applied(current, order)
        assert plan_factors(order, current, 1000).updates == []


@given(st.permutations(JOBS), st.integers(0, 11), st.integers(0, 11))
def test_a_job_that_moves_needs_one_update(order: list[str], old: int, new: int) -> None:
    current = applied({}, order)
    moved = [*order]
    moved.insert(new, moved.pop(old))
    assert len(plan_factors(moved, current, 1000).updates) == (old != new)


@given(st.permutations(JOBS), st.permutations(JOBS), st.integers(1, 12))
def test_with_few_updates_the_first_places_are_right_first(
    before: list[str], after: list[str], limit: int
) -> None:
    current = applied({}, before)
    plan = plan_factors(after, current, limit)
    assert len(plan.updates) <= limit
    done = current | dict(plan.updates)
    complete = applied(current, after)
    if plan.postponed:
        wrong = {job for job in JOBS if done.get(job) != complete.get(job)}
        assert len(wrong) == plan.postponed
    else:
        assert done == complete
    again = plan_factors(after, done, 1000)
    assert len(again.updates) <= max(plan.postponed, 0) + len(JOBS)


def test_factors_of_others_are_kept() -> None:
    plan = plan_factors(["1", "2", "3"], {"2": 5000}, 1000)
    assert plan.foreign == ["2"]
    assert {update.target for update in plan.updates} == {"1", "3"}


def test_new_first_jobs_never_run_out_of_factors() -> None:
    current: dict[str, int] = {}
    order: list[str] = []
    for number in range(9000):
        order = [str(number), *order][:3]
        current = {job: factor for job, factor in applied(current, order).items() if job in order}
        assert [current[job] for job in order] == sorted(current.values(), reverse=True)
        assert max(current.values()) <= 2_147_483_645
