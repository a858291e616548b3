"""Who is next in a simulation: by a live pool, or as a system that looks at users now and then."""

from collections.abc import Iterator

from allocator.fairness.pool import Pool, Watch
from allocator.fairness.quantities import Quantities
from allocator.fairness.ranking import KeyRanking, Ranking
from allocator.simulation.originals.original import Key, Original


class Exact(Pool[int]):
    """A live pool, told of tasks."""

    def started(self, user: int, demand: Quantities) -> None:
        """Note that a task of a user has started; of equals, the lower number is next."""
        self.allocate(user, demand, times=0)

    def ended(self, user: int, demand: Quantities, since: float) -> None:  # noqa: ARG002 - others ask
        """Note that a task is over which had started then, in seconds."""
        self.release(user, demand)

    def join(self, user: int, weight: float, owed: dict[str, float]) -> None:
        """Make a user known with what it owes, by resource."""
        self.add(user, weight=weight)
        # Debts in tasks, of policies that count those, are the largest of any resource.
        self.set_commitment(user, owed, others=max(owed.values(), default=0.0))


class Sampled:
    """Users in the order of an original's keys; of equals, the lower number is next.

    Args:
        original: Keeps their accounts.
        watch: Sees what keeping order takes.
    """

    def __init__(self, original: Original, watch: Watch) -> None:
        self._original = original
        self._watch = watch
        self._now = 0.0
        self.weights: dict[int, float] = {}
        """Of users who are known."""
        self._active: set[int] = set()
        self._changed: set[int] = set()
        """Active users whose keys may be others than they are ranked by."""
        self._stale = False
        """Whether all of them may be."""
        self._ranking = self._new_ranking()

    @property
    def active(self) -> int:
        """How many users have a task that waits."""
        return len(self._active)

    @property
    def events(self) -> int:
        """Position changes that a Live Tree has looked at: there is none."""
        return 0

    def join(self, user: int, weight: float, owed: dict[str, float]) -> None:
        """Make a user known with what it owes, by resource; one number stands for all."""
        self.weights[user] = weight
        self._original.join(user, weight, max(owed.values(), default=0.0))

    def set_active(self, user: int, active: bool) -> None:  # noqa: FBT001 - as a pool has it
        """Say whether a user has a task that waits."""
        self._catch_up()
        if active:
            self._active.add(user)
            self._ranking.insert(user, self._original.key(user))
        else:
            self._active.remove(user)
            self._ranking.delete(user)
        self._original.wants(user, more=active)

    def advance(self, now: float) -> None:
        """Move to a later instant, in seconds."""
        self._now = now
        changed = self._original.renewed(now)
        if changed is None:
            self._stale = True
        else:
            self._changed.update(self._active.intersection(changed))

    def started(self, user: int, demand: Quantities) -> None:
        """Note that a task of a user has started."""
        self._original.started(user, demand, self._now)
        self._changed.update(self._active & {user})

    def ended(self, user: int, demand: Quantities, since: float) -> None:
        """Note that a task is over which had started then, in seconds."""
        self._original.ended(user, demand, since, self._now)
        self._changed.update(self._active & {user})

    def minimum(self) -> int:
        """Return the active user that is next; there must be one."""
        self._catch_up()
        return self._ranking.minimum()

    def __contains__(self, user: object) -> bool:
        return user in self.weights

    def __iter__(self) -> Iterator[int]:
        """Go through active users, the next one first."""
        self._catch_up()
        return iter(self._ranking)

    def _catch_up(self) -> None:
        if self._stale:
            self._ranking = self._new_ranking()
            for user in self._active:
                self._ranking.insert(user, self._original.key(user))
            self._stale = False
        else:
            for user in self._changed:
                self._ranking.replace(user, self._original.key(user))
        self._changed.clear()

    def _new_ranking(self) -> Ranking[int, Key]:
        return self._watch(KeyRanking())
