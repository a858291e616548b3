"""What the status page remembers: how users stood over time, and why recent offers went out."""

from collections import deque
from dataclasses import dataclass
from itertools import islice

from allocator.cluster.engine import Engine
from allocator.cluster.resources import parse_allocated
from allocator.contract import allocator_pb2 as contract
from allocator.fairness.standing import PoolSnapshot
from allocator.service.loop.cooperative import Backlog, Work

MOST_SAMPLES = 360
"""Of the last hour, and of all the past; of the latter every other is dropped when it has more."""
EVERY = 10.0
"""Seconds of the master's clock between two samples of the last hour."""
MOST_USERS = 200
"""Whose past is kept: those who hold and owe most."""
_NOTHING = 1e-6
"""What is less than this part of the cluster."""
MOST_OFFERS = 50
"""Of the latest."""
QUEUE = 5
"""How many users at the head of the order are kept with an offer."""
_OFFERS_OF_A_RUN = 10
_EVERY = 1.0
"""Seconds of the master's clock between two runs that are kept, however many there are."""
_EVERY_IN_VAIN = 0.1
"""Likewise, while runs offer nothing."""


@dataclass(frozen=True, slots=True)
class Sample:
    """How users stood at an instant."""

    time: float
    """Of the master's clock, in seconds since the epoch."""
    users: dict[str, tuple[float, float]]
    """Dominant share and commitment, of those who held and owed most."""
    whole: bool
    """Whether all others held and owed nothing."""


class StandingHistory:
    """How users stood: of the last hour closely, and before at instants that get sparser.

    Looking costs O(users · resources), once in ten seconds of the master's clock. What is kept
    always reaches back to the first event.
    """

    def __init__(self) -> None:
        self._every = EVERY
        self._next = 0.0
        self._kept: list[Sample] = []
        self._recent: deque[Sample] = deque(maxlen=MOST_SAMPLES)
        self.backlog = Backlog()
        """A sample that has been taken and not been worked out yet."""

    @property
    def samples(self) -> list[Sample]:
        """Return all that is kept, the earliest first."""
        self.backlog.finish()
        since = self._recent[0].time if self._recent else 0.0
        return [*(sample for sample in self._kept if sample.time < since), *self._recent]

    def sample_until(self, engine: Engine, instant: float) -> None:
        """Look, if it is time, just before something changes; not before there is a cluster."""
        behind = instant < self._next - 2 * EVERY
        if (instant < self._next and not behind) or not engine.pool.capacity:
            return
        if behind:
            self.backlog.finish()
            self._kept.clear()  # another master, whose clock is behind
            self._recent.clear()
        self._next = instant + EVERY
        self.backlog.put(self._sample(engine.pool.still(), instant))

    def _sample(self, still: PoolSnapshot[str], instant: float) -> Work[None]:
        standings = []
        for standing in still.standings_at(instant):
            if max(standing.share, standing.commitment) > _NOTHING:
                standings.append(standing)
            yield
        standings.sort(key=lambda s: -max(s.share, s.commitment))
        users = {s.user: (s.share, s.commitment) for s in standings[:MOST_USERS]}
        self._keep(Sample(instant, users, whole=len(standings) <= MOST_USERS))

    def _keep(self, sample: Sample) -> None:
        self._recent.append(sample)
        if not self._kept or sample.time >= self._kept[-1].time + self._every:
            self._kept.append(sample)
        if len(self._kept) > MOST_SAMPLES:
            del self._kept[1::2]
            self._every *= 2


@dataclass(frozen=True, slots=True)
class OfferRecord:
    """One offer, and the order of those who wanted offers when it was made."""

    time: float
    """Of the master's clock, in seconds since the epoch."""
    user: str
    role: str
    framework: str
    host: str
    resources: dict[str, float]
    why: str


class OfferTrail:
    """Keeps the latest offers; of each second only those of one run, so that it costs nothing."""

    def __init__(self) -> None:
        self.offers: deque[OfferRecord] = deque(maxlen=MOST_OFFERS)
        self._next = 0.0
        self._queue: list[tuple[str, float]] | None = None

    def before_run(self, engine: Engine) -> None:
        """Note who is next, O(1)."""
        self._queue = None
        if self._next - 2 * _EVERY < engine.now < self._next:
            return
        self._queue = [
            (user, engine.pool.standing(user).priority) for user in islice(engine.pool, QUEUE)
        ]

    def after_run(self, engine: Engine, decisions: contract.Decisions) -> None:
        """Note who got what."""
        if self._queue is None:
            return
        self._next = engine.now + (_EVERY if decisions.offers else _EVERY_IN_VAIN)
        quotas = engine.quotas() if decisions.offers else {}
        made = ((each.framework_id, offer) for each in decisions.offers for offer in each.offers)
        for framework, offer in islice(made, _OFFERS_OF_A_RUN):
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
    """Say in words why the offer went to this user."""
    order = ", ".join(f"{name} {priority:.4f}" for name, priority in queue)
    place = next(
        (p for p, (name, _) in enumerate(queue) if user == name or user.startswith(f"{name}/")),
        None,
    )
    if has_quota:
        return f"Its role has a quota, which is met before the order: {order}."
    if place is None:
        return (
            f"Those ahead of it could not use it, had refused it, or had got something: {order}, …"
        )
    if place == 0:
        return f"It was next in the order: {order}."
    ahead = ", ".join(name for name, _ in queue[:place])
    return (
        f"It was number {place + 1} in the order: {order}. "
        f"{ahead} could not use it, had refused it, or had got something."
    )
