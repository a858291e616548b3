"""The master's end of the stream to the allocator, as the module in a real master behaves.

One stream, events in order. What is queued while a write is under way goes out in one message.
When the stream breaks, the queue is dropped: the master goes on, running tasks never notice,
and after reconnecting a snapshot says where things stand.
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

FIRST_RETRY = 0.05
"""Wall seconds, doubled each time …"""
LAST_RETRY = 2.0
"""… up to this."""
_LAST_WORD = 1.0
"""Wall seconds for the allocator's reason to arrive when the stream can no longer be written to."""
_REASONS = 8
"""That are remembered until the allocator serves, so that none is said with every attempt."""
_CLOSED = "the allocator closed the stream"
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
"""A bidirectional stream; grpc's types have no public name for it."""

_log = structlog.get_logger(__name__)


class AllocatorLink:
    """Numbers the master's calls and carries them to the allocator.

    Args:
        address: gRPC target: `unix:///PATH` or `HOST:PORT`; with TLS if the environment names
            an authority.
        hello: How to introduce this master; version and session id are filled in.
    """

    def __init__(self, address: str, hello: contract.Hello) -> None:
        self._address = address
        self._hello = hello
        self._hello.contract_version = VERSION
        self._hello.session_id = str(uuid.uuid4())
        self._sequence = 0
        self._applied = 0
        """Sequence number of the latest call that the allocator has answered."""
        self._queue: list[contract.Event] = []
        self._ticking = False
        """Whether a tick is queued already; further ones are as good as that one."""
        self._wake = asyncio.Event()
        self._open = False
        """Whether there is a stream, and calls are to be queued for it."""
        self._snapshot_due = False
        """Whether a snapshot is to be sent next; until then decisions are stale."""
        self.connected = False
        """Whether the allocator has answered on the present stream."""
        self._sessions = 0
        self._resyncs = 0

    @property
    def sequence(self) -> int:
        """Sequence number of the latest call."""
        return self._sequence

    @property
    def awaiting(self) -> bool:
        """Whether the allocator has not answered all calls yet."""
        return self.connected and self._applied < self._sequence

    def metrics(self) -> dict[str, float]:
        """Return what `/metrics/snapshot` says about the link."""
        return {
            "longshare/connected": int(self.connected),
            "longshare/sessions_total": self._sessions,
            "longshare/resyncs_total": self._resyncs,
        }

    def tell(self, event: contract.Event) -> None:
        """Number and queue a call; without a stream it is dropped, a snapshot will contain it."""
        tick = event.WhichOneof("call") == "tick"
        if tick and self._ticking:
            return
        self._sequence += 1
        if not self._open:
            return
        self._ticking |= tick
        event.sequence = self._sequence
        self._queue.append(event)
        self._wake.set()

    async def run(self, master: "Master") -> None:
        """Keep a session with the allocator until cancelled."""
        wait = FIRST_RETRY
        complaints: deque[str] = deque(maxlen=_REASONS)
        credentials = Identity.of_environment().credentials()
        channel = (
            grpc.aio.insecure_channel(self._address, options=_OPTIONS)
            if credentials is None
            else grpc.aio.secure_channel(self._address, credentials, options=_OPTIONS)
        )
        async with channel:
            while True:
                begun = self._sessions
                reason = await self._session(AllocatorStub(channel), master)
                if reason not in complaints:
                    _log.warning("no allocator", address=self._address, reason=reason)
                    complaints.append(reason)
                served = self._sessions > begun
                if served:
                    complaints.clear()
                wait = FIRST_RETRY if served else min(2 * wait, LAST_RETRY)
                await asyncio.sleep(wait)

    async def _session(self, stub: "AllocatorAsyncStub", master: "Master") -> str:
        """Serve one stream to its end; return why it ended."""
        stream: _Call = stub.Session()
        self._open = self._snapshot_due = True
        self._wake.set()
        # In tasks of their own, as a call of gRPC that is cancelled while it is being prepared
        # goes on waiting: cancelling the task that awaits it would have no effect.
        reader = asyncio.create_task(self._read(stream, master))
        writer = asyncio.create_task(self._write(stream, master))
        try:
            await asyncio.wait([reader, writer], return_when=asyncio.FIRST_COMPLETED)
            if writer.done() and not writer.cancelled():
                writer.result()  # raises what it should not have raised
            await asyncio.wait([reader], timeout=_LAST_WORD)  # it hears why
            return reader.result() if reader.done() and not reader.cancelled() else _CLOSED
        finally:
            self._open = self.connected = False
            self._forget_queue()
            reader.cancel()
            writer.cancel()
            stream.cancel()

    async def _read(self, stream: _Call, master: "Master") -> str:
        """Hear what the allocator says, to the end of the stream; return why it ended."""
        try:
            async for answer in stream:
                self._hear(answer, master)
        except grpc.aio.AioRpcError as error:
            return error.details() or error.code().name
        return _CLOSED

    def _hear(self, answer: contract.ToMaster, master: "Master") -> None:
        kind = answer.WhichOneof("message")
        if kind == "decisions" and not self._snapshot_due:
            self._applied = answer.decisions.applied_sequence
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
            self._snapshot_due = True
            self._wake.set()

    async def _write(self, stream: _Call, master: "Master") -> None:
        """Write what is due, one message at a time; the reader learns why when it fails."""
        with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            await stream.write(contract.FromMaster(hello=self._hello))
            while True:
                await self._wake.wait()
                self._wake.clear()
                if self._snapshot_due:
                    self._forget_queue()
                    self._snapshot_due = False
                    await stream.write(contract.FromMaster(snapshot=master.snapshot()))
                elif self._queue:
                    events = contract.Events(events=self._queue)
                    self._forget_queue()
                    await stream.write(contract.FromMaster(events=events))

    def _forget_queue(self) -> None:
        self._queue = []
        self._ticking = False
