"""Synthetic workloads: what is published of the real ones holds of them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocator.simulation.generator import google_constrained_hour, google_month
from allocator.simulation.generator.jobs import LARGEST, MEAN, sizes
from allocator.simulation.generator.moments import CHOSEN, Moment
from allocator.simulation.trace import Trace
from tests.simulation.traces import same

SEEDS = [0, 1, 2]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_month_of_a_million_tasks_has_the_published_moments(seed: int) -> None:
    trace = google_month.generate(seed, 1_000_000)
    for moment in google_month.moments(trace, 1_000_000):
        tolerance = {
            "run time, mean over median": 0.6,
            "jobs of the busiest hour of the day over the mean": 0.25,
        }.get(moment.name, 0.1 if moment.source == CHOSEN else 0.002)
        assert abs(moment.off) <= tolerance, moment


@pytest.mark.parametrize("seed", SEEDS)
def test_a_constrained_hour_has_the_published_moments(seed: int) -> None:
    trace = google_constrained_hour.generate(seed)
    for moment in google_constrained_hour.moments(trace, 180_000):
        assert abs(moment.off) <= (0.05 if moment.source == CHOSEN else 0.002), moment


@pytest.mark.parametrize("generator", [google_month, google_constrained_hour])
def test_a_seed_decides_everything(generator: object) -> None:
    generate = generator.generate  # type: ignore[attr-defined]
    tasks = generator.FEWEST  # type: ignore[attr-defined]
    assert same(generate(5, tasks), generate(5, tasks))
    assert not same(generate(5, tasks), generate(6, tasks))
    with pytest.raises(ValueError, match=f"at least {tasks}"):
        generate(5, tasks - 1)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32), jobs=st.integers(225, 3000))
def test_sizes_of_jobs_add_up(seed: int, jobs: int) -> None:
    drawn = sizes(np.random.default_rng(seed), jobs, MEAN * jobs)
    assert len(drawn) == jobs
    assert drawn.sum() == MEAN * jobs
    assert drawn.min() == 1
    assert drawn.max() <= LARGEST


def jobs_agree(trace: Trace) -> bool:
    first = np.flatnonzero(np.diff(trace.job, prepend=-1))
    size = np.diff(first, append=len(trace))
    return all(
        np.array_equal(column, np.repeat(column[first], size, axis=0))
        for column in (trace.submitted, trace.user, trace.demand, trace.constraint)
    )


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32), tasks=st.integers(google_month.FEWEST, 200_000))
def test_every_task_of_a_month_finds_room_at_half_load(seed: int, tasks: int) -> None:
    trace = google_month.generate(seed, tasks)
    assert len(trace) == tasks
    assert len(trace.users) == google_month.USERS
    assert jobs_agree(trace)
    assert (trace.demand <= trace.mean_use() / 2).all()


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32), tasks=st.integers(google_constrained_hour.FEWEST, 60_000))
def test_every_task_of_a_constrained_hour_fits_on_every_machine_that_it_may_use(
    seed: int, tasks: int
) -> None:
    trace = google_constrained_hour.generate(seed, tasks)
    assert len(trace) == tasks
    assert jobs_agree(trace)
    least = np.min([machine.capacity for machine in trace.machines], axis=0)
    assert (trace.demand <= least).all()
    assert all(trace.constraints)


def test_progress_adds_up_to_all_tasks() -> None:
    steps: list[int] = []
    google_month.generate(0, google_month.FEWEST, steps.append)
    assert sum(steps) == google_month.FEWEST


@pytest.mark.parametrize(
    ("relation", "got", "off"),
    [("=", 12.0, 0.2), ("=", 8.0, -0.2), ("≤", 8.0, 0.0), ("≤", 12.0, 0.2), ("≥", 12.0, 0.0)],
)
def test_within_a_bound_nothing_is_off(relation: str, got: float, off: float) -> None:
    moment = Moment("m", 10.0, relation, got, "s")  # type: ignore[arg-type]
    assert moment.off == pytest.approx(off)
