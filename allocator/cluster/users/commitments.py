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
"""A dominant commitment below this does not keep a user known."""


class AbsentUsers:
    """Virtual leaves that are not there (yet), and what they owe."""

    def __init__(self, levels: RolePools) -> None:
        self._levels = levels
        self._since: dict[str, tuple[float, Remembered]] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(self._since)

    def __contains__(self, name: object) -> bool:
        return name in self._since

    def put(self, name: str, owed: Mapping[str, float], others: float) -> None:
        """Note what one owes now."""
        self._since[name] = self._levels.now, Remembered(owed, others=others)

    def discard(self, name: str) -> None:
        """Forget one, as it is there now."""
        self._since.pop(name, None)

    def owes(self, name: str) -> tuple[dict[str, float], float]:
        """Return what one owes now, by resource and of all others."""
        since, remembered = self._since.get(name, (self._levels.now, Remembered()))
        return settled(remembered, {}, self._levels.now - since, self._levels.tau)

    def course(self, name: str) -> StoredTrajectory:
        """Return how it goes on with one."""
        since, remembered = self._since[name]
        return StoredTrajectory(since, self._levels.tau, remembered)

    def forget_faded(self) -> bool:
        """Forget those that owe nothing any more; return whether there were some."""
        faded = [name for name in self if not matters(*self.owes(name))]
        for name in faded:
            del self._since[name]
        return bool(faded)


def matters(owed: Mapping[str, float], others: float = 0.0) -> bool:
    """Whether who owes that much is to stay known."""
    return max(owed.values(), default=others) >= FADED


def settled(
    remembered: Remembered, overuse: Mapping[str, float], elapsed: float, tau: float | None
) -> tuple[dict[str, float], float]:
    """Return what is owed after some time, by resource and of all others.

    Args:
        remembered: What was owed then.
        overuse: What is held in excess now; what was so then, too, was so in between.
        elapsed: Seconds since then.
        tau: Time constant in seconds; None: debts do not fade.
    """
    if tau is None:
        return _bounded(remembered.commitments), min(remembered.others, LARGEST_COMMITMENT)
    owed = {
        name: decayed(
            commitment,
            min(remembered.overuse.get(name, 0.0), overuse.get(name, 0.0)),
            elapsed,
            tau,
        )
        for name, commitment in remembered.commitments.items()
    }
    others = decayed(remembered.others, 0.0, elapsed, tau)
    return _bounded(owed), min(others, LARGEST_COMMITMENT)


def _bounded(owed: Mapping[str, float]) -> dict[str, float]:
    return {name: min(commitment, LARGEST_COMMITMENT) for name, commitment in owed.items()}


class MemoryExport:
    """Looks at the users for those who keep it; changes nothing of them."""

    def __init__(self, levels: RolePools, away: AbsentUsers, weights: Weights) -> None:
        self._levels = levels
        self._away = away
        self._weights = weights
        self._anew = True

    def begin_anew(self) -> None:
        """Have all be told when changes are next asked for, as somebody is no longer there."""
        self._anew = True

    def steps(self) -> Cooperative[Memory]:
        """Return what users owe now, and what was ordered; nothing may change meanwhile."""
        debts = {name: self._away.owes(name) for name in self._away}
        users = {name: Remembered(owed, others=others) for name, (owed, others) in debts.items()}
        for pool in self._levels:
            still, standings = pool.still(), list[Standing[str]]()
            for standing in still.standings_at(still.now):
                standings.append(standing)
                yield
            for standing in sorted(standings, key=lambda one: (one.priority, one.user)):
                users[standing.user] = Remembered(
                    commitments=standing.commitments,
                    overuse=standing.overuse,
                    others=standing.inherited,
                    weight=self._weights.ordered(standing.user),
                    boost=self._weights.boost(standing.user),
                    mean_use=still.accounts[standing.user].mean_use,
                )
        return Memory(time=self._levels.now, tau=self._levels.tau, users=users)

    def changes(self) -> MemoryChanges:
        """Return who goes on otherwise than when this was last asked; at first everybody."""
        pools = list(self._levels)
        changed = [pool.take_diverted() for pool in pools]
        complete = self._anew or None in changed
        self._anew = False
        courses = {
            user: self._course(pool, user)
            for pool, users in zip(pools, changed, strict=True)
            for user in (pool.users() if complete or users is None else users)
        }
        if complete:
            courses |= {name: self._away.course(name) for name in self._away}
        return MemoryChanges(self._levels.now, courses, complete)

    def _course(self, pool: Pool[str], user: str) -> StoredTrajectory:
        since, commitments, overuse, inherited = pool.course(user)
        weight, boost = self._weights.ordered(user), self._weights.boost(user)
        remembered = Remembered(commitments, overuse, inherited, weight, boost)
        return StoredTrajectory(since, self._levels.tau, remembered)
