"""Measures how evenly a cluster is divided among users that want resources, day by day."""

import math

import numpy as np
from numpy.typing import NDArray

from allocator.simulation.outcome import NEVER, Outcome
from allocator.simulation.setting import Setting
from allocator.simulation.trace import MICROSECONDS

WINDOW = 86400.0
"""Length of a time window in seconds.

Within a window of a day, a policy can still serve users that waited at night.
"""


def jain(outcome: Outcome, setting: Setting, window: float = WINDOW) -> float:
    """Return the evenness of users' allocations: Jain's index, as a mean over time windows.

    The index is 1 if all users receive the same fraction of their fair parts, which are defined
    below.

    In a window, the use of a user is the dominant share of its running tasks, integrated over the
    window. Its demand is the same integral over all its submitted and unfinished tasks, except
    tasks that never start. Its fair part is its demand, but at most an equal part of the window.

    The index is (Σx)² / (n Σx²) over the n users with demand, where x is use divided by fair part,
    at most 1. The result is NaN if no user has demand. The cost is O(tasks × windows).

    Args:
        outcome: The simulated outcome.
        setting: The simulated setting; gives the capacity.
        window: Length of a window in seconds.
    """
    trace = outcome.trace
    capacity = setting.machines(trace).sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = np.where(capacity > 0.0, trace.demand / capacity, 0.0).max(axis=1)
    was_started = outcome.started != NEVER
    shares, user = shares[was_started], trace.user[was_started]
    submitted = trace.submitted[was_started] / MICROSECONDS
    started, finished = (
        times[was_started] / MICROSECONDS for times in (outcome.started, outcome.finished)
    )
    indices = []
    begin = float(submitted[0]) if len(submitted) else 0.0
    end = float(finished.max()) if len(finished) else 0.0
    for number in range(math.ceil((end - begin) / window)):
        start = begin + number * window
        stop = start + window
        present = (submitted < stop) & (finished > start)
        users = user[present]
        use = _within(started[present], finished[present], start, stop) * shares[present]
        demand = _within(submitted[present], finished[present], start, stop) * shares[present]
        use, demand = (np.bincount(users, amount, len(trace.users)) for amount in (use, demand))
        has_demand = demand > 0.0
        fair_part = np.minimum(demand[has_demand], window / max(int(has_demand.sum()), 1))
        x = np.minimum(use[has_demand] / fair_part, 1.0)
        if x.any():
            indices.append(float(x.sum() ** 2 / (len(x) * (x**2).sum())))
    return float(np.mean(indices)) if indices else math.nan


def _within(
    begin: NDArray[np.float64], end: NDArray[np.float64], start: float, stop: float
) -> NDArray[np.float64]:
    """Return how many seconds of each period lie within a window.

    Args:
        begin: Beginning of each period in seconds.
        end: End of each period in seconds.
        start: Beginning of the window in seconds.
        stop: End of the window in seconds.
    """
    seconds: NDArray[np.float64] = np.minimum(end, stop) - np.maximum(begin, start)
    return np.maximum(seconds, 0.0)
