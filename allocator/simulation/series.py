"""Records users' shares and commitments during a simulation, at equal intervals of time."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from allocator.simulation.summary import end_of
from allocator.simulation.trace import Trace

_STEPS = 300
"""Number of intervals between the first submission and the trace's end."""
_LARGEST_COUNT = 2 * _STEPS
"""Maximum number of recorded instants.

If a simulation lasts longer, every second instant is dropped and the interval doubles.
"""

Floats = NDArray[np.float64]


class Series:
    """A time series of all users' shares and commitments, filled by a simulator.

    Before each event, a simulator compares the event's time with `due`, the next instant to record.
    Once all events up to `due` are processed, it calls `take`, which also sets the next `due`.

    Args:
        trace: The simulated trace. The simulation's sharers must be the trace's users; if each job
            is a sharer, nothing can be recorded.
    """

    def __init__(self, trace: Trace) -> None:
        self.due = int(trace.submitted[0]) if len(trace) else 0
        """The next instant to record, in microseconds."""
        self._every = max((end_of(trace) - self.due) // _STEPS, 1)
        self._times: list[int] = []
        self._taken: list[tuple[Floats, Floats]] = []

    def take(self, shares: Floats, commitments: Floats) -> None:
        """Record all users at the instant `due`, and set the next instant.

        Args:
            shares: Each user's dominant share.
            commitments: Each user's dominant commitment; NaN under policies without
                commitments.
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
        """Recorded dominant shares, shape (instants, users)."""
        return _stacked([shares for shares, _ in self._taken])

    @property
    def commitments(self) -> Floats:
        """Recorded dominant commitments, shape (instants, users)."""
        return _stacked([commitments for _, commitments in self._taken])


def _stacked(rows: Sequence[Floats]) -> Floats:
    return np.array(rows) if rows else np.zeros((0, 0))
