"""Unmodified pymesos understands the master's stream through our stand-in for http-parser."""

import asyncio
import json
import select
import socket
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from pymesos import MesosSchedulerDriver, Scheduler
from pymesos.process import Connection

from tests.packages.test_http_parser import chunked, pieces
from tests.service.served import PATIENCE

type_ = st.text(min_size=1, max_size=8)
EVENTS = st.lists(
    st.dictionaries(type_, type_ | st.integers() | st.lists(type_, max_size=3), max_size=3)
)
STREAM_HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nMesos-Stream-Id: 7\r\n\r\n"


class Process:
    """The part of a pymesos driver that connections call."""

    def __init__(self) -> None:
        self.events: list[object] = []
        self.stream_id: str | None = None
        self.new_master: str | None = None

    def gen_request(self) -> bytes:
        return b""

    def process_event(self, event: object) -> None:
        self.events.append(event)

    def change_master(self, new_master: str) -> None:
        self.new_master = new_master

    def on_close(self) -> None:
        pass


@contextmanager
def connected(process: Process) -> Iterator[tuple[Connection, socket.socket]]:
    """Yield a pymesos connection over the loopback, and the server's socket."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        connection = Connection(f"127.0.0.1:{listener.getsockname()[1]}", process)
        server, _ = listener.accept()
    server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with server, closing(connection):
        yield connection, server


def receive(parts: Iterable[bytes], process: Process) -> bool:
    """Let pymesos read `parts` one by one; return whether the connection stays open."""
    with connected(process) as (connection, server):
        for part in parts:
            server.sendall(part)
            assert select.select([connection], [], [], PATIENCE)[0]
            while select.select([connection], [], [], 0)[0]:
                if not connection.read():
                    return False
        return True


def record(event: object) -> bytes:
    """Frame `event` as Mesos's RecordIO does."""
    data = json.dumps(event).encode()
    return b"%d\n%b" % (len(data), data)


@given(EVENTS, st.data())
def test_every_event_arrives_once_and_in_order_however_the_stream_is_cut(
    events: list[object], data: st.DataObject
) -> None:
    stream = b"".join(map(record, events))
    sent = STREAM_HEAD + chunked(data.draw(pieces(stream)))[: -len(b"0\r\n\r\n")]
    process = Process()
    assert receive(data.draw(pieces(sent)), process)
    assert process.events == events
    assert process.stream_id == "7"


@given(st.data())
def test_the_end_of_the_stream_ends_the_connection(data: st.DataObject) -> None:
    process = Process()
    sent = STREAM_HEAD + chunked([record("last")])
    assert not receive(data.draw(pieces(sent)), process)
    assert process.events == ["last"]


@pytest.mark.parametrize("location", ["//10.0.0.2:5050", "http://10.0.0.2:5050/x", "10.0.0.2:5050"])
def test_a_redirect_names_the_new_master(location: str) -> None:
    process = Process()
    response = (
        f"HTTP/1.1 307 Temporary Redirect\r\nlocation: {location}\r\nContent-Length: 0\r\n\r\n"
    )
    assert not receive([response.encode()], process)
    assert process.new_master == "10.0.0.2:5050"


def test_an_unavailable_master_is_left_without_an_error() -> None:
    process = Process()
    response = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\n\r\nwait"
    assert not receive([response], process)
    assert process.new_master is None


def test_a_refusal_is_raised_with_its_status_and_its_reason() -> None:
    response = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 9\r\n\r\nNot you A"
    with pytest.raises(RuntimeError, match=r"HTTP 403: .*Not you A"):
        receive([response], Process())


def test_a_stream_that_is_not_chunked_is_refused() -> None:
    with pytest.raises(RuntimeError, match="not chunked"):
        receive([b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"], Process())


@pytest.mark.parametrize("junk", [b"SSH-2.0-OpenSSH\r\n", STREAM_HEAD + b"not a size\r\n"])
def test_input_other_than_http_is_refused_and_the_reason_is_logged(
    junk: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(RuntimeError, match="Failed to parse, code:1"):
        receive([junk], Process())
    assert "not one valid HTTP response" in caplog.text


class Subscriber(Scheduler):  # type: ignore[misc] # pymesos is untyped
    """Records the driver's callbacks, and prints them."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.told: asyncio.Queue[object] = asyncio.Queue()

    def _tell(self, message: object) -> None:
        self.loop.call_soon_threadsafe(self.told.put_nowait, message)

    def registered(self, _driver: object, framework_id: object, _master_info: object) -> None:
        self._tell(framework_id)

    def processHeartBeat(self, _driver: object) -> None:  # noqa: N802 - pymesos's name
        self._tell("heartbeat")


async def _serve(*routes: web.RouteDef) -> tuple[web.AppRunner, str]:
    """Serve `routes` and `/version` on the loopback; return the server and its address."""

    async def version(_request: web.Request) -> web.Response:
        return web.json_response({"version": "1.8.0"})

    app = web.Application()
    app.add_routes([web.get("/version", version), *routes])
    runner = web.AppRunner(app, shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0]
    return runner, f"{host}:{port}"


async def _subscribe_and_stop() -> list[str]:
    """Direct a scheduler to a follower of the leader; return the calls that the leader received."""
    calls: list[str] = []
    stopped = asyncio.Event()

    async def lead(request: web.Request) -> web.StreamResponse:
        call = await request.json()
        calls.append(call["type"])
        if call["type"] != "SUBSCRIBE":
            return web.Response(status=202)
        stream = web.StreamResponse(headers={"Mesos-Stream-Id": "1"})
        stream.enable_chunked_encoding()
        await stream.prepare(request)
        subscribed = {"framework_id": {"value": "f-1"}}
        await stream.write(record({"type": "SUBSCRIBED", "subscribed": subscribed}))
        while not stopped.is_set():
            for byte in record({"type": "HEARTBEAT"}):
                await stream.write(bytes([byte]))
            await asyncio.sleep(0.01)
        return stream

    async def follow(_request: web.Request) -> web.Response:
        return web.Response(status=307, headers={"Location": f"//{leader_address}"})

    leader, leader_address = await _serve(web.post("/api/v1/scheduler", lead))
    follower, follower_address = await _serve(web.post("/api/v1/scheduler", follow))
    scheduler = Subscriber()
    framework = {"user": "someone", "name": "subscriber"}
    driver = MesosSchedulerDriver(scheduler, framework, follower_address)
    await asyncio.to_thread(driver.start)
    assert await scheduler.told.get() == {"value": "f-1"}
    assert await scheduler.told.get() == "heartbeat"
    assert await scheduler.told.get() == "heartbeat"
    driver.stop()
    await asyncio.to_thread(driver.join)
    stopped.set()
    await follower.cleanup()
    await leader.cleanup()
    return calls


def test_a_scheduler_is_redirected_subscribes_and_gets_heartbeats() -> None:
    assert asyncio.run(_subscribe_and_stop()) == ["SUBSCRIBE", "TEARDOWN"]
