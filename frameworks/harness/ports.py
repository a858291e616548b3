"""Port numbers for programs that need a fixed port before they start and after a restart."""

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
    """Return a port that is free now and that the system will not assign to a connection.

    Outgoing connections get ports from a separate range of the system. A port from that range could
    be taken while its program restarts. All processes of a user take ports from one sequence, so
    that a port is not given away again before its program listens.

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
    """Return the next number of a sequence shared by all processes of the user."""
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
