"""The embedded master's connection to the allocator; it behaves as the module in a real master.

One gRPC stream carries the master's calls in order. Calls queued during a write are sent together
in the next message. When the stream breaks, the queue is dropped. The master and running tasks
continue, and a snapshot after reconnection restores the allocator's state.
"""

import asyncio
import uuid
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import grpc
import structlog

from allocator.contract import VERSION
from allocator.contract import allocator_pb2 as contract
from allocator.contract.allocator_pb2_grpc import AllocatorStub
from allocator.contract.channel import Identity

if TYPE_CHECKING:
    from allocator.contract.allocator_pb2_grpc import AllocatorAsyncStub
    from frameworks.local_mesos.master import Master

FIRST_RETRY_S = 0.05
"""First delay before reconnection, in seconds of real time. Each failed attempt doubles it."""
LAST_RETRY = 2.0
"""Longest delay before reconnection, in seconds of real time."""
_REASON_TIMEOUT = 1.0
"""Real time in seconds to wait for the allocator's reason after a write has failed."""
_MAX_LOGGED_REASONS = 8
"""Number of failure reasons remembered, so that a repeated reason is logged only once.

The memory is cleared when the allocator serves again.
"""
_CLOSED = "the allocator closed the stream"
_ABSENT = "no service listens there; start 'longshare serve', or wait until it is ready"
_SAID_IF_ABSENT = ("Connection refused", "No such file or directory")
"""Texts of gRPC's errors if no program listens at a TCP address, or at a Unix socket."""
_LARGEST_MESSAGE = 256 * 2**20
_OPTIONS = [
    ("grpc.max_receive_message_length", _LARGEST_MESSAGE),
    ("grpc.max_send_message_length", _LARGEST_MESSAGE),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 1000),
]
_Call = Any
"""A bidirectional gRPC stream. The type stubs of grpc have no public name for its type."""

_log = structlog.get_logger(__name__)


class AllocatorLink:
    """Sends the master's calls to the allocator, and passes its decisions to the master.

    Calls are numbered, so that the allocator can say which of them it has processed.

    Args:
        address: gRPC target, `unix:///PATH` or `HOST:PORT`. The connection uses TLS if the
            environment names a certificate authority.
        hello: The first message of each stream, which describes the master. The link adds contract
            version and session id.
    """

    def __init__(self, address: str, hello: contract.Hello) -> None:
        self._address = address
        self._hello = hello
        self._hello.contract_version = VERSION
        self._hello.session_id = str(uuid.uuid4())
        self._sequence = 0
        self._applied = 0
        """Number of the latest call that the allocator has processed."""
        self._queue: list[contract.Event] = []
        self._tick_queued = False
        """True if a tick is in the queue.

        More ticks would have no effect, so they are not queued.
        """
        self._wake = asyncio.Event()
        self._open = False
        """True while a stream exists. Calls are queued only then."""
        self._snapshot_due = False
        """True if a snapshot must be sent next. Until then, decisions are based on old state."""
        self.connected = False
        """True if the allocator has answered on the current stream."""
        self._serving = False
        """True if the latest decisions are those of an allocator that serves this master."""
        self._sessions = 0
        self._resyncs = 0

    @property
    def sequence(self) -> int:
        """Sequence number of the latest call to the allocator; calls are numbered in order."""
        return self._sequence

    @property
    def awaiting(self) -> bool:
        """True if the allocator is connected and has not yet processed all calls of the master."""
        return self.connected and self._applied < self._sequence

    def metrics(self) -> dict[str, float]:
        """Return metrics about the connection, to be included in `/metrics/snapshot`."""
        return {
            "longshare/connected": int(self.connected),
            "longshare/synchronised": int(
                self.connected and self._serving and not self._snapshot_due
            ),
            "longshare/sessions_total": self._sessions,
            "longshare/resyncs_total": self._resyncs,
            "longshare/queue_events": len(self._queue),
        }

    def tell(self, event: contract.Event) -> None:
        """Give a call to the allocator the next sequence number, and queue it for sending.

        Without a connection, the call is dropped: the snapshot that begins the next connection
        includes its effect. A batch allocation (tick) is also dropped if one is queued already.

        Args:
            event: Message with the call.
        """
        is_tick = event.WhichOneof("call") == "tick"
        if is_tick and self._tick_queued:
            return
        self._sequence += 1
        if not self._open:
            return
        self._tick_queued |= is_tick
        event.sequence = self._sequence
        self._queue.append(event)
        self._wake.set()

    async def run(self, master: "Master") -> None:
        """Keep the connection to the allocator until cancelled; reconnect whenever it ends."""
        delay = FIRST_RETRY_S
        logged_reasons: deque[str] = deque(maxlen=_MAX_LOGGED_REASONS)
        credentials = Identity.of_environment().credentials()
        channel = (
            grpc.aio.insecure_channel(self._address, options=_OPTIONS)
            if credentials is None
            else grpc.aio.secure_channel(self._address, credentials, options=_OPTIONS)
        )
        async with channel:
            while True:
                sessions_before = self._sessions
                reason = await self._session(AllocatorStub(channel), master)
                if reason not in logged_reasons:
                    _log.warning("no allocator, will retry", address=self._address, reason=reason)
                    logged_reasons.append(reason)
                served = self._sessions > sessions_before
                if served:
                    logged_reasons.clear()
                delay = FIRST_RETRY_S if served else min(2 * delay, LAST_RETRY)
                await asyncio.sleep(delay)

    async def _session(self, stub: "AllocatorAsyncStub", master: "Master") -> str:
        """Connect to the allocator once, and exchange messages until the stream ends.

        Returns:
            The reason why the stream ended, as text for the log.
        """
        stream: _Call = stub.Session()
        self._open = self._snapshot_due = True
        self._wake.set()
        # Reader and writer are separate tasks because cancelling a gRPC call during its preparation
        # has no effect: a coroutine that awaits the call would go on waiting.
        reader = asyncio.create_task(self._read(stream, master))
        writer = asyncio.create_task(self._write(stream, master))
        try:
            await asyncio.wait([reader, writer], return_when=asyncio.FIRST_COMPLETED)
            if writer.done() and not writer.cancelled():
                writer.result()  # raises an unexpected error of the writer
            await asyncio.wait([reader], timeout=_REASON_TIMEOUT)  # the reader receives the reason
            return reader.result() if reader.done() and not reader.cancelled() else _CLOSED
        finally:
            self._open = self.connected = self._serving = False
            self._clear_queue()
            reader.cancel()
            writer.cancel()
            stream.cancel()

    async def _read(self, stream: _Call, master: "Master") -> str:
        """Pass the allocator's decisions to the master until the gRPC stream ends.

        Returns:
            The reason why the stream ended, as text for the log.
        """
        try:
            async for answer in stream:
                self._handle(answer, master)
        except grpc.aio.AioRpcError as error:
            reason = error.details() or error.code().name
            return _ABSENT if any(text in reason for text in _SAID_IF_ABSENT) else reason
        return _CLOSED

    def _handle(self, answer: contract.ToMaster, master: "Master") -> None:
        kind = answer.WhichOneof("message")
        if kind == "decisions" and not self._snapshot_due:
            if not answer.decisions.more:  # a slice answers no call yet
                self._applied = answer.decisions.applied_sequence
            self._serving = not answer.decisions.waiting_for
            master.decide(answer.decisions)
        elif kind == "welcome":
            self.connected = True
            self._sessions += 1
            _log.info(
                "allocator answers",
                longshare=answer.welcome.longshare_version,
                policy=answer.welcome.policy,
            )
        elif kind == "snapshot_request":
            _log.warning("allocator asks anew", reason=answer.snapshot_request.reason)
            self._resyncs += 1
            self._snapshot_due, self._serving = True, False
            self._wake.set()

    async def _write(self, stream: _Call, master: "Master") -> None:
        """Send queued calls to the allocator, one message at a time, until the stream ends.

        If a write fails, the method returns without an error, because `_read` receives the reason.
        """
        with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            await stream.write(contract.FromMaster(hello=self._hello))
            while True:
                await self._wake.wait()
                self._wake.clear()
                if self._snapshot_due:
                    self._clear_queue()
                    self._snapshot_due = False
                    await stream.write(contract.FromMaster(snapshot=master.snapshot()))
                elif self._queue:
                    events = contract.Events(events=self._queue)
                    self._clear_queue()
                    await stream.write(contract.FromMaster(events=events))

    def _clear_queue(self) -> None:
        self._queue = []
        self._tick_queued = False
