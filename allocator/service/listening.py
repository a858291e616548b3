"""Runs the gRPC servers for masters and for operators, on one port or two."""

import asyncio
import errno
import os
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    contextmanager,
    suppress,
)
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import grpc
import structlog

from allocator.contract.admin_pb2_grpc import add_AdminServicer_to_server
from allocator.files import reason
from allocator.service import own_sockets
from allocator.service.addresses import anyone_may_bind
from allocator.service.config import AddressTaken, ConfigError, ListenSection, TlsSection, read_file
from allocator.service.connections import Connections
from allocator.service.masters.sessions import Sessions
from allocator.service.operators.admin import Admin
from allocator.service.operators.request_limits import LARGEST_REQUEST, METHODS, RequestLimits
from allocator.service.rights import Rights, UnknownMethods

Handlers: TypeAlias = Callable[[grpc.aio.Server], None]
"""Function that adds a gRPC service to a server."""
GRACE = 0.5
"""Seconds that open streams may take to end when the server stops; then they are cut."""
KEEPALIVE = 20.0
"""Seconds without data after which the server pings a peer, to notice lost connections."""
HANDSHAKE = 10.0
"""Time limit for the TLS and HTTP/2 handshakes of a connection, in seconds."""
IDLE = 60.0
"""Seconds after which a connection without calls is closed."""
CONNECTIONS = 8192
"""Maximum number of connections per port. Scans keep the number far lower (see `connections`). A
silent connection takes about 45 kB."""
CALLS = 4
"""Maximum number of concurrent calls per connection on a port of operators."""
MASTER_CALLS = 1
"""Maximum number of concurrent calls per connection on a port of masters, or of both.

A master needs one call. The service takes calls in order of arrival, so other peers' calls delay a
new master. With one call per connection, each call costs its peer a handshake. gRPC resets further
calls.

A call ends for its client once the status has arrived, but gRPC frees the call later. So as many
ended calls as running calls may still wait to be freed (`grpc.http2.max_deallocating_streams`).
Otherwise, gRPC would reset calls of a client that makes one call after another.
"""
PENDING = 2**9
"""Number of waiting calls on one port from which gRPC cancels some new calls.

gRPC cancels all from a quarter above the number. The connections without a permitted call that
scans leave open cannot reach the number on a port of masters. But gRPC also keeps calls that their
peer has reset, and calls of closed connections, with up to 10 kB each. Under such a flood, a new
master is refused or waits for about 0.3 s, and a longer queue would only lengthen the wait.
"""
OPERATORS_PENDING = 2**7
"""The same number on a port of operators only, where no master waits.

A waiting call can have 16 kB of headers, of which gRPC makes up to 4 MB. With half this number,
gRPC cancelled calls of three peers with 32 calls each, as many as a peer may have.
"""
LISTEN_EVERY = 5.0
"""Seconds between two attempts to listen on a port of operators that another program has taken."""
LOOK_EVERY = 1.0
"""Minimum seconds between two checks whether the TLS files have changed."""
LARGEST_HEADERS = 2048
"""Maximum size of a call's headers in bytes; each header counts with its name and 32 more bytes.

Clients of Longshare send about 600 bytes. gRPC reads headers before rights are checked, and keeps
them with up to `PENDING` calls.
"""
RECEIVE_BUFFER = 2**15
"""Size of the kernel's receive buffer of a connection before a permitted call, in bytes.

The kernel would else keep some megabytes, which gRPC still parses after a scan has shut the
connection down. gRPC's own option `grpc.tcp_receive_buffer_size` works for clients only.
"""
_UNREAD = 2**24
"""Bytes of finished messages that may wait on connections of masters that do not lead."""
_ANY_PINGS = 0
"""gRPC's value for any number of pings. Scans limit a peer's pings by their bytes.

With a limit, gRPC would not close the connection at once: it would handle a GOAWAY for each further
ping, which takes longer than an answer to the ping.
"""
_NO_COMPRESSION = 1
"""gRPC's bit set of accepted compressions, with only "no compression" set.

A compressed message of 64 KiB could expand to 64 MiB before any size is checked.
"""

_log = structlog.get_logger(__name__)


@asynccontextmanager
async def listening(
    section: ListenSection,
    sessions: Sessions | None,
    admin: Admin,
    rights: Rights,
    connections: Connections,
) -> AsyncIterator[None]:
    """Serve masters, if there are any, and operators, on one port or two, while the block runs.

    Args:
        section: The addresses and limits.
        sessions: The service for masters; None for a scheduler that opens no streams.
        admin: The service for operators.
        rights: The rights of peers.
        connections: Closes useless connections.

    Raises:
        ConfigError: an address or a TLS file cannot be used.
    """

    def limits(*, shared: bool) -> RequestLimits:
        return RequestLimits(rights, admin.orders.log_refusal, shared=shared)

    def unknown(server: grpc.aio.Server) -> None:
        server.add_generic_rpc_handlers((UnknownMethods(rights),))

    def operators_elsewhere(server: grpc.aio.Server) -> None:
        hint = "this port serves masters; commands connect to the address in listen.operators"
        server.add_generic_rpc_handlers((UnknownMethods(rights, METHODS, hint),))

    def masters(server: grpc.aio.Server) -> None:
        if sessions is not None:
            server.add_generic_rpc_handlers((sessions.handlers(),))

    def operators(server: grpc.aio.Server) -> None:
        add_AdminServicer_to_server(admin, server)

    connections.most_unfinished = section.largest_message * 3 // 2 + _UNREAD
    ports = connections.ports
    rights.observe = connections.note
    rights.observe_stream = connections.note_stream
    rights.observe_request = connections.note_request
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(connections.scanning())
        if section.operators is None:
            handlers = [masters, operators, unknown]
            shared_port = partial(
                _port, section, "address", section.address, handlers, limits(shared=True)
            )
            if sessions is None:  # Slurm: the port serves operators only
                await stack.enter_async_context(_once_free(shared_port, ports))
            else:
                ports.add(await stack.enter_async_context(shared_port()))
        else:
            operator_limits = limits(shared=False)
            handlers = [operators, unknown]
            masters_port = _port(
                section, "address", section.address, [masters, operators_elsewhere]
            )
            ports.add(await stack.enter_async_context(masters_port))
            operators_port = partial(
                _port, section, "operators", section.operators, handlers, operator_limits
            )
            await stack.enter_async_context(_once_free(operators_port, ports))
        yield


@asynccontextmanager
async def _once_free(
    port: Callable[[], AbstractAsyncContextManager[int]], ports: set[int]
) -> AsyncIterator[None]:
    """Serve on a port while the block runs; if another program listens there, once it has ended.

    Any user of this machine may take a port while no service runs. So a taken port of operators
    stops their orders, but no offers.

    Args:
        port: Opens the port.
        ports: The port's number is added to this set.

    Raises:
        ConfigError: the address or a TLS file cannot be used.
    """
    waiting: asyncio.Task[None] | None = None

    async def listen() -> None:
        ports.add(await stack.enter_async_context(port()))

    async def wait() -> None:
        while True:
            await asyncio.sleep(LISTEN_EVERY)
            with suppress(ConfigError):
                await listen()
                return

    async with AsyncExitStack() as stack:
        try:
            await listen()
        except AddressTaken as error:
            _log.error("operators cannot connect until the port is free", reason=str(error))
            waiting = asyncio.create_task(wait())
        try:
            yield
        finally:
            if waiting is not None:
                waiting.cancel()
                await asyncio.wait([waiting])


@asynccontextmanager
async def _port(
    section: ListenSection,
    name: str,
    address: str,
    handlers: Sequence[Handlers],
    limits: RequestLimits | None = None,
) -> AsyncIterator[int]:
    """Serve masters, operators or both on one port while the block runs.

    Args:
        section: The addresses and limits.
        name: Setting that contains the address: "address" or "operators".
        address: The address to listen on.
        handlers: Functions that add the services to the server.
        limits: Limits on operators' requests; None for a port that serves only masters.

    Yields:
        The number of the TCP port; 0 for a Unix socket.

    Raises:
        ConfigError: the address or a TLS file cannot be used.
    """
    calls = CALLS if name == "operators" else MASTER_CALLS
    pending = OPERATORS_PENDING if name == "operators" else PENDING
    largest = section.largest_message if name == "address" else LARGEST_REQUEST
    server = grpc.aio.server(
        interceptors=[] if limits is None else [limits],
        options=[
            ("grpc.max_receive_message_length", largest),
            ("grpc.max_send_message_length", section.largest_message),
            ("grpc.max_metadata_size", LARGEST_HEADERS),
            ("grpc.absolute_max_metadata_size", LARGEST_HEADERS),
            ("grpc.so_reuseport", 0),  # a second service on the same port must fail
            ("grpc.keepalive_time_ms", round(KEEPALIVE * 1000)),
            ("grpc.keepalive_timeout_ms", round(KEEPALIVE * 500)),
            ("grpc.http2.max_ping_strikes", _ANY_PINGS),
            ("grpc.server_handshake_timeout_ms", round(HANDSHAKE * 1000)),
            ("grpc.max_connection_idle_ms", round(IDLE * 1000)),
            ("grpc.max_allowed_incoming_connections", CONNECTIONS),
            ("grpc.max_concurrent_streams", calls),
            ("grpc.http2.max_deallocating_streams", calls),
            ("grpc.server.max_pending_requests", pending),
            ("grpc.server.max_pending_requests_hard_limit", pending + pending // 4),
            ("grpc.http2.bdp_probe", 0),  # at most 64 KiB are sent to a stream that is not read
            ("grpc.compression_enabled_algorithms_bitset", _NO_COMPRESSION),
        ],
    )
    for add in handlers:
        add(server)
    # A Unix socket for operators needs no TLS: its permissions protect it.
    plain = section.tls is None or (name == "operators" and address.startswith("unix:"))
    for_group = name == "address" and section.group_may_connect
    with _private_socket(name, address, 0o660 if for_group else 0o600):
        try:
            if plain or section.tls is None:
                bound = server.add_insecure_port(address)
            else:
                bound = server.add_secure_port(address, _credentials(section.tls))
        except RuntimeError as error:
            kind = AddressTaken if _is_taken(address) else ConfigError
            low = not address.startswith("unix:") and not anyone_may_bind(address)
            right = "; a port below 1024 needs deploy/systemd/low-port.conf" if low else ""
            raise kind(
                f"listen.{name}: cannot listen on {address}; check that this machine has the "
                f"address, and that no other program listens there{right}"
            ) from error
    if not address.startswith("unix:"):
        own_sockets.shrink_receive_buffers(bound, RECEIVE_BUFFER)
    await server.start()
    _log.info("listening", port=name, address=address)
    try:
        yield 0 if address.startswith("unix:") else bound
    finally:
        await server.stop(GRACE)  # also removes a Unix socket


def _is_taken(address: str) -> bool:
    """Return whether another program listens on a TCP address; gRPC reports no reason."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_server(
            (host.strip("[]"), int(port)),
            family=socket.AF_INET6 if ":" in host else socket.AF_INET,
        ).close()
    except OSError as error:
        return error.errno == errno.EADDRINUSE
    return False


def _credentials(section: TlsSection) -> grpc.ServerCredentials:
    """Return TLS credentials that follow renewed files: later connections use the new certificates.

    The files are read again at most once per `LOOK_EVERY` seconds. If they cannot be read, a
    warning is logged, and the previous certificates stay in use.

    gRPC then also makes new keys for session tickets. With a ticket, a peer resumes a TLS session
    without a check of its certificate, which may have ended since: BoringSSL permits this for two
    days.

    Raises:
        ConfigError: a file cannot be read at the start.
    """
    current, looked = _tls_files(section), time.monotonic()

    def renewed() -> Any:  # noqa: ANN401 - None means unchanged, which the stubs lack
        nonlocal current, looked
        now = time.monotonic()
        if now < looked + LOOK_EVERY:
            return None
        looked = now
        try:
            files = _tls_files(section)
        except ConfigError as error:
            _log.warning(
                "renewed certificates cannot be used; the service keeps the former ones",
                reason=str(error),
            )
            files = current
        if files != current:
            _log.info("certificates renewed", certificate=str(section.certificate))
        current = files
        return _certificates(files)

    return grpc.dynamic_ssl_server_credentials(
        _certificates(current),
        renewed,
        require_client_authentication=section.client_ca is not None,
    )


def _tls_files(section: TlsSection) -> tuple[bytes, bytes, bytes | None]:
    """Return the content of the TLS files: key, certificate, and the clients' authority.

    The authority signs clients' certificates; None if clients need no certificate.

    Raises:
        ConfigError: a file cannot be read.
    """
    key = read_file("listen.tls.key", section.key)
    certificate = read_file("listen.tls.certificate", section.certificate)
    if section.client_ca is None:
        return key, certificate, None
    return key, certificate, read_file("listen.tls.client_ca", section.client_ca)


def _certificates(
    files: tuple[bytes, bytes, bytes | None],
) -> grpc.ServerCertificateConfiguration:
    """Return gRPC's configuration for the TLS files: key, certificate and clients' authority."""
    key, certificate, authority = files
    return grpc.ssl_server_certificate_configuration([(key, certificate)], authority)


@contextmanager
def _private_socket(name: str, address: str, mode: int) -> Iterator[None]:
    """Set the permissions of a Unix socket that is created while the block runs.

    A TCP address is left alone.

    Args:
        name: Setting of the address, for errors.
        address: Address that the block listens on.
        mode: Permissions of the socket.

    Raises:
        ConfigError: another file or another service occupies the socket's path.
    """
    if not address.startswith("unix:"):
        yield
        return
    path = Path(address.removeprefix("unix://"))
    _clear_socket(name, path)
    mask = os.umask(0o777 & ~mode)
    try:
        yield
    finally:
        os.umask(mask)


def _clear_socket(name: str, path: Path) -> None:
    """Remove a Unix socket that a killed service left behind; leave a socket in use.

    Args:
        name: Setting of the address, for the error.
        path: Path of the socket.

    Raises:
        ConfigError: the path is not a socket, or another service listens on it.
    """
    try:
        if not path.exists():
            return
        if not path.is_socket():
            raise ConfigError(f"listen.{name}: {path} exists and is not a socket")
        with suppress(ConnectionRefusedError), socket.socket(socket.AF_UNIX) as probe:
            probe.connect(str(path))
            raise ConfigError(f"listen.{name}: another service listens on {path}")
        path.unlink()
    except OSError as error:
        raise ConfigError(f"listen.{name}: {path}: {reason(error)}") from error
