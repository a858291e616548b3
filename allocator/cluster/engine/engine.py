"""The engine: applies the events of a master, and returns offers and other decisions."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, Protocol

from typing_extensions import override

from allocator.cluster.agents.ledger import Ledger
from allocator.cluster.agents.placements import Placements
from allocator.cluster.allocation.answer import Answer
from allocator.cluster.backfill.holds import BackfillHolds
from allocator.cluster.calls import PREPARE
from allocator.cluster.calls.frameworks import void_calls
from allocator.cluster.engine.allocation_cycle import AllocationCycle
from allocator.cluster.engine.memory_handover import MemoryHandover
from allocator.cluster.engine.options import answered_after_ns, recovery, rules
from allocator.cluster.engine.resync import carry_demands, carry_over, note_skipped
from allocator.cluster.engine.snapshot import BadSnapshotPart, fill_cluster, subject
from allocator.cluster.engine.view import View
from allocator.cluster.frameworks.clients import Clients
from allocator.cluster.frameworks.demands import Demands
from allocator.cluster.frameworks.role_places import LimitedPlaces, PlaceRules
from allocator.cluster.input.errors import InvalidEvent, LostTrack
from allocator.cluster.input.quarantine import ValidationError, describe_error
from allocator.cluster.metering.metered import hand_over_metering
from allocator.cluster.metering.role_meter import RoleMeter
from allocator.cluster.offers.offer_constraints import Exclusions
from allocator.cluster.offers.offer_filters import OfferFilters
from allocator.cluster.offers.refused_offers import RefusedOffers
from allocator.cluster.quota import Quotas
from allocator.cluster.settings import EngineSettings
from allocator.cluster.state import Cluster, ClusterStatistics
from allocator.cluster.users.usage import update_usage
from allocator.compilation import mypyc_attr
from allocator.contract import allocator_pb2 as contract
from allocator.contract import operator_pb2 as operator
from allocator.cooperative import Cooperative, InParts, run_to_completion
from allocator.fairness.metering import AccountCheckpoint, Meter
from allocator.users.memory import Memory, MemoryChanges
from allocator.users.metering import write_checkpoints
from allocator.users.orders import carry_out

LONGEST_LEAP_NS: Final = 7200 * 1_000_000_000
"""Maximum difference between the timestamps of two events, in nanoseconds.

The engine rejects an event with a later timestamp; a snapshot may be later. Commitments decay with
time, so one timestamp of a broken clock would cancel all commitments."""
PATIENCE_NS = 60 * 1_000_000_000
"""Minimum time between two snapshots requested because of a contradiction, in nanoseconds."""
MAX_BAD_SNAPSHOT_PARTS = 10
"""Maximum number of bad parts to leave out of one snapshot. The cluster is built again after each
bad part."""
_GATHERED = frozenset(
    {
        "add_framework",
        "update_framework",
        "remove_framework",
        "activate_framework",
        "deactivate_framework",
        "request_resources",
        "revive_offers",
        "suppress_offers",
        "recover_resources",
        "reject_offer",
        "transition_offered_to_allocated",
        "update_allocation",
        "update_available",
        "update_inverse_offer",
        "get_inverse_offer_statuses",
        "pause",
        "resume",
    }
)
"""Calls before which clients of frameworks in `Cluster.pending` need not be up to date."""
_NANOSECONDS: Final = 1_000_000_000
_MAX_MEMORY_TIME_S = 2**62 / _NANOSECONDS
"""Latest time that is accepted for a memory: seconds since the Unix epoch, about a century from
now."""


class Watcher(Protocol):
    """Observes allocation cycles, for example to record them; must not change the engine."""

    def before_run(self, engine: "Engine") -> None:
        """Called before each cycle in which an agent can be offered.

        The engine shows the cycle's initial sorter order then.
        """

    def after_run(self, engine: "Engine", decisions: Sequence[contract.Decisions]) -> None:
        """Called after each of these cycles with the decided offers and inverse offers.

        Several messages are the slices of one answer.
        """


@mypyc_attr(allow_interpreted_subclasses=True)
class Engine(View):
    """The allocator for one master: holds the cluster's state, applies events, and decides offers.

    Args:
        settings: The operator's settings.
        memory: State that an earlier engine handed over, mainly the users' commitments.
        before_change: Called with the time of each event, in seconds since the Unix epoch, before
            the event is applied. The callback must not change the engine. It may return cooperative
            steps, which end before the event is applied.
        meter: Records users' allocations and commitments for accounting, from the first snapshot
            on. If users are not roles, allocations of roles are recorded, too. The meter affects no
            decision.
    """

    def __init__(
        self,
        settings: EngineSettings,
        *,
        memory: Memory | None = None,
        before_change: Callable[[float], Cooperative[None] | None] | None = None,
        meter: Meter | None = None,
    ) -> None:
        since_ns = (
            round(min(memory.time, _MAX_MEMORY_TIME_S) * _NANOSECONDS) if memory is not None else 0
        )
        super().__init__(
            settings, _empty_cluster(settings, contract.Options(), since_ns, ClusterStatistics())
        )
        self._before_change = before_change
        self._meter = meter
        self._metered: Clients | None = None
        self.role_meter: RoleMeter | None = None
        """Records the allocations of roles; None if there is no meter, or if users are roles."""
        if meter is not None and settings.user_key != "role":
            self.role_meter = RoleMeter(settings.limits)
        self._sequence = 0
        self._requested_ns = -PATIENCE_NS
        self._divergence: str | None = None
        self._seen = 0
        """Sequence number up to which the engine has seen all events, applied or skipped; −1 if
        events are missing."""
        self._leading_since_ns = 0
        self._cycle = AllocationCycle(self._cluster, settings.seed)
        self._answer = Answer(0)
        """The decisions about the last message."""
        self._ticked = False
        self._handover = MemoryHandover(memory)
        if memory is not None:
            self._users.inherit(memory)

    @property
    def sequence(self) -> int:
        """Sequence number of the last applied event."""
        return self._sequence

    @property
    @override
    def revision(self) -> tuple[int, int]:
        """The sequence number and the number of snapshots; one differs after each message."""
        return self._sequence, self.statistics.snapshots

    def watch(self, *watchers: Watcher) -> None:
        """Replace all watchers, which observe allocation cycles."""
        self._cycle.watch(
            [partial(watcher.before_run, self) for watcher in watchers],
            [partial(watcher.after_run, self) for watcher in watchers],
        )

    def restore(
        self,
        options: contract.Options,
        snapshot: contract.Snapshot,
        memory: Memory | None = None,
    ) -> contract.Decisions:
        """Replace the state of the cluster by a snapshot. The users' commitments are kept.

        Parts of the snapshot that cannot be used are quarantined. Offer filters are lost, as in a
        failover of a stock master. Filters are kept only if the master is the same, and the engine
        has seen all its events.

        Args:
            options: The master's flags.
            snapshot: The master's whole state.
            memory: The memory of another engine that led in the meantime. This memory is used if
                its time is later than that of the engine's own memory.

        Raises:
            InvalidEvent: The master's options are malformed. No change was made.
        """
        return run_to_completion(self.restore_in_steps(options, snapshot, memory))

    def restore_in_steps(
        self,
        options: contract.Options,
        snapshot: contract.Snapshot,
        memory: Memory | None = None,
    ) -> Cooperative[contract.Decisions]:
        """Generator form of `restore`.

        The engine must not be used until the generator is exhausted.
        """
        self.statistics.messages += 1
        if snapshot.time_ns < 0:
            raise InvalidEvent("the snapshot's time is before 1970; check the master's clock")
        cluster = yield from self._build_cluster(options, snapshot, memory)
        if self._before_change is not None:
            work = self._before_change(snapshot.time_ns / _NANOSECONDS)
            if work is not None:
                yield from work
        known = yield from self._handover.known(self._users, self.statistics)
        if memory is not None and memory.time > known.time:
            known = memory
        users = cluster.ledger.clients.users
        same_master = snapshot.leading_since_ns == self._leading_since_ns
        complete = same_master and snapshot.sequence == self._seen
        if complete and self._settings.demands_must_agree:  # a new demand renews commitments
            yield from self._carry_demands(cluster)
        yield from users.inherit_in_steps(known)
        if users.look_is_due:
            yield from update_usage(cluster)
        yield from users.update_entitlements_in_steps()
        if complete:
            yield from self._carry_over(cluster)
        self._handover.complete()
        if self._meter is not None:
            yield from self._start_metering(self._meter, cluster)
        self._cluster = cluster
        self._cycle.set_cluster(cluster)
        self._sequence = self._seen = snapshot.sequence
        self._leading_since_ns = snapshot.leading_since_ns
        self._divergence = None
        self._requested_ns = min(self._requested_ns, snapshot.time_ns)
        self.statistics.snapshots += 1
        self._answer = Answer(self._sequence)  # without replies: the cluster is new
        for _ in self._cycle.decide(self._answer):  # an answer to a snapshot is not cut
            yield
        return self._answer.last

    def apply(self, events: contract.Events) -> contract.Decisions:
        """Apply events in order, then run one allocation cycle if one is due.

        No cycle runs if the next message continues this one (`Events.more`).

        An event that contradicts the known state changes nothing. The first contradiction raises an
        error, so that the caller requests a snapshot. Within the next minute, further contradicting
        events are skipped without an error.

        Raises:
            InvalidEvent: A snapshot is needed. Events before the contradicting event have been
                applied.
        """
        return run_to_completion(self.apply_in_steps(events))

    def apply_in_steps(
        self, events: contract.Events, slice_offers: int = 0
    ) -> InParts[contract.Decisions, contract.Decisions]:
        """Generator form of `apply`, which can yield the first decisions of a cycle as slices.

        The engine must not be used until the generator is exhausted. The generator's result
        contains the decisions that are in no slice.

        Args:
            events: The events.
            slice_offers: Least number of offers in a slice; 0: there are no slices.
        """
        self.statistics.messages += 1
        self._divergence, self._ticked = None, False
        received = events.events[:]  # a list costs less than the field
        may_skip = len(received) > 1 and self._settings.skips_void_calls
        void = void_calls(self._cluster, received) if may_skip else ()
        for number, event in enumerate(received):
            if number in void and event.sequence == self._sequence + 1:
                self._sequence = self._seen = event.sequence
                self.statistics.events += 1
                continue
            if number:
                yield None
            try:
                if self._cluster.pending and event.WhichOneof("call") not in _GATHERED:
                    yield from self._refresh_pending()
                yield from self._apply(event)
            except InvalidEvent as error:
                self._skip_or_raise(received[number:], error)
        if self._cluster.pending:
            yield from self._refresh_at_end()
        self._answer = answer = Answer(self._sequence, slice_offers)
        if self._cluster.replies:
            answer.last.replies.extend(self._cluster.replies)
            self._cluster.replies = []
        if not events.more:
            yield from self._cycle.decide(answer)
        if self._cluster.divergence is not None and self._may_request_snapshot():
            self._divergence, self._cluster.divergence = self._cluster.divergence, None
        return answer.last

    def rank_ahead(self) -> None:
        """Rank the top-level users that the last message concerned, if it concerned few.

        The next message would otherwise do so first. No decision depends on this call.
        """
        self._users.pool.rank_ahead()

    @property
    def answer_size(self) -> int:
        """Bytes of the resources in the longest slice of the answer to the last message."""
        return self._answer.largest_size

    @property
    def ticked(self) -> bool:
        """Whether the last message, or its last part, contained a tick of the master."""
        return self._ticked

    def whole_answer(self) -> contract.Decisions:
        """Return all decisions about the last message, including decisions that slices contain."""
        return self._answer.whole()

    def divergence(self) -> str | None:
        """Return a description of a contradiction between master and engine, or None.

        The caller then requests a snapshot, which resolves the contradiction. At most one
        contradiction each minute is reported.
        """
        return self._divergence

    def note_skipped_events(self, events: Iterable[contract.Event]) -> None:
        """Apply the effects of skipped events on offer filters.

        Events are skipped while the engine waits for a snapshot. The snapshot will contain all
        their other effects, but no offer filters.
        """
        self._note_skipped(events)

    def memory(self) -> Memory:
        """Return the state that a successor needs and cannot learn from a master.

        The state consists of the users' commitments, weights set by operators, and the number of
        role-tree nodes that each framework occupies.
        """
        places = self._handover.places(self._cluster)
        return replace(self._handover.memory(self._users), places=places)

    @override
    def changes_in_steps(self) -> Cooperative[MemoryChanges]:
        """Return what has changed since the last call in the state that `memory` returns.

        The store saves these changes. Costs O(users whose allocation has changed since); the first
        call costs O(users).
        """
        places = self._handover.places(self._cluster)
        changes = yield from self._handover.changes(self._users)
        return replace(changes, places=places)

    @override
    def close_accounts(self) -> Cooperative[dict[str, AccountCheckpoint]]:
        """Close all users' accounts in the meter at the end of an accounting period.

        Generator for cooperative steps. Events may be applied between two steps.

        Returns:
            An account checkpoint for each user and virtual leaf, by name: the account's state now.
        """
        users, checkpoints = None, dict[str, AccountCheckpoint]()
        while users is not self._users:  # a snapshot replaces the metered users
            users = self._users
            users.count_capacity()
            checkpoints = {} if self._meter is None else self._meter.close()
            yield from write_checkpoints(users, checkpoints)
        return checkpoints

    @override
    def order(self, order: operator.Order) -> None:
        """Carry out an operator's command, such as a new weight, at the time of the last event.

        Raises:
            InvalidOrder: The command is malformed, or names unknown users or resources.
        """
        self.statistics.messages += 1
        carry_out(order, self._users, self._settings.policy)
        self._users.update_entitlements()

    def _build_cluster(
        self, options: contract.Options, snapshot: contract.Snapshot, memory: Memory | None
    ) -> Cooperative[Cluster]:
        """Return the cluster described by a snapshot, without parts that cause allocator errors.

        Args:
            options: The master's flags.
            snapshot: The master's whole state.
            memory: Memory of another engine, whose counts of role-tree nodes by framework are
                considered, too; None: only the engine's own counts are.

        Raises:
            InvalidEvent: The master's options are malformed, or too many parts are bad.
        """
        statistics, bad_parts = self._cluster.statistics, dict[int, ValidationError]()
        places = dict(self._handover.places(self._cluster))
        for framework, theirs in ({} if memory is None else memory.places).items():
            own = places.get(framework, theirs)
            places[framework] = own._replace(nodes=max(own.nodes, theirs.nodes))
        while True:
            cluster = _empty_cluster(self._settings, options, snapshot.time_ns, statistics)
            try:
                yield from fill_cluster(cluster, snapshot, self._cluster, places, bad_parts)
            except BadSnapshotPart as error:
                statistics.faults += 1
                bad_parts[error.part] = error.flaw
                if len(bad_parts) > MAX_BAD_SNAPSHOT_PARTS:
                    raise InvalidEvent(error.flaw.words) from error
            else:
                return cluster

    def _start_metering(self, meter: Meter, cluster: Cluster) -> Cooperative[None]:
        """Connect the meter to the users of a new cluster, from which it records from now on.

        If an error occurs, the error is counted, and usage since the previous cluster is not
        recorded. No error is raised.
        """
        clients, before = cluster.ledger.clients, self._metered
        try:
            yield from hand_over_metering(meter, self.role_meter, before, clients)
        except Exception:  # noqa: BLE001 - the previous users may be broken
            self.statistics.faults += 1
            yield from hand_over_metering(meter, self.role_meter, None, clients)
        self._metered, cluster.meter = clients, meter

    def _carry_demands(self, cluster: Cluster) -> Cooperative[None]:
        try:
            yield from carry_demands(self._cluster, cluster)
        except Exception:  # noqa: BLE001 - the previous cluster may be broken
            self.statistics.faults += 1

    def _carry_over(self, cluster: Cluster) -> Cooperative[None]:
        if not self._settings.demands_must_agree:  # otherwise, demands are carried over before
            yield from self._carry_demands(cluster)
        try:
            yield from carry_over(self._cluster, cluster)
        except Exception:  # noqa: BLE001 - the previous cluster may be broken
            self.statistics.faults += 1
            cluster.filters = OfferFilters(cluster.limits.filters, cluster.limits.all_filters)

    def _skip_or_raise(self, events: Sequence[contract.Event], error: InvalidEvent) -> None:
        """Skip an event if no snapshot may be requested now.

        Args:
            events: The event, and all later events of its message.
            error: Why the event cannot be applied.

        Raises:
            InvalidEvent: A snapshot is needed.
        """
        lost = isinstance(error, LostTrack)
        if lost or self._may_request_snapshot():
            self._seen = -1 if lost else self._seen
            self._note_skipped(events)
            raise error
        self._skip(events[0], error)

    def _apply(self, event: contract.Event) -> Cooperative[None]:
        sequence, time_ns = event.sequence, event.time_ns
        call = self._call_of(event, sequence)
        cluster = self._cluster
        self._ticked |= call == "tick"
        before_ns = cluster.now_ns
        if time_ns - before_ns > LONGEST_LEAP_NS:
            raise InvalidEvent(
                f"event {sequence} ({call}) is "
                f"{(time_ns - before_ns) / _NANOSECONDS:.0f} s later than the event before; "
                "check the master's clock"
            )
        cluster.now_ns = max(time_ns, before_ns)
        message = getattr(event, call)
        try:
            prepared = PREPARE[call](cluster, message)
            change = prepared if callable(prepared) else (yield from prepared)
        except Exception as error:
            cluster.now_ns = before_ns
            raise self._rejection(sequence, call, error) from error
        earlier_replies, users = len(cluster.replies), cluster.ledger.clients.users
        try:
            now = cluster.now_ns / _NANOSECONDS
            if users.clock.unrated:
                yield from users.clock.rate_in_steps(now)
            if self._before_change is not None:
                work = self._before_change(now)
                if work is not None:
                    yield from work
            users.advance(now)
            steps = change()
            if steps is not None:
                yield from steps
            yield from users.update_entitlements_in_steps()
        except Exception as error:  # a partial change; only a snapshot repairs it
            raise self._rejection(sequence, call, error) from error
        for reply in cluster.replies[earlier_replies:]:
            reply.sequence = sequence
        cluster.follow_failover()
        if cluster.quarantine:
            cluster.quarantine.put(*subject(call, message), "call", None)
        self._sequence = self._seen = sequence
        cluster.statistics.events += 1
        cluster.statistics.early_stamps += time_ns < before_ns

    def _refresh_at_end(self) -> Cooperative[None]:
        """Update the clients of frameworks in `Cluster.pending` at the end of a message."""
        try:
            yield from self._refresh_pending()
        except InvalidEvent as error:
            self._cluster.divergence = str(error)

    def _refresh_pending(self) -> Cooperative[None]:
        """Update the clients of frameworks whose former calls in the message have changed them.

        Raises:
            InvalidEvent: The update has failed; only a snapshot repairs the state.
        """
        try:
            yield from self._cluster.refresh_pending()
            yield from self._users.update_entitlements_in_steps()
        except Exception as error:
            raise self._rejection(self._sequence, "refresh", error) from error

    def _call_of(self, event: contract.Event, sequence: int) -> str:
        """Return the name of an event's call.

        Raises:
            InvalidEvent: The event is not the next one, or has an unknown call.
        """
        if sequence != self._sequence + 1:
            raise LostTrack(
                f"event {sequence} follows event {self._sequence}: events are missing or came twice"
            )
        call = event.WhichOneof("call")
        if call is None:
            raise InvalidEvent(
                f"event {sequence} has a call that this allocator does not know; upgrade "
                "the allocator first"
            )
        return call

    def _note_skipped(self, events: Iterable[contract.Event]) -> None:
        for event in events:
            if event.sequence == self._seen + 1 and self._seen >= 0:
                self._seen = event.sequence
                try:
                    note_skipped(self._cluster, event)
                except Exception:  # noqa: BLE001 - filters are lost instead
                    self.statistics.faults += 1
                    self._seen = -1
            elif event.sequence != self._seen:
                self._seen = -1

    def _rejection(self, sequence: int, call: str, error: Exception) -> InvalidEvent:
        """Return the error to raise for a rejected call.

        An error of another type than `InvalidEvent` is a fault of the allocator, and is counted.

        Args:
            sequence: The event's sequence number.
            call: The name of the event's call.
            error: The exception that the call caused.
        """
        if not isinstance(error, InvalidEvent):
            self.statistics.faults += 1
        return InvalidEvent(f"event {sequence} ({call}): {describe_error(error)}")

    def _may_request_snapshot(self) -> bool:
        """Return whether a snapshot may be requested now, which is permitted once a minute.

        If the result is True, the minute starts now.
        """
        if self._cluster.now_ns < self._requested_ns + PATIENCE_NS:
            return False
        self._requested_ns = self._cluster.now_ns
        return True

    def _skip(self, event: contract.Event, error: InvalidEvent) -> None:
        """Skip an event that contradicts the known state.

        The event's call is put in quarantine. The error is noted for `divergence`.

        Args:
            event: The event to skip.
            error: The contradiction between the event and the known state.
        """
        cluster, call = self._cluster, event.WhichOneof("call")
        if call is not None:
            flaw = ValidationError("contradiction", str(error))
            cluster.quarantine.put(*subject(call, getattr(event, call)), "call", flaw)
        if call in {"update_available", "get_inverse_offer_statuses"}:
            cluster.replies.append(contract.Reply(sequence=event.sequence, error=str(error)))
        cluster.divergence = str(error)
        self._sequence = self._seen = event.sequence
        self.statistics.passed_over += 1


def _empty_cluster(
    settings: EngineSettings, options: contract.Options, now_ns: int, statistics: ClusterStatistics
) -> Cluster:
    """Return a cluster without agents and frameworks.

    Args:
        settings: The operator's settings.
        options: The master's flags.
        now_ns: The master's clock, in nanoseconds.
        statistics: Receives the cluster's counts of events.

    Raises:
        InvalidEvent: The options are malformed.
    """
    excluded = tuple(options.fairness_excluded)
    clients = Clients(settings, now_ns / _NANOSECONDS, excluded)
    demands = Demands(settings)
    role_rules = PlaceRules(
        settings.limits.all_roles,
        leaves_room=settings.roles_leave_room,
        reserved_for_ns=round(settings.roles_reserved_for * _NANOSECONDS),
        counts_reserved=settings.roles_reserved_by_principal,
        same_principal=settings.frameworks_keep_places,
    )
    return Cluster(
        rules=rules(options),
        ledger=Ledger(
            clients,
            demands,
            Placements(settings.constraints),
            Exclusions(settings.limits.exclusions, settings.limits.all_exclusions),
            Quotas(volumes_once=settings.headroom_counts_volumes_once),
            answered_after_ns(options, settings.limits),
        ),
        demands=demands,
        interval_ns=options.allocation_interval_ns,
        now_ns=now_ns,
        offers_freed_at_once=settings.allocation == "event",
        left_out_agents_wait=settings.left_out_agents_wait,
        limits_sharing=settings.limits_sharing,
        skips_void_calls=settings.skips_void_calls,
        statistics=statistics,
        recovery=recovery(options),
        reports_used=options.tells_running,
        refusals=(
            RefusedOffers(options.allocation_interval_ns, settings.departed_refuse_nothing)
            if settings.refusals_wait
            else None
        ),
        limits=settings.limits,
        filters=OfferFilters(settings.limits.filters, settings.limits.all_filters),
        roles=LimitedPlaces(role_rules),
        framework_places=LimitedPlaces(
            replace(
                role_rules,
                most=settings.limits.frameworks or math.inf,
                counts_reserved=True,
                outlive_restarts=settings.frameworks_keep_places,
                few_outlive_restarts=settings.few_frameworks_keep_places,
                few=0,
                things="frameworks",
                setting="limits.frameworks",
            )
        ),
        whole_from=settings.whole_from,
        skips_refusing_clients=settings.skips_refusing_clients,
        examines_for_clients=settings.examines_for_clients,
        holds=BackfillHolds(
            settings.hold_for,
            round(settings.longest_hold * _NANOSECONDS),
            statistics.holds,
            by_turns=settings.hold_by_turns,
        ),
    )
