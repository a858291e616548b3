"""How many users wait at once, which is what a naive ranking's cost goes by."""

import numpy as np
from numpy.typing import NDArray

from allocator.simulation.outcome import NEVER, Outcome

_USER = 1 << 53
"""Microseconds, 285 years: puts users' times one after the other."""


def users_at_starts(outcome: Outcome) -> float:
    """Return the mean, over tasks that started, of how many users had tasks that waited then.

    Who starts counts. n log n in tasks; nan if none started.
    """
    trace = outcome.trace
    ran = outcome.started != NEVER
    begins, ends = _stretches(trace.user[ran], trace.submitted[ran], outcome.started[ran])
    starts = outcome.started[ran]
    there = np.searchsorted(begins, starts, "right") - np.searchsorted(ends, starts, "left")
    return float(there.mean()) if len(there) else float("nan")


def _stretches(
    user: NDArray[np.int32], submitted: NDArray[np.int64], started: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return when users begin and cease to have waiting tasks, each sorted."""
    order = np.lexsort((submitted, user))
    shift = user[order].astype(np.int64) * _USER
    begin = submitted[order] + shift
    end = np.maximum.accumulate(started[order] + shift)
    fresh = np.ones(len(begin), np.bool_)
    fresh[1:] = begin[1:] > end[:-1]
    first = np.flatnonzero(fresh)
    last = np.append(first[1:], len(begin))[: len(first)] - 1
    return np.sort((begin - shift)[first]), np.sort((end - shift)[last])
