"""Extracts from a simulation what studies compare: waits and completions of users and jobs."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from allocator.simulation.outcome import NEVER, Outcome
from allocator.simulation.statistics import lighter_half
from allocator.simulation.summary import completion_s, users_of
from allocator.simulation.trace import UNCONSTRAINED

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class UserMeasures:
    """Results of each user, as arrays with one entry per user of the trace.

    Args:
        name: Names of the users.
        tasks: Number of submitted tasks.
        usage: Dominant use: the user's fraction of all users' use of a resource, for the resource
            where it is largest.
        wait: Mean seconds from submission to start; NaN if no task started.
        completion: Fraction of tasks that finished by the trace's end (SDRF paper, §7.2).
    """

    name: tuple[str, ...]
    tasks: NDArray[np.int64]
    usage: Floats
    wait: Floats
    completion: Floats

    def mean_wait(self) -> float:
        """Return the mean over users of their mean waits in seconds.

        Users of which no task started are left out.
        """
        ran = self.wait[np.isfinite(self.wait)]
        return float(ran.mean()) if len(ran) else float("nan")

    def selected(self, members: NDArray[np.bool_]) -> "UserMeasures":
        """Return the results of some of the users.

        Args:
            members: Mask of these users.
        """
        return UserMeasures(
            tuple(np.array(self.name, object)[members]),
            self.tasks[members],
            self.usage[members],
            self.wait[members],
            self.completion[members],
        )

    def lighter_half(self) -> NDArray[np.bool_]:
        """Return a mask of the half of the users with the lowest usage (`lighter_half`)."""
        return lighter_half(self.usage)


@dataclass(frozen=True)
class JobMeasures:
    """Results of each job, as arrays in order of job numbers.

    Args:
        size: Number of tasks.
        machines: Number of machines on which the job's first task may run.
        delay: Seconds from the first submission to the first start (TSF paper, Fig. 9a).
        completion: Seconds from the first submission to the last finish (TSF paper, Fig. 9b); NaN
            if a task never started.
    """

    size: NDArray[np.int64]
    machines: NDArray[np.int64]
    delay: Floats
    completion: Floats


def of_users(outcome: Outcome) -> UserMeasures:
    """Compute the results of each user from an outcome."""
    fared = users_of(outcome)
    return UserMeasures(
        fared.names, fared.tasks, fared.usage, fared.mean_wait_s, fared.completion_ratio
    )


def of_jobs(outcome: Outcome) -> JobMeasures:
    """Compute the results of each job from an outcome."""
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
    )  # UNCONSTRAINED is -1, the index of the last entry
    assert UNCONSTRAINED == -1
    return JobMeasures(
        size=np.bincount(job, minlength=count),
        machines=allowed[trace.constraint[first]],
        delay=np.where(start == never, np.nan, (start - submitted) / 1e6),
        completion=completion_s(outcome),
    )
