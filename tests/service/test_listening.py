"""A port limits the connections of peers that only connect."""

import asyncio
import os
import socket
import stat
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from typing_extensions import override

from allocator.service import connections, listening, own_sockets
from allocator.service.config import ListenSection, TlsSection
from allocator.service.loop.cooperative import run_in_slices
from allocator.service.operators.request_limits import PEER_CALLS, RequestLimits
from allocator.service.rights import Rights, UnknownMethods
from allocator.service.stream_traffic import StreamTraffic
from tests.service.served import PATIENCE

REFUSAL = 0.0006
"""CPU seconds of a refused call. All waiting calls delay a new master by their sum."""
LARGEST_CALL = 2.5
"""Megabytes of each of 160 waiting calls in a flood of calls with 16,000 headers."""
MEMORY = 400
"""Maximum number of megabytes of all waiting calls."""


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
    ("name", "shared", "calls", "waiting"),
    [
        ("address", None, 1, (connections.ALL_UNPROVED, 0.5 / REFUSAL)),
        ("address", True, 1, (connections.ALL_UNPROVED, 0.5 / REFUSAL)),
        ("operators", False, 4, (3 * PEER_CALLS, MEMORY / LARGEST_CALL)),
    ],
)
def test_grpc_cancels_calls_only_if_more_wait_than_useless_connections_or_three_peers_begin(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    calls: int,
    waiting: tuple[int, float],
    *,
    shared: bool | None,
) -> None:
    options = {}
    create = grpc.aio.server

    def server(**arguments: Any) -> grpc.aio.Server:  # noqa: ANN401
        options.update(arguments["options"])
        return create(**arguments)

    monkeypatch.setattr(grpc.aio, "server", server)

    async def listen() -> None:
        address = f"unix://{tmp_path}/s"
        async with listening._port(ListenSection(), name, address, [], limits(shared=shared)):
            pass

    asyncio.run(listen())
    assert options["grpc.max_concurrent_streams"] == calls
    assert options["grpc.http2.max_deallocating_streams"] == calls
    hard_limit = options["grpc.server.max_pending_requests_hard_limit"]
    fewest, most = waiting
    assert fewest <= options["grpc.server.max_pending_requests"] < hard_limit <= most


def limits(*, shared: bool | None) -> RequestLimits | None:
    """Return the limits of a port: only for masters (None), shared, or only for operators."""
    return None if shared is None else RequestLimits(Rights(None), lambda *_: None, shared=shared)


class Waiting(grpc.GenericRpcHandler):
    """Serves every method: records each call, and ends all calls after `end`."""

    def __init__(self) -> None:
        self.begun = list[str]()
        self.end = asyncio.Event()

    def add(self, server: grpc.aio.Server) -> None:
        server.add_generic_rpc_handlers((self,))

    @override
    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        async def wait(_requests: object, _context: object) -> None:
            self.begun.append(handler_call_details.method)
            await self.end.wait()

        return grpc.stream_stream_rpc_method_handler(wait)


def frame(kind: int, flags: int, stream: int, content: bytes = b"") -> bytes:
    """Return a frame of HTTP/2 (RFC 9113, section 4.1)."""
    header = [len(content).to_bytes(3), bytes([kind, flags]), stream.to_bytes(4)]
    return b"".join([*header, content])


def burst(calls: int, path: bytes = b"/x.Y/z") -> bytes:
    """Return the bytes of a new connection that begins calls before the service has answered."""
    literal = b"".join(
        bytes([0, len(name)]) + name + bytes([len(value)]) + value
        for name, value in (
            (b":path", path),
            (b":authority", b"a"),
            (b"content-type", b"application/grpc"),
            (b"te", b"trailers"),
        )
    )
    post, http = b"\x83", b"\x86"  # entries of the static table (RFC 7541, appendix A)
    begun = [frame(1, 4, 2 * number + 1, post + http + literal) for number in range(calls)]
    return b"".join([b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", frame(4, 0, 0), frame(4, 1, 0), *begun])


async def count_resets(reader: asyncio.StreamReader, resets: list[int]) -> None:
    """Append the numbers of reset streams."""
    while True:
        header = await reader.readexactly(9)
        await reader.readexactly(int.from_bytes(header[:3]))
        if header[3] == 3:
            resets.append(int.from_bytes(header[5:]))


@pytest.mark.parametrize(("shared", "most"), [(None, 2), (True, 2), (False, 9)])
def test_calls_that_a_connection_begins_at_once_beyond_its_limit_are_reset_unseen(
    tmp_path: Path, most: int, *, shared: bool | None
) -> None:
    """Before the peer has acknowledged the limit, gRPC accepts one call more."""
    name = "operators" if shared is False else "address"
    calls, path = 40, tmp_path / "s"

    async def scenario() -> int:
        serves, resets = Waiting(), list[int]()
        section, address = ListenSection(), f"unix://{path}"
        async with listening._port(section, name, address, [serves.add], limits(shared=shared)):
            reader, writer = await asyncio.open_unix_connection(path)
            writer.write(burst(calls))
            counting = asyncio.create_task(count_resets(reader, resets))
            while len(serves.begun) + len(resets) < calls:  # noqa: ASYNC110 - gRPC signals nothing
                await asyncio.sleep(0.01)
            counting.cancel()
            writer.close()
        return len(serves.begun)

    assert asyncio.run(asyncio.wait_for(scenario(), PATIENCE)) <= most


class Lingering(grpc.GenericRpcHandler):
    """Serves every method: sends the status of a call, but ends the call only after `end`."""

    def __init__(self) -> None:
        self.begun = 0
        self.end = asyncio.Event()

    def add(self, server: grpc.aio.Server) -> None:
        server.add_generic_rpc_handlers((self,))

    @override
    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        async def linger(_request: object, context: Any) -> None:  # noqa: ANN401
            self.begun += 1
            try:
                await context.abort(grpc.StatusCode.ABORTED)
            finally:
                await self.end.wait()

        return grpc.unary_unary_rpc_method_handler(linger)


@pytest.mark.parametrize("name", ["address", "operators"])
def test_each_ping_of_many_is_answered_once_and_none_with_a_goaway(
    tmp_path: Path, name: str
) -> None:
    rounds, pings, path = 3, 100, tmp_path / "s"

    async def scenario() -> Counter[int]:
        kinds = Counter[int]()
        async with listening._port(ListenSection(), name, f"unix://{path}", []):
            reader, writer = await asyncio.open_unix_connection(path)
            writer.write(burst(0))
            for number in range(1, rounds + 1):
                writer.write(frame(6, 0, 0, b"12345678") * pings)
                while kinds[6] < number * pings and not kinds[7]:
                    header = await reader.readexactly(9)
                    await reader.readexactly(int.from_bytes(header[:3]))
                    kinds[header[3]] += 1
            writer.close()
        return kinds

    kinds = asyncio.run(asyncio.wait_for(scenario(), PATIENCE))
    assert (kinds[6], kinds[7]) == (rounds * pings, 0)


@pytest.mark.parametrize(("name", "calls"), [("address", 1), ("operators", 4)])
def test_calls_one_after_another_are_served_while_the_service_still_ends_former_calls(
    tmp_path: Path, name: str, calls: int
) -> None:
    """gRPC accepts a call if at most twice as many former calls as may run are not yet freed."""
    address = f"unix://{tmp_path}/s"

    async def scenario() -> tuple[list[grpc.StatusCode], int, grpc.StatusCode]:
        serves = Lingering()
        section = ListenSection()
        options = [("grpc.enable_retries", 0), ("grpc.use_local_subchannel_pool", 1)]
        async with (
            listening._port(section, name, address, [serves.add]),
            grpc.aio.insecure_channel(address, options) as channel,
        ):
            method: Any = channel.unary_unary("/x.Y/z")
            try:
                codes = [await method(b"", timeout=PATIENCE).code() for _ in range(2 * calls + 2)]
                begun = serves.begun
            finally:
                serves.end.set()
            code = codes[-1]
            while code == grpc.StatusCode.UNAVAILABLE:  # gRPC does not signal what it has freed
                await asyncio.sleep(0.01)
                code = await method(b"", timeout=PATIENCE).code()
        return codes, begun, code

    codes, begun, later = asyncio.run(asyncio.wait_for(scenario(), PATIENCE))
    assert codes == [grpc.StatusCode.ABORTED] * (2 * calls + 1) + [grpc.StatusCode.UNAVAILABLE]
    assert begun == 2 * calls + 1
    assert later == grpc.StatusCode.ABORTED


@pytest.mark.parametrize("shared", [None, True])
def test_a_call_on_a_port_of_masters_waits_for_the_former_call_of_its_connection(
    tmp_path: Path, *, shared: bool | None
) -> None:
    address = f"unix://{tmp_path}/s"

    async def scenario() -> tuple[list[str], list[str]]:
        serves = Waiting()
        port = listening._port(
            ListenSection(), "address", address, [serves.add], limits(shared=shared)
        )
        own = [("grpc.use_local_subchannel_pool", 1)]

        async def call(channel: grpc.aio.Channel, method: str) -> None:
            stream: Any = channel.stream_stream(method)
            assert await stream(iter([]), timeout=PATIENCE).code() == grpc.StatusCode.OK

        async with (
            port,
            grpc.aio.insecure_channel(address, own) as channel,
            grpc.aio.insecure_channel(address, own) as second,
            asyncio.TaskGroup() as group,
        ):
            for connection, method, begun in (
                (channel, "/x.Y/first", 1),
                (channel, "/x.Y/second", 1),
                (second, "/x.Y/other", 2),
            ):
                group.create_task(call(connection, method))
                while len(serves.begun) < begun:  # noqa: ASYNC110 - gRPC signals nothing
                    await asyncio.sleep(0.01)
                await asyncio.sleep(0)
            begun_first = list(serves.begun)
            serves.end.set()
        return begun_first, serves.begun

    first, both = asyncio.run(asyncio.wait_for(scenario(), PATIENCE))
    assert first == ["/x.Y/first", "/x.Y/other"]
    assert both == [*first, "/x.Y/second"]


def test_once_a_second_tls_files_are_read_and_former_session_tickets_end(
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
    for second, contexts in ((0.5, 0), (1.0, 1), (2.5, 1)):
        now = second
        assert sum(renewed[0]() is not None for _ in range(100)) == contexts
    assert reads == 3


@pytest.mark.parametrize(
    ("name", "shared"), [("address", None), ("address", True), ("operators", False)]
)
def test_calls_with_large_headers_are_refused_by_the_transport(
    tmp_path: Path, name: str, *, shared: bool | None
) -> None:
    address = f"unix://{tmp_path}/s"

    async def call(size: int) -> tuple[grpc.StatusCode, str]:
        async with grpc.aio.insecure_channel(address) as channel:
            method: Any = channel.unary_unary("/longshare.v1.Admin/None")
            reply = method(b"", metadata=(("x-filler", "a" * size),))
            return await reply.code(), await reply.details()

    async def scenario() -> list[tuple[grpc.StatusCode, str]]:
        async with listening._port(ListenSection(), name, address, [], limits(shared=shared)):
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
    limited = None
    if shared is not None:
        limited = RequestLimits(rights, lambda *_: None, shared=shared)

    def unknown(server: grpc.aio.Server) -> None:
        server.add_generic_rpc_handlers((UnknownMethods(rights),))

    async def scenario() -> list[int]:
        closed = []
        port = listening._port(ListenSection(), "address", "127.0.0.1:0", [unknown], limited)
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


def test_only_a_masters_connection_has_a_receive_buffer_that_grows() -> None:
    scanned = connections.Connections()

    async def scenario() -> list[tuple[int, int]]:
        states = []
        async with listening._port(ListenSection(), "address", "127.0.0.1:0", []) as number:
            scanned.ports.add(number)
            with socket.create_connection(("127.0.0.1", number)) as peer:
                own, port = peer.getsockname()
                name = f"ipv4:{own}:{port}"
                while not (accepted := _accepted(number, port)):  # noqa: ASYNC110 - gRPC accepts
                    await asyncio.sleep(0.01)
                states.append(_receive_buffer(accepted))
                await run_in_slices(scanned.scan())
                states.append(_receive_buffer(accepted))
                scanned.note(name, True)
                await run_in_slices(scanned.scan())
                states.append(_receive_buffer(accepted))
                scanned.note(name, True)
                end = scanned.note_stream(name, "m", StreamTraffic())
                await run_in_slices(scanned.scan())
                states.append(_receive_buffer(accepted))
                end()
                await run_in_slices(scanned.scan())
                states.append(_receive_buffer(accepted))
                accepted.close()
        return states

    with socket.socket() as probe:
        try:
            probe.setsockopt(socket.SOL_SOCKET, own_sockets._SO_BUF_LOCK, 0)
        except OSError:
            pytest.skip("the kernel is older than Linux 5.14")
    size = listening.RECEIVE_BUFFER
    assert asyncio.run(scenario()) == [(size, lock) for lock in (0, 2, 2, 0, 2)]


def _accepted(port: int, peer: int) -> socket.socket | None:
    """Return a duplicate of this process's socket between its port and a peer's port."""
    for descriptor in own_sockets.open_descriptors():
        with suppress(OSError):
            opened = socket.socket(fileno=os.dup(descriptor))
            with suppress(OSError):
                if (opened.getsockname()[1:2], opened.getpeername()[1:2]) == ((port,), (peer,)):
                    return opened
            opened.close()
    return None


def _receive_buffer(opened: socket.socket) -> tuple[int, int]:
    """Return the size of a socket's receive buffer, and whether (2) or not (0) it is fixed."""
    size = opened.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
    return size, opened.getsockopt(socket.SOL_SOCKET, own_sockets._SO_BUF_LOCK)


@pytest.mark.parametrize(
    ("may", "modes"), [(False, {"a": 0o600, "o": 0o600}), (True, {"a": 0o660, "o": 0o600})]
)
def test_the_group_of_the_service_may_connect_to_the_masters_socket_if_permitted(
    tmp_path: Path, modes: dict[str, int], *, may: bool
) -> None:
    section = ListenSection(
        address=f"unix://{tmp_path}/a", operators=f"unix://{tmp_path}/o", group_may_connect=may
    )

    async def listen() -> dict[str, int]:
        async with (
            listening._port(section, "address", section.address, []),
            listening._port(section, "operators", f"unix://{tmp_path}/o", []),
        ):
            return permissions()

    def permissions() -> dict[str, int]:
        return {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}

    assert asyncio.run(listen()) == modes


@pytest.mark.parametrize("for_slurm", [False, True])
def test_a_taken_port_of_operators_stops_no_service_and_is_used_once_it_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, for_slurm: bool
) -> None:
    """The service for Slurm has no masters; its address is a port of operators."""
    monkeypatch.setattr(listening, "LISTEN_EVERY", 0.01)
    masters = f"unix://{tmp_path}/a"
    sessions: Any = (
        None if for_slurm else SimpleNamespace(handlers=lambda: UnknownMethods(Rights(None)))
    )

    async def answers(address: str) -> bool:
        try:
            async with asyncio.timeout(PATIENCE), grpc.aio.insecure_channel(address) as channel:
                await channel.channel_ready()
        except TimeoutError:
            return False
        return True

    async def begin_beside(other_program: socket.socket) -> tuple[bool, bool, bool]:
        port = other_program.getsockname()[1]
        operators = f"127.0.0.1:{port}"
        section = ListenSection(address=masters, operators=operators)
        if for_slurm:
            section = ListenSection(address=operators)
        closing = connections.Connections()
        admin: Any = SimpleNamespace(orders=SimpleNamespace(log_refusal=lambda *_: None))
        monkeypatch.setattr(listening, "add_AdminServicer_to_server", lambda *_: None)
        async with listening.listening(section, sessions, admin, Rights(None), closing):
            beside = for_slurm or await answers(masters)
            other_program.close()
            return beside, await answers(operators), port in closing.ports

    with socket.create_server(("127.0.0.1", 0)) as other_program:
        assert asyncio.run(begin_beside(other_program)) == (True, True, True)
