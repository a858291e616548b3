"""A master's end of the stream, with the queue and reconnection of the module's transport."""

import asyncio
from typing import Protocol

import grpc

from allocator.contract import VERSION
from allocator.contract import allocator_pb2 as contract
from tests.world.simulated.wire import Broken, Call, Network, Peer

METHOD = "/longshare.v1.Allocator/Session"
FIRST_RETRY = 0.05
LAST_RETRY = 2.0
"""Seconds between attempts, doubled each time."""


class Listens(Protocol):
    """The interface of a link's master."""

    def snapshot(self) -> contract.Snapshot:
        """Tell all."""

    def decide(self, decisions: contract.Decisions) -> None:
        """Carry out the allocator's decisions."""


class Ear(Protocol):
    """Receives all messages on the streams."""

    def opened(self, link: "Link") -> None:
        """A stream begins."""

    def said(self, link: "Link", message: contract.FromMaster) -> None:
        """A message has been sent, by the master."""

    def heard(self, link: "Link", message: contract.ToMaster) -> None:
        """Handle a message from the service, before the master acts on the message."""

    def closed(self, link: "Link", how: tuple[grpc.StatusCode, str]) -> None:
        """A stream has ended."""


class Link:
    """Numbers the master's calls and sends them to a service.

    Args:
        network: The network of the services.
        address: The address of the service.
        hello: The introduction of the master.
        peer: The master's identity.
        ear: Receives all messages.
    """

    def __init__(
        self, network: Network, address: str, hello: contract.Hello, peer: Peer, ear: Ear
    ) -> None:
        self.hello = hello
        self.hello.contract_version = VERSION
        self.sequence = 0
        self.stream: Call | None = None
        self.connected = False
        """Whether the service has answered on the present stream."""
        self.synchronised = False
        """Whether the service has answered the latest snapshot."""
        self.refusal = ""
        """Why the latest stream was ended."""
        self._network = network
        self._address = address
        self._peer = peer
        self._ear = ear
        self._queue: list[contract.Event] = []
        self._wake = asyncio.Event()
        self._snapshot_due = False
        self._snapshot_sequence = 0

    def tell(self, event: contract.Event) -> int:
        """Number and queue a call; without a stream, drop it, because the next snapshot will
        include it.
        """
        tick = event.HasField("tick")
        if tick and any(queued.HasField("tick") for queued in self._queue):
            return self.sequence  # a queued tick is as good
        self.sequence += 1
        event.sequence = self.sequence
        if self.stream is not None:
            self._queue.append(event)
            self._wake.set()
        return self.sequence

    def renew(self) -> None:
        """Send a snapshot of one's own accord."""
        self._snapshot_due = True
        self._wake.set()

    async def run(self, master: Listens) -> None:
        """Keep a stream until cancelled."""
        wait = FIRST_RETRY
        while True:
            try:
                call = self._network.call(self._address, METHOD, self._peer)
            except Broken:
                served = False
            else:
                served = await self._session(call, master)
            wait = FIRST_RETRY if served else min(2 * wait, LAST_RETRY)
            await asyncio.sleep(wait)

    async def _session(self, call: Call, master: Listens) -> bool:
        self.stream, self._snapshot_due, self.connected = call, True, False
        self._wake.set()
        self._ear.opened(self)
        writer = asyncio.create_task(self._write(call, master))
        how = (grpc.StatusCode.CANCELLED, "the master has left")
        try:
            how = await self._read(call, master)
        finally:
            writer.cancel()
            served = self.connected
            self.stream, self.connected, self.synchronised = None, False, False
            self._queue = []
            self.refusal = how[1]
            call.reset()
            self._ear.closed(self, how)
        return served

    async def _read(self, call: Call, master: Listens) -> tuple[grpc.StatusCode, str]:
        while True:
            item = await call.read()
            if isinstance(item, tuple):
                return item
            message = contract.ToMaster.FromString(item)
            self._ear.heard(self, message)
            self._hear(message, master)

    def _hear(self, message: contract.ToMaster, master: Listens) -> None:
        kind = message.WhichOneof("message")
        if kind == "welcome":
            self.connected = True
        elif kind == "snapshot_request":
            self.synchronised = False
            self.renew()
        elif (
            kind == "decisions"
            and not self._snapshot_due
            and message.decisions.applied_sequence >= self._snapshot_sequence
        ):
            self.synchronised = True
            master.decide(message.decisions)

    async def _write(self, call: Call, master: Listens) -> None:
        try:
            await self._say(call, contract.FromMaster(hello=self.hello))
            while True:
                await self._wake.wait()
                self._wake.clear()
                await asyncio.sleep(0)  # all calls of a turn of the master go into the same message
                if self._snapshot_due:
                    self._queue, self._snapshot_due = [], False
                    self._snapshot_sequence = self.sequence
                    await self._say(call, contract.FromMaster(snapshot=master.snapshot()))
                elif self._queue:
                    events, self._queue = contract.Events(events=self._queue), []
                    await self._say(call, contract.FromMaster(events=events))
        except Broken:
            pass  # the reader learns why

    async def _say(self, call: Call, message: contract.FromMaster) -> None:
        self._ear.said(self, message)
        await call.write(message.SerializeToString(deterministic=True))
