"""Result of a simulation: the start time and the machine of every task of a trace."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from allocator.simulation.trace import Trace

NEVER = -1
"""The start of a task that had not started when the simulation ended."""


@dataclass(frozen=True)
class Operations:
    """Operations on the ranking of users (Stateful DRF, Table 1).

    Args:
        count: Number of calls of each operation.
        seconds: Processor time of each operation; empty if time was not measured.
        events: Position changes that the Live Tree processed.
    """

    count: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    events: int = 0


@dataclass(frozen=True)
class Outcome:
    """The starts of a trace's tasks under a policy.

    Args:
        trace: The simulated trace.
        started: Start times in microseconds, or NEVER; int64, one entry per task.
        machine: Machine numbers, int32, one entry per task. Machines are numbered class by class,
            in the trace's order; the only machine of a pool is 0. NEVER for a task that never
            started.
        operations: Operations on the ranking of users.
    """

    trace: Trace
    started: NDArray[np.int64]
    machine: NDArray[np.int32]
    operations: Operations

    @property
    def finished(self) -> NDArray[np.int64]:
        """Finish times in microseconds, or NEVER."""
        return np.where(self.started == NEVER, NEVER, self.started + self.trace.runtime)

    @property
    def wait(self) -> NDArray[np.float64]:
        """Seconds from submission to start; NaN for a task that never started."""
        waited = (self.started - self.trace.submitted) / 1e6
        return np.where(self.started == NEVER, np.nan, waited)
