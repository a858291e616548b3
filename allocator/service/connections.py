"""Closes connections on the gRPC ports that make no permitted calls, to keep room for others.

gRPC limits the number of connections of a port, and rejects new connections at the limit. gRPC for
Python cannot close a single connection. A regular scan of this process's sockets therefore finds
the connections on which no call has been permitted, and closes those that flood the service with
data or refused calls. If one host, or all hosts together, have too many connections without any
call, the scan closes the oldest. Among the newest of these connections, it first closes those on
which the peer has sent nothing. A few connections with few refused calls stay open.

Masters' messages may be large. So a scan compares the bytes on a master's connection with the
messages of its stream: it limits bytes in unfinished messages, and gRPC's own replies, as to pings.
The connection of the leading master has no such limits.

Unix sockets are not scanned: only root and the user that runs the service can open them.
"""

import asyncio
import threading
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping, Sized
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from urllib.parse import unquote

import structlog

from allocator.service import own_sockets
from allocator.service.addresses import host_of
from allocator.service.loop import gc_tuning
from allocator.service.loop.cooperative import Work
from allocator.service.own_sockets import Traffic
from allocator.service.stream_traffic import StreamTraffic

_SCAN_EVERY = 0.02
"""Minimum seconds between two scans."""
_HASTY_SCAN_EVERY = 0.002
"""The same while peers send much outside of permitted calls (`LARGE` bytes between two scans). In
0.02 s, gRPC would parse 100 kB of headers, which take up to 4 MB of memory."""
_SCAN_REST = 4.0
"""Pause after a scan as a multiple of its CPU time, up to `_LONGEST_REST`. On a busy machine, a
scan that waits for a processor so costs no further pause."""
_LONGEST_REST = 0.1
_LOG_EVERY = 60.0
"""Minimum seconds between two log lines about scans that failed."""
_COMPARE_EVERY = 0.5
"""Seconds between two comparisons of the process's memory. Each of them wakes the event loop."""
_PAUSE = 0.0001
"""Seconds that a scan leaves to other threads after each step. Slower scans would leave thousands
of new connections a second open."""
HOST_UNPROVED = 64
"""Maximum number of one host's connections without any call that a scan leaves open."""
ALL_UNPROVED = 256
"""Maximum number of all hosts' connections without any call that a scan leaves open."""
ALL_REFUSED = 32
"""Maximum number of connections with only refused calls that a scan leaves open. Connections
with the fewest refused calls stay."""
MOST_REFUSED = 256
"""Excess of a connection's refused over its permitted calls at which a scan closes it. gRPC does
not limit the number of calls that a peer sends one after another."""
MOST_RECEIVED = 2**17
"""Bytes received on a connection outside of permitted calls at which a scan closes it. A connection
with a master's open stream has no such limit, because the master's messages can be larger.

gRPC's limit of headers applies only once the peer has acknowledged gRPC's settings. Before, gRPC
keeps headers of five bytes with 18 times their size until the connection ends. It then passes the
call to Python, which takes 1 µs of the event loop and another 25 times the size. A handshake with a
usual certificate takes 4 kB, and a call that is not read 64 KiB.
"""
CALL_BYTES = 2**12
"""Bytes that a permitted call may send besides its request: headers, and frames of HTTP/2 and TLS.
"""
ACKNOWLEDGED = 2**8
"""Bytes of replies for each byte with which a peer may acknowledge them. gRPC acknowledges 32 KiB
with 26 bytes, to which TLS adds about 60."""
REPLIES_RATE = 2**10
"""Bytes of gRPC's own replies to which a master's stream has a right each second, up to `_SPARE`.

gRPC's clients send pings: one every 5 s at most to notice lost connections, and up to ten a second
to measure the network while answers arrive. A reply takes about 46 bytes.
"""
UPDATED = 2**7
"""Bytes of unfinished messages for each byte of gRPC's own replies. gRPC replies to 16 KiB with at
most 55 bytes."""
MOST_REPLIES = 2**17
"""Bytes of gRPC's own replies, beyond these, at which a scan closes the connection of a master that
does not lead. gRPC replies to each ping with as many bytes as the ping has."""
MASTER_REST = 5.0
"""Seconds after the end of a master's stream until the limits of bytes apply to its connection. The
peer may have sent further messages before it learns of the end."""
_SPARE = 2**14
"""Bytes that a connection with permitted calls may send later than its calls."""
LARGE = 2**14
"""Bytes received on a connection outside of permitted calls from which the connection counts as
large.

A peer with a usual certificate sends about 4 kB before its first call. gRPC keeps 20 times the
bytes of a certificate with thousands of names, as long as the connection is open.
"""
ALL_RECEIVED = 2**18
"""Maximum number of such bytes on all large connections together that a scan leaves open, the
newest."""
HOST_ASKING = 64
"""Maximum number of one host's connections on which peers have only asked or ordered, not connected
as masters. A scan closes the oldest above it.

Each connection can send 16 KiB between two scans, of which gRPC makes up to 4 MB.
"""
ALL_ASKING = 256
"""The same for all hosts together."""
_STEP = 128
"""Descriptors examined in one cooperative step, which takes about 0.5 ms."""

_NO_TRAFFIC = Traffic(0, 0)

_log = structlog.get_logger(__name__)


@dataclass
class _Connection:
    """A peer's open TCP connection to one of this process's gRPC ports."""

    cookie: bytes
    """The kernel's number of the socket."""
    number: int
    """Serial number, by which older connections sort first."""
    descriptor: int
    peer: str
    traffic: Traffic = _NO_TRAFFIC
    """Bytes until the latest scan."""
    unexpected: int = 0
    """Bytes that the peer had sent outside of permitted calls at the latest scan."""
    slowed: bool = True
    """Whether the kernel's receive buffer has a fixed size."""

    @property
    def received(self) -> int:
        """Number of bytes that the peer had sent at the latest scan."""
        return self.traffic.received


@dataclass
class _Calls:
    """Numbers of a peer's permitted and refused calls, by which a scan judges its connection."""

    scan: int
    """Number of scans before the first call."""
    permitted: int = 0
    refused: int = 0
    streams: list[StreamTraffic] = field(default_factory=list)
    """Open streams of a master."""
    master: str = ""
    """Name of the master's certificate, or its host."""
    replied: int | None = None
    """Bytes to the peer that scans permit on a master's connection; None before its first stream.
    """
    replied_at: float = 0.0
    """Monotonic time of the latest scan that counted `replied`."""
    exempt_until: float = 0.0
    """Monotonic time until which the peer may send any number of bytes."""
    sent: int = 0
    """Bytes that belong to permitted calls, up to `_SPARE` too many."""
    pending: int = 0
    """Bytes that the peer may still send as requests of permitted calls."""


class Connections:
    """Counts calls by peer, and closes connections on the gRPC ports without a permitted call.

    `note` is called for each call, and `scan` regularly.
    """

    def __init__(self) -> None:
        self.most_unfinished = 2**29
        """Maximum bytes of unfinished messages on the connections of all masters that do not lead.
        """
        self.ports: set[int] = set()
        """Numbers of the gRPC servers' TCP ports, entered once the servers listen."""
        self.closed = 0
        """Number of connections closed so far."""
        self._sockets: dict[bytes, _Connection | None] = {}
        """The kernel's number of a socket → connection; None for other sockets."""
        self._calls: dict[str, _Calls] = {}
        """Peer → calls."""
        self._found = self._scans = 0
        self._hasty = False
        """Whether peers sent much outside of permitted calls between the latest two scans."""
        self._log_next = 0.0
        """Monotonic time of the next log line about a scan that failed."""
        self._compare_next = 0.0
        """Monotonic time of the next comparison of the process's memory."""
        self._noting = threading.Lock()
        """Lock on `_calls`, which the event loop changes while another thread scans."""

    def note(self, peer: str, permitted: bool) -> None:  # noqa: FBT001 - an observer
        """Record a permitted or refused call, so that `scan` knows which connections to close.

        Args:
            peer: The peer's address and port in gRPC's notation, as in `ipv4:10.0.0.1:4000`.
            permitted: Whether the peer has the right that the call needs.
        """
        with self._noting:
            calls = self._calls_of(peer)
            calls.permitted += permitted
            calls.refused += not permitted
            calls.sent += CALL_BYTES * permitted

    def note_stream(self, peer: str, master: str, traffic: StreamTraffic) -> Callable[[], None]:
        """Record the begin of a master's stream, whose messages may be large.

        Args:
            peer: The peer's address and port in gRPC's notation.
            master: Name of the master's certificate, or its host.
            traffic: Bytes of the stream's messages, which the event loop counts.

        Returns:
            A function that records the end of the stream. The function uses no object of gRPC,
            which may have freed the call by then.
        """
        with self._noting:
            calls = self._calls_of(peer)
            calls.streams.append(traffic)
            calls.master = master

        def end() -> None:
            with self._noting:
                _count_messages(calls, traffic)
                calls.streams = [stream for stream in calls.streams if stream is not traffic]
                calls.exempt_until = time.monotonic() + MASTER_REST

        return end

    def note_request(self, peer: str, pending: int, sent: int = 0) -> None:
        """Record that the service waits for the request of a permitted call, or has read it.

        Args:
            peer: The peer's address and port in gRPC's notation.
            pending: Bytes that the peer may send as the request; negative once it has been read.
            sent: Bytes of the request that has been read.
        """
        with self._noting:
            calls = self._calls.get(unquote(peer))
            if calls is not None:
                calls.pending += pending
                calls.sent += sent

    def _calls_of(self, peer: str) -> _Calls:
        """Return the counted calls of a peer; a new peer has none.

        Args:
            peer: The peer's address and port in gRPC's notation.
        """
        name = unquote(peer)
        calls = self._calls.get(name)
        if calls is None:
            calls = self._calls[name] = _Calls(self._scans)
        return calls

    @asynccontextmanager
    async def scanning(self) -> AsyncIterator[None]:
        """Scan regularly while the block runs, in a thread.

        The event loop can be late by seconds under a flood, because gRPC passes it calls with
        hundreds of thousands of headers.
        """
        stop = threading.Event()
        loop = asyncio.get_running_loop()
        thread = threading.Thread(target=self._scan_until, args=(stop, loop), name="connections")
        thread.start()
        try:
            yield
        finally:
            stop.set()
            await asyncio.to_thread(thread.join)

    def _scan_until(self, stop: threading.Event, loop: asyncio.AbstractEventLoop) -> None:
        """Scan again and again until an event is set; the loop returns free memory.

        Without a TCP port there is nothing to scan, because `scan` leaves Unix sockets alone. The
        recorded calls are then deleted.
        """
        rest = _SCAN_EVERY
        while not stop.wait(rest):
            rest = _LONGEST_REST
            try:
                if any(self.ports):
                    rest = self._scan_now()
                else:
                    with self._noting:
                        self._calls.clear()
                self._compare_memory(loop)
            except Exception:  # noqa: BLE001 - without scans, floods would keep masters out
                self._log_failure()

    def _scan_now(self) -> float:
        """Scan, and return the seconds until the next scan."""
        started = time.thread_time()
        for _ in self.scan():
            time.sleep(_PAUSE)
        duration = time.thread_time() - started
        rest = _HASTY_SCAN_EVERY if self._hasty else _SCAN_EVERY
        return max(rest, min(_SCAN_REST * duration, _LONGEST_REST))

    def _compare_memory(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let the loop return free memory if the process has grown, once per `_COMPARE_EVERY`.

        A connection with a large certificate takes up to 1.7 MB.
        """
        now = time.monotonic()
        if now >= self._compare_next:
            self._compare_next = now + _COMPARE_EVERY
            loop.call_soon_threadsafe(gc_tuning.trim_if_grown)

    def _log_failure(self) -> None:
        """Log the error of a scan, at most once per `_LOG_EVERY`."""
        now = time.monotonic()
        if now >= self._log_next:
            self._log_next = now + _LOG_EVERY
            _log.exception("connections could not be scanned; the next scan follows")

    def scan(self) -> Work[None]:
        """Find all connections, and close those that `_useless` returns, in cooperative steps."""
        self._scans += 1
        yield from self._find()
        present = [connection for connection in self._sockets.values() if connection is not None]
        self._forget_gone({connection.peer for connection in present})
        useless = yield from self._useless(present)
        for step, connection in enumerate(useless, start=1):
            if not step % _STEP:
                yield
            self._close(connection)

    def _forget_gone(self, peers: set[str]) -> None:
        """Delete the recorded calls of peers that are no longer connected.

        Calls since the previous scan are kept in any case, because the scan may have missed their
        connection.

        Args:
            peers: Addresses and ports of the connected peers that `scan` has found.
        """
        with self._noting:
            self._calls = {
                peer: calls
                for peer, calls in self._calls.items()
                if peer in peers or calls.scan >= self._scans - 1
            }

    def _useless(self, present: list[_Connection]) -> Work[list[_Connection]]:
        """Choose the connections to close, so that few without a permitted call stay open.

        Args:
            present: All open connections on the gRPC ports.
        """
        useless = []
        grown = 0
        refused, large = [], []
        asking, unproved = defaultdict(list), defaultdict(list)
        unfinished: dict[str, list[_Connection]] = defaultdict(list)
        for step, connection in enumerate(present, start=1):
            if not step % _STEP:
                yield
            calls = self._calls.get(connection.peer)
            before = connection.unexpected
            connection.unexpected = self._unexpected(connection, calls)
            if calls is not None and calls.replied is not None and self._pings(connection, calls):
                useless.append(connection)
                continue
            if calls is not None and calls.streams:
                unfinished[calls.master].append(connection)
                continue
            grown += max(connection.unexpected - before, 0)
            if _floods(connection, calls):
                useless.append(connection)
            elif connection.unexpected >= LARGE:
                large.append(connection)
            elif calls is None:
                unproved[host_of(connection.peer)].append(connection)
            elif not calls.permitted:
                refused.append((calls.refused, connection.number, connection))
            else:
                asking[host_of(connection.peer)].append((connection.number, connection))
        self._hasty = grown >= LARGE
        useless += _heaviest(self.most_unfinished, unfinished)
        useless += _beyond(ALL_RECEIVED, large)
        refused.sort(key=lambda entry: entry[:2])
        useless.extend(connection for _, _, connection in refused[ALL_REFUSED:])
        kept = _share(HOST_ASKING, ALL_ASKING, asking)
        open_asking = []
        for proved in asking.values():
            proved.sort()
            useless.extend(connection for _, connection in proved[:-kept])
            open_asking += proved[-kept:]
        open_asking.sort()
        useless.extend(connection for _, connection in open_asking[:-ALL_ASKING])
        return useless + self._surplus(unproved)

    def _unexpected(self, connection: _Connection, calls: _Calls | None) -> int:
        """Return the number of bytes that a peer has sent outside of permitted calls.

        On a master's stream, these are bytes of unfinished messages. The result is 0 for the
        leading master. After a stream, bytes count from `MASTER_REST` on. Bytes that calls could
        have sent, but have not, are forgotten from `_SPARE` on. Otherwise, many short calls would
        let a peer send many bytes.

        Args:
            connection: The peer's connection.
            calls: The peer's calls, if any.
        """
        if calls is None or not calls.permitted:
            return connection.received
        self._adapt_buffer(connection, grows=bool(calls.streams))
        with self._noting:
            unknown = connection.received - connection.traffic.acknowledged // ACKNOWLEDGED
            for stream in calls.streams:
                if calls.replied is None:
                    calls.replied = connection.traffic.acknowledged
                    calls.sent = max(calls.sent, unknown)
                _count_messages(calls, stream)
            ended = not calls.streams and time.monotonic() < calls.exempt_until
            if ended or any(stream.leads for stream in calls.streams):
                calls.sent = max(calls.sent, unknown)
            calls.sent = min(calls.sent, unknown + _SPARE)
            return max(unknown - calls.sent - calls.pending, 0)

    def _pings(self, connection: _Connection, calls: _Calls) -> bool:
        """Return whether a master that does not lead has caused too many replies of gRPC itself.

        Args:
            connection: The master's connection.
            calls: The master's calls, with or without an open stream.
        """
        acknowledged = connection.traffic.acknowledged - connection.received // UPDATED
        now = time.monotonic()
        with self._noting:
            permitted = calls.replied or 0
            if any(stream.leads for stream in calls.streams):
                permitted = max(permitted, acknowledged)
            elif calls.replied_at:
                permitted += int(REPLIES_RATE * (now - calls.replied_at))
            calls.replied_at = now
            calls.replied = min(permitted, acknowledged + _SPARE)
            return acknowledged - calls.replied >= MOST_REPLIES

    def _surplus(self, unproved: dict[str, list[_Connection]]) -> list[_Connection]:
        """Choose the connections to close among those without any call.

        Args:
            unproved: Connections without any call, by host.
        """
        limit = _share(HOST_UNPROVED, ALL_UNPROVED, unproved)
        surplus = []
        for host in unproved.values():
            if len(host) > limit:
                surplus += _oldest(host, limit)
        if len(unproved) > ALL_UNPROVED:  # each host keeps one connection
            closed = {connection.number for connection in surplus}
            rest = [connection for host in unproved.values() for connection in host]
            rest = [connection for connection in rest if connection.number not in closed]
            surplus += _oldest(rest, ALL_UNPROVED)
        return surplus

    def _find(self) -> Work[None]:
        """Update `_sockets` with all sockets that this process has open, in cooperative steps."""
        sockets: dict[bytes, _Connection | None] = {}
        for step, descriptor in enumerate(own_sockets.open_descriptors(), start=1):
            if not step % _STEP:
                yield
            with suppress(OSError):  # no socket, or closed meanwhile
                cookie = own_sockets.read_cookie(descriptor)
                if cookie in self._sockets:
                    connection = self._sockets[cookie]
                else:
                    connection = self._examine(cookie, descriptor)
                sockets[cookie] = connection
                if connection is not None:
                    connection.traffic = own_sockets.read_traffic(descriptor)
        self._sockets = sockets

    def _examine(self, cookie: bytes, descriptor: int) -> _Connection | None:
        """Return the TCP connection of a newly found socket; None if it is not on a gRPC port.

        Args:
            cookie: The kernel's number of the socket.
            descriptor: This process's descriptor of the socket.
        """
        ends = own_sockets.read_ends(descriptor)
        if ends is None or ends[0] not in self.ports:
            return None
        self._found += 1
        with suppress(OSError):  # an older kernel
            own_sockets.fix_receive_buffer(descriptor, fixed=True)
        return _Connection(cookie, self._found, descriptor, ends[1])

    def _adapt_buffer(self, connection: _Connection, *, grows: bool) -> None:
        """Let the kernel adapt the receive buffer to a master's traffic, or keep it as it is.

        Args:
            connection: The peer's connection.
            grows: Whether the kernel adapts the buffer.
        """
        if connection.slowed == grows:
            connection.slowed = not grows
            with suppress(OSError):  # closed meanwhile, or an older kernel
                own_sockets.fix_receive_buffer(connection.descriptor, fixed=not grows)

    def _close(self, connection: _Connection) -> None:
        """Shut down a connection, unless its file descriptor now belongs to another socket."""
        if own_sockets.shut_down(connection.descriptor, connection.cookie):
            self._sockets[connection.cookie] = None
            self.closed += 1


def _floods(connection: _Connection, calls: _Calls | None) -> bool:
    """Return whether a peer sends too many bytes outside of permitted calls, or refused calls."""
    if connection.unexpected >= MOST_RECEIVED:
        return True
    return calls is not None and calls.refused - calls.permitted >= MOST_REFUSED


def _count_messages(calls: _Calls, stream: StreamTraffic) -> None:
    """Permit the bytes of a stream's messages since the latest scan.

    Args:
        calls: The master's calls.
        stream: A stream of the master.
    """
    received, sent = stream.received, stream.sent
    calls.sent += received - stream.noted_received
    if calls.replied is not None:
        calls.replied += sent - stream.noted_sent
    stream.noted_received, stream.noted_sent = received, sent


def _heaviest(limit: int, masters: Mapping[str, list[_Connection]]) -> list[_Connection]:
    """Choose connections without which the others have at most `limit` bytes unfinished.

    The master with the most bytes loses its connection with the most. So a master with many
    connections ends no other master's large message.

    Args:
        limit: Maximum number of bytes in unfinished messages.
        masters: Connections with an open stream, by the master's name.
    """
    total = sum(connection.unexpected for open_ in masters.values() for connection in open_)
    heaviest: list[_Connection] = []
    while total > limit:
        remaining = [
            [connection for connection in open_ if connection not in heaviest]
            for open_ in masters.values()
        ]
        most = max(remaining, key=lambda open_: sum(one.unexpected for one in open_))
        heaviest.append(max(most, key=lambda connection: connection.unexpected))
        total -= heaviest[-1].unexpected
    return heaviest


def _share(limit: int, total: int, hosts: Mapping[str, Sized]) -> int:
    """Return how many connections of one host stay open, at least 1.

    Args:
        limit: Maximum number of one host's connections.
        total: Maximum number of all hosts' connections; hosts with the most lose some first.
        hosts: The connections, by host.
    """
    while limit > 1 and sum(min(len(host), limit) for host in hosts.values()) > total:
        limit = limit * 3 // 4
    return limit


def _beyond(limit: int, connections: list[_Connection]) -> list[_Connection]:
    """Choose the oldest connections, without which the others have at most `limit` bytes.

    Args:
        limit: Maximum number of bytes received outside of permitted calls.
        connections: Connections in any order.
    """
    total = 0
    beyond = []
    for connection in sorted(connections, key=lambda connection: -connection.number):
        total += connection.unexpected
        if total > limit:
            beyond.append(connection)
    return beyond


def _oldest(connections: list[_Connection], kept: int) -> list[_Connection]:
    """Choose which connections to close: mainly the oldest, and silent ones first.

    A connection is silent if the peer has sent no byte. The newest connections, twice as many as
    will stay open, are checked for silence. All older connections are closed.

    Args:
        connections: All connections, of one host or of different hosts, without any call.
        kept: How many of them stay open.
    """
    ordered = sorted(connections, key=lambda connection: connection.number)
    oldest, newest = ordered[: -2 * kept], ordered[-2 * kept :]
    newest.sort(key=lambda connection: connection.received > 0)
    return oldest + newest[: len(newest) - kept]
