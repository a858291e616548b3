"""History for the status page: shares and commitments of users in the past."""

from collections import deque
from dataclasses import dataclass

from allocator.cooperative import run_to_completion
from allocator.fairness.standing import PoolSnapshot
from allocator.service.loop.cooperative import PendingWork, Work
from allocator.users.adapter import SchedulerAdapter

MOST_SAMPLES = 360
"""Maximum number of dense samples of the last hour, and of sparse samples of the whole past.

If the whole past has more samples, every other sample is dropped.
"""
EVERY = 10.0
"""Seconds of the scheduler's clock between two samples of the last hour."""
MOST_USERS = 200
"""Maximum number of users in one sample: the users with the largest shares and commitments."""
_NOTHING = 1e-6
"""Fraction of the cluster below which a share or commitment is not recorded."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Shares and commitments of the users with the largest values, at one instant."""

    time: float
    """Time on the scheduler's clock, in seconds since the epoch."""
    users: dict[str, tuple[float, float]]
    """Dominant share and dominant commitment by user, as fractions of the cluster.

    Only the users with the largest values are contained.
    """
    complete: bool
    """True if each user that is not in `users` had neither a share nor a commitment."""


class StandingHistory:
    """Samples of users' shares and commitments: dense for the last hour, sparser before.

    The samples always reach back to the first event. Taking a sample costs O(users · resources),
    once in ten seconds of the scheduler's clock.
    """

    def __init__(self) -> None:
        self._every = EVERY
        self._next = 0.0
        self._kept: list[Sample] = []
        self._recent: deque[Sample] = deque(maxlen=MOST_SAMPLES)
        self.backlog = PendingWork()
        """The latest sample, while it is being computed in steps."""

    @property
    def samples(self) -> list[Sample]:
        """All samples, the earliest first; an unfinished sample is completed first."""
        self.backlog.finish()
        since = self._recent[0].time if self._recent else 0.0
        return [*(sample for sample in self._kept if sample.time < since), *self._recent]

    def sample_until(self, adapter: SchedulerAdapter, instant: float) -> None:
        """Take a sample if one is due; called just before each change of the adapter."""
        work = self.sampling(adapter, instant)
        if work is not None:
            run_to_completion(work)

    def sampling(self, adapter: SchedulerAdapter, instant: float) -> Work[None] | None:
        """Return the steps that take a sample before a change; None if no sample is due.

        Without machines no sample is taken.

        Args:
            adapter: The adapter, before the change.
            instant: Time of the change, in seconds since the epoch.
        """
        if self._next - 2 * EVERY <= instant < self._next or not adapter.pool.capacity:
            return None
        if instant < self._next:
            self.backlog.finish()
            self._kept.clear()  # the clock of another master, which is behind
            self._recent.clear()
        self._next = instant + EVERY
        return self._copy(adapter, instant)

    def _copy(self, adapter: SchedulerAdapter, instant: float) -> Work[None]:
        snapshot = yield from adapter.pool.still_in_steps()
        self.backlog.put(self._sample(snapshot, instant))

    def _sample(self, snapshot: PoolSnapshot[str], instant: float) -> Work[None]:
        standings = []
        for standing in snapshot.standings_at(instant):
            if max(standing.share, standing.commitment) > _NOTHING:
                standings.append(standing)
            yield
        standings.sort(key=lambda standing: -max(standing.share, standing.commitment))
        users = {
            standing.user: (standing.share, standing.commitment)
            for standing in standings[:MOST_USERS]
        }
        self._keep(Sample(instant, users, complete=len(standings) <= MOST_USERS))

    def _keep(self, sample: Sample) -> None:
        self._recent.append(sample)
        if not self._kept or sample.time >= self._kept[-1].time + self._every:
            self._kept.append(sample)
        if len(self._kept) > MOST_SAMPLES:
            del self._kept[1::2]
            self._every *= 2
