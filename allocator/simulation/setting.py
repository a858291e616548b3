"""What is to be simulated: a policy, the cluster, and who counts as a user."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from allocator.fairness.policies import Policy
from allocator.simulation.holding import Blocking
from allocator.simulation.originals.catalogue import create_policy, period_of
from allocator.simulation.originals.kai import Kai
from allocator.simulation.trace import Trace

LEAST_LOAD, LARGEST_LOAD = 1e-6, 1e6
"""Bounds of a load: the capacity as a multiple of the average use of a trace."""
_LARGEST_CAPACITY = 1e18
"""Largest capacity of a pool, in a trace's units: beyond any cluster, also with memory in bytes."""


class SettingError(ValueError):
    """A setting contradicts itself or the trace; the message says how."""


@dataclass(frozen=True)
class Setting:
    """How a trace is simulated.

    Args:
        policy: Its name.
        parameters: Those of the policy, as the live cluster takes them.
        capacity: Of one pool, in the order and units of the trace's resources. None: the
            trace's machines, with its constraints.
        blocking: What happens when the next task of the user that is next does not fit.
        users: Who counts in n: "known", all users of the trace from the start; "appearing",
            each from its first submission on.
        per: Who is a user to the policy; in TSF's evaluation each job is one.
        weights: Of users by name; of those not named, what the trace says.
        owes: Commitments at the start by name, of every resource; likewise.
        sampled: Keep account as the policy's original does, which looks every so many seconds, or
            so often ("5m"), or as often as it does itself ("original"). None: exactly, at every
            instant.

    Raises:
        SettingError: The policy is unknown or a value is not one that it can have.
    """

    policy: str
    parameters: Mapping[str, float | str] = field(default_factory=dict)
    capacity: tuple[float, ...] | None = None
    blocking: Blocking = "head-of-line"
    users: Literal["known", "appearing"] = "known"
    per: Literal["user", "job"] = "user"
    weights: Mapping[str, float] = field(default_factory=dict)
    owes: Mapping[str, float] = field(default_factory=dict)
    sampled: float | str | None = None

    def __post_init__(self) -> None:
        for name, allowed in (
            ("blocking", get_args(Blocking)),
            ("users", ("known", "appearing")),
            ("per", ("user", "job")),
        ):
            if (value := getattr(self, name)) not in allowed:
                raise SettingError(f"{name} is {value!r}, not one of: {', '.join(allowed)}")
        if self.capacity is not None and not all(
            0.0 <= amount <= _LARGEST_CAPACITY for amount in self.capacity
        ):
            raise SettingError(
                f"the capacity {self.capacity} is not of finite numbers from 0 to "
                f"{_LARGEST_CAPACITY:g}"
            )
        policy = self.new_policy()
        if self.sampled is not None:
            try:
                period_of(policy, self.sampled)
            except ValueError as error:
                raise SettingError(str(error)) from error
        elif isinstance(policy, Kai):
            raise SettingError(
                "kai divides the cluster anew in each cycle; set sampled: 'original'"
            )
        if policy.per_machine and self.capacity is None and self.blocking == "head-of-line":
            raise SettingError(
                f"under {self.policy} there is nobody who is next on all machines; "
                "set blocking to 'skip'"
            )
        if policy.per_machine and self.blocking in {"hold", "hold-all"}:
            raise SettingError(
                f"under {self.policy} nobody is next on all machines, so none can be held for "
                "anybody; set blocking to 'skip'"
            )

    def new_policy(self) -> Policy:
        """Return the policy.

        Raises:
            SettingError: There is none of that name, or it does not take the parameters.
        """
        try:
            return create_policy(self.policy, self.parameters)
        except ValueError as error:
            raise SettingError(str(error)) from error

    def check(self, trace: Trace) -> None:
        """Hold the setting against a trace.

        Raises:
            SettingError: They do not fit together.
        """
        if self.capacity is None:
            if not trace.machines:
                raise SettingError("the trace has no machines; give a capacity or a load")
        elif len(self.capacity) != len(trace.resources):
            raise SettingError(
                f"the capacity has {len(self.capacity)} amounts for the trace's resources "
                f"{', '.join(trace.resources)}"
            )

    def machines(self, trace: Trace) -> NDArray[np.float64]:
        """Return what each machine has, one row each, in order of their numbers.

        Machines are numbered through their classes in the trace's order; a pool is one.

        Raises:
            SettingError: The setting does not fit the trace.
        """
        self.check(trace)
        if self.capacity is not None:
            return np.array([self.capacity])
        return np.repeat(
            np.array([kind.capacity for kind in trace.machines]),
            [kind.count for kind in trace.machines],
            axis=0,
        )


def pool_of(trace: Trace, capacity: Mapping[str, float]) -> tuple[float, ...]:
    """Return the capacity of one pool in the order of a trace's resources.

    Args:
        trace: The tasks for the pool.
        capacity: Amounts by the names of all of the trace's resources.

    Raises:
        SettingError: There is none of a resource that tasks need.
    """
    for name, tasks in zip(trace.resources, (trace.demand > 0.0).sum(axis=0), strict=True):
        if not capacity[name] and tasks:
            raise SettingError(
                f"the capacity has 0 {name}, and {tasks:,} tasks of the trace need some; give a "
                "positive amount"
            )
    return tuple(capacity[name] for name in trace.resources)


def capacity_at(trace: Trace, load: float) -> tuple[float, ...]:
    """Return a fraction of what a trace uses on average, as the capacity of one pool.

    Raises:
        SettingError: The load is not from a millionth to a million, or the trace uses nothing.
    """
    if not LEAST_LOAD <= load <= LARGEST_LOAD:
        raise SettingError(
            f"the load {load:g} is not a number from {LEAST_LOAD:g} to {LARGEST_LOAD:g}"
        )
    used = trace.mean_use()
    if not used.any():
        raise SettingError("the trace uses nothing on average; give a capacity")
    return tuple(float(load * amount) for amount in used)
