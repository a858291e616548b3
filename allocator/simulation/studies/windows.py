"""How evenly users got their fair part of a cluster, window by window of time."""

import math

import numpy as np
from numpy.typing import NDArray

from allocator.simulation.outcome import NEVER, Outcome
from allocator.simulation.setting import Setting
from allocator.simulation.trace import MICROSECONDS

WINDOW = 86400.0
"""Seconds: whom a policy has let wait by night it can serve by day."""


def jain(outcome: Outcome, setting: Setting, window: float = WINDOW) -> float:
    """Return the mean over windows of Jain's index of what users got of their fair part.

    In a window a user gets the dominant share of its running tasks times the seconds that they run
    in it. It could have used that of all its tasks that had been submitted and were not over, but
    no more is its fair part than an equal part of the window. x is what it got over that, at most
    1, and the index (Σx)² / (n Σx²) over the n users who wanted anything. Not a number if nobody
    did.
    Costs O(tasks × windows).
    """
    trace = outcome.trace
    capacity = setting.machines(trace).sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = np.where(capacity > 0.0, trace.demand / capacity, 0.0).max(axis=1)
    ran = outcome.started != NEVER
    shares, user = shares[ran], trace.user[ran]
    submitted = trace.submitted[ran] / MICROSECONDS
    started, finished = (times[ran] / MICROSECONDS for times in (outcome.started, outcome.finished))
    found = []
    begin = float(submitted[0]) if len(submitted) else 0.0
    end = float(finished.max()) if len(finished) else 0.0
    for number in range(math.ceil((end - begin) / window)):
        since = begin + number * window
        until = since + window
        there = (submitted < until) & (finished > since)
        of = user[there]
        got = _within(started[there], finished[there], since, until) * shares[there]
        could = _within(submitted[there], finished[there], since, until) * shares[there]
        got, could = (np.bincount(of, amount, len(trace.users)) for amount in (got, could))
        wanted = could > 0.0
        part = np.minimum(could[wanted], window / max(int(wanted.sum()), 1))
        x = np.minimum(got[wanted] / part, 1.0)
        if x.any():
            found.append(float(x.sum() ** 2 / (len(x) * (x**2).sum())))
    return float(np.mean(found)) if found else math.nan


def _within(
    begin: NDArray[np.float64], end: NDArray[np.float64], since: float, until: float
) -> NDArray[np.float64]:
    """Return the seconds of stretches that lie in a window."""
    seconds: NDArray[np.float64] = np.minimum(end, until) - np.maximum(begin, since)
    return np.maximum(seconds, 0.0)
