"""Options of a simulation run: the policy, the cluster's capacity, and the meaning of a user."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from allocator.complaints import alternatives, unknown
from allocator.fairness.policies import Policy, mistaken_resources
from allocator.simulation.holding import Blocking
from allocator.simulation.originals.catalogue import create_policy, period_of
from allocator.simulation.originals.kai import Kai
from allocator.simulation.trace import Trace

LEAST_LOAD, LARGEST_LOAD = 1e-6, 1e6
"""Smallest and largest allowed load: a pool's capacity divided by the trace's mean use."""
_LARGEST_CAPACITY = 1e18
"""Largest allowed capacity of a pool, in the trace's units.

Real clusters stay below, even if memory is given in bytes.
"""


class SettingError(ValueError):
    """Raised if a setting is invalid or does not fit the trace; the message says why."""


@dataclass(frozen=True)
class Setting:
    """Options of one simulation run.

    Args:
        policy: The policy's name.
        parameters: Policy parameters, as the live cluster accepts them.
        capacity: Capacity of a single pool, in the order and units of the trace's resources. None
            selects the trace's own machines and constraints.
        blocking: The rule for a user whose next task does not fit on any machine now.
        users: Users among which the policy divides the cluster. "known": all users of the trace,
            from the start. "appearing": each user from its first submission on.
        per: The entity that the policy treats as a user. In TSF's evaluation, each job is a user.
        weights: Weights by user name. Users not named here keep the weights of the trace.
        owes: Initial commitments by user name, as fractions of the capacity; one value applies to
            every resource. Users not named here keep the commitments of the trace.
        sampled: How the policy learns of usage. A number of seconds or a duration ("5m"): usage is
            sampled once per period of this length, as the emulated scheduler does. "original":
            usage is sampled with the emulated scheduler's own period. None: the policy's accounts
            are exact at every instant.

    Raises:
        SettingError: The policy is unknown or a value is invalid.
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
                raise SettingError(unknown(f"value of {name}", value, allowed))
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
                "kai divides the cluster again in each cycle; set sampled: 'original'"
            )
        if policy.per_machine and self.capacity is None and self.blocking == "head-of-line":
            raise SettingError(
                f"under {self.policy} no user is next on all machines; set blocking to 'skip'"
            )
        if policy.per_machine and self.blocking in {"hold", "hold-all"}:
            raise SettingError(
                f"under {self.policy} no user is next on all machines, so none can be held for "
                "a user; set blocking to 'skip'"
            )

    def new_policy(self) -> Policy:
        """Create the policy object for a simulation.

        Raises:
            SettingError: No policy has this name, or the policy rejects the parameters.
        """
        try:
            return create_policy(self.policy, self.parameters)
        except ValueError as error:
            raise SettingError(str(error)) from error

    def check(self, trace: Trace) -> None:
        """Raise an error if the setting cannot be applied to a trace. Called before a simulation.

        Raises:
            SettingError: The setting and the trace do not fit together.
        """
        for name in mistaken_resources(self.new_policy(), trace.resources):
            raise SettingError(
                f"a parameter of {self.policy} names the resource {name}, which the trace does not "
                f"have{alternatives(name, trace.resources)}"
            )
        if self.capacity is None:
            if not trace.machines:
                raise SettingError("the trace has no machines; give a capacity or a load")
        elif len(self.capacity) != len(trace.resources):
            raise SettingError(
                f"the capacity has {len(self.capacity)} amounts for the trace's resources "
                f"{', '.join(trace.resources)}"
            )

    def machines(self, trace: Trace) -> NDArray[np.float64]:
        """Return each machine's capacity, one row per machine, in order of machine numbers.

        Machines are numbered class by class, in the trace's order of classes. A pool is one
        machine.

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
    """Convert a capacity by resource name to a tuple in the order of a trace's resources.

    Args:
        trace: The trace whose tasks the pool will run.
        capacity: Total amount of each resource, by name; every resource of the trace must be named.

    Raises:
        SettingError: The capacity of a resource is 0, but tasks need that resource.
    """
    for name, count in zip(trace.resources, (trace.demand > 0.0).sum(axis=0), strict=True):
        if not capacity[name] and count:
            raise SettingError(
                f"the capacity has 0 {name}, and {count:,} tasks of the trace need some; give a "
                "positive amount"
            )
    return tuple(capacity[name] for name in trace.resources)


def capacity_at(trace: Trace, load: float) -> tuple[float, ...]:
    """Return the capacity of a single pool that has `load` times the trace's mean use.

    Args:
        trace: The trace whose tasks the pool will run.
        load: Capacity divided by mean use. At 1, the capacity equals the mean use; at 2, half of
            the pool is idle on average.

    Returns:
        The capacity in the order of the trace's resources.

    Raises:
        SettingError: The load is not between 10⁻⁶ and 10⁶, or the trace uses nothing.
    """
    if not LEAST_LOAD <= load <= LARGEST_LOAD:
        raise SettingError(
            f"the load {load:g} is not a number from {LEAST_LOAD:g} to {LARGEST_LOAD:g}"
        )
    used = trace.mean_use()
    if not used.any():
        raise SettingError("the trace uses nothing on average; give a capacity")
    return tuple(float(load * amount) for amount in used)
