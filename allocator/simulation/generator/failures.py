"""Tasks that fail and are retried repeatedly; they are most of the starts of a busy cluster."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from allocator.simulation.generator.jobs import Jobs
from allocator.simulation.trace import MICROSECONDS

_PAUSE_S = 5.0
"""Seconds from a failure to the next attempt."""
_HALVINGS = 60
"""Bisection steps; the result is accurate to about the last bit of a double."""


@dataclass(frozen=True)
class Loops:
    """Distribution of failures.

    Args:
        jobs: Fraction of jobs whose tasks fail.
        user_spread: Spread between users of their tendency to have failing jobs: standard deviation
            of the logarithm. 0: all users are alike.
        spread: Standard deviation of the logarithm of the number of failures of a task, among tasks
            of failing jobs.
        attempt_s: Median seconds until an attempt fails.
        attempt_spread: Standard deviation of the logarithm of these seconds, between jobs.
    """

    jobs: float
    user_spread: float
    spread: float
    attempt_s: float
    attempt_spread: float


def with_failures(random: Generator, jobs: Jobs, loops: Loops, attempts: int, until: float) -> Jobs:
    """Add failing attempts to jobs. Each attempt has one task and follows the job's submission.

    All tasks of a failing job fail about equally often, one attempt after the other. Attempts that
    would fail after the end are dropped, and other tasks fail more often instead.

    Args:
        random: Random generator.
        jobs: In order of submission, one entry each.
        loops: Distribution of failures.
        attempts: Number of failing attempts.
        until: Seconds of the end.

    Raises:
        ValueError: This number of attempts does not fit before the end.
    """
    failing = _failing(random, jobs, loops)
    count = len(failing)
    run = loops.attempt_s * np.exp(loops.attempt_spread * random.normal(0.0, 1.0, count))
    frequency = np.exp(loops.spread * random.normal(0.0, 1.0, count))
    size = jobs.size[failing]
    job_of_task = np.repeat(np.arange(count), size)  # by task: index of its failing job
    begin = jobs.submitted[failing][job_of_task] / MICROSECONDS
    period = (run + _PAUSE_S)[job_of_task]
    first = period * random.random(len(job_of_task))
    limits = np.floor(np.maximum(until - 1.0 - begin - first, 0.0) / period).astype(np.int64)
    times = _stretched(frequency[job_of_task], limits, attempts)
    task = np.repeat(np.arange(len(job_of_task)), times)
    attempt = np.arange(attempts) - np.repeat(np.cumsum(times) - times, times)
    seconds = begin[task] + first[task] + attempt * period[task]
    job = failing[job_of_task[task]]
    # at least a microsecond after the job itself, which marks the attempt as a retry
    submitted = np.maximum(
        np.rint(seconds * MICROSECONDS).astype(np.int64), jobs.submitted[job] + 1
    )
    all_submitted = np.concatenate((jobs.submitted, submitted))
    order = np.argsort(all_submitted, kind="stable")
    number = np.concatenate((np.arange(len(jobs.size)), job))[order]
    return replace(
        jobs,
        submitted=all_submitted[order],
        size=np.concatenate((jobs.size, np.ones(attempts, np.int64)))[order],
        user=jobs.user[number],
        runtime=np.concatenate((jobs.runtime, run[job_of_task[task]]))[order],
        demand=jobs.demand[number],
        number=number,
    )


def _failing(random: Generator, jobs: Jobs, loops: Loops) -> NDArray[np.intp]:
    """Draw the failing jobs. Jobs of users with an equal tendency have equal chances."""
    count = max(1, round(loops.jobs * len(jobs.size)))
    tendency = loops.user_spread * random.normal(0.0, 1.0, int(jobs.user.max()) + 1)
    keys = tendency[jobs.user] + random.gumbel(size=len(jobs.user))
    return np.sort(np.argpartition(-keys, count - 1)[:count])


def _stretched(
    frequency: NDArray[np.float64], limits: NDArray[np.int64], total: int
) -> NDArray[np.int64]:
    """Multiply all values by one factor so that they sum to a total, up to a limit for each value.

    Args:
        frequency: Values before stretching.
        limits: Upper limit of each value.
        total: The sum of the result.
    """
    if total > int(limits.sum()):
        raise ValueError(f"{len(limits)} failing tasks cannot fail {total} times together")
    low, high = 0.0, float(limits.max(initial=1)) / frequency.min(initial=1.0)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if np.minimum(np.floor(frequency * middle), limits).sum() < total:
            low = middle
        else:
            high = middle
    whole = np.minimum(np.floor(frequency * low), limits).astype(np.int64)
    below_limit = np.flatnonzero(whole < limits)
    whole[below_limit[: total - int(whole.sum())]] += 1
    return whole
