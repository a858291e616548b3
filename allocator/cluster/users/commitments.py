"""Commitments of absent users, and the export of users into the store's memory."""

from collections.abc import Iterator, Mapping

from allocator.cluster.cooperative import Cooperative
from allocator.cluster.memory import Memory, MemoryChanges, Remembered, StoredTrajectory
from allocator.cluster.users.role_pools import RolePools
from allocator.cluster.users.weights import Weights
from allocator.fairness.bounds import LARGEST_COMMITMENT
from allocator.fairness.commitment import decayed
from allocator.fairness.pool import Pool
from allocator.fairness.standing import Standing

FADED = 1e-3
"""A user whose dominant commitment is below this fraction of the capacity may be forgotten."""


class AbsentUsers:
    """Commitments of virtual leaves that do not exist (yet)."""

    def __init__(self, pools: RolePools) -> None:
        self._pools = pools
        self._stored: dict[str, tuple[float, Remembered]] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(self._stored)

    def __contains__(self, name: object) -> bool:
        return name in self._stored

    def put(self, name: str, commitments: Mapping[str, float], rest: float) -> None:
        """Store the current commitments of an absent leaf.

        Args:
            name: The virtual leaf.
            commitments: Commitments by resource.
            rest: Commitment of every other resource.
        """
        self._stored[name] = self._pools.now, Remembered(commitments, others=rest)

    def discard(self, name: str) -> None:
        """Forget a leaf, which exists now."""
        self._stored.pop(name, None)

    def commitments_of(self, name: str) -> tuple[dict[str, float], float]:
        """Return a leaf's current commitments by resource, and that of every other resource."""
        since, remembered = self._stored.get(name, (self._pools.now, Remembered()))
        return commitments_after(remembered, {}, self._pools.now - since, self._pools.tau)

    def trajectory(self, name: str) -> StoredTrajectory:
        """Return the commitment trajectory of a leaf."""
        since, remembered = self._stored[name]
        return StoredTrajectory(since, self._pools.tau, remembered)

    def forget_faded(self) -> bool:
        """Forget leaves whose commitments have decayed; return whether there were any."""
        faded = [name for name in self if not matters(*self.commitments_of(name))]
        for name in faded:
            del self._stored[name]
        return bool(faded)


def matters(commitments: Mapping[str, float], rest: float = 0.0) -> bool:
    """Whether a user with these commitments must stay known."""
    return max(commitments.values(), default=rest) >= FADED


def commitments_after(
    remembered: Remembered, overuse: Mapping[str, float], elapsed: float, tau: float | None
) -> tuple[dict[str, float], float]:
    """Return commitments after some time: by resource, and of every other resource.

    Args:
        remembered: The commitments at the beginning.
        overuse: Current over-use by resource. Over-use at both ends of the time is assumed to have
            lasted all that time.
        elapsed: Seconds since the beginning.
        tau: Time constant of decay in seconds; None: commitments do not decay.
    """
    if tau is None:
        return _bounded(remembered.commitments), min(remembered.others, LARGEST_COMMITMENT)
    commitments = {
        name: decayed(
            commitment,
            min(remembered.overuse.get(name, 0.0), overuse.get(name, 0.0)),
            elapsed,
            tau,
        )
        for name, commitment in remembered.commitments.items()
    }
    rest = decayed(remembered.others, 0.0, elapsed, tau)
    return _bounded(commitments), min(rest, LARGEST_COMMITMENT)


def _bounded(commitments: Mapping[str, float]) -> dict[str, float]:
    return {name: min(commitment, LARGEST_COMMITMENT) for name, commitment in commitments.items()}


class MemoryExport:
    """Exports the users' memory for the store, without changing the users."""

    def __init__(self, pools: RolePools, absent: AbsentUsers, weights: Weights) -> None:
        self._pools = pools
        self._absent = absent
        self._weights = weights
        self._all_changed = True

    def mark_all_changed(self) -> None:
        """Have the next `changes` return all users, because a user has been removed."""
        self._all_changed = True

    def steps(self) -> Cooperative[Memory]:
        """Return the users' commitments and orders. Generator for cooperative steps.

        Users must not change until the generator is exhausted.
        """
        absent = {name: self._absent.commitments_of(name) for name in self._absent}
        users = {name: Remembered(named, others=rest) for name, (named, rest) in absent.items()}
        for pool in self._pools:
            snapshot, standings = pool.still(), list[Standing[str]]()
            for standing in snapshot.standings_at(snapshot.now):
                standings.append(standing)
                yield
            for standing in sorted(standings, key=lambda item: (item.priority, item.user)):
                users[standing.user] = Remembered(
                    commitments=standing.commitments,
                    overuse=standing.overuse,
                    others=standing.inherited,
                    weight=self._weights.ordered(standing.user),
                    boost=self._weights.boost(standing.user),
                    mean_use=snapshot.accounts[standing.user].mean_use,
                )
        return Memory(time=self._pools.now, tau=self._pools.tau, users=users)

    def changes(self) -> MemoryChanges:
        """Return the users whose trajectory or orders changed since the last call; at first all."""
        pools = list(self._pools)
        changed = [pool.take_diverted() for pool in pools]
        complete = self._all_changed or None in changed
        self._all_changed = False
        trajectories = {
            user: self._trajectory(pool, user)
            for pool, users in zip(pools, changed, strict=True)
            for user in (pool.users() if complete or users is None else users)
        }
        if complete:
            trajectories |= {name: self._absent.trajectory(name) for name in self._absent}
        return MemoryChanges(self._pools.now, trajectories, complete)

    def _trajectory(self, pool: Pool[str], user: str) -> StoredTrajectory:
        """Return the commitment trajectory of a member of a pool, with the operators' orders."""
        since, commitments, overuse, inherited = pool.course(user)
        weight, boost = self._weights.ordered(user), self._weights.boost(user)
        remembered = Remembered(commitments, overuse, inherited, weight, boost)
        return StoredTrajectory(since, self._pools.tau, remembered)
