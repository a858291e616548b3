"""Moments: published properties of a real workload, compared with a generated workload."""

from dataclasses import dataclass
from typing import Literal

TSF = "TSF §VI-B"
SDRF = "SDRF §7.2"
REISS = "Reiss et al. 2012"
EVENTS = "the trace's events"
"""Counts of events in the published trace: 18,217,975 FINISH, 13,829,769 FAIL, 672,004 jobs."""
CHOSEN = "chosen"
"""Source of an unpublished value: the generator's own target."""


@dataclass(frozen=True)
class Moment:
    """One property of a workload.

    Args:
        name: Name of the property, with its unit.
        wanted: The published value or bound.
        relation: Whether the property should equal, not exceed, or reach the published value.
        got: The value in the generated workload.
        source: The publication.
    """

    name: str
    wanted: float
    relation: Literal["=", "≤", "≥"]
    got: float
    source: str

    @property
    def off(self) -> float:
        """Return the relative deviation from the published value; 0 within a bound."""
        if (self.relation == "≤" and self.got <= self.wanted) or (
            self.relation == "≥" and self.got >= self.wanted
        ):
            return 0.0
        return self.got / self.wanted - 1.0
