"""Accounts: a user's weight, allocation and commitments, from which a policy ranks the user."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Final

from allocator.fairness.commitment import approached, decayed
from allocator.fairness.quantities import Quantities

ANY: Final = ""
"""The name under which users are counted for resources that have no entry."""
_LEAST_MEAN = 1e-12
"""Average shares below this are forgotten."""


@dataclass(slots=True, eq=False)
class Account:
    """A user's allocation now, and its commitments as they were at the time `settled_at`."""

    weight: float
    settled_at: float
    """Time of the last accrual in seconds. `commitments` and `cumulative` are values at this
    time."""
    inherited: float = 0.0
    """Commitment for resources that are not part of the capacity (yet), as a fraction."""
    active: bool = False
    ranked: bool = False
    """Whether the pool's ranking contains the user."""
    allocation: Quantities = field(default_factory=Quantities)
    count: int = 0
    """Allocation count: how often resources were allocated to the user. It never decreases."""
    entitlement: float = 0.0
    """wᵢ / Σw, times the fraction of the capacity that the pool's users share. If users count by
    their use: the entitlement to the user's dominant resource."""
    entitlements: dict[str, float] = field(default_factory=dict)
    """Entitlements by resource, if users count by their use. Else empty."""
    compares_by_resource: bool = True
    """Whether `entitlement_to` distinguishes resources. False for former event logs."""
    turn: int = 0
    """Place in the queue, for FIFO. The user gets a new place when it becomes active without an
    allocation."""
    demand: Quantities | None = None
    """Resources of one task. None: the demand is unknown."""
    monopoly: int = 0
    """h: whole tasks that the user could run alone on all machines (TSF paper, §V-A). 0: no task
    fits, or the demand is unknown."""
    constrained_monopoly: int = 0
    """Whole tasks that the user could run alone on the machines that it may use."""
    shares: dict[str, float] = field(default_factory=dict)
    """o: allocation as a fraction of the capacity, by resource."""
    cumulative: float = 0.0
    """Integral over time of `rate_of_use` up to `settled_at`, in share × seconds."""
    named: bool = False
    """Whether an operator has named the user. A named user counts whole in n (`counting.py`)."""
    counted: Mapping[str, float] = field(default_factory=dict)
    """The weight that the user counts with in n, by resource, if users count by their use
    (`counting.py`). The entry of `ANY` holds for resources that no user was counted for yet."""
    in_use: Mapping[str, float] = field(default_factory=dict)
    """Shares of the used resources at the latest `Pool.look`, without zeros."""
    mean_use: Mapping[str, float] = field(default_factory=dict)
    """Average shares in use up to the latest `Pool.look`. Earlier use decays as commitments do."""
    rate_of_use: float = 0.0
    """Increase of `cumulative` per second."""
    measured: dict[str, float] = field(default_factory=dict)
    """Values that are compared with the entitlement: shares, unless the policy measures other
    values."""
    overuse: dict[str, float] = field(default_factory=dict)
    """ō: excess of the measured values over the entitlement, by resource (SDRF paper, Eq. 7)."""
    commitments: dict[str, float] = field(default_factory=dict)
    """c at `settled_at`, by resource (SDRF paper, Eq. 6)."""
    rated: bool = True
    """False if the allocation or the demand has changed since the pool last rated the account."""
    counted_until: float = math.inf
    """Time in seconds up to which a meter has integrated this account. Infinite: no meter is
    attached."""

    def copy(self) -> "Account":
        """Return a copy that later changes of this account do not affect."""
        duplicate = Account(*_field_values(self))
        duplicate.commitments = dict(self.commitments)  # the only field that is mutated in place
        return duplicate

    def tasks_of(self, monopoly: int) -> float | None:
        """Return the number of tasks that the user runs, divided by `monopoly`.

        The number of tasks is the allocation divided by the demand of one task, for the resource
        with the largest quotient. The result is rounded only once, because the integers are
        multiplied first and divided last.

        Args:
            monopoly: Number of whole tasks that the user could run if it had the cluster alone.

        Returns:
            The fraction. None: the demand is unknown, or `monopoly` is 0.
        """
        if self.demand is None or monopoly == 0:
            return None
        needed = (
            (self.allocation[name], amount * monopoly) for name, amount in self.demand.items()
        )
        return max(held / alone for held, alone in needed)

    def entitlement_to(self, resource: str) -> float:
        """Return the entitlement to a resource, with which a policy compares the user's share.

        `entitlement` is another number if users count by their use and another resource is
        dominant. A user could raise `entitlement` with allocations of a resource without other
        users.
        """
        if not (self.compares_by_resource and self.entitlements):
            return self.entitlement
        return self.entitlements.get(resource, self.entitlements[ANY])

    @property
    def task_share(self) -> float | None:
        """The task share: tasks that the user runs over h (TSF paper, §V-A).

        h is the number of tasks that the user could run if it had the cluster alone. The result is
        None if the demand is unknown or h is 0.
        """
        return self.tasks_of(self.monopoly)

    @property
    def share(self) -> float:
        """The dominant share: the user's largest fraction of the capacity of any resource."""
        return max(self.shares.values(), default=0.0)

    def commitments_at(self, now: float, tau: float | None) -> dict[str, float]:
        """Return the commitments by resource at a time, if the allocation stays as it is.

        Each commitment moves exponentially towards the over-use (SDRF paper, Eq. 12).

        Args:
            now: The time in seconds, not before `settled_at`.
            tau: Time constant of the decay in seconds. None: commitments do not decay.
        """
        elapsed = now - self.settled_at
        if tau is None or elapsed <= 0.0:
            return dict(self.commitments)
        approach, overuse = approached(elapsed, tau), self.overuse
        return {  # the formula of `decayed`, for all resources
            name: commitment + (overuse.get(name, 0.0) - commitment) * approach
            for name, commitment in self.commitments.items()
        }

    def inherited_at(self, now: float, tau: float | None) -> float:
        """Return the commitment (`inherited`) at a time for resources that the cluster lacks.

        If such a resource is added to the cluster later, its commitment begins with this value. The
        value only decays, because nothing of the resource is allocated.

        Args:
            now: The time in seconds, not before `settled_at`.
            tau: Time constant of the decay in seconds. None: commitments do not decay.
        """
        elapsed = now - self.settled_at
        return self.inherited if tau is None else decayed(self.inherited, 0.0, elapsed, tau)

    @property
    def accrues(self) -> bool:
        """Whether commitments or accumulated use may change with time.

        The answer is for an account whose allocation has been rated.
        """
        return bool(
            self.inherited
            or self.rate_of_use
            or any(self.overuse.values())
            or any(self.commitments.values())
        )

    def settled(self, now: float, tau: float | None) -> "Account":
        """Return a copy whose commitments and `cumulative` are moved forward to a time.

        Args:
            now: The time in seconds, not before `settled_at`.
            tau: Time constant of the decay in seconds. None: commitments do not decay.
        """
        duplicate = self.copy()
        duplicate.settle(now, tau)
        return duplicate

    def settle(self, now: float, tau: float | None) -> None:
        """Move `commitments` and `cumulative` forward to a time (to *accrue* the account).

        Call this method before the allocation or the over-use changes.

        Args:
            now: The time in seconds, not before `settled_at`.
            tau: Time constant of the decay in seconds. None: commitments do not decay.
        """
        if now > self.settled_at:
            self.cumulative = self.cumulative_at(now)
            if tau is not None:
                inherited = self.inherited_at(now, tau) if self.inherited else 0.0
                self.commitments, self.inherited = self.commitments_at(now, tau), inherited
        self.settled_at = now

    def cumulative_at(self, now: float) -> float:
        """Return the value of `cumulative` at a time in seconds, not before `settled_at`."""
        return self.cumulative + self.rate_of_use * max(now - self.settled_at, 0.0)

    def use(self, in_use: Mapping[str, float], elapsed: float, tau: float | None) -> None:
        """Record a sample of the resources that the user really uses, and update `mean_use`.

        Args:
            in_use: Used resources as fractions of the capacity, without zeros.
            elapsed: Seconds since the previous sample. In this time, the user is assumed to have
                used the smaller of both samples.
            tau: Time constant of the decay in seconds. None: no averages are kept.
        """
        if tau is not None:
            before = self.in_use
            approach = approached(elapsed, tau)
            means = {name: mean * (1.0 - approach) for name, mean in self.mean_use.items()}
            for name in before.keys() & in_use.keys():
                means[name] = means.get(name, 0.0) + min(before[name], in_use[name]) * approach
            self.mean_use = {name: mean for name, mean in means.items() if mean > _LEAST_MEAN}
        self.in_use = in_use

    def owe(
        self, measured: dict[str, float], free: float, least: float, entitlements: dict[str, float]
    ) -> None:
        """Recompute the over-use from which commitments grow: `measured` minus `free`, at least 0.

        Args:
            measured: The values that the policy compares with the entitlement, such as shares.
            free: The amount of each value that is not over-use, such as the entitlement wᵢ / Σw.
            least: Lower bound of the commitment for each held resource. Smaller commitments are
                raised to it; other commitments do not change.
            entitlements: Amounts that replace `free` for some of the values.
        """
        self.measured = measured
        overuse, commitments = dict[str, float](), self.commitments
        for name, value in measured.items():  # the formula of `commitment.overuse`
            part = entitlements.get(name, free)
            overuse[name] = value - part if value > part else 0.0
            if name not in commitments:
                commitments[name] = self.inherited
        self.overuse = overuse
        if least:
            for name, value in measured.items():
                if value > 0.0:
                    commitments[name] = max(commitments[name], least)

    def owe_for_shares(self, free: float, entitlements: Mapping[str, float]) -> None:
        """Let commitments by resource grow, although the policy measures other values.

        Call this method after `owe`. The priority does not depend on these commitments.

        Args:
            free: The share of each resource that is not over-use.
            entitlements: Entitlements by resource, which replace `free`.
        """
        for name, share in self.shares.items():
            self.overuse[name] = max(share - entitlements.get(name, free), 0.0)
            if name not in self.commitments:
                self.commitments[name] = self.inherited

    def set_debts(
        self, user: object, commitment: float | Mapping[str, float], others: float = 0.0
    ) -> None:
        """Replace the user's commitments, which are fractions of the capacity.

        Args:
            user: The user's id, for error messages.
            commitment: One number for every resource, or numbers by resource name.
            others: The commitment for resources that `commitment` does not name.

        Raises:
            ValueError: a commitment is negative or not finite; nothing has changed.
        """
        named = commitment if isinstance(commitment, Mapping) else {}
        remainder = others if isinstance(commitment, Mapping) else commitment
        for name, amount in (*named.items(), ("every resource", remainder)):
            # A commitment may exceed 1, when the capacity has shrunk below an allocation.
            if not 0.0 <= amount < math.inf:
                raise ValueError(
                    f"user {user!r}: commitment {amount} of {name} is not a finite number ≥ 0"
                )
        self.commitments, self.inherited = dict(named), remainder


_field_values = attrgetter(*(account_field.name for account_field in fields(Account)))
"""Returns the values of all fields; several times as fast as `dataclasses.replace`."""
