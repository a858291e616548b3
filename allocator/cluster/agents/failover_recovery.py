"""After a failover: agents that are registered and not back yet are late, not gone.

Shares of a fraction of the cluster look larger than they are, and a policy with a memory would
charge users for it. So nothing is charged until enough agents are back for offers, and until all
are, or enough time has passed, shares are counted of the cluster as it was before.
"""

from dataclasses import dataclass, field

from allocator.fairness.quantities import Quantities


@dataclass(frozen=True, slots=True)
class Failover:
    """What is awaited."""

    needed: int
    """Known agents at which offers begin."""
    expected: int
    """Known agents at which nobody is late any more."""
    until_ns: int
    """When both are over in any case."""
    before: Quantities = field(default_factory=Quantities)
    """What the cluster had before the failover; empty: nobody remembers."""

    def holds_off(self, agents: int, now_ns: int) -> bool:
        """Whether too few agents are back for offers."""
        return agents < self.needed and now_ns < self.until_ns

    def over(self, agents: int, now_ns: int) -> bool:
        """Whether nobody is late any more."""
        return agents >= self.expected or now_ns >= self.until_ns

    def counted(self, known: Quantities, agents: int) -> Quantities:
        """Return the capacity of which shares are counted.

        Args:
            known: What agents that are back have.
            agents: How many these are; where nobody remembers better, the late ones are taken to
                be like them.
        """
        before = self.before
        if not before and 0 < agents < self.expected:
            before = Quantities(
                {name: amount * self.expected // agents for name, amount in known.items()}
            )
        return Quantities(
            {name: max(known[name], before[name]) for name in dict.fromkeys([*known, *before])}
        )
