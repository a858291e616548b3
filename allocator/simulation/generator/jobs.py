"""Draws jobs with sizes as in Google's cluster, and expands them to tasks.

The source of the sizes is the TSF paper, §VI-B and Fig. 8b.
"""

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
"""Mean number of tasks of a job (published: 180,000 tasks in 4,500 jobs)."""

LARGEST = 20_000
"""Number of tasks of the largest job."""

_HUGE = 501
_HUGE_EXPONENT = 0.5
_BINS = ((0.64, 1, 1), (0.22, 2, 10), (0.10, 11, 100), (0.032, 101, 500))
"""(fraction of jobs, smallest size, largest size). The remaining jobs have _HUGE tasks or more."""

_HALVINGS = 60
"""Number of bisection steps; the result is then accurate to about the last bit of a double."""

_CHUNK = 1 << 20
"""Number of tasks whose run times are drawn at a time, which bounds memory."""


def sizes(random: Generator, jobs: int, tasks: int) -> NDArray[np.int64]:
    """Draw the number of tasks of each job, with a given total.

    The distribution has bins (TSF paper, Fig. 8b), and each bin has its exact fraction of the jobs.
    Sizes within a bin are log-uniform. Sizes of huge jobs are Pareto with exponent ½ up to LARGEST,
    multiplied by a factor that gives the total. The largest job has LARGEST tasks if there are
    enough tasks.

    Args:
        random: Random generator.
        jobs: Number of jobs.
        tasks: Total number of tasks.

    Raises:
        ValueError: Such sizes are impossible. `tasks` must be about MEAN times `jobs`.
    """
    drawn = []
    for fraction, smallest, largest in _BINS:
        uniform = random.random(round(fraction * jobs))
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
    """Scale the sizes of huge jobs by one factor so that they sum to a total, within their bounds.

    Args:
        huge: Sizes before scaling.
        total: Required sum of the result.
    """
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
    """Jobs before they are expanded to tasks, as arrays in order of submission.

    All tasks of a job are submitted together.

    Args:
        submitted: Submission times in microseconds, ascending.
        size: Number of tasks.
        user: User numbers from 0, in any order.
        runtime: Median run time of the job's tasks, in seconds.
        demand: Demand of each of the job's tasks, shape (jobs, m).
        constraint: As in a trace. None: no job has a constraint.
        number: Job numbers, if several entries belong to one job. None: an entry's index is its job
            number.
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
    """How run times vary among the tasks of a job.

    Args:
        spread: Standard deviation of the logarithm of run times within a job.
        shortest: Shortest run time in seconds.
        longest: Longest run time in seconds.
    """

    spread: float
    shortest: float
    longest: float


def as_trace(  # noqa: PLR0913 - the parts of a trace
    random: Generator,
    jobs: Jobs,
    limits: JobLimits,
    *,
    resources: tuple[str, ...],
    machines: tuple[MachineClass, ...] = (),
    constraints: tuple[tuple[int, ...], ...] = (),
    progress: Callable[[int], None] | None = None,
) -> Trace:
    """Expand jobs to a trace with all their tasks. Needs 4 bytes per task beyond the trace.

    Args:
        random: Random generator of tasks' run times.
        jobs: The jobs.
        limits: How run times vary among the tasks of a job.
        resources: Names of the m resources.
        machines: Machine classes of the trace.
        constraints: Allowed machine classes of each constraint number.
        progress: Called now and then with the number of tasks generated since the last call.
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
        chunk = of_job[rows]
        submitted[rows] = jobs.submitted[chunk]
        seconds = jobs.runtime[chunk] * np.exp(random.normal(0.0, limits.spread, len(chunk)))
        seconds = np.clip(seconds, limits.shortest, limits.longest)
        runtime[rows] = np.rint(seconds * MICROSECONDS)
        user[rows] = number[jobs.user[chunk]]
        job[rows] = chunk if jobs.number is None else jobs.number[chunk]
        demand[rows] = jobs.demand[chunk]
        if jobs.constraint is not None:
            constraint[rows] = jobs.constraint[chunk]
        if progress:
            progress(len(chunk))
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
    """Draw each job's demand of one resource: log-normal, rounded to hundredths.

    Args:
        random: Random generator.
        jobs: Number of jobs.
        median: Median demand.
        sigma: Standard deviation of the logarithm of demands.
        bounds: Smallest and largest demand.
    """
    drawn = np.clip(median * np.exp(random.normal(0.0, sigma, jobs)), *bounds)
    hundredths: NDArray[np.float64] = np.rint(drawn * 100) / 100
    return hundredths
