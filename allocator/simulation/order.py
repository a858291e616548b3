"""Two implementations of the order in which a simulated cluster serves its users.

`Exact` is the live cluster's pool, whose accounts are exact at every instant. `Sampled` emulates a
scheduler that looks at usage once per period. Both have the same methods.
"""

from collections.abc import Iterator

from allocator.fairness.pool import Pool, Watch
from allocator.fairness.quantities import Quantities
from allocator.fairness.ranking import KeyRanking, Ranking
from allocator.simulation.originals.original import EmulatedScheduler, Key


class Exact(Pool[int]):
    """The order of users in a live cluster's pool, with exact accounts at every instant.

    The class has the same methods as `Sampled`, so that a simulator can use either.
    """

    def started(self, user: int, demand: Quantities) -> None:
        """Record that a user's task has started.

        Allocation counts are not used, so that among users of equal priority, the lower number is
        first.

        Args:
            user: The user's number.
            demand: Resources of the task.
        """
        self.allocate(user, demand, times=0)

    def ended(self, user: int, demand: Quantities, since: float) -> None:  # noqa: ARG002 - as in Sampled
        """Record that a user's task has ended.

        Args:
            user: The user's number.
            demand: Resources of the task.
            since: Time in seconds at which the task started; unused, as accounts are exact.
        """
        self.release(user, demand)

    def join(self, user: int, weight: float, commitments: dict[str, float]) -> None:
        """Add a user to the pool.

        Args:
            user: The user's number.
            weight: The user's weight.
            commitments: Initial commitments by resource, as fractions of the capacity.
        """
        self.add(user, weight=weight)
        # Policies that count tasks take the largest commitment of any resource.
        self.set_commitment(user, commitments, others=max(commitments.values(), default=0.0))


class Sampled:
    """The order of waiting users under an emulated scheduler, which samples usage periodically.

    Users are sorted by the scheduler's keys. Among equal users, the lower number is first.

    Args:
        original: The emulated scheduler, which keeps the users' accounts.
        watch: Wraps the ranking to count and time its operations.
    """

    def __init__(self, original: EmulatedScheduler, watch: Watch) -> None:
        self._original = original
        self._watch = watch
        self._now = 0.0
        self.weights: dict[int, float] = {}
        """Weight by user, for all users that have joined."""
        self._active: set[int] = set()
        self._changed: set[int] = set()
        """Active users whose sort key in the ranking may be out of date."""
        self._stale = False
        """True if the sort keys of all active users in the ranking may be out of date."""
        self._ranking = self._new_ranking()

    @property
    def active(self) -> int:
        """Number of users with a waiting task."""
        return len(self._active)

    @property
    def events(self) -> int:
        """Number of swaps in a Live Tree; always 0, as this class has no Live Tree."""
        return 0

    def join(self, user: int, weight: float, commitments: dict[str, float]) -> None:
        """Add a user.

        Args:
            user: The user's number.
            weight: The user's weight.
            commitments: Initial commitments by resource, as fractions of the capacity. The largest
                becomes the user's initial usage.
        """
        self.weights[user] = weight
        self._original.join(user, weight, max(commitments.values(), default=0.0))

    def set_active(self, user: int, active: bool) -> None:  # noqa: FBT001 - same signature as Pool
        """Record whether a user has a waiting task; only active users are in the order."""
        self._catch_up()
        if active:
            self._active.add(user)
            self._ranking.insert(user, self._original.key(user))
        else:
            self._active.remove(user)
            self._ranking.delete(user)
        self._original.wants(user, waiting=active)

    def advance(self, now: float) -> None:
        """Advance the clock to a later time, in seconds since the trace's origin."""
        self._now = now
        changed = self._original.renewed(now)
        if changed is None:
            self._stale = True
        else:
            self._changed.update(self._active.intersection(changed))

    def started(self, user: int, demand: Quantities) -> None:
        """Record that a user's task has started.

        Args:
            user: The user's number.
            demand: Resources of the task.
        """
        self._original.started(user, demand, self._now)
        self._changed.update(self._active & {user})

    def ended(self, user: int, demand: Quantities, since: float) -> None:
        """Record that a user's task has ended.

        Args:
            user: The user's number.
            demand: Resources of the task.
            since: Time in seconds at which the task started.
        """
        self._original.ended(user, demand, since, self._now)
        self._changed.update(self._active & {user})

    def minimum(self) -> int:
        """Return the first user in the order. At least one user must be active."""
        self._catch_up()
        return self._ranking.minimum()

    def __contains__(self, user: object) -> bool:
        return user in self.weights

    def __iter__(self) -> Iterator[int]:
        """Iterate over active users in the policy's order, first user first."""
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
