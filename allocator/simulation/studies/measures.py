"""What is measured of one simulation: of each user, each job and each task."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from allocator.simulation.outcome import NEVER, Outcome
from allocator.simulation.summary import completion_s, users_of
from allocator.simulation.trace import UNCONSTRAINED

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class UserMeasures:
    """How users fared; all arrays have one entry per user of the trace.

    Args:
        name: Of each user.
        tasks: How many were submitted.
        usage: Dominant use over the whole trace: the largest, over resources, of the share of
            all that is used which this user accounts for.
        wait: Mean seconds from submission to start; not a number if nothing ever started.
        completion: Tasks finished by the trace's end, over those submitted (Stateful DRF §7.2).
    """

    name: tuple[str, ...]
    tasks: NDArray[np.int64]
    usage: Floats
    wait: Floats
    completion: Floats

    def mean_wait(self) -> float:
        """Return the mean of users' mean waits in seconds, users that ran nothing left out."""
        ran = self.wait[np.isfinite(self.wait)]
        return float(ran.mean()) if len(ran) else float("nan")

    def lighter_half(self) -> NDArray[np.bool_]:
        """Tell which users are in the half that used least; the middle one is not."""
        light = np.zeros(len(self.usage), dtype=bool)
        light[np.argsort(self.usage, kind="stable")[: len(light) // 2]] = True
        return light


@dataclass(frozen=True)
class JobMeasures:
    """How jobs fared; one entry per job, in order of their numbers.

    Args:
        size: Tasks.
        machines: On how many machines the job's first task may run, all if it may run anywhere.
        delay: Seconds from the first submission to the first start (Task Share Fairness, Fig. 9a).
        completion: Seconds from the first submission to the last finish, not a number if a task
            never started (Fig. 9b).
    """

    size: NDArray[np.int64]
    machines: NDArray[np.int64]
    delay: Floats
    completion: Floats


def of_users(outcome: Outcome) -> UserMeasures:
    """Measure users."""
    fared = users_of(outcome)
    return UserMeasures(
        fared.names, fared.tasks, fared.usage, fared.mean_wait_s, fared.completion_ratio
    )


def of_jobs(outcome: Outcome) -> JobMeasures:
    """Measure jobs."""
    trace = outcome.trace
    _, first, job = np.unique(trace.job, return_index=True, return_inverse=True)
    count = len(first)
    never = np.iinfo(np.int64).max
    submitted = trace.submitted[first]  # tasks are in order of submission
    start = np.full(count, never)
    np.minimum.at(start, job, np.where(outcome.started == NEVER, never, outcome.started))
    per_class = np.array([machine.count for machine in trace.machines], np.int64)
    allowed = np.array(
        [per_class[list(classes)].sum() for classes in trace.constraints] + [per_class.sum()],
        np.int64,
    )  # UNCONSTRAINED is -1, the last place
    assert UNCONSTRAINED == -1
    return JobMeasures(
        size=np.bincount(job, minlength=count),
        machines=allowed[trace.constraint[first]],
        delay=np.where(start == never, np.nan, (start - submitted) / 1e6),
        completion=completion_s(outcome),
    )
