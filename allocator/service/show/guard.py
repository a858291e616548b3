"""Keeps the HTTP port open: no connection stays that does not ask, or does not read."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from aiohttp import web

MOST = 128
"""Connections at once; a newcomer ends the one that has waited longest for its next answer."""
PATIENCE = 15.0
"""Seconds for which a connection is kept without an answer on it."""


class Guard:
    """Makes the protocol of each connection, and ends connections that are of no use.

    Args:
        server: Returns what makes the protocol that serves a connection.
    """

    def __init__(self, server: Callable[[], Callable[[], Any] | None]) -> None:
        self._server = server
        self._open: OrderedDict[asyncio.Transport, asyncio.TimerHandle] = OrderedDict()
        """Those answered longest ago come first."""

    def __call__(self) -> asyncio.Protocol:
        """Return the protocol of a new connection."""
        make = self._server()
        assert make is not None
        return _Guarded(self, make())

    async def answered(self, request: web.Request, _: web.StreamResponse) -> None:
        """Note that a request has come, and is answered."""
        transport = request.transport
        if isinstance(transport, asyncio.Transport) and transport in self._open:
            self._open.pop(transport).cancel()
            self._keep(transport)

    def admit(self, transport: asyncio.Transport) -> None:
        """Take in a connection."""
        if len(self._open) >= MOST:
            oldest, timer = self._open.popitem(last=False)
            timer.cancel()
            oldest.abort()
        self._keep(transport)

    def forget(self, transport: asyncio.Transport) -> None:
        """Let go of a connection that has ended."""
        timer = self._open.pop(transport, None)
        if timer is not None:
            timer.cancel()

    def _keep(self, transport: asyncio.Transport) -> None:
        loop = asyncio.get_running_loop()
        self._open[transport] = loop.call_later(PATIENCE, transport.abort)


class _Guarded(asyncio.Protocol):
    """Hands everything on, and tells the guard of beginning and end."""

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
        kept: bool | None = self._inner.eof_received()
        return kept

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()
