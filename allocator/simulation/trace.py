"""The workload of a simulation: submitted tasks as arrays, machines, and placement constraints."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from allocator.fairness.bounds import LARGEST_COMMITMENT, LARGEST_WEIGHT, LEAST_WEIGHT

MICROSECONDS = 1_000_000
"""Microseconds per second. Traces count time in whole microseconds."""

UNCONSTRAINED = -1
"""Value in `Trace.constraint` for a task that may run on every machine."""

_CHECKED = 1 << 20
"""Number of tasks validated at a time, which bounds the memory that validation needs."""


class TraceError(ValueError):
    """Raised if a trace is invalid; the message says where and why."""


@dataclass(frozen=True)
class MachineClass:
    """A group of identical machines: same capacity and same placement constraints.

    Args:
        name: A name that is unique in the trace.
        count: Number of machines.
        capacity: Capacity of one machine, in the order of the trace's resources.
        attributes: Machine attributes from which the trace's constraints were computed. The
            simulation does not read them.
    """

    name: str
    count: int
    capacity: tuple[float, ...]
    attributes: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Trace:
    """Tasks in order of submission, and the machines that run them.

    Arrays from `submitted` to `constraint` have one entry per task; n is the number of tasks.

    Args:
        resources: Names of the m resources.
        users: Names of the users in order of first submission. A user's number is its index here.
        submitted: Submission times in microseconds since the trace's origin, int64, ascending.
        runtime: Run times in microseconds, int64, at least 0.
        user: User numbers, int32.
        job: Numbers of the tasks' jobs, int64. All tasks of a job have the same user.
        demand: Shape (n, m), float64, in the trace's own units; no entry negative, no row all zero.
        machines: Machine classes; empty for a trace of one pool.
        constraints: For each constraint, the allowed machine classes as indices in `machines`.
        constraint: Each task's placement constraint: an index in `constraints`, or UNCONSTRAINED;
            int32.
        weights: One weight per user; empty if all weights are 1.
        commitments: For each user, the commitments at time 0 by resource, as fractions of the
            capacity; empty if all are 0.

    Raises:
        TraceError: The trace contradicts itself.
    """

    resources: tuple[str, ...]
    users: tuple[str, ...]
    submitted: NDArray[np.int64]
    runtime: NDArray[np.int64]
    user: NDArray[np.int32]
    job: NDArray[np.int64]
    demand: NDArray[np.float64]
    constraint: NDArray[np.int32]
    machines: tuple[MachineClass, ...] = ()
    constraints: tuple[tuple[int, ...], ...] = ()
    weights: tuple[float, ...] = ()
    commitments: tuple[tuple[float, ...], ...] = ()

    def __post_init__(self) -> None:
        tasks = len(self.submitted)
        for name in ("runtime", "user", "job", "demand", "constraint"):
            if len(getattr(self, name)) != tasks:
                raise TraceError(f"{name} has {len(getattr(self, name))} entries for {tasks} tasks")
        if self.demand.shape != (tasks, len(self.resources)):
            raise TraceError(
                f"demand has the shape {self.demand.shape}, not {(tasks, len(self.resources))}"
            )
        if any(len(machine.capacity) != len(self.resources) for machine in self.machines):
            raise TraceError(f"a machine's capacity is not of the resources {self.resources}")
        for first in range(0, tasks, _CHECKED):
            self._check(first, slice(first, first + _CHECKED))
        for number, allowed in enumerate(self.constraints):
            if not all(0 <= index < len(self.machines) for index in allowed):
                raise TraceError(
                    f"constraint {number} allows {allowed} of {len(self.machines)} classes"
                )
        self._check_users()

    def _check_users(self) -> None:
        for name in ("weights", "commitments"):
            if getattr(self, name) and len(getattr(self, name)) != len(self.users):
                raise TraceError(
                    f"{name} has {len(getattr(self, name))} entries for {len(self.users)} users"
                )
        for user, weight in zip(self.users, self.weights, strict=False):
            if not LEAST_WEIGHT <= weight <= LARGEST_WEIGHT:
                raise TraceError(
                    f"user {user!r}: the weight {weight} is not a number from {LEAST_WEIGHT:g} to "
                    f"{LARGEST_WEIGHT:g}"
                )
        for user, commitments in zip(self.users, self.commitments, strict=False):
            if len(commitments) != len(self.resources):
                raise TraceError(f"user {user!r}: commitments not of the resources")
            if not all(0.0 <= amount <= LARGEST_COMMITMENT for amount in commitments):
                raise TraceError(
                    f"user {user!r}: the commitments {commitments} are not numbers from 0 to "
                    f"{LARGEST_COMMITMENT:g}"
                )

    def _check(self, first: int, rows: slice) -> None:
        """Validate a range of tasks.

        Tasks are validated in ranges, because arrays for the whole trace might not fit into memory.

        Args:
            first: Index of the first task in the range, for error messages.
            rows: The range, as a slice of the task arrays.
        """
        submitted, demand, user = self.submitted[rows], self.demand[rows], self.user[rows]
        before = self.submitted[first - 1] if first else np.int64(0)
        for wrong, problem in (
            (np.diff(submitted, prepend=before) < 0, "submitted before the preceding task"),
            (self.runtime[rows] < 0, "a negative run time"),
            ((user < 0) | (user >= len(self.users)), "an unknown user"),
            (~np.all(np.isfinite(demand), axis=1), "a demand that is not a number"),
            (np.any(demand < 0, axis=1), "a negative demand"),
            (~np.any(demand > 0, axis=1), "a demand of zero"),
            (
                (self.constraint[rows] < UNCONSTRAINED)
                | (self.constraint[rows] >= len(self.constraints)),
                "an unknown constraint",
            ),
        ):
            if wrong.any():
                raise TraceError(f"task {first + int(wrong.argmax())}: {problem}")

    def __len__(self) -> int:
        return len(self.submitted)

    def weight(self) -> NDArray[np.float64]:
        """Return each user's weight, shape (users,); 1 where the trace gives no weights."""
        return np.array(self.weights or [1.0] * len(self.users))

    def initial_commitments(self) -> NDArray[np.float64]:
        """Return each user's commitments at time 0, shape (users, m): fractions of the capacity."""
        shape = (len(self.users), len(self.resources))
        return np.array(self.commitments).reshape(shape) if self.commitments else np.zeros(shape)

    def owed(self) -> NDArray[np.float64]:
        """Former name of `initial_commitments`, kept for users of version 1.0."""
        return self.initial_commitments()

    def mean_use(self) -> NDArray[np.float64]:
        """Return the mean amount of each resource in use, shape (m,), if no task had to wait.

        The mean is Σ run time × demand, divided by the time from the first submission to the last
        finish. It is 0 for a trace of zero length.
        """
        if not len(self):
            return np.zeros(len(self.resources))
        span = int((self.submitted + self.runtime).max() - self.submitted[0])
        work = self.runtime.astype(np.float64) @ self.demand
        return work / span if span else np.zeros(len(self.resources))

    def capacity(self) -> NDArray[np.float64]:
        """Return the total capacity of all machines, shape (m,), in the trace's units."""
        total = np.zeros(len(self.resources))
        for machine in self.machines:
            total += machine.count * np.asarray(machine.capacity)
        return total


def numbered(names: Sequence[str]) -> tuple[tuple[str, ...], NDArray[np.int32]]:
    """Number names in order of first appearance.

    For example, ["b", "a", "b"] gives ("b", "a") and [0, 1, 0].
    """
    numbers: dict[str, int] = {}
    column = np.fromiter(
        (numbers.setdefault(name, len(numbers)) for name in names), np.int32, len(names)
    )
    return tuple(numbers), column


def by_appearance(numbers: NDArray[np.integer]) -> tuple[NDArray[np.integer], NDArray[np.int32]]:
    """Return the distinct values in order of first appearance, and each entry's index among them.

    Args:
        numbers: Integers of at least 0, such as job numbers.
    """
    present, first = np.unique(numbers, return_index=True)
    appearance = present[np.argsort(first)]
    index = np.zeros(int(present.max(initial=-1)) + 1, np.int32)
    index[appearance] = np.arange(len(appearance))
    return appearance, index
