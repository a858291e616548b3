"""Protocol of one master's gRPC stream: Hello, snapshots and events in, decisions out."""

import asyncio
import heapq
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, Protocol, TypeAlias

import grpc
import structlog

from allocator import __version__
from allocator.cluster.allocation.answer import SLICE_BYTES
from allocator.cluster.engine import Engine
from allocator.cluster.input.errors import InvalidEvent
from allocator.contract import SUPPORTED_VERSIONS
from allocator.contract import allocator_pb2 as contract
from allocator.cooperative import Cooperative, InParts
from allocator.service.loop import gc_tuning
from allocator.service.loop.cooperative import run_in_slices
from allocator.service.loop.engine_lock import EngineLock, Run
from allocator.service.masters.message_splitting import (
    MAX_EVENTS_PER_PART,
    split_answer,
    split_message,
)
from allocator.service.masters.timestamp_guard import TimestampGuard
from allocator.service.masters.wire import HeavyEventsError, WireError
from allocator.users.memory import Memory

if TYPE_CHECKING:
    from allocator.cluster.input.quarantine import RejectedInput, Sender

HELLO_TIMEOUT_S = 10.0
"""Seconds within which a master must send Hello."""
_CLOSE_TIMEOUT_S = 5.0
"""Seconds that an ended stream has to deliver the reason to its peer before its task is
cancelled."""
MOST_FILTER_COUNTS = 2_000
"""Maximum number of roles, those with the most offer filters, in an answer's statistics."""
MOST_EXAMINED = 200
"""Maximum number of frameworks that a tick examines for warnings in the log. With more frameworks,
ticks examine them in turn."""
_EXAMINATION_BUDGET = 250
"""Number of comparisons of resource names after which a tick examines no further framework."""
_CHANGED_REASON_COST = 10
"""Number of comparisons for which a log line about a changed reason counts."""
SLICE_OFFERS = 250
"""Least number of offers that leave while an allocation cycle goes on, in a message of their own.
"""
MAX_OFFER_BYTES = 2**22
"""Maximum number of bytes of the resources in one offer.

An answer of more than `listen.largest_message` would end the stream. Thousands of reservations with
long labels can cause one. Several shorter messages also take shorter steps to write.
"""
_VERSION_OF_SLICES = 4
"""First version of the contract with `Decisions.more`."""
MOST_REPORTED = 1_000
"""Maximum number of senders of rejected input that a tick reports to the master, and to the log.
Further senders follow at the next ticks."""
MAX_NAME_LENGTH = 1000
"""Maximum length of each name in Hello, in characters."""

_event_time = attrgetter("time_ns")

_log = structlog.get_logger(__name__)


def _now() -> float:
    """Return the monotonic time in seconds; in simulations, the time of the simulated machine."""
    return time.monotonic()  # looked up at each call: simulated machines replace the clock


@dataclass(slots=True)
class SessionStatistics:
    """Counters and times of all masters' sessions, exported as metrics and on the status page."""

    connected: bool = False
    """True while a leading master is connected."""
    since: float = field(default_factory=_now)
    """Monotonic time, in seconds, at which `connected` last changed; initially the service's
    start."""
    standby: int = 0
    """Number of connected masters that do not lead."""
    sessions: int = 0
    """Number of sessions opened."""
    resyncs: int = 0
    """Number of snapshots that the service has requested from masters."""
    bounded_stamps: int = 0
    """Number of timestamps of masters that were corrected because they deviated too far from this
    machine's clock."""
    lag: float = 0.0
    """Seconds from reading the latest message to having written all decisions about it."""
    observe: Callable[[str, float], None] = field(default=lambda _phase, _seconds: None)
    """Callback that receives the name of a processing step, "decide" or "write", and its duration
    in seconds."""

    def lead(self, *, connected: bool) -> None:
        """Record whether a leading master is connected now; called after each possible change."""
        if connected != self.connected:
            self.connected, self.since = connected, _now()

    @property
    def alone(self) -> float | None:
        """Seconds since a leading master was last connected; None while one is connected.

        Before the first leader, the seconds count from the service's start.
        """
        return None if self.connected else _now() - self.since


PendingMessage: TypeAlias = Cooperative[contract.FromMaster]
"""A message that is still to be parsed, in cooperative steps. Parsing raises WireError if the
message violates the contract."""


class ProtocolError(Exception):
    """The master's side has violated the protocol. The stream ends with the gRPC status `code`."""

    def __init__(self, code: grpc.StatusCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class Ended(Exception):  # noqa: N818 - nothing is wrong
    """The service has ended a master's stream; the exception's text states the reason."""


Requests = AsyncIterator[contract.FromMaster | PendingMessage]
Reply: TypeAlias = contract.Decisions | contract.ToMaster
"""A message to the master. Decisions stand for a `ToMaster` message with them, because a message in
which they are put would be a copy."""


class Masters(Protocol):
    """Interface to `Sessions`, the set of all masters' sessions, as a single session uses it."""

    engine_lock: EngineLock
    """Lock that serialises access to the engine."""
    before_message: Callable[[], None]
    """Callback invoked once per message, just before the message or its first part reaches the
    engine."""

    def timestamp_guard(self, session: "Session") -> TimestampGuard | None:
        """Return the guard for the timestamps of a session after Hello; None for a virtual clock.

        Raises:
            ProtocolError: the session's clock is virtual, and virtual clocks are not allowed.
        """

    def admit(self, session: "Session") -> None:
        """Admit a session whose first snapshot has arrived, unless too many masters wait already.

        Raises:
            ProtocolError: the limit of waiting masters is reached.
        """

    def takeover_blocker(self, session: "Session") -> str | None:
        """Return why a master that claims leadership has to wait; None if it may lead now."""

    async def load_stored_memory(self) -> Memory | None:
        """Return commitments and operator settings that another service stored.

        The result is None if there are none, or if they cannot be read.
        """

    def promote(self, session: "Session") -> None:
        """Make a master the leader; called in the step in which the engine adopts its snapshot."""

    def demote(self, session: "Session") -> None:
        """Record that a master on standby neither leads nor claims leadership any more."""

    def touch(self, session: "Session") -> None:
        """Record that a message of a session has arrived now, so that its master is not silent."""


class Session:
    """Serves one master's gRPC stream: reads its messages and yields the answers.

    Only the leading master gets decisions of the engine. The messages of a standby master are
    answered without decisions, and its events never reach the engine.

    Args:
        engine: The engine that makes the decisions.
        statistics: Statistics of all sessions, which this session updates.
        masters: The set of all sessions.
        certificate: Name in the peer's TLS certificate; None if no certificate was requested.
    """

    admitted = False
    """Whether the session's first snapshot has arrived and been admitted."""
    closed = False
    """True once the stream has ended. A snapshot that is being restored then is still completed."""

    def __init__(
        self,
        engine: Engine,
        statistics: SessionStatistics,
        masters: Masters,
        certificate: str | None = None,
    ) -> None:
        self.hello = contract.Hello()
        """The Hello message of the master."""
        self.certificate = certificate
        self.last_heard = 0.0
        """Time of the latest message, in seconds by the clock of `Leadership`."""
        self.elected_ns = 0
        """Time at which the master claims to have been elected, in nanoseconds by its own clock;
        0 if it does not claim leadership."""
        self._engine = engine
        self._reported_misfits: dict[str, str] = {}
        """Frameworks that cannot get offers and have been logged: identifier → reason."""
        self._unexamined: list[str] = []
        """Frameworks that the next ticks examine for warnings, in this order."""
        self._reported_settings: dict[str, str] = {}
        """Settings that do not fit and have been logged: setting → reason."""
        self._refused: dict[str, str] = {}
        """Rejected frameworks of which the master has been informed: identifier → reason."""
        self._rejected_versions: dict[str, tuple[int, int]] = {}
        """`Engine.rejected_version` when the master was informed, and when warnings were logged."""
        self._unreported: dict[str, dict[Sender, None]] = {"master": {}, "log": {}}
        """Senders of rejected input to report to the master and to the log, at the next ticks."""
        self._logged_rejections: dict[Sender, list[RejectedInput]] = {}
        """Other rejected inputs that have been logged, by sender."""
        self._statistics = statistics
        """Statistics of all masters' sessions."""
        self._masters = masters
        self._timestamp_guard: TimestampGuard | None = None
        self._leads = False
        """True while this session's master leads."""
        self._was_served = False
        """True once a snapshot has been restored."""
        self._cycles_before = engine.statistics.runs
        """Number of allocation cycles before this session was first served."""
        self._synchronised = False
        """True if a snapshot has arrived and all later events have been consistent with it."""
        self._snapshot_requested = False
        """True while a requested snapshot has not arrived."""
        self._unread: str | None = None
        """Why the present events were not read; None if they were."""
        self._reading = False
        """True while the stream's task waits for the next message."""
        self._before_engine = True
        """True until the first part of the present message reaches the engine."""
        self._run: Run[contract.Decisions, contract.Decisions] | None = None
        """The engine's work on the present events; None if the engine does not apply them."""
        self._end_reason: str | None = None
        """Why the service ends the stream; None while the stream is open."""
        self._task = asyncio.current_task()
        """The stream's task, which reads all messages."""
        self._in_slices = self._always_measures = False
        """Whether the master knows `Decisions.more`, and whether it wants statistics with each
        answer. A field of a message takes longer to read."""

    def end(self, reason: str) -> None:
        """End the stream, so that `serve` raises Ended and no further message reaches the engine.

        Args:
            reason: Text that the master's side receives.
        """
        self._end_reason = reason
        if self._task is not None:
            if self._reading:
                self._task.cancel()
            # A task that waits for an unresponsive peer is not in a read.
            asyncio.get_running_loop().call_later(_CLOSE_TIMEOUT_S, self._task.cancel)
        self._reading = False

    async def greet(self, requests: Requests) -> None:
        """Read the first message, which must be Hello, and check it.

        Raises:
            ProtocolError: the first message is not a valid Hello, or did not arrive in time.
            Ended: the service has ended the stream.
        """
        try:
            async with asyncio.timeout(HELLO_TIMEOUT_S):
                first = await self._next(requests)
        except TimeoutError:
            raise ProtocolError(
                grpc.StatusCode.DEADLINE_EXCEEDED, f"no Hello within {HELLO_TIMEOUT_S:g} s"
            ) from None
        if first is None or first.WhichOneof("message") != "hello":
            raise ProtocolError(
                grpc.StatusCode.FAILED_PRECONDITION, "the first message must be Hello"
            )
        if first.hello.contract_version not in SUPPORTED_VERSIONS:
            raise ProtocolError(
                grpc.StatusCode.FAILED_PRECONDITION,
                f"the master's side speaks version {first.hello.contract_version} of the "
                f"contract, this allocator versions {SUPPORTED_VERSIONS[0]} to "
                f"{SUPPORTED_VERSIONS[-1]}; upgrade the allocator first, then the master's side",
            )
        names = (first.hello.session_id, first.hello.master, first.hello.mesos_version)
        if any(len(name) > MAX_NAME_LENGTH for name in names):
            raise ProtocolError(
                grpc.StatusCode.INVALID_ARGUMENT,
                f"a name in Hello is longer than {MAX_NAME_LENGTH} characters",
            )
        self.hello = first.hello
        self._in_slices = self.hello.contract_version >= _VERSION_OF_SLICES
        self._always_measures = self.hello.options.always_measure
        self._timestamp_guard = self._masters.timestamp_guard(self)

    async def serve(self, requests: Requests) -> AsyncIterator[Reply]:  # noqa: C901, PLR0912 - one protocol
        """Read all messages after Hello, and yield the answers in order.

        Raises:
            ProtocolError: a message violates the protocol, or another master leads.
            Ended: the service has ended the stream.
        """
        yield contract.ToMaster(
            welcome=contract.Welcome(
                contract_version=self.hello.contract_version,
                longshare_version=__version__,
                policy=self._engine.pool.policy.name,
            )
        )
        while (message := await self._next(requests)) is not None:
            received = time.perf_counter()
            if self._timestamp_guard is not None:
                self._bound_timestamps(message, self._timestamp_guard)
            memory: Memory | None = None
            kind, events = message.WhichOneof("message"), message.events
            if kind == "snapshot":
                self.elected_ns = max(message.snapshot.leading_since_ns, 0)
                self._masters.admit(self)
                if self._can_take_over():
                    memory = await self._masters.load_stored_memory()
            self._before_engine = True
            is_short = len(events.events) <= MAX_EVENTS_PER_PART
            for part in (message,) if is_short else split_message(message):
                started = time.perf_counter()
                if not self._before_engine:
                    await asyncio.sleep(0)  # let other users of the engine proceed
                if kind == "events":
                    answer = await self._apply(events if is_short else part.events)
                else:
                    answer = await self._answer(part, memory)
                run = self._run
                while (
                    run is not None
                    and run.in_parts
                    and isinstance(answer, contract.Decisions)
                    and answer.more
                ):
                    for piece in self._pieces(answer):
                        yield piece
                    answer = await self._proceed(run)
                decided = time.perf_counter() if run is None else run.ended
                if answer is None:
                    self._statistics.observe("decide", decided - started)
                    continue
                if (
                    self._leads
                    and (self._engine.ticked or self._always_measures)
                    and isinstance(answer, contract.Decisions)
                ):
                    self._add_details(answer, decided - started)
                if self._engine.answer_size <= SLICE_BYTES:
                    yield answer
                else:
                    for piece in self._pieces(answer):
                        yield piece
                self._statistics.observe("write", time.perf_counter() - decided)
                self._statistics.observe("decide", decided - started)
                if self._leads:
                    self._complete(kind)
            self._statistics.lag = time.perf_counter() - received
            self._run = run = None
            del message, events, part  # now, so that the next message does not wait for it

    def _pieces(self, answer: Reply) -> Iterable[Reply]:
        """Return messages for an answer: itself, or several if its offers are too long for one."""
        if self._engine.answer_size <= SLICE_BYTES or isinstance(answer, contract.ToMaster):
            return (answer,)
        if not self._in_slices:
            return (answer,)
        return split_answer(answer, SLICE_BYTES, MAX_OFFER_BYTES)

    def _complete(self, kind: str | None) -> None:
        """Do work that the answer to a message of a kind did not have to wait for."""
        if kind == "snapshot":
            gc_tuning.collect_after_snapshot()
        else:
            self._masters.engine_lock.run_if_free(self._engine.rank_ahead)

    def _bound_timestamps(self, message: contract.FromMaster, guard: TimestampGuard) -> None:
        """Correct timestamps of a message that deviate too far from this machine's clock."""
        before = guard.corrected
        guard.bound(message)
        self._statistics.bounded_stamps += guard.corrected - before

    def _answer(self, message: contract.FromMaster, memory: Memory | None) -> Awaitable[Reply]:
        """Return the answer to a message without events.

        The caller must await the answer at once.

        Args:
            message: The message.
            memory: Commitments and operator settings that another service has stored, for a master
                that takes over; None if there are none.

        Raises:
            ProtocolError: the message violates the protocol.
            Ended: the service has ended the stream.
        """
        self._run = None
        match message.WhichOneof("message"):
            case "snapshot":
                snapshot = message.snapshot
                return self._masters.engine_lock.run(lambda: self._restoring(snapshot, memory))
            case "hello":
                raise ProtocolError(
                    grpc.StatusCode.FAILED_PRECONDITION, "the master's side sent Hello twice"
                )
            case _:
                raise ProtocolError(
                    grpc.StatusCode.INVALID_ARGUMENT,
                    "the message is of an unknown kind; upgrade the allocator first",
                )

    def _restoring(
        self, snapshot: contract.Snapshot, memory: Memory | None
    ) -> Cooperative[contract.Decisions]:
        """Restore a snapshot in cooperative steps, and return the answer.

        The master becomes the leader in the same step in which the engine adopts the master's
        state. A master that may not lead gets an empty answer, and the engine stays unchanged.

        Args:
            snapshot: The master's state.
            memory: Commitments and operator settings that another service has stored; None if none.
        """
        self._check_not_ended()
        self._synchronised, self._snapshot_requested = True, False
        if not self.elected_ns:
            self._leads = False
            self._masters.demote(self)
            return _empty_answer(snapshot.sequence)
        if not self._leads and (reason := self._masters.takeover_blocker(self)) is not None:
            return _empty_answer(snapshot.sequence, reason)
        self._notify_engine_access()
        try:
            decisions = yield from self._engine.restore_in_steps(
                self.hello.options, snapshot, memory
            )
        except InvalidEvent as error:
            # No new snapshot is requested: the master would send the same one again, without end.
            raise ProtocolError(
                grpc.StatusCode.INVALID_ARGUMENT, f"the snapshot cannot be used: {error}"
            ) from error
        if not self.closed:
            self._leads = True
            self._masters.promote(self)
        if self._timestamp_guard is not None:
            self._timestamp_guard.record(snapshot.time_ns)
        if not self._was_served:
            self._was_served, self._cycles_before = True, self._engine.statistics.runs
            self._warn_of_unknown_offers()
        _log.info(
            "snapshot restored",
            master=self.hello.master,
            agents=self._engine.agents,
            frameworks=self._engine.frameworks,
            sequence=self._engine.sequence,
        )
        return decisions

    def _warn_of_unknown_offers(self) -> None:
        """Log a warning if the limit of unanswered offers has no effect on this master."""
        limits = self._engine.settings.limits
        if limits.bounds_unanswered and not (
            self.hello.options.tells_running or limits.answered_after
        ):
            _log.warning(
                "limits.unanswered and limits.all_unanswered have no effect, because this master "
                "does not report used resources (before Mesos 1.10); set limits.answered_after",
                master=self.hello.master,
                mesos=self.hello.mesos_version,
            )

    async def _apply(self, events: contract.Events) -> Reply | None:
        """Apply events if this master leads; otherwise acknowledge them or request a snapshot.

        Returns:
            The answer; None if a requested snapshot is awaited, which will include the events.

        Raises:
            ProtocolError: no snapshot has arrived before the events.
            Ended: the service has ended the stream.
        """
        self._run = None
        if self._snapshot_requested:
            if self._leads:
                self._engine.note_skipped_events(events.events)
            return None  # the requested snapshot will include these events
        if not self._synchronised:
            raise ProtocolError(
                grpc.StatusCode.FAILED_PRECONDITION,
                "the master's side sent events before a snapshot",
            )
        if not self._leads:
            elected = any(event.HasField("recover") for event in events.events)
            reason = self._masters.takeover_blocker(self) if self.elected_ns else None
            if elected or (self.elected_ns and reason is None):
                return self._request_snapshot("you lead now", elected=True)
            latest = max((event.sequence for event in events.events), default=0)
            return _empty_answer(latest, reason)
        try:
            run = await self._masters.engine_lock.start(lambda: self._applying(events))
        except InvalidEvent as error:
            return self._request_snapshot(str(error))
        self._run = run
        results = run.results
        return self._checked(results[0]) if results else await self._proceed(run)

    async def _proceed(self, run: Run[contract.Decisions, contract.Decisions]) -> Reply:
        """Wait for the next slice of the engine's answer, or for the last decisions; return them.

        A request for a snapshot takes the place of the last decisions if the engine needs one.

        Args:
            run: The engine's work on events.

        Raises:
            Ended: the service has ended the stream.
        """
        try:
            part = None if run.results else await run.part()
            if part is None:
                return self._checked(run.results[0] if run.results else await run.result())
        except InvalidEvent as error:
            return self._request_snapshot(str(error))
        self._check_not_ended()  # the stream may have ended meanwhile
        return part

    def _checked(self, decisions: contract.Decisions) -> Reply:
        """Return the last decisions about events, or a request for a snapshot if it is needed.

        Raises:
            Ended: the service has ended the stream.
        """
        if self._end_reason is not None:  # the stream may have ended meanwhile
            raise Ended(self._end_reason)
        divergence = self._engine.divergence()
        return decisions if divergence is None else self._request_snapshot(divergence)

    def _applying(self, events: contract.Events) -> InParts[contract.Decisions, contract.Decisions]:
        """Return the engine's steps that apply events; called once the engine lock is held.

        Args:
            events: The events.

        Raises:
            InvalidEvent: the events were too heavy to be parsed, so a snapshot is needed.
            Ended: the service has ended the stream.
        """
        if self._end_reason is not None:
            raise Ended(self._end_reason)
        if self._unread is not None:
            self._engine.note_skipped_events(events.events)
            raise InvalidEvent(self._unread)
        self._notify_engine_access()
        if self._timestamp_guard is not None:
            self._timestamp_guard.record(max(map(_event_time, events.events[:]), default=0))
        return self._engine.apply_in_steps(events, SLICE_OFFERS if self._in_slices else 0)

    def _notify_engine_access(self) -> None:
        """Call `before_message`, unless an earlier part of the message has already caused it."""
        if self._before_engine:
            self._before_engine = False
            self._masters.before_message()

    def _check_not_ended(self) -> None:
        """Raise Ended if the service has ended the stream."""
        if self._end_reason is not None:
            raise Ended(self._end_reason)

    def _can_take_over(self) -> bool:
        """Return whether this master claims leadership, is not the leader, and may lead now."""
        claims = self.elected_ns > 0 and not self._leads
        return claims and self._masters.takeover_blocker(self) is None

    def _add_details(self, decisions: contract.Decisions, seconds: float) -> None:
        """Add measurements and rejected frameworks, if the last answer has to contain them.

        The answer to a message with a tick contains them; other answers contain them only if the
        master's options request it. The measurements are the number of allocation cycles, their
        duration and the active filters.

        Args:
            decisions: The answer.
            seconds: Time that the engine took to compute the decisions.
        """
        if not (self._engine.ticked or self.hello.options.always_measure):
            return
        statistics = decisions.statistics
        statistics.allocation_runs = self._engine.statistics.runs - self._cycles_before
        statistics.run_ns = round(seconds * 1e9)
        filters = self._engine.filters_by_role()
        most = heapq.nsmallest(MOST_FILTER_COUNTS, filters, lambda role: (-filters[role], role))
        statistics.active_filters.update({role: filters[role] for role in most})
        self._report_misfits()
        decisions.refused.extend(self._newly_refused())

    def _newly_refused(self) -> list[contract.Refused]:
        """Return frameworks that the engine has rejected, if the master does not know it yet.

        Each is returned with the reason; it is returned again only if the reason changes.
        """
        refused = []
        for kind, name in self._next_senders("master", (("framework", n) for n in self._refused)):
            former, reason = self._refused.pop(name, None), None
            for rejected in self._engine.rejected_input_of(kind, name):
                if (kind, rejected.topic) == ("framework", "subscription"):
                    reason = self._refused[name] = rejected.flaw.words
            if reason is not None and reason != former:
                refused.append(contract.Refused(framework_id=name, reason=reason))
        return refused

    def _next_senders(self, reader: str, reported: "Iterable[Sender]") -> "list[Sender]":
        """Return senders whose rejected input may have changed since the last calls for a reader.

        Args:
            reader: The reader: "master" or "log".
            reported: All senders whose rejected input has been reported to the reader.
        """
        version, unreported = self._engine.rejected_version, self._unreported[reader]
        former = self._rejected_versions.get(reader, (-1, 0))
        if version != former:
            self._rejected_versions[reader] = version
            changed = self._engine.rejected_since(former)
            if changed is None:
                changed = [
                    *reported,
                    *(rejected[:2] for rejected in self._engine.rejected_inputs()),
                ]
            unreported.update(dict.fromkeys(sorted(changed)))
        senders = list(islice(unreported, MOST_REPORTED))
        for sender in senders:
            del unreported[sender]
        return senders

    def _report_misfits(self) -> None:
        """Log why frameworks cannot get offers, and why the engine has rejected input.

        A setting that names an unknown resource is logged, too. Each reason is logged only once.
        Spelling corrections take time, so the next tick examines frameworks beyond a budget.
        """
        mistaken = self._engine.unknown_in_settings()
        for setting, reason in mistaken.items():
            if self._reported_settings.get(setting) != reason:
                _log.warning("a setting does not fit", setting=setting, reason=reason)
        self._reported_settings = mistaken
        examined = self._next_frameworks()
        most_comparisons = self._engine.name_comparisons + _EXAMINATION_BUDGET
        for number, framework in enumerate(examined):
            if self._engine.name_comparisons >= most_comparisons:
                self._unexamined[:0] = examined[number:]
                break
            if self._report_misfit(framework):
                most_comparisons -= _CHANGED_REASON_COST
        self._report_rejections()

    def _report_misfit(self, framework: str) -> bool:
        """Log why a framework cannot get offers, if the reason is new.

        Returns:
            Whether another reason has been logged before.
        """
        before = self._reported_misfits.pop(framework, None)
        reason = self._engine.misfits([framework]).get(framework)
        if reason is None:
            return False
        self._reported_misfits[framework] = reason
        if reason == before:
            return False
        is_slip = framework in self._engine.unreadable_labels([framework])
        _log.warning(
            "label not understood" if is_slip else "framework does not fit",
            framework=framework,
            name=self._engine.framework_name(framework),
            reason=reason,
        )
        return before is not None

    def _next_frameworks(self) -> list[str]:
        """Return the IDs of the frameworks that this tick examines: all, or the next in turn."""
        if not self._unexamined:
            self._unexamined = self._engine.framework_ids()
            reported = self._reported_misfits
            self._reported_misfits = {
                framework: reported[framework]
                for framework in self._unexamined
                if framework in reported
            }
        examined = self._unexamined[:MOST_EXAMINED]
        del self._unexamined[:MOST_EXAMINED]
        return examined

    def _report_rejections(self) -> None:
        """Log rejected input, except of known frameworks: their misfits contain the reason."""
        for sender in self._next_senders("log", self._logged_rejections):
            kind, name = sender
            logged = self._logged_rejections.pop(sender, [])
            if kind == "framework" and self._engine.framework(name) is not None:
                continue
            rejections = self._engine.rejected_input_of(kind, name)
            if rejections:
                self._logged_rejections[sender] = rejections
            for rejected in rejections:
                if rejected not in logged:
                    _log.warning(
                        "set aside",
                        kind=kind,
                        name=name,
                        about=rejected.topic,
                        reason=rejected.flaw.words,
                    )

    def _request_snapshot(self, reason: str, *, elected: bool = False) -> contract.ToMaster:
        """Return a request for a snapshot, to be sent to the master in place of decisions.

        Args:
            reason: Text for the log and for the master.
            elected: True if the cause is an election, which is logged without a warning.
        """
        self._synchronised, self._snapshot_requested = False, True
        self._statistics.resyncs += 1
        log = _log.info if elected else _log.warning
        log("asking for a snapshot", master=self.hello.master, reason=reason)
        return contract.ToMaster(
            snapshot_request=contract.SnapshotRequest(reason=reason, elected=elected)
        )

    async def _next(self, requests: Requests) -> contract.FromMaster | None:
        """Return the next message of the master, parsed; None at the end of the stream.

        If events are too heavy to be parsed, only their effects on offer filters are returned. The
        reason is then stored in `_unread`, and `_applying` raises an error that leads to a request
        for a snapshot.

        Raises:
            ProtocolError: the message violates the contract.
            Ended: the service has ended the stream.
        """
        if self._end_reason is not None:
            raise Ended(self._end_reason)
        # The read runs in the stream's own task: another would cost two iterations of the loop.
        self._reading = True
        message: contract.FromMaster | PendingMessage | None = None
        try:
            message = await anext(requests)
        except StopAsyncIteration:
            pass
        except asyncio.CancelledError:
            if self._reading or self._task is None:  # `end` did not cause it
                raise
            self._task.uncancel()
        finally:
            self._reading = False
        if self._end_reason is not None:
            raise Ended(self._end_reason)
        self._masters.touch(self)
        self._unread = None
        if message is None or isinstance(message, contract.FromMaster):
            return message
        try:
            return await run_in_slices(message, rest=0.0)
        except HeavyEventsError as error:
            self._unread = f"the allocator cannot read the events: {error}"
            return contract.FromMaster(events=error.skipped)
        except WireError as error:
            raise ProtocolError(
                grpc.StatusCode.INVALID_ARGUMENT,
                f"the received bytes are not a message of the contract: {error}",
            ) from error


def _empty_answer(sequence: int, waiting_for: str | None = None) -> contract.Decisions:
    """Return an answer without decisions, for a master on standby or waiting to lead.

    Args:
        sequence: Sequence number of the latest event that the answer acknowledges.
        waiting_for: Why a master that claims leadership has to wait; None if it does not wait.
    """
    return contract.Decisions(applied_sequence=sequence, waiting_for=waiting_for or "")
