"""What must survive a restart: who owes what, and what an operator has ordered."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from allocator.fairness.commitment import decayed


class Boost(NamedTuple):
    """A weight that holds for a time."""

    weight: float
    until: float
    """By the master's clock, in seconds since the Unix epoch."""


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
    boost: Boost | None = None
    """Likewise, for a time."""
    mean_use: float = 0.0
    """Dominant share used on average. It outlives a snapshot, and no restart."""


@dataclass(frozen=True, slots=True)
class Memory:
    """All that an engine hands on to its successor. Everything else comes from the master."""

    time: float
    """The master's clock, in seconds since the Unix epoch; 0: no master has come yet."""
    users: Mapping[str, Remembered]
    tau: float | None = None
    """Time constant in seconds with which commitments were made and fade, whatever policy comes
    after; None: nobody knows, so that of the policy."""
    places: Mapping[str, int] = field(default_factory=dict)
    """Counted places that frameworks have in the tree of roles, by `role_places.digest`."""


@dataclass(frozen=True, slots=True)
class StoredTrajectory:
    """How it goes on with one user for as long as nothing changes: all that Eq. 12 needs."""

    since: float
    """The instant that `remembered` is of, in seconds since the Unix epoch."""
    tau: float | None
    """Time constant in seconds; None: the policy does not let commitments fade."""
    remembered: Remembered

    def at(self, instant: float) -> Remembered:
        """Return how it stands at an instant, if that is later; exact (Eq. 12)."""
        elapsed, then = instant - self.since, self.remembered
        if self.tau is None or elapsed <= 0.0:
            return then
        commitments = {
            name: decayed(commitment, then.overuse.get(name, 0.0), elapsed, self.tau)
            for name, commitment in then.commitments.items()
        }
        others = decayed(then.others, 0.0, elapsed, self.tau)
        return replace(then, commitments=commitments, others=others)


@dataclass(frozen=True, slots=True)
class MemoryChanges:
    """What has to be remembered anew."""

    time: float
    """The master's clock, in seconds since the Unix epoch."""
    courses: Mapping[str, StoredTrajectory]
    """By user."""
    complete: bool
    """Whether these are all users; else the others go on as they did."""
    places: Mapping[str, int] = field(default_factory=dict)
    """All, as in a memory."""
