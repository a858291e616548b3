"""Chooses port numbers for programs that must know their port before they start."""

import fcntl
import os
import secrets
import socket
import tempfile
from pathlib import Path

_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST = 10_000
_TRIES = 1000


def free_port() -> int:
    """Return a free port for a program that will soon listen on it.

    The system assigns ports from a range of its own to outgoing connections. The returned port is
    outside this range, because another program might otherwise take it before the caller's program
    listens, or while that program restarts.

    All processes of this operating-system user take ports from one sequence, so that no port is
    returned twice before its program listens.

    Raises:
        OSError: No port is free.
    """
    end = int(_RANGE.read_text().split()[0]) if _RANGE.exists() else 32_768
    for _ in range(_TRIES):
        port = _LOWEST + _next_number() % max(end - _LOWEST, 1)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise OSError(f"no port from {_LOWEST} to {end} is free")


def _next_number() -> int:
    """Return the next number of a counter that all processes of this operating-system user share.

    `free_port` derives a port from it, so that two processes do not choose the same port.
    """
    path = Path(tempfile.gettempdir()) / f"longshare-ports-{os.getuid()}"
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, 0o600), "r+", encoding="ascii") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        previous = file.read(20)
        number = int(previous) + 1 if previous.isdecimal() else secrets.randbelow(_TRIES)
        file.seek(0)
        file.write(str(number))
        file.truncate()
    return number
