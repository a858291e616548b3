"""Result of a simulation: when and on which machine each task of the trace started."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from allocator.simulation.trace import Trace

NEVER = -1
"""Start time of a task that never started before the simulation ended."""


@dataclass(frozen=True)
class Operations:
    """Counts and times of the operations that keep users sorted, by name of the operation.

    SDRF paper, Table 1, gives the same figures.

    Args:
        count: Number of calls of each operation.
        seconds: Total processor time of each operation, in seconds; empty if time was not measured.
        events: Possible swaps of two neighbours that the Live Tree processed.
    """

    count: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    events: int = 0


@dataclass(frozen=True)
class Outcome:
    """Start times and machines of a trace's tasks, as chosen by a policy.

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
    def never_started(self) -> int:
        """Number of tasks that never started, because they fit on no machine."""
        return int((self.started == NEVER).sum())

    def require_starts(self) -> None:
        """Check that a task has started, unless the trace is empty.

        Raises:
            ValueError: No task fits, so no policy can be judged.
        """
        if not len(self.trace) or self.never_started < len(self.trace):
            return
        demands = zip(self.trace.resources, self.trace.demand.min(axis=0), strict=True)
        smallest = ", ".join(f"{name}={amount:.10g}" for name, amount in demands)
        raise ValueError(
            "no task of the trace fits on the capacity or on a machine: its smallest demands are "
            f"{smallest}. Compare the units of both; Slurm and HTCondor count memory in MiB"
        )

    @property
    def finished(self) -> NDArray[np.int64]:
        """Each task's finish time in microseconds, or NEVER."""
        return np.where(self.started == NEVER, NEVER, self.started + self.trace.runtime)

    @property
    def wait(self) -> NDArray[np.float64]:
        """Each task's wait in seconds, from submission to start; NaN if it never started."""
        waited = (self.started - self.trace.submitted) / 1e6
        return np.where(self.started == NEVER, np.nan, waited)
