"""Why users have got nothing more, over time: seconds by reason, and a line in the log if it lasts.

All clients are looked at in turn, at a steady pace that leaves the loop to others.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Literal

import structlog

from allocator.cluster.engine import Engine
from allocator.cluster.frameworks.framework import Client
from allocator.cluster.reasons import ORDER, Why
from allocator.service.loop.cooperative import Work, spread
from allocator.service.loop.engine_lock import EngineLock
from allocator.service.masters.session import SessionStatistics
from allocator.service.show.explanations import in_words
from allocator.service.show.shadows import Shadows

EVERY = 5.0
"""Seconds between two tours at least."""
PACE = 30.0
"""The loop belongs to others for so many times what was spent here."""
LASTING = 300.0
"""Seconds of the master's clock after which a framework that holds nothing is told in the log."""
MOST_LINES = 20
"""Of the log, in one tour; others follow in the next."""
_FRESH = 60.0
"""Seconds of the master's clock for which what was found of the agents is good enough."""
_AT_ONCE = 50
_DECLINED = {"refused", "left_over"}
NO_MASTER = "no_master"
_RANK = {reason: rank for rank, reason in enumerate((NO_MASTER, *ORDER))}

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Wait:
    reason: str
    since: float
    told: bool = False


class Waits:
    """What keeps each client, and each user, from more.

    A user's reason is that of the client of its that is closest to an offer. What is found counts
    for all of the time since the tour before.

    Args:
        engine: Who knows.
        statistics: Whether a master is connected.
        shadows: Policies that follow; are told whom to pass over.
    """

    def __init__(
        self, engine: Engine, statistics: SessionStatistics, shadows: Shadows | None = None
    ) -> None:
        self._engine = engine
        self._shadows = Shadows({}) if shadows is None else shadows
        self.statistics = statistics
        self._clients: dict[Client, _Wait] = {}
        self._users: dict[str, str] = {}
        self._seconds: dict[str, dict[str, float]] = {}
        self._at: float | None = None
        """The master's clock at the tour before; None: there was none, or another master's."""
        self._alone = 0.0
        """Seconds without a master that have been counted."""
        self.passed_over = frozenset[str]()
        """The users that wanted offers at the latest look while no agent could serve them."""

    def reason(self, user: str) -> str | None:
        """Return what kept a user from more at the latest look; None: it has no framework."""
        return self._users.get(user)

    def takes_nothing(self, user: str) -> Literal["no_agent", "declines"] | None:
        """Return why a user that wanted offers at the latest look would take none."""
        if user in self.passed_over:
            return "no_agent"
        return "declines" if self._users.get(user) in _DECLINED else None

    def seconds(self, user: str) -> Mapping[str, float]:
        """Return by reason for how long a user has got nothing more, since the service began."""
        return self._seconds.get(user, {})

    def clients(self) -> Counter[str]:
        """Return by reason how many frameworks wait, each in each of its roles."""
        return Counter(wait.reason for wait in self._clients.values())

    def tour(self) -> Work[None]:
        """Look at all clients once."""
        found: dict[Client, str]
        alone = self.statistics.alone
        if alone is None:
            passed, self._alone = self._passed(), 0.0
            found = yield from self._look()
        else:
            passed, self._alone, self._at = max(alone - self._alone, 0.0), alone, None
            found = dict.fromkeys(self._engine.clients(), NO_MASTER)
        yield from self._count(found, passed)

    def _passed(self) -> float:
        before, self._at = self._at, self._engine.now
        return max(self._at - before, 0.0) if before is not None else 0.0

    def _look(self) -> Work[dict[Client, str]]:
        engine, found, lines = self._engine, dict[Client, str](), 0
        survey, surveyed = (yield from engine.survey()), engine.now
        for client in engine.clients():
            if abs(engine.now - surveyed) > _FRESH:
                survey, surveyed = (yield from engine.survey()), engine.now
            why = yield from survey.look(client)
            if why is not None:
                found[client] = why.reason
                lines += self._follow(why, quiet=lines >= MOST_LINES)
            yield
        self.passed_over = yield from survey.passed_over()
        if self._shadows.followers:
            declining = yield from survey.passed_over(declining=True)
            self._shadows.pass_over(engine, declining)
        return found

    def _follow(self, why: Why, *, quiet: bool) -> bool:
        """Note why a client waits; return whether that has become a line in the log."""
        engine, client = self._engine, why.client
        wait = self._clients.get(client)
        if wait is None or wait.reason != why.reason:
            wait = self._clients[client] = _Wait(why.reason, engine.now)
        if not why.idle:
            wait.since, wait.told = engine.now, False
        lasts = why.agents and engine.now - wait.since >= LASTING
        if quiet or wait.told or not lasts:
            return False
        wait.told = True
        _log.info(
            "framework gets no offers",
            framework=client.framework,
            name=engine.framework_name(client.framework),
            role=client.role,
            reason=why.reason,
            because=in_words(why, engine.now),
        )
        return True

    def _count(self, found: Mapping[Client, str], passed: float) -> Work[None]:
        """Count for users what was found of their clients; forget who is gone."""
        users: dict[str, str] = {}
        for number, (client, reason) in enumerate(found.items(), start=1):
            for user in self._engine.users_of(client):
                closest = users.get(user)
                if closest is None or _RANK[reason] < _RANK[closest]:
                    users[user] = reason
            if number % _AT_ONCE == 0:
                yield
        now = self._engine.now
        self._clients = {
            client: wait
            if (wait := self._clients.get(client)) is not None and wait.reason == reason
            else _Wait(reason, now)
            for client, reason in found.items()
        }
        known = set(self._engine.users())
        self._seconds = {u: each for u, each in self._seconds.items() if u in known}
        for user, reason in users.items():
            seconds = self._seconds.setdefault(user, {})
            seconds[reason] = seconds.get(reason, 0.0) + passed
        self._users = users


@asynccontextmanager
async def touring(waits: Waits, turn: EngineLock) -> AsyncIterator[None]:
    """Tour again and again while the block runs."""

    async def tour() -> None:
        while True:
            await asyncio.sleep(EVERY)
            try:
                await spread(waits.tour(), turn, rest=PACE)
            except Exception:  # noqa: BLE001 - who asks why must not find that nobody looks any more
                _log.exception("a tour of those who wait has failed; the next begins anew")

    task = asyncio.create_task(tour())
    try:
        yield
    finally:
        task.cancel()
