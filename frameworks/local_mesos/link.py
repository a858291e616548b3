"""The master's end of the stream to the allocator, as the module in a real master behaves.

One stream, events in order. What is queued while a write is under way goes out in one message.
When the stream breaks, the queue is dropped: the master goes on, running tasks never notice,
and after reconnecting a snapshot says where things stand.
"""

import asyncio
import uuid
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import grpc
import structlog

from allocator.contract import VERSION
from allocator.contract import allocator_pb2 as contract
from allocator.contract.allocator_pb2_grpc import AllocatorStub

if TYPE_CHECKING:
    from allocator.contract.allocator_pb2_grpc import AllocatorAsyncStub
    from frameworks.local_mesos.master import Master

FIRST_RETRY = 0.05
"""Wall seconds, doubled each time …"""
LAST_RETRY = 2.0
"""… up to this."""
LARGEST_MESSAGE = 256 * 2**20

_log = structlog.get_logger(__name__)


class AllocatorLink:
    """Numbers the master's calls and carries them to the allocator.

    Args:
        address: gRPC target: `unix:///PATH` or `HOST:PORT`.
        hello: How to introduce this master; the session's id is filled in.
    """

    def __init__(self, address: str, hello: contract.Hello) -> None:
        self._address = address
        self._hello = hello
        self._hello.contract_version = VERSION
        self._hello.session_id = str(uuid.uuid4())
        self._sequence = 0
        self._queue: list[contract.Event] = []
        self._ticking = False
        """Whether a tick is queued already; further ones are as good as that one."""
        self._wake = asyncio.Event()
        self._open = False
        self._resynchronise = False
        self.connected = False
        """Whether the allocator answers."""
        self.resyncs = 0

    @property
    def sequence(self) -> int:
        """Sequence number of the latest call."""
        return self._sequence

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
        options = [
            ("grpc.max_receive_message_length", LARGEST_MESSAGE),
            ("grpc.max_send_message_length", LARGEST_MESSAGE),
            ("grpc.initial_reconnect_backoff_ms", 50),
            ("grpc.min_reconnect_backoff_ms", 50),
            ("grpc.max_reconnect_backoff_ms", 1000),
        ]
        async with grpc.aio.insecure_channel(self._address, options=options) as channel:
            while True:
                try:
                    await self._session(AllocatorStub(channel), master)
                    _log.info("allocator closed the stream")
                except grpc.aio.AioRpcError as error:
                    if self.connected:
                        _log.warning("lost the allocator", reason=error.details())
                wait = FIRST_RETRY if self.connected else min(2 * wait, LAST_RETRY)
                self._close()
                await asyncio.sleep(wait)

    async def _session(self, stub: "AllocatorAsyncStub", master: "Master") -> None:
        self._open = True
        self._resynchronise = True
        self._wake.set()
        async for answer in stub.Session(self._messages(master)):
            kind = answer.WhichOneof("message")
            if kind == "decisions" and not self._resynchronise:
                master.decide(answer.decisions)
            elif kind == "welcome":
                self.connected = True
                _log.info(
                    "allocator answers",
                    longshare=answer.welcome.longshare_version,
                    policy=answer.welcome.policy,
                )
            elif kind == "snapshot_request":
                _log.warning("allocator asks anew", reason=answer.snapshot_request.reason)
                self.resyncs += 1
                self._resynchronise = True
                self._wake.set()

    async def _messages(self, master: "Master") -> AsyncIterator[contract.FromMaster]:
        yield contract.FromMaster(hello=self._hello)
        while True:
            await self._wake.wait()
            self._wake.clear()
            if self._resynchronise:
                self._forget_queue()
                self._resynchronise = False
                yield contract.FromMaster(snapshot=master.snapshot())
            elif self._queue:
                events = contract.Events(events=self._queue)
                self._forget_queue()
                yield contract.FromMaster(events=events)

    def _forget_queue(self) -> None:
        self._queue = []
        self._ticking = False

    def _close(self) -> None:
        self._open = self.connected = False
        self._forget_queue()
