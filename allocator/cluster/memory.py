"""What must survive a restart: who owes what, and what an operator has ordered."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Remembered:
    """One user, as of the time of the memory it is part of."""

    commitments: Mapping[str, float] = field(default_factory=dict)
    """By resource, as fractions of the cluster."""
    overuse: Mapping[str, float] = field(default_factory=dict)
    """What commitments were moving towards (Eq. 7), by resource."""
    others: float = 0.0
    """Commitment for every resource that is not named."""
    weight: float | None = None
    """As ordered by an operator; None: nobody has."""


@dataclass(frozen=True, slots=True)
class Memory:
    """All that an engine hands on to its successor. Everything else comes from the master."""

    time: float
    """The master's clock, in seconds since the Unix epoch; 0: no master has come yet."""
    users: Mapping[str, Remembered]
    tau: float | None = None
    """Time constant in seconds with which commitments were made and fade, whatever policy comes
    after; None: nobody knows, so that of the policy."""
