"""History for the status page: past shares of users, and the latest offers with their reasons."""

from collections import deque
from dataclasses import dataclass
from itertools import islice

from allocator.cluster.engine import Engine
from allocator.cluster.resources import parse_allocated
from allocator.contract import allocator_pb2 as contract
from allocator.fairness.standing import PoolSnapshot
from allocator.service.loop.cooperative import PendingWork, Work

MOST_SAMPLES = 360
"""Maximum number of dense samples of the last hour, and of sparse samples of the whole past.

If the whole past has more samples, every other sample is dropped.
"""
EVERY = 10.0
"""Seconds of the master's clock between two samples of the last hour."""
MOST_USERS = 200
"""Maximum number of users in one sample: the users with the largest shares and commitments."""
_NOTHING = 1e-6
"""Fraction of the cluster below which a share or commitment is not recorded."""
MOST_OFFERS = 50
"""Maximum number of offers in the history; older offers are dropped."""
QUEUE = 5
"""Number of users at the head of the order that are recorded with an offer."""
_OFFERS_OF_A_RUN = 10
_EVERY = 1.0
"""Seconds of the master's clock from a recorded allocation cycle with offers to the next recorded
cycle."""
_EVERY_IN_VAIN = 0.1
"""Seconds of the master's clock from a recorded allocation cycle without offers to the next
recorded cycle."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Shares and commitments of the users with the largest values, at one instant."""

    time: float
    """Time on the master's clock, in seconds since the epoch."""
    users: dict[str, tuple[float, float]]
    """Dominant share and dominant commitment by user, as fractions of the cluster.

    Only the users with the largest values are contained.
    """
    complete: bool
    """True if each user that is not in `users` had neither a share nor a commitment."""


class StandingHistory:
    """Samples of users' shares and commitments: dense for the last hour, sparser before.

    The samples always reach back to the first event. Taking a sample costs O(users · resources),
    once in ten seconds of the master's clock.
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

    def sample_until(self, engine: Engine, instant: float) -> None:
        """Take a sample if one is due; called just before each change of the engine.

        Without agents no sample is taken.

        Args:
            engine: The engine, before the change.
            instant: Time of the change, in seconds since the epoch.
        """
        behind = instant < self._next - 2 * EVERY
        if (instant < self._next and not behind) or not engine.pool.capacity:
            return
        if behind:
            self.backlog.finish()
            self._kept.clear()  # the clock of another master, which is behind
            self._recent.clear()
        self._next = instant + EVERY
        self.backlog.put(self._sample(engine.pool.still(), instant))

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


@dataclass(frozen=True, slots=True)
class OfferRecord:
    """One offer, with a sentence that explains why its user got it."""

    time: float
    """Time on the master's clock, in seconds since the epoch."""
    user: str
    role: str
    framework: str
    host: str
    resources: dict[str, float]
    why: str


class OfferTrail:
    """Records the latest offers, each with the reason why its user got it, for the status page.

    The engine calls `before_run` and `after_run` around each allocation cycle. To bound the cost,
    at most one cycle with offers per second is recorded.
    """

    def __init__(self) -> None:
        self.offers: deque[OfferRecord] = deque(maxlen=MOST_OFFERS)
        self._next = 0.0
        self._queue: list[tuple[str, float]] | None = None

    def before_run(self, engine: Engine) -> None:
        """Note which users rank first, to explain the offers of the cycle that begins now. O(1).

        The engine calls this method. A cycle is skipped if the last recorded one was too recent.
        """
        self._queue = None
        if self._next - 2 * _EVERY < engine.now < self._next:
            return
        self._queue = [
            (user, engine.pool.standing(user).priority) for user in islice(engine.pool, QUEUE)
        ]

    def after_run(self, engine: Engine, decisions: contract.Decisions) -> None:
        """Record the first offers of an allocation cycle; called by the engine after the cycle.

        Nothing is recorded if `before_run` has skipped this cycle.
        """
        if self._queue is None:
            return
        self._next = engine.now + (_EVERY if decisions.offers else _EVERY_IN_VAIN)
        quotas = engine.quotas() if decisions.offers else {}
        offers = (
            (framework_offers.framework_id, offer)
            for framework_offers in decisions.offers
            for offer in framework_offers.offers
        )
        for framework, offer in islice(offers, _OFFERS_OF_A_RUN):
            user = engine.user(offer.role, framework) or offer.role
            amounts = parse_allocated(offer.resources)[1].scalars.to_doubles()
            self.offers.append(
                OfferRecord(
                    time=engine.now,
                    user=user,
                    role=offer.role,
                    framework=engine.framework_name(framework),
                    host=engine.agent_name(offer.agent_id),
                    resources=amounts,
                    why=_why(user, offer.role in quotas, self._queue),
                )
            )


def _why(user: str, has_quota: bool, queue: list[tuple[str, float]]) -> str:  # noqa: FBT001
    """Return a sentence that explains why an offer went to its user.

    Args:
        user: The user.
        has_quota: Whether the offer's role has a quota.
        queue: The users that ranked first before the allocation cycle, with their priorities.
    """
    order = ", ".join(f"{name} {priority:.4f}" for name, priority in queue)
    position = next(
        (
            index
            for index, (name, _) in enumerate(queue)
            if user == name or user.startswith(f"{name}/")
        ),
        None,
    )
    if has_quota:
        return f"Its role has a quota, which is served before the order of users: {order}."
    if position is None:
        return (
            "Each user ahead could not use the offer, had declined it, or had an offer already: "
            f"{order}, …"
        )
    if position == 0:
        return f"It was next in the order: {order}."
    ahead = ", ".join(name for name, _ in queue[:position])
    return (
        f"It was number {position + 1} in the order: {order}. "
        f"Each user ahead ({ahead}) could not use the offer, had declined it, or had an offer "
        "already."
    )
