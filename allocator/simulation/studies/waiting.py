"""Counts users that wait at the same time, which a ranking without an index would have to scan."""

import numpy as np
from numpy.typing import NDArray

from allocator.simulation.outcome import NEVER, Outcome

_USER = 1 << 53
"""Offset in microseconds (285 years) that separates the times of different users in one array."""


def users_at_starts(outcome: Outcome) -> float:
    """Return how many users have waiting tasks when a task starts, as a mean over all starts.

    The user that starts a task counts too. The result is NaN if no task started. The cost is
    O(n log n) for n tasks.
    """
    trace = outcome.trace
    was_started = outcome.started != NEVER
    begins, ends = _waiting_periods(
        trace.user[was_started], trace.submitted[was_started], outcome.started[was_started]
    )
    starts = outcome.started[was_started]
    waiting = np.searchsorted(begins, starts, "right") - np.searchsorted(ends, starts, "left")
    return float(waiting.mean()) if len(waiting) else float("nan")


def _waiting_periods(
    user: NDArray[np.int32], submitted: NDArray[np.int64], started: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the beginnings, and the ends, of all periods in which a user has waiting tasks.

    Both arrays hold microseconds in ascending order.

    Args:
        user: User number of each task.
        submitted: Submission times of the tasks, in microseconds.
        started: Start times of the tasks, in microseconds.
    """
    order = np.lexsort((submitted, user))
    shift = user[order].astype(np.int64) * _USER
    begin = submitted[order] + shift
    end = np.maximum.accumulate(started[order] + shift)
    is_first = np.ones(len(begin), np.bool_)
    is_first[1:] = begin[1:] > end[:-1]
    first = np.flatnonzero(is_first)
    last = np.append(first[1:], len(begin))[: len(first)] - 1
    return np.sort((begin - shift)[first]), np.sort((end - shift)[last])
