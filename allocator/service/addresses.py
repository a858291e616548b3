"""Addresses that the service listens on: checks of their syntax, and the default address."""

import ipaddress
import os

DEFAULT = "127.0.0.1:5060"
"""Default address for masters and operators."""
_LONGEST_SOCKET = 107
"""Maximum length of a Unix socket's path on Linux, in bytes."""


def host_and_port(address: str) -> str:
    """Return an address unchanged if its form is `HOST:PORT`.

    Raises:
        ValueError: the address has another form.
    """
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"{address!r} is not HOST:PORT")
    return address


def target(address: str) -> str:
    """Return an address unchanged if its form is `unix:///PATH` or `HOST:PORT`.

    Raises:
        ValueError: the address has another form, or the path is too long.
    """
    if address.startswith("unix:"):
        if not address.startswith("unix:///"):
            raise ValueError(
                f"{address!r}: write the absolute path, as in unix:///run/longshare.sock"
            )
        if len(os.fsencode(address.removeprefix("unix://"))) > _LONGEST_SOCKET:
            raise ValueError(f"the path of a Unix socket has at most {_LONGEST_SOCKET} bytes")
        return address
    return host_and_port(address)


def is_local(address: str) -> bool:
    """Return whether only processes on this machine can reach an address."""
    if address.startswith("unix:"):
        return True
    host = address.rpartition(":")[0].strip("[]")
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
