"""Synthetic workloads match the published figures of real workloads."""

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.simulation.generator import crowd, google_constrained_hour, google_month
from allocator.simulation.generator.failures import Loops, with_failures
from allocator.simulation.generator.jobs import LARGEST, MEAN, Jobs, sizes
from allocator.simulation.generator.moments import CHOSEN, Moment
from allocator.simulation.trace import Trace
from tests.examples import examples
from tests.simulation.traces import same

if TYPE_CHECKING:
    from numpy.typing import NDArray

SEEDS = [0, 1, 2]


@pytest.mark.parametrize(
    ("seed", "knobs"), [*((seed, google_month.FITTED) for seed in SEEDS), (0, google_month.PLAIN)]
)
def test_a_month_of_a_million_tasks_has_the_published_moments(
    seed: int, knobs: google_month.MonthParameters
) -> None:
    trace = google_month.generate(seed, 1_000_000, knobs=knobs)
    for moment in google_month.moments(trace, 1_000_000, knobs):
        tolerance = {
            "run time, mean over median": 0.6,
            "jobs of the busiest hour of the day over the mean": 0.25,
            "attempts that fail": 0.0,
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


@examples(30)
@given(seed=st.integers(0, 2**32), jobs=st.integers(225, 3000))
def test_sizes_of_jobs_add_up(seed: int, jobs: int) -> None:
    drawn = sizes(np.random.default_rng(seed), jobs, MEAN * jobs)
    assert len(drawn) == jobs
    assert drawn.sum() == MEAN * jobs
    assert drawn.min() == 1
    assert drawn.max() <= LARGEST


def jobs_agree(trace: Trace, *, at_once: bool = True) -> bool:
    _, first, job = np.unique(trace.job, return_index=True, return_inverse=True)
    columns: list[NDArray[Any]] = [trace.user, trace.demand, trace.constraint]
    if at_once:
        columns.append(trace.submitted)
    return all(np.array_equal(column, column[first][job]) for column in columns)


@examples(15)
@given(seed=st.integers(0, 2**32), tasks=st.integers(google_month.FEWEST, 200_000))
def test_every_task_of_a_month_fits_at_half_load(seed: int, tasks: int) -> None:
    trace = google_month.generate(seed, tasks)
    assert len(trace) == tasks
    assert len(trace.users) == google_month.USERS
    assert jobs_agree(trace, at_once=False)
    assert trace.submitted[-1] < google_month.DAYS * 86_400_000_000
    assert (trace.demand <= trace.mean_use() / 2).all()


@examples(15)
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


def test_where_nothing_fails_all_tasks_of_a_job_come_at_once() -> None:
    trace = google_month.generate(4, google_month.FEWEST, knobs=google_month.PLAIN)
    assert jobs_agree(trace)
    assert len(np.unique(trace.job)) == google_month.FEWEST // MEAN


@examples(20)
@given(
    seed=st.integers(0, 2**32),
    width=st.floats(4.0, 20.0),
    concentration=st.floats(0.0, 3.0),
    burst=st.floats(0.01, 16.0),
    spread=st.floats(0.0, 0.5),
)
def test_tasks_of_a_crowd_fit_at_half_load_and_arrive_in_bursts_of_a_single_user(
    seed: int, width: float, concentration: float, burst: float, spread: float
) -> None:
    trace = crowd.generate(seed, crowd.Crowd(50, width, concentration, burst, spread))
    assert len(trace) == int(width * crowd.TASKS_OF_WIDTH)
    assert sorted(set(trace.user.tolist())) == list(range(50))
    assert (np.diff(trace.submitted) >= 0).all()
    assert (trace.demand <= trace.mean_use() / 2).all()
    moments = {
        at: set(trace.user[trace.submitted == at].tolist()) for at in trace.submitted[:20].tolist()
    }
    assert all(len(users) == 1 for users in moments.values())


def test_a_crowd_with_too_few_tasks_at_once_is_refused() -> None:
    with pytest.raises(ValueError, match=r"at least 4"):
        crowd.generate(1, crowd.Crowd(width=3.0))


LOOPS = Loops(jobs=0.5, user_spread=0.0, spread=1.0, attempt_s=60.0, attempt_spread=0.0)


def some_jobs(begin_s: float = 0.0) -> Jobs:
    begin = np.array([begin_s, begin_s + 10.0]) * 1e6
    return Jobs(
        submitted=begin.astype(np.int64),
        size=np.array([2, 3]),
        user=np.array([0, 1]),
        runtime=np.array([100.0, 100.0]),
        demand=np.ones((2, 1)),
    )


@examples(30)
@given(seed=st.integers(0, 2**32), attempts=st.integers(1, 100))
def test_failed_tasks_are_retried_after_the_start_of_their_job_and_before_the_end(
    seed: int, attempts: int
) -> None:
    jobs = some_jobs()
    both = with_failures(np.random.default_rng(seed), jobs, LOOPS, attempts, 86_400.0)
    assert both.number is not None
    assert both.size.sum() == jobs.size.sum() + attempts
    assert (np.diff(both.submitted) >= 0).all()
    assert both.submitted.max() < 86_400e6
    failed = both.runtime != 100.0
    assert failed.sum() == attempts
    of = both.number[failed]
    assert len(set(of.tolist())) == 1, "half of the jobs fail"
    assert (both.submitted[failed] > jobs.submitted[of]).all()
    assert np.array_equal(both.user, jobs.user[both.number])
    # Attempts of a task are a period apart, so a period has no more attempts than the job has
    # tasks.
    window = np.searchsorted(both.submitted[failed], both.submitted[failed] + 64_999_999, "left")
    assert (window - np.arange(attempts) <= jobs.size[of[0]]).all()


def test_more_failures_than_fit_in_the_duration_are_refused() -> None:
    with pytest.raises(ValueError, match="cannot fail 100 times"):
        with_failures(np.random.default_rng(0), some_jobs(86_000.0), LOOPS, 100, 86_400.0)


def test_progress_adds_up_to_all_tasks() -> None:
    steps: list[int] = []
    google_month.generate(0, google_month.FEWEST, steps.append)
    assert sum(steps) == google_month.FEWEST


@pytest.mark.parametrize(
    ("relation", "got", "off"),
    [("=", 12.0, 0.2), ("=", 8.0, -0.2), ("≤", 8.0, 0.0), ("≤", 12.0, 0.2), ("≥", 12.0, 0.0)],
)
def test_figures_within_a_bound_are_not_misses(relation: str, got: float, off: float) -> None:
    moment = Moment("m", 10.0, relation, got, "s")  # type: ignore[arg-type]
    assert moment.off == pytest.approx(off)
