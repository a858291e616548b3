"""Tasks that fail and are tried again and again: most of what a busy cluster starts."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from allocator.simulation.generator.jobs import Jobs
from allocator.simulation.trace import MICROSECONDS

_PAUSE_S = 5.0
"""From a failure to the next attempt."""
_HALVINGS = 60
"""Steps of a bisection to the last bit of a double, nearly."""


@dataclass(frozen=True)
class Loops:
    """How failures are spread.

    Args:
        jobs: The part of jobs whose tasks fail.
        user_spread: Of the logarithm of users' inclination to have such jobs; 0: all alike.
        spread: Of the logarithm of how often the tasks of such a job fail.
        attempt_s: Median seconds until an attempt fails.
        attempt_spread: Of the logarithm of that, between jobs.
    """

    jobs: float
    user_spread: float
    spread: float
    attempt_s: float
    attempt_spread: float


def with_failures(random: Generator, jobs: Jobs, loops: Loops, attempts: int, until: float) -> Jobs:
    """Add attempts that fail to jobs; each is of one task, and follows the job's submission.

    All tasks of a job that fails do, about as often, one attempt after the other. What would
    fail after the end is not there, and others fail more often instead.

    Args:
        random: Of all chance.
        jobs: In order of submission, one entry each.
        loops: How failures are spread.
        attempts: How many fail.
        until: Seconds; the end.

    Raises:
        ValueError: So many do not fit.
    """
    failing = _failing(random, jobs, loops)
    count = len(failing)
    run = loops.attempt_s * np.exp(loops.attempt_spread * random.normal(0.0, 1.0, count))
    often = np.exp(loops.spread * random.normal(0.0, 1.0, count))
    size = jobs.size[failing]
    of = np.repeat(np.arange(count), size)  # the failing job of each of its tasks
    begin = jobs.submitted[failing][of] / MICROSECONDS
    period = (run + _PAUSE_S)[of]
    first = period * random.random(len(of))
    most = np.floor(np.maximum(until - 1.0 - begin - first, 0.0) / period).astype(np.int64)
    times = _stretched(often[of], most, attempts)
    task = np.repeat(np.arange(len(of)), times)
    turn = np.arange(attempts) - np.repeat(np.cumsum(times) - times, times)
    seconds = begin[task] + first[task] + turn * period[task]
    job = failing[of[task]]
    # at least a microsecond after the job itself: that tells who is tried again
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
        runtime=np.concatenate((jobs.runtime, run[of[task]]))[order],
        demand=jobs.demand[number],
        number=number,
    )


def _failing(random: Generator, jobs: Jobs, loops: Loops) -> NDArray[np.intp]:
    """Draw which jobs fail: of equally inclined users all jobs are equally likely to."""
    count = max(1, round(loops.jobs * len(jobs.size)))
    inclined = loops.user_spread * random.normal(0.0, 1.0, int(jobs.user.max()) + 1)
    keys = inclined[jobs.user] + random.gumbel(size=len(jobs.user))
    return np.sort(np.argpartition(-keys, count - 1)[:count])


def _stretched(
    often: NDArray[np.float64], most: NDArray[np.int64], total: int
) -> NDArray[np.int64]:
    """Multiply all by one factor, up to what each can be, so that their total is right."""
    if total > int(most.sum()):
        raise ValueError(f"{len(most)} failing tasks cannot fail {total} times together")
    low, high = 0.0, float(most.max(initial=1)) / often.min(initial=1.0)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if np.minimum(np.floor(often * middle), most).sum() < total:
            low = middle
        else:
            high = middle
    whole = np.minimum(np.floor(often * low), most).astype(np.int64)
    room = np.flatnonzero(whole < most)
    whole[room[: total - int(whole.sum())]] += 1
    return whole
