"""Applies what a master says, and decides: the state machine itself."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Protocol

from allocator.cluster.agents.ledger import Ledger
from allocator.cluster.agents.placements import Placements
from allocator.cluster.backfill.holds import BackfillHolds
from allocator.cluster.calls import PREPARE
from allocator.cluster.cooperative import Cooperative, run_to_completion
from allocator.cluster.engine.allocation_cycle import AllocationCycle
from allocator.cluster.engine.memory_handover import MemoryHandover
from allocator.cluster.engine.options import answered_after_ns, recovery, rules
from allocator.cluster.engine.orders import carry_out
from allocator.cluster.engine.resync import carrying_over, note_unheard
from allocator.cluster.engine.snapshot import BadSnapshotPart, filling, subject
from allocator.cluster.engine.view import View
from allocator.cluster.frameworks.clients import Clients
from allocator.cluster.frameworks.demands import Demands
from allocator.cluster.frameworks.role_places import RolePlaces
from allocator.cluster.input.errors import InvalidEvent, LostTrack
from allocator.cluster.input.quarantine import ValidationError, in_words
from allocator.cluster.memory import Memory, MemoryChanges
from allocator.cluster.metering.metered import counting, passing_on
from allocator.cluster.metering.role_meter import RoleMeter
from allocator.cluster.offers.filters import OfferFilters
from allocator.cluster.settings import EngineSettings
from allocator.cluster.state import Cluster, ClusterStatistics
from allocator.cluster.users.usage import update_usage
from allocator.contract import allocator_pb2 as contract
from allocator.contract import operator_pb2 as operator
from allocator.fairness.metering import AccountCheckpoint, Meter

LONGEST_LEAP_NS = 7200 * 1_000_000_000
"""An event stamped later than this after the one before is refused; a snapshot may be later.

Time fades debts, so one stamp from a broken clock would forgive everybody everything."""
PATIENCE_NS = 60 * 1_000_000_000
"""A snapshot is asked for at most so often because something contradicts what is known."""
MOST_SPOILERS = 10
"""Parts of a snapshot that may break the allocator itself, each of which costs a further try."""
_NANOSECONDS = 1_000_000_000
_LATEST = 2**62 / _NANOSECONDS
"""Seconds since the Unix epoch, a century from now: what a memory may say that the time is."""


class Watcher(Protocol):
    """Looks at allocation runs; may not touch anything."""

    def before_run(self, engine: "Engine") -> None:
        """Look at the order in which the run is going to serve."""

    def after_run(self, engine: "Engine", decisions: contract.Decisions) -> None:
        """Look at what has come of it."""


class Engine(View):
    """All that the allocator knows of one master, and what it makes of it.

    Args:
        settings: What the operator decides.
        memory: What a former engine has left.
        before_change: Told the time of each event before it is applied; may look, not touch.
        meter: Counts what users have from the first snapshot on, and what is held in roles where
            these are no users; decides nothing.
    """

    def __init__(
        self,
        settings: EngineSettings,
        *,
        memory: Memory | None = None,
        before_change: Callable[[float], None] | None = None,
        meter: Meter | None = None,
    ) -> None:
        since_ns = round(min(memory.time, _LATEST) * _NANOSECONDS) if memory is not None else 0
        super().__init__(
            settings, _empty(settings, contract.Options(), since_ns, ClusterStatistics())
        )
        self._before_change = before_change
        self._meter = meter
        self._metered: Clients | None = None
        self.role_meter: RoleMeter | None = None
        """Counts what is held in roles, where a meter counts users that are none."""
        if meter is not None and settings.user_key != "role":
            self.role_meter = RoleMeter(settings.limits)
        self._sequence = 0
        self._asked_ns = -PATIENCE_NS
        self._asking: str | None = None
        self._heard = 0
        """Sequence number up to which all events have been heard; −1: some are missing."""
        self._leading_since_ns = 0
        self._runs = AllocationCycle(self._cluster, settings.seed)
        self._heritage = MemoryHandover(memory)
        if memory is not None:
            self._users.inherit(memory)

    @property
    def sequence(self) -> int:
        """Sequence number of the last event applied."""
        return self._sequence

    def watch(self, *watchers: Watcher) -> None:
        """Have all who watch look at each allocation run from now on, and nobody else."""
        self._runs.watch(
            [partial(watcher.before_run, self) for watcher in watchers],
            [partial(watcher.after_run, self) for watcher in watchers],
        )

    def restore(
        self,
        options: contract.Options,
        snapshot: contract.Snapshot,
        memory: Memory | None = None,
    ) -> contract.Decisions:
        """Replace all that is known of the cluster; what users owe is kept.

        A part of it that cannot be used is set aside. Filters are lost, as in a failover of a stock
        master, unless it is the same master and all its events have been heard.

        Args:
            options: The master's.
            snapshot: All that is.
            memory: What another engine has left, which led meanwhile; what it says holds if it
                is of later than what is known here.

        Raises:
            InvalidEvent: the master's options are malformed; nothing has changed.
        """
        return run_to_completion(self.restoring(options, snapshot, memory))

    def restoring(
        self,
        options: contract.Options,
        snapshot: contract.Snapshot,
        memory: Memory | None = None,
    ) -> Cooperative[contract.Decisions]:
        """Do so step by step; until it is done nobody else may look at this engine."""
        self.statistics.messages += 1
        if snapshot.time_ns < 0:
            raise InvalidEvent("the snapshot is stamped before 1970; is the master's clock right?")
        cluster = yield from self._filled(options, snapshot, memory)
        if self._before_change is not None:
            self._before_change(snapshot.time_ns / _NANOSECONDS)
        known = yield from self._heritage.known(self._users, self.statistics)
        if memory is not None and memory.time > known.time:
            known = memory
        users = cluster.ledger.clients.users
        yield from users.inheriting(known)
        if users.look_is_due:
            update_usage(cluster)
        users.settle()
        same_master = snapshot.leading_since_ns == self._leading_since_ns
        if same_master and snapshot.sequence == self._heard:
            yield from self._carry_over(cluster)
        self._heritage.settle()
        if self._meter is not None:
            yield from self._count_on(self._meter, cluster)
        self._cluster = cluster
        self._runs.go_on_in(cluster)
        self._sequence = self._heard = snapshot.sequence
        self._leading_since_ns = snapshot.leading_since_ns
        self._asking = None
        self._asked_ns = min(self._asked_ns, snapshot.time_ns)
        self.statistics.snapshots += 1
        return (yield from self._deciding())

    def apply(self, events: contract.Events) -> contract.Decisions:
        """Apply events in order, then allocate once.

        An event that contradicts what is known changes nothing. The first makes a snapshot
        necessary; those that follow within a minute are passed over.

        Raises:
            InvalidEvent: a snapshot is needed. Events before the one that it names stand.
        """
        return run_to_completion(self.applying(events))

    def applying(self, events: contract.Events) -> Cooperative[contract.Decisions]:
        """Do so step by step; until it is done nobody else may look at this engine."""
        self.statistics.messages += 1
        self._asking = None
        for number, event in enumerate(events.events):
            if number:
                yield
            try:
                self._apply(event)
            except InvalidEvent as error:
                lost = isinstance(error, LostTrack)
                if lost or self._may_ask():
                    self._heard = -1 if lost else self._heard
                    self._note_unheard(events.events[number:])
                    raise
                self._pass_over(event, error)
        decisions = yield from self._deciding()
        if self._cluster.divergence is not None and self._may_ask():
            self._asking, self._cluster.divergence = self._cluster.divergence, None
        return decisions

    def divergence(self) -> str | None:
        """Return what of the last message, or before, does not fit; a snapshot would heal it.

        A master that goes on saying such things is not asked more than once a minute.
        """
        return self._asking

    def unheard(self, events: Iterable[contract.Event]) -> None:
        """Learn of events that are not applied, as a snapshot that contains them is under way."""
        self._note_unheard(events)

    def memory(self) -> Memory:
        """Return what a successor must know that no master will tell it."""
        places = self._heritage.places(self._cluster)
        return replace(self._heritage.memory(self._users), places=places)

    def changes(self) -> MemoryChanges:
        """Return what a successor must know that it would not from what this returned before.

        Costs O(users that have got or given back something since), at first O(users).
        """
        places = self._heritage.places(self._cluster)
        return replace(self._heritage.changes(self._users), places=places)

    def closing(self) -> Cooperative[dict[str, AccountCheckpoint]]:
        """Have its meter close all users' accounts, to be taken; return how each stood then.

        Something may be applied wherever this yields.
        """
        users, formers = None, dict[str, AccountCheckpoint]()
        while users is not self._users:  # after a snapshot it is others who are counted
            users = self._users
            users.count_capacity()
            formers = {} if self._meter is None else self._meter.close()
            yield from counting(users, formers)
        return formers

    def order(self, order: operator.Order) -> None:
        """Carry out what an operator orders, at the time of the last event.

        Raises:
            InvalidOrder: it is malformed, or names somebody or something that is not known.
        """
        self.statistics.messages += 1
        carry_out(order, self._users, self._settings.policy)
        self._users.settle()

    def _filled(
        self, options: contract.Options, snapshot: contract.Snapshot, memory: Memory | None
    ) -> Cooperative[Cluster]:
        """Return the cluster of a snapshot, without what would break the allocator itself.

        Raises:
            InvalidEvent: the master's options are malformed.
        """
        statistics, spoilers = self._cluster.statistics, dict[int, ValidationError]()
        places = dict(self._heritage.places(self._cluster))
        for framework, counted in ({} if memory is None else memory.places).items():
            places[framework] = max(counted, places.get(framework, 0))
        while True:
            cluster = _empty(self._settings, options, snapshot.time_ns, statistics)
            try:
                yield from filling(cluster, snapshot, self._cluster, places, spoilers)
            except BadSnapshotPart as error:
                statistics.faults += 1
                spoilers[error.part] = error.flaw
                if len(spoilers) > MOST_SPOILERS:
                    raise InvalidEvent(error.flaw.words) from error
            else:
                return cluster

    def _count_on(self, meter: Meter, cluster: Cluster) -> Cooperative[None]:
        """Have the users of another cluster counted; an error costs what is counted alone."""
        clients, before = cluster.ledger.clients, self._metered
        try:
            yield from passing_on(meter, self.role_meter, before, clients)
        except Exception:  # noqa: BLE001 - those before may be broken, whence the snapshot
            self.statistics.faults += 1
            yield from passing_on(meter, self.role_meter, None, clients)
        self._metered, cluster.meter = clients, meter

    def _carry_over(self, cluster: Cluster) -> Cooperative[None]:
        try:
            yield from carrying_over(self._cluster, cluster)
        except Exception:  # noqa: BLE001 - what is there is broken, and what is carried may be lost
            self.statistics.faults += 1
            cluster.filters = OfferFilters()

    def _apply(self, event: contract.Event) -> None:
        if event.sequence != self._sequence + 1:
            raise LostTrack(
                f"event {event.sequence} follows event {self._sequence}: events are missing or "
                "came twice"
            )
        call = event.WhichOneof("call")
        if call is None:
            raise InvalidEvent(
                f"event {event.sequence} carries no call this version knows; "
                "is the master's side newer than the allocator?"
            )
        cluster = self._cluster
        before_ns = cluster.now_ns
        if event.time_ns - before_ns > LONGEST_LEAP_NS:
            raise InvalidEvent(
                f"event {event.sequence} ({call}) is stamped "
                f"{(event.time_ns - before_ns) / _NANOSECONDS:.0f} s after the one before; "
                "is the master's clock right?"
            )
        cluster.now_ns = max(event.time_ns, before_ns)
        said = getattr(event, call)
        try:
            change = PREPARE[call](cluster, said)
        except Exception as error:
            cluster.now_ns = before_ns
            raise self._refusal(event.sequence, call, error) from error
        replies, users = len(cluster.replies), cluster.ledger.clients.users
        try:
            if self._before_change is not None:
                self._before_change(self.now)
            users.advance(cluster.now_ns / _NANOSECONDS)
            change()
            users.settle()
        except Exception as error:  # it may have changed a part, which only a snapshot can heal
            raise self._refusal(event.sequence, call, error) from error
        for reply in cluster.replies[replies:]:
            reply.sequence = event.sequence
        cluster.follow_failover()
        if cluster.quarantine:
            cluster.quarantine.put(*subject(call, said), "call", None)
        self._sequence = self._heard = event.sequence
        cluster.statistics.events += 1
        cluster.statistics.early_stamps += event.time_ns < before_ns

    def _note_unheard(self, events: Iterable[contract.Event]) -> None:
        for event in events:
            if event.sequence == self._heard + 1 and self._heard >= 0:
                self._heard = event.sequence
                try:
                    note_unheard(self._cluster, event)
                except Exception:  # noqa: BLE001 - what is carried over need not be whole
                    self.statistics.faults += 1
                    self._heard = -1
            elif event.sequence != self._heard:
                self._heard = -1

    def _refusal(self, sequence: int, call: str, error: Exception) -> InvalidEvent:
        """Return the refusal of a call, also where the allocator itself is to blame."""
        if not isinstance(error, InvalidEvent):
            self.statistics.faults += 1
        return InvalidEvent(f"event {sequence} ({call}): {in_words(error)}")

    def _may_ask(self) -> bool:
        """Whether a snapshot may be asked for; it is then."""
        if self._cluster.now_ns < self._asked_ns + PATIENCE_NS:
            return False
        self._asked_ns = self._cluster.now_ns
        return True

    def _pass_over(self, event: contract.Event, error: InvalidEvent) -> None:
        """Go on without a call; it is explained, and a snapshot asked for when that may be."""
        cluster, call = self._cluster, event.WhichOneof("call")
        if call is not None:
            flaw = ValidationError("contradiction", str(error))
            cluster.quarantine.put(*subject(call, getattr(event, call)), "call", flaw)
        if call in {"update_available", "get_inverse_offer_statuses"}:
            cluster.replies.append(contract.Reply(sequence=event.sequence, error=str(error)))
        cluster.divergence = str(error)
        self._sequence = self._heard = event.sequence
        self.statistics.passed_over += 1

    def _deciding(self) -> Cooperative[contract.Decisions]:
        decisions = yield from self._runs.deciding()
        decisions.applied_sequence = self._sequence
        return decisions


def _empty(
    settings: EngineSettings, options: contract.Options, now_ns: int, statistics: ClusterStatistics
) -> Cluster:
    """Return a cluster of which nothing is known but the master's flags.

    Raises:
        InvalidEvent: these are malformed.
    """
    excluded = tuple(options.fairness_excluded)
    clients = Clients(settings, now_ns / _NANOSECONDS, excluded)
    demands = Demands(settings)
    return Cluster(
        rules=rules(options),
        ledger=Ledger(
            clients,
            demands,
            Placements(settings.constraints),
            answered_after_ns(options, settings.limits),
        ),
        demands=demands,
        interval_ns=options.allocation_interval_ns,
        now_ns=now_ns,
        at_once=settings.allocation == "event",
        statistics=statistics,
        recovery=recovery(options),
        tells_running=options.tells_running,
        limits=settings.limits,
        roles=RolePlaces(settings.limits.all_roles, leaves_room=settings.roles_leave_room),
        whole_from=settings.whole_from,
        holds=BackfillHolds(
            settings.hold_for,
            round(settings.longest_hold * _NANOSECONDS),
            statistics.holds,
            by_turns=settings.hold_by_turns,
        ),
    )
