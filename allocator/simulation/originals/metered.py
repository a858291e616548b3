"""What originals have in common that meter one rate for each user: what its policy counts."""

from allocator.fairness.account import Account
from allocator.fairness.policies.rivals.decayed_use import USE, DecayedUse
from allocator.fairness.quantities import Quantities


class Meter:
    """Says at what rate a task counts.

    Args:
        policy: Says what counts, as the exact ranking has it.
        capacity: Of which tasks take parts.
    """

    def __init__(self, policy: DecayedUse, capacity: Quantities) -> None:
        self._policy = policy
        self._capacity = capacity
        self._rates: dict[int, tuple[Quantities, float]] = {}

    def rate(self, demand: Quantities) -> float:
        """Return what a task that needs this adds to what its user holds."""
        found = self._rates.get(id(demand))  # tasks that need the same share one object
        if found is None:
            account = Account(weight=1.0, settled_at=0.0)
            account.shares = demand.shares(self._capacity)
            found = self._rates[id(demand)] = demand, self._policy.measure(account)[USE]
        return found[1]


def less(held: float, rate: float) -> float:
    """Return what is held without a task; what rounding leaves of nothing is nothing."""
    rest = held - rate
    return rest if rest > 1e-12 else 0.0
