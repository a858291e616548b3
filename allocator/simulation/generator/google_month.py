"""A month like that of Google's cluster which SDRF was simulated on (SDRF §7.2)."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from scipy.special import ndtri

from allocator.simulation.generator import jobs as of_jobs
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
"""Tasks; with fewer hardly 20 run at a time, and at low load big ones would never find room."""

FINISHED, FAILED, JOBS = 18_217_975, 13_829_769, 672_004
"""Events of the real trace: attempts that ended well, attempts that failed, and jobs."""

_SECONDS = DAYS * 86_400

_PEAK = 1.5
"""Sessions in the busiest hour of the day over those in a mean hour."""
_PEAK_HOUR = 14
_WEEKEND = 0.7

_MEDIAN_S = 180.0
_MOST = 0.05
"""Of mean use: no task asks for more, so that there is room for it at every load of interest; it
takes effect below some 10⁶ tasks."""
_LIMITS = JobLimits(spread=0.3, shortest=1.0, longest=4 * 86_400)


@dataclass(frozen=True)
class Knobs:
    """What is not published, and has to be chosen or fitted to what is.

    Args:
        user_sigma: Of the logarithm of users' numbers of jobs: with 2.5 some have hundreds of
            thousands, many a handful.
        sessions: A user of k jobs works in about k to this power of sessions: who does much is
            there most of the time.
        session_s: Mean seconds of a job after its session's beginning.
        user_spread: Of the logarithm of run times, between users.
        job_spread: Likewise, between jobs of a user.
        loops: How attempts that fail are spread; None: none fails, and jobs are of 40 tasks.
    """

    user_sigma: float
    sessions: float
    session_s: float
    user_spread: float
    job_spread: float
    loops: Loops | None = None

    @property
    def heaviest(self) -> float:
        """Return the part of jobs of the tenth of users that have most, but for chance."""
        return heaviest_tenth(_weights(self.user_sigma))


PLAIN = Knobs(user_sigma=2.5, sessions=0.6, session_s=3600.0, user_spread=0.5, job_spread=1.6)
"""A month in which nothing fails."""
FITTED = Knobs(
    user_sigma=2.27,
    sessions=0.87,
    session_s=1050.0,
    user_spread=1.43,
    job_spread=1.17,
    loops=Loops(jobs=0.0105, user_spread=2.48, spread=1.32, attempt_s=95.0, attempt_spread=0.33),
)
"""What comes nearest to all that is published; `longshare trace fit` says how near."""


def generate(
    seed: int,
    tasks: int = TASKS,
    progress: Callable[[int], None] | None = None,
    knobs: Knobs = FITTED,
) -> Trace:
    """Draw the month; the same seed, tasks and knobs give the same trace.

    Users differ in size (log-normal numbers of jobs) and work in sessions, more of them by day
    and on weekdays; the tasks of a job are submitted together, ask for the same (cores and GiB)
    and run for about as long; run times are log-normal. Some jobs' tasks fail again and again:
    each attempt is a task of its own, as SDRF §7.2 counts them.

    Args:
        seed: Of all chance.
        tasks: At least FEWEST.
        progress: Is told how many more tasks are done, now and then.
        knobs: What is not published.

    Raises:
        ValueError: There are too few tasks.
    """
    if tasks < FEWEST:
        raise ValueError(f"{tasks} tasks are too few for a month, at least {FEWEST}")
    random = np.random.default_rng(seed)
    failed, count = _counts(tasks, knobs)
    size = sizes(random, count, tasks - failed)
    weight = _weights(knobs.user_sigma)
    others = random.choice(USERS, count - USERS, p=weight / weight.sum())
    user = random.permutation(np.concatenate((np.arange(USERS), others)))
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
    most = (jobs.size * jobs.runtime) @ jobs.demand / _SECONDS * _MOST
    jobs = replace(jobs, demand=np.minimum(jobs.demand, np.maximum(np.round(most, 2), 0.01)))
    return as_trace(random, jobs, _LIMITS, resources=("cpus", "mem"), progress=progress)


def _counts(tasks: int, knobs: Knobs) -> tuple[int, int]:
    """Return how many attempts fail, and how many jobs there are."""
    if knobs.loops is None:
        return 0, tasks // of_jobs.MEAN
    return round(tasks * FAILED / (FINISHED + FAILED)), round(tasks * JOBS / (FINISHED + FAILED))


def _weights(sigma: float) -> NDArray[np.float64]:
    weights: NDArray[np.float64] = np.exp(sigma * ndtri((np.arange(USERS) + 0.5) / USERS))
    return weights


def moments(trace: Trace, tasks: int, knobs: Knobs = FITTED) -> list[Moment]:
    """Compare a generated month with what is known of the real one."""
    found = statistics(trace)
    first, again = _first_and_again(trace)
    size = np.bincount(trace.job[~again])
    failed, jobs = _counts(tasks, knobs)
    heaviest = heaviest_tenth(np.bincount(trace.user[~again]))
    runtime = trace.runtime[~again] / MICROSECONDS
    median, mean = float(np.median(runtime)), float(runtime.mean())
    peak = peak_hour(trace.submitted[first])
    spreads = knobs.user_spread**2 + knobs.job_spread**2 + _LIMITS.spread**2
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
        Moment("jobs", jobs, "=", found.jobs, EVENTS if failed else TSF),
        *([Moment("attempts that fail", failed, "=", int(again.sum()), EVENTS)] if failed else []),
        Moment("jobs of one task, part", 0.6, "≥", float(np.mean(size <= 1)), TSF),
        Moment("jobs of 10 tasks or fewer, part", 0.86, "=", float(np.mean(size <= 10)), TSF),
        Moment("tasks of the biggest job", of_jobs.LARGEST, "≤", int(size.max()), TSF),
        Moment("tasks of the heaviest tenth of users, part", knobs.heaviest, "=", heaviest, CHOSEN),
        Moment("run time, median, s", _MEDIAN_S, "=", median, CHOSEN),
        Moment("run time, mean over median", np.exp(spreads / 2), "=", mean / median, CHOSEN),
        Moment("jobs of the busiest hour of the day over the mean", _PEAK, "=", peak, CHOSEN),
    ]


def _first_and_again(trace: Trace) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Return each job's first task, and which tasks came after it: all that failed before."""
    _, first, job = np.unique(trace.job, return_index=True, return_inverse=True)
    return first, trace.submitted > trace.submitted[first][job]


def _median(values: NDArray[np.float64], weights: NDArray[np.int64]) -> float:
    order = np.argsort(values)
    below = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(below, below[-1] / 2)])


def _times(random: Generator, user: NDArray[np.int64], knobs: Knobs) -> NDArray[np.float64]:
    """Draw when each job is submitted, in seconds, given whose it is."""
    of_user = np.bincount(user, minlength=USERS)
    sessions = np.ceil(of_user**knobs.sessions).astype(np.int64)
    begins = _begins(random, int(sessions.sum()))
    before = np.concatenate(([0], np.cumsum(sessions)[:-1]))
    session = before[user] + np.floor(random.random(len(user)) * sessions[user]).astype(np.int64)
    times: NDArray[np.float64] = begins[session] + random.exponential(knobs.session_s, len(user))
    return times % _SECONDS


def _begins(random: Generator, count: int) -> NDArray[np.float64]:
    """Draw when sessions begin: an hour by its weight, and any moment within it."""
    hour = np.arange(DAYS * 24)
    weight = 1.0 + (_PEAK - 1.0) * np.cos(2 * np.pi * (hour - _PEAK_HOUR) / 24)
    weight[hour // 24 % 7 >= 5] *= _WEEKEND
    return (random.choice(hour, count, p=weight / weight.sum()) + random.random(count)) * 3600.0
