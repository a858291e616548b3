"""Checks an operator's right, and bounds its request, before anything is made of the call."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from typing import Any, TypeAlias, cast

import grpc
from google.protobuf.message import DecodeError
from typing_extensions import override

from allocator.contract import admin_pb2 as admin
from allocator.service.loop import garbage
from allocator.service.operators.aborting import CallRefused, abort, refuse
from allocator.service.rights import Right, Rights

LARGEST_REQUEST = 2**18
"""Bytes of a question or an order; a reset that names 10,000 users of 20 characters fits."""
MOST_CALLS = 256
"""Calls at once of those who may read, and as many of those who may order."""
READING_TIME = 5.0
"""Seconds for a request to arrive, once its call is known."""
_Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
_Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any] | None"
_SERVICE = admin.DESCRIPTOR.services_by_name["Admin"]
_ORDER = f"/{_SERVICE.full_name}/Order"


class Bounding(grpc.aio.ServerInterceptor):
    """Refuses operators' calls before their requests are read.

    gRPC reads the request of a unary call before it asks anybody. So each call is served as a
    stream of requests, of which the first is read when the peer's right and the number of calls
    have been checked. Until then HTTP/2's flow control holds the request back on the peer's side.

    Args:
        rights: The rights of peers to ask and to order.
        refused: Told of a call whose peer may not order, and why.
        shared: Whether masters, whose messages are large, come by the same port. There the
            transport lets large requests through, so they are read one at a time.
    """

    def __init__(
        self, rights: Rights, refused: Callable[[_Context, str], None], *, shared: bool
    ) -> None:
        self._rights = rights
        self._refused = refused
        self._calls = Counter[Right]()
        self._reading: dict[Right, asyncio.Lock] = (
            {right: asyncio.Lock() for right in ("readers", "operators")} if shared else {}
        )

    @override
    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[_Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> _Handler:
        """Put the checks before an operator's call."""
        handler: Any = await continuation(handler_call_details)
        method = handler_call_details.method
        if handler is None or not method.startswith(f"/{_SERVICE.full_name}/"):
            return cast("_Handler", handler)
        right: Right = "operators" if method == _ORDER else "readers"

        async def bounded(_requests: object, context: _Context) -> Any:  # noqa: ANN401
            reason = self._rights.permit(context, right)
            if reason is not None:
                if right == "operators":
                    self._refused(context, reason)
                return None
            if self._calls[right] >= MOST_CALLS:
                text = f"{MOST_CALLS} calls are being answered already; ask again later"
                refuse(context, grpc.StatusCode.RESOURCE_EXHAUSTED, text)
                return None
            self._calls[right] += 1
            try:
                request = await self._read(context, right, handler.request_deserializer)
                return await handler.unary_unary(request, context)
            except CallRefused:
                return None
            finally:
                self._calls[right] -= 1

        return grpc.stream_unary_rpc_method_handler(
            bounded, response_serializer=handler.response_serializer
        )

    async def _read(self, context: _Context, right: Right, parse: Callable[[bytes], Any]) -> Any:  # noqa: ANN401
        async with self._reading.get(right, nullcontext()):
            try:
                async with asyncio.timeout(READING_TIME):
                    data = await context.read()
            except TimeoutError:
                data = b""
                late = f"the request did not arrive within {READING_TIME:g} s"
            else:
                late = ""
        if late:
            await abort(context, grpc.StatusCode.DEADLINE_EXCEEDED, late)
        if data is grpc.aio.EOF:
            await abort(context, grpc.StatusCode.INVALID_ARGUMENT, "the call has no request")
        if len(data) > LARGEST_REQUEST:
            size = len(data)
            del data
            garbage.trim_soon()
            await abort(
                context,
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"a request of {size:,} bytes; at most {LARGEST_REQUEST:,} are accepted",
            )
        try:
            return parse(data)
        except DecodeError as error:
            await abort(context, grpc.StatusCode.INVALID_ARGUMENT, f"no request: {error}")
