"""Offer filters: what a framework has refused, and until when (§3.7)."""

import heapq
import math
from collections.abc import Collection
from dataclasses import dataclass
from itertools import count

from allocator.cluster.resources import Resources

DEFAULT_REFUSAL = 5.0
"""Seconds, where a framework gives none, or one that makes no sense."""
LONGEST_REFUSAL = 365 * 86400.0
_NANOSECONDS = 1_000_000_000


def refusal_ns(refuse_seconds: float) -> int:
    """Turn what a framework gives for `refuse_seconds` into nanoseconds; 0: no filter."""
    if math.isnan(refuse_seconds) or refuse_seconds < 0:
        refuse_seconds = DEFAULT_REFUSAL
    return int(min(refuse_seconds, LONGEST_REFUSAL) * _NANOSECONDS)


@dataclass(slots=True, eq=False)
class _Filter:
    framework: str
    role: str
    agent: str
    refused: Resources
    """An offer that this contains is not made."""


class OfferFilters:
    """All offer filters in force.

    `add` and expiry cost O(log filters); `refuses` looks only at filters of the framework,
    role and agent in question.
    """

    def __init__(self) -> None:
        self._by_place: dict[str, dict[tuple[str, str], list[_Filter]]] = {}
        self._deadlines: list[tuple[int, int, _Filter]] = []
        self._serial = count()
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(self, framework: str, role: str, agent: str, refused: Resources, until_ns: int) -> None:
        """Refuse these resources, or less, up to and including an instant."""
        entry = _Filter(framework, role, agent, refused)
        self._by_place.setdefault(agent, {}).setdefault((framework, role), []).append(entry)
        heapq.heappush(self._deadlines, (until_ns, next(self._serial), entry))
        self._size += 1
        if len(self._deadlines) > 2 * self._size + 64:
            self._compact()

    def refuses(self, framework: str, role: str, agent: str, offer: Resources) -> bool:
        """Whether a filter contains all of the offer."""
        clients = self._by_place.get(agent)
        if clients is None:
            return False
        return any(offer in entry.refused for entry in clients.get((framework, role), ()))

    def expire(self, now_ns: int) -> None:
        """Drop filters whose last instant has passed."""
        while self._deadlines and self._deadlines[0][0] < now_ns:
            entry = heapq.heappop(self._deadlines)[2]
            key = (entry.framework, entry.role)
            clients = self._by_place.get(entry.agent, {})
            entries = clients.get(key, [])
            if entry in entries:
                entries.remove(entry)
                self._size -= 1
                if not entries:
                    self._forget(entry.agent, key)

    def drop(self, framework: str, roles: Collection[str] | None = None) -> None:
        """Drop the framework's filters, of all roles or of some; O(agents with filters)."""
        for agent in list(self._by_place):
            for key in list(self._by_place[agent]):
                if key[0] == framework and (roles is None or key[1] in roles):
                    self._size -= len(self._by_place[agent][key])
                    self._forget(agent, key)
                    if agent not in self._by_place:
                        break

    def drop_agent(self, agent: str) -> None:
        """Drop all filters for the agent."""
        dropped = self._by_place.pop(agent, {})
        self._size -= sum(map(len, dropped.values()))

    def _compact(self) -> None:
        """Leave out deadlines of filters that were dropped: a refusal may last a year."""
        alive = {
            id(entry)
            for clients in self._by_place.values()
            for entries in clients.values()
            for entry in entries
        }
        self._deadlines = [deadline for deadline in self._deadlines if id(deadline[2]) in alive]
        heapq.heapify(self._deadlines)

    def _forget(self, agent: str, key: tuple[str, str]) -> None:
        clients = self._by_place[agent]
        del clients[key]
        if not clients:
            del self._by_place[agent]
