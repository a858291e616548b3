"""What an outcome comes to: waits, completion ratios and slowdowns, of all and of each user."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from allocator.simulation.outcome import NEVER, Outcome
from allocator.simulation.trace import MICROSECONDS, Trace

_LEAST_RUN = 10.0
"""Seconds; shorter tasks do not count as shorter in bounded slowdowns (Feitelson)."""


@dataclass(frozen=True)
class Users:
    """How users fared; all arrays have one entry per user of the trace.

    Users without a task, or of whom none started, have not-a-number for means.

    Args:
        names: Of the users.
        tasks: Submitted, int64.
        started: int64.
        completed: Finished by the end of the trace, int64.
        completion_ratio: Completed over submitted.
        mean_wait_s: Mean of seconds from submission to start.
        mean_slowdown: Mean of bounded slowdowns.
        usage: Dominant use: the largest, over resources, of Σ run time × demand as a fraction
            of that of all users.
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
    """Return when the last task would finish if each started when submitted; microseconds."""
    return int((trace.submitted + trace.runtime).max()) if len(trace) else 0


def slowdowns(outcome: Outcome) -> NDArray[np.float64]:
    """Return of each task how many times as long it took as alone, bounded.

    That is (wait + run) / max(run, 10 s), but at least 1; not a number for a task that never
    started.
    """
    run = outcome.trace.runtime / MICROSECONDS
    return np.maximum((outcome.wait + run) / np.maximum(run, _LEAST_RUN), 1.0)


def users_of(outcome: Outcome) -> Users:
    """Add up an outcome by user."""
    trace = outcome.trace
    count = len(trace.users)

    def counted(which: NDArray[np.bool_]) -> NDArray[np.int64]:
        return np.bincount(trace.user[which], minlength=count).astype(np.int64)

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
    return Users(
        names=trace.users,
        tasks=tasks,
        started=started,
        completed=completed,
        completion_ratio=ratio,
        mean_wait_s=mean(outcome.wait),
        mean_slowdown=mean(slowdowns(outcome)),
        usage=_usage(trace),
    )


def mean_user_wait(outcome: Outcome) -> float:
    """Return the mean of users' mean waits in seconds; users of whom nothing ran do not count."""
    return _mean(users_of(outcome).mean_wait_s)


def _usage(trace: Trace) -> NDArray[np.float64]:
    usage = np.zeros(len(trace.users))
    for demand in trace.demand.T:
        work = np.bincount(trace.user, trace.runtime * demand, minlength=len(usage))
        if total := work.sum():
            np.maximum(usage, work / total, out=usage)
    return usage


def _mean(values: NDArray[np.float64]) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else 0.0
