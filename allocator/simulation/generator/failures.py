"""Adds to a workload tasks that fail and are retried, which are most starts in a busy cluster."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from allocator.simulation.generator.jobs import Jobs
from allocator.simulation.trace import MICROSECONDS

_PAUSE_S = 5.0
"""Seconds between a failure and the next attempt."""
_HALVINGS = 60
"""Number of bisection steps; the result is then accurate to about the last bit of a double."""


@dataclass(frozen=True)
class Loops:
    """Parameters of failing tasks: which jobs fail, how often, and how fast.

    Args:
        jobs: Fraction of jobs whose tasks fail.
        user_spread: Differences between users in how many of their jobs fail: standard deviation of
            the logarithm. 0: all users are alike.
        spread: Differences between tasks of failing jobs in the number of failures: standard
            deviation of the logarithm.
        attempt_s: Median time in seconds until an attempt fails.
        attempt_spread: Differences between jobs in this time: standard deviation of the logarithm.
    """

    jobs: float
    user_spread: float
    spread: float
    attempt_s: float
    attempt_spread: float


def with_failures(random: Generator, jobs: Jobs, loops: Loops, attempts: int, until: float) -> Jobs:
    """Return jobs with failed attempts added, each as a task.

    An attempt is submitted after its job's submission. All tasks of a failing job fail about
    equally often, one attempt after the other. Attempts that would fail after `until` are dropped,
    and other tasks fail more often instead.

    Args:
        random: Random generator.
        jobs: The jobs without failures, in order of submission.
        loops: Parameters of the failing tasks.
        attempts: Number of failing attempts to add.
        until: Time in seconds at which the workload ends.

    Raises:
        ValueError: This number of attempts does not fit before `until`.
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
    """Choose the jobs whose tasks fail. Return their indices.

    Each user has a random tendency to fail, which determines the chance of its jobs.
    """
    count = max(1, round(loops.jobs * len(jobs.size)))
    tendency = loops.user_spread * random.normal(0.0, 1.0, int(jobs.user.max()) + 1)
    keys = tendency[jobs.user] + random.gumbel(size=len(jobs.user))
    return np.sort(np.argpartition(-keys, count - 1)[:count])


def _stretched(
    frequency: NDArray[np.float64], limits: NDArray[np.int64], total: int
) -> NDArray[np.int64]:
    """Scale values by one factor and round them, so that they sum to a total within upper limits.

    Args:
        frequency: The values to scale.
        limits: Upper limit of each value.
        total: Required sum of the result.

    Raises:
        ValueError: The limits sum to less than the total.
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
