"""HTTP without a network: bytes go directly to the service's own protocol and back."""

import asyncio
from collections.abc import Iterable

from typing_extensions import override

from tests.world.simulated.loop import VirtualLoop

PATIENCE = 60.0
"""Seconds that a client waits for an answer."""


class Connection(asyncio.Transport):
    """A connection to a service, seen from both ends.

    Args:
        loop: The loop with the listeners.
        address: The address of the listener.

    Raises:
        ConnectionRefusedError: No service listens there.
    """

    def __init__(self, loop: VirtualLoop, address: tuple[str, int]) -> None:
        super().__init__()
        listener = loop.servers.get(address)
        if listener is None:
            raise ConnectionRefusedError
        self.heard = b""
        """Bytes from the service."""
        self.over = asyncio.Event()
        self._loop = loop
        self._context = listener.context.copy()
        self._protocol = self._context.run(listener.make)
        self._context.run(self._protocol.connection_made, self)

    def say(self, data: bytes) -> None:
        """Send bytes to the service."""
        if not self.over.is_set():
            self._context.run(self._protocol.data_received, data)

    async def answer(self) -> tuple[int, bytes]:
        """Return status and content of the service's answer, once the connection has ended.

        Raises:
            ConnectionResetError: The connection ended without an answer.
        """
        await asyncio.wait_for(self.over.wait(), PATIENCE)
        head, _, body = self.heard.partition(b"\r\n\r\n")
        if not head:
            raise ConnectionResetError
        return int(head.split(b" ", 2)[1]), body

    # The service's end.

    @override
    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.heard += bytes(data)

    @override
    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        for data in list_of_data:
            self.write(data)

    @override
    def is_closing(self) -> bool:
        return self.over.is_set()

    @override
    def close(self) -> None:
        if not self.over.is_set():
            self.over.set()
            self._loop.call_soon(self._protocol.connection_lost, None, context=self._context)

    @override
    def abort(self) -> None:
        self.close()

    @override
    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol

    @override
    def pause_reading(self) -> None:
        pass

    @override
    def resume_reading(self) -> None:
        pass


async def ask(loop: VirtualLoop, address: tuple[str, int], path: str) -> tuple[int, bytes]:
    """Request a page; return status and content.

    Raises:
        OSError: No service listens there, or no answer came.
    """
    connection = Connection(loop, address)
    request = f"GET {path} HTTP/1.1\r\nHost: {address[0]}:{address[1]}\r\nConnection: close\r\n\r\n"
    connection.say(request.encode())
    return await connection.answer()
