"""The limit of the wire: grpc.aio, answering each message of a stream with as many bytes."""

import asyncio
import sys
from collections.abc import AsyncIterator

import grpc

from bench.played.serving import serve

SERVICE = "bench.Echo"


async def _echo(
    requests: AsyncIterator[bytes], _: grpc.aio.ServicerContext[bytes, bytes]
) -> AsyncIterator[bytes]:
    async for message in requests:
        yield message


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], SERVICE, _echo))
