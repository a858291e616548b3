"""Reduces a task's demand to one number, for emulated schedulers with one usage figure per user."""

from allocator.fairness.account import Account
from allocator.fairness.policies.rivals.decayed_use import USE, DecayedUse
from allocator.fairness.quantities import Quantities


class Meter:
    """Computes by how much a running task increases its user's usage per second.

    Args:
        policy: The policy that is emulated; determines which resources count as usage.
        capacity: The cluster's capacity.
    """

    def __init__(self, policy: DecayedUse, capacity: Quantities) -> None:
        self._policy = policy
        self._capacity = capacity
        self._rates: dict[int, tuple[Quantities, float]] = {}

    def rate(self, demand: Quantities) -> float:
        """Return a task's share of the cluster, by which its user's usage grows per second.

        Args:
            demand: The task's demand.
        """
        cached = self._rates.get(id(demand))  # tasks with equal demands share one object
        if cached is None:
            account = Account(weight=1.0, settled_at=0.0)
            account.shares = demand.shares(self._capacity)
            cached = self._rates[id(demand)] = demand, self._policy.measure(account)[USE]
        return cached[1]


def less(held: float, rate: float) -> float:
    """Subtract an ended task's rate from its user's rate; return the new rate of the user.

    A remainder within rounding error becomes 0.

    Args:
        held: Sum of the rates of the user's running tasks.
        rate: Rate of the task that ended.
    """
    remaining = held - rate
    return remaining if remaining > 1e-12 else 0.0
