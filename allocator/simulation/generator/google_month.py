"""A month like that of Google's cluster which SDRF was simulated on (SDRF §7.2)."""

from collections.abc import Callable

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from scipy.special import ndtri

from allocator.simulation.generator import jobs as of_jobs
from allocator.simulation.generator.jobs import Jobs, Limits, as_trace, demands, sizes
from allocator.simulation.generator.moments import CHOSEN, REISS, SDRF, TSF, Moment
from allocator.simulation.statistics import statistics
from allocator.simulation.trace import MICROSECONDS, Trace

USERS = 627
TASKS = 32_000_000
DAYS = 29
FEWEST = 100_000
"""Tasks; with fewer hardly 20 run at a time, and at low load big ones would never find room."""

_SECONDS = DAYS * 86_400

_USER_SIGMA = 2.5
"""Of the logarithm of users' numbers of jobs: some have hundreds of thousands, many a handful."""
_HEAVIEST = 0.871
"""The part of jobs of the tenth of users that have most, with that sigma."""

_SESSIONS = 0.6
"""A user of k jobs works in about k^0.6 sessions: who does much is there most of the time."""
_SESSION_S = 3600.0
"""Mean time of a job after its session's beginning."""
_PEAK = 1.5
"""Sessions in the busiest hour of the day over those in a mean hour."""
_PEAK_HOUR = 14
_WEEKEND = 0.7

_MEDIAN_S = 180.0
_USER_SPREAD = 0.5
_JOB_SPREAD = 1.6
_MOST = 0.05
"""Of mean use: no task asks for more, so that there is room for it at every load of interest; it
takes effect below some 10⁶ tasks."""
_LIMITS = Limits(spread=0.3, shortest=1.0, longest=4 * 86_400)
_MEAN_OVER_MEDIAN = 4.2
"""Of run times, e^(σ²/2) with the σ of all three spreads together."""


def generate(seed: int, tasks: int = TASKS, progress: Callable[[int], None] | None = None) -> Trace:
    """Draw the month; the same seed and tasks give the same trace.

    Users differ in size (log-normal numbers of jobs) and work in sessions, more of them by day
    and on weekdays; the tasks of a job are submitted together, ask for the same (cores and GiB)
    and run for about as long; run times are log-normal.

    Args:
        seed: Of all chance.
        tasks: At least FEWEST.
        progress: Is told how many more tasks are done, now and then.

    Raises:
        ValueError: There are too few tasks.
    """
    if tasks < FEWEST:
        raise ValueError(f"{tasks} tasks are too few for a month, at least {FEWEST}")
    random = np.random.default_rng(seed)
    count = tasks // of_jobs.MEAN
    size = sizes(random, count, tasks)
    weight = np.exp(_USER_SIGMA * ndtri((np.arange(USERS) + 0.5) / USERS))
    others = random.choice(USERS, count - USERS, p=weight / weight.sum())
    user = random.permutation(np.concatenate((np.arange(USERS), others)))
    submitted = np.rint(_times(random, user) * MICROSECONDS).astype(np.int64)
    order = np.argsort(submitted, kind="stable")
    user = user[order]
    scale = random.normal(0.0, _JOB_SPREAD, count)
    scale += random.normal(0.0, _USER_SPREAD, USERS)[user]
    runtime = _MEDIAN_S * np.exp(scale - _median(scale, size))
    demand = np.column_stack(
        (
            demands(random, count, 0.6, 0.7, (0.05, 8.0)),
            demands(random, count, 0.7, 0.8, (0.05, 15.0)),
        )
    )
    most = (size * runtime) @ demand / _SECONDS * _MOST
    demand = np.minimum(demand, np.maximum(np.round(most, 2), 0.01))
    jobs = Jobs(submitted[order], size, user, runtime, demand)
    return as_trace(random, jobs, _LIMITS, resources=("cpus", "mem"), progress=progress)


def moments(trace: Trace, tasks: int) -> list[Moment]:
    """Compare a generated month with what is known of the real one."""
    found = statistics(trace)
    runtime = found.runtime_s
    by_user = np.sort(np.bincount(trace.user))[::-1]
    heaviest = float(by_user[: -(-len(by_user) // 10)].sum() / len(trace))
    return [
        Moment("users", USERS, "=", found.users, SDRF),
        Moment("tasks", tasks, "=", found.tasks, SDRF),
        Moment(
            "days from first to last submission",
            DAYS,
            "=",
            (found.last_s - found.first_s) / 86_400,
            REISS,
        ),
        Moment("tasks of a job, mean", of_jobs.MEAN, "=", found.tasks_of_job["mean"], TSF),
        Moment("jobs of one task, part", 0.6, "≥", _part_of_jobs(trace, 1), TSF),
        Moment("jobs of 10 tasks or fewer, part", 0.86, "=", _part_of_jobs(trace, 10), TSF),
        Moment("tasks of the biggest job", of_jobs.LARGEST, "≤", found.tasks_of_job["max"], TSF),
        Moment("tasks of the heaviest tenth of users, part", _HEAVIEST, "=", heaviest, CHOSEN),
        Moment("run time, median, s", _MEDIAN_S, "=", runtime["p50"], CHOSEN),
        Moment(
            "run time, mean over median",
            _MEAN_OVER_MEDIAN,
            "=",
            runtime["mean"] / runtime["p50"],
            CHOSEN,
        ),
        Moment(
            "jobs of the busiest hour of the day over the mean", _PEAK, "=", _peak(trace), CHOSEN
        ),
    ]


def _peak(trace: Trace) -> float:
    first = np.flatnonzero(np.diff(trace.job, prepend=np.int64(-1)))
    hour = trace.submitted[first] // (3600 * MICROSECONDS) % 24
    return float(np.bincount(hour, minlength=24).max() / (len(first) / 24))


def _part_of_jobs(trace: Trace, largest: int) -> float:
    return float(np.mean(np.bincount(trace.job) <= largest))


def _median(values: NDArray[np.float64], weights: NDArray[np.int64]) -> float:
    order = np.argsort(values)
    below = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(below, below[-1] / 2)])


def _times(random: Generator, user: NDArray[np.int64]) -> NDArray[np.float64]:
    """Draw when each job is submitted, in seconds, given whose it is."""
    of_user = np.bincount(user, minlength=USERS)
    sessions = np.ceil(of_user**_SESSIONS).astype(np.int64)
    begins = _begins(random, int(sessions.sum()))
    before = np.concatenate(([0], np.cumsum(sessions)[:-1]))
    session = before[user] + np.floor(random.random(len(user)) * sessions[user]).astype(np.int64)
    times: NDArray[np.float64] = begins[session] + random.exponential(_SESSION_S, len(user))
    return times % _SECONDS


def _begins(random: Generator, count: int) -> NDArray[np.float64]:
    """Draw when sessions begin: an hour by its weight, and any moment within it."""
    hour = np.arange(DAYS * 24)
    weight = 1.0 + (_PEAK - 1.0) * np.cos(2 * np.pi * (hour - _PEAK_HOUR) / 24)
    weight[hour // 24 % 7 >= 5] *= _WEEKEND
    return (random.choice(hour, count, p=weight / weight.sum()) + random.random(count)) * 3600.0
