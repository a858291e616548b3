"""Small workloads that crowd a small cluster, and the observable state of an outcome."""

from collections.abc import Sequence
from itertools import count
from typing import Any, Literal, get_args

import numpy as np
from hypothesis import strategies as st

from allocator.simulation.holding import Blocking
from allocator.simulation.outcome import NEVER, Outcome
from allocator.simulation.setting import Setting
from allocator.simulation.trace import UNCONSTRAINED, MachineClass, Trace, numbered

S = 1_000_000
"""Microseconds in a second"""

POLICIES: list[tuple[str, dict[str, float | str]]] = [
    ("fifo", {}),
    ("drf", {}),
    ("sdrf", {"delta": 0.9}),
    ("sdrf", {"delta": 0.9, "form": "thesis"}),
    ("cdrf", {}),
    ("cmmf", {"resource": "mem"}),
    ("tsf", {}),
    ("drfh", {}),
    ("stsf", {"half_life": 3.0}),
    ("kueue-afs", {"half_life": 3.0}),
    ("htcondor", {"half_life": 3.0, "slots": 12.0}),
    ("karma", {}),
    ("yarn-fair", {"minimum": 0.5}),
]


def trace_of(
    rows: Sequence[tuple[float, float, str, float, float]],
    machines: tuple[MachineClass, ...] = (),
    constraints: tuple[tuple[int, ...], ...] = (),
    constraint: dict[str, int] | None = None,
) -> Trace:
    """Return a trace of (submitted, runs for, user, CPUs, memory); each user is a job.

    Times are in seconds; `constraint` is by user.
    """
    users, user = numbered([row[2] for row in rows])
    restricted = constraint or {}
    return Trace(
        resources=("cpus", "mem"),
        users=users,
        submitted=np.array([round(row[0] * S) for row in rows], np.int64),
        runtime=np.array([round(row[1] * S) for row in rows], np.int64),
        user=user,
        job=user.astype(np.int64),
        demand=np.array([row[3:] for row in rows], np.float64).reshape(-1, 2),
        constraint=np.array([restricted.get(row[2], UNCONSTRAINED) for row in rows], np.int32),
        machines=machines,
        constraints=constraints,
    )


@st.composite
def workloads(draw: st.DrawFn) -> Trace:
    """Draw up to 40 tasks of up to 6 users with many ties, on up to 5 machines of 3 classes."""
    classes = draw(st.integers(1, 3))
    amount = st.integers(0, 6).map(float)
    machines = tuple(
        MachineClass(f"class {number}", draw(st.integers(1, 2)), (draw(amount), draw(amount)))
        for number in range(classes)
    )
    constraints = tuple(
        tuple(sorted(allowed))
        for allowed in draw(st.lists(st.sets(st.integers(0, classes - 1)), max_size=3))
    )
    row = st.tuples(
        st.integers(0, 12),
        st.sampled_from([0, 1, 1, 2, 5, 30]),
        st.integers(0, 5),
        st.integers(0, 2),
        st.sampled_from([(1.0, 1.0), (1.0, 0.0), (0.0, 2.0), (0.5, 2.0), (3.0, 1.0), (0.1, 0.3)]),
        st.integers(UNCONSTRAINED, len(constraints) - 1),
    )
    rows = sorted(draw(st.lists(row, max_size=40)), key=lambda row: row[0])
    users, user = numbered([str(row[2]) for row in rows])
    return Trace(
        resources=("cpus", "mem"),
        users=(*users, "idle"),
        submitted=np.array([row[0] * S for row in rows], np.int64),
        runtime=np.array([row[1] * S for row in rows], np.int64),
        user=user,
        job=np.array([10 * row[2] + row[3] for row in rows], np.int64),
        demand=np.array([row[4] for row in rows], np.float64).reshape(-1, 2),
        constraint=np.array([row[5] for row in rows], np.int32),
        machines=machines,
        constraints=constraints,
    )


@st.composite
def settings_of(
    draw: st.DrawFn,
    /,
    blockings: Sequence[Blocking] = get_args(Blocking),
    users: Sequence[Literal["known", "appearing"]] = ("known", "appearing"),
    pers: Sequence[Literal["user", "job"]] = ("user", "job"),
) -> Setting:
    """Draw a setting for two resources."""
    blocking = draw(st.sampled_from(blockings))
    per_machine: list[tuple[str, dict[str, float | str]]] = [("per-machine-drf", {})]
    policy, parameters = draw(
        st.sampled_from(POLICIES + (per_machine if blocking == "skip" else []))
    )
    return Setting(
        policy,
        parameters,
        capacity=draw(st.none() | st.tuples(st.floats(0, 9), st.floats(0, 9))),
        blocking=blocking,
        users=draw(st.sampled_from(users)),
        per=draw(st.sampled_from(pers)),
    )


class Seen:
    """The state of a cluster at each instant, computed from an outcome alone."""

    def __init__(self, outcome: Outcome, setting: Setting) -> None:
        trace = self.trace = outcome.trace
        self.outcome = outcome
        self.machines = setting.machines(trace)
        kinds = [0] * len(self.machines)
        if setting.capacity is None:
            of_class = ([number] * kind.count for number, kind in enumerate(trace.machines))
            kinds = [number for numbers in of_class for number in numbers]
        self.kinds = kinds
        self.pooled = setting.capacity is not None
        self.user = trace.user if setting.per == "user" else trace.job
        ran = outcome.started != NEVER
        self.instants = sorted(
            {*outcome.started[ran].tolist(), *outcome.finished[ran].tolist()}
            | set(trace.submitted.tolist())
        )

    def allows(self, task: int, machine: int) -> bool:
        constraint = int(self.trace.constraint[task])
        if self.pooled or constraint == UNCONSTRAINED:
            return True
        return self.kinds[machine] in self.trace.constraints[constraint]

    def free(self, when: int) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Return the free resources of each machine after all events at an instant."""
        free = self.machines.copy()
        started, finished = self.outcome.started, self.outcome.finished
        for task in np.flatnonzero((started != NEVER) & (started <= when) & (finished > when)):
            free[self.outcome.machine[task]] -= self.trace.demand[task]
        return free

    def heads(self, when: int) -> list[int]:
        """Return the next task of each waiting user after all events at an instant."""
        heads: dict[int, int] = {}
        for task, submitted, started, user in zip(
            count(), self.trace.submitted, self.outcome.started, self.user, strict=False
        ):
            if submitted <= when < started:
                heads.setdefault(int(user), task)
        return list(heads.values())
