"""Key figures of a simulation: waits, completion ratios and slowdowns, overall and per user."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from allocator.simulation.outcome import NEVER, Outcome
from allocator.simulation.setting import Setting
from allocator.simulation.statistics import distribution, dominant_use
from allocator.simulation.trace import MICROSECONDS, Trace

QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
"""Quantiles reported for waits and slowdowns, by name."""
_LEAST_RUN = 10.0
"""Lower bound in seconds for run times in bounded slowdowns (Feitelson).

Without the bound, very short tasks would dominate the mean slowdown.
"""


@dataclass(frozen=True)
class UserSummary:
    """Key figures of each user, as arrays with one entry per user of the trace.

    Means are NaN for users without a task and for users whose tasks never started.

    Args:
        names: Names of the users.
        tasks: Submitted tasks, int64.
        started: Started tasks, int64.
        completed: Tasks finished by the trace's end (`end_of`), int64.
        completion_ratio: Completed tasks divided by submitted tasks.
        mean_wait_s: Mean seconds from submission to start.
        mean_slowdown: Mean of the user's bounded slowdowns (`slowdowns`).
        usage: The user's dominant use: its largest fraction, over the resources, of all users' use
            of a resource. Use is Σ run time × demand.
    """

    names: tuple[str, ...]
    tasks: NDArray[np.int64]
    started: NDArray[np.int64]
    completed: NDArray[np.int64]
    completion_ratio: NDArray[np.float64]
    mean_wait_s: NDArray[np.float64]
    mean_slowdown: NDArray[np.float64]
    usage: NDArray[np.float64]


def end_of(trace: Trace) -> int:
    """Return the end of a trace in microseconds: the last finish if no task had to wait."""
    return int((trace.submitted + trace.runtime).max()) if len(trace) else 0


def slowdowns(outcome: Outcome) -> NDArray[np.float64]:
    """Return each task's bounded slowdown.

    The slowdown is (wait + run) / max(run, 10 s), but at least 1. The value is NaN for a task that
    never started.
    """
    run = outcome.trace.runtime / MICROSECONDS
    return np.maximum((outcome.wait + run) / np.maximum(run, _LEAST_RUN), 1.0)


def users_of(outcome: Outcome) -> UserSummary:
    """Compute each user's key figures from an outcome."""
    trace = outcome.trace
    count = len(trace.users)

    def counted(mask: NDArray[np.bool_]) -> NDArray[np.int64]:
        return np.bincount(trace.user[mask], minlength=count).astype(np.int64)

    def mean(values: NDArray[np.float64]) -> NDArray[np.float64]:
        total = np.bincount(trace.user[ran], values[ran], minlength=count)
        with np.errstate(invalid="ignore"):
            mean: NDArray[np.float64] = total / started
        return mean

    ran = outcome.started != NEVER
    tasks, started = counted(np.ones(len(trace), np.bool_)), counted(ran)
    completed = counted(ran & (outcome.finished <= end_of(trace)))
    with np.errstate(invalid="ignore"):
        ratio = completed / tasks
    return UserSummary(
        names=trace.users,
        tasks=tasks,
        started=started,
        completed=completed,
        completion_ratio=ratio,
        mean_wait_s=mean(outcome.wait),
        mean_slowdown=mean(slowdowns(outcome)),
        usage=dominant_use(trace),
    )


def quantiles_of(
    values: NDArray[np.float64], user: NDArray[np.int32], users: int
) -> NDArray[np.float64]:
    """Return the quantiles (`QUANTILES`) of each user's values, shape (users, QUANTILES).

    Costs O(n log n) for n values.

    Args:
        values: One value per task; NaN values are ignored.
        user: The user number of each task.
        users: Number of users.
    """
    known = ~np.isnan(values)
    order = np.lexsort((values[known], user[known]))
    ranked, count = values[known][order], np.bincount(user[known], minlength=users)
    begin = np.cumsum(count) - count
    quantiles = np.full((users, len(QUANTILES)), np.nan)
    present = count > 0
    for column, quantile in enumerate(QUANTILES.values()):
        position = begin[present] + quantile * (count[present] - 1)
        below = np.floor(position).astype(np.int64)
        above = np.minimum(below + 1, begin[present] + count[present] - 1)
        quantiles[present, column] = ranked[below] + (position - below) * (
            ranked[above] - ranked[below]
        )
    return quantiles


def completion_s(outcome: Outcome) -> NDArray[np.float64]:
    """Return each job's completion time: seconds from its first submission to its last finish.

    Jobs are in ascending order of their numbers. A job with a task that never started has NaN.
    """
    trace = outcome.trace
    if not len(trace):
        return np.zeros(0)
    order = np.argsort(trace.job, kind="stable")  # quick for nearly sorted jobs
    job = trace.job[order]
    first = np.flatnonzero(np.concatenate(([True], job[1:] != job[:-1])))
    finished = np.maximum.reduceat(outcome.finished[order], first)
    ran = np.logical_and.reduceat(outcome.started[order] != NEVER, first)
    return np.where(ran, (finished - trace.submitted[order[first]]) / MICROSECONDS, np.nan)


def summary(outcome: Outcome, users: UserSummary, setting: Setting) -> dict[str, Any]:
    """Return the overall key figures as JSON types. Fields: docs/reference/simulation.md.

    Means and quantiles over no values are None.

    Args:
        outcome: The simulated outcome.
        users: Results of the outcome's users.
        setting: The simulated setting; gives the capacity.
    """
    trace = outcome.trace
    ran = outcome.started != NEVER
    last = _last_finish(outcome)
    operations = outcome.operations
    return {
        "tasks": len(trace),
        "users": len(trace.users),
        "started": int(ran.sum()),
        "never_started": outcome.never_started,
        "completed": int(users.completed.sum()),
        "completion_ratio": _ratio(int(users.completed.sum()), len(trace)),
        "mean_user_completion_ratio": _mean(users.completion_ratio),
        "mean_user_wait_s": _mean(users.mean_wait_s),
        "mean_user_slowdown": _mean(users.mean_slowdown),
        "wait_s": _distribution(outcome.wait),
        "slowdown": _distribution(slowdowns(outcome)),
        "job_completion_s": _distribution(completion_s(outcome)),
        "last_finish_s": last / MICROSECONDS,
        "utilization": utilization(outcome, setting),
        "utilization_while_waiting": utilization_while_waiting(outcome, setting),
        "live_tree_events": operations.events if operations.count else None,
        "operations": {
            name: {"count": count, "seconds": operations.seconds.get(name)}
            for name, count in operations.count.items()
        },
    }


def utilization(outcome: Outcome, setting: Setting) -> dict[str, float | None]:
    """Return the mean used fraction of each resource, from the first submission to the last finish.

    Args:
        outcome: The simulated outcome.
        setting: The simulated setting; gives the capacity.

    Returns:
        Fractions by name of the resource; None without capacity or duration.
    """
    trace = outcome.trace
    ran = outcome.started != NEVER
    work = (trace.runtime * ran).astype(np.float64) @ trace.demand
    span = _last_finish(outcome) - int(trace.submitted[0]) if len(trace) else 0
    return _fractions(trace, setting, work, span)


def utilization_while_waiting(outcome: Outcome, setting: Setting) -> dict[str, float | None]:
    """Return the mean used fraction of each resource, over the time in which some task waits.

    Low fractions show that tasks which do not fit leave the cluster idle. Tasks that never start
    are left out. Arguments and result are as in `utilization`.
    """
    trace = outcome.trace
    ran = np.flatnonzero(outcome.started != NEVER)
    begin, started = trace.submitted[ran], outcome.started[ran]
    if not len(ran):
        return dict.fromkeys(trace.resources)
    # Tasks are in order of submission, so a pause begins where all earlier tasks have started.
    latest = np.maximum.accumulate(started)
    new = np.flatnonzero(np.concatenate(([True], begin[1:] > latest[:-1])))
    opens, closes = begin[new], np.concatenate((latest[new[1:] - 1], latest[-1:]))
    instants = np.column_stack((opens, closes)).ravel()
    waited = np.concatenate(([0], np.cumsum(closes - opens)))
    until = np.column_stack((waited[:-1], waited[1:])).ravel().astype(np.float64)
    overlap = np.interp(outcome.finished[ran], instants, until) - np.interp(
        started, instants, until
    )
    return _fractions(trace, setting, overlap @ trace.demand[ran], int(waited[-1]))


def _last_finish(outcome: Outcome) -> int:
    ran = outcome.started != NEVER
    return int(outcome.finished.max()) if ran.any() else 0


def _fractions(
    trace: Trace, setting: Setting, work: NDArray[np.float64], span: int
) -> dict[str, float | None]:
    """Return the fraction of the capacity in a time of `span` microseconds that is `work`."""
    capacity = setting.machines(trace).sum(axis=0)
    return {
        name: float(used / (total * span)) if total * span else None
        for name, used, total in zip(trace.resources, work, capacity, strict=True)
    }


def _distribution(values: NDArray[np.float64]) -> dict[str, float] | None:
    known = values[~np.isnan(values)]
    return distribution(known) if len(known) else None


def _mean(values: NDArray[np.float64]) -> float | None:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else None


def _ratio(part: int, whole: int) -> float | None:
    return part / whole if whole else None
