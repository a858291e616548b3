"""Reconstruction of tasks from an event log, and of the cluster's capacity over time.

An allocator never sees tasks, only offers and the resources recovered from them. The resources that
a framework keeps of an offer are taken for tasks started at the time of the offer. Resources
recovered later without a filter are taken for the end of a task: the earliest task that held at
least as much. Resources that amount to several whole tasks count as several tasks, if the task's
demand is known.
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
from allocator.service.record.replay import apply_entry

_LIMITS = Limits()
_NANOSECONDS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class RecordedTask:
    """A reconstructed task: resources that a framework held on an agent for a time.

    Times are the master's, in seconds since the epoch.
    """

    user: str
    ready: float
    """Estimated time at which the task was ready: since then, the framework had accepted part of
    every offer."""
    start: float
    end: float
    demand: Quantities
    framework: str = ""
    """Identifier of the framework."""
    constraints: tuple[Constraint, ...] = ()
    """Placement constraints of the framework and of the operator. An eligible agent meets all of
    them."""


@dataclass(slots=True)
class History:
    """Reconstructed activity of a cluster, from a log's first snapshot to its last event.

    Times are the master's, in seconds since the epoch.
    """

    begin: float = 0.0
    end: float = 0.0
    tasks: list[RecordedTask] = field(default_factory=list)
    capacities: list[tuple[float, Quantities]] = field(default_factory=list)
    """The cluster's capacity over time: pairs of a time and the capacity from that time on."""
    weights: dict[str, float] = field(default_factory=dict)
    """Weights of users at the end of the history."""
    excluded: tuple[str, ...] = ()
    """Resources that the master excludes from fair sharing; they do not count in shares."""
    debts: dict[str, tuple[dict[str, float], float]] = field(default_factory=dict)
    """By user, commitments at the beginning: by resource, and one for all other resources."""
    commitments: dict[str, float] = field(default_factory=dict)
    """Dominant commitment of each user at the end."""
    presences: list[Presence] = field(default_factory=list)
    """Intervals in which an agent stayed unchanged, in no particular order."""
    first_weights: dict[str, float] = field(default_factory=dict)
    """Weight of each user at the first snapshot or end of a log at which the user was known."""
    entitlements: dict[str, float] = field(default_factory=dict)
    """Entitlement of each user at the end."""
    gaps: list[tuple[float, float]] = field(default_factory=list)
    """Intervals between the end of a log and the first snapshot of the next log. Their activity is
    unknown."""
    running_at_first: int = 0
    """Number of tasks that already ran at the first snapshot; the snapshot's time counts as their
    start."""
    running_at_end: int = 0
    """Number of tasks that still ran at the end of the last log; that time counts as their end."""


@dataclass(slots=True)
class _Held:
    """Resources of one offer that a framework still holds on an agent.

    They are assumed to be used by tasks that still run.
    """

    ready: float
    start: float
    """Time of the offer, in seconds."""
    remaining: Quantities
    at_first: bool = False
    """Whether the resources were already held at the first snapshot."""


_MAX_TASKS = 10_000
"""Maximum number of tasks into which recovered resources are split; a larger amount counts as one
task."""

_Place = tuple[str, str, str]
"""Identifier of a framework, a role, and identifier of an agent."""


def reconstruct(engine: Engine, entries: Iterable[log.LogEntry]) -> History:
    """Replay one log, and return the reconstructed tasks and capacities.

    Args:
        engine: A new engine, made from the log's header.
        entries: All entries of the log but the header.
    """
    return reconstruct_all([(engine, entries)])


def reconstruct_all(logs: Iterable[tuple[Engine, Iterable[log.LogEntry]]]) -> History:
    """Replay the successive logs of a service, and return the reconstructed tasks and capacities.

    Args:
        logs: For each log, in order of time: a new engine made from the header, and all other
            entries.
    """
    builder = _Builder()
    for engine, entries in logs:
        builder.begin(engine)
        for entry in entries:
            builder.follow(entry)
        builder.note_weights()
    return builder.finished()


class _Builder:
    """Replays logs, and builds the history of tasks, agents and capacities from them."""

    _engine: Engine

    def __init__(self) -> None:
        self._history = History()
        self._held: dict[_Place, list[_Held]] = {}
        """Held resources of each framework, role and agent; the earliest offer first."""
        self._users: dict[tuple[str, str], str] = {}
        """User of each framework and role."""
        self._needs: dict[tuple[str, str], Quantities] = {}
        """Known demand of one task, by framework and role."""
        self._constraints: dict[str, tuple[Constraint, ...]] = {}
        """Placement constraints by framework."""
        self._readiness = Readiness()
        self._agent_intervals = AgentIntervals()
        self._ended_at: float | None = None
        """Time at which the preceding log ended; None once the present log's first snapshot has
        been processed."""
        self._reports_running = False
        """Whether the master reports which allocated resources are used."""

    def begin(self, engine: Engine) -> None:
        """Start to replay the next log; the history continues.

        Args:
            engine: A new engine, made from the log's header.
        """
        if self._history.begin:
            self._ended_at = self._engine.now
        self._engine = engine

    def note_weights(self) -> None:
        """Record the weights of users that were unknown so far.

        The method is called after each snapshot and at the end of each log.
        """
        for standing in self._engine.standings():
            self._history.first_weights.setdefault(standing.user, standing.weight)

    def follow(self, entry: log.LogEntry) -> None:
        """Apply the next log entry to the engine; record changes of tasks, agents and capacity."""
        sequence_before, event_time = self._engine.sequence, self._engine.now
        outcome = apply_entry(self._engine, entry)
        now = self._engine.now
        if entry.HasField("restore") and not outcome.refusal:
            self._restored(entry.restore, now)
        elif entry.HasField("apply"):
            applied = self._engine.sequence - sequence_before  # without rejected events
            for event in entry.apply.events.events[:applied]:
                event_time = max(event_time, event.time_ns / _NANOSECONDS)
                self._applied(event, event_time)
        for offers in contract.Decisions.FromString(outcome.decisions).offers:
            for offer in offers.offers:
                self._offered(offers.framework_id, offer, now)
        self._note_capacity(now)

    def finished(self) -> History:
        """Return the history; the end of the last log counts as the end of tasks that still run."""
        self._history.end = self._engine.now
        self._history.presences = self._agent_intervals.until(self._history.end)
        task_count = len(self._history.tasks)
        self._end_all(list(self._held), self._history.end)
        self._history.running_at_end = len(self._history.tasks) - task_count
        standings = self._engine.standings()
        self._history.weights = {s.user: s.weight for s in standings}
        self._history.commitments = {s.user: s.commitment for s in standings}
        self._history.entitlements = {s.user: s.entitlement for s in standings}
        return self._history

    def _restored(self, restored: log.LogRestore, now: float) -> None:
        """Adjust the held resources after the engine has restored a snapshot of the log.

        Resources that the snapshot lists as used, but that were not recorded as held, count as held
        from now on. Held resources that the snapshot lacks count as ended now.

        Args:
            restored: The log entry with the snapshot.
            now: The master's time, in seconds since the epoch.
        """
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
        self._reports_running = restored.options.tells_running
        self.note_weights()
        for framework in restored.snapshot.frameworks:
            self._learn_constraints(framework.framework_id)
        self._readiness.look_at_all(self._engine, now)
        agents = [agent.agent_id for agent in restored.snapshot.agents]
        self._agent_intervals.look_at_all(self._engine, agents, now)
        used: dict[_Place, Quantities] = {}
        for agent in restored.snapshot.agents:
            for place, quantities in _used(agent.agent_id, agent.used):
                used[place] = used.get(place, Quantities()) + quantities
        for place in list(self._held):
            held = self._sum(place)
            self._ended(place, now, held - _common(held, used.get(place, Quantities())))
        for place, quantities in used.items():
            added = quantities - _common(quantities, self._sum(place))
            if added:
                self._hold(place, now, now, added, at_first=first)

    def _applied(self, event: contract.Event, now: float) -> None:
        """Record how an event, which the engine has applied, changes tasks and agents.

        Args:
            event: The event.
            now: Time of the event, in seconds since the epoch.
        """
        call = event.WhichOneof("call")
        self._readiness.follow(event, self._engine, now)
        self._follow_agent(event, now)
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
            removed = event.remove_agent.agent_id
            self._end_all([place for place in self._held if place[2] == removed], now)
        elif call == "remove_framework":
            removed = event.remove_framework.framework_id
            self._end_all([place for place in self._held if place[0] == removed], now)

    def _recovered(self, call: contract.RecoverResources, now: float) -> None:
        """Record recovered resources: an offer was declined or rescinded, or tasks have ended.

        Args:
            call: The call that recovers the resources.
            now: The master's time, in seconds since the epoch.
        """
        role, resources = ResourceParser(_LIMITS).allocated(call.resources)
        place = (call.framework_id, role, call.agent_id)
        # A master that reports running tasks also marks the resources of rescinded offers.
        unused = self._reports_running and not call.is_allocated
        if call.HasField("filters") or unused:
            self._refused(place, resources.scalars)
        else:
            self._ended(place, now, resources.scalars)

    def _offered(self, framework: str, offer: contract.Offer, now: float) -> None:
        """Record an offer as resources that the framework holds from now on.

        It is treated as if tasks had started on all of them. A later decline removes the resources
        again.

        Args:
            framework: Identifier of the framework.
            offer: The offer.
            now: The master's time, in seconds since the epoch.
        """
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
        """Record that a framework holds resources on an agent from now on.

        Args:
            place: Framework, role and agent.
            ready: Estimated time since which the tasks on these resources were ready to run, in
                seconds.
            now: Time at which the resources were offered, in seconds.
            quantities: The resources.
            at_first: Whether the resources were already held at the first snapshot.
        """
        self._learn_user(place)
        self._held.setdefault(place, []).append(_Held(ready, now, quantities, at_first))

    def _learn_user(self, place: _Place) -> None:
        """Record the user and task demand of a framework's role, if the engine knows the framework.

        A snapshot may list agents with a framework's resources before the framework itself. The
        method is then called again later.

        Args:
            place: Framework, role and agent; the agent is ignored.
        """
        framework, role, _ = place
        user = self._engine.user(role, framework)
        if user is not None:
            self._users[framework, role] = user
        need = self._engine.demand(Client(role, framework))
        if need is not None:
            self._needs[framework, role] = need

    def _learn_constraints(self, framework: str) -> None:
        """Record the placement constraints of a framework: its own, and the operator's for it."""
        framework_state = self._engine.framework(framework)
        if framework_state is not None:
            given = self._engine.settings.constraints.get(framework_state.name)
            constraints = (given, framework_state.constraint)
            self._constraints[framework] = tuple(
                constraint for constraint in constraints if constraint
            )

    def _follow_agent(self, event: contract.Event, now: float) -> None:
        """Record an agent's new host or resources if an event adds, changes or removes it."""
        call = event.WhichOneof("call")
        if call in ("add_agent", "remove_agent", "update_agent", "add_resource_provider"):
            self._agent_intervals.look(self._engine, getattr(event, call).agent_id, now)

    def _sum(self, place: _Place) -> Quantities:
        """Return the total of all resources that a framework holds in one role on an agent.

        Args:
            place: Framework, role and agent.
        """
        return sum((held.remaining for held in self._held.get(place, [])), Quantities())

    def _refused(self, place: _Place, quantities: Quantities) -> None:
        """Subtract declined resources from the latest offers, because no tasks use them.

        Args:
            place: Framework, role and agent of the declined offer.
            quantities: The declined resources.
        """
        latest = self._held.get(place, [])[::-1]
        exact = [held for held in latest if held.remaining == quantities][:1]
        for held in exact or _matching(latest, quantities):
            declined = _common(held.remaining, quantities)
            held.remaining, quantities = held.remaining - declined, quantities - declined
            if declined and not held.remaining:  # the whole offer was declined
                self._readiness.refused(Client(place[1], place[0]))
        self._drop_empty(place)

    def _ended(self, place: _Place, now: float, quantities: Quantities) -> None:
        """Record that the earliest tasks, or parts of tasks, with the given resources have ended.

        Args:
            place: Framework, role and agent of the tasks.
            now: End of the tasks, in seconds.
            quantities: Resources that the tasks have released.
        """
        for held in _matching(self._held.get(place, []), quantities):
            ended = _common(held.remaining, quantities)
            self._record(place, held, now, ended)
            held.remaining, quantities = held.remaining - ended, quantities - ended
        self._drop_empty(place)

    def _drop_empty(self, place: _Place) -> None:
        """Remove held offers whose resources were all declined, or whose tasks have all ended.

        Args:
            place: Framework, role and agent of the offers.
        """
        remaining = [held for held in self._held.pop(place, []) if held.remaining]
        if remaining:
            self._held[place] = remaining

    def _end_all(self, places: list[_Place], now: float) -> None:
        """Record that all tasks of some frameworks, roles and agents have ended.

        Args:
            places: Combinations of framework, role and agent.
            now: End of the tasks, in seconds.
        """
        for place in places:
            for held in self._held.pop(place):
                self._record(place, held, now, held.remaining)

    def _record(self, place: _Place, held: _Held, now: float, demand: Quantities) -> None:
        """Record the end of one task, or of several equal tasks.

        Args:
            place: Framework, role and agent.
            held: The held offer whose resources the tasks used.
            now: End of the tasks, in seconds.
            demand: Resources of all the tasks together.
        """
        user = self._users.get(place[:2])
        if user is None or not demand or not now > held.start:
            return
        framework = place[0]
        task_demand = self._needs.get(place[:2], demand)
        count = _whole_multiples(task_demand, demand)
        task = RecordedTask(
            user,
            held.ready,
            held.start,
            now,
            task_demand if count else demand,
            framework,
            self._constraints.get(framework, ()),
        )
        self._history.tasks += [task] * (count or 1)
        self._history.running_at_first += (count or 1) * held.at_first

    def _note_capacity(self, now: float) -> None:
        """Record the cluster's capacity if it has changed."""
        capacities, capacity = self._history.capacities, self._engine.pool.capacity
        if not capacities or capacities[-1][1] != capacity:
            capacities.append((now, capacity))


def _used(
    agent: str, allocations: Iterable[contract.Allocation]
) -> Iterator[tuple[_Place, Quantities]]:
    """Yield the resources that an agent's allocations use, by framework, role and agent.

    Args:
        agent: The agent's identifier.
        allocations: The agent's allocations, as in a snapshot.
    """
    for allocation in allocations:
        for role, resources in ResourceParser(_LIMITS).used(allocation.resources).items():
            yield (allocation.framework_id, role, agent), resources.scalars


def _matching(candidates: list[_Held], quantities: Quantities) -> list[_Held]:
    """Return the held offers from which resources are to be subtracted.

    The result is the first offer that still contains all of the quantities; without such an offer,
    all offers.

    Args:
        candidates: Offers held by one role of a framework on one agent.
        quantities: Resources that were declined or that ended tasks have released.
    """
    for held in candidates:
        if held.remaining.contains(quantities):
            return [held]
    return candidates


def _whole_multiples(demand: Quantities, total: Quantities) -> int:
    """Return how many tasks of equal demand make up a total; 0 if this is no whole number.

    The result is also 0 for more than `_MAX_TASKS` tasks.

    Args:
        demand: Resources of one task.
        total: Resources of all the tasks together.
    """
    name, amount = next(iter(demand.items()))
    count, remaining = divmod(total[name], amount)
    if remaining or not 0 < count <= _MAX_TASKS:
        return 0
    return count if {n: a * count for n, a in demand.items()} == dict(total.items()) else 0


def _common(a: Quantities, b: Quantities) -> Quantities:
    """Return for each resource the smaller of two amounts."""
    return Quantities({name: min(amount, b[name]) for name, amount in a.items()})
