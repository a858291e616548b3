"""Failover recovery: registered agents that have not re-registered count as late, not as gone.

Shares of a fraction of the cluster look too large, and SDRF would charge commitments for them.
Allocation and charging therefore pause until enough agents are back. Until all agents are back, or
the timeout expires, shares are fractions of the cluster's capacity before the failover.
"""

from dataclasses import dataclass, field

from allocator.fairness.quantities import Quantities


@dataclass(frozen=True, slots=True)
class Failover:
    """The agents expected after a failover, and the end of recovery."""

    needed: int
    """Number of known agents at which offers resume."""
    expected: int
    """Number of known agents at which recovery is complete."""
    until_ns: int
    """Instant, in nanoseconds, at which recovery ends in any case."""
    before: Quantities = field(default_factory=Quantities)
    """Capacity of the cluster before the failover; empty if unknown."""

    def holds_off(self, agents: int, now_ns: int) -> bool:
        """Whether offers are held off because fewer than `needed` agents are back."""
        return agents < self.needed and now_ns < self.until_ns

    def over(self, agents: int, now_ns: int) -> bool:
        """Whether recovery is over: all expected agents are back, or the timeout has expired."""
        return agents >= self.expected or now_ns >= self.until_ns

    def counted(self, known: Quantities, agents: int) -> Quantities:
        """Return the capacity that shares are fractions of.

        Args:
            known: Total resources of the agents that are back.
            agents: The number of agents that are back. Without a known capacity from before the
                failover, late agents are assumed to have the mean resources of these agents.
        """
        before = self.before
        if not before and 0 < agents < self.expected:
            before = Quantities(
                {name: amount * self.expected // agents for name, amount in known.items()}
            )
        return Quantities(
            {name: max(known[name], before[name]) for name in dict.fromkeys([*known, *before])}
        )
