"""The cheapest possible service: an engine behind grpc.aio without any other component."""

import asyncio
import gc
import sys
from collections.abc import AsyncIterator

import grpc

from allocator.cluster.engine import Engine
from allocator.cluster.settings import EngineSettings
from allocator.contract import allocator_pb2 as contract
from allocator.service.config import Config
from bench.played.serving import serve

SERVICE = "longshare.v1.Allocator"


def settings() -> EngineSettings:
    """Return the settings of an engine in a service whose configuration names only SDRF.

    The defaults of `EngineSettings` are the rules of release 1.0, which take fewer steps.
    """
    return Config.model_validate({"policy": {"name": "sdrf", "half_life": "1h"}}).engine_settings()


class Bare:
    """Serves a single trusted stream: Hello, a snapshot, then events."""

    def __init__(self) -> None:
        self._engine = Engine(settings())
        self._options = contract.Options()

    async def session(
        self, requests: AsyncIterator[bytes], _: grpc.aio.ServicerContext[bytes, bytes]
    ) -> AsyncIterator[bytes]:
        """Answer each message."""
        async for data in requests:
            yield self._answer(contract.FromMaster.FromString(data)).SerializeToString()

    def _answer(self, message: contract.FromMaster) -> contract.ToMaster:
        if message.HasField("events"):
            return contract.ToMaster(decisions=self._engine.apply(message.events))
        if message.HasField("snapshot"):
            decisions = self._engine.restore(self._options, message.snapshot)
            gc.freeze()  # a service does the same with permanent objects
            return contract.ToMaster(decisions=decisions)
        self._options = message.hello.options
        return contract.ToMaster(welcome=contract.Welcome())


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], SERVICE, Bare().session))
