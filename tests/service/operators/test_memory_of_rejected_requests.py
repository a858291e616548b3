"""Rejected requests do not make the service's memory grow."""

import asyncio
import re
import shutil
import socket
import struct
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
import pytest
from typing_extensions import override

from allocator.contract import admin_pb2 as admin
from allocator.contract.admin_pb2_grpc import (
    AdminServicer,
    AdminStub,
)
from allocator.service.operators import request_limits
from frameworks.harness.ports import free_port
from tests.service.operators.port import limited_port
from tests.service.served import PATIENCE, Service, service, wait_for
from tests.service.test_rights import protected
from tests.service.test_tls import Authority

LARGE = 64 * 2**20
"""Bytes of a request; far more than the limit."""
SLACK = 32
"""MiB by which the service may grow for other reasons."""
IN_TRANSIT = 4 * LARGE // 2**20
"""MiB for a single request while the request is received and assembled."""


def memory(running: Service, figure: str) -> int:
    """Return a memory figure of the kernel in MiB: VmRSS (now) or VmHWM (highest so far)."""
    status = Path(f"/proc/{running.process.pid}/status").read_text(encoding="ascii")
    match = re.search(rf"{figure}:\s+(\d+) kB", status)
    assert match is not None
    return int(match[1]) // 1024


@contextmanager
def connected(address: str, credentials: grpc.ChannelCredentials | None) -> Iterator[grpc.Channel]:
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_send_message_length", -1)]
    if credentials is None:
        channel = grpc.insecure_channel(address, options)
    else:
        channel = grpc.secure_channel(address, credentials, options)
    with closing(channel):
        yield channel


def ordered(channel: grpc.Channel, size: int = LARGE) -> grpc.StatusCode:
    call: Callable[..., bytes] = channel.unary_unary("/longshare.v1.Admin/Order")
    with pytest.raises(grpc.RpcError) as refused:
        call(bytes(size), timeout=PATIENCE)
    code: grpc.StatusCode = refused.value.code()
    return code


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("openssl") is None, reason="certificates are made with openssl")
def test_large_requests_of_a_peer_without_rights_are_not_received(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca").found()
    credentials = authority.issue("nobody").credentials()
    with protected(tmp_path, authority, "") as running:
        with connected(running.address, credentials) as channel:
            ordered(channel, 1)  # the first handshake loads the TLS libraries
        before = memory(running, "VmRSS")

        def order(_: int) -> grpc.StatusCode:
            with connected(running.address, credentials) as channel:
                return ordered(channel)

        with ThreadPoolExecutor(4) as threads:
            codes = set(threads.map(order, range(12)))
        assert codes == {grpc.StatusCode.PERMISSION_DENIED}
        assert memory(running, "VmHWM") < before + SLACK


@pytest.mark.slow
def test_large_requests_on_the_operators_port_are_not_received(tmp_path: Path) -> None:
    address = f"unix://{tmp_path}/operators.sock"
    with service(tmp_path, f'[listen]\noperators = "{address}"\n') as running:
        before = memory(running, "VmRSS")
        with connected(address, None) as channel:
            codes = {ordered(channel) for _ in range(4)}
        assert codes == {grpc.StatusCode.RESOURCE_EXHAUSTED}
        assert memory(running, "VmHWM") < before + SLACK


@pytest.mark.slow
def test_large_requests_on_the_masters_port_are_received_one_by_one_and_freed(
    tmp_path: Path,
) -> None:
    with service(tmp_path) as running:
        before = memory(running, "VmRSS")

        def order(_: int) -> grpc.StatusCode:
            with connected(running.address, None) as channel:
                return ordered(channel)

        with ThreadPoolExecutor(3) as threads:
            codes = set(threads.map(order, range(17)))
        assert codes == {grpc.StatusCode.RESOURCE_EXHAUSTED}
        assert memory(running, "VmHWM") < before + IN_TRANSIT + SLACK
        wait_for(lambda: memory(running, "VmRSS") < before + SLACK)


@pytest.mark.slow
def test_refused_streams_leave_nothing_in_memory(tmp_path: Path) -> None:
    with service(tmp_path) as running:
        before = memory(running, "VmRSS")
        for _ in range(8):
            with connected(running.address, None) as channel:
                session: Any = channel.stream_stream("/longshare.v1.Allocator/Session")
                with pytest.raises(grpc.RpcError) as refused:
                    next(session(iter([b"\xff" * LARGE]), timeout=PATIENCE))
                assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert memory(running, "VmHWM") < before + 2 * IN_TRANSIT + SLACK


def frame(kind: int, stream: int, payload: bytes = b"") -> bytes:
    """Return an HTTP/2 frame without flags."""
    return (
        struct.pack(">I", len(payload))[1:] + bytes([kind, 0]) + struct.pack(">I", stream) + payload
    )


@pytest.mark.slow
def test_endless_headers_do_not_stay_in_memory(tmp_path: Path) -> None:
    path = bytes([0x83, 0x86, 0x04, 4]) + b"/x/y"
    tiny = frame(9, 1, b"\0\1a\1b" * 3200)
    begin = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0) + frame(1, 1, path)
    port = free_port()
    with service(tmp_path, listen=f"127.0.0.1:{port}") as running, ExitStack() as stack:
        before = memory(running, "VmRSS")
        peers = [
            stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=PATIENCE))
            for _ in range(32)
        ]
        for peer in peers:
            with suppress(ConnectionError):  # the service closes the connection
                peer.sendall(begin + 60 * tiny)
        for peer in peers:
            with suppress(ConnectionError):
                while peer.recv(2**16):
                    pass
        assert memory(running, "VmHWM") < before + 12 * SLACK


def test_a_call_without_a_request_is_refused(tmp_path: Path) -> None:
    with service(tmp_path) as running, connected(running.address, None) as channel:
        call: Callable[..., bytes] = channel.stream_unary("/longshare.v1.Admin/Shares")
        with pytest.raises(grpc.RpcError) as refused:
            call(iter([]), timeout=PATIENCE)
        assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert AdminStub(channel).Shares(admin.SharesRequest(), timeout=PATIENCE)


class Asked(AdminServicer):
    """A servicer that counts requests, and answers once its event is set."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()
        self.requests = 0

    @override
    async def Shares(self, request: object, context: object) -> admin.SharesReply:
        self.requests += 1
        await self.go_on.wait()
        return admin.SharesReply()


@pytest.mark.parametrize("shared", [False, True])
def test_a_call_whose_request_does_not_arrive_times_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, shared: bool
) -> None:
    limit, brief, timeout = PATIENCE, [0.05, 0.05], asyncio.timeout

    def briefly(seconds: float) -> asyncio.Timeout:
        """Apply the limit briefly to the two silent calls; a slow machine may delay the third."""
        return timeout(brief.pop() if seconds == limit and brief else seconds)

    async def await_silent_calls() -> None:
        while brief:  # noqa: ASYNC110 - gRPC signals nothing
            await asyncio.sleep(0.01)

    monkeypatch.setattr(asyncio, "timeout", briefly)
    monkeypatch.setattr(request_limits, "READING_TIME", 2 * PATIENCE if shared else limit)
    monkeypatch.setattr(request_limits, "TURN", limit)
    assert asyncio.run(crowded(tmp_path, await_silent_calls, shared=shared)) == [
        *[grpc.StatusCode.DEADLINE_EXCEEDED] * 2,
        grpc.StatusCode.OK,
    ]


def test_calls_beyond_the_limit_are_refused_before_their_requests_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_limits, "MOST_CALLS", 2)
    assert asyncio.run(crowded(tmp_path, shared=True)) == [
        *[grpc.StatusCode.OK] * 2,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
    ]


async def crowded(
    folder: Path, silent: Callable[[], Awaitable[None]] | None = None, *, shared: bool
) -> list[grpc.StatusCode]:
    """Return the status codes of three connections' calls; the first two wait, or send nothing.

    Args:
        folder: Folder of the socket.
        silent: Coroutine function that waits until the service reads from two silent calls; None
            if the first two calls send their requests.
        shared: Whether masters use the port, too.
    """
    serves: Any = Asked()  # type: ignore[abstract]
    address = f"unix://{folder}/s"
    path = "/longshare.v1.Admin/Shares"
    async with limited_port(address, serves, shared=shared), AsyncExitStack() as connections:
        channels = [
            await connections.enter_async_context(
                grpc.aio.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1)])
            )
            for _ in range(3)
        ]
        calls: list[Any] = [channel.stream_unary(path)() for channel in channels[:2]]
        ask: Any = channels[2].unary_unary(path)
        if silent is not None:
            await asyncio.wait_for(silent(), PATIENCE)
            serves.go_on.set()
            return [await call.code() for call in (*calls, ask(b""))]
        for call in calls:
            await call.write(b"")
            await call.done_writing()
        while serves.requests < 2:  # noqa: ASYNC110 - the servicer counts
            await asyncio.sleep(0.01)
        last = await ask(b"").code()
        serves.go_on.set()
        return [*[await call.code() for call in calls], last]
