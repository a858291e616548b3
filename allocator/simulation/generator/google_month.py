"""Generates a month like the one of Google's cluster in SDRF's simulation (SDRF paper, §7.2)."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from allocator.simulation.generator import jobs as job_sizes
from allocator.simulation.generator.failures import Loops, with_failures
from allocator.simulation.generator.jobs import JobLimits, Jobs, as_trace, demands, sizes
from allocator.simulation.generator.moments import (
    CHOSEN,
    EVENTS,
    REISS,
    SDRF,
    TSF,
    Moment,
)
from allocator.simulation.statistics import heaviest_tenth, peak_hour, statistics
from allocator.simulation.trace import MICROSECONDS, Trace

USERS = 627
TASKS = 32_000_000
DAYS = 29
FEWEST = 100_000
"""Smallest allowed number of tasks.

With fewer, hardly 20 tasks run at a time, and large tasks would not fit at low load.
"""

FINISHED, FAILED, JOBS = 18_217_975, 13_829_769, 672_004
"""Published numbers of the real month: successful attempts, failed attempts, and jobs."""

_SECONDS = DAYS * 86_400

_PEAK = 1.5
"""Number of sessions in the busiest hour of the day, divided by an average hour's."""
_PEAK_HOUR = 14
_WEEKEND = 0.7

_MEDIAN_S = 180.0
_LARGEST_DEMAND = 0.05
"""Largest demand of one task, as a fraction of the mean use of the month.

The limit ensures that a task fits at every load of interest. It takes effect below about 10⁶ tasks.
"""
_LIMITS = JobLimits(spread=0.3, shortest=1.0, longest=4 * 86_400)


@dataclass(frozen=True)
class MonthParameters:
    """Parameters of the month that are not published, but chosen or fitted to published values.

    Args:
        user_sigma: Standard deviation of the logarithm of users' job counts. With 2.5, some users
            have hundreds of thousands of jobs and many a handful.
        sessions: Exponent that relates jobs to sessions: a user with k jobs works in about
            k^`sessions` sessions.
        session_s: Mean seconds from the beginning of a session to the submission of a job.
        user_spread: Standard deviation of the logarithm of run times, between users.
        job_spread: Standard deviation of the logarithm of run times, between jobs of a user.
        loops: Parameters of failing tasks. None: no task fails, and jobs have 40 tasks on average.
    """

    user_sigma: float
    sessions: float
    session_s: float
    user_spread: float
    job_spread: float
    loops: Loops | None = None

    @property
    def heaviest(self) -> float:
        """Return the expected fraction of all jobs that the tenth of users with most jobs has."""
        return heaviest_tenth(_weights(self.user_sigma))


PLAIN = MonthParameters(
    user_sigma=2.5, sessions=0.6, session_s=3600.0, user_spread=0.5, job_spread=1.6
)
"""Parameters for a month without failing attempts."""
FITTED = MonthParameters(
    user_sigma=2.27,
    sessions=0.87,
    session_s=1050.0,
    user_spread=1.43,
    job_spread=1.17,
    loops=Loops(jobs=0.0105, user_spread=2.48, spread=1.32, attempt_s=95.0, attempt_spread=0.33),
)
"""Parameters that reproduce the published values best.

`longshare trace fit` prints the deviations.
"""


def generate(
    seed: int,
    tasks: int = TASKS,
    progress: Callable[[int], None] | None = None,
    knobs: MonthParameters = FITTED,
) -> Trace:
    """Generate the month. Equal seed, tasks and parameters give equal traces.

    Users differ in size (log-normal job counts). They work in sessions, more of them by day and on
    weekdays. The tasks of a job are submitted together, have the same demand (cores and GiB) and
    similar run times. Run times are log-normal. The tasks of some jobs fail repeatedly. Each
    attempt is a task of its own, as in SDRF §7.2.

    Args:
        seed: Seed of all random numbers.
        tasks: Number of tasks, at least FEWEST.
        progress: Called now and then with the number of tasks generated since the last call.
        knobs: Values of the parameters that are not published.

    Raises:
        ValueError: There are too few tasks.
    """
    if tasks < FEWEST:
        raise ValueError(f"{tasks} tasks are too few for a month, at least {FEWEST}")
    random = np.random.default_rng(seed)
    failed, count = _counts(tasks, knobs)
    size = sizes(random, count, tasks - failed)
    weight = _weights(knobs.user_sigma)
    drawn = random.choice(USERS, count - USERS, p=weight / weight.sum())
    user = random.permutation(np.concatenate((np.arange(USERS), drawn)))
    submitted = np.rint(_times(random, user, knobs) * MICROSECONDS).astype(np.int64)
    order = np.argsort(submitted, kind="stable")
    user = user[order]
    scale = random.normal(0.0, knobs.job_spread, count)
    scale += random.normal(0.0, knobs.user_spread, USERS)[user]
    runtime = _MEDIAN_S * np.exp(scale - _median(scale, size))
    demand = np.column_stack(
        (
            demands(random, count, 0.6, 0.7, (0.05, 8.0)),
            demands(random, count, 0.7, 0.8, (0.05, 15.0)),
        )
    )
    jobs = Jobs(submitted[order], size, user, runtime, demand)
    if knobs.loops is not None:
        jobs = with_failures(random, jobs, knobs.loops, failed, _SECONDS)
    largest = (jobs.size * jobs.runtime) @ jobs.demand / _SECONDS * _LARGEST_DEMAND
    jobs = replace(jobs, demand=np.minimum(jobs.demand, np.maximum(np.round(largest, 2), 0.01)))
    return as_trace(random, jobs, _LIMITS, resources=("cpus", "mem"), progress=progress)


def _counts(tasks: int, knobs: MonthParameters) -> tuple[int, int]:
    """Split a number of tasks into failing attempts and other tasks.

    Returns:
        The number of failing attempts; and the number of jobs to which all other tasks belong.
    """
    if knobs.loops is None:
        return 0, tasks // job_sizes.MEAN
    return round(tasks * FAILED / (FINISHED + FAILED)), round(tasks * JOBS / (FINISHED + FAILED))


def _weights(sigma: float) -> NDArray[np.float64]:
    from scipy.special import ndtri  # noqa: PLC0415 - an extra of its own, which no sweep needs

    weights: NDArray[np.float64] = np.exp(sigma * ndtri((np.arange(USERS) + 0.5) / USERS))
    return weights


def moments(trace: Trace, tasks: int, knobs: MonthParameters = FITTED) -> list[Moment]:
    """Compare properties of a generated month with published properties of Google's month.

    Each result names its publication.

    Args:
        trace: The generated month.
        tasks: The argument `tasks` with which the trace was generated.
        knobs: The parameters of the generated month.
    """
    measured = statistics(trace)
    first, retried = _first_and_retries(trace)
    size = np.bincount(trace.job[~retried])
    failed, jobs = _counts(tasks, knobs)
    heaviest = heaviest_tenth(np.bincount(trace.user[~retried]))
    runtime = trace.runtime[~retried] / MICROSECONDS
    median, mean = float(np.median(runtime)), float(runtime.mean())
    peak = peak_hour(trace.submitted[first])
    spreads = knobs.user_spread**2 + knobs.job_spread**2 + _LIMITS.spread**2
    return [
        Moment("users", USERS, "=", measured.users, SDRF),
        Moment("tasks", tasks, "=", measured.tasks, SDRF),
        Moment(
            "days from first to last submission",
            DAYS,
            "=",
            (measured.last_s - measured.first_s) / 86_400,
            REISS,
        ),
        Moment("jobs", jobs, "=", measured.jobs, EVENTS if failed else TSF),
        *(
            [Moment("attempts that fail", failed, "=", int(retried.sum()), EVENTS)]
            if failed
            else []
        ),
        Moment("jobs of one task, part", 0.6, "≥", float(np.mean(size <= 1)), TSF),
        Moment("jobs of 10 tasks or fewer, part", 0.86, "=", float(np.mean(size <= 10)), TSF),
        Moment("tasks of the biggest job", job_sizes.LARGEST, "≤", int(size.max()), TSF),
        Moment("tasks of the heaviest tenth of users, part", knobs.heaviest, "=", heaviest, CHOSEN),
        Moment("run time, median, s", _MEDIAN_S, "=", median, CHOSEN),
        Moment("run time, mean over median", np.exp(spreads / 2), "=", mean / median, CHOSEN),
        Moment("jobs of the busiest hour of the day over the mean", _PEAK, "=", peak, CHOSEN),
    ]


def _first_and_retries(trace: Trace) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Find the tasks of each job that are retries: they are submitted after the job's first task.

    Returns:
        The index of each job's first task, in order of job numbers; and a mask of retries.
    """
    _, first, job = np.unique(trace.job, return_index=True, return_inverse=True)
    return first, trace.submitted > trace.submitted[first][job]


def _median(values: NDArray[np.float64], weights: NDArray[np.int64]) -> float:
    order = np.argsort(values)
    below = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(below, below[-1] / 2)])


def _times(
    random: Generator, user: NDArray[np.int64], knobs: MonthParameters
) -> NDArray[np.float64]:
    """Draw each job's submission time in seconds.

    Args:
        random: Random generator.
        user: User number of each job.
        knobs: Values of the parameters that are not published.
    """
    job_counts = np.bincount(user, minlength=USERS)
    sessions = np.ceil(job_counts**knobs.sessions).astype(np.int64)
    begins = _begins(random, int(sessions.sum()))
    first_session = np.concatenate(([0], np.cumsum(sessions)[:-1]))
    session = first_session[user] + np.floor(random.random(len(user)) * sessions[user]).astype(
        np.int64
    )
    times: NDArray[np.float64] = begins[session] + random.exponential(knobs.session_s, len(user))
    return times % _SECONDS


def _begins(random: Generator, count: int) -> NDArray[np.float64]:
    """Draw the start times of users' working sessions, in seconds after the month begins.

    Hours by day and on weekdays are more likely.

    Args:
        random: Random generator.
        count: Number of sessions.
    """
    hour = np.arange(DAYS * 24)
    weight = 1.0 + (_PEAK - 1.0) * np.cos(2 * np.pi * (hour - _PEAK_HOUR) / 24)
    weight[hour // 24 % 7 >= 5] *= _WEEKEND
    return (random.choice(hour, count, p=weight / weight.sum()) + random.random(count)) * 3600.0
