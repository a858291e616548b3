"""The end of a master's stream is observed once, however the stream ends; its bytes are counted."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest

from allocator.contract import allocator_pb2 as contract
from allocator.contract.allocator_pb2_grpc import AllocatorStub
from allocator.service import listening
from allocator.service.config import ListenSection
from allocator.service.stream_traffic import MESSAGE_BYTES, StreamTraffic
from tests.service.masters.site import Site, snapshot
from tests.service.served import PATIENCE, hello
from tests.service.test_listening import burst

ROUNDS = 20
METHOD = b"/longshare.v1.Allocator/Session"


class Streams:
    """A service for masters, and the numbers of its streams that have begun and ended, by peer."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.site.sessions._rights.observe_stream = self._begin
        self.begun, self.ended = Counter[str](), Counter[str]()
        self.traffic = list[StreamTraffic]()
        self.port = 0

    def listening(self) -> AbstractAsyncContextManager[int]:
        """Serve masters on a port while the block runs."""
        handlers = self.site.sessions.handlers()
        add: list[listening.Handlers] = [
            lambda server: server.add_generic_rpc_handlers((handlers,))
        ]
        return listening._port(ListenSection(), "address", "127.0.0.1:0", add)

    def connect(self) -> grpc.aio.Channel:
        """Return a channel with a connection of its own."""
        own = [("grpc.use_local_subchannel_pool", 1)]
        return grpc.aio.insecure_channel(f"127.0.0.1:{self.port}", own)

    def _begin(self, peer: str, _master: str, traffic: StreamTraffic) -> Callable[[], None]:
        self.traffic.append(traffic)
        self.begun[peer] += 1
        return partial(self._end, peer)

    def _end(self, peer: str) -> None:
        self.ended[peer] += 1

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not holds():  # noqa: ASYNC110 - gRPC signals nothing
                await asyncio.sleep(0.001)

    async def call(self, channel: grpc.aio.Channel, version: int | None = None) -> Any:  # noqa: ANN401
        """Begin a stream; wait for Welcome if the version is None."""
        stream = stream_of(channel)
        await stream.write(hello() if version is None else hello(version))
        if version is None:
            assert (await stream.read()).WhichOneof("message") == "welcome"
        return stream


def stream_of(channel: grpc.aio.Channel) -> Any:  # noqa: ANN401
    """Begin a stream without a message."""
    return AllocatorStub(channel).Session(timeout=PATIENCE)


async def close(streams: Streams, channel: grpc.aio.Channel) -> None:
    stream = await streams.call(channel)
    await stream.done_writing()
    assert await stream.code() == grpc.StatusCode.OK


async def be_refused(streams: Streams, channel: grpc.aio.Channel) -> None:
    stream = await streams.call(channel, 10**6)
    assert await stream.code() == grpc.StatusCode.FAILED_PRECONDITION


async def cancel(streams: Streams, channel: grpc.aio.Channel) -> None:
    (await streams.call(channel)).cancel()


async def cancel_early(streams: Streams, channel: grpc.aio.Channel) -> None:
    stream = stream_of(channel)
    await streams.until(lambda: streams.begun != streams.ended)
    stream.cancel()


async def be_ended(streams: Streams, channel: grpc.aio.Channel) -> None:
    stream = await streams.call(channel)
    streams.site.sessions.end("superseded")
    assert await stream.code() == grpc.StatusCode.ABORTED


async def lose_connection(streams: Streams, _channel: grpc.aio.Channel) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", streams.port)
    writer.write(burst(1, METHOD))
    await streams.until(lambda: streams.begun != streams.ended)
    writer.transport.abort()


WAYS = (close, be_refused, cancel, cancel_early, be_ended, lose_connection)


@pytest.fixture
def streams(tmp_path: Path) -> Iterator[Streams]:
    site = Site(tmp_path / "log")
    yield Streams(site)
    site.event_log.close()


@pytest.mark.parametrize("way", WAYS)
def test_the_end_of_each_stream_is_observed_once(
    streams: Streams, way: Callable[[Streams, grpc.aio.Channel], Awaitable[None]]
) -> None:
    async def scenario() -> None:
        async with streams.listening() as streams.port:
            for number in range(1, ROUNDS + 1):
                async with streams.connect() as channel:
                    await way(streams, channel)
                await streams.until(lambda n=number: streams.ended.total() == n)  # type: ignore[misc]

    asyncio.run(scenario())
    assert streams.ended == streams.begun


def test_the_bytes_of_each_streams_messages_are_counted_and_whether_its_master_leads(
    streams: Streams,
) -> None:
    async def scenario() -> list[bool]:
        async with (
            streams.listening() as streams.port,
            streams.connect() as first,
            streams.connect() as second,
        ):
            await streams.call(first)
            stream = await streams.call(second)
            before = streams.traffic[1].sent
            await stream.write(master_snapshot)
            answer = await stream.read()
            leads = [traffic.leads for traffic in streams.traffic]
            size = answer.ByteSize()
            assert streams.traffic[1].sent - before == size + (size >> 5) + MESSAGE_BYTES
            await stream.done_writing()
            assert await stream.code() == grpc.StatusCode.OK
        return leads

    master_snapshot = contract.FromMaster(snapshot=snapshot(1))
    assert asyncio.run(scenario()) == [False, True]
    sizes = [hello().ByteSize(), master_snapshot.ByteSize()]
    received = [size + (size >> 5) + MESSAGE_BYTES for size in sizes]
    assert [traffic.received for traffic in streams.traffic] == [received[0], sum(received)]
    assert not any(traffic.leads for traffic in streams.traffic)


def test_a_stopping_service_observes_the_end_of_all_open_streams(
    streams: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "GRACE", 0.01)

    async def scenario() -> None:
        for _ in range(ROUNDS // 4):
            async with AsyncExitStack() as stack, streams.listening() as streams.port:
                channels = [streams.connect() for _ in range(4)]
                for channel in channels:
                    stack.push_async_callback(channel.close)
                opened = [await streams.call(channel) for channel in channels[:2]]
                opened += [await streams.call(channels[2], 10**6), stream_of(channels[3])]
                await streams.until(lambda: streams.begun.total() % 4 == 0)
            await streams.until(lambda: streams.ended == streams.begun)

    asyncio.run(scenario())
    assert streams.ended.total() == ROUNDS // 4 * 4
