"""Who did what in an event log: the tasks that users ran, and the capacity they shared.

An allocator never sees a task, only offers and what comes back of them. What a framework keeps
of an offer is taken for tasks that began with the offer; what comes back later without a
filter, for tasks that ended, the earliest first.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from allocator.cluster.engine import Engine
from allocator.cluster.limits import Limits
from allocator.cluster.sieve import Sieve
from allocator.contract import allocator_pb2 as contract
from allocator.contract import log_pb2 as log
from allocator.fairness.quantities import Quantities
from allocator.service.record.replay import perform

_LIMITS = Limits()
_NANOSECONDS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Task:
    """Something that held resources for a time. Times are the master's, in seconds."""

    user: str
    ready: float
    """Since when its framework had been taking what it was offered."""
    start: float
    end: float
    demand: Quantities


@dataclass(slots=True)
class History:
    """What happened from the first snapshot to the last event."""

    begin: float = 0.0
    end: float = 0.0
    tasks: list[Task] = field(default_factory=list)
    capacities: list[tuple[float, Quantities]] = field(default_factory=list)
    """Instants from which on there was so much."""
    weights: dict[str, float] = field(default_factory=dict)
    """Of users, in the end."""
    excluded: tuple[str, ...] = ()
    """Resources that do not count in shares."""
    debts: dict[str, tuple[dict[str, float], float]] = field(default_factory=dict)
    """What users owed in the beginning: by resource, and of resources not named."""
    commitments: dict[str, float] = field(default_factory=dict)
    """Dominant commitments in the end."""


@dataclass(slots=True)
class _Held:
    ready: float
    start: float
    rest: Quantities


_Place = tuple[str, str, str]
"""framework, role, agent"""


def reconstruct(engine: Engine, entries: Iterable[log.LogEntry]) -> History:
    """Work out from a log who ran what.

    Args:
        engine: A new one, as the log's header wants it.
        entries: All but the header.
    """
    builder = _Builder(engine)
    for entry in entries:
        builder.follow(entry)
    return builder.finished()


class _Builder:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._history = History()
        self._held: dict[_Place, list[_Held]] = {}
        self._users: dict[tuple[str, str], str] = {}
        self._hungry: dict[tuple[str, str], float] = {}
        """(framework, role) → since when it has kept something of every offer"""

    def follow(self, entry: log.LogEntry) -> None:
        """Take in the next entry."""
        before, event_time = self._engine.sequence, self._engine.now
        outcome = perform(self._engine, entry)
        now = self._engine.now
        if entry.HasField("restore") and not outcome.refusal:
            self._restored(entry.restore, now)
        elif entry.HasField("apply"):
            applied = self._engine.sequence - before  # not those that were refused
            for event in entry.apply.events.events[:applied]:
                event_time = max(event_time, event.time_ns / _NANOSECONDS)
                self._applied(event, event_time)
        for offers in contract.Decisions.FromString(outcome.decisions).offers:
            for offer in offers.offers:
                self._offered(offers.framework_id, offer, now)
        self._note_capacity(now)

    def finished(self) -> History:
        """Return all of it; what still runs ends with the log."""
        self._history.end = self._engine.now
        self._leave_all(list(self._held), self._history.end)
        standings = self._engine.standings()
        self._history.weights = {s.user: s.weight for s in standings}
        self._history.commitments = {s.user: s.commitment for s in standings}
        return self._history

    def _restored(self, restored: log.LogRestore, now: float) -> None:
        """Begin what the master knows and the log does not, and end what the master does not."""
        if not self._history.begin:
            self._history.begin = now
            self._history.excluded = tuple(restored.options.fairness_excluded)
            self._history.debts = {
                s.user: (s.commitments, s.inherited) for s in self._engine.standings()
            }
        used: dict[_Place, Quantities] = {}
        for agent in restored.snapshot.agents:
            for place, quantities in _used(agent.agent_id, agent.used):
                used[place] = used.get(place, Quantities()) + quantities
        for place in list(self._held):
            known = self._sum(place)
            self._ended(place, now, known - _both(known, used.get(place, Quantities())))
        for place, quantities in used.items():
            more = quantities - _both(quantities, self._sum(place))
            if more:
                self._hold(place, now, now, more)

    def _applied(self, event: contract.Event, now: float) -> None:
        """Take in an event that has been applied."""
        call = event.WhichOneof("call")
        if call in ("add_agent", "add_resource_provider"):
            added = event.add_agent if call == "add_agent" else event.add_resource_provider
            for place, quantities in _used(added.agent_id, added.used):
                self._hold(place, now, now, quantities)
        elif call == "add_framework":
            for place in [p for p in self._held if p[0] == event.add_framework.framework_id]:
                self._learn_user(place)
        elif call == "recover_resources":
            self._recovered(event.recover_resources, now)
        elif call == "reject_offer":
            role, resources = Sieve(_LIMITS).allocated(event.reject_offer.resources)
            rejected = event.reject_offer
            self._refused((rejected.framework_id, role, rejected.agent_id), resources.scalars)
        elif call == "remove_agent":
            gone = event.remove_agent.agent_id
            self._leave_all([place for place in self._held if place[2] == gone], now)
        elif call == "remove_framework":
            gone = event.remove_framework.framework_id
            self._leave_all([place for place in self._held if place[0] == gone], now)

    def _recovered(self, call: contract.RecoverResources, now: float) -> None:
        role, resources = Sieve(_LIMITS).allocated(call.resources)
        place = (call.framework_id, role, call.agent_id)
        if call.HasField("filters"):
            self._refused(place, resources.scalars)
        else:
            self._ended(place, now, resources.scalars)

    def _offered(self, framework: str, offer: contract.Offer, now: float) -> None:
        role, resources = Sieve(_LIMITS).allocated(offer.resources)
        ready = self._hungry.setdefault((framework, role), now)
        self._hold((framework, role, offer.agent_id), ready, now, resources.scalars)

    def _hold(self, place: _Place, ready: float, now: float, quantities: Quantities) -> None:
        self._learn_user(place)
        self._held.setdefault(place, []).append(_Held(ready, now, quantities))

    def _learn_user(self, place: _Place) -> None:
        """Note who the user is, as long as the framework is known; its agents may come first."""
        framework, role, _ = place
        user = self._engine.user(role, framework)
        if user is not None:
            self._users[framework, role] = user

    def _sum(self, place: _Place) -> Quantities:
        return sum((held.rest for held in self._held.get(place, [])), Quantities())

    def _refused(self, place: _Place, quantities: Quantities) -> None:
        """Take back from the latest offers what was not wanted."""
        for held in reversed(self._held.get(place, [])):
            taken = _both(held.rest, quantities)
            held.rest, quantities = held.rest - taken, quantities - taken
            if taken and not held.rest:  # of this one nothing was kept
                self._hungry.pop(place[:2], None)
        self._clear(place)

    def _ended(self, place: _Place, now: float, quantities: Quantities) -> None:
        """End the earliest tasks, or parts of them, that held so much."""
        for held in self._held.get(place, []):
            taken = _both(held.rest, quantities)
            self._record(place, held, now, taken)
            held.rest, quantities = held.rest - taken, quantities - taken
        self._clear(place)

    def _clear(self, place: _Place) -> None:
        left = [held for held in self._held.pop(place, []) if held.rest]
        if left:
            self._held[place] = left

    def _leave_all(self, places: list[_Place], now: float) -> None:
        for place in places:
            for held in self._held.pop(place):
                self._record(place, held, now, held.rest)

    def _record(self, place: _Place, held: _Held, now: float, demand: Quantities) -> None:
        user = self._users.get(place[:2])
        if user is not None and demand and now > held.start:
            self._history.tasks.append(Task(user, held.ready, held.start, now, demand))

    def _note_capacity(self, now: float) -> None:
        capacities, capacity = self._history.capacities, self._engine.pool.capacity
        if not capacities or capacities[-1][1] != capacity:
            capacities.append((now, capacity))


def _used(
    agent: str, allocations: Iterable[contract.Allocation]
) -> Iterator[tuple[_Place, Quantities]]:
    for allocation in allocations:
        for role, resources in Sieve(_LIMITS).used(allocation.resources).items():
            yield (allocation.framework_id, role, agent), resources.scalars


def _both(a: Quantities, b: Quantities) -> Quantities:
    return Quantities({name: min(amount, b[name]) for name, amount in a.items()})
