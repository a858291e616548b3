"""Peers that read no replies, send no requests, or query a lot use bounded resources."""

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from typing_extensions import override

from allocator.contract import admin_pb2 as admin
from allocator.contract.admin_pb2_grpc import AdminServicer
from allocator.service.operators import request_limits
from allocator.service.operators.request_limits import PEER_UNSENT
from tests.service.operators.port import limited_port
from tests.service.served import PATIENCE

SHARES, EXPLAIN = "/longshare.v1.Admin/Shares", "/longshare.v1.Admin/Explain"
FORECAST = "/longshare.v1.Admin/Forecast"
USAGE, AUDIT = "/longshare.v1.Admin/Usage", "/longshare.v1.Admin/Audit"
LONG = PEER_UNSENT // 2 - 2**16
"""Characters of a name; the limit of a peer holds two replies with such a name, but not three."""


class Long(AdminServicer):
    """A servicer that answers with a long reply and counts the requests."""

    def __init__(self) -> None:
        self.answered = 0
        self.made = asyncio.Event()
        self.forecasts = list[object]()
        self.queries = list[str]()
        """Peers of the queries of accounts, in the order in which the queries began."""
        self.released = asyncio.Event()
        """Set to answer the queries of peer `a`."""

    @override
    async def Shares(self, request: object, context: object) -> admin.SharesReply:
        self.answered += 1
        self.made.set()
        reply = admin.SharesReply()
        reply.users.add(user="a" * LONG)
        return reply

    @override
    async def Forecast(self, request: object, context: Any) -> admin.ForecastReply:
        """Wait until a second call arrives, and then answer both with an error."""
        self.forecasts.append(asyncio.current_task())
        while len(self.forecasts) < 2:  # noqa: ASYNC110 - the other call adds to the list
            await asyncio.sleep(0.01)
        context.set_code(grpc.StatusCode.NOT_FOUND)
        return admin.ForecastReply()

    @override
    async def Usage(self, request: object, context: Any) -> admin.UsageReply:
        peer = dict(context.invocation_metadata())["peer"]
        self.queries.append(peer)
        if peer == "a":
            await self.released.wait()
        return admin.UsageReply()

    @override
    async def Audit(self, request: object, context: Any) -> admin.AuditReply:
        await self.Usage(request, context)
        return admin.AuditReply()

    @override
    async def Explain(self, request: object, context: object) -> admin.Explanation:
        return admin.Explanation()


class Client:
    """A client that calls as several peers, named in a header. Each call has a connection."""

    def __init__(self, connect: Callable[[], Awaitable[grpc.aio.Channel]], serves: Long) -> None:
        self._connect, self.serves = connect, serves

    async def silent(self, peer: str) -> Any:  # noqa: ANN401
        """Begin a call without sending a request."""
        method: Any = (await self._connect()).stream_stream(SHARES)
        return method(metadata=(("peer", peer),), timeout=PATIENCE)

    async def unread(self, peer: str) -> Any:  # noqa: ANN401
        """Begin a call that does not read the reply; return once the reply is made."""
        self.serves.made.clear()
        call = await self.silent(peer)
        await call.write(b"")
        await self.serves.made.wait()
        return call

    async def code(self, peer: str, path: str = SHARES) -> grpc.StatusCode:
        """Return the status code of a call that reads its reply."""
        method: Any = (await self._connect()).unary_unary(path)
        code: grpc.StatusCode = await method(
            b"", metadata=(("peer", peer),), timeout=PATIENCE
        ).code()
        return code


@asynccontextmanager
async def served(folder: Path, *, shared: bool) -> AsyncIterator[Client]:
    serves: Any = Long()  # type: ignore[abstract]
    address = f"unix://{folder}/s"
    options = [
        ("grpc.http2.bdp_probe", 0),
        ("grpc.max_receive_message_length", -1),
        ("grpc.use_local_subchannel_pool", 1),
    ]
    async with limited_port(address, serves, shared=shared), AsyncExitStack() as connections:

        def connect() -> Awaitable[grpc.aio.Channel]:
            return connections.enter_async_context(grpc.aio.insecure_channel(address, options))

        yield Client(connect, serves)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that runs a scenario against a service; a header names each peer."""

    def named(context: Any) -> str:  # noqa: ANN401
        return str(dict(context.invocation_metadata())["peer"])

    monkeypatch.setattr(request_limits, "peer_name", named)

    def run(scenario: Callable[[Client], Awaitable[None]], *, shared: bool = False) -> None:
        async def whole() -> None:
            async with served(tmp_path, shared=shared) as client:
                await scenario(client)

        asyncio.run(whole())

    return run


def test_unread_replies_of_a_peer_are_bounded_and_other_peers_are_answered(
    run: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_limits, "ROOM_TIME", 0.1)

    async def scenario(client: Client) -> None:
        assert await client.code("a") == grpc.StatusCode.OK
        calls = [await client.unread("a") for _ in range(2)]
        answered = client.serves.answered
        assert await client.code("a") == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert client.serves.answered == answered
        assert await client.code("b") == grpc.StatusCode.OK
        calls[0].cancel()
        monkeypatch.setattr(request_limits, "ROOM_TIME", PATIENCE)
        assert await client.code("a") == grpc.StatusCode.OK

    run(scenario)


def test_calls_of_a_method_that_has_sent_no_reply_yet_run_at_the_same_time(
    run: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_limits, "ROOM_TIME", 0.1)

    async def scenario(client: Client) -> None:
        codes = await asyncio.gather(*(client.code("a", FORECAST) for _ in range(2)))
        assert codes == [grpc.StatusCode.NOT_FOUND] * 2

    run(scenario)


def test_queries_of_accounts_are_answered_one_at_a_time_for_each_peer(
    run: Callable[..., None],
) -> None:
    async def scenario(client: Client) -> None:
        queries = client.serves.queries
        paths = (USAGE, AUDIT, USAGE)
        waiting = [asyncio.create_task(client.code("a", path)) for path in paths]
        await asyncio.sleep(0.1)
        for path in (USAGE, AUDIT):
            assert await client.code("b", path) == grpc.StatusCode.OK
        assert sorted(queries) == ["a", "b", "b"]
        client.serves.released.set()
        assert await asyncio.gather(*waiting) == [grpc.StatusCode.OK] * 3
        assert queries.count("a") == 3

    run(scenario)


def test_a_query_is_refused_if_earlier_queries_of_the_peer_take_too_long(
    run: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_limits, "QUERY_TIME", 0.1)

    async def scenario(client: Client) -> None:
        waiting = [asyncio.create_task(client.code("a", USAGE)) for _ in range(2)]
        done, [first] = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        assert [task.result() for task in done] == [grpc.StatusCode.RESOURCE_EXHAUSTED]
        client.serves.released.set()
        assert await first == grpc.StatusCode.OK
        assert await client.code("a", USAGE) == grpc.StatusCode.OK

    run(scenario)


def test_unread_replies_of_all_peers_are_bounded(
    run: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_limits, "ROOM_TIME", 0.1)
    monkeypatch.setattr(request_limits, "MOST_UNSENT", PEER_UNSENT)

    async def scenario(client: Client) -> None:
        assert await client.code("a") == grpc.StatusCode.OK
        for peer in "ab":
            await client.unread(peer)
        assert await client.code("c") == grpc.StatusCode.RESOURCE_EXHAUSTED

    run(scenario)


def test_a_call_over_the_limit_is_answered_once_a_reply_is_read(
    run: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_limits, "ROOM_TIME", PATIENCE)

    async def scenario(client: Client) -> None:
        assert await client.code("a") == grpc.StatusCode.OK
        calls = [await client.unread("a") for _ in range(2)]
        waiting = asyncio.create_task(client.code("a"))
        await asyncio.sleep(0.1)
        assert not waiting.done()
        await calls[0].read()
        assert await waiting == grpc.StatusCode.OK

    run(scenario)


def test_a_call_counts_until_its_reply_is_sent(
    run: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_limits, "MOST_CALLS", 2)

    async def scenario(client: Client) -> None:
        assert await client.code("a") == grpc.StatusCode.OK
        for peer in "ab":
            await client.unread(peer)
        assert await client.code("c", EXPLAIN) == grpc.StatusCode.RESOURCE_EXHAUSTED

    run(scenario)


def test_a_single_peer_cannot_take_all_calls(
    run: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_limits, "PEER_CALLS", 2)

    async def scenario(client: Client) -> None:
        assert await client.code("a") == grpc.StatusCode.OK
        for _ in range(2):
            await client.unread("a")
        assert await client.code("a", EXPLAIN) == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert await client.code("b", EXPLAIN) == grpc.StatusCode.OK

    run(scenario)


def test_silent_calls_of_a_peer_delay_other_peers_by_one_turn(
    run: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_limits, "READING_TIME", PATIENCE)

    async def scenario(client: Client) -> None:
        calls = [await client.silent("a") for _ in range(4)]
        assert await client.code("b") == grpc.StatusCode.OK
        assert [call.done() for call in calls].count(False) >= 2

    run(scenario, shared=True)


def test_ended_calls_are_freed_without_the_garbage_collector(run: Callable[..., None]) -> None:
    """A full collection during a call exempts the call from later collections."""

    def kept() -> list[object]:
        return [known for known in gc.get_objects() if isinstance(known, request_limits._Call)]

    async def scenario(client: Client) -> None:
        for path in (SHARES, EXPLAIN):
            assert await client.code("a", path) == grpc.StatusCode.OK
        silent = [await client.silent("a") for _ in range(2)]
        while len(kept()) < len(silent):  # noqa: ASYNC110 - the service begins the calls
            await asyncio.sleep(0.01)
        for call in silent:
            call.cancel()
        async with asyncio.timeout(PATIENCE):
            while kept():  # noqa: ASYNC110 - gRPC's tasks end
                await asyncio.sleep(0.01)

    gc.collect()
    gc.disable()
    try:
        run(scenario)
    finally:
        gc.enable()
