"""Closes useless connections on the gRPC ports; gRPC for Python has no means for it.

gRPC limits the connections of a port, and at the limit keeps out newcomers. So a regular scan of
this process's sockets finds connections on which no call has been permitted. If one host has too
many of them, or all hosts together, the scan closes the oldest, silent ones first. Of connections
with refused calls only, it leaves a few open.
"""

import os
import socket
import stat
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from urllib.parse import unquote

from allocator.service.addresses import host_of
from allocator.service.loop import gc_tuning as garbage
from allocator.service.loop.cooperative import Work

SCAN_EVERY = 0.1
"""Seconds between two scans."""
SCAN_REST = 1.0
"""Time left to other tasks after a slice of a scan, as a multiple of the slice's duration. Slower
scans would leave thousands of new connections a second open."""
HOST_UNPROVED = 256
"""Connections of one host without a permitted call that a scan leaves open."""
ALL_UNPROVED = 1024
"""Connections of all hosts without a permitted call that a scan leaves open."""
ALL_REFUSED = 32
"""Connections with refused calls only that a scan leaves open, those with the fewest such calls."""
_STEP = 32
"""Descriptors examined in one cooperative step."""
_DESCRIPTORS = "/proc/self/fd"
_TCP_INFO = 11
_BYTES_RECEIVED = slice(128, 136)
"""Position of `tcpi_bytes_received` in the kernel's `struct tcp_info`."""


@dataclass(frozen=True)
class _Connection:
    """An open connection on one of the ports."""

    inode: int
    """The kernel's number of the socket."""
    number: int
    """Connections found earlier have a smaller number."""
    descriptor: int
    port: int
    peer: str


@dataclass
class _Calls:
    """The calls of one peer so far."""

    scan: int
    """Number of scans before the first call."""
    permitted: bool = False
    refused: int = 0


class Connections:
    """The connections of peers on the gRPC ports."""

    def __init__(self) -> None:
        self.ports: set[int] = set()
        """Numbers of the TCP ports."""
        self.closed = 0
        """Number of connections closed so far."""
        self._sockets: dict[int, _Connection | None] = {}
        """The kernel's number of a socket → connection; None for other sockets."""
        self._calls: dict[str, _Calls] = {}
        """Peer → calls."""
        self._found = self._scans = 0

    def note(self, peer: str, permitted: bool) -> None:  # noqa: FBT001 - an observer
        """Count a call of a peer in gRPC's notation.

        Args:
            peer: The peer's address and port.
            permitted: Whether the peer has the right.
        """
        name = unquote(peer)
        calls = self._calls.get(name)
        if calls is None:
            calls = self._calls[name] = _Calls(self._scans)
        calls.permitted |= permitted
        calls.refused += not permitted

    def scan(self) -> Work[None]:
        """Find all connections, and close useless ones, in cooperative steps."""
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
        garbage.trim_if_grown()  # a connection with a large certificate takes up to 0.7 MB

    def _forget_gone(self, peers: set[str]) -> None:
        """Forget the calls of peers that are gone.

        The connection of a call during the present or the previous scan may not be found yet.
        """
        self._calls = {
            peer: calls
            for peer, calls in self._calls.items()
            if peer in peers or calls.scan >= self._scans - 1
        }

    def _useless(self, present: list[_Connection]) -> Work[list[_Connection]]:
        """Return the connections to close."""
        refused = []
        unproved = defaultdict(list)
        for connection in present:
            calls = self._calls.get(connection.peer)
            if calls is None:
                unproved[host_of(connection.peer)].append(connection)
            elif not calls.permitted:
                refused.append((calls.refused, connection.number, connection))
        refused.sort(key=lambda entry: entry[:2])
        useless = [connection for _, _, connection in refused[ALL_REFUSED:]]
        limit = HOST_UNPROVED
        while limit > 1 and sum(min(len(host), limit) for host in unproved.values()) > ALL_UNPROVED:
            limit = limit * 3 // 4
        yield
        for host in unproved.values():
            if len(host) > limit:
                useless.extend((yield from self._oldest(host, len(host) - limit)))
        return useless

    def _find(self) -> Work[None]:
        """Bring the table of sockets up to date."""
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
        """Return the connection of a descriptor, if the socket is on one of the ports."""
        with _opened(descriptor) as opened:
            ends = _ends(opened)
        if ends is None or ends[0] not in self.ports:
            return None
        self._found += 1
        return _Connection(inode, self._found, descriptor, *ends)

    def _oldest(self, connections: list[_Connection], number: int) -> Work[list[_Connection]]:
        """Return the oldest connections of a host; silent ones come first.

        Of the newest connections, twice as many as stay, the scan looks which are silent.
        """
        connections = sorted(connections, key=lambda connection: connection.number)
        kept = len(connections) - number
        oldest, connections = connections[: -2 * kept], connections[-2 * kept :]
        keys = []
        for step, connection in enumerate(connections):
            if not step % _STEP:
                yield
            silent = True
            with suppress(OSError), _opened(connection.descriptor) as opened:
                information = opened.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, 256)
                silent = not any(information[_BYTES_RECEIVED])
            keys.append((not silent, connection.number, connection))
        ordered = [connection for _, _, connection in sorted(keys, key=lambda key: key[:2])]
        return oldest + ordered[: number - len(oldest)]

    def _close(self, connection: _Connection) -> None:
        """Close a connection; gRPC notices that the peer is gone."""
        with suppress(OSError), _opened(connection.descriptor) as opened:
            if _ends(opened) == (connection.port, connection.peer):
                opened.shutdown(socket.SHUT_RDWR)
                self._sockets[connection.inode] = None
                self.closed += 1


def _descriptors() -> list[str]:
    """Return this process's open descriptors; none where the system does not list them."""
    try:
        return os.listdir(_DESCRIPTORS)  # noqa: PTH208 - a hot path
    except OSError:
        return []


@contextmanager
def _opened(descriptor: int) -> Iterator[socket.socket]:
    """Give a second descriptor of a socket, so that the number cannot become another socket's.

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
    """Return a TCP connection's own port, and its peer in gRPC's notation."""
    try:
        own, peer = opened.getsockname(), opened.getpeername()
    except OSError:  # it listens, or the peer is gone
        return None
    if not isinstance(own, tuple) or len(own) < 2 or not isinstance(own[0], str):
        return None  # not a socket of the internet
    host, port = peer[:2]
    host = host.removeprefix("::ffff:") if "." in host else host
    return own[1], f"ipv6:[{host}]:{port}" if ":" in host else f"ipv4:{host}:{port}"
