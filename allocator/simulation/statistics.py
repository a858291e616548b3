"""What a trace is like, in numbers."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from allocator.simulation.trace import MICROSECONDS, UNCONSTRAINED, Trace

_QUANTILES = {"p10": 0.1, "p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}


@dataclass(frozen=True)
class Statistics:
    """Of a trace that has tasks; distributions are mean, p10, p50, p90, p99 and max.

    Args:
        tasks: How many.
        users: How many submitted something.
        jobs: How many.
        first_s: Seconds of the first submission.
        last_s: Seconds of the last submission.
        finished_s: Seconds of the last finish, were every task to start when it is submitted.
        mean_use: Of each resource, Σ run time × demand over first_s to finished_s.
        at_once: Of each resource that is used, how many tasks that mean use is of: it is divided by
            what a task asks for in the mean, each weighted by its use.
        runtime_s: Distribution over tasks, seconds.
        demand: For each resource, distribution over tasks.
        tasks_of_job: Distribution over jobs.
        tasks_of_user: Distribution over users.
        use_of_heaviest: The part of all use (of the resource that it is most of) that is due to
            the tenth of users that use most.
        peak_hour: Submissions of the busiest hour of the day over those of a mean hour.
        constrained: The part of tasks that may not run on every machine.
        machines: How many.
        capacity: Of all machines together, for each resource.
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
    """Return a trace's statistics; n log n in its tasks.

    Raises:
        ValueError: It has no tasks.
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
            resource: distribution(trace.demand[:, place])
            for place, resource in enumerate(trace.resources)
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
    """Return mean and quantiles of at least one value."""
    quantiles = np.quantile(values, list(_QUANTILES.values()))
    return {"mean": float(np.mean(values))} | dict(zip(_QUANTILES, quantiles.tolist(), strict=True))


def heaviest_tenth(amounts: NDArray[np.number]) -> float:
    """Return the part of all that the tenth of entries that are largest make up; 0 of nothing."""
    falling = np.sort(amounts)[::-1]
    total = falling.sum()
    return float(falling[: -(-len(falling) // 10)].sum() / total) if total else 0.0


def peak_hour(submitted: NDArray[np.int64]) -> float:
    """Return how many come in the busiest hour of the day over those of a mean hour.

    Args:
        submitted: Microseconds, of at least one.
    """
    hour = submitted // (3600 * MICROSECONDS) % 24
    return float(np.bincount(hour, minlength=24).max() / (len(submitted) / 24))


def dominant_use(trace: Trace) -> NDArray[np.float64]:
    """Return each user's use, Σ run time × demand, as a part of all users', shape (users,).

    Of each user's resources the one that it is most of counts.
    """
    use = np.zeros(len(trace.users))
    for place in range(len(trace.resources)):
        of_one = np.bincount(
            trace.user, trace.runtime * trace.demand[:, place], minlength=len(trace.users)
        )
        if total := of_one.sum():
            np.maximum(use, of_one / total, out=use)
    return use


def _at_once(trace: Trace) -> dict[str, float]:
    found = {}
    for place, (name, use) in enumerate(
        zip(trace.resources, trace.mean_use().tolist(), strict=True)
    ):
        demand = trace.demand[:, place]
        work = trace.runtime * demand
        if weighted := float(work @ demand):
            found[name] = use * float(work.sum()) / weighted
    return found
