"""Offer filters: what a framework has refused, and until when (§3.7).

There may be as many as clients times agents, so they are kept small: what was refused on an
agent is stored once for all clients that refused it, and each of them is a number in there.
"""

import heapq
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count

from google.protobuf.message import DecodeError

from allocator.cluster.frameworks.framework import Client
from allocator.cluster.input.quarantine import ValidationError
from allocator.cluster.resources import Resources
from allocator.contract import mesos_pb2 as mesos

DEFAULT_REFUSAL = 5.0
"""Seconds, where a framework gives none, or one that makes no sense."""
LONGEST_REFUSAL = 365 * 86400.0
_FEW = 64
"""So many slots, and as many as are in use, may wait to be swept out; with more, numbers of clients
would get long."""
_MANY = 1000
"""So many filters may, and as many as are in force; likewise instants of filters that are gone."""
_NANOSECONDS = 1_000_000_000


def read_refusal(filters: bytes) -> tuple[int, ValidationError | None]:
    """Return for how many nanoseconds a serialised Filters refuses, 0: not at all; what is wrong.

    One that cannot be read refuses for as long as one that does not say.
    """
    seconds, flaw = DEFAULT_REFUSAL, None
    try:
        seconds = mesos.Filters.FromString(filters).refuse_seconds
    except DecodeError as error:
        flaw = ValidationError("malformed", f"filters are not a serialised mesos.Filters: {error}")
    if math.isnan(seconds) or seconds < 0:
        seconds = DEFAULT_REFUSAL
    return int(min(seconds, LONGEST_REFUSAL) * _NANOSECONDS), flaw


@dataclass(slots=True, eq=False)
class _Refused:
    """The same resources of one agent, refused by any number of clients."""

    agent: str
    resources: Resources
    until: dict[int, int] = field(default_factory=dict)
    """slot of a client → last instant in ns"""
    mask: int = 0
    """A bit for each slot."""
    left_over: int = 0
    """A bit for each slot whose client had accepted the offer."""
    due: int | None = None
    """Instant after which somebody has to look here; None: nobody has to."""


class OfferFilters:
    """All offer filters in force.

    Clients are numbered by *slots*, the least that are free, for sets of clients have a bit for
    each. One that drops its filters gets another slot, which costs nothing; its old one is free
    when none of them is left, and they are swept out when there are many such slots, or filters.
    `add` costs O(log n) in instants, `blocked` and `refuses` O(different refusals on the agent).
    """

    def __init__(self) -> None:
        self._refused: dict[str, dict[object, _Refused]] = {}
        self._slots: dict[Client, int] = {}
        self._counts: dict[int, int] = {}
        """slot in use → number of filters"""
        self._left: dict[int, int] = {}
        """slot that nobody uses any more → filters that are left of it"""
        self._garbage = 0
        """The sum of these."""
        self._free: list[int] = []
        """Slots below the next that are neither, a heap."""
        self._next_slot = count()
        self._due: dict[int, dict[_Refused, None]] = {}
        """Instant after which to look → at what."""
        self._instants: list[int] = []
        """These, and some after which there is nothing to look at any more; a heap."""
        self._latest = 0
        self.version = 0
        """Changes when a client's slot does."""

    def __len__(self) -> int:
        return sum(self._counts.values())

    def count(self, client: Client) -> int:
        """Return how many filters a client has."""
        return self._counts[self._slots[client]] if client in self._slots else 0

    def slot(self, client: Client) -> int:
        """Return the number by which `blocked` knows a client."""
        slot = self._slots.get(client)
        if slot is None:
            slot = heapq.heappop(self._free) if self._free else next(self._next_slot)
            self._slots[client] = slot
            self._counts[slot] = 0
            self.version += 1
        return slot

    def add(
        self,
        client: Client,
        agent: str,
        refused: Resources,
        until_ns: int,
        *,
        left_over: bool = False,
    ) -> None:
        """Refuse these resources, or less, up to and including an instant.

        Args:
            client: Its filter.
            agent: The agent.
            refused: The resources.
            until_ns: The instant.
            left_over: Whether the client accepted the offer and did not use this; decides nothing.
        """
        if until_ns == self._latest:
            # The very object: ten million equal ones would be a third of a gigabyte.
            until_ns = self._latest
        self._latest = until_ns
        entries = self._refused.setdefault(agent, {})
        entry = entries.get(refused.key)
        if entry is None:
            entry = entries[refused.key] = _Refused(agent, refused)
        slot = self.slot(client)
        known = entry.until.get(slot)
        if known is None:
            entry.mask |= 1 << slot
            self._counts[slot] += 1
        if left_over:
            entry.left_over |= 1 << slot
        elif entry.left_over:
            entry.left_over &= ~(1 << slot)
        if known is None or known < until_ns:
            entry.until[slot] = until_ns
        if entry.due is None or until_ns < entry.due:
            self._look(entry, until_ns)

    def blocked(self, agent: str, available: Resources) -> int:
        """Return a bit for each client that refuses all that an agent has to offer."""
        mask = 0
        for entry in self._refused.get(agent, {}).values():
            if available in entry.resources:
                mask |= entry.mask
        return mask

    def on(self, agent: str) -> Iterator[tuple[int, Resources]]:
        """Go through what has been refused of an agent, with a bit for each client that has."""
        for entry in self._refused.get(agent, {}).values():
            yield entry.mask, entry.resources

    def any_by(self, client: Client, agent: str) -> bool:
        """Whether a client refuses anything of an agent."""
        entries = self._refused.get(agent)
        if entries is None:
            return False
        slot = self._slots.get(client)
        return any(slot in entry.until for entry in entries.values())

    def refuses(self, client: Client, agent: str, offer: Resources) -> bool:
        """Whether a filter contains all of the offer."""
        entries = self._refused.get(agent)
        slot = self._slots.get(client)
        if entries is None or slot is None:
            return False
        return any(slot in e.until and offer in e.resources for e in entries.values())

    def refused_until(self, client: Client, agent: str, offer: Resources) -> int | None:
        """Return the last instant in ns at which a filter contains all of the offer; None: none."""
        entries = self._refused.get(agent)
        slot = self._slots.get(client)
        if entries is None or slot is None:
            return None
        ends = (e.until[slot] for e in entries.values() if slot in e.until and offer in e.resources)
        return max(ends, default=None)

    def left_over(self, client: Client, agent: str, offer: Resources) -> bool:
        """Return whether all filters that contain the offer are of offers that were accepted."""
        slot = self._slots[client]
        return all(
            entry.left_over >> slot & 1
            for entry in self._refused[agent].values()
            if slot in entry.until and offer in entry.resources
        )

    def expire(self, now_ns: int) -> list[str]:
        """Drop filters whose last instant has passed; return the agents they were for."""
        agents: dict[str, None] = {}
        while self._instants and self._instants[0] < now_ns:
            for entry in self._due.pop(heapq.heappop(self._instants), {}):
                entry.due = None
                for slot in [slot for slot, until in entry.until.items() if until < now_ns]:
                    self._strike(entry, slot)
                agents[entry.agent] = None
                if entry.until:
                    self._look(entry, min(entry.until.values()))
                else:
                    self._forget(entry)
        return list(agents)

    def drop(self, client: Client) -> None:
        """Drop a client's filters."""
        slot = self._slots.get(client)
        if slot is None or not self._counts[slot]:
            return
        del self._slots[client]
        self._left[slot] = self._counts.pop(slot)
        self._garbage += self._left[slot]
        self.version += 1
        slots = len(self._left) > _FEW + len(self._counts)
        if slots or (self._garbage > _MANY and self._garbage > len(self)):
            self._sweep()

    def forget(self, client: Client) -> None:
        """Drop the filters of a client that is gone for good."""
        self.drop(client)
        slot = self._slots.pop(client, None)
        if slot is not None:
            del self._counts[slot]
            heapq.heappush(self._free, slot)

    def drop_agent(self, agent: str) -> None:
        """Drop all filters for the agent."""
        for entry in list(self._refused.get(agent, {}).values()):
            for slot in list(entry.until):
                self._strike(entry, slot)
            self._forget(entry)

    def _strike(self, entry: _Refused, slot: int) -> None:
        del entry.until[slot]
        entry.mask &= ~(1 << slot)
        if entry.left_over:
            entry.left_over &= ~(1 << slot)
        if slot in self._counts:
            self._counts[slot] -= 1
            return
        self._garbage -= 1
        self._left[slot] -= 1
        if not self._left[slot]:
            del self._left[slot]
            heapq.heappush(self._free, slot)

    def _look(self, entry: _Refused, when_ns: int) -> None:
        """Have an entry looked at after an instant, and at no other."""
        self._overlook(entry)
        entry.due = when_ns
        if when_ns not in self._due:
            self._due[when_ns] = {}
            heapq.heappush(self._instants, when_ns)
            if len(self._instants) > _MANY + 2 * len(self._due):
                self._instants = list(self._due)
                heapq.heapify(self._instants)
        self._due[when_ns][entry] = None

    def _overlook(self, entry: _Refused) -> None:
        """Have an entry looked at no more."""
        if entry.due is not None:
            those = self._due[entry.due]
            del those[entry]
            if not those:
                del self._due[entry.due]
            entry.due = None

    def _forget(self, entry: _Refused) -> None:
        self._overlook(entry)
        entries = self._refused[entry.agent]
        del entries[entry.resources.key]
        if not entries:
            del self._refused[entry.agent]

    def _sweep(self) -> None:
        """Clear out what nobody refuses any more."""
        left = sum(1 << slot for slot in self._left)
        for entries in list(self._refused.values()):
            for entry in [entry for entry in entries.values() if entry.mask & left]:
                for slot in [slot for slot in entry.until if slot in self._left]:
                    self._strike(entry, slot)
                if not entry.until:
                    self._forget(entry)
