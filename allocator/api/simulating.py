"""Traces made from lists of tasks, and simulations of a policy on a trace."""

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
"""Number of tasks above which the compiled simulator is faster, compilation included."""


class Task(NamedTuple):
    """A task that a user submits to a simulated cluster; input of `make_trace`."""

    user: str
    submitted: float
    """Time of submission, in seconds from the trace's origin."""
    runtime: float
    """Duration of the task once it runs, in seconds."""
    demand: Mapping[str, float]
    """Amounts that the task needs while it runs, by resource."""
    job: int | None = None
    """Number of the job to which the task belongs; None: the task is a job of its own."""
    machines: Collection[str] | None = None
    """Names of the machine classes that may run the task; None: all classes."""


def make_trace(tasks: Iterable[Task], machines: Sequence[MachineClass] = ()) -> Trace:
    """Make a trace from tasks, for `simulate`.

    Args:
        tasks: The tasks, in any order.
        machines: Classes of machines, whose capacities list resources in the order in which the
            tasks, by submission, first name them. Empty: each simulation is given the capacity of
            one pool instead.

    Raises:
        ValueError: a task is invalid; the message names the task and the error.
    """
    sorted_tasks = sorted(tasks, key=lambda task: task.submitted)
    resources = tuple(dict.fromkeys(name for task in sorted_tasks for name in task.demand))
    users, user = numbered([task.user for task in sorted_tasks])
    positions = {kind.name: position for position, kind in enumerate(machines)}
    allowed: dict[tuple[int, ...], int] = {}
    constraint = [_constraint(task, positions, allowed) for task in sorted_tasks]
    first = max((task.job for task in sorted_tasks if task.job is not None), default=-1) + 1
    return Trace(
        resources=resources,
        users=users,
        submitted=_microseconds([task.submitted for task in sorted_tasks]),
        runtime=_microseconds([task.runtime for task in sorted_tasks]),
        user=user,
        job=np.array(
            [
                first + index if task.job is None else task.job
                for index, task in enumerate(sorted_tasks)
            ],
            np.int64,
        ),
        demand=np.array(
            [[task.demand.get(name, 0.0) for name in resources] for task in sorted_tasks],
            np.float64,
        ).reshape(len(sorted_tasks), len(resources)),
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
    """Result of `simulate`: NumPy arrays, a summary of key figures, and Arrow tables."""

    setting: Setting
    outcome: Outcome
    """Start time and machine of each task, in the order of the trace's tasks."""
    series: Series | None = None
    """Shares and commitments of users over time; None unless simulated with `over_time=True`."""

    @cached_property
    def users(self) -> UserSummary:
        """Results of each user, as arrays in the order of the trace's users."""
        return users_of(self.outcome)

    @cached_property
    def summary(self) -> dict[str, Any]:
        """Key figures of the simulation; docs/reference/simulation.md describes the fields."""
        return summary(self.outcome, self.users, self.setting)

    def tasks_table(self) -> Any:  # noqa: ANN401 - pyarrow has no types
        """Return an Arrow table with a row per task: submission, start, end and machine."""
        return results.tasks_table(self.outcome)

    def series_table(self) -> Any:  # noqa: ANN401 - pyarrow has no types
        """Return an Arrow table with a row per instant and user: holdings, commitments and tasks.

        Raises:
            ValueError: the simulation ran without `over_time=True`.
        """
        if self.series is None:
            raise ValueError("users were not followed; simulate with over_time=True")
        return results.series_table(self.outcome, self.series)

    def users_table(self) -> Any:  # noqa: ANN401 - pyarrow has no types
        """Return an Arrow table with a row per user: tasks, completion, waits, slowdown, usage."""
        return results.users_table(self.outcome, self.users)


def simulate(  # noqa: PLR0913 - keyword settings of a simulation
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
    """Simulate a policy on a trace; docs/reference/simulation.md describes the rules.

    Without `load` and `capacity`, the simulation uses the trace's machines.

    Args:
        trace: The submitted tasks.
        policy: The policy's name.
        parameters: The policy's parameters, such as `{"half_life": "1h"}`.
        load: Simulate one pool whose capacity is the trace's mean usage times this fraction.
        capacity: Simulate one pool with these amounts by resource.
        blocking: Rule for the case that the next user's task does not fit. `"head-of-line"`:
            nothing starts; `"skip"`: the following user is tried; `"hold"`: the following user is
            tried while a machine is held for the task; `"hold-all"`: a machine is held for each
            such user.
        users: Users that share the cluster: `"known"`: all users from the start; `"appearing"`:
            each user from its first task on.
        per: Unit that the policy treats as a user: each user of the trace, or each job.
        weights: Weights by user; users without an entry have the trace's weights.
        over_time: Whether to record users' shares and commitments over time.
        simulator: `"fast"` is compiled on first use, which takes some 20 s; `"reference"` is plain
            Python; None: the faster choice for this trace.

    Raises:
        ValueError: the policy is unknown or failed, or an argument does not fit the trace.
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
        from allocator.simulation import fast, fastest  # noqa: PLC0415 - load a compiler

        simulate_trace = fast.simulate if simulator == "fast" else fastest.simulate
        outcome = simulate_trace(trace, setting, events=False, series=series)
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
