"""How users stood over time in a simulation: shares and commitments at instants in equal steps."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from allocator.simulation.summary import end_of
from allocator.simulation.trace import Trace

_STEPS = 300
"""From the first submission to the trace's end."""
_MOST = 2 * _STEPS
"""Instants; when a simulation takes longer, every second one is forgotten and steps double."""

Floats = NDArray[np.float64]


class Series:
    """Is told by a simulator how users stand when an instant is due and all of it has happened.

    Args:
        trace: What is simulated; its users are those who share.
    """

    def __init__(self, trace: Trace) -> None:
        self.due = int(trace.submitted[0]) if len(trace) else 0
        """Microseconds"""
        self._every = max((end_of(trace) - self.due) // _STEPS, 1)
        self._times: list[int] = []
        self._taken: list[tuple[Floats, Floats]] = []

    def take(self, shares: Floats, commitments: Floats) -> None:
        """Take what is due, of each user: its dominant share and its dominant commitment.

        Commitments are not numbers under policies without memory.
        """
        self._times.append(self.due)
        self._taken.append((shares, commitments))
        if len(self._times) > _MOST:
            self._times, self._taken = self._times[::2], self._taken[::2]
            self._every *= 2
        self.due = self._times[-1] + self._every

    @property
    def times(self) -> NDArray[np.int64]:
        """Microseconds."""
        return np.array(self._times, np.int64)

    @property
    def shares(self) -> Floats:
        """Of each instant, of each user, its dominant share."""
        return _stacked([shares for shares, _ in self._taken])

    @property
    def commitments(self) -> Floats:
        """Of each instant, of each user, its dominant commitment."""
        return _stacked([commitments for _, commitments in self._taken])


def _stacked(rows: Sequence[Floats]) -> Floats:
    return np.array(rows) if rows else np.zeros((0, 0))
