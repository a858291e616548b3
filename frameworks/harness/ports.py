"""Ports for programs that must know theirs before they start, and keep it when they come back."""

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
    """Return a port that nobody listens on just now, and that no connection will be given.

    The system gives connections that go out ports of a range of its own, where they would take
    the port of a program that is down for a moment. Ports are gone through in turn by all
    processes of a user, so that nobody else is given one whose program has yet to begin to listen.

    Raises:
        OSError: there is none.
    """
    end = int(_RANGE.read_text().split()[0]) if _RANGE.exists() else 32_768
    for _ in range(_TRIES):
        port = _LOWEST + _turn() % max(end - _LOWEST, 1)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise OSError(f"no port from {_LOWEST} to {end} is free")


def _turn() -> int:
    """Return the number after the one that was returned last, to whichever process."""
    path = Path(tempfile.gettempdir()) / f"longshare-ports-{os.getuid()}"
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, 0o600), "r+", encoding="ascii") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        last = file.read(20)
        turn = int(last) + 1 if last.isdecimal() else secrets.randbelow(_TRIES)
        file.seek(0)
        file.write(str(turn))
        file.truncate()
    return turn
