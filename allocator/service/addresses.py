"""Addresses that the service listens on: checks of their syntax, and the default address."""

import ipaddress
import os
from functools import lru_cache
from pathlib import Path
from urllib.parse import unquote

DEFAULT = "127.0.0.1:5060"
"""Default address for masters and operators."""
_LONGEST_SOCKET = 107
"""Maximum length of a Unix socket's path on Linux, in bytes."""
_FIRST_UNPRIVILEGED = Path("/proc/sys/net/ipv4/ip_unprivileged_port_start")


def host_and_port(address: str) -> str:
    """Return an address unchanged if its form is `HOST:PORT`.

    Raises:
        ValueError: the address has another form.
    """
    host, colon, port = address.rpartition(":")
    if (
        not colon
        or not host
        or "/" in host
        or not (port.isascii() and port.isdigit())
        or int(port) > 65535
    ):
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


def anyone_may_bind(address: str) -> bool:
    """Return whether any user of this machine could listen on an address while no service does.

    Only root and programs with the right CAP_NET_BIND_SERVICE may bind lower TCP ports. The folder
    of a Unix socket protects the socket.
    """
    if address.startswith("unix:"):
        return False
    return int(address.rpartition(":")[2]) >= _first_unprivileged_port()


def _first_unprivileged_port() -> int:
    """Return the lowest TCP port that every user of this machine may bind."""
    try:
        return int(_FIRST_UNPRIVILEGED.read_text())
    except (OSError, ValueError):  # an old kernel
        return 1024


def is_local(address: str) -> bool:
    """Return whether only processes on this machine can reach an address."""
    if address.startswith("unix:"):
        return True
    host = address.rpartition(":")[0].strip("[]")
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@lru_cache(maxsize=4096)
def host_of(peer: str) -> str:
    """Return a peer's host, as a text that is the same for all addresses one machine may use.

    One machine can use all addresses of 127.0.0.0/8, and usually all of an IPv6 network of 64 bits.
    The result then names the whole network. An IPv4 address that is written as IPv6 counts as IPv4.

    Args:
        peer: The peer's address and port in gRPC's notation, as in `ipv4:10.0.0.1:4000`.
    """
    kind, _, rest = unquote(peer).partition(":")
    if kind not in {"ipv4", "ipv6"}:
        return peer
    host = rest.rpartition(":")[0].strip("[]").partition("%")[0]
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    address = mapped or address
    if address.is_loopback:
        return "loopback"
    if isinstance(address, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((address, 64), strict=False))
    return str(address)
