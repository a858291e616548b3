"""One master's stream: hello, snapshot, events in; decisions out, in the same order."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, Protocol, TypeAlias

import grpc
import structlog

from allocator import __version__
from allocator.cluster.cooperative import Cooperative
from allocator.cluster.engine import Engine
from allocator.cluster.input.errors import InvalidEvent
from allocator.cluster.memory import Memory
from allocator.contract import SPOKEN
from allocator.contract import allocator_pb2 as contract
from allocator.service.loop import gc_tuning as garbage
from allocator.service.loop.cooperative import spread
from allocator.service.loop.engine_lock import EngineLock
from allocator.service.masters.message_splitting import parts_of
from allocator.service.masters.timestamp_guard import TimestampGuard
from allocator.service.masters.wire import WireError

if TYPE_CHECKING:
    from allocator.cluster.input.quarantine import RejectedInput

GREETING_TIME = 10.0
"""Seconds within which a master must say Hello."""
_LAST_WORD = 5.0
"""Seconds for a stream that is ended to hear why."""
LONGEST_NAME = 1000
"""Characters of what a master calls itself."""

_TIME = attrgetter("time_ns")

_log = structlog.get_logger(__name__)


def _now() -> float:
    """Read this machine's clock that only goes forward; seconds."""
    return time.monotonic()  # looked up at each call, as a simulated machine has another


@dataclass(slots=True)
class SessionStatistics:
    """What the service knows about its sessions."""

    connected: bool = False
    """Whether a leading master is."""
    since: float = field(default_factory=_now)
    """When the latest master became the leader, or ceased to be; at first when the service began.

    By this machine's clock that only goes forward, in seconds."""
    standby: int = 0
    """Masters that are connected and do not lead."""
    sessions: int = 0
    """Sessions opened."""
    resyncs: int = 0
    """Snapshots that had to be asked for."""
    bounded_stamps: int = 0
    """Stamps that were not believed as they came."""
    lag: float = 0.0
    """Seconds from reading the latest message to having written its decisions."""
    observe: Callable[[str, float], None] = field(default=lambda _phase, _seconds: None)
    """Told how long each message took: phase ("decide" or "write") and seconds."""

    def lead(self, *, connected: bool) -> None:
        """Say whether a leading master is connected."""
        if connected != self.connected:
            self.connected, self.since = connected, _now()

    @property
    def alone(self) -> float | None:
        """For how many seconds no leading master has been connected; None: one is."""
        return None if self.connected else _now() - self.since


Unread: TypeAlias = Cooperative[contract.FromMaster]
"""A message that is still to be read, step by step; WireError: it is none of the contract."""


class ProtocolError(Exception):
    """The master's side broke the protocol; ends its stream."""

    def __init__(self, code: grpc.StatusCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class Ended(Exception):  # noqa: N818 - nothing is wrong
    """The service ends a stream; says why."""


Requests = AsyncIterator[contract.FromMaster | Unread]


class Masters(Protocol):
    """All sessions, as far as one of them has to do with the others."""

    turn: EngineLock
    """Who may use the engine."""
    before_message: Callable[[], None]
    """Told that a message is about to reach the engine, whole or its first part."""

    def stamps(self, session: "Session") -> TimestampGuard | None:
        """Return who bounds the stamps of a session that has greeted; None: it need not be.

        Raises:
            ProtocolError: its clock is virtual, and that is not allowed.
        """

    def settle(self, session: "Session") -> None:
        """Find room for a session whose first snapshot has come.

        Raises:
            ProtocolError: there is none.
        """

    def obstacle(self, session: "Session") -> str | None:
        """Return why a master that says it leads is not served; None: it may be."""

    async def recall(self) -> Memory | None:
        """Return what another service, beside another master, has left in the store meanwhile."""

    def lead(self, session: "Session") -> None:
        """Make a master the leader whose snapshot has proved to be usable."""

    def resign(self, session: "Session") -> None:
        """Follow that a master says that it does not lead."""

    def heard(self, session: "Session") -> None:
        """Note that a session has said something."""


class Session:
    """The protocol of one stream.

    A master on standby is listened to and told nothing; its events never reach the engine. The one
    that leads is served.

    Args:
        engine: Decides.
        statistics: Kept up to date.
        masters: All sessions.
        certificate: The name in the certificate that the peer has shown; None: none was asked for.
    """

    def __init__(
        self,
        engine: Engine,
        statistics: SessionStatistics,
        masters: Masters,
        certificate: str | None = None,
    ) -> None:
        self.hello = contract.Hello()
        """How the master has introduced itself."""
        self.certificate = certificate
        self.heard = 0.0
        """When its latest message came, by the clock of those who compare."""
        self.elected_ns = 0
        """When it says that it was elected, by its own clock; 0: it does not say that it leads."""
        self.settled = False
        """Whether a first snapshot has come."""
        self.left = False
        """Whether its stream has ended; a snapshot that was being read then is read to its end."""
        self._engine = engine
        self._misfits: dict[str, str] = {}
        """Frameworks that have been reported as kept from offers, and how."""
        self._refused: dict[str, str] = {}
        """Frameworks that get no offers and of which the master has been told, and why."""
        self._set_aside: set[RejectedInput] = set()
        """What else has been reported."""
        self._statistics = statistics
        self._masters = masters
        self._stamps: TimestampGuard | None = None
        self._leads = False
        self._served = False
        """Whether a snapshot has been restored."""
        self._runs_before = engine.statistics.runs
        """Allocation runs that were not for this session."""
        self._synchronised = False
        """Whether a snapshot has come and everything since has fitted."""
        self._asked = False
        """Whether a snapshot has been asked for and not come yet."""
        self._reader: asyncio.Task[object] | None = None
        """Who waits for a message; None: nobody does."""
        self._first = True
        """Whether nothing of the present message has reached the engine yet."""
        self._ended: str | None = None
        self._task = asyncio.current_task()

    def end(self, reason: str) -> None:
        """Make `serve` raise Ended; no message that has been read reaches the engine any more."""
        self._ended = reason
        if self._reader is not None:
            self._reader.cancel()
            self._reader = None
        if self._task is not None:  # one that waits for a peer who does not listen is not reading
            asyncio.get_running_loop().call_later(_LAST_WORD, self._task.cancel)

    async def greet(self, requests: Requests) -> None:
        """Read the first message.

        Raises:
            ProtocolError: it is not a Hello that can be understood, or did not come.
            Ended: the service has ended the stream.
        """
        try:
            async with asyncio.timeout(GREETING_TIME):
                first = await self._next(requests)
        except TimeoutError:
            raise ProtocolError(
                grpc.StatusCode.DEADLINE_EXCEEDED, f"no Hello within {GREETING_TIME:g} s"
            ) from None
        if first is None or first.WhichOneof("message") != "hello":
            raise ProtocolError(
                grpc.StatusCode.FAILED_PRECONDITION, "the first message must be Hello"
            )
        if first.hello.contract_version not in SPOKEN:
            raise ProtocolError(
                grpc.StatusCode.FAILED_PRECONDITION,
                f"the master's side speaks version {first.hello.contract_version} of the "
                f"contract, this allocator versions {SPOKEN[0]} to {SPOKEN[-1]}; upgrade the "
                "allocator first, then the master's side",
            )
        names = (first.hello.session_id, first.hello.master, first.hello.mesos_version)
        if any(len(name) > LONGEST_NAME for name in names):
            raise ProtocolError(
                grpc.StatusCode.INVALID_ARGUMENT,
                f"a name in Hello is longer than {LONGEST_NAME} characters",
            )
        self.hello = first.hello
        self._stamps = self._masters.stamps(self)

    async def serve(self, requests: Requests) -> AsyncIterator[contract.ToMaster]:
        """Answer each message after the first.

        Raises:
            ProtocolError: a message breaks the protocol, or another master leads.
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
            begun = time.perf_counter()
            if self._stamps is not None:
                before = self._stamps.bounded
                self._stamps.bound(message)
                self._statistics.bounded_stamps += self._stamps.bounded - before
            if message.HasField("snapshot"):
                self.elected_ns = max(message.snapshot.leading_since_ns, 0)
                self._masters.settle(self)
            memory: Memory | None = None
            if message.HasField("snapshot") and self._may_take_over():
                memory = await self._masters.recall()
            self._first = True
            for part in parts_of(message):
                started = time.perf_counter()
                if not self._first:
                    await asyncio.sleep(0)  # others wait for their turn
                answer = await self._answer(part, memory)
                decided = time.perf_counter()
                self._statistics.observe("decide", decided - started)
                if answer is None:
                    continue
                if self._leads and answer.HasField("decisions") and self._measures(part):
                    self._measured(answer.decisions.statistics, decided - started)
                    self._report_misfits()
                    answer.decisions.refused.extend(self._newly_refused())
                yield answer
                self._statistics.observe("write", time.perf_counter() - decided)
                if part.HasField("snapshot") and self._leads:
                    garbage.settle()
            self._statistics.lag = time.perf_counter() - begun

    async def _answer(
        self, message: contract.FromMaster, memory: Memory | None
    ) -> contract.ToMaster | None:
        match message.WhichOneof("message"):
            case "snapshot":
                snapshot = message.snapshot
                return await self._masters.turn.through(lambda: self._restoring(snapshot, memory))
            case "events":
                return await self._apply(message.events)
            case "hello":
                raise ProtocolError(grpc.StatusCode.FAILED_PRECONDITION, "Hello came twice")
            case _:
                raise ProtocolError(
                    grpc.StatusCode.INVALID_ARGUMENT, "a message of a kind that is not known"
                )

    def _restoring(
        self, snapshot: contract.Snapshot, memory: Memory | None
    ) -> Cooperative[contract.ToMaster]:
        """Take a snapshot, step by step; who leads changes with what is known, in one step."""
        self._go_on()
        self._synchronised, self._asked = True, False
        if not self.elected_ns:
            self._leads = False
            self._masters.resign(self)
            return _nothing(snapshot.sequence)
        if not self._leads and (reason := self._masters.obstacle(self)) is not None:
            return _nothing(snapshot.sequence, reason)
        self._begin()
        try:
            decisions = yield from self._engine.restoring(self.hello.options, snapshot, memory)
        except InvalidEvent as error:
            # Not asked for again: it would come back as it is, at once, for ever.
            raise ProtocolError(
                grpc.StatusCode.INVALID_ARGUMENT, f"the snapshot cannot be used: {error}"
            ) from error
        if not self.left:
            self._leads = True
            self._masters.lead(self)
        if self._stamps is not None:
            self._stamps.believe(snapshot.time_ns)
        if not self._served:
            self._served, self._runs_before = True, self._engine.statistics.runs
        _log.info(
            "snapshot restored",
            master=self.hello.master,
            agents=self._engine.agents,
            frameworks=self._engine.frameworks,
            sequence=self._engine.sequence,
        )
        return contract.ToMaster(decisions=decisions)

    async def _apply(self, events: contract.Events) -> contract.ToMaster | None:
        if self._asked:
            if self._leads:
                self._engine.unheard(events.events)
            return None  # sent before the request arrived; the snapshot will contain it
        if not self._synchronised:
            raise ProtocolError(
                grpc.StatusCode.FAILED_PRECONDITION, "events came before a snapshot"
            )
        if not self._leads:
            elected = any(event.HasField("recover") for event in events.events)
            reason = self._masters.obstacle(self) if self.elected_ns else None
            if elected or (self.elected_ns and reason is None):
                return self._ask("you lead now", elected=True)
            latest = max((event.sequence for event in events.events), default=0)
            return _nothing(latest, reason)
        try:
            decisions = await self._masters.turn.through(lambda: self._applying(events))
            self._go_on()  # that took long, perhaps
        except InvalidEvent as error:
            return self._ask(str(error))
        divergence = self._engine.divergence()
        if divergence is not None:
            return self._ask(divergence)
        return contract.ToMaster(decisions=decisions)

    def _applying(self, events: contract.Events) -> Cooperative[contract.Decisions]:
        self._go_on()
        self._begin()
        if self._stamps is not None:
            self._stamps.believe(max(map(_TIME, events.events), default=0))
        return self._engine.applying(events)

    def _begin(self) -> None:
        """Say that a message reaches the engine, once."""
        if self._first:
            self._first = False
            self._masters.before_message()

    def _go_on(self) -> None:
        """Do not go on if the service has ended the stream while this was waiting for its turn."""
        if self._ended is not None:
            raise Ended(self._ended)

    def _may_take_over(self) -> bool:
        """Whether a master that is not served says that it leads, and nobody keeps it out."""
        claims = self.elected_ns > 0 and not self._leads
        return claims and self._masters.obstacle(self) is None

    def _measures(self, message: contract.FromMaster) -> bool:
        ticks = any(event.HasField("tick") for event in message.events.events)
        return ticks or self.hello.options.always_measure

    def _measured(self, statistics: contract.Statistics, seconds: float) -> None:
        statistics.allocation_runs = self._engine.statistics.runs - self._runs_before
        statistics.run_ns = round(seconds * 1e9)
        statistics.active_filters.update(self._engine.filters_by_role())

    def _newly_refused(self) -> list[contract.Refused]:
        """Return frameworks that get no offers at all, of which the master has not been told."""
        before, self._refused = (
            self._refused,
            {
                rejected.name: rejected.flaw.words
                for rejected in self._engine.set_aside()
                if (rejected.kind, rejected.topic) == ("framework", "subscription")
            },
        )
        return [
            contract.Refused(framework_id=name, reason=words)
            for name, words in sorted(self._refused.items())
            if before.get(name) != words
        ]

    def _report_misfits(self) -> None:
        """Say once of each framework what it should know when it waits for offers in vain."""
        misfits, slips = self._engine.misfits(), self._engine.slips()
        for framework, reason in misfits.items():
            if self._misfits.get(framework) != reason:
                _log.warning(
                    "label not understood" if framework in slips else "framework does not fit",
                    framework=framework,
                    name=self._engine.framework_name(framework),
                    reason=reason,
                )
        self._misfits = misfits
        set_aside = {
            rejected for rejected in self._engine.set_aside() if rejected.name not in misfits
        }
        for rejected in set_aside - self._set_aside:
            _log.warning(
                "set aside",
                kind=rejected.kind,
                name=rejected.name,
                about=rejected.topic,
                reason=rejected.flaw.words,
            )
        self._set_aside = set_aside

    def _ask(self, reason: str, *, elected: bool = False) -> contract.ToMaster:
        """Ask for a snapshot, which replaces also what has just been decided.

        Args:
            reason: For people.
            elected: Whether that is because of an election, which is nothing to warn of.
        """
        self._synchronised, self._asked = False, True
        self._statistics.resyncs += 1
        log = _log.info if elected else _log.warning
        log("asking for a snapshot", master=self.hello.master, reason=reason)
        return contract.ToMaster(
            snapshot_request=contract.SnapshotRequest(reason=reason, elected=elected)
        )

    async def _next(self, requests: Requests) -> contract.FromMaster | None:
        """Read a message; None at the end of the stream."""
        message = await self._read(requests) if self._ended is None else None
        if self._ended is not None:
            raise Ended(self._ended)
        self._masters.heard(self)
        if message is None or isinstance(message, contract.FromMaster):
            return message
        try:
            return await spread(message, rest=0.0)
        except WireError as error:
            raise ProtocolError(
                grpc.StatusCode.INVALID_ARGUMENT,
                f"what came is not a message of the contract: {error}",
            ) from error

    async def _read(self, requests: Requests) -> contract.FromMaster | Unread | None:
        """Wait for a message; None: the stream has ended, or the service ends it.

        In the stream's own task, for another one would cost each message two turns of the loop.
        """
        self._reader = reader = asyncio.current_task()
        try:
            return await anext(requests, None)
        except asyncio.CancelledError:
            if self._ended is None or reader is None:
                raise
            reader.uncancel()
            return None
        finally:
            self._reader = None


def _nothing(sequence: int, waiting_for: str | None = None) -> contract.ToMaster:
    """Answer a master that is not served, and say why, if it leads and has to wait."""
    decisions = contract.Decisions(applied_sequence=sequence, waiting_for=waiting_for or "")
    return contract.ToMaster(decisions=decisions)
