"""Who did what in an event log: the tasks that users ran, and the capacity they shared.

An allocator never sees a task, only offers and what comes back of them. What a framework keeps
of an offer is taken for tasks that began with the offer; what comes back later without a
filter, for a task that ended: the earliest that held at least that. What ends together and would
do for several whole tasks is so many of them, if it is known what one needs.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from allocator.cluster.agents.placement_constraints import Constraint
from allocator.cluster.engine import Engine
from allocator.cluster.frameworks.framework import Client
from allocator.cluster.input.limits import Limits
from allocator.cluster.input.resource_parser import ResourceParser
from allocator.contract import allocator_pb2 as contract
from allocator.contract import log_pb2 as log
from allocator.fairness.quantities import Quantities
from allocator.service.record.agent_history import AgentIntervals, Presence
from allocator.service.record.readiness import Readiness
from allocator.service.record.replay import perform

_LIMITS = Limits()
_NANOSECONDS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class RecordedTask:
    """Something that held resources for a time. Times are the master's, in seconds."""

    user: str
    ready: float
    """Since when its framework had been taking what it was offered."""
    start: float
    end: float
    demand: Quantities
    framework: str = ""
    """Its id."""
    constraints: tuple[Constraint, ...] = ()
    """Its framework's own and the operator's; agents must meet all of them."""


@dataclass(slots=True)
class History:
    """What happened from the first snapshot to the last event."""

    begin: float = 0.0
    end: float = 0.0
    tasks: list[RecordedTask] = field(default_factory=list)
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
    presences: list[Presence] = field(default_factory=list)
    """Agents, in no order."""
    first_weights: dict[str, float] = field(default_factory=dict)
    """Of users, when each was first seen at the end of a log or after its snapshot."""
    entitlements: dict[str, float] = field(default_factory=dict)
    """Of users, in the end."""
    gaps: list[tuple[float, float]] = field(default_factory=list)
    """From the end of a log to the snapshot of the next: nobody knows what happened then."""
    running_at_first: int = 0
    """Tasks that were there before the log, and began with it."""
    cut_off: int = 0
    """Tasks that were still there when the log ended, and ended with it."""


@dataclass(slots=True)
class _Held:
    ready: float
    start: float
    rest: Quantities
    at_first: bool = False


_MOST = 10_000
"""Tasks that something held together is taken for; with more, it is one."""

_Place = tuple[str, str, str]
"""framework, role, agent"""


def reconstruct(engine: Engine, entries: Iterable[log.LogEntry]) -> History:
    """Work out from a log who ran what.

    Args:
        engine: A new one, as the log's header wants it.
        entries: All but the header.
    """
    return reconstruct_all([(engine, entries)])


def reconstruct_all(logs: Iterable[tuple[Engine, Iterable[log.LogEntry]]]) -> History:
    """Work out from one log after the other who ran what.

    Args:
        logs: Of each its new engine and all entries but the header, in order of time.
    """
    builder = _Builder()
    for engine, entries in logs:
        builder.begin(engine)
        for entry in entries:
            builder.follow(entry)
        builder.note_weights()
    return builder.finished()


class _Builder:
    _engine: Engine

    def __init__(self) -> None:
        self._history = History()
        self._held: dict[_Place, list[_Held]] = {}
        self._users: dict[tuple[str, str], str] = {}
        self._needs: dict[tuple[str, str], Quantities] = {}
        self._constraints: dict[str, tuple[Constraint, ...]] = {}
        self._readiness = Readiness()
        self._attendance = AgentIntervals()
        self._ended_at: float | None = None
        """When the log before ended, until this one's snapshot."""
        self._tells_running = False

    def begin(self, engine: Engine) -> None:
        """Turn to another log."""
        if self._history.begin:
            self._ended_at = self._engine.now
        self._engine = engine

    def note_weights(self) -> None:
        """Note the weights of users that have not been seen before."""
        for standing in self._engine.standings():
            self._history.first_weights.setdefault(standing.user, standing.weight)

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
        self._history.presences = self._attendance.until(self._history.end)
        before = len(self._history.tasks)
        self._leave_all(list(self._held), self._history.end)
        self._history.cut_off = len(self._history.tasks) - before
        standings = self._engine.standings()
        self._history.weights = {s.user: s.weight for s in standings}
        self._history.commitments = {s.user: s.commitment for s in standings}
        self._history.entitlements = {s.user: s.entitlement for s in standings}
        return self._history

    def _restored(self, restored: log.LogRestore, now: float) -> None:
        """Begin what the master knows and the log does not, and end what the master does not."""
        first = not self._history.begin
        if first:
            self._history.begin = now
            self._history.excluded = tuple(restored.options.fairness_excluded)
            self._history.debts = {
                s.user: (s.commitments, s.inherited) for s in self._engine.standings()
            }
        if self._ended_at is not None:
            self._history.gaps.append((self._ended_at, now))
            self._ended_at = None
        self._tells_running = restored.options.tells_running
        self.note_weights()
        for framework in restored.snapshot.frameworks:
            self._learn_constraints(framework.framework_id)
        self._readiness.look_at_all(self._engine, now)
        agents = [agent.agent_id for agent in restored.snapshot.agents]
        self._attendance.look_at_all(self._engine, agents, now)
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
                self._hold(place, now, now, more, at_first=first)

    def _applied(self, event: contract.Event, now: float) -> None:
        """Take in an event that has been applied."""
        call = event.WhichOneof("call")
        self._readiness.follow(event, self._engine, now)
        self._attend(event, now)
        if call in ("add_agent", "add_resource_provider"):
            added = event.add_agent if call == "add_agent" else event.add_resource_provider
            for place, quantities in _used(added.agent_id, added.used):
                self._hold(place, now, now, quantities)
        elif call in ("add_framework", "update_framework"):
            self._learn_constraints(getattr(event, call).framework_id)
        if call == "add_framework":
            for place in [p for p in self._held if p[0] == event.add_framework.framework_id]:
                self._learn_user(place)
        elif call == "recover_resources":
            self._recovered(event.recover_resources, now)
        elif call == "reject_offer":
            role, resources = ResourceParser(_LIMITS).allocated(event.reject_offer.resources)
            rejected = event.reject_offer
            self._refused((rejected.framework_id, role, rejected.agent_id), resources.scalars)
        elif call == "remove_agent":
            gone = event.remove_agent.agent_id
            self._leave_all([place for place in self._held if place[2] == gone], now)
        elif call == "remove_framework":
            gone = event.remove_framework.framework_id
            self._leave_all([place for place in self._held if place[0] == gone], now)

    def _recovered(self, call: contract.RecoverResources, now: float) -> None:
        role, resources = ResourceParser(_LIMITS).allocated(call.resources)
        place = (call.framework_id, role, call.agent_id)
        # A master that tells what runs tells of an offer that it takes back, too.
        unused = self._tells_running and not call.is_allocated
        if call.HasField("filters") or unused:
            self._refused(place, resources.scalars)
        else:
            self._ended(place, now, resources.scalars)

    def _offered(self, framework: str, offer: contract.Offer, now: float) -> None:
        role, resources = ResourceParser(_LIMITS).allocated(offer.resources)
        ready = self._readiness.offered(Client(role, framework), now)
        self._hold((framework, role, offer.agent_id), ready, now, resources.scalars)

    def _hold(
        self,
        place: _Place,
        ready: float,
        now: float,
        quantities: Quantities,
        *,
        at_first: bool = False,
    ) -> None:
        self._learn_user(place)
        self._held.setdefault(place, []).append(_Held(ready, now, quantities, at_first))

    def _learn_user(self, place: _Place) -> None:
        """Note who the user is and what a task needs, while the framework is known.

        Its agents may come first.
        """
        framework, role, _ = place
        user = self._engine.user(role, framework)
        if user is not None:
            self._users[framework, role] = user
        need = self._engine.demand(Client(role, framework))
        if need is not None:
            self._needs[framework, role] = need

    def _learn_constraints(self, framework: str) -> None:
        known = self._engine.framework(framework)
        if known is not None:
            given = self._engine.settings.constraints.get(known.name)
            both = (given, known.constraint)
            self._constraints[framework] = tuple(each for each in both if each)

    def _attend(self, event: contract.Event, now: float) -> None:
        """Follow agents that come, change or go."""
        call = event.WhichOneof("call")
        if call in ("add_agent", "remove_agent", "update_agent", "add_resource_provider"):
            self._attendance.look(self._engine, getattr(event, call).agent_id, now)

    def _sum(self, place: _Place) -> Quantities:
        return sum((held.rest for held in self._held.get(place, [])), Quantities())

    def _refused(self, place: _Place, quantities: Quantities) -> None:
        """Take back from the latest offers what was not wanted."""
        latest = self._held.get(place, [])[::-1]
        just_that = [held for held in latest if held.rest == quantities][:1]
        for held in just_that or _likely(latest, quantities):
            taken = _both(held.rest, quantities)
            held.rest, quantities = held.rest - taken, quantities - taken
            if taken and not held.rest:  # of this one nothing was kept
                self._readiness.refused(Client(place[1], place[0]))
        self._clear(place)

    def _ended(self, place: _Place, now: float, quantities: Quantities) -> None:
        """End the earliest tasks, or parts of them, that held so much."""
        for held in _likely(self._held.get(place, []), quantities):
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
        if user is None or not demand or not now > held.start:
            return
        framework = place[0]
        one = self._needs.get(place[:2], demand)
        times = _times(one, demand)
        task = RecordedTask(
            user,
            held.ready,
            held.start,
            now,
            one if times else demand,
            framework,
            self._constraints.get(framework, ()),
        )
        self._history.tasks += [task] * (times or 1)
        self._history.running_at_first += (times or 1) * held.at_first

    def _note_capacity(self, now: float) -> None:
        capacities, capacity = self._history.capacities, self._engine.pool.capacity
        if not capacities or capacities[-1][1] != capacity:
            capacities.append((now, capacity))


def _used(
    agent: str, allocations: Iterable[contract.Allocation]
) -> Iterator[tuple[_Place, Quantities]]:
    for allocation in allocations:
        for role, resources in ResourceParser(_LIMITS).used(allocation.resources).items():
            yield (allocation.framework_id, role, agent), resources.scalars


def _likely(helds: list[_Held], quantities: Quantities) -> list[_Held]:
    """Return from which so much comes: the first that has all of it, or else any."""
    for held in helds:
        if held.rest.contains(quantities):
            return [held]
    return helds


def _times(one: Quantities, several: Quantities) -> int:
    """Return how often one makes up several; 0: not a whole number of times, or too often."""
    name, amount = next(iter(one.items()))
    times, rest = divmod(several[name], amount)
    if rest or not 0 < times <= _MOST:
        return 0
    return times if {n: a * times for n, a in one.items()} == dict(several.items()) else 0


def _both(a: Quantities, b: Quantities) -> Quantities:
    return Quantities({name: min(amount, b[name]) for name, amount in a.items()})
