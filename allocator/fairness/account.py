"""What a policy may look at when it ranks a user."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from operator import attrgetter

from allocator.fairness.commitment import approached, decayed
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
    entitlement: float = 0.0
    """wᵢ / Σw, of the pool's part."""
    turn: int = 0
    """Place in the queue: when it last began to want something while it held nothing."""
    demand: Quantities | None = None
    """What one task needs; None: nobody knows."""
    monopoly: int = 0
    """h: whole tasks that all machines could run (TSF paper, §V-A); 0: no task fits, or unknown."""
    constrained_monopoly: int = 0
    """Whole tasks that the machines it may use could run."""
    shares: dict[str, float] = field(default_factory=dict)
    """o: allocation as a fraction of capacity, by resource."""
    cumulative: float = 0.0
    """What the policy adds up over time, up to `settled_at`: share × seconds."""
    named: bool = False
    """Whether an operator has named the user, so that it counts whole in n (`counting.py`)."""
    counted: float = 0.0
    """The weight for which it counts in n, where that depends on use (`counting.py`)."""
    in_use: float = 0.0
    """Dominant share of what it used at the latest look (`Pool.look`)."""
    mean_use: float = 0.0
    """The same on average up to then; what was used earlier fades as debts do."""
    rate_of_use: float = 0.0
    """What is added to `cumulative` in a second."""
    measured: dict[str, float] = field(default_factory=dict)
    """What over-use is measured of: shares, unless the policy takes something else."""
    overuse: dict[str, float] = field(default_factory=dict)
    """ō: what the share exceeds the entitlement by, by resource (Eq. 7)."""
    commitments: dict[str, float] = field(default_factory=dict)
    """c at `settled_at`, by resource (Eq. 6)."""
    counted_until: float = math.inf
    """Until when a meter has counted what it held; infinite: there is none."""

    def copy(self) -> "Account":
        """Return an account that stays as this one is."""
        twin = Account(*_everything(self))
        twin.commitments = dict(self.commitments)  # the one thing that is changed in place
        return twin

    def tasks_of(self, monopoly: int) -> float | None:
        """Return tasks held as a fraction of a monopoly, in whole numbers divided once.

        What is held amounts to as many tasks as its most used resource would do for. None:
        the demand is not known, or no task fits.
        """
        if self.demand is None or monopoly == 0:
            return None
        needed = (
            (self.allocation[name], amount * monopoly) for name, amount in self.demand.items()
        )
        return max(held / alone for held, alone in needed)

    @property
    def task_share(self) -> float | None:
        """Tasks held over h (TSF paper, §V-A); None: the demand is not known, or no task fits."""
        return self.tasks_of(self.monopoly)

    @property
    def share(self) -> float:
        """The dominant share: the largest."""
        return max(self.shares.values(), default=0.0)

    def commitments_at(self, now: float, tau: float | None) -> dict[str, float]:
        """Return commitments at an instant not before `settled_at` (Eq. 12)."""
        elapsed = now - self.settled_at
        if tau is None or elapsed <= 0.0:
            return dict(self.commitments)
        part, overuse = approached(elapsed, tau), self.overuse
        return {  # `decayed`, of all resources together
            name: commitment + (overuse.get(name, 0.0) - commitment) * part
            for name, commitment in self.commitments.items()
        }

    def inherited_at(self, now: float, tau: float | None) -> float:
        """Return the commitment for resources not named, at an instant."""
        elapsed = now - self.settled_at
        return self.inherited if tau is None else decayed(self.inherited, 0.0, elapsed, tau)

    def settled(self, now: float, tau: float | None) -> "Account":
        """Return a copy that is settled at an instant; this one stays as it is."""
        copy = self.copy()
        copy.settle(now, tau)
        return copy

    def settle(self, now: float, tau: float | None) -> None:
        """Bring debts and what is added up to an instant, under the rates that held until then."""
        if now > self.settled_at:
            self.cumulative = self.cumulative_at(now)
            if tau is not None:
                inherited = self.inherited_at(now, tau) if self.inherited else 0.0
                self.commitments, self.inherited = self.commitments_at(now, tau), inherited
        self.settled_at = now

    def cumulative_at(self, now: float) -> float:
        """Return what has been added up until an instant not before `settled_at`."""
        return self.cumulative + self.rate_of_use * max(now - self.settled_at, 0.0)

    def owe(self, measured: dict[str, float], free: float, least: float = 0.0) -> None:
        """Work out over-use anew; a settled account's commitments stay.

        Args:
            measured: What the policy compares with the entitlement, such as shares.
            free: How much of it is no over-use, such as the user's part, wᵢ / Σw.
            least: What commitments for what is held are at least from now on.
        """
        self.measured = measured
        self.overuse = {  # `commitment.overuse`, of all resources together
            name: o - free if o > free else 0.0 for name, o in measured.items()
        }
        commitments = self.commitments
        for name in measured:
            if name not in commitments:
                commitments[name] = self.inherited
        if least:
            for name, o in measured.items():
                if o > 0.0:
                    commitments[name] = max(commitments[name], least)

    def set_debts(
        self, user: object, commitment: float | Mapping[str, float], others: float = 0.0
    ) -> None:
        """Say what the user owes: of every resource, or by name, and of those not named.

        Raises:
            ValueError: a commitment is negative or not finite; nothing has changed.
        """
        named = commitment if isinstance(commitment, Mapping) else {}
        rest = others if isinstance(commitment, Mapping) else commitment
        for name, amount in (*named.items(), ("every resource", rest)):
            # Over 1 is possible: of a capacity that has shrunk below what is allocated.
            if not 0.0 <= amount < math.inf:
                raise ValueError(
                    f"user {user!r}: commitment {amount} of {name} is not a finite number ≥ 0"
                )
        self.commitments, self.inherited = dict(named), rest


_everything = attrgetter(*(each.name for each in fields(Account)))
"""Several times as fast as `dataclasses.replace`."""
