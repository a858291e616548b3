"""The HTTP port stays usable under hostile connections, and answers only to known host names."""

import asyncio
import http.client
import socket
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiohttp import web
from typing_extensions import override

from allocator.service.show.guard import (
    EACH_TURN,
    MOST,
    MOST_HEADERS,
    MOST_UNPARSED,
    MOST_UNREAD,
    PIECE,
    Guard,
)
from tests.service.served import PATIENCE, Service, Stream, service
from tests.service.show.test_metrics import scrape

HALF_SENT = 1100


@pytest.fixture(name="running")
def _running(tmp_path: Path) -> Iterator[Service]:
    with service(tmp_path, '[metrics]\nhosts = ["longshare.example"]\n') as started:
        yield started


def port(running: Service) -> int:
    return int(running.metrics_url.split(":")[2].split("/")[0])


@pytest.mark.slow
def test_half_sent_requests_do_not_block_the_port(running: Service) -> None:
    with ExitStack() as stack:
        for _ in range(HALF_SENT):
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", port(running))))
            connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: local")
        assert scrape(running)["longshare_session_connected",] == 0.0
        leader = Stream(running.address)
        leader.open()
        assert scrape(running)["longshare_session_connected",] == 1.0
        descriptors = len(list(Path(f"/proc/{running.process.pid}/fd").iterdir()))
        assert descriptors < MOST + 60
    assert len(running.log.read_text().splitlines()) < 40


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("localhost", 200),
        ("localhost:9105", 200),
        ("127.0.0.1:1", 200),
        ("[::1]:9105", 200),
        ("[::1]", 200),
        (socket.gethostname(), 200),
        ("longshare.example:9105", 200),
        ("LONGSHARE.example.", 200),
        ("evil.example", 421),
        ("evil.example:9105", 421),
        ("localhost.evil.example", 421),
        ("127.0.0.1.evil.example", 421),
    ],
)
@pytest.mark.parametrize("path", ["/metrics", "/api/status"])
def test_only_requests_for_known_host_names_are_answered(
    running: Service, path: str, name: str, status: int
) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port(running), timeout=PATIENCE)
    connection.putrequest("GET", path, skip_host=True)
    connection.putheader("Host", name)
    connection.endheaders()
    assert connection.getresponse().status == status
    connection.close()


class Transport(asyncio.Transport):
    """Connection with a record of sent bytes, and of the connection's end."""

    aborted = closed = paused = False
    written = b""
    host: str | None = None

    @override
    def get_extra_info(self, name: str, default: object = None) -> Any:
        return default if self.host is None else (self.host, 1)

    protocol: asyncio.BaseProtocol = asyncio.Protocol()

    def abort(self) -> None:
        self.aborted = True

    def write(self, data: "bytes | bytearray | memoryview[Any]") -> None:
        self.written += data

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self.protocol

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False


class Inner(asyncio.Protocol):
    """Protocol with a record of received bytes."""

    def __init__(self) -> None:
        self.received = b""

    def data_received(self, data: bytes) -> None:
        self.received += data


ZEROS = zlib.compress(bytes(10_000_000), 9)


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        (b"Transfer-Encoding: chunked", 100_000 * b"1\r\na\r\n"),
        (b"Content-Encoding: deflate\r\nContent-Length: %d" % len(ZEROS), ZEROS),
        (b"Content-Length: 1000000", bytes(1_000_000)),
    ],
    ids=["chunks", "compressed", "long"],
)
def test_a_request_with_a_body_is_refused_before_its_body_is_read(
    headers: bytes, body: bytes, running: Service
) -> None:
    begin = b"POST /metrics HTTP/1.1\r\nHost: localhost\r\n%s\r\n\r\n" % headers
    with socket.create_connection(("127.0.0.1", port(running)), timeout=PATIENCE) as connection:
        with suppress(ConnectionError):  # the service does not read the whole body
            connection.sendall(begin + body)
        assert connection.recv(100).startswith(b"HTTP/1.1 400 ")
    assert scrape(running)["longshare_session_connected",] == 0.0


@pytest.mark.parametrize("header", ["content-ENCODING", "content-LENGTH", "TRANSFER-encoding"])
def test_a_header_in_two_parts_announces_a_body(header: str) -> None:
    begin, chunks = f"GET / HTTP/1.1\r\n{header}".encode(), b": 1\r\n\r\n1\r\na\r\n"
    for cut in range(1, len(begin)):
        inner, peer = Inner(), Transport()

        async def one(cut: int = cut, inner: Inner = inner, peer: Transport = peer) -> None:
            protocol: Any = Guard(lambda: lambda: inner)()
            protocol.connection_made(peer)
            protocol.data_received(begin[:cut])
            protocol.data_received(begin[cut:] + chunks)

        asyncio.run(one())
        assert peer.written.startswith(b"HTTP/1.1 400 ")
        assert peer.is_closing()
        assert inner.received == begin[:cut]


def test_silent_connections_end_silent_ones_only_and_make_no_protocol() -> None:
    made: list[Inner] = []

    def make() -> Inner:
        made.append(Inner())
        return made[-1]

    async def crowd() -> None:
        guard = Guard(lambda: make)
        asks, silent = Transport(), [Transport() for _ in range(MOST + 3)]
        protocol: Any = guard()
        protocol.connection_made(asks)
        protocol.data_received(b"GET /healthz")
        for transport in silent:
            second: Any = guard()
            second.connection_made(transport)
        protocol.data_received(b" HTTP/1.1")
        assert [transport.aborted for transport in silent].index(False) == 3
        assert not asks.aborted
        assert [inner.received for inner in made] == [b"GET /healthz HTTP/1.1"]

    asyncio.run(crowd())


def test_one_host_ends_neither_answers_in_progress_nor_connections_of_other_hosts() -> None:
    async def crowd() -> None:
        guard = Guard(lambda: Inner)
        request = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"

        async def connect(host: str, data: bytes) -> Transport:
            transport = Transport()
            transport.host = host
            protocol: Any = guard()
            transport.protocol = protocol
            protocol.connection_made(transport)
            protocol.data_received(data)
            while transport.paused and not transport.aborted:  # noqa: ASYNC110 - the guard resumes
                await asyncio.sleep(0)
            return transport

        scraper = await connect("10.0.0.1", request)
        beginner = await connect("10.0.0.1", request[:9])
        early = await connect("10.0.0.2", request)
        partial = [await connect("10.0.0.2", b"G") for _ in range(2 * MOST)]
        assert [peer.aborted for peer in partial].count(False) == MOST - 1
        whole = [await connect("10.0.0.2", request) for _ in range(2 * MOST)]
        assert [peer.aborted for peer in whole].index(True) == MOST - 2
        assert not any(peer.aborted for peer in (scraper, beginner, early))
        await guard.answered(cast("Any", SimpleNamespace(transport=scraper)), web.Response())
        assert not scraper.aborted

    asyncio.run(crowd())


def test_peers_that_read_no_answers_take_32_mib_in_all_and_the_latest_is_served() -> None:
    page = b"x" * 2**22
    transports: list[asyncio.Transport] = []

    async def answer(request: web.Request) -> web.Response:
        assert isinstance(request.transport, asyncio.Transport)
        transports.append(request.transport)
        return web.Response(body=page)

    async def crowd() -> None:
        guard = Guard(lambda: runner.server)
        app = web.Application(middlewares=[guard.pace])
        app.on_response_prepare.append(guard.answered)
        app.add_routes([web.get("/", answer)])
        runner = web.AppRunner(app)
        await runner.setup()
        loop = asyncio.get_running_loop()
        listening = await loop.create_server(guard, "127.0.0.1", 0)
        peers = []
        for number in range(12):
            peer = socket.socket()
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**14)
            peer.setblocking(False)
            peers.append(peer)
            await loop.sock_connect(peer, listening.sockets[0].getsockname())
            await loop.sock_sendall(peer, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            while len(transports) == number or not (  # noqa: ASYNC110 - the server fills the list
                transports[-1].is_closing() or transports[-1].get_write_buffer_size()
            ):
                await asyncio.sleep(0)
            await asyncio.sleep(0)
        kept = [transport for transport in transports if not transport.is_closing()]
        assert kept == transports[-len(kept) :]
        assert 5 <= len(kept) == len(transports) - guard.closed
        assert sum(transport.get_write_buffer_size() for transport in kept) <= MOST_UNREAD
        received = 0
        while received < len(page):
            received += len(await loop.sock_recv(peers[-1], 2**20))
        for peer in peers:
            peer.close()
        listening.close()
        await runner.cleanup()

    asyncio.run(crowd())


def test_a_few_requests_begin_in_each_turn_of_the_loop_in_order_of_arrival() -> None:
    begun: list[list[int]] = [[]]

    async def crowd() -> None:
        guard = Guard(lambda: None)

        async def ask(number: int) -> None:
            async def handle(_: web.Request) -> web.StreamResponse:
                begun[-1].append(number)
                return web.Response()

            request: Any = SimpleNamespace(transport=None)
            await guard.pace(request, handle)

        asking = [asyncio.create_task(ask(number)) for number in range(3 * EACH_TURN)]
        asking[-1].cancel()  # its connection has ended
        while not all(task.done() for task in asking):
            await asyncio.sleep(0)
            begun.append([])

    asyncio.run(crowd())
    assert max(map(len, begun)) == EACH_TURN
    assert [number for turn in begun for number in turn] == list(range(3 * EACH_TURN - 1))


def test_a_few_pieces_of_data_are_parsed_in_each_turn_of_the_loop() -> None:
    made: list[Inner] = []

    def make() -> Inner:
        made.append(Inner())
        return made[-1]

    async def crowd() -> None:
        guard = Guard(lambda: make)
        transports = [Transport() for _ in range(20)]
        for transport in transports:
            protocol: Any = guard()
            protocol.connection_made(transport)
            protocol.data_received(bytes(3 * PIECE))
        newcomer: Any = guard()
        newcomer.connection_made(Transport())
        newcomer.data_received(b"GET")
        parsed = [sum(len(inner.received) for inner in made)]
        while not made[-1].received or any(transport.paused for transport in transports):
            await asyncio.sleep(0)
            parsed.append(sum(len(inner.received) for inner in made))
        steps = [after - before for before, after in pairwise([0, *parsed])]
        assert max(steps) <= EACH_TURN * PIECE
        assert [len(inner.received) for inner in made] == [3 * PIECE] * 20 + [3]

    asyncio.run(crowd())


def test_a_third_request_waits_in_the_connection_for_the_answer_to_the_first() -> None:
    request = b"GET / HTTP/1.1\r\nX: " + bytes(PIECE - 23) + b"\r\n\r\n"
    made = Inner()

    async def crowd() -> None:
        guard = Guard(lambda: lambda: made)
        transport = Transport()
        protocol: Any = guard()
        transport.protocol = protocol
        protocol.connection_made(transport)
        protocol.data_received(4 * request)
        for parsed in (2, 3, 4):
            for _ in range(10):
                await asyncio.sleep(0)
            assert len(made.received) == parsed * len(request)
            assert transport.paused
            await guard.answered(cast("Any", SimpleNamespace(transport=transport)), web.Response())
        await guard.answered(cast("Any", SimpleNamespace(transport=transport)), web.Response())
        assert not transport.paused

    asyncio.run(crowd())


@pytest.mark.parametrize(
    ("data", "ends"),
    [
        pytest.param(4 * b"\r\n", False, id="empty lines"),
        pytest.param(4 * b"GET / HTTP/1.1\r\nUpgrade: h2c\r\n\r\n", True, id="upgrade"),
        pytest.param(b"GET / HTTP/1.1\r\nUpgrade: h2c\r\n\r\n", False, id="one upgrade"),
    ],
)
def test_no_connection_waits_for_answers_that_aiohttp_does_not_give(
    data: bytes,
    ends: bool,  # noqa: FBT001 - a case of the table
) -> None:
    async def crowd() -> None:
        guard = Guard(lambda: Inner)
        transport = Transport()
        transport.protocol = protocol = cast("Any", guard())
        protocol.connection_made(transport)
        protocol.data_received(data)
        assert transport.aborted == ends
        assert transport.aborted or not transport.paused

    asyncio.run(crowd())


def test_a_request_with_long_headers_ends_its_connection() -> None:
    async def crowd() -> None:
        guard = Guard(lambda: Inner)
        transport = Transport()
        protocol: Any = guard()
        protocol.connection_made(transport)
        protocol.data_received(b"GET / HTTP/1.1\r\nX: " + bytes(MOST_HEADERS))
        for _ in range(30):
            await asyncio.sleep(0)
        assert transport.aborted

    asyncio.run(crowd())


def test_data_that_waits_for_its_turn_is_limited_for_each_connection() -> None:
    async def crowd() -> None:
        guard = Guard(lambda: Inner)
        transport = Transport()
        protocol: Any = guard()
        protocol.connection_made(transport)
        protocol.data_received(bytes(MOST_UNPARSED + (EACH_TURN + 1) * PIECE))
        assert transport.aborted
        assert guard.closed == 1

    asyncio.run(crowd())


def test_a_newcomer_does_not_wait_for_all_requests_of_those_who_send_many() -> None:
    begun: list[int] = []

    async def crowd() -> None:
        guard = Guard(lambda: None)
        busy = Transport()
        guard.admit(busy)
        guard.heard(busy)
        await guard.answered(cast("Any", SimpleNamespace(transport=busy)), web.Response())

        async def ask(number: int, transport: Transport) -> None:
            async def handle(_: web.Request) -> web.StreamResponse:
                begun.append(number)
                return web.Response()

            await guard.pace(cast("Any", SimpleNamespace(transport=transport)), handle)

        many = [asyncio.create_task(ask(number, busy)) for number in range(100)]
        newcomer = asyncio.create_task(ask(100, Transport()))
        await asyncio.gather(*many, newcomer)
        guard.forget(busy)

    asyncio.run(crowd())
    assert begun.index(100) <= 2 * EACH_TURN
