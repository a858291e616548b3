"""The service's gRPC face: for masters and for operators, on one port or two."""

import os
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeAlias

import grpc
import structlog

from allocator.contract.admin_pb2_grpc import add_AdminServicer_to_server
from allocator.files import read_plain
from allocator.service.config import ConfigError, ListenSection, TlsSection
from allocator.service.masters.sessions import Sessions
from allocator.service.operators.admin import Admin
from allocator.service.operators.request_limits import LARGEST_REQUEST, RequestLimits
from allocator.service.rights import Rights

Handlers: TypeAlias = Callable[[grpc.aio.Server], None]
"""Adds a service to a server."""
GRACE = 0.5
"""Seconds that a stream gets to end by itself."""
KEEPALIVE = 20.0
"""Seconds without a word after which a peer is asked whether it is there."""
HANDSHAKE = 10.0
"""Seconds for a connection to say that it speaks HTTP/2, and TLS where that is asked for."""
IDLE = 60.0
"""Seconds for which a connection without a call is kept."""
CONNECTIONS = 8192
"""At once on one port; one that says nothing takes some 45 kB until it is closed."""
CALLS = 100
"""At once on one connection."""
_AS_IT_COMES = 1
"""Nothing is unpacked: 64 KiB would become 64 MiB before anybody could say no."""

_log = structlog.get_logger(__name__)


@asynccontextmanager
async def listening(
    section: ListenSection, sessions: Sessions, admin: Admin, rights: Rights
) -> AsyncIterator[None]:
    """Serve masters and operators, on one port or two, while the block runs.

    Raises:
        ConfigError: an address or a file cannot be used.
    """

    def bounding(*, shared: bool) -> RequestLimits:
        return RequestLimits(rights, admin.orders.refused, shared=shared)

    def masters(server: grpc.aio.Server) -> None:
        server.add_generic_rpc_handlers((sessions.handlers(),))

    def operators(server: grpc.aio.Server) -> None:
        add_AdminServicer_to_server(admin, server)

    async with AsyncExitStack() as stack:
        if section.operators is None:
            both = _port(
                section, "address", section.address, [masters, operators], bounding(shared=True)
            )
            await stack.enter_async_context(both)
        else:
            alone = bounding(shared=False)
            for port in (
                _port(section, "address", section.address, [masters]),
                _port(section, "operators", section.operators, [operators], alone),
            ):
                await stack.enter_async_context(port)
        yield


@asynccontextmanager
async def _port(
    section: ListenSection,
    name: str,
    address: str,
    handlers: list[Handlers],
    bounding: RequestLimits | None = None,
) -> AsyncIterator[None]:
    largest = section.largest_message if name == "address" else LARGEST_REQUEST
    server = grpc.aio.server(
        interceptors=[] if bounding is None else [bounding],
        options=[
            ("grpc.max_receive_message_length", largest),
            ("grpc.max_send_message_length", section.largest_message),
            ("grpc.so_reuseport", 0),  # a second service on the same port must fail
            ("grpc.keepalive_time_ms", round(KEEPALIVE * 1000)),
            ("grpc.keepalive_timeout_ms", round(KEEPALIVE * 500)),
            ("grpc.http2.min_ping_interval_without_data_ms", 5000),  # masters may ask, too
            ("grpc.server_handshake_timeout_ms", round(HANDSHAKE * 1000)),
            ("grpc.max_connection_idle_ms", round(IDLE * 1000)),
            ("grpc.max_allowed_incoming_connections", CONNECTIONS),
            ("grpc.max_concurrent_streams", CALLS),
            ("grpc.http2.bdp_probe", 0),  # a stream that is not read is sent 64 KiB, not megabytes
            ("grpc.compression_enabled_algorithms_bitset", _AS_IT_COMES),
        ],
    )
    for add in handlers:
        add(server)
    # A second port on a Unix socket is protected by that: whoever else has no certificate.
    plain = section.tls is None or (name == "operators" and address.startswith("unix:"))
    with _socket_for_owner_only(name, address):
        try:
            if plain or section.tls is None:
                server.add_insecure_port(address)
            else:
                server.add_secure_port(address, _credentials(section.tls))
        except RuntimeError as error:
            raise ConfigError(f"listen.{name}: cannot listen on {address}: {error}") from error
    await server.start()
    _log.info("listening", port=name, address=address)
    try:
        yield
    finally:
        await server.stop(GRACE)  # which removes the socket, too


def _credentials(section: TlsSection) -> grpc.ServerCredentials:
    """Read certificates; files that change later are read again for each new connection.

    Raises:
        ConfigError: a file cannot be read.
    """
    before = _tls_files(section)

    def renewed() -> Any:  # noqa: ANN401 - None means: as before; the stubs do not know
        nonlocal before
        try:
            now = _tls_files(section)
        except ConfigError as error:
            _log.warning("certificates stay as they were", reason=str(error))
            return None
        if now == before:
            return None
        before = now
        _log.info("certificates renewed", certificate=str(section.certificate))
        return _certificates(now)

    return grpc.dynamic_ssl_server_credentials(
        _certificates(before),
        renewed,
        require_client_authentication=section.client_ca is not None,
    )


def _tls_files(section: TlsSection) -> tuple[bytes, bytes, bytes | None]:
    """Return key, certificate and the clients' authority."""
    contents = []
    for name, path in (("key", section.key), ("certificate", section.certificate)):
        contents.append(_read(name, path, private=name == "key"))
    authority = _read("client_ca", section.client_ca) if section.client_ca is not None else None
    return contents[0], contents[1], authority


def _read(name: str, path: Path, *, private: bool = False) -> bytes:
    try:
        return read_plain(path, private=private)
    except OSError as error:
        raise ConfigError(f"listen.tls.{name}: {path}: {error.strerror}") from error


def _certificates(
    files: tuple[bytes, bytes, bytes | None],
) -> grpc.ServerCertificateConfiguration:
    key, certificate, authority = files
    return grpc.ssl_server_certificate_configuration([(key, certificate)], authority)


@contextmanager
def _socket_for_owner_only(name: str, address: str) -> Iterator[None]:
    """If a Unix socket is made in the block, nobody else can ever connect to it."""
    if not address.startswith("unix:"):
        yield
        return
    path = Path(address.removeprefix("unix://"))
    _clear_socket(name, path)
    mask = os.umask(0o177)
    try:
        yield
    finally:
        os.umask(mask)


def _clear_socket(name: str, path: Path) -> None:
    """Remove a socket that a killed service left behind, but not one that answers."""
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
        raise ConfigError(f"listen.{name}: {path}: {error.strerror}") from error
