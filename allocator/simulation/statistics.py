"""Descriptive statistics of a trace (sizes, distributions, load), to judge or compare workloads."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from allocator.simulation.trace import MICROSECONDS, UNCONSTRAINED, Trace

_ROUNDING = 1e-9
"""Relative difference below which two users use the same."""
_QUANTILES = {"p10": 0.1, "p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}


@dataclass(frozen=True)
class Statistics:
    """Key figures that describe a trace with at least one task.

    A distribution is a dict with the keys mean, p10, p50, p90, p99 and max.

    Args:
        tasks: Number of tasks.
        users: Number of users that submitted a task.
        jobs: Number of jobs.
        first_s: Time of the first submission, in seconds since the trace's origin.
        last_s: Time of the last submission, in the same unit.
        finished_s: Time of the last finish if every task started when submitted, in the same unit.
        mean_use: For each resource, Σ run time × demand divided by the time from first_s to
            finished_s.
        at_once: For each used resource, a typical number of concurrent tasks: mean use divided by
            the mean demand of a task, weighted by use.
        runtime_s: Distribution over tasks of the run time in seconds.
        demand: For each resource, distribution over tasks of the demand.
        tasks_of_job: Distribution over jobs of the number of tasks.
        tasks_of_user: Distribution over users of the number of tasks.
        use_of_heaviest: Fraction of the total dominant use that belongs to the tenth of users with
            the largest dominant use.
        peak_hour: Submissions in the busiest hour of the day, divided by those in an average hour.
        constrained: Fraction of tasks that may not run on all machines.
        machines: Number of machines.
        capacity: Total capacity of all machines, for each resource.
    """

    tasks: int
    users: int
    jobs: int
    first_s: float
    last_s: float
    finished_s: float
    mean_use: dict[str, float]
    at_once: dict[str, float]
    runtime_s: dict[str, float]
    demand: dict[str, dict[str, float]]
    tasks_of_job: dict[str, float]
    tasks_of_user: dict[str, float]
    use_of_heaviest: float
    peak_hour: float
    constrained: float
    machines: int
    capacity: dict[str, float]


def statistics(trace: Trace) -> Statistics:
    """Compute a trace's statistics. Costs O(n log n) for n tasks.

    Raises:
        ValueError: The trace has no tasks.
    """
    if not len(trace):
        raise ValueError("a trace without tasks has no statistics")
    tasks_of_user = np.bincount(trace.user, minlength=len(trace.users))
    _, tasks_of_job = np.unique(trace.job, return_counts=True)
    return Statistics(
        tasks=len(trace),
        users=int(np.count_nonzero(tasks_of_user)),
        jobs=len(tasks_of_job),
        first_s=int(trace.submitted[0]) / MICROSECONDS,
        last_s=int(trace.submitted[-1]) / MICROSECONDS,
        finished_s=int((trace.submitted + trace.runtime).max()) / MICROSECONDS,
        mean_use=dict(zip(trace.resources, trace.mean_use().tolist(), strict=True)),
        at_once=_at_once(trace),
        runtime_s=distribution(trace.runtime / MICROSECONDS),
        demand={
            resource: distribution(trace.demand[:, index])
            for index, resource in enumerate(trace.resources)
        },
        tasks_of_job=distribution(tasks_of_job),
        tasks_of_user=distribution(tasks_of_user[tasks_of_user > 0]),
        use_of_heaviest=heaviest_tenth(dominant_use(trace)),
        peak_hour=peak_hour(trace.submitted),
        constrained=float(np.mean(trace.constraint != UNCONSTRAINED)),
        machines=sum(machine.count for machine in trace.machines),
        capacity=dict(zip(trace.resources, trace.capacity().tolist(), strict=True))
        if trace.machines
        else {},
    )


def distribution(values: NDArray[np.number]) -> dict[str, float]:
    """Return the mean, 10th, 50th, 90th and 99th percentile and maximum of values, by name.

    The names are mean, p10, p50, p90, p99 and max. There must be at least one value.
    """
    quantiles = np.quantile(values, list(_QUANTILES.values()))
    return {"mean": float(np.mean(values))} | dict(zip(_QUANTILES, quantiles.tolist(), strict=True))


def heaviest_tenth(amounts: NDArray[np.number]) -> float:
    """Return the fraction of a total that belongs to the largest tenth of the entries.

    The result is 0 if the total is 0.
    """
    falling = np.sort(amounts)[::-1]
    total = falling.sum()
    return float(falling[: -(-len(falling) // 10)].sum() / total) if total else 0.0


def peak_hour(submitted: NDArray[np.int64]) -> float:
    """Return submissions in the busiest hour of the day, divided by those in an average hour.

    Args:
        submitted: Submission times in microseconds, at least one.
    """
    hour = submitted // (3600 * MICROSECONDS) % 24
    return float(np.bincount(hour, minlength=24).max() / (len(submitted) / 24))


def dominant_use(trace: Trace) -> NDArray[np.float64]:
    """Return each user's dominant use, shape (users,).

    A user's use of a resource is Σ run time × demand over its tasks. The use is divided by the use
    of all users, and the largest of these fractions over the resources is the dominant use.
    """
    use = np.zeros(len(trace.users))
    for index in range(len(trace.resources)):
        used = np.bincount(
            trace.user, trace.runtime * trace.demand[:, index], minlength=len(trace.users)
        )
        if total := used.sum():
            np.maximum(use, used / total, out=use)
    return use


def _at_once(trace: Trace) -> dict[str, float]:
    counts = {}
    for index, (name, use) in enumerate(
        zip(trace.resources, trace.mean_use().tolist(), strict=True)
    ):
        demand = trace.demand[:, index]
        work = trace.runtime * demand
        if weighted := float(work @ demand):
            counts[name] = use * float(work.sum()) / weighted
    return counts


def lighter_half(usage: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return a mask of the half of the users with the lowest usage.

    With an odd number of users, the median user is left out. Users of equal usage are in the same
    half, so that no name decides. If all users are equal, no user is in the lighter half.

    Args:
        usage: Dominant use of each user.
    """
    half = len(usage) // 2
    if not half:
        return np.zeros(len(usage), dtype=np.bool_)
    highest = np.partition(usage, half - 1)[half - 1]
    light: NDArray[np.bool_] = usage <= highest * (1.0 + _ROUNDING)
    return light & (not light.all())
