"""Ports for programs that must know theirs before they start, and keep it when they come back."""

import secrets
import socket
from pathlib import Path

_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST = 10_000
_TRIES = 1000


def free_port() -> int:
    """Return a port that nobody listens on just now, and that no connection will be given.

    The system gives connections that go out ports of a range of its own, where they would take
    the port of a program that is down for a moment.

    Raises:
        OSError: there is none.
    """
    end = int(_RANGE.read_text().split()[0]) if _RANGE.exists() else 32_768
    for _ in range(_TRIES):
        port = _LOWEST + secrets.randbelow(max(end - _LOWEST, 1))
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise OSError(f"no port from {_LOWEST} to {end} is free")
