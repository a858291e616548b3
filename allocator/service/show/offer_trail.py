"""The latest offers, each with the reason why its user got it, for the status page."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

MOST_OFFERS = 50
"""Maximum number of offers in the history; older offers are dropped."""


@dataclass(frozen=True, slots=True)
class OfferRecord:
    """One offer, with a sentence that explains why its user got it."""

    time: float
    """Time on the master's clock, in seconds since the epoch."""
    user: str
    role: str
    framework: str
    host: str
    resources: dict[str, float]
    why: str


class Trail(Protocol):
    """The latest offers of a Mesos master, or the latest starts of another scheduler."""

    @property
    def offers(self) -> Sequence[OfferRecord]:
        """The records, the earliest first."""
