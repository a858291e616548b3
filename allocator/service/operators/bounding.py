"""Bounds what an operator's call may say before anything is made of it."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias, cast

import grpc
from google.protobuf.message import DecodeError
from typing_extensions import override

from allocator.contract import admin_pb2 as admin
from allocator.service.operators.aborting import abort

LARGEST_REQUEST = 2**18
"""Bytes of a question or an order; a reset that names 10,000 users of 20 characters fits."""
_Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any] | None"
_SERVICE = admin.DESCRIPTOR.services_by_name["Admin"]


class Bounding(grpc.aio.ServerInterceptor):
    """Refuses operators' requests that are larger, on a port where masters may send far more."""

    @override
    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[_Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> _Handler:
        """Put the bound before an operator's call."""
        handler: Any = await continuation(handler_call_details)
        if handler is None or not handler_call_details.method.startswith(f"/{_SERVICE.full_name}/"):
            return cast("_Handler", handler)

        async def bounded(data: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> Any:  # noqa: ANN401
            if len(data) > LARGEST_REQUEST:
                await abort(
                    context,
                    grpc.StatusCode.RESOURCE_EXHAUSTED,
                    f"a request of {len(data):,} bytes; at most {LARGEST_REQUEST:,} are read",
                )
            try:
                request = handler.request_deserializer(data)
            except DecodeError as error:
                await abort(context, grpc.StatusCode.INVALID_ARGUMENT, f"no request: {error}")
            return await handler.unary_unary(request, context)

        return grpc.unary_unary_rpc_method_handler(
            bounded, response_serializer=handler.response_serializer
        )
