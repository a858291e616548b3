"""Limits on the HTTP port's connections against idle and slow clients."""

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from aiohttp import web
from aiohttp.typedefs import Handler

from allocator.service.addresses import host_of

MOST = 128
"""Maximum number of silent connections, of connections with a complete request that waits for its
answer, and of other connections.

Beyond it, the host with the most connections loses one: its latest that waits for an answer, or
otherwise its earliest. So the connections of one host end no answer in progress and no connection
of another host."""
MOST_UNREAD = 24 * 2**20
"""Maximum number of unread answer bytes of slow readers in memory. Above the limit, the connections
answered longest ago are ended. The latest answer alone may be larger. Up to 64 KiB of an answer do
not count, which adds at most 8 MiB for `MOST` connections."""
PATIENCE = 15.0
"""Seconds without a complete request after which a connection is ended."""
LONGEST_ANSWER = 60.0
"""Seconds after which a connection is ended whose request is still unanswered."""
EACH_TURN = 4
"""Maximum number of connections accepted, of pieces of data parsed, and of requests begun, in one
turn of the event loop."""
PIECE = 4096
"""Maximum size of a piece of data in bytes. aiohttp takes at most 0.7 ms for it."""
MOST_HEADERS = 32 * 1024
"""Maximum size in bytes of one request, which has headers only."""
MOST_UNPARSED = 2**19
"""Bytes of a connection that wait to be parsed, above which the connection is ended."""
BACKLOG = 1024
"""Maximum number of connections that wait in the kernel until they are accepted."""
_BODY = (b"\ncontent-encoding", b"\ncontent-length", b"\ntransfer-encoding")
"""Begins of headers, in lower case, of a request with a body. Requests of this port need no body.
aiohttp takes 10 µs for each chunk of a body, and inflates a compressed megabyte to a gigabyte."""
_END = b"\r\n\r\n"
"""End of a request's headers."""
_LINE_END = b"\r\n"
_UPGRADE = b"\nupgrade:"
"""Begin of the header, in lower case, of a request for another protocol."""
_PAUSED = ("_reading_paused", "_buffer_paused")
"""Attributes of aiohttp's protocols that say whether aiohttp has paused reading."""
_NO_BODY = b"This port reads no bodies; send GET requests.\n"
_REFUSAL = (
    b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Type: text/plain\r\n"
    b"Content-Length: %d\r\n\r\n%s" % (len(_NO_BODY), _NO_BODY)
)
"""Answer to a request with a body."""


class Guard:
    """Accepts HTTP connections, and ends silent and idle ones, and further ones above `MOST`.

    An instance is the protocol factory of an asyncio server. It limits how many pieces of data are
    parsed in one turn of the event loop. Its middleware `pace` limits how many requests begin.

    Args:
        server: Returns aiohttp's server, which makes the protocol of one connection.
    """

    def __init__(self, server: Callable[[], Callable[[], Any] | None]) -> None:
        self._server = server
        self._silent: _Timers = {}
        """Connections that have sent nothing; the oldest come first."""
        self._waiting: _Timers = {}
        """Connections with complete unanswered requests; the oldest requests come first."""
        self._open: _Timers = {}
        """Other connections; connections answered longest ago come first."""
        self._unread: dict[asyncio.Transport, None] = {}
        """Connections of slow readers; connections answered longest ago come first."""
        self.closed = 0
        """Number of connections ended because there were too many, or too many unread bytes."""
        self._answered = set[asyncio.Transport]()
        """Connections on which a request has been answered."""
        self._requests = _Turns(_begin)
        """Requests to begin; requests on answered connections are later ones."""
        self._pieces: _Turns[_Guarded] = _Turns(_Guarded.parse)
        """Connections with data to parse; connections with parsed data are later ones."""

    def __call__(self) -> asyncio.Protocol:
        """Return the protocol of a new connection; called by asyncio."""
        return _Guarded(self)

    def protocol(self) -> Any:  # noqa: ANN401 - aiohttp's own
        """Return a new aiohttp protocol, which serves the requests of one connection."""
        make = self._server()
        assert make is not None
        return make()

    @web.middleware
    async def pace(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Middleware that begins at most `EACH_TURN` requests in each turn of the event loop.

        Further requests wait. Otherwise many connections with many requests each would keep the
        event loop from other work.
        """
        turn = asyncio.get_running_loop().create_future()
        self._requests.put(turn, later=request.transport in self._answered)
        await turn
        return await handler(request)

    def parse(self, connection: "_Guarded") -> None:
        """Let aiohttp parse a connection's next piece of data, in this turn or in a later one."""
        self._pieces.put(connection, later=connection.was_parsed)

    async def answered(self, request: web.Request, _: web.StreamResponse) -> None:
        """Restart the time limit of a connection on which a request is answered.

        aiohttp calls this method before it sends a response.
        """
        transport = request.transport
        if isinstance(transport, asyncio.Transport) and (
            self._take(transport, self._waiting) or self._take(transport, self._open)
        ):
            self._answered.add(transport)
            connection = transport.get_protocol()
            more = isinstance(connection, _Guarded) and connection.unanswered > 1
            self._keep(transport, self._waiting if more else self._open)
            if isinstance(connection, _Guarded):
                connection.answer()

    def admit(self, transport: asyncio.Transport) -> None:
        """Start the time limit within which a new connection must send its first bytes."""
        self._keep(transport, self._silent)

    def heard(self, transport: asyncio.Transport) -> None:
        """Restart the time limit of a connection that has sent its first bytes."""
        if self._take(transport, self._silent):
            self._keep(transport, self._open)

    def asked(self, transport: asyncio.Transport) -> None:
        """Record that a connection has sent a complete request.

        If too many connections wait for answers, the connection itself may be ended.
        """
        if self._take(transport, self._open):
            self._keep(transport, self._waiting)

    def paused(self, transport: asyncio.Transport) -> None:
        """Record that a peer reads slowly; end connections if too many bytes are unread in all."""
        self._unread[transport] = None
        # By then the whole answer is in the buffer.
        asyncio.get_running_loop().call_soon(self._limit_unread)

    def resumed(self, transport: asyncio.Transport) -> None:
        """Record that a peer has read most of its answer."""
        self._unread.pop(transport, None)

    def _limit_unread(self) -> None:
        """End the connections answered longest ago until the unread bytes are few enough."""
        sizes = {transport: transport.get_write_buffer_size() for transport in self._unread}
        excess = sum(sizes.values()) - MOST_UNREAD
        for transport in list(sizes)[:-1]:
            if excess <= 0:
                break
            excess -= sizes[transport]
            self.end(transport)

    def end(self, transport: asyncio.Transport) -> None:
        """End a connection beyond a limit, and count the connection."""
        self.forget(transport)
        self.closed += 1
        transport.abort()

    def forget(self, transport: asyncio.Transport) -> None:
        """Cancel the time limit of a connection that has ended."""
        self._answered.discard(transport)
        self._unread.pop(transport, None)
        for kept in (self._silent, self._waiting, self._open):
            self._take(transport, kept)

    def _take(self, transport: asyncio.Transport, kept: "_Timers") -> bool:
        """Remove a connection and its time limit; return whether the connection was there."""
        entry = kept.pop(transport, None)
        if entry is not None:
            entry[0].cancel()
        return entry is not None

    def _keep(self, transport: asyncio.Transport, kept: "_Timers") -> None:
        """Add a connection with a time limit; end a connection if there are too many."""
        seconds = LONGEST_ANSWER if kept is self._waiting else PATIENCE
        timer = asyncio.get_running_loop().call_later(seconds, transport.abort)
        kept[transport] = timer, _host(transport)
        if len(kept) > MOST:
            hosts = Counter(host for _, host in kept.values())
            largest = max(hosts, key=hosts.__getitem__)
            ordered = reversed(kept) if kept is self._waiting else kept
            self.end(next(entry for entry in ordered if kept[entry][1] == largest))


def _host(transport: asyncio.Transport) -> str:
    """Return the host of a connection's peer; empty if the peer is gone."""
    peer = transport.get_extra_info("peername")
    return host_of(f"ipv6:[{peer[0]}]:{peer[1]}") if peer else ""


Item = TypeVar("Item")


class _Turns(Generic[Item]):
    """Takes at most `EACH_TURN` items in each turn of the event loop.

    First items of connections and later items wait in two queues, from which items are taken
    alternately. So connections with many items do not delay others.

    Args:
        take: Takes an item; returns whether the item counts.
    """

    def __init__(self, take: Callable[[Item], bool]) -> None:
        self._take = take
        self._queues: tuple[deque[Item], deque[Item]] = (deque(), deque())
        self._taken = 0
        """Items taken in this turn of the event loop."""
        self._is_scheduled = False
        """Whether the event loop will call `_next_turn`."""

    def put(self, item: Item, *, later: bool) -> None:
        """Take an item now, or in a later turn.

        Args:
            item: The item.
            later: Whether the item's connection had earlier items.
        """
        if self._taken >= EACH_TURN or any(self._queues):
            self._queues[later].append(item)
        else:
            self._count(item)

    def _count(self, item: Item) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._next_turn)
        self._taken += 1
        if not self._take(item):
            self._taken -= 1

    def _next_turn(self) -> None:
        """Take items that wait. The event loop calls this method once per turn, while needed."""
        self._is_scheduled = False
        self._taken = 0
        queues = self._queues
        while self._taken < EACH_TURN and any(queues):
            item = (queues[0] or queues[1]).popleft()
            queues = queues[::-1]
            self._count(item)


def _begin(request: "asyncio.Future[None]") -> bool:
    """Let a request begin, unless its connection has ended; return whether it begins."""
    if request.done():
        return False
    request.set_result(None)
    return True


_Timers = dict[asyncio.Transport, tuple[asyncio.TimerHandle, str]]


class _Guarded(asyncio.Protocol):
    """Protocol of one HTTP connection: passes data to aiohttp, and reports its events to the guard.

    aiohttp's protocol is made when the first bytes arrive, so that a silent connection costs
    little. A request with a body ends the connection before aiohttp reads the body. No data is read
    while former data waits to be parsed.
    """

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._inner: Any = None
        self._transport: asyncio.Transport | None = None
        self._latest = b""
        """The last bytes received, in lower case, which may begin one of `_BODY`."""
        self._data = bytearray()
        """Bytes received and not yet parsed."""
        self._waits = False
        """Whether the guard has this connection in a queue, or parses it now."""
        self.was_parsed = False
        """Whether a piece of this connection has been parsed."""
        self._since = b""
        """Parsed bytes since the end of the latest request."""
        self.unanswered = 0
        """Number of parsed requests without an answer."""
        self._asked_upgrade = False
        """Whether the latest request asked for another protocol."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._guard.admit(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._data.clear()
        if self._transport is not None:
            self._guard.forget(self._transport)
        if self._inner is not None:
            self._inner.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        received = self._latest + data.lower()
        if any(header in received for header in _BODY):
            self._transport.write(_REFUSAL)
            self._transport.close()
            return
        self._latest = received[-max(map(len, _BODY)) :]
        if self._inner is None:
            self._guard.heard(self._transport)
            self._inner = self._guard.protocol()
            self._inner.connection_made(self._transport)
        self._data += data
        if len(self._data) > MOST_UNPARSED:
            self._data.clear()
            self._guard.end(self._transport)
        else:
            self._transport.pause_reading()
            if not self._waits:
                self._go_on()

    def parse(self) -> bool:
        """Let aiohttp parse one piece of data; then read on, or wait for an answer or a turn.

        Returns:
            Whether there was data to parse.
        """
        self._waits = False
        if self._transport is None or not self._data or self._transport.is_closing():
            return False
        self.was_parsed = True
        piece = bytes(self._data[:PIECE])
        del self._data[:PIECE]
        *parts, self._since = (self._since + piece).split(_END)
        requests = [part for part in parts if part.strip(_LINE_END)]
        follows_upgrade = self._note_requests(requests)
        if requests:
            self._guard.asked(self._transport)
        if self._transport.is_closing():
            self._data.clear()
        elif follows_upgrade or len(self._since) > MOST_HEADERS:
            self._guard.end(self._transport)
        else:
            self._inner.data_received(piece)
            self._go_on()
        return True

    def _note_requests(self, requests: list[bytes]) -> bool:
        """Count complete requests; return whether one follows an unanswered upgrade request.

        aiohttp never answers a request that follows a request for another protocol, such as h2c.
        The connection would count as waiting until `LONGEST_ANSWER`.

        Args:
            requests: The requests without the ends of their headers. Empty lines are no requests:
                aiohttp skips them without an answer.
        """
        follows_upgrade = False
        for request in requests:
            follows_upgrade |= self._asked_upgrade and self.unanswered > 0
            self.unanswered += 1
            self._asked_upgrade = _UPGRADE in request.lower()
        return follows_upgrade

    def answer(self) -> None:
        """Go on with data that waited for the answer to an earlier request."""
        self.unanswered = max(self.unanswered - 1, 0)
        if not self._waits:
            self._go_on()

    def _go_on(self) -> None:
        """Let more data be parsed, or read, unless a request waits for its answer.

        aiohttp would keep up to 32 requests in memory, each with a megabyte of headers.
        """
        assert self._transport is not None
        if self.unanswered > 1:
            return
        if self._data:
            self._waits = True
            self._guard.parse(self)
        # aiohttp reads on by itself after a pause of its own; the flags depend on its version.
        elif not any(getattr(self._inner, flag, False) for flag in _PAUSED):
            self._transport.resume_reading()

    def eof_received(self) -> bool | None:
        if self._inner is None:
            return None
        kept: bool | None = self._inner.eof_received()
        return kept

    def pause_writing(self) -> None:
        if self._transport is not None:
            self._guard.paused(self._transport)
        if self._inner is not None:
            self._inner.pause_writing()

    def resume_writing(self) -> None:
        if self._transport is not None:
            self._guard.resumed(self._transport)
        if self._inner is not None:
            self._inner.resume_writing()
