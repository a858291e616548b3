"""What a policy may look at when it ranks a user."""

from dataclasses import dataclass, field

from allocator.fairness.commitment import decayed, overuse
from allocator.fairness.quantities import Quantities


@dataclass(slots=True, eq=False)
class Account:
    """One user's holdings and debts, as of the instant at which they were settled."""

    weight: float
    settled_at: float
    """Seconds; commitments are those of this instant."""
    inherited: float = 0.0
    """Commitment for resources that the capacity does not name (yet)."""
    active: bool = False
    allocation: Quantities = field(default_factory=Quantities)
    count: int = 0
    """How often something was allocated; never goes down."""
    shares: dict[str, float] = field(default_factory=dict)
    """o: allocation as a fraction of capacity, by resource."""
    overuse: dict[str, float] = field(default_factory=dict)
    """ō: what the share exceeds the entitlement by, by resource (Eq. 7)."""
    commitments: dict[str, float] = field(default_factory=dict)
    """c at `settled_at`, by resource (Eq. 6)."""

    @property
    def share(self) -> float:
        """The dominant share: the largest."""
        return max(self.shares.values(), default=0.0)

    def commitments_at(self, now: float, tau: float | None) -> dict[str, float]:
        """Return commitments at an instant not before `settled_at` (Eq. 12)."""
        elapsed = now - self.settled_at
        if tau is None or elapsed <= 0.0:
            return dict(self.commitments)
        return {
            name: decayed(commitment, self.overuse.get(name, 0.0), elapsed, tau)
            for name, commitment in self.commitments.items()
        }

    def inherited_at(self, now: float, tau: float | None) -> float:
        """Return the commitment for resources not named, at an instant."""
        elapsed = now - self.settled_at
        return self.inherited if tau is None else decayed(self.inherited, 0.0, elapsed, tau)

    def settle(self, now: float, tau: float | None) -> None:
        """Bring commitments up to an instant, under the rates that held until then."""
        if tau is not None and now > self.settled_at:
            self.commitments, self.inherited = (
                self.commitments_at(now, tau),
                self.inherited_at(now, tau),
            )
        self.settled_at = now

    def rate(
        self, capacity: Quantities, entitlement: float, excluded: frozenset[str], *, owes: bool
    ) -> None:
        """Work out shares and over-use anew; a settled account's commitments stay.

        Args:
            capacity: Total of the pool.
            entitlement: The user's part of it, wᵢ / Σw.
            excluded: Resources that do not count.
            owes: Whether the policy remembers over-use.
        """
        self.shares = self.allocation.shares(capacity, excluded)
        if owes:
            self.overuse = {name: overuse(o, entitlement) for name, o in self.shares.items()}
            for name in self.shares:
                self.commitments.setdefault(name, self.inherited)
