"""Traces made of tasks, and what a policy would have done to them, as tables and arrays."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from allocator.simulation import reference, results
from allocator.simulation.holding import Blocking
from allocator.simulation.outcome import Outcome
from allocator.simulation.series import Series
from allocator.simulation.setting import Setting, capacity_at, pool_of
from allocator.simulation.summary import UserSummary, summary, users_of
from allocator.simulation.trace import MICROSECONDS, UNCONSTRAINED, MachineClass, Trace, numbered

_WORTH_COMPILING = 20_000
"""Tasks from which on the compiled simulator is faster, compiling included."""


class Task(NamedTuple):
    """A task that somebody submits."""

    user: str
    submitted: float
    """Seconds from the trace's origin."""
    runtime: float
    """Seconds."""
    demand: Mapping[str, float]
    """Amounts by resource."""
    job: int | None = None
    """The job it belongs to; None: one of its own."""
    machines: Collection[str] | None = None
    """Names of the classes of machines that it may run on; None: all."""


def make_trace(tasks: Iterable[Task], machines: Sequence[MachineClass] = ()) -> Trace:
    """Make a trace of tasks, in any order.

    Args:
        tasks: What is submitted.
        machines: On what; none: the trace is of one pool, whose capacity a simulation is told.
            Capacities are in the order in which tasks first name resources.

    Raises:
        ValueError: something in it cannot be; the message says which task, and what.
    """
    given = sorted(tasks, key=lambda task: task.submitted)
    resources = tuple(dict.fromkeys(name for task in given for name in task.demand))
    users, user = numbered([task.user for task in given])
    places = {kind.name: place for place, kind in enumerate(machines)}
    allowed: dict[tuple[int, ...], int] = {}
    constraint = [_constraint(task, places, allowed) for task in given]
    first = max((task.job for task in given if task.job is not None), default=-1) + 1
    return Trace(
        resources=resources,
        users=users,
        submitted=_microseconds([task.submitted for task in given]),
        runtime=_microseconds([task.runtime for task in given]),
        user=user,
        job=np.array(
            [first + n if task.job is None else task.job for n, task in enumerate(given)], np.int64
        ),
        demand=np.array(
            [[task.demand.get(name, 0.0) for name in resources] for task in given], np.float64
        ).reshape(len(given), len(resources)),
        constraint=np.array(constraint, np.int32),
        machines=tuple(machines),
        constraints=tuple(allowed),
    )


def _constraint(task: Task, places: Mapping[str, int], allowed: dict[tuple[int, ...], int]) -> int:
    if task.machines is None:
        return UNCONSTRAINED
    unknown = [name for name in task.machines if name not in places]
    if unknown:
        raise ValueError(
            f"a task of {task.user!r} may run on {unknown[0]!r}, and there is no such class of "
            f"machines; there are: {', '.join(places)}"
        )
    classes = tuple(sorted(places[name] for name in set(task.machines)))
    return allowed.setdefault(classes, len(allowed))


def _microseconds(seconds: Sequence[float]) -> NDArray[np.int64]:
    return np.rint(np.array(seconds, np.float64) * MICROSECONDS).astype(np.int64)


@dataclass(frozen=True)
class Simulation:
    """What a policy would have done to a trace."""

    setting: Setting
    outcome: Outcome
    """When and where each task started, as NumPy's arrays, one entry per task of the trace."""
    series: Series | None = None
    """Shares and commitments of users over time, as NumPy's arrays, if they were followed."""

    @cached_property
    def users(self) -> UserSummary:
        """How users fared, as NumPy's arrays, one entry per user of the trace."""
        return users_of(self.outcome)

    @cached_property
    def summary(self) -> dict[str, Any]:
        """What it comes to; docs/simulation.md has the fields."""
        return summary(self.outcome, self.users, self.setting)

    def tasks_table(self) -> Any:  # noqa: ANN401 - pyarrow has no types
        """Return a row per task, as an Arrow table: when it came, started, ended, and where."""
        return results.tasks_table(self.outcome)

    def series_table(self) -> Any:  # noqa: ANN401 - likewise
        """Return a row per instant and user, as an Arrow table: what it holds and owes, and tasks.

        Raises:
            ValueError: it was not simulated with `over_time=True`.
        """
        if self.series is None:
            raise ValueError("users were not followed; simulate with over_time=True")
        return results.series_table(self.outcome, self.series)

    def users_table(self) -> Any:  # noqa: ANN401 - likewise
        """Return a row per user, as an Arrow table: tasks, completion, waits, slowdown, usage."""
        return results.users_table(self.outcome, self.users)


def simulate(  # noqa: PLR0913 - what can be said about a simulation, by name
    trace: Trace,
    policy: str,
    parameters: Mapping[str, float | str] | None = None,
    *,
    load: float | None = None,
    capacity: Mapping[str, float] | None = None,
    blocking: Blocking = "head-of-line",
    users: Literal["known", "appearing"] = "known",
    per: Literal["user", "job"] = "user",
    weights: Mapping[str, float] | None = None,
    over_time: bool = False,
    simulator: Literal["fast", "reference"] | None = None,
) -> Simulation:
    """Start the tasks of a trace as a policy would have; docs/simulation.md has the rules.

    Args:
        trace: What is submitted.
        policy: The policy's name.
        parameters: The policy's own, such as `{"half_life": "1h"}`.
        load: One pool of this fraction of the trace's mean use.
        capacity: One pool of these amounts; without either, the trace's machines.
        blocking: What happens if the task of who is next does not fit: nothing starts, the user
            after it is looked at, or that as well while a machine is held for it (`"hold"`, or
            `"hold-all"`: for each such user).
        users: Who counts: all users from the start, or each from its first task on.
        per: Who is a user to the policy: a user, or a job.
        weights: Of users, by name; others' are what the trace says.
        over_time: Follow users' shares and commitments over time.
        simulator: `"fast"` is compiled when it is first used, which takes some 20 s;
            `"reference"` is plain Python; None: the one that is done sooner.

    Raises:
        ValueError: the policy is unknown or failed, or something does not fit the trace.
    """
    setting = Setting(
        policy=policy,
        parameters=dict(parameters or {}),
        capacity=_capacity(trace, load, capacity),
        blocking=blocking,
        users=users,
        per=per,
        weights=dict(weights or {}),
    )
    if over_time and per == "job":
        raise ValueError("users are followed over time, and with per='job' each job is one")
    series = Series(trace) if over_time else None
    if simulator is None and len(trace) < _WORTH_COMPILING:
        simulator = "reference"
    if simulator != "reference":
        from allocator.simulation import fast  # noqa: PLC0415 - loads a compiler

        if simulator == "fast" or fast.supports(setting):
            outcome = fast.simulate(trace, setting, events=False, series=series)
            return Simulation(setting, outcome, series)
    return Simulation(setting, reference.simulate(trace, setting, series=series), series)


def _capacity(
    trace: Trace, load: float | None, capacity: Mapping[str, float] | None
) -> tuple[float, ...] | None:
    if load is not None and capacity is not None:
        raise ValueError("give either a load or a capacity")
    if load is not None:
        return capacity_at(trace, load)
    if capacity is None:
        return None
    if sorted(capacity) != sorted(trace.resources):
        raise ValueError(
            f"the capacity is of {', '.join(capacity)}; the trace's resources are "
            f"{', '.join(trace.resources)}"
        )
    return pool_of(trace, capacity)
