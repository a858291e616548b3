"""What is handed on of users: who owes what, and what was ordered for them."""

from allocator.cluster.memory import Changes, Course, Memory, Remembered
from allocator.cluster.steps import Steps
from allocator.cluster.users.debts import Away
from allocator.cluster.users.levels import Levels
from allocator.cluster.weights import Weights
from allocator.fairness.pool import Pool
from allocator.fairness.standing import Standing


class Remembering:
    """Looks at the users for those who keep it; changes nothing of them."""

    def __init__(self, levels: Levels, away: Away, weights: Weights) -> None:
        self._levels = levels
        self._away = away
        self._weights = weights
        self._anew = True

    def begin_anew(self) -> None:
        """Have all be told when changes are next asked for, as somebody is no longer there."""
        self._anew = True

    def steps(self) -> Steps[Memory]:
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

    def changes(self) -> Changes:
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
        return Changes(self._levels.now, courses, complete)

    def _course(self, pool: Pool[str], user: str) -> Course:
        since, commitments, overuse, inherited = pool.course(user)
        weight, boost = self._weights.ordered(user), self._weights.boost(user)
        remembered = Remembered(commitments, overuse, inherited, weight, boost)
        return Course(since, self._levels.tau, remembered)
