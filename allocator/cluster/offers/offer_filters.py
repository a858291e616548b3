"""Offer filters: declined resources that a client is not offered again for some time.

There may be as many filters as clients times agents, so filters are stored compactly. Resources
declined on an agent are stored once for all clients that declined them. A filter is then one
number: its end for one client. See Mesos semantics, §3.7.
"""

import heapq
import math
from collections import Counter, OrderedDict
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from itertools import count

from google.protobuf.message import DecodeError

from allocator.cluster.frameworks.framework import Client
from allocator.cluster.input.quarantine import ValidationError
from allocator.cluster.resources import Resources
from allocator.cluster.resources.cache import Cache
from allocator.contract import mesos_pb2 as mesos
from allocator.cooperative import Cooperative, run_to_completion

DEFAULT_FILTER_SECONDS: float = mesos.Filters().refuse_seconds
"""Default length of a filter in seconds, also for an invalid length."""
LONGEST_REFUSAL = 365 * 86400.0
"""Maximum length of a filter in seconds: 365 days."""
_FEW = 64
"""Number of abandoned slots, in addition to the slots in use, at which abandoned filters are
removed. More slots would make client masks long."""
_INDEXED = 64
"""Number of different declined resources on an agent above which they are indexed by client."""
_MANY = 1000
"""Number of abandoned filters at which they are removed, if they are more than those in force.
Also the slack for outdated instants in the heap."""
_FILTERS_A_STEP = 1000
"""Number of filters and entries in a cooperative step."""
_KINDS = 16
"""Number of kinds in declined resources that take as much memory as an entry with few kinds."""
_OF_AN_AGENT = 25
"""The entries of one agent may weigh this fraction, 1/25, of the limit of all entries."""
_NANOSECONDS = 1_000_000_000
_DURATIONS: "Cache[bytes, tuple[int, ValidationError | None]]" = Cache(2**20)


def parse_filter_duration(filters: bytes) -> tuple[int, ValidationError | None]:
    """Parse a serialised Filters message; return the length of the requested filter.

    Frameworks decline with few different messages, so results are cached.

    Returns:
        The length in nanoseconds, with 0 for no filter, and a validation error, if any. An
        unreadable message counts as a message without a length, which means Mesos's default length.
    """
    known = _DURATIONS.get(filters)
    if known is None:
        known = _DURATIONS.put(filters, _parse_duration(filters), len(filters))
    return known


def _parse_duration(filters: bytes) -> tuple[int, ValidationError | None]:
    seconds, flaw = DEFAULT_FILTER_SECONDS, None
    try:
        seconds = mesos.Filters.FromString(filters).refuse_seconds
    except DecodeError as error:
        flaw = ValidationError("malformed", f"filters are not a serialised mesos.Filters: {error}")
    if math.isnan(seconds) or seconds < 0:
        seconds = DEFAULT_FILTER_SECONDS
    return int(min(seconds, LONGEST_REFUSAL) * _NANOSECONDS), flaw


@dataclass(slots=True, eq=False)
class _Declined:
    """One entry of `OfferFilters`: resources declined on an agent, and the declining clients.

    Clients that declined equal resources share an entry. Each client's filter has its own end.
    """

    agent: str
    resources: Resources
    number: int
    """Entries are numbered in the order of their creation."""
    until: dict[int, int] = field(default_factory=dict)
    """slot of a client → last instant of its filter in nanoseconds"""
    mask: int = 0
    """Bit mask of the slots in `until`."""
    left_over: int = 0
    """Bit mask of the slots whose client accepted the offer and returned these resources unused."""
    due: int | None = None
    """Instant, in nanoseconds, after which the entry must be checked; None: no check is due."""
    principal: str = ""
    """Principal for whose entries this entry counts."""
    weight: int = 1
    """Number of small entries that take as much memory."""
    compared: Resources | None = None
    """The available resources that `contains` had last as an argument."""
    contained: bool = False
    """The result of `contains` for `compared`."""

    def contains(self, available: Resources) -> bool:
        """Return whether the declined resources contain an agent's available resources.

        The last result is kept, because cycles examine most agents without a change again.
        """
        if available is not self.compared:
            self.compared, self.contained = available, available in self.resources
        return self.contained


class OfferFilters:
    """All offer filters in force.

    A set of clients is an integer used as a bit mask. A client's bit number is its *slot*, the
    smallest number that was free. A client that drops its filters gets a new slot, which is
    cheap. The old slot is then *abandoned*: its filters no longer count, and are removed later,
    when there are many.

    Costs: `add` is O(log n) in the number of different filter ends. `declining_clients` is
    O(different declined resources on the agent). `refuses` and the limit on a client's filters are
    O(`_INDEXED` + filters of the client on the agent). `add` is O(principals) at the limit of all
    entries.

    Args:
        most: Maximum number of a client's filters on one agent. Beyond the limit, the filter that
            ends first is dropped. 0: without a limit.
        most_entries: Maximum number of entries, which are different declined resources, counted on
            each agent. 16 kinds count like one entry. A 25th of the limit applies to each agent.
            Beyond a limit, the principal with the most entries loses its oldest. An entry counts
            for the principal that declined first, so an entry of many clients counts once. 0:
            without a limit.
    """

    def __init__(self, most: int = 0, most_entries: int = 0) -> None:
        self._most = most
        self._most_entries = most_entries
        self._weight = 0
        """Sum of the weights of all entries."""
        self._weights: dict[str, int] = {}
        """agent → sum of the weights of its entries"""
        self._owned: dict[str, OrderedDict[_Declined, None]] = {}
        """principal → its entries, oldest first. An ordinary dictionary would search for its first
        key among all keys that were deleted."""
        self._owned_weights: dict[str, int] = {}
        """principal → sum of the weights of its entries"""
        self._principals: dict[int, str] = {}
        """slot → principal of the client in the slot"""
        self._by_agent: dict[str, dict[object, _Declined]] = {}
        self._by_slot: dict[str, dict[int, dict[_Declined, None]]] = {}
        """agent → slot → entries that contain the slot, for agents with many entries. An index of
        all agents would double the memory of the filters."""
        self._numbers = count()
        self._slots: dict[Client, int] = {}
        self._counts: dict[int, int] = {}
        """slot in use → number of filters"""
        self._abandoned: dict[int, int] = {}
        """abandoned slot → number of remaining filters"""
        self._garbage = 0
        """Total number of filters of abandoned slots."""
        self._free: list[int] = []
        """Free slots below `_next_slot`; a heap."""
        self._next_slot = count()
        self._due: dict[int, dict[_Declined, None]] = {}
        """instant in nanoseconds → entries to check after the instant"""
        self._instants: list[int] = []
        """The keys of `_due`, and outdated instants without entries; a heap."""
        self._latest = 0
        self.moved: dict[Client, None] = {}
        """Known clients that have lost their slot since `ClientIndex` was updated."""

    def __len__(self) -> int:
        """The number of filters in force."""
        return sum(self._counts.values())

    def count(self, client: Client) -> int:
        """Return the number of a client's filters in force."""
        return self._counts[self._slots[client]] if client in self._slots else 0

    def by_role(self) -> dict[str, int]:
        """Return the number of filters in force by role, for roles that have any."""
        roles = Counter[str]()
        for client, slot in self._slots.items():
            if number := self._counts[slot]:
                roles[client.role] += number
        return roles

    def slot(self, client: Client) -> int:
        """Return a client's slot: the number of its bit in the masks of this class.

        The method assigns a slot to a client that has none. A slot changes if the client drops
        its filters; `moved` then contains the client.
        """
        slot = self._slots.get(client)
        if slot is None:
            slot = heapq.heappop(self._free) if self._free else next(self._next_slot)
            self._slots[client] = slot
            self._counts[slot] = 0
        return slot

    def add(  # noqa: PLR0913 - what a filter needs, two of them by name
        self,
        client: Client,
        agent: str,
        refused: Resources,
        until_ns: int,
        *,
        left_over: bool = False,
        principal: str = "",
    ) -> None:
        """Add a filter: the client is not offered these resources, or a part, for some time.

        Args:
            client: The client that declined.
            agent: The ID of the resources' agent.
            refused: The declined resources.
            until_ns: Last instant of the filter in nanoseconds.
            left_over: Whether the client accepted the offer and returned these resources unused.
                Only displays depend on it.
            principal: Principal of the client's framework; empty without one. All frameworks
                without a principal count as frameworks of one principal.
        """
        if until_ns == self._latest:
            # Shares one int object: ten million equal objects would take a third of a gigabyte.
            until_ns = self._latest
        self._latest = until_ns
        entries = self._by_agent.setdefault(agent, {})
        entry = entries.get(refused.key) or self._new_entry(agent, refused, principal)
        slot = self.slot(client)
        self._principals[slot] = principal
        known = entry.until.get(slot)
        if known is None:
            entry.mask |= 1 << slot
            self._counts[slot] += 1
            if agent in self._by_slot or len(entries) > _INDEXED:
                self._add_to_index(entry, slot)
        if left_over:
            entry.left_over |= 1 << slot
        elif entry.left_over:
            entry.left_over &= ~(1 << slot)
        if known is None or known < until_ns:
            entry.until[slot] = until_ns
        if entry.due is None or until_ns < entry.due:
            self._schedule_check(entry, until_ns)
        if 0 < self._most < len(entries) and known is None:
            self._drop_surplus(agent, slot)
        if self._most_entries:
            self._drop_beyond_limits(agent)

    def _new_entry(self, agent: str, refused: Resources, principal: str) -> _Declined:
        """Return a new entry without filters."""
        entry = _Declined(agent, refused, next(self._numbers), weight=1 + len(refused) // _KINDS)
        self._by_agent[agent][refused.key] = entry
        self._weight += entry.weight
        self._weights[agent] = self._weights.get(agent, 0) + entry.weight
        self._count_for(entry, principal)
        return entry

    def _count_for(self, entry: _Declined, principal: str) -> None:
        """Count an entry for a principal, as its newest."""
        entry.principal = principal
        self._owned.setdefault(principal, OrderedDict())[entry] = None
        self._owned_weights[principal] = self._owned_weights.get(principal, 0) + entry.weight

    def _count_for_nobody(self, entry: _Declined) -> None:
        """Count an entry for its principal no longer."""
        owned = self._owned[entry.principal]
        del owned[entry]
        self._owned_weights[entry.principal] -= entry.weight
        if not owned:
            del self._owned[entry.principal], self._owned_weights[entry.principal]

    def _drop_beyond_limits(self, agent: str) -> None:
        """Drop old filters until an agent's entries, and all entries, weigh no more than permitted.

        Args:
            agent: The ID of an agent that has got a new filter.
        """
        most = max(self._most_entries // _OF_AN_AGENT, 1)
        if self._weights.get(agent, 0) > most:
            self._drop_from_agent(agent, most)
        while self._weight > self._most_entries:
            largest = max(self._owned_weights, key=self._owned_weights.__getitem__)
            self._drop_for_owner(next(iter(self._owned[largest])))

    def _drop_from_agent(self, agent: str, most: int) -> None:
        """Drop filters of the principals with the most entries on an agent, the oldest first.

        Each entry is read once, however many entries change their principal.

        Args:
            agent: The ID of the agent.
            most: Maximum weight of the agent's entries afterwards.
        """
        weights: dict[str, int] = {}
        owned: dict[str, list[tuple[int, _Declined]]] = {}  # heaps
        for entry in self._by_agent[agent].values():
            owned.setdefault(entry.principal, []).append((entry.number, entry))
            weights[entry.principal] = weights.get(entry.principal, 0) + entry.weight
        while self._weights.get(agent, 0) > most:
            principal, oldest = "", None
            for name, entries in owned.items():
                first = (-weights[name], entries[0][0])
                if oldest is None or first < oldest:
                    principal, oldest = name, first
            _, entry = heapq.heappop(owned[principal])
            weights[principal] -= entry.weight
            if not owned[principal]:
                del owned[principal]
            self._drop_for_owner(entry)
            if entry.until:
                heapq.heappush(owned.setdefault(entry.principal, []), (entry.number, entry))
                weights[entry.principal] = weights.get(entry.principal, 0) + entry.weight

    def _drop_for_owner(self, entry: _Declined) -> None:
        """Drop the filters of one entry that clients of the entry's principal have.

        Filters of other principals' clients in the same entry stay. The entry then counts for one
        of these principals.

        A framework of Mesos 1.8 can subscribe again with another principal. Its entries count for
        the former principal until this method finds them; they then count for the new principal,
        and no filter is dropped. Since Mesos 1.9, masters refuse such a subscription.

        Args:
            entry: An entry with filters.
        """
        principals = self._principals
        for slot in [slot for slot in entry.until if principals[slot] == entry.principal]:
            self._remove(entry, slot)
        if not entry.until:
            self._forget(entry)
            return
        self._count_for_nobody(entry)
        self._count_for(entry, principals[next(iter(entry.until))])

    def _add_to_index(self, entry: _Declined, slot: int) -> None:
        """Add a new filter to the index of an agent with many entries.

        Args:
            entry: The declined resources.
            slot: The bit number of the declining client.
        """
        index = self._by_slot.get(entry.agent)
        if index is None:
            index = self._by_slot[entry.agent] = {}
            for known in self._by_agent[entry.agent].values():
                for client in known.until:
                    index.setdefault(client, {})[known] = None
        index.setdefault(slot, {})[entry] = None

    def _entries_of(self, agent: str, slot: int) -> Collection[_Declined]:
        """Return the entries of an agent that contain a slot.

        Args:
            agent: An agent with filters.
            slot: A client's bit number.
        """
        index = self._by_slot.get(agent)
        if index is not None:
            return index.get(slot, ())
        return [entry for entry in self._by_agent[agent].values() if slot in entry.until]

    def _drop_surplus(self, agent: str, slot: int) -> None:
        """Drop a client's filter that ends first, if the client has too many on one agent.

        Args:
            agent: The agent's ID.
            slot: The client's bit number.
        """
        own = self._entries_of(agent, slot)
        if len(own) > self._most:
            first = min(own, key=lambda entry: (entry.until[slot], entry.number))
            self._remove(first, slot)
            if not first.until:
                self._forget(first)

    def declining_clients(self, agent: str, available: Resources, among: int = -1) -> int:
        """Return the clients that decline all available resources of an agent, as a bit mask.

        Bit n is set for the client whose `slot` is n.

        Args:
            agent: The agent's ID.
            available: The agent's available resources.
            among: Bit mask of the clients to examine; -1: all clients.
        """
        remaining = among
        for entry in self._by_agent.get(agent, {}).values():
            if entry.mask & remaining and entry.contains(available):
                remaining &= ~entry.mask
        return among & ~remaining

    def few_declining_clients(self, agent: str, available: Resources, among: int) -> int:
        """Return the same as `declining_clients`; faster for few clients and many filters.

        Args:
            agent: The ID of an agent with filters.
            available: Resources of the agent.
            among: Bit mask of the clients to examine.
        """
        declining, contained, remaining = 0, dict[_Declined, bool](), among
        while remaining:
            bit = remaining & -remaining
            remaining ^= bit
            for entry in self._entries_of(agent, bit.bit_length() - 1):
                if entry not in contained:
                    contained[entry] = available in entry.resources
                if contained[entry]:
                    declining |= bit
                    break
        return declining

    def clients_on(self, agent: str) -> int:
        """Return the clients with a filter on an agent, as a bit mask. O(filters)."""
        clients = 0
        for entry in self._by_agent.get(agent, {}).values():
            clients |= entry.mask
        return clients

    def declined_on(self, agent: str) -> Iterator[tuple[int, Resources]]:
        """Iterate over an agent's declined resources: pairs of declining clients and resources.

        The clients are given as a bit mask: bit n is set for the client whose `slot` is n.
        """
        for entry in self._by_agent.get(agent, {}).values():
            yield entry.mask, entry.resources

    def has_filter(self, client: Client, agent: str) -> bool:
        """Return whether a client has a filter in force on an agent, for any resources."""
        if agent not in self._by_agent or not self.count(client):
            return False
        return bool(self._entries_of(agent, self._slots[client]))

    def refuses(self, client: Client, agent: str, offer: Resources) -> bool:
        """Return whether a client declines an offer: a filter contains the whole offer."""
        if agent not in self._by_agent or not self.count(client):
            return False
        own = self._entries_of(agent, self._slots[client])
        return any(offer in entry.resources for entry in own)

    def refused_until(self, client: Client, agent: str, offer: Resources) -> int | None:
        """Return the last instant, in nanoseconds, at which a client's filters decline an offer.

        Returns None if no filter of the client contains the whole offer.
        """
        slot = self._slots.get(client)
        if agent not in self._by_agent or slot is None:
            return None
        own = self._entries_of(agent, slot)
        return max((entry.until[slot] for entry in own if offer in entry.resources), default=None)

    def declined_until(self, client: Client, agent: str, names: Collection[str]) -> int | None:
        """Return the last instant, in nanoseconds, of filters on declined offers with resources.

        Unused resources of accepted offers do not count. The result is None without a filter on
        a declined offer.

        Args:
            client: The client.
            agent: The agent's ID.
            names: Names of the resources in the declined offer.
        """
        slot = self._slots.get(client)
        if agent not in self._by_agent or slot is None:
            return None
        ends = (
            entry.until[slot]
            for entry in self._entries_of(agent, slot)
            if not entry.left_over >> slot & 1
            and all(name in entry.resources.quantities for name in names)
        )
        return max(ends, default=None)

    def left_over(self, client: Client, agent: str, offer: Resources) -> bool:
        """Return whether a client would decline an offer only because of earlier accepted offers.

        An accepted offer sets a filter if the client leaves a part of the offer unused. The result
        is True if every filter that contains the offer was set in this way.

        Args:
            client: A client with a filter that contains the offer.
            agent: The agent's ID.
            offer: The resources that could be offered.
        """
        slot = self._slots[client]
        return all(
            entry.left_over >> slot & 1
            for entry in self._entries_of(agent, slot)
            if offer in entry.resources
        )

    def expire(self, now_ns: int) -> list[str]:
        """Remove the filters that have ended; return the IDs of the agents that they concerned.

        Args:
            now_ns: The current time in nanoseconds.
        """
        return run_to_completion(self.expire_in_steps(now_ns))

    def expire_in_steps(self, now_ns: int) -> Cooperative[list[str]]:
        """Generator form of `expire`, because hundreds of thousands of filters may end at once."""
        agents, removed = dict[str, None](), 0
        while self._instants and self._instants[0] < now_ns:
            for entry in self._due.pop(heapq.heappop(self._instants), {}):
                entry.due = None
                for slot in [slot for slot, until in entry.until.items() if until < now_ns]:
                    self._remove(entry, slot)
                    removed += 1
                    if not removed % _FILTERS_A_STEP:
                        yield
                agents[entry.agent] = None
                if entry.until:
                    self._schedule_check(entry, min(entry.until.values()))
                else:
                    self._forget(entry)
        return list(agents)

    def drop(self, client: Client) -> None:
        """Drop all filters of a client, for example because the client has revived its offers."""
        run_to_completion(self.drop_in_steps(client))

    def drop_in_steps(self, client: Client) -> Cooperative[None]:
        """Generator form of `drop`, because filters of all clients may have to be examined."""
        slot = self._slots.get(client)
        if slot is None or not self._counts[slot]:
            return
        del self._slots[client]
        self._abandoned[slot] = self._counts.pop(slot)
        self._garbage += self._abandoned[slot]
        self.moved[client] = None
        slots = len(self._abandoned) > _FEW + len(self._counts)
        if slots or (self._garbage > _MANY and self._garbage > len(self)):
            yield from self._sweep()

    def forget(self, client: Client) -> None:
        """Drop all filters of a client that is removed, and free its slot."""
        run_to_completion(self.forget_in_steps(client))

    def forget_in_steps(self, client: Client) -> Cooperative[None]:
        """Generator form of `forget`."""
        yield from self.drop_in_steps(client)
        self.moved.pop(client, None)
        slot = self._slots.pop(client, None)
        if slot is not None:
            del self._counts[slot]
            heapq.heappush(self._free, slot)

    def drop_agent(self, agent: str) -> None:
        """Drop the filters of all clients on an agent."""
        for entry in list(self._by_agent.get(agent, {}).values()):
            for slot in list(entry.until):
                self._remove(entry, slot)
            self._forget(entry)

    def _remove(self, entry: _Declined, slot: int) -> None:
        """Remove one client's filter from the clients that declined certain resources.

        Args:
            entry: The declined resources; afterwards, `entry` may be without filters.
            slot: The client's bit number.
        """
        del entry.until[slot]
        entry.mask &= ~(1 << slot)
        index = self._by_slot.get(entry.agent)
        if index is not None:
            del index[slot][entry]
            if not index[slot]:
                del index[slot]
        if entry.left_over:
            entry.left_over &= ~(1 << slot)
        if slot in self._counts:
            self._counts[slot] -= 1
            return
        self._garbage -= 1
        self._abandoned[slot] -= 1
        if not self._abandoned[slot]:
            del self._abandoned[slot]
            heapq.heappush(self._free, slot)

    def _schedule_check(self, entry: _Declined, when_ns: int) -> None:
        """Schedule when `expire` next looks for ended filters among those of certain resources.

        Args:
            entry: The declined resources, with their filters. An earlier schedule is replaced.
            when_ns: Time in nanoseconds after which a filter may have ended.
        """
        self._cancel_check(entry)
        entry.due = when_ns
        if when_ns not in self._due:
            self._due[when_ns] = {}
            heapq.heappush(self._instants, when_ns)
            if len(self._instants) > _MANY + 2 * len(self._due):
                self._instants = list(self._due)
                heapq.heapify(self._instants)
        self._due[when_ns][entry] = None

    def _cancel_check(self, entry: _Declined) -> None:
        """Cancel what `_schedule_check` has scheduled for these declined resources, if anything."""
        if entry.due is not None:
            entries = self._due[entry.due]
            del entries[entry]
            if not entries:
                del self._due[entry.due]
            entry.due = None

    def _forget(self, entry: _Declined) -> None:
        """Remove declined resources from the index of their agent, because no filter is left."""
        self._cancel_check(entry)
        self._count_for_nobody(entry)
        self._weight -= entry.weight
        self._weights[entry.agent] -= entry.weight
        if not self._weights[entry.agent]:
            del self._weights[entry.agent]
        entries = self._by_agent[entry.agent]
        del entries[entry.resources.key]
        if len(entries) <= _INDEXED // 2:  # less than for a new index: it is not created often
            self._by_slot.pop(entry.agent, None)
        if not entries:
            del self._by_agent[entry.agent]

    def _sweep(self) -> Cooperative[None]:
        """Remove filters dropped by clients, to free the bits of these filters.

        `drop` only marks the client's slot as abandoned, because removal at once would be slow.
        """
        mask, passed = sum(1 << slot for slot in self._abandoned), 0
        for entries in list(self._by_agent.values()):
            passed += len(entries)
            for entry in [entry for entry in entries.values() if entry.mask & mask]:
                for slot in [slot for slot in entry.until if slot in self._abandoned]:
                    self._remove(entry, slot)
                    passed += 1
                if not entry.until:
                    self._forget(entry)
            if passed >= _FILTERS_A_STEP:
                yield
                passed = 0
