"""Users' shares and commitments over the time of a simulation, at instants in equal steps."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from allocator.simulation.summary import end_of
from allocator.simulation.trace import Trace

_STEPS = 300
"""Steps from the first submission to the trace's end."""
_LARGEST_COUNT = 2 * _STEPS
"""Maximum number of instants. Beyond it, every second instant is dropped and the step doubles."""

Floats = NDArray[np.float64]


class Series:
    """Collects users' shares and commitments from a simulator.

    The simulator calls `take` when the instant `due` has come and all of its events are processed.

    Args:
        trace: The simulated trace; its users are the sharers.
    """

    def __init__(self, trace: Trace) -> None:
        self.due = int(trace.submitted[0]) if len(trace) else 0
        """The next instant to record, in microseconds."""
        self._every = max((end_of(trace) - self.due) // _STEPS, 1)
        self._times: list[int] = []
        self._taken: list[tuple[Floats, Floats]] = []

    def take(self, shares: Floats, commitments: Floats) -> None:
        """Record the users' dominant shares and dominant commitments at the instant `due`.

        Args:
            shares: One entry per user.
            commitments: One entry per user; NaN under policies without memory.
        """
        self._times.append(self.due)
        self._taken.append((shares, commitments))
        if len(self._times) > _LARGEST_COUNT:
            self._times, self._taken = self._times[::2], self._taken[::2]
            self._every *= 2
        self.due = self._times[-1] + self._every

    @property
    def times(self) -> NDArray[np.int64]:
        """Recorded instants in microseconds."""
        return np.array(self._times, np.int64)

    @property
    def shares(self) -> Floats:
        """Dominant shares, shape (instants, users)."""
        return _stacked([shares for shares, _ in self._taken])

    @property
    def commitments(self) -> Floats:
        """Dominant commitments, shape (instants, users)."""
        return _stacked([commitments for _, commitments in self._taken])


def _stacked(rows: Sequence[Floats]) -> Floats:
    return np.array(rows) if rows else np.zeros((0, 0))
