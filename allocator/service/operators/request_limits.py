"""Checks an operator's right, and bounds its request, before anything is made of the call."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

import grpc
from google.protobuf.message import DecodeError
from typing_extensions import override

from allocator.contract import admin_pb2 as admin
from allocator.service.loop import gc_tuning as garbage
from allocator.service.operators.grpc_errors import CallRefused, abort, refuse
from allocator.service.rights import Right, Rights, certificate

LARGEST_REQUEST = 2**18
"""Bytes of a question or an order; a reset that names 10,000 users of 20 characters fits."""
MOST_CALLS = 256
"""Calls at once of those who may read, and as many of those who may order."""
PEER_CALLS = 32
"""Calls at once of one peer with the same right."""
READING_TIME = 5.0
"""Seconds for a request to arrive, once its call is known."""
TURN = 1.0
"""Seconds of these for which one call may keep others from being read on a shared port."""
MOST_UNSENT = 128 * 2**20
"""Bytes of replies that peers with the same right have not received; gRPC keeps a copy of each."""
PEER_UNSENT = 16 * 2**20
"""Bytes of such replies of one peer; a larger reply counts as these."""
ROOM_TIME = 5.0
"""Seconds for which a call waits until earlier replies have been received."""
_Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
_Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any] | None"
_SERVICE = admin.DESCRIPTOR.services_by_name["Admin"]
_UNREAD = "earlier replies have not been received; receive them, or ask again later"
_ORDER = f"/{_SERVICE.full_name}/Order"


@dataclass(eq=False)
class _Peer:
    """The calls of one peer with one right."""

    calls: int = 0
    unsent: int = 0
    reading: asyncio.Lock = field(default_factory=asyncio.Lock)


class _Calls:
    """The calls of all peers with one right, until gRPC has sent the reply or lost the peer."""

    def __init__(self) -> None:
        self.reading = asyncio.Lock()
        self.peers: dict[str, _Peer] = {}
        self.number = self.unsent = 0
        self.room = asyncio.Event()

    def excess(self, name: str) -> str | None:
        """Return why a further call of a peer is refused; None: it is accepted."""
        if self.number >= MOST_CALLS:
            return f"{MOST_CALLS} calls are being answered already; ask again later"
        if name in self.peers and self.peers[name].calls >= PEER_CALLS:
            return f"{PEER_CALLS} calls of this peer are being answered already; ask again later"
        return None


class _Call:
    """One accepted call, and the bytes that are kept free for its reply.

    gRPC for Python cannot end a call whose reply is under way: neither an abort nor a cancelled
    task frees the reply before the peer reads it, cancels, or closes the connection. So the bytes
    count until then.
    """

    def __init__(self, calls: _Calls, name: str) -> None:
        self._calls, self._name = calls, name
        self.peer = calls.peers.setdefault(name, _Peer())
        self._kept = 0
        self.peer.calls += 1
        calls.number += 1

    def end(self, _context: object) -> None:
        """Forget the call."""
        self._keep(0)
        self._calls.number -= 1
        self.peer.calls -= 1
        if not self.peer.calls:
            del self._calls.peers[self._name]

    def try_to_keep(self, size: int) -> bool:
        """Keep room for a reply of so many bytes, if there is room."""
        size = min(size, PEER_UNSENT)
        more = size - self._kept
        fits = more <= 0 or (
            self.peer.unsent + more <= PEER_UNSENT and self._calls.unsent + more <= MOST_UNSENT
        )
        if fits:
            self._keep(size)
        return fits

    async def keep(self, size: int) -> bool:
        """Keep room for a reply of so many bytes, and wait for the room."""
        try:
            async with asyncio.timeout(ROOM_TIME):
                while not self.try_to_keep(size):
                    await self._calls.room.wait()
        except TimeoutError:
            return False
        return True

    def _keep(self, size: int) -> None:
        more = size - self._kept
        self._kept = size
        self.peer.unsent += more
        self._calls.unsent += more
        if more < 0:
            self._calls.room.set()
            self._calls.room = asyncio.Event()


class RequestLimits(grpc.aio.ServerInterceptor):
    """Refuses operators' calls before their requests are read.

    gRPC reads the request of a unary call before it asks anybody. So each call is served as a
    stream of requests, of which the first is read when the peer's right and the number of calls
    have been checked. Until then HTTP/2's flow control holds the request back on the peer's side.

    Args:
        rights: The rights of peers to ask and to order.
        refused: Told of a call whose peer may not order, and why.
        shared: Whether masters, whose messages are large, come by the same port. There the
            transport lets large requests through, so they are read one at a time,
            and peers take turns.
    """

    def __init__(
        self, rights: Rights, refused: Callable[[_Context, str], None], *, shared: bool
    ) -> None:
        self._rights = rights
        self._refused = refused
        self._shared = shared
        self._calls: dict[Right, _Calls] = {"readers": _Calls(), "operators": _Calls()}
        self._largest: dict[str, int] = {}

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
            calls, name = self._calls[right], _peer(context)
            excess = calls.excess(name)
            if excess is not None:
                refuse(context, grpc.StatusCode.RESOURCE_EXHAUSTED, excess)
                return None
            call = _Call(calls, name)
            ended: Any = call.end  # gRPC's stubs accept no plain function
            context.add_done_callback(ended)
            try:
                request = await self._read(context, calls, call.peer, handler.request_deserializer)
                # The first reply of a method counts as a peer's whole room until its size is known.
                if not await call.keep(self._largest.get(method, PEER_UNSENT)):
                    await abort(context, grpc.StatusCode.RESOURCE_EXHAUSTED, _UNREAD)
                reply = handler.response_serializer(await handler.unary_unary(request, context))
                self._largest[method] = max(self._largest.get(method, 0), len(reply))
                # An order has been carried out by now, so its peer is told in any case.
                if not call.try_to_keep(len(reply)) and right == "readers":
                    await abort(context, grpc.StatusCode.RESOURCE_EXHAUSTED, _UNREAD)
            except CallRefused:
                call.try_to_keep(0)
                return None
            return reply

        return grpc.stream_unary_rpc_method_handler(bounded)

    async def _read(
        self, context: _Context, calls: _Calls, peer: _Peer, parse: Callable[[bytes], Any]
    ) -> Any:  # noqa: ANN401
        data: Any = b""
        late = ""
        try:
            async with asyncio.timeout(READING_TIME):
                if self._shared:  # peers take turns
                    async with peer.reading, calls.reading, asyncio.timeout(TURN):
                        data = await context.read()
                else:
                    data = await context.read()
        except TimeoutError:
            late = "the request did not arrive in time"
        if late:
            garbage.trim_soon()
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


def _peer(context: _Context) -> str:
    """Return the name in a peer's certificate; without one, its address without the port."""
    shown = certificate(context)
    return context.peer().rpartition(":")[0] if shown is None else shown
