"""How close a generated workload came to what is known of the real one."""

from dataclasses import dataclass
from typing import Literal

TSF = "TSF §VI-B"
SDRF = "SDRF §7.2"
REISS = "Reiss et al. 2012"
EVENTS = "the trace's events"
"""Counts of events in the published trace: 18,217,975 FINISH, 13,829,769 FAIL, 672,004 jobs."""
CHOSEN = "chosen"
"""Not published: what the generator aims at for want of better."""


@dataclass(frozen=True)
class Moment:
    """One property of a workload.

    Args:
        name: What, with its unit.
        wanted: Its published value, or the bound on it.
        relation: Whether it should be equal, at most or at least that.
        got: Its value in the generated workload.
        source: Who published it.
    """

    name: str
    wanted: float
    relation: Literal["=", "≤", "≥"]
    got: float
    source: str

    @property
    def off(self) -> float:
        """Return by which part of the wanted value it is off; 0 within a bound."""
        if (self.relation == "≤" and self.got <= self.wanted) or (
            self.relation == "≥" and self.got >= self.wanted
        ):
            return 0.0
        return self.got / self.wanted - 1.0
