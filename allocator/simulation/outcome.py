"""What a simulation decided: when, and on what, every task of a trace started."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from allocator.simulation.trace import Trace

NEVER = -1
"""The start of a task that had not started when the simulation ended."""


@dataclass(frozen=True)
class Operations:
    """What keeping users in order took, by operation (Stateful DRF, Table 1).

    Args:
        count: How often each operation was done.
        seconds: Processor time spent in it; empty where it was not measured.
        events: Position changes that the Live Tree looked at.
    """

    count: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    events: int = 0


@dataclass(frozen=True)
class Outcome:
    """The starts of a trace's tasks under a policy.

    Args:
        trace: What was simulated.
        started: Microseconds, or NEVER, int64, one per task.
        machine: The machine's number, int32, one per task: machines are counted through their
            classes in the trace's order; NEVER for a task that never started, 0 in one pool.
        operations: What it took.
    """

    trace: Trace
    started: NDArray[np.int64]
    machine: NDArray[np.int32]
    operations: Operations

    @property
    def finished(self) -> NDArray[np.int64]:
        """Microseconds, or NEVER."""
        return np.where(self.started == NEVER, NEVER, self.started + self.trace.runtime)

    @property
    def wait(self) -> NDArray[np.float64]:
        """Seconds from submission to start; not a number for a task that never started."""
        waited = (self.started - self.trace.submitted) / 1e6
        return np.where(self.started == NEVER, np.nan, waited)
