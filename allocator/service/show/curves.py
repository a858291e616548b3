"""How users stood over time: hours that a chronicle knows, then what this service has seen."""

import asyncio
from collections.abc import Collection, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol

from typing_extensions import override

from allocator.cluster.engine import Engine
from allocator.service.accounting import TooMuch
from allocator.service.accounting.accountant import Accountant
from allocator.service.show.offer_history import Sample, StandingHistory

if TYPE_CHECKING:
    from allocator.service.accounting.queries import Hour

MOST_ASKED = 100
"""Users in one answer."""
LONGEST = 31 * 86400.0
"""Seconds that an answer goes back."""
MOST_POINTS = 300
"""Of one user; a chart is not wider."""
_HOUR = 3600.0


class Chronicle(Protocol):
    """Remembers more than this service has seen."""

    async def hours(
        self, users: Collection[str], since: float, until: float
    ) -> "Sequence[Hour] | None":
        """Return how users stood in the hours that begin within a time; None: nobody answers."""


class Accounts(Chronicle):
    """The accounting database.

    Args:
        bookkeeper: Who reads it.
    """

    def __init__(self, bookkeeper: Accountant) -> None:
        self._bookkeeper = bookkeeper

    @override
    async def hours(
        self, users: Collection[str], since: float, until: float
    ) -> "Sequence[Hour] | None":
        from allocator.service.accounting.queries import hours_of  # noqa: PLC0415 - takes time

        with suppress(TooMuch):  # a chart is worth less than what is to be written meanwhile
            return await self._bookkeeper.read(lambda read: hours_of(read, since, until, users))
        return None


class Curves:
    """Answers how users stood.

    Args:
        engine: Says what time it is.
        past: What this service has seen.
        chronicle: What others have, if there is one.
    """

    def __init__(
        self, engine: Engine, past: StandingHistory, chronicle: Chronicle | None = None
    ) -> None:
        self._engine = engine
        self._past = past
        self._chronicle = chronicle
        self._asking = asyncio.Lock()
        """Of the chronicle, one at a time: who has a page open keeps no operator waiting."""

    async def read(self, users: Sequence[str], seconds: float) -> dict[str, Any]:
        """Return shares and commitments of users at instants that are the same for all.

        Nothing stands for what is not known.

        Args:
            users: Whose; the first `MOST_ASKED`.
            seconds: How far back, up to `LONGEST`.
        """
        users = users[:MOST_ASKED]
        until = self._engine.now
        since = max(until - min(seconds, LONGEST), 0.0)
        samples = [each for each in self._past.samples if each.time >= since]
        hours: Sequence[Hour] | None = ()
        if self._chronicle is not None:
            async with self._asking:
                hours = await self._chronicle.hours(users, since, until)
        return await asyncio.to_thread(self._told, users, (since, until), samples, hours)

    def _told(
        self,
        users: Sequence[str],
        asked: tuple[float, float],
        samples: list[Sample],
        hours: "Sequence[Hour] | None",
    ) -> dict[str, Any]:
        """Put together what is known. In a thread of its own, for it may be much."""
        since, until = asked
        instants = _from_hours(hours or (), _beginning(samples)) + _thinned(samples)
        return {
            "since": since,
            "until": until,
            "seen_since": samples[0].time if samples else None,
            "chronicle": None if self._chronicle is None else hours is not None,
            "times": [round(each.time, 3) for each in instants],
            "users": {
                user: [_column(instants, user, 0), _column(instants, user, 1)] for user in users
            },
        }


def _beginning(samples: list[Sample]) -> float:
    """Return from when on samples tell more than hours: they are closer together."""
    for sample, following in pairwise(samples):
        if following.time - sample.time < _HOUR / 2:
            return sample.time
    return samples[-1].time if samples else float("inf")


def _from_hours(hours: "Sequence[Hour]", until: float) -> list[Sample]:
    """Return how users stood in the middle of each hour."""
    middles: dict[float, dict[str, tuple[float, float]]] = {}
    for hour in hours:
        middle = hour.start + hour.seconds / 2
        if middle < until:
            middles.setdefault(middle, {})[hour.user] = hour.share, hour.commitment
    return [Sample(middle, users, whole=False) for middle, users in sorted(middles.items())]


def _thinned(samples: list[Sample]) -> list[Sample]:
    """Return as many as can be seen, the latest among them."""
    step = -(-len(samples) // MOST_POINTS)
    return samples[::-1][:: max(step, 1)][::-1]


def _column(instants: list[Sample], user: str, which: int) -> list[float | None]:
    return [
        round(sample.users[user][which], 4)
        if user in sample.users
        else 0.0
        if sample.whole
        else None
        for sample in instants
    ]
