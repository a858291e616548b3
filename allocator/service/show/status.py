"""What the status page shows, as JSON: users, debts and their past, overtakings, agents, offers."""

from collections.abc import Iterator
from itertools import islice
from typing import Any

from allocator import __version__
from allocator.cluster.engine import Engine, Place
from allocator.service.loop.slices import Work
from allocator.service.show.explain import explain
from allocator.service.show.shares import UserShare, reading
from allocator.service.show.sightings import OfferTrail, Past, Sighting
from allocator.service.show.waits import Waits
from allocator.service.show.why import BRIEFLY, Kept, look_into
from allocator.service.store.keeper import StoreStatistics

MOST_USERS = 500
MOST_AGENTS = 500
MOST_OVERTAKINGS = 10
MOST_LINES = 8
"""Users whose past is drawn: those who hold and owe most now."""


class Status:
    """Looks at the engine between two messages of the master; touches nothing.

    A look costs what a scrape of the metrics costs, and O(holders) for each agent that is listed.
    """

    def __init__(
        self,
        engine: Engine,
        waits: Waits,
        past: Past,
        trail: OfferTrail,
        stored: StoreStatistics | None,
    ) -> None:
        self.waits = waits
        self._engine = engine
        self._statistics = waits.statistics
        self._past = past
        self._trail = trail
        self._stored = stored

    @property
    def connected(self) -> bool:
        """Whether a leading master is connected."""
        return self._statistics.connected

    def now(self) -> Work[dict[str, Any]]:
        """Return everything that the page shows at first sight."""
        engine = self._engine
        rows = yield from reading(engine, engine.users())
        agents = []
        for place in islice(engine.places(), MOST_AGENTS):
            agents.append(_agent(place))
            yield
        return {
            "version": __version__,
            "policy": engine.pool.policy.name,
            "time": engine.now,
            "connected": self.connected,
            "standby": self._statistics.standby,
            "store": None if self._stored is None else {"degraded": self._stored.degraded},
            "agents_known": engine.agents,
            "frameworks": engine.frameworks,
            "capacity": engine.pool.capacity.to_doubles(),
            "allocation": engine.pool.held().to_doubles(),
            "users_known": len(rows),
            "users": [self._user(row) for row in rows[:MOST_USERS]],
            "overtakings": list(islice(self._overtakings(), MOST_OVERTAKINGS)),
            "past": self._drawn(rows),
            "offers": [_offer(sighting) for sighting in reversed(self._trail.offers)],
            "agents": agents,
        }

    def rows(self) -> Work[list[UserShare]]:
        """Return how all users stand."""
        return reading(self._engine, self._engine.users())

    def words(self, user: str, rows: list[UserShare]) -> Work[list[str] | None]:
        """Return why a user has its rank among all; None: it is not known."""
        row = next((row for row in rows if row.user == user), None)
        if row is None:
            return None
        found = yield from look_into(self._engine, user)
        kept = Kept(found, self.waits.seconds(user), self._statistics.alone)
        return list(explain(self._engine, row, rows, kept).words)

    def _user(self, row: UserShare) -> dict[str, Any]:
        reason = self.waits.reason(row.user)
        return {**_user(row), "kept_by": "" if reason is None else BRIEFLY[reason]}

    def _overtakings(self) -> Iterator[dict[str, Any]]:
        pool = self._engine.pool
        for when, left, right in pool.crossings():
            yield {"after": max(when - pool.now, 0.0), "passing": right, "passed": left}

    def _drawn(self, rows: list[UserShare]) -> dict[str, Any]:
        top = [row for row in rows if not row.parent]
        top.sort(key=lambda row: -max(row.standing.share, row.standing.commitment))
        samples = self._past.samples
        lines = {
            row.user: {
                "share": [users.get(row.user, (0.0, 0.0))[0] for _, users in samples],
                "commitment": [users.get(row.user, (0.0, 0.0))[1] for _, users in samples],
            }
            for row in top[:MOST_LINES]
        }
        return {"times": [instant for instant, _ in samples], "users": lines}


def _user(row: UserShare) -> dict[str, Any]:
    own = row.standing
    return {
        "user": row.user,
        "parent": row.parent,
        "rank": row.rank,
        "wants": own.active,
        "weight": own.weight,
        "entitlement": own.entitlement,
        "share": own.share,
        "commitment": row.owed,
        "priority": own.priority,
        "shortfall": row.shortfall,
        "allocation": {name: holding.allocation for name, holding in row.holdings.items()},
    }


def _offer(sighting: Sighting) -> dict[str, Any]:
    return {
        "time": sighting.time,
        "user": sighting.user,
        "framework": sighting.framework,
        "host": sighting.host,
        "resources": sighting.resources,
        "why": sighting.why,
    }


def _agent(place: Place) -> dict[str, Any]:
    return {
        "agent": place.agent,
        "host": place.hostname,
        "state": place.state,
        "total": place.total.to_doubles(),
        "free": place.free.to_doubles(),
        "held": {user: held.to_doubles() for user, held in place.held.items()},
    }
