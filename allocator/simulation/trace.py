"""A trace: every task that was ever submitted, in columns, and where it may run."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from allocator.fairness.bounds import LARGEST_COMMITMENT, LARGEST_WEIGHT, LEAST_WEIGHT

MICROSECONDS = 1_000_000
"""In a second; traces count time in whole microseconds."""

UNCONSTRAINED = -1
"""The constraint of a task that may run on every machine."""

_CHECKED = 1 << 20
"""Tasks that are looked at together."""


class TraceError(ValueError):
    """A trace contradicts itself; the message says where."""


@dataclass(frozen=True)
class MachineClass:
    """Machines that are alike in all that a task can ask for.

    Args:
        name: Unique in the trace.
        count: How many there are.
        capacity: Of one machine, in the order of the trace's resources.
        attributes: What constraints were resolved against; kept for the reader.
    """

    name: str
    count: int
    capacity: tuple[float, ...]
    attributes: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Trace:
    """Tasks in order of submission. All arrays have one entry per task, n in all.

    Args:
        resources: Names of the m resources.
        users: Names; a user's number is its place here, in order of first submission.
        submitted: Microseconds since the trace's origin, int64, ascending.
        runtime: Microseconds, int64, at least 0.
        user: User numbers, int32.
        job: Numbers of the jobs that tasks belong to, int64; a job has one user.
        demand: Shape (n, m), float64, in the trace's own units; none negative, not all zero.
        machines: Empty for a trace of one pool.
        constraints: For each constraint the places in `machines` of the classes it allows.
        constraint: Places in `constraints`, or UNCONSTRAINED, int32.
        weights: One per user; empty: all are 1.
        commitments: What each user owes at the origin, by resource: fractions of the capacity;
            empty: nobody owes anything.

    Raises:
        TraceError: Something does not fit together.
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
            if not all(0 <= place < len(self.machines) for place in allowed):
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
        for user, owed in zip(self.users, self.commitments, strict=False):
            if len(owed) != len(self.resources):
                raise TraceError(f"user {user!r}: commitments not of the resources")
            if not all(0.0 <= amount <= LARGEST_COMMITMENT for amount in owed):
                raise TraceError(
                    f"user {user!r}: the commitments {owed} are not numbers from 0 to "
                    f"{LARGEST_COMMITMENT:g}"
                )

    def _check(self, first: int, rows: slice) -> None:
        """Look at some tasks; a trace may be nearly as big as the memory."""
        submitted, demand, user = self.submitted[rows], self.demand[rows], self.user[rows]
        before = self.submitted[first - 1] if first else np.int64(0)
        for wrong, what in (
            (np.diff(submitted, prepend=before) < 0, "submitted before the last"),
            (self.runtime[rows] < 0, "a negative run time"),
            ((user < 0) | (user >= len(self.users)), "an unknown user"),
            (~np.all(np.isfinite(demand), axis=1), "a demand that is no number"),
            (np.any(demand < 0, axis=1), "a negative demand"),
            (~np.any(demand > 0, axis=1), "a demand of nothing"),
            (
                (self.constraint[rows] < UNCONSTRAINED)
                | (self.constraint[rows] >= len(self.constraints)),
                "an unknown constraint",
            ),
        ):
            if wrong.any():
                raise TraceError(f"task {first + int(wrong.argmax())}: {what}")

    def __len__(self) -> int:
        return len(self.submitted)

    def weight(self) -> NDArray[np.float64]:
        """Return each user's weight, shape (users,)."""
        return np.array(self.weights or [1.0] * len(self.users))

    def owed(self) -> NDArray[np.float64]:
        """Return what each user owes at the origin, shape (users, m)."""
        shape = (len(self.users), len(self.resources))
        return np.array(self.commitments).reshape(shape) if self.commitments else np.zeros(shape)

    def mean_use(self) -> NDArray[np.float64]:
        """Return what is used on average, shape (m,).

        That is Σ run time × demand over the time from the first submission to the last finish of
        a task that starts when it is submitted; a trace that takes no time uses nothing.
        """
        if not len(self):
            return np.zeros(len(self.resources))
        span = int((self.submitted + self.runtime).max() - self.submitted[0])
        work = self.runtime.astype(np.float64) @ self.demand
        return work / span if span else np.zeros(len(self.resources))

    def capacity(self) -> NDArray[np.float64]:
        """Return what all machines have together, shape (m,)."""
        total = np.zeros(len(self.resources))
        for machine in self.machines:
            total += machine.count * np.asarray(machine.capacity)
        return total


def numbered(names: Sequence[str]) -> tuple[tuple[str, ...], NDArray[np.int32]]:
    """Number names in order of first appearance: all names, and one number per entry."""
    numbers: dict[str, int] = {}
    column = np.fromiter(
        (numbers.setdefault(name, len(numbers)) for name in names), np.int32, len(names)
    )
    return tuple(numbers), column


def by_appearance(numbers: NDArray[np.integer]) -> tuple[NDArray[np.integer], NDArray[np.int32]]:
    """Return what numbers ≥ 0 there are in order of first appearance, and by number its place."""
    present, first = np.unique(numbers, return_index=True)
    appearance = present[np.argsort(first)]
    place = np.zeros(int(present.max(initial=-1)) + 1, np.int32)
    place[appearance] = np.arange(len(appearance))
    return appearance, place
