"""A port limits the connections of peers that only connect."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from allocator.service import connections, listening
from allocator.service.config import ListenSection, TlsSection
from allocator.service.loop.cooperative import run_in_slices
from allocator.service.operators.request_limits import RequestLimits
from allocator.service.rights import Rights, UnknownMethods


def test_a_port_accepts_connections_up_to_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "CONNECTIONS", 3)
    path = tmp_path / "s"

    async def crowd() -> int:
        section = ListenSection()
        async with listening._port(section, "address", f"unix://{path}", []):
            peers = [await asyncio.open_unix_connection(path) for _ in range(5)]
            greeted = await asyncio.gather(*(reader.read(1) for reader, _ in peers))
            for _, writer in peers:
                writer.close()
            return sum(map(bool, greeted))

    assert asyncio.run(crowd()) == 3


@pytest.mark.parametrize(
    ("name", "limited", "calls"),
    [("address", None, 4), ("address", "shared", 8), ("operators", "operators", 32)],
)
def test_calls_on_connections_without_permitted_calls_make_grpc_cancel_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, limited: str | None, calls: int
) -> None:
    options = {}
    create = grpc.aio.server

    def server(**arguments: Any) -> grpc.aio.Server:  # noqa: ANN401
        options.update(arguments["options"])
        return create(**arguments)

    monkeypatch.setattr(grpc.aio, "server", server)
    limits = RequestLimits(Rights(None), lambda *_: None, shared=True)

    async def listen() -> None:
        address = f"unix://{tmp_path}/s"
        async with listening._port(ListenSection(), name, address, [], limits if limited else None):
            pass

    asyncio.run(listen())
    assert options["grpc.max_concurrent_streams"] == calls
    assert (
        options["grpc.server.max_pending_requests_hard_limit"]
        > options["grpc.server.max_pending_requests"]
        >= (connections.ALL_UNPROVED if calls <= 8 else connections.HOST_UNPROVED) * calls
    )


def test_tls_files_are_read_once_a_second_however_many_connect(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reads, now, renewed = 0, 0.0, []

    def files(_: TlsSection) -> tuple[bytes, bytes, None]:
        nonlocal reads
        reads += 1
        return b"key", b"certificate", None

    def credentials(_first: object, renew: Callable[[], object], **_: object) -> None:
        renewed.append(renew)

    monkeypatch.setattr(listening, "_tls_files", files)
    monkeypatch.setattr(time, "monotonic", lambda: now)
    monkeypatch.setattr(grpc, "dynamic_ssl_server_credentials", credentials)
    listening._credentials(TlsSection(certificate=Path("c"), key=Path("k")))
    assert reads == 1
    for second in (0.5, 1.0, 2.5):
        now = second
        for _ in range(100):
            assert renewed[0]() is None
    assert reads == 3


@pytest.mark.parametrize(
    ("name", "shared"), [("address", None), ("address", True), ("operators", False)]
)
def test_calls_with_large_headers_are_refused_by_the_transport(
    tmp_path: Path, name: str, *, shared: bool | None
) -> None:
    limits = None
    if shared is not None:
        limits = RequestLimits(Rights(None), lambda *_: None, shared=shared)
    address = f"unix://{tmp_path}/s"

    async def call(size: int) -> tuple[grpc.StatusCode, str]:
        async with grpc.aio.insecure_channel(address) as channel:
            method: Any = channel.unary_unary("/longshare.v1.Admin/None")
            reply = method(b"", metadata=(("x-filler", "a" * size),))
            return await reply.code(), await reply.details()

    async def scenario() -> list[tuple[grpc.StatusCode, str]]:
        async with listening._port(ListenSection(), name, address, [], limits):
            return [await call(size) for size in (500, listening.LARGEST_HEADERS)]

    (small, _), (large, words) = asyncio.run(scenario())
    assert small == grpc.StatusCode.UNIMPLEMENTED
    assert large == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "metadata size exceeds" in words


@pytest.mark.parametrize("method", ["/x.Y/z", "/longshare.v1.Admin/None"])
@pytest.mark.parametrize("shared", [None, True])
def test_calls_of_unknown_methods_count_as_refused_calls_of_their_connection(
    monkeypatch: pytest.MonkeyPatch, method: str, *, shared: bool | None
) -> None:
    monkeypatch.setattr(connections, "MOST_REFUSED", 3)
    rights, scanned = Rights(None), connections.Connections()
    rights.observe = scanned.note
    limits = None
    if shared is not None:
        limits = RequestLimits(rights, lambda *_: None, shared=shared)

    def unknown(server: grpc.aio.Server) -> None:
        server.add_generic_rpc_handlers((UnknownMethods(rights),))

    async def scenario() -> list[int]:
        closed = []
        port = listening._port(ListenSection(), "address", "127.0.0.1:0", [unknown], limits)
        async with port as number:
            scanned.ports.add(number)
            async with grpc.aio.insecure_channel(f"127.0.0.1:{number}") as channel:
                call: Any = channel.unary_unary(method)
                for _ in range(3):
                    assert await call(b"").code() == grpc.StatusCode.UNIMPLEMENTED
                    await run_in_slices(scanned.scan())
                    closed.append(scanned.closed)
        return closed

    assert asyncio.run(scenario()) == [0, 0, 1]
