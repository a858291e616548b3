"""Limits on the HTTP port's connections, so that idle or slow clients cannot block the port."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from aiohttp import web

MOST = 128
"""Maximum number of open connections. A further connection closes the one that has waited longest.
"""
PATIENCE = 15.0
"""Seconds after which a connection is closed if nothing has been answered on it."""


class Guard:
    """Factory of connection protocols, which limits the number and the idle time of connections.

    Args:
        server: Returns the factory that makes the protocol of one connection.
    """

    def __init__(self, server: Callable[[], Callable[[], Any] | None]) -> None:
        self._server = server
        self._open: OrderedDict[asyncio.Transport, asyncio.TimerHandle] = OrderedDict()
        """Open connections with their timers, the longest without an answer first."""

    def __call__(self) -> asyncio.Protocol:
        """Make the protocol of a new connection; called by the event loop."""
        make = self._server()
        assert make is not None
        return _Guarded(self, make())

    async def answered(self, request: web.Request, _: web.StreamResponse) -> None:
        """Restart the timer of a connection on which a request is answered; called by aiohttp."""
        transport = request.transport
        if isinstance(transport, asyncio.Transport) and transport in self._open:
            self._open.pop(transport).cancel()
            self._keep(transport)

    def admit(self, transport: asyncio.Transport) -> None:
        """Add a new connection; at the limit, close the connection that has waited longest."""
        if len(self._open) >= MOST:
            oldest, timer = self._open.popitem(last=False)
            timer.cancel()
            oldest.abort()
        self._keep(transport)

    def forget(self, transport: asyncio.Transport) -> None:
        """Remove a connection that has been closed."""
        timer = self._open.pop(transport, None)
        if timer is not None:
            timer.cancel()

    def _keep(self, transport: asyncio.Transport) -> None:
        loop = asyncio.get_running_loop()
        self._open[transport] = loop.call_later(PATIENCE, transport.abort)


class _Guarded(asyncio.Protocol):
    """Protocol of one connection that forwards all events to aiohttp's protocol.

    It tells the guard when the connection opens and closes.
    """

    def __init__(self, guard: Guard, inner: Any) -> None:  # noqa: ANN401 - aiohttp's own
        self._guard = guard
        self._inner = inner
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._guard.admit(transport)
        self._inner.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._transport is not None:
            self._guard.forget(self._transport)
        self._inner.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        keep_open: bool | None = self._inner.eof_received()
        return keep_open

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()
