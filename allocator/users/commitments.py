"""Stored commitments of absent virtual leaves, and the export of all users' state for the store.

A virtual leaf, `USER/.`, represents the clients of a user that has sub-users.
"""

from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from typing import Any

from allocator.cooperative import Cooperative
from allocator.fairness.account import Account
from allocator.fairness.bounds import LARGEST_COMMITMENT
from allocator.fairness.commitment import decayed
from allocator.fairness.pool import Pool
from allocator.fairness.standing import Standing
from allocator.users.memory import (
    NO_USE,
    AccumulatedUse,
    Memory,
    MemoryChanges,
    RememberedUser,
    StoredTrajectory,
)
from allocator.users.pools import UserPools
from allocator.users.weights import Weights

NEGLIGIBLE_COMMITMENT = 1e-3
"""A user whose dominant commitment is below this fraction of the capacity may be forgotten."""


class AbsentUsers:
    """Remembered commitments of virtual leaves (`USER/.`) that do not exist, or not yet.

    If such a leaf is created later, it starts with these commitments, decayed until then.
    """

    def __init__(self, pools: UserPools[Any]) -> None:
        self._pools = pools
        self._stored: dict[str, tuple[float, RememberedUser]] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(self._stored)

    def __contains__(self, name: object) -> bool:
        return name in self._stored

    def put(
        self,
        name: str,
        commitments: Mapping[str, float],
        rest: float,
        accumulated: AccumulatedUse = NO_USE,
    ) -> None:
        """Store the current commitments of a virtual leaf that does not exist.

        Args:
            name: The virtual leaf.
            commitments: Commitments by resource, as fractions of the capacity.
            rest: Commitment of every resource that `commitments` does not name.
            accumulated: Accumulated use.
        """
        self._stored[name] = (
            self._pools.now,
            RememberedUser(commitments, others=rest, accumulated=accumulated),
        )

    def discard(self, name: str) -> None:
        """Remove the stored commitments of a virtual leaf.

        Called once the leaf exists and has its own commitments, or if its user is forgotten.
        """
        self._stored.pop(name, None)

    def commitments_of(self, name: str) -> tuple[dict[str, float], float]:
        """Return a virtual leaf's current commitments, after decay; zero if the leaf is unknown.

        Returns:
            Commitments by resource, and the commitment of every other resource.
        """
        since, remembered = self._stored.get(name, (self._pools.now, RememberedUser()))
        return commitments_after(remembered, {}, self._pools.now - since, self._pools.tau)

    def accumulated_use_of(self, name: str) -> AccumulatedUse:
        """Return a virtual leaf's accumulated use; zero if the leaf is unknown."""
        _, remembered = self._stored.get(name, (0.0, RememberedUser()))
        return remembered.accumulated

    def trajectory(self, name: str) -> StoredTrajectory:
        """Return the commitments of a stored virtual leaf as functions of time."""
        since, remembered = self._stored[name]
        return StoredTrajectory(since, self._pools.tau, remembered)

    def forget_faded(self, known: Container[str]) -> list[str]:
        """Forget leaves whose commitments have decayed to almost zero.

        Args:
            known: Users with leaves to keep, because accumulated use does not decay.

        Returns:
            The names of the forgotten leaves.
        """
        faded = [
            name
            for name in self
            if not is_significant(*self.commitments_of(name))
            and name.removesuffix("/.") not in known
        ]
        for name in faded:
            del self._stored[name]
        return faded


def is_significant(commitments: Mapping[str, float], rest: float = 0.0) -> bool:
    """Return whether a user's commitments are so large that the user must not be forgotten.

    Args:
        commitments: Commitments by resource, as fractions of the capacity.
        rest: The commitment of every other resource; considered only if `commitments` is empty.
    """
    return max(commitments.values(), default=rest) >= NEGLIGIBLE_COMMITMENT


def is_used(remembered: RememberedUser) -> bool:
    """Return whether a user's mean use of a resource is at least `NEGLIGIBLE_COMMITMENT`."""
    return max(remembered.mean_use.values(), default=0.0) >= NEGLIGIBLE_COMMITMENT


def commitments_after(
    remembered: RememberedUser, overuse: Mapping[str, float], elapsed: float, tau: float | None
) -> tuple[dict[str, float], float]:
    """Return a user's commitments after a time in which they were not updated, such as a restart.

    Commitments grow with over-use, and decay.

    Args:
        remembered: The user's commitments and over-use at the beginning.
        overuse: Over-use at the end, by resource. The smaller of both over-uses is assumed for the
            whole time.
        elapsed: Seconds since the beginning.
        tau: Time constant of growth and decay in seconds; None: commitments do not change.

    Returns:
        Commitments by resource, and the commitment of every other resource.
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


_USERS_A_STEP = 200
"""Users in a cooperative step."""
_MOST_REMOVED = 10_000
"""Number of removed users above which the next export contains all users. While a store is away,
the names of removed users would otherwise fill the memory."""


class MemoryExport:
    """Exports commitments and operators' weights for the store, without changing the users.

    Args:
        pools: The pools of the users.
        absent: Stored commitments of absent virtual leaves.
        weights: The users' weights.
        keeps_accumulated_use: Whether accumulated use is exported, too.
    """

    def __init__(
        self,
        pools: UserPools[Any],
        absent: AbsentUsers,
        weights: Weights,
        *,
        keeps_accumulated_use: bool,
    ) -> None:
        self._pools = pools
        self._keeps_accumulated_use = keeps_accumulated_use
        self._absent = absent
        self._weights = weights
        self._all_changed = True
        self._removed = set[str]()
        """Users and virtual leaves removed since the last call of `changes`, or added again."""

    def mark_all_changed(self) -> None:
        """Make the next call of `changes` return all users."""
        self._all_changed = True
        self._removed = set()

    def mark_removed(self, names: Iterable[str]) -> None:
        """Record removed users for the next call of `changes`.

        If that call must return all users in any case, or many users have been removed since the
        last call, their names are not kept.
        """
        if self._all_changed:
            return
        self._removed.update(names)
        if len(self._removed) > _MOST_REMOVED:
            self.mark_all_changed()

    def steps(self) -> Cooperative[Memory]:
        """Return the memory to store: all users' commitments, and weights set by operators.

        Generator for cooperative steps. Users must not change until the generator is exhausted.
        """
        absent = {name: self._absent.commitments_of(name) for name in self._absent}
        users = {
            name: RememberedUser(
                named, others=rest, accumulated=self._absent.accumulated_use_of(name)
            )
            for name, (named, rest) in absent.items()
        }
        for pool in self._pools:
            snapshot, standings = (yield from pool.still_in_steps()), list[Standing[str]]()
            for standing in snapshot.standings_at(snapshot.now):
                standings.append(standing)
                yield
            for standing in sorted(standings, key=lambda item: (item.priority, item.user)):
                users[standing.user] = RememberedUser(
                    commitments=standing.commitments,
                    overuse=standing.overuse,
                    others=standing.inherited,
                    weight=self._weights.ordered(standing.user),
                    boost=self._weights.boost(standing.user),
                    mean_use=snapshot.accounts[standing.user].mean_use,
                    accumulated=self._accumulated(snapshot.accounts[standing.user], snapshot.now),
                )
        return Memory(time=self._pools.now, tau=self._pools.tau, users=users)

    def changes(self) -> Cooperative[MemoryChanges]:
        """Return the users whose trajectory, weight or boost has changed since the last call.

        A trajectory describes a user's commitments as functions of time. Only weights and boosts
        set by operators are considered.

        The first call returns all users, and so does a call after `mark_all_changed`. Costs
        O(resources) for each returned user, and O(1) for each removed user. Generator for
        cooperative steps. Users must not change until it is exhausted.
        """
        pools = list(self._pools)
        changed = [pool.take_diverted() for pool in pools]
        complete, self._all_changed = self._all_changed, False
        trajectories: dict[str, StoredTrajectory] = {}
        for pool, users in zip(pools, changed, strict=True):
            for user in pool.users() if complete or users is None else users:
                trajectories[user] = self._trajectory(pool, user)
                if not len(trajectories) % _USERS_A_STEP:
                    yield
        if complete:
            trajectories |= {name: self._absent.trajectory(name) for name in self._absent}
        removed: Collection[str] = () if complete else self._removed.difference(trajectories)
        self._removed = set()
        return MemoryChanges(self._pools.now, trajectories, complete, removed=removed)

    def _trajectory(self, pool: Pool[str], user: str) -> StoredTrajectory:
        """Return a user's commitments as functions of time, and the weights set by operators.

        Args:
            pool: The pool that the user competes in.
            user: A user or virtual leaf.
        """
        since, commitments, overuse, inherited = pool.course(user)
        remembered = RememberedUser(
            commitments,
            overuse,
            inherited,
            weight=self._weights.ordered(user),
            boost=self._weights.boost(user),
            accumulated=self._accumulated(pool.accounts()[user], since),
        )
        amounts = (*commitments.values(), *overuse.values(), inherited)
        needed = any(amounts) or self._weights.keeps(user) or self._keeps_accumulated_use
        return StoredTrajectory(since, self._pools.tau, remembered, needed)

    def _accumulated(self, account: Account, when: float) -> AccumulatedUse:
        """Return a user's accumulated use at a time in seconds; zero if use is not exported."""
        if not self._keeps_accumulated_use:
            return NO_USE
        return AccumulatedUse(account.cumulative_at(when), account.rate_of_use)
