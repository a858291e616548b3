"""One master's stream: hello, snapshot, events in; decisions out, in the same order."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

import grpc
import structlog

from allocator import __version__
from allocator.cluster.engine import Engine
from allocator.cluster.errors import InvalidEvent
from allocator.cluster.memory import Memory
from allocator.contract import VERSION
from allocator.contract import allocator_pb2 as contract

GREETING_TIME = 10.0
"""Seconds within which a master must say Hello."""

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class SessionStatistics:
    """What the service knows about its sessions."""

    connected: bool = False
    """Whether a leading master is."""
    standby: int = 0
    """Masters that are connected and do not lead."""
    sessions: int = 0
    """Sessions opened."""
    resyncs: int = 0
    """Snapshots that had to be asked for."""
    lag: float = 0.0
    """Seconds from reading the latest message to having written its decisions."""
    observe: Callable[[str, float], None] = field(default=lambda _phase, _seconds: None)
    """Told how long each message took: phase ("decide" or "write") and seconds."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """What came instead of a message of the contract."""

    reason: str


class ProtocolError(Exception):
    """The master's side broke the protocol; ends its stream."""

    def __init__(self, code: grpc.StatusCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class Ended(Exception):  # noqa: N818 - nothing is wrong
    """The service ends a stream; says why."""


Requests = AsyncIterator[contract.FromMaster | Unreadable]


class Session:
    """The protocol of one stream.

    A master on standby is listened to and told nothing; its events never reach the engine. The one
    that leads is served.

    Args:
        engine: Decides.
        statistics: Kept up to date.
        recall: Returns what another service, beside another master, may have left in the store.
        claim: Called with the instant of a master's election before it is served; raises
            ProtocolError if another one was elected later.
        resign: Called when a master says that it does not lead.
    """

    def __init__(
        self,
        engine: Engine,
        statistics: SessionStatistics,
        recall: Callable[[], Awaitable[Memory | None]],
        claim: Callable[["Session", int], None],
        resign: Callable[["Session"], None],
    ) -> None:
        self.hello = contract.Hello()
        """How the master has introduced itself."""
        self._engine = engine
        self._misfits: dict[str, str] = {}
        """Frameworks that have been reported as kept from offers, and how."""
        self._statistics = statistics
        self._recall = recall
        self._claim = claim
        self._resign = resign
        self._leads = False
        self._served = False
        """Whether a snapshot has been restored."""
        self._runs_before = engine.statistics.runs
        """Allocation runs that were not for this session."""
        self._synchronised = False
        """Whether a snapshot has come and everything since has fitted."""
        self._asked = False
        """Whether a snapshot has been asked for and not come yet."""
        self._reading: asyncio.Future[contract.FromMaster | Unreadable | None] | None = None
        self._ended: str | None = None

    def end(self, reason: str) -> None:
        """Make `serve` raise Ended; no message that has been read reaches the engine any more."""
        self._ended = reason
        if self._reading is not None:
            self._reading.cancel()

    async def greet(self, requests: Requests) -> None:
        """Read the first message.

        Raises:
            ProtocolError: it is not a Hello that can be understood, or did not come.
            Ended: the service has ended the stream.
        """
        try:
            first = await asyncio.wait_for(self._next(requests), GREETING_TIME)
        except TimeoutError:
            raise ProtocolError(
                grpc.StatusCode.DEADLINE_EXCEEDED, f"no Hello within {GREETING_TIME:g} s"
            ) from None
        if first is None or first.WhichOneof("message") != "hello":
            raise ProtocolError(
                grpc.StatusCode.FAILED_PRECONDITION, "the first message must be Hello"
            )
        if first.hello.contract_version != VERSION:
            raise ProtocolError(
                grpc.StatusCode.FAILED_PRECONDITION,
                f"the master's side speaks version {first.hello.contract_version} of the "
                f"contract, this allocator version {VERSION}; install matching versions",
            )
        self.hello = first.hello

    async def serve(self, requests: Requests) -> AsyncIterator[contract.ToMaster]:
        """Answer each message after the first.

        Raises:
            ProtocolError: a message breaks the protocol, or another master leads.
            Ended: the service has ended the stream.
        """
        yield contract.ToMaster(
            welcome=contract.Welcome(
                contract_version=VERSION,
                longshare_version=__version__,
                policy=self._engine.pool.policy.name,
            )
        )
        while (message := await self._next(requests)) is not None:
            begun = time.perf_counter()
            memory: Memory | None = None
            if message.snapshot.leading_since_ns > 0 and not self._leads:
                memory = await self._recall()
            answer = self._answer(message, memory)
            decided = time.perf_counter()
            self._statistics.observe("decide", decided - begun)
            if answer is not None:
                if self._leads and answer.HasField("decisions") and self._measures(message):
                    self._measured(answer.decisions.statistics, decided - begun)
                    self._report_misfits()
                yield answer
                self._statistics.observe("write", time.perf_counter() - decided)
            self._statistics.lag = time.perf_counter() - begun

    def _answer(
        self, message: contract.FromMaster, memory: Memory | None
    ) -> contract.ToMaster | None:
        match message.WhichOneof("message"):
            case "snapshot":
                return self._restore(message.snapshot, memory)
            case "events":
                return self._apply(message.events)
            case "hello":
                raise ProtocolError(grpc.StatusCode.FAILED_PRECONDITION, "Hello came twice")
            case _:
                raise ProtocolError(
                    grpc.StatusCode.INVALID_ARGUMENT, "a message of a kind that is not known"
                )

    def _restore(self, snapshot: contract.Snapshot, memory: Memory | None) -> contract.ToMaster:
        self._synchronised, self._asked = True, False
        self._leads = snapshot.leading_since_ns > 0
        if not self._leads:
            self._resign(self)
            return _nothing(snapshot.sequence)
        self._claim(self, snapshot.leading_since_ns)
        try:
            decisions = self._engine.restore(self.hello.options, snapshot, memory)
        except InvalidEvent as error:
            # Not asked for again: it would come back as it is, at once, for ever.
            raise ProtocolError(
                grpc.StatusCode.INVALID_ARGUMENT, f"the snapshot cannot be used: {error}"
            ) from error
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

    def _apply(self, events: contract.Events) -> contract.ToMaster | None:
        if self._asked:
            if self._leads:
                self._engine.unheard(events.events)
            return None  # sent before the request arrived; the snapshot will contain it
        if not self._synchronised:
            raise ProtocolError(
                grpc.StatusCode.FAILED_PRECONDITION, "events came before a snapshot"
            )
        if not self._leads:
            if any(event.HasField("recover") for event in events.events):
                return self._ask("you lead now")
            return _nothing(max((event.sequence for event in events.events), default=0))
        try:
            decisions = self._engine.apply(events)
        except InvalidEvent as error:
            return self._ask(str(error))
        divergence = self._engine.divergence()
        if divergence is not None:
            return self._ask(divergence)
        return contract.ToMaster(decisions=decisions)

    def _measures(self, message: contract.FromMaster) -> bool:
        ticks = any(event.HasField("tick") for event in message.events.events)
        return ticks or self.hello.options.always_measure

    def _measured(self, statistics: contract.Statistics, seconds: float) -> None:
        statistics.allocation_runs = self._engine.statistics.runs - self._runs_before
        statistics.run_ns = round(seconds * 1e9)
        statistics.active_filters.update(self._engine.filters_by_role())

    def _report_misfits(self) -> None:
        """Say once of each framework what it should know when it waits for offers in vain."""
        found = self._engine.misfits()
        for framework, reason in found.items():
            if self._misfits.get(framework) != reason:
                _log.warning(
                    "framework does not fit",
                    framework=framework,
                    name=self._engine.framework_name(framework),
                    reason=reason,
                )
        self._misfits = found

    def _ask(self, reason: str) -> contract.ToMaster:
        """Ask for a snapshot, which replaces also what has just been decided."""
        self._synchronised, self._asked = False, True
        self._statistics.resyncs += 1
        _log.warning("asking for a snapshot", master=self.hello.master, reason=reason)
        return contract.ToMaster(snapshot_request=contract.SnapshotRequest(reason=reason))

    async def _next(self, requests: Requests) -> contract.FromMaster | None:
        """Read a message; None at the end of the stream."""
        message: contract.FromMaster | Unreadable | None = None
        if self._ended is None:
            self._reading = asyncio.ensure_future(anext(requests, None))
            try:
                message = await self._reading
            except asyncio.CancelledError:
                if self._ended is None:
                    raise
        if self._ended is not None:
            raise Ended(self._ended)
        if isinstance(message, Unreadable):
            raise ProtocolError(
                grpc.StatusCode.INVALID_ARGUMENT,
                f"what came is not a message of the contract: {message.reason}",
            )
        return message


def _nothing(sequence: int) -> contract.ToMaster:
    return contract.ToMaster(decisions=contract.Decisions(applied_sequence=sequence))
