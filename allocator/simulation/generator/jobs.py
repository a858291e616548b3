"""Sizes of jobs as in Google's cluster, and the columns of their tasks (TSF §VI-B, Fig. 8b)."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from allocator.simulation.trace import (
    MICROSECONDS,
    UNCONSTRAINED,
    MachineClass,
    Trace,
    by_appearance,
)

MEAN = 40
"""Tasks of a job: 180 000 in 4500."""

LARGEST = 20_000
"""Tasks of the biggest job."""

_HUGE = 501
_HUGE_EXPONENT = 0.5
_BINS = ((0.64, 1, 1), (0.22, 2, 10), (0.10, 11, 100), (0.032, 101, 500))
"""The part of jobs, the smallest and the largest size; all others have _HUGE tasks or more."""

_HALVINGS = 60
"""Steps of a bisection to the last bit of a double, nearly."""

_CHUNK = 1 << 20
"""Tasks whose run times are drawn at a time."""


def sizes(random: Generator, jobs: int, tasks: int) -> NDArray[np.int64]:
    """Draw the sizes of jobs, in no order, that have so many tasks together.

    Each bin has its exact part of the jobs, sizes within a bin are log-uniform, and those of huge
    jobs, Pareto with exponent ½ up to LARGEST, are stretched until the total is right; the biggest
    job has LARGEST tasks if there are enough.

    Raises:
        ValueError: No such sizes are possible: tasks must be about MEAN times the jobs.
    """
    drawn = []
    for part, smallest, largest in _BINS:
        uniform = random.random(round(part * jobs))
        drawn.append(np.floor(smallest * ((largest + 1) / smallest) ** uniform))
    ordinary = np.concatenate(drawn).astype(np.int64)
    huge = _pareto(random, max(jobs - len(ordinary), 0))
    stretched = _stretched(huge, tasks - int(ordinary.sum()))
    return random.permutation(np.concatenate((ordinary, stretched)))


def _pareto(random: Generator, count: int) -> NDArray[np.float64]:
    low, high = _HUGE**-_HUGE_EXPONENT, LARGEST**-_HUGE_EXPONENT
    drawn: NDArray[np.float64] = (low - random.random(count) * (low - high)) ** (
        -1 / _HUGE_EXPONENT
    )
    return drawn


def _stretched(huge: NDArray[np.float64], total: int) -> NDArray[np.int64]:
    """Multiply all by one factor, within the bounds, so that their total is right."""
    if not _HUGE * len(huge) <= total <= LARGEST * len(huge):
        raise ValueError(f"{len(huge)} huge jobs cannot have {total} tasks together")
    if total >= LARGEST + _HUGE * (len(huge) - 1) and len(huge):
        huge[huge.argmax()] = np.inf
    low, high = 0.0, LARGEST / huge.min(initial=1.0)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if np.clip(huge * middle, _HUGE, LARGEST).sum() < total:
            low = middle
        else:
            high = middle
    whole = np.floor(np.clip(huge * low, _HUGE, LARGEST)).astype(np.int64)
    missing = total - int(whole.sum())
    whole[np.flatnonzero(whole < LARGEST)[:missing]] += 1
    return whole


@dataclass(frozen=True)
class Jobs:
    """Jobs in order of submission, one entry each; the tasks of a job come at the same time.

    Args:
        submitted: Microseconds, ascending.
        size: Tasks.
        user: Numbers from 0, in any order.
        runtime: Median seconds of the job's tasks.
        demand: Of each of its tasks, shape (jobs, m).
        constraint: As in a trace; None: none has any.
        number: Of the job, where several entries are of one; None: its place.
    """

    submitted: NDArray[np.int64]
    size: NDArray[np.int64]
    user: NDArray[np.int64]
    runtime: NDArray[np.float64]
    demand: NDArray[np.float64]
    constraint: NDArray[np.int32] | None = None
    number: NDArray[np.int64] | None = None


@dataclass(frozen=True)
class JobLimits:
    """How run times vary.

    Args:
        spread: Standard deviation of the logarithm of run times within a job.
        shortest: Seconds.
        longest: Seconds.
    """

    spread: float
    shortest: float
    longest: float


def as_trace(  # noqa: PLR0913 - what a trace is made of
    random: Generator,
    jobs: Jobs,
    limits: JobLimits,
    *,
    resources: tuple[str, ...],
    machines: tuple[MachineClass, ...] = (),
    constraints: tuple[tuple[int, ...], ...] = (),
    progress: Callable[[int], None] | None = None,
) -> Trace:
    """Return the trace of all tasks of jobs; memory beyond it is 4 bytes per task.

    Args:
        random: Where run times come from.
        jobs: What is to be done.
        limits: How run times vary.
        resources: Names of the m resources.
        machines: As in a trace.
        constraints: As in a trace.
        progress: Is told how many more tasks are done, now and then.
    """
    tasks = int(jobs.size.sum())
    appearance, number = by_appearance(jobs.user)
    of_job = np.repeat(np.arange(len(jobs.size), dtype=np.int32), jobs.size)
    submitted, runtime, job = (np.empty(tasks, np.int64) for _ in range(3))
    user = np.empty(tasks, np.int32)
    constraint = np.full(tasks, UNCONSTRAINED, np.int32)
    demand = np.empty((tasks, len(resources)))
    for start in range(0, tasks, _CHUNK):
        rows = slice(start, start + _CHUNK)
        some = of_job[rows]
        submitted[rows] = jobs.submitted[some]
        seconds = jobs.runtime[some] * np.exp(random.normal(0.0, limits.spread, len(some)))
        seconds = np.clip(seconds, limits.shortest, limits.longest)
        runtime[rows] = np.rint(seconds * MICROSECONDS)
        user[rows] = number[jobs.user[some]]
        job[rows] = some if jobs.number is None else jobs.number[some]
        demand[rows] = jobs.demand[some]
        if jobs.constraint is not None:
            constraint[rows] = jobs.constraint[some]
        if progress:
            progress(len(some))
    return Trace(
        resources=resources,
        users=tuple(f"user-{name}" for name in appearance),
        submitted=submitted,
        runtime=runtime,
        user=user,
        job=job,
        demand=demand,
        constraint=constraint,
        machines=machines,
        constraints=constraints,
    )


def demands(
    random: Generator, jobs: int, median: float, sigma: float, bounds: tuple[float, float]
) -> NDArray[np.float64]:
    """Draw what each job's tasks ask for of one resource: log-normal, in hundredths."""
    drawn = np.clip(median * np.exp(random.normal(0.0, sigma, jobs)), *bounds)
    hundredths: NDArray[np.float64] = np.rint(drawn * 100) / 100
    return hundredths
