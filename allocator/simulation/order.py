"""Two kinds of sorter for simulations: a live pool, and a system that samples usage."""

from collections.abc import Iterator

from allocator.fairness.pool import Pool, Watch
from allocator.fairness.quantities import Quantities
from allocator.fairness.ranking import KeyRanking, Ranking
from allocator.simulation.originals.original import Key, Original


class Exact(Pool[int]):
    """A live pool with the interface of `Sampled`: exact accounts at every instant."""

    def started(self, user: int, demand: Quantities) -> None:
        """Record that a task of a user has started. Among equal users, the lower number is next.

        Args:
            user: The user's number.
            demand: Resources of the task.
        """
        self.allocate(user, demand, times=0)

    def ended(self, user: int, demand: Quantities, since: float) -> None:  # noqa: ARG002 - as in Sampled
        """Record that a task has ended.

        Args:
            user: The user's number.
            demand: Resources of the task.
            since: Seconds at which the task started.
        """
        self.release(user, demand)

    def join(self, user: int, weight: float, commitments: dict[str, float]) -> None:
        """Add a user with its initial commitments, by resource."""
        self.add(user, weight=weight)
        # Policies that count tasks take the largest commitment of any resource.
        self.set_commitment(user, commitments, others=max(commitments.values(), default=0.0))


class Sampled:
    """Users in the order of an emulated scheduler's keys. Ties go to the lower user number.

    Args:
        original: The emulated scheduler, which keeps the users' accounts.
        watch: Counts and times the operations of the ranking.
    """

    def __init__(self, original: Original, watch: Watch) -> None:
        self._original = original
        self._watch = watch
        self._now = 0.0
        self.weights: dict[int, float] = {}
        """Weights of the users that have joined."""
        self._active: set[int] = set()
        self._changed: set[int] = set()
        """Active users whose keys may differ from the keys in the ranking."""
        self._stale = False
        """True if the keys of all active users may differ from the keys in the ranking."""
        self._ranking = self._new_ranking()

    @property
    def active(self) -> int:
        """Number of users that have a waiting task."""
        return len(self._active)

    @property
    def events(self) -> int:
        """Position changes that a Live Tree has processed: always 0, as there is no Live Tree."""
        return 0

    def join(self, user: int, weight: float, commitments: dict[str, float]) -> None:
        """Add a user with its initial commitments; only the largest of them counts."""
        self.weights[user] = weight
        self._original.join(user, weight, max(commitments.values(), default=0.0))

    def set_active(self, user: int, active: bool) -> None:  # noqa: FBT001 - same signature as Pool
        """Record whether a user has a waiting task."""
        self._catch_up()
        if active:
            self._active.add(user)
            self._ranking.insert(user, self._original.key(user))
        else:
            self._active.remove(user)
            self._ranking.delete(user)
        self._original.wants(user, waiting=active)

    def advance(self, now: float) -> None:
        """Advance the clock to a later instant, in seconds."""
        self._now = now
        changed = self._original.renewed(now)
        if changed is None:
            self._stale = True
        else:
            self._changed.update(self._active.intersection(changed))

    def started(self, user: int, demand: Quantities) -> None:
        """Record that a task of a user has started."""
        self._original.started(user, demand, self._now)
        self._changed.update(self._active & {user})

    def ended(self, user: int, demand: Quantities, since: float) -> None:
        """Record that a task has ended.

        Args:
            user: The user's number.
            demand: Resources of the task.
            since: Seconds at which the task started.
        """
        self._original.ended(user, demand, since, self._now)
        self._changed.update(self._active & {user})

    def minimum(self) -> int:
        """Return the next user in the order. At least one user must be active."""
        self._catch_up()
        return self._ranking.minimum()

    def __contains__(self, user: object) -> bool:
        return user in self.weights

    def __iter__(self) -> Iterator[int]:
        """Iterate over active users, the next user first."""
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
