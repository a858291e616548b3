"""State that survives a restart: commitments, and weights ordered by an operator."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from allocator.fairness.bounds import LARGEST_ACCUMULATED_USE
from allocator.fairness.commitment import decayed


class Boost(NamedTuple):
    """A weight that an operator sets for a limited time."""

    weight: float
    until: float
    """The end of the boost by the scheduler's clock, in seconds since the Unix epoch."""


class AccumulatedUse(NamedTuple):
    """A user's use of resources over all time, for policies with priorities by accumulated use."""

    amount: float = 0.0
    """Integral of a share over time, in share × seconds."""
    rate: float = 0.0
    """Increase of `amount` per second, until the user's allocation changes."""

    def after(self, elapsed: float) -> "AccumulatedUse":
        """Return the accumulated use after `elapsed` seconds with an unchanged allocation."""
        amount = self.amount + self.rate * max(elapsed, 0.0)
        return AccumulatedUse(min(amount, LARGEST_ACCUMULATED_USE), self.rate)


NO_USE = AccumulatedUse()


@dataclass(frozen=True, slots=True)
class RememberedUser:
    """One user's state at one time: commitments, weights, and use of resources."""

    commitments: Mapping[str, float] = field(default_factory=dict)
    """Commitments by resource, as fractions of the cluster."""
    overuse: Mapping[str, float] = field(default_factory=dict)
    """Over-use by resource: the values that the commitments were approaching (SDRF paper, Eq.
    7)."""
    others: float = 0.0
    """Commitment for every resource without an entry."""
    weight: float | None = None
    """Permanent weight set by an operator's command; None without a command."""
    boost: Boost | None = None
    """Temporary weight set by an operator's command; None without a command."""
    mean_use: Mapping[str, float] = field(default_factory=dict)
    """Average shares of used resources, by resource. They survive a snapshot, but no restart."""
    accumulated: AccumulatedUse = NO_USE
    """Use over all time. Zero under policies with other priorities."""


class OccupiedPlaces(NamedTuple):
    """Role-tree nodes that a Mesos framework's roles occupy, or that are reserved for them."""

    nodes: int
    """Number of nodes that count towards their limit; 0 for a framework that was only admitted."""
    principal: str | None = None
    """`role_places.digest` of the framework's principal; None if unknown."""
    reserved_until_ns: int | None = None
    """End of the reservation, in nanoseconds since the Unix epoch; None if the framework is
    present."""


@dataclass(frozen=True, slots=True)
class Memory:
    """All state that an adapter hands over to its successor, mainly the users' commitments.

    The scheduler provides everything else.
    """

    time: float
    """The scheduler's clock, in seconds since the Unix epoch; 0 before the first event."""
    users: Mapping[str, RememberedUser]
    tau: float | None = None
    """Time constant in seconds of the commitments' growth and decay, whatever policy follows.
    None if unknown; the policy's time constant then applies."""
    places: Mapping[str, OccupiedPlaces] = field(default_factory=dict)
    """Role-tree nodes that each Mesos framework occupies, by `role_places.digest` of its ID."""


@dataclass(frozen=True, slots=True)
class StoredTrajectory:
    """A user's commitments and accumulated use as functions of time.

    They hold as long as the allocation is constant. The functions of commitments are those of the
    SDRF paper (Eq. 12).
    """

    since: float
    """The time of `remembered`, in seconds since the Unix epoch."""
    tau: float | None
    """Time constant in seconds; None if commitments do not decay under the policy."""
    remembered: RememberedUser
    needed: bool = True
    """False if a successor without this entry would give the user the same commitments and
    weight. The user then has no commitment, over-use or weight of an operator, and is not
    declared."""

    def at(self, instant: float) -> RememberedUser:
        """Return the user's state at a later time, computed exactly (SDRF paper, Eq. 12).

        For times before `since`, the result is `remembered`, the user's state at the time `since`.

        Args:
            instant: The time, in seconds since the Unix epoch.
        """
        elapsed, remembered = instant - self.since, self.remembered
        if elapsed <= 0.0:
            return remembered
        if any(remembered.accumulated):
            accumulated = remembered.accumulated.after(elapsed)
            remembered = replace(remembered, accumulated=accumulated)
        if self.tau is None:
            return remembered
        commitments = {
            name: decayed(commitment, remembered.overuse.get(name, 0.0), elapsed, self.tau)
            for name, commitment in remembered.commitments.items()
        }
        other_commitment = decayed(remembered.others, 0.0, elapsed, self.tau)
        return replace(remembered, commitments=commitments, others=other_commitment)


@dataclass(frozen=True, slots=True)
class MemoryChanges:
    """The parts of a memory that have changed since the last call of the adapter's `changes`."""

    time: float
    """The scheduler's clock, in seconds since the Unix epoch."""
    courses: Mapping[str, StoredTrajectory]
    """Commitment trajectories, by user."""
    complete: bool
    """Whether `courses` has all users. Otherwise, users in neither `courses` nor `removed` are
    unchanged."""
    places: Mapping[str, OccupiedPlaces] = field(default_factory=dict)
    """All role-tree places, as in a memory."""
    removed: Collection[str] = ()
    """Users and virtual leaves that have been removed; empty if `courses` has all users."""
