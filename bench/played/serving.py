"""A stream behind grpc.aio without any other component, until the process is killed."""

from collections.abc import AsyncIterator, Callable
from typing import TypeAlias

import grpc

Behaviour: TypeAlias = Callable[
    [AsyncIterator[bytes], "grpc.aio.ServicerContext[bytes, bytes]"], AsyncIterator[bytes]
]


async def serve(address: str, service: str, behaviour: Behaviour) -> None:
    """Answer each message of `/SERVICE/Session`, however large."""
    server = grpc.aio.server(options=[("grpc.max_receive_message_length", -1)])
    handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.stream_stream_rpc_method_handler(behaviour)
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(service, {"Session": handler}),)
    )
    server.add_insecure_port(address)
    await server.start()
    await server.wait_for_termination()
