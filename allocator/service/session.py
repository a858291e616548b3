"""One master's stream: hello, snapshot, events in; decisions out, in the same order."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

import grpc
import structlog

from allocator import __version__
from allocator.cluster.engine import Engine
from allocator.cluster.errors import InvalidEvent
from allocator.contract import VERSION
from allocator.contract import allocator_pb2 as contract
from allocator.contract.allocator_pb2_grpc import AllocatorServicer

Context = grpc.aio.ServicerContext[contract.FromMaster, contract.ToMaster]
_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class SessionStatistics:
    """What the service knows about its sessions."""

    connected: bool = False
    sessions: int = 0
    """Sessions opened."""
    resyncs: int = 0
    """Snapshots that had to be asked for."""
    lag: float = 0.0
    """Seconds from reading the latest message to having written its decisions."""
    observe: Callable[[str, float], None] = field(default=lambda _phase, _seconds: None)
    """Told how long each message took: phase ("decide" or "write") and seconds."""


class ProtocolError(Exception):
    """The master's side broke the protocol; ends its stream."""

    def __init__(self, code: grpc.StatusCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class Sessions(AllocatorServicer):
    """Serves one master at a time: the one that came last.

    Messages are applied one by one in the event loop's thread, so whoever else looks at the
    engine from there sees it between two messages.
    """

    def __init__(self, engine: Engine, statistics: SessionStatistics) -> None:
        self._engine = engine
        self._statistics = statistics
        self._current: _Session | None = None

    async def Session(  # noqa: N802 - the name is the contract's
        self, request_iterator: AsyncIterator[contract.FromMaster], context: Context
    ) -> AsyncIterator[contract.ToMaster]:
        """Serve a stream to its end."""
        session = _Session(self._engine, self._statistics)
        try:
            hello = await session.greet(request_iterator)
        except ProtocolError as error:
            await self._refuse(context, error)
            return
        self.end(f"superseded by the session of master {hello.master}")
        self._current = session
        self._statistics.connected = True
        self._statistics.sessions += 1
        _log.info("session opened", master=hello.master, mesos=hello.mesos_version)
        # Cancelled in a read or abandoned in a write: a lost peer shows in more ways than one.
        closed: str | None = "the master's side is gone"
        try:
            async for answer in session.serve(request_iterator, hello):
                yield answer
            closed = "the master's side is done"
        except ProtocolError as error:
            closed = None
            await self._refuse(context, error)
        except Exception:
            closed = None
            _log.exception("session failed", master=hello.master)
            raise
        finally:
            if closed is not None:
                _log.info("session closed", master=hello.master, reason=closed)
            if self._current is session:
                self._current = None
                self._statistics.connected = False

    def end(self, reason: str) -> None:
        """End the stream that is being served, if any."""
        if self._current is not None:
            self._current.end(reason)

    async def _refuse(self, context: Context, error: ProtocolError) -> None:
        _log.warning("stream refused", peer=context.peer(), reason=str(error))
        await context.abort(error.code, str(error))


class _Session:
    """The protocol of one stream."""

    def __init__(self, engine: Engine, statistics: SessionStatistics) -> None:
        self._engine = engine
        self._statistics = statistics
        self._options = contract.Options()
        self._synchronised = False
        """Whether a snapshot has come and everything since has fitted."""
        self._asked = False
        """Whether a snapshot has been asked for and not come yet."""
        self._reading: asyncio.Future[contract.FromMaster | None] | None = None
        self._ended: str | None = None

    def end(self, reason: str) -> None:
        """Make `serve` raise, with a reason."""
        self._ended = reason
        if self._reading is not None:
            self._reading.cancel()

    async def greet(self, requests: AsyncIterator[contract.FromMaster]) -> contract.Hello:
        """Read the first message."""
        first = await self._next(requests)
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
        self._options = first.hello.options
        return first.hello

    async def serve(
        self, requests: AsyncIterator[contract.FromMaster], hello: contract.Hello
    ) -> AsyncIterator[contract.ToMaster]:
        """Answer each message after the first."""
        yield contract.ToMaster(
            welcome=contract.Welcome(
                contract_version=VERSION,
                longshare_version=__version__,
                policy=self._engine.pool.policy.name,
            )
        )
        while (message := await self._next(requests)) is not None:
            begun = time.perf_counter()
            answer = self._answer(message, hello)
            decided = time.perf_counter()
            self._statistics.observe("decide", decided - begun)
            if answer is not None:
                yield answer
                self._statistics.observe("write", time.perf_counter() - decided)
            self._statistics.lag = time.perf_counter() - begun

    def _answer(
        self, message: contract.FromMaster, hello: contract.Hello
    ) -> contract.ToMaster | None:
        kind = message.WhichOneof("message")
        if kind == "hello":
            raise ProtocolError(grpc.StatusCode.FAILED_PRECONDITION, "Hello came twice")
        if kind is None:
            raise ProtocolError(
                grpc.StatusCode.INVALID_ARGUMENT, "a message of a kind that is not known"
            )
        try:
            if kind == "snapshot":
                decisions = self._engine.restore(self._options, message.snapshot)
                self._synchronised, self._asked = True, False
                _log.info(
                    "snapshot restored",
                    master=hello.master,
                    agents=self._engine.agents,
                    frameworks=self._engine.frameworks,
                    sequence=self._engine.sequence,
                )
            elif self._synchronised:
                decisions = self._engine.apply(message.events)
            elif self._asked:
                return None  # sent before the request arrived; the snapshot will contain it
            else:
                raise ProtocolError(
                    grpc.StatusCode.FAILED_PRECONDITION, "events came before a snapshot"
                )
        except InvalidEvent as error:
            return self._ask(hello, str(error))
        divergence = self._engine.divergence()
        if divergence is not None:
            return self._ask(hello, divergence)
        return contract.ToMaster(decisions=decisions)

    def _ask(self, hello: contract.Hello, reason: str) -> contract.ToMaster:
        """Ask for a snapshot, which replaces also what has just been decided."""
        self._synchronised, self._asked = False, True
        self._statistics.resyncs += 1
        _log.warning("asking for a snapshot", master=hello.master, reason=reason)
        return contract.ToMaster(snapshot_request=contract.SnapshotRequest(reason=reason))

    async def _next(
        self, requests: AsyncIterator[contract.FromMaster]
    ) -> contract.FromMaster | None:
        """Read a message; None at the end of the stream."""
        if self._ended is None:
            self._reading = asyncio.ensure_future(anext(requests, None))
            try:
                return await self._reading
            except asyncio.CancelledError:
                if self._ended is None:
                    raise
        raise ProtocolError(grpc.StatusCode.ABORTED, self._ended or "")
