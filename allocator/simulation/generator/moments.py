"""Comparison of a generated workload with published properties of the real workload."""

from dataclasses import dataclass
from typing import Literal

TSF = "TSF §VI-B"
SDRF = "SDRF §7.2"
REISS = "Reiss et al. 2012"
EVENTS = "the trace's events"
"""Source of counts in the published trace: 18,217,975 FINISH, 13,829,769 FAIL, 672,004 jobs."""
CHOSEN = "chosen"
"""Source of values that are not published, but chosen by the generator."""


@dataclass(frozen=True)
class Moment:
    """One property of a workload: the published value and the generated workload's value.

    Args:
        name: Name of the property, with its unit.
        wanted: The published value or bound.
        relation: How the generated value should relate to `wanted`: equal, at most, or at least.
        got: The value in the generated workload.
        source: The publication that gives `wanted`.
    """

    name: str
    wanted: float
    relation: Literal["=", "≤", "≥"]
    got: float
    source: str

    @property
    def off(self) -> float:
        """Return the relative deviation from the published value; 0 if a published bound is met."""
        if (self.relation == "≤" and self.got <= self.wanted) or (
            self.relation == "≥" and self.got >= self.wanted
        ):
            return 0.0
        return self.got / self.wanted - 1.0
