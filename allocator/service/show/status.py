"""Data of the status page as JSON: users, upcoming changes of the order, agents and offers."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from itertools import islice
from typing import Any

from allocator import __version__
from allocator.fairness.quantities import Quantities
from allocator.palette import user_colours
from allocator.service.loop.cooperative import Work
from allocator.service.show.explain import explain, upcoming
from allocator.service.show.explanations import collect_facts
from allocator.service.show.offer_trail import OfferRecord, Trail
from allocator.service.show.shadows import Shadows
from allocator.service.show.shares import UserShare, read_shares
from allocator.service.show.wait_reasons import Waits
from allocator.service.store.writer import StoreStatistics
from allocator.users.adapter import MachineSummary, SchedulerAdapter

MOST_USERS = 2000
MOST_AGENTS = 500
MOST_OVERTAKINGS = 10
MOST_TOLD = 5
"""Maximum number of task demands, and of placement constraints, that the page lists for one user.
"""


class Status:
    """Reads the status page's data from the adapter between two messages of the scheduler.

    Reading all data takes about as long as a scrape of the metrics. For each listed agent, it also
    takes O(users that hold a part of the agent). Reading changes nothing.
    """

    def __init__(
        self,
        adapter: SchedulerAdapter,
        waits: Waits,
        trail: Trail,
        stored: StoreStatistics | None,
        shadows: Shadows | None = None,
    ) -> None:
        self.waits = waits
        self._adapter = adapter
        self._statistics = waits.statistics
        self._trail = trail
        self._stored = stored
        self.shadows = Shadows({}) if shadows is None else shadows

    @property
    def connected(self) -> bool:
        """Whether the scheduler is in contact."""
        return self._statistics.connected

    @property
    def time(self) -> float:
        """The scheduler's clock, in seconds since the Unix epoch; 0 before the first event."""
        return self._adapter.now

    def first_view(self) -> Work[dict[str, Any]]:
        """Return all data that the status page shows first, in cooperative steps.

        The field `time` is the time at which reading began. Events may be applied between steps, so
        each item is as of that time or later.
        """
        adapter, read_at = self._adapter, self.time
        rows = yield from read_shares(adapter, adapter.users())
        constraints = adapter.constraints()
        colours = user_colours(row.user for row in rows[:MOST_USERS])
        users = []
        for row in rows[:MOST_USERS]:
            user = self._user(row, constraints.get(row.user, {}))
            users.append({**user, "colour": colours[row.user]})
            yield
        agents = []
        for agent in islice(adapter.machine_summaries(), MOST_AGENTS):
            agents.append(_agent(agent))
            yield
        shadows = yield from self._of_shadows()
        tau, counts = adapter.pool.policy.tau, adapter.counts()
        return {
            "version": __version__,
            "policy": adapter.pool.policy.name,
            "half_life": None if tau is None else tau * math.log(2.0),
            "time": read_at,
            "connected": self.connected,
            "standby": self._statistics.standby,
            "store": None
            if self._stored is None
            else {"degraded": self._stored.degraded, "left_out": self._stored.left_out},
            "words": asdict(adapter.wording.vocabulary.page),
            "agents_known": counts.machines,
            "frameworks": counts.applications,
            "capacity": _amounts(adapter.pool.capacity),
            "allocation": _amounts(adapter.pool.held()),
            "users_known": len(rows),
            "users": users,
            "shadows": shadows,
            "overtakings": list(islice(self._overtakings(), MOST_OVERTAKINGS)),
            "offers": [_offer(sighting) for sighting in reversed(self._trail.offers)],
            "agents": agents,
        }

    def rows(self) -> Work[list[UserShare]]:
        """Return the shares of all users, in cooperative steps."""
        return read_shares(self._adapter, self._adapter.users())

    def explanation(self, user: str, rows: list[UserShare]) -> Work[list[str] | None]:
        """Return sentences that explain a user's rank; None if the user is unknown.

        Args:
            user: The user.
            rows: The shares of all users.
        """
        row = next((row for row in rows if row.user == user), None)
        if row is None:
            return None
        facts = yield from collect_facts(self._adapter, user)
        cache = self.waits.add_record(facts, user)
        return list(explain(self._adapter, row, rows, cache).words)

    def about_unknown_user(self, user: str) -> Work[str]:
        """Return a hint about a user that is unknown, as the end of a sentence; often empty."""
        return self._adapter.wording.about_unknown_user(user)

    def _user(self, row: UserShare, constraints: Iterable[str]) -> dict[str, Any]:
        return {
            **_user(row),
            "constraints": list(islice(constraints, MOST_TOLD)),
            "kept_by": self.waits.brief_reason(row.user),
            "passed_over": row.user in self.waits.passed_over,
        }

    def _of_shadows(self) -> Work[list[dict[str, Any]]]:
        shadows = []
        for follower in self.shadows.followers:
            differences = yield from self.shadows.compare(self._adapter, follower)
            users = []
            for difference in differences[:MOST_USERS]:
                users.append(asdict(difference))
                yield
            shadows.append({"name": follower.name, "failure": follower.failure, "users": users})
        return shadows

    def _overtakings(self) -> Iterator[dict[str, Any]]:
        for passing in upcoming(self._adapter, self.waits.passed_over):
            yield {"after": passing.after, "passing": passing.passing, "passed": passing.passed}


def _user(row: UserShare) -> dict[str, Any]:
    standing = row.standing
    return {
        "user": row.user,
        "parent": row.parent,
        "rank": row.rank,
        "wants": standing.active,
        "weight": standing.weight,
        "entitlement": standing.entitlement,
        "share": standing.share,
        "commitment": row.dominant_commitment,
        "priority": standing.priority,
        "shortfall": row.shortfall,
        "offered": row.offered_share,
        "task_share": standing.task_share,
        "demands": [_amounts(demand) for demand in row.demands[:MOST_TOLD]],
    }


def _offer(record: OfferRecord) -> dict[str, Any]:
    return {
        "time": record.time,
        "user": record.user,
        "framework": record.framework,
        "host": record.host,
        "resources": dict(sorted(record.resources.items())),
        "why": record.why,
    }


def _agent(agent: MachineSummary) -> dict[str, Any]:
    return {
        "agent": agent.machine,
        "host": agent.hostname,
        "state": agent.state,
        "total": _amounts(agent.total),
        "free": _amounts(agent.free),
        "held": {user: _amounts(held) for user, held in sorted(agent.held.items())},
    }


def _amounts(quantities: Quantities) -> dict[str, float]:
    """Return amounts by resource, in alphabetical order, so that equal agents have equal JSON."""
    return dict(sorted(quantities.to_doubles().items()))
