"""Records the latest offers of a Mesos engine, for the status page."""

from collections import deque
from collections.abc import Sequence
from itertools import islice

from allocator.cluster.engine import Engine
from allocator.cluster.resources import parse_allocated
from allocator.contract import allocator_pb2 as contract
from allocator.service.show.offer_trail import MOST_OFFERS, OfferRecord

QUEUE = 5
"""Number of users at the head of the order that are recorded with an offer."""
_OFFERS_OF_A_RUN = 10
_EVERY = 1.0
"""Seconds of the master's clock from a recorded allocation cycle with offers to the next recorded
cycle."""
_EVERY_IN_VAIN = 0.1
"""Seconds of the master's clock from a recorded allocation cycle without offers to the next
recorded cycle."""


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

    def after_run(self, engine: Engine, decisions: Sequence[contract.Decisions]) -> None:
        """Record the first offers of an allocation cycle; called by the engine after the cycle.

        Nothing is recorded if `before_run` has skipped this cycle.
        """
        if self._queue is None:
            return
        made = any(part.offers for part in decisions)
        self._next = engine.now + (_EVERY if made else _EVERY_IN_VAIN)
        quotas = engine.quotas() if made else {}
        offers = (
            (framework_offers.framework_id, offer)
            for part in decisions
            for framework_offers in part.offers
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
