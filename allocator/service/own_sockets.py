"""Finds this process's sockets, reads their state in the kernel, and shuts connections down.

Python's own functions release the interpreter lock around each system call. A thread that examines
many sockets would then wait for the lock after each of them: 5 ms, or as long as the event loop's
thread reads a call with thousands of headers. The functions of this module keep the lock during
their short system calls. They work on Linux.
"""

import ctypes
import os
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from typing import NamedTuple

_LIBC = ctypes.PyDLL(None, use_errno=True)
"""The C library, whose functions `PyDLL` calls without releasing the interpreter lock."""
_READ_FOLDER = getattr(_LIBC, "getdents64", None) or getattr(_LIBC, "getdents", None)
"""The C library's function; musl has the second name."""
_DESCRIPTORS = b"/proc/self/fd"
_BUFFER = 2**15
"""Bytes of the list of descriptors that are read at once, with about 1,300 descriptors."""
_ENTRY = struct.Struct("=QqHB")
"""Begin of the kernel's `struct linux_dirent64`: inode, offset, length and type; then the name."""
_LONGEST_ADDRESS = 128
"""Size of the kernel's `struct sockaddr_storage`."""
_SO_COOKIE = 57
_SO_BUF_LOCK = 72
_RECEIVE_LOCK = 2
"""Flag of `_SO_BUF_LOCK`: the kernel does not adapt the size of the receive buffer."""
_TCP_INFO = 11
_TRAFFIC = struct.Struct("=120xQQ")
"""Begin of the kernel's `struct tcp_info`, up to `tcpi_bytes_acked` and `tcpi_bytes_received`."""


class Traffic(NamedTuple):
    """Numbers of bytes on a TCP connection since its begin."""

    acknowledged: int
    """Bytes that the peer has received and acknowledged."""
    received: int
    """Bytes that the peer has sent; this process may not have read all of them yet."""


def open_descriptors() -> list[int]:
    """Return the numbers of this process's open file descriptors; empty on other systems."""
    if _READ_FOLDER is None:
        return []
    folder = _LIBC.open(_DESCRIPTORS, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    if folder < 0:
        return []
    try:
        numbers: list[int] = []
        buffer = ctypes.create_string_buffer(_BUFFER)
        while (size := _READ_FOLDER(folder, buffer, ctypes.c_size_t(_BUFFER))) > 0:
            numbers += _numbers(buffer.raw[:size])
        return numbers
    finally:
        _LIBC.close(folder)


def _numbers(entries: bytes) -> list[int]:
    """Return the names that are numbers, in entries as `getdents64` returns them."""
    numbers = []
    position = 0
    while position < len(entries):
        length = _ENTRY.unpack_from(entries, position)[2]
        name = entries[position + _ENTRY.size : position + length].split(b"\0", 1)[0]
        if name.isdigit():  # not . or ..
            numbers.append(int(name))
        position += length
    return numbers


def read_cookie(descriptor: int) -> bytes:
    """Return the number by which the kernel identifies a socket as long as this machine runs.

    Raises:
        OSError: the descriptor is closed or no socket.
    """
    return _ask(descriptor, lambda opened: opened.getsockopt(socket.SOL_SOCKET, _SO_COOKIE, 8))


def read_traffic(descriptor: int) -> Traffic:
    """Return the numbers of bytes on a TCP connection.

    Raises:
        OSError: the descriptor is closed or no TCP socket.
    """
    information = _ask(
        descriptor,
        lambda opened: opened.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, _TRAFFIC.size),
    )
    return Traffic(*_TRAFFIC.unpack(information))


def _ask(descriptor: int, question: Callable[[socket.SocketType], bytes]) -> bytes:
    """Return a function's answer about the socket of a descriptor.

    gRPC can close the descriptor meanwhile. The answer is then an error, or that of a newer socket
    with the same number.

    Raises:
        OSError: the descriptor is closed or no socket, or the function has failed.
    """
    # The family is that of the longest addresses; a search takes three calls of the system.
    borrowed = socket.SocketType(socket.AF_INET6, socket.SOCK_STREAM, 0, descriptor)
    try:
        return question(borrowed)
    finally:
        borrowed.detach()


def read_ends(descriptor: int) -> tuple[int, str] | None:
    """Return a TCP connection's port on this machine, and its peer's address as gRPC writes it.

    The result is None for other sockets. A link-local address is without its interface.
    """
    own, peer = _address(_LIBC.getsockname, descriptor), _address(_LIBC.getpeername, descriptor)
    if own is None or peer is None:
        return None
    host, port = peer
    return own[1], f"ipv6:[{host}]:{port}" if ":" in host else f"ipv4:{host}:{port}"


def _address(
    function: Callable[[int, object, object], int], descriptor: int
) -> tuple[str, int] | None:
    """Return the internet address and the port that a function reads; None if it fails.

    Args:
        function: `getsockname` or `getpeername` of the C library.
        descriptor: Descriptor of a socket.
    """
    buffer = ctypes.create_string_buffer(_LONGEST_ADDRESS)
    size = ctypes.c_uint32(_LONGEST_ADDRESS)
    if function(descriptor, buffer, ctypes.byref(size)):
        return None
    (family,) = struct.unpack_from("=H", buffer)
    (port,) = struct.unpack_from("!2xH", buffer)
    if family == socket.AF_INET:
        return socket.inet_ntop(family, buffer.raw[4:8]), port
    if family == socket.AF_INET6:
        return socket.inet_ntop(family, buffer.raw[8:24]).removeprefix("::ffff:"), port
    return None


def shut_down(descriptor: int, cookie: bytes) -> bool:
    """Shut down a connection, unless its descriptor now belongs to another socket.

    A duplicate keeps the socket open meanwhile. Otherwise gRPC could close the socket, and its
    number could be given to another one.

    Args:
        descriptor: Descriptor of the connection.
        cookie: The kernel's number of the connection.

    Returns:
        Whether the connection has been shut down.
    """
    duplicate = _LIBC.dup(descriptor)
    if duplicate < 0:
        return False
    try:
        with suppress(OSError):
            if read_cookie(duplicate) == cookie:
                return not _LIBC.shutdown(duplicate, socket.SHUT_RDWR)
        return False
    finally:
        _LIBC.close(duplicate)


def shrink_receive_buffers(port: int, size: int) -> None:
    """Give later connections to a port a small receive buffer in the kernel.

    The kernel lets the buffer grow until `fix_receive_buffer` is called. Kernels before Linux 5.14
    do not know this, so buffers then stay as they are.

    Args:
        port: Number of a TCP port on which this process listens.
        size: Size in bytes; about a half of it is for data.
    """
    for descriptor in open_descriptors():
        with suppress(OSError), _duplicated(descriptor) as opened:
            if opened.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                own = _address(_LIBC.getsockname, opened.fileno())
                if own is not None and own[1] == port:
                    fix_receive_buffer(opened.fileno(), fixed=False)  # fails on older kernels
                    opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size // 2)
                    fix_receive_buffer(opened.fileno(), fixed=False)


def fix_receive_buffer(descriptor: int, *, fixed: bool) -> None:
    """Fix the present size of a connection's receive buffer, or let the kernel adapt it.

    Raises:
        OSError: the descriptor is closed, or the kernel is older than Linux 5.14.
    """
    flags = struct.pack("=i", _RECEIVE_LOCK if fixed else 0)

    def fix(opened: socket.SocketType) -> bytes:
        opened.setsockopt(socket.SOL_SOCKET, _SO_BUF_LOCK, flags)
        return flags

    _ask(descriptor, fix)


@contextmanager
def _duplicated(descriptor: int) -> Iterator[socket.socket]:
    """Duplicate a socket's descriptor for the block, and yield the duplicate as a socket object.

    Raises:
        OSError: the descriptor has been closed, or is no socket.
    """
    second = os.dup(descriptor)
    try:
        opened = socket.socket(socket.AF_INET6, socket.SOCK_STREAM, 0, fileno=second)
    except OSError:
        os.close(second)
        raise
    with closing(opened):
        yield opened
