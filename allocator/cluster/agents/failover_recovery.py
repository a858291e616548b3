"""Failover recovery: after a master's failover, wait for agents that have not re-registered.

Until agents are back, only a fraction of the cluster is known. Shares of this fraction look too
large, and SDRF would charge commitments for them. Allocation and charging therefore pause until
enough agents are back. Until all agents are back, or the timeout expires, shares are fractions of
the cluster's capacity before the failover.
"""

from dataclasses import dataclass, field

from allocator.fairness.quantities import Quantities


@dataclass(frozen=True, slots=True)
class FailoverRecovery:
    """One failover recovery: the numbers of agents at which offers resume and recovery ends."""

    needed: int
    """Number of known agents at which offers resume."""
    expected: int
    """Number of known agents at which recovery is complete."""
    until_ns: int
    """Instant, in nanoseconds, at which recovery ends in any case."""
    before: Quantities = field(default_factory=Quantities)
    """Capacity of the cluster before the failover; empty if unknown."""

    def holds_back_offers(self, agents: int, now_ns: int) -> bool:
        """Return whether offers must wait: too few agents are back, and no timeout has expired.

        Args:
            agents: The number of agents that are back.
            now_ns: The current time in nanoseconds.
        """
        return agents < self.needed and now_ns < self.until_ns

    def is_complete(self, agents: int, now_ns: int) -> bool:
        """Return whether recovery is over: all agents are back, or the timeout has expired.

        Args:
            agents: The number of agents that are back.
            now_ns: The current time in nanoseconds.
        """
        return agents >= self.expected or now_ns >= self.until_ns

    def share_capacity(self, known: Quantities, agents: int) -> Quantities:
        """Return the capacity that users' shares are fractions of during the recovery.

        Each resource counts with the larger of its known total and its total before the failover.
        If the total before is unknown, late agents are assumed to have the mean resources of the
        agents that are back.

        Args:
            known: Total resources of the agents that are back.
            agents: The number of agents that are back.
        """
        before = self.before
        if not before and 0 < agents < self.expected:
            before = Quantities(
                {name: amount * self.expected // agents for name, amount in known.items()}
            )
        return Quantities(
            {name: max(known[name], before[name]) for name in dict.fromkeys([*known, *before])}
        )
