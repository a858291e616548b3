"""Closes connections on the gRPC ports that make no permitted calls, to keep room for others.

gRPC limits the number of connections of a port, and rejects new connections at the limit. gRPC for
Python cannot close a single connection. A regular scan of this process's sockets therefore finds
the connections on which no call has been permitted, and closes those that flood the service with
data or refused calls. If one host, or all hosts together, have too many connections without any
call, the scan closes the oldest. Among the newest of these
connections, it first closes those on which the peer has sent nothing. A few connections with few
refused calls stay open.
"""

import asyncio
import os
import socket
import stat
import sys
import threading
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from dataclasses import dataclass
from urllib.parse import unquote

from allocator.service.addresses import host_of
from allocator.service.loop import gc_tuning
from allocator.service.loop.cooperative import Work

_SCAN_EVERY = 0.02
"""Minimum seconds between two scans. In this time, gRPC parses about 100 kB of headers, which take
2 MB of memory."""
_SCAN_REST = 4.0
"""Pause after a scan as a multiple of its duration, up to `_LONGEST_REST`."""
_LONGEST_REST = 0.1
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
"""Bytes received on a connection without a permitted call at which a scan closes it.

gRPC keeps headers of five bytes with 18 times their size, also beyond the limit of headers, until
the connection ends. It then passes the call to Python, which takes 1 µs of the event loop for each
header. A handshake with a usual certificate takes 4 kB, and a call that is not read 64 KiB.
"""
LARGE = 2**14
"""Bytes received on a connection without any call from which the connection counts as large.

A peer with a usual certificate sends about 4 kB before its first call. gRPC keeps 20 times the
bytes of a certificate with thousands of names, as long as the connection is open.
"""
ALL_LARGE = 32
"""Maximum number of large connections that a scan leaves open, the newest."""
HOST_ASKING = 1024
"""Maximum number of connections of one host on which peers have only asked or ordered, not
connected as masters. A scan closes the oldest above it. A port has room for eight times as many."""
_STEP = 32
"""Descriptors examined in one cooperative step."""
_DESCRIPTORS = "/proc/self/fd"
_TCP_INFO = 11
_BYTES_RECEIVED = slice(128, 136)
"""Position of `tcpi_bytes_received` in the kernel's `struct tcp_info`."""


@dataclass(frozen=True)
class _Connection:
    """A peer's open TCP connection to one of this process's gRPC ports."""

    inode: int
    """The kernel's number of the socket."""
    number: int
    """Serial number, by which older connections sort first."""
    descriptor: int
    port: int
    peer: str


@dataclass
class _Calls:
    """Numbers of a peer's permitted and refused calls, by which a scan judges its connection."""

    scan: int
    """Number of scans before the first call."""
    permitted: int = 0
    refused: int = 0
    is_master: bool = False


class Connections:
    """Counts calls by peer, and closes connections on the gRPC ports without a permitted call.

    `note` is called for each call, and `scan` regularly.
    """

    def __init__(self) -> None:
        self.ports: set[int] = set()
        """Numbers of the gRPC servers' TCP ports, entered once the servers listen."""
        self.closed = 0
        """Number of connections closed so far."""
        self._sockets: dict[int, _Connection | None] = {}
        """The kernel's number of a socket → connection; None for other sockets."""
        self._calls: dict[str, _Calls] = {}
        """Peer → calls."""
        self._found = self._scans = 0
        self._noting = threading.Lock()
        """Lock on `_calls`, which the event loop changes while another thread scans."""

    def note(self, peer: str, permitted: bool, master: bool) -> None:  # noqa: FBT001 - an observer
        """Record a permitted or refused call, so that `scan` knows which connections to close.

        Args:
            peer: The peer's address and port in gRPC's notation, as in `ipv4:10.0.0.1:4000`.
            permitted: Whether the peer has the right that the call needs.
            master: Whether the call is a master's stream.
        """
        name = unquote(peer)
        with self._noting:
            calls = self._calls.get(name)
            if calls is None:
                calls = self._calls[name] = _Calls(self._scans)
            calls.permitted += permitted
            calls.refused += not permitted
            calls.is_master |= permitted and master

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
        """Scan again and again until an event is set; the loop returns free memory."""
        rest = _SCAN_EVERY
        while not stop.wait(rest):
            started = time.perf_counter()
            for _ in self.scan():
                time.sleep(_PAUSE)
            # A connection with a large certificate takes up to 1.7 MB.
            loop.call_soon_threadsafe(gc_tuning.trim_if_grown)
            duration = time.perf_counter() - started
            rest = max(_SCAN_EVERY, min(_SCAN_REST * duration, _LONGEST_REST))

    def scan(self) -> Work[None]:
        """Find all connections, and close those that `_useless` returns, in cooperative steps."""
        self._scans += 1
        yield from self._find()
        present = [connection for connection in self._sockets.values() if connection is not None]
        self._forget_gone({connection.peer for connection in present})
        yield
        useless = yield from self._useless(present)
        for step, connection in enumerate(useless):
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
        refused, large = [], []
        asking, unproved = defaultdict(list), defaultdict(list)
        for step, connection in enumerate(present):
            if not step % _STEP:
                yield
            calls = self._calls.get(connection.peer)
            if calls is not None and calls.refused - calls.permitted >= MOST_REFUSED:
                useless.append(connection)
            elif calls is not None and calls.is_master:
                continue
            elif calls is not None and calls.permitted:
                asking[host_of(connection.peer)].append((connection.number, connection))
            elif (received := _received(connection)) >= MOST_RECEIVED:
                useless.append(connection)
            elif calls is not None:
                refused.append((calls.refused, connection.number, connection))
            elif received >= LARGE:
                large.append((connection.number, connection))
            else:
                unproved[host_of(connection.peer)].append(connection)
        refused.sort(key=lambda entry: entry[:2])
        useless.extend(connection for _, _, connection in refused[ALL_REFUSED:])
        useless.extend(connection for _, connection in sorted(large)[:-ALL_LARGE])
        for proved in asking.values():
            useless.extend(connection for _, connection in sorted(proved)[:-HOST_ASKING])
        yield
        return useless + (yield from self._surplus(unproved))

    def _surplus(self, unproved: dict[str, list[_Connection]]) -> Work[list[_Connection]]:
        """Choose the connections to close among those without any call.

        Args:
            unproved: Connections without any call, by host.
        """
        limit = HOST_UNPROVED
        while limit > 1 and sum(min(len(host), limit) for host in unproved.values()) > ALL_UNPROVED:
            limit = limit * 3 // 4
        surplus = []
        for host in unproved.values():
            if len(host) > limit:
                surplus.extend((yield from self._oldest(host, len(host) - limit)))
        return surplus

    def _find(self) -> Work[None]:
        """Update `_sockets` with all sockets that this process has open, in cooperative steps."""
        sockets: dict[int, _Connection | None] = {}
        for step, name in enumerate(_descriptors()):
            if not step % _STEP:
                yield
            descriptor = int(name)
            try:
                status = os.fstat(descriptor)
                if not stat.S_ISSOCK(status.st_mode):
                    continue
                if status.st_ino in self._sockets:
                    sockets[status.st_ino] = self._sockets[status.st_ino]
                else:
                    sockets[status.st_ino] = self._examine(status.st_ino, descriptor)
            except OSError:  # closed meanwhile
                continue
        self._sockets = sockets

    def _examine(self, inode: int, descriptor: int) -> _Connection | None:
        """Return the TCP connection of a newly found socket; None if it is not on a gRPC port.

        Args:
            inode: The kernel's number of the socket.
            descriptor: This process's descriptor of the socket.
        """
        with _opened(descriptor) as opened:
            ends = _ends(opened)
        if ends is None or ends[0] not in self.ports:
            return None
        self._found += 1
        return _Connection(inode, self._found, descriptor, *ends)

    def _oldest(self, connections: list[_Connection], number: int) -> Work[list[_Connection]]:
        """Choose which connections of one host to close: mainly the oldest, and silent ones first.

        A connection is silent if the peer has sent no byte. To limit the cost, only the newest
        connections are checked for silence, twice as many as will stay open. All older connections
        are closed.

        Args:
            connections: All connections of the host without any call.
            number: How many of them to close.
        """
        connections = sorted(connections, key=lambda connection: connection.number)
        kept = len(connections) - number
        oldest, connections = connections[: -2 * kept], connections[-2 * kept :]
        keys = []
        for step, connection in enumerate(connections):
            if not step % _STEP:
                yield
            keys.append((_received(connection) > 0, connection.number, connection))
        ordered = [connection for _, _, connection in sorted(keys, key=lambda key: key[:2])]
        return oldest + ordered[: number - len(oldest)]

    def _close(self, connection: _Connection) -> None:
        """Shut down a connection, unless its file descriptor now belongs to another socket."""
        with suppress(OSError), _opened(connection.descriptor) as opened:
            if _ends(opened) == (connection.port, connection.peer):
                opened.shutdown(socket.SHUT_RDWR)
                self._sockets[connection.inode] = None
                self.closed += 1


def _received(connection: _Connection) -> int:
    """Return the number of bytes that the peer has sent; 0 if the connection is closed."""
    with suppress(OSError), _opened(connection.descriptor) as opened:
        information = opened.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, 256)
        return int.from_bytes(information[_BYTES_RECEIVED], sys.byteorder)
    return 0


def _descriptors() -> list[str]:
    """Return the numbers of this process's open file descriptors; empty without /proc."""
    try:
        return os.listdir(_DESCRIPTORS)  # noqa: PTH208 - a hot path
    except OSError:
        return []


@contextmanager
def _opened(descriptor: int) -> Iterator[socket.socket]:
    """Duplicate a socket's descriptor for the block, and yield the duplicate as a socket object.

    The duplicate keeps the socket open. Otherwise gRPC could close the socket during the block, and
    its number could be given to another socket.

    Raises:
        OSError: the descriptor has been closed, or is no socket.
    """
    second = os.dup(descriptor)
    try:  # The family is that of the longest addresses; a search takes three calls of the system.
        opened = socket.socket(socket.AF_INET6, socket.SOCK_STREAM, 0, fileno=second)
    except OSError:
        os.close(second)
        raise
    with closing(opened):
        yield opened


def _ends(opened: socket.socket) -> tuple[int, str] | None:
    """Return a TCP connection's port on this machine, and its peer's address as gRPC writes it.

    The result is None for other sockets.
    """
    try:
        own, peer = opened.getsockname(), opened.getpeername()
    except OSError:  # it listens, or the peer is gone
        return None
    if not isinstance(own, tuple) or len(own) < 2 or not isinstance(own[0], str):
        return None  # not a socket of the internet
    host, port = peer[:2]
    host = host.removeprefix("::ffff:") if "." in host else host
    return own[1], f"ipv6:[{host}]:{port}" if ":" in host else f"ipv4:{host}:{port}"
