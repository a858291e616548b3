"""Checks operators' rights, and limits the number and size of their calls, before processing."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

import grpc
from google.protobuf.message import DecodeError
from typing_extensions import override

from allocator.contract import admin_pb2 as admin
from allocator.service.loop import gc_tuning
from allocator.service.operators.grpc_errors import CallRefused, abort, refuse
from allocator.service.rights import Right, Rights, peer_name

LARGEST_REQUEST = 2**18
"""Maximum size of a request in bytes. A command to reset 10,000 users with names of 20 characters
fits."""
LARGEST_QUESTION = 2**16
"""The same for a call that only reads."""
MOST_CALLS = 256
"""Maximum number of concurrent calls that only read, and of concurrent calls that give commands."""
PEER_CALLS = 32
"""The same for the calls of one peer."""
READING_TIME = 5.0
"""Seconds within which the request of a call must arrive."""
TURN = 1.0
"""Maximum seconds for which reading one call's request delays other calls on a shared port."""
MOST_UNSENT = 128 * 2**20
"""Maximum number of bytes in replies that peers have not received yet, for each right separately.

gRPC keeps a copy of each such reply in memory.
"""
PEER_UNSENT = 16 * 2**20
"""Maximum number of bytes in one peer's unreceived replies; a larger reply counts as this many
bytes."""
FIRST_REPLY = 2**16
"""Number of bytes reserved for a reply of a method that has sent no reply yet."""
ROOM_TIME = 5.0
"""Seconds for which a call waits until its peer, or other peers, have received earlier replies."""
QUERY_TIME = 30.0
"""Seconds for which a query of the accounts waits until earlier queries of its peer are answered.
"""
_Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
_Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any] | None"
_SERVICE = admin.DESCRIPTOR.services_by_name["Admin"]
_UNREAD = "earlier replies have not been received; receive them, or ask again later"
_QUERIED = "earlier queries of this peer are being answered; ask again later"
_ORDER = f"/{_SERVICE.full_name}/Order"
METHODS: dict[str, Right] = {
    name: "operators" if name == _ORDER else "readers"
    for name in (f"/{_SERVICE.full_name}/{method.name}" for method in _SERVICE.methods)
}
"""Method for operators → the right to call the method."""

QUERIES = frozenset(f"/{_SERVICE.full_name}/{name}" for name in ("Usage", "Audit"))
"""Methods that query the accounting database. The service answers one such call of each peer at a
time. Queries of several peers take turns, and the service builds one reply of a peer at a time."""


@dataclass(eq=False)
class _Peer:
    """Counters of one peer's calls that need one right ("readers" or "operators").

    `calls` is the number of running calls, and `unsent` the reply bytes that the peer has not
    received. `querying` is held by the call whose query of the accounts is being answered.
    """

    calls: int = 0
    unsent: int = 0
    reading: asyncio.Lock = field(default_factory=asyncio.Lock)
    querying: asyncio.Lock = field(default_factory=asyncio.Lock)


class _Calls:
    """Counters of the calls, by all peers, that need one right ("readers" or "operators").

    A call counts until gRPC has sent the reply or lost the peer.
    """

    def __init__(self) -> None:
        self.reading = asyncio.Lock()
        self.peers: dict[str, _Peer] = {}
        self.number = self.unsent = 0
        self.space_freed = asyncio.Event()

    def excess(self, name: str) -> str | None:
        """Return why a further call of a peer is refused; None if it is accepted.

        Args:
            name: The peer's certificate name or address.
        """
        if self.number >= MOST_CALLS:
            return f"{MOST_CALLS} calls are being answered already; ask again later"
        if name in self.peers and self.peers[name].calls >= PEER_CALLS:
            return f"{PEER_CALLS} calls of this peer are being answered already; ask again later"
        return None


class _Call:
    """One accepted call, and the number of bytes that are reserved for its reply.

    gRPC for Python cannot end a call while its reply is being sent. Neither an abort nor a
    cancelled task frees the reply before the peer reads it, cancels, or closes the connection. The
    bytes therefore count until then.
    """

    def __init__(self, calls: _Calls, name: str) -> None:
        self._calls, self._name = calls, name
        self.peer = calls.peers.setdefault(name, _Peer())
        self._reserved = 0
        self.peer.calls += 1
        calls.number += 1

    def end_with_task(self) -> None:
        """End the call once gRPC's present task ends: the reply is sent, or the peer is lost.

        A callback of gRPC's context would refer to the context, and the context to the callback.
        The garbage collector never frees such a cycle if it has examined the call before its end,
        because `gc_tuning` exempts objects that survive a full collection.
        """
        task = asyncio.current_task()
        assert task is not None
        task.add_done_callback(self._end)

    def _end(self, _task: object) -> None:
        """Release the call's reserved bytes, and no longer count the call."""
        self._set_reserved(0)
        self._calls.number -= 1
        self.peer.calls -= 1
        if not self.peer.calls:
            del self._calls.peers[self._name]

    def try_to_reserve(self, size: int) -> bool:
        """Reserve memory for the reply if the limits of the peer and of all peers allow it.

        A new reservation replaces the call's former reservation.

        Args:
            size: Bytes of the reply.

        Returns:
            Whether the bytes are reserved.
        """
        size = min(size, PEER_UNSENT)
        additional = size - self._reserved
        fits = additional <= 0 or (
            self.peer.unsent + additional <= PEER_UNSENT
            and self._calls.unsent + additional <= MOST_UNSENT
        )
        if fits:
            self._set_reserved(size)
        return fits

    async def reserve(self, size: int) -> bool:
        """Reserve memory for the reply, as `try_to_reserve`; wait for it up to `ROOM_TIME` seconds.

        Args:
            size: Bytes of the reply.

        Returns:
            Whether the bytes are reserved.
        """
        try:
            async with asyncio.timeout(ROOM_TIME):
                while not self.try_to_reserve(size):
                    await self._calls.space_freed.wait()
        except TimeoutError:
            return False
        return True

    def _set_reserved(self, size: int) -> None:
        additional = size - self._reserved
        self._reserved = size
        self.peer.unsent += additional
        self._calls.unsent += additional
        if additional < 0:
            self._calls.space_freed.set()
            self._calls.space_freed = asyncio.Event()


@asynccontextmanager
async def _turn(peer: _Peer, method: str, context: _Context) -> AsyncIterator[None]:
    """Run the block once earlier queries of the peer are answered, if the method is a query.

    Args:
        peer: The calling peer.
        method: The called method.
        context: The gRPC call, which ends with an error status after `QUERY_TIME` seconds.
    """
    if method not in QUERIES:
        yield
        return
    try:
        await asyncio.wait_for(peer.querying.acquire(), QUERY_TIME)
    except TimeoutError:
        await abort(context, grpc.StatusCode.RESOURCE_EXHAUSTED, _QUERIED)
    try:
        yield
    finally:
        peer.querying.release()


class RequestLimits(grpc.aio.ServerInterceptor):
    """gRPC interceptor that refuses operators' calls before their requests are read.

    gRPC reads the request of a unary call before interceptors run. Each call is therefore served as
    a stream of requests. The first request is read after the peer's right and the number of calls
    have been checked. Until then HTTP/2's flow control holds the request back on the peer's side.

    Args:
        rights: Rights of peers to read and to give commands.
        refused: Callback for a call whose peer may not give commands; receives the peer's
            address, its identity and the reason.
        shared: Whether masters use the same port. Masters' messages are large, so the transport of
            a shared port lets large requests through. Requests are then read one at a time, and
            peers take turns.
    """

    def __init__(
        self,
        rights: Rights,
        refused: Callable[[str, tuple[str, str], str], None],
        *,
        shared: bool,
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
        """Return a call's handler; an operator's call is first checked for right and limits."""
        handler: Any = await continuation(handler_call_details)
        method = handler_call_details.method
        right = METHODS.get(method)
        if handler is None or right is None:
            return cast("_Handler", handler)

        async def bounded(_requests: object, context: _Context) -> Any:  # noqa: ANN401
            reason = self._rights.permit(context, right)
            if reason is not None:
                if right == "operators":
                    self._refused(context.peer(), self._rights.identified(context), reason)
                return None
            calls, name = self._calls[right], peer_name(context)
            excess = calls.excess(name)
            if excess is not None:
                refuse(context, grpc.StatusCode.RESOURCE_EXHAUSTED, excess)
                return None
            call = _Call(calls, name)
            call.end_with_task()
            try:
                parse = handler.request_deserializer
                request = await self._read(context, right, call.peer, parse)
                async with _turn(call.peer, method, context):
                    if not await call.reserve(self._largest.get(method, FIRST_REPLY)):
                        await abort(context, grpc.StatusCode.RESOURCE_EXHAUSTED, _UNREAD)
                    reply = handler.response_serializer(await handler.unary_unary(request, context))
                    self._largest[method] = max(self._largest.get(method, 0), len(reply))
                    # An order has been carried out by now, so its peer gets the reply in any case.
                    if not call.try_to_reserve(len(reply)) and right == "readers":
                        await abort(context, grpc.StatusCode.RESOURCE_EXHAUSTED, _UNREAD)
            except CallRefused:
                call.try_to_reserve(0)
                return None
            return reply

        return grpc.stream_unary_rpc_method_handler(bounded)

    async def _read(
        self, context: _Context, right: Right, peer: _Peer, parse: Callable[[bytes], Any]
    ) -> Any:  # noqa: ANN401
        """Return the request of a call; end the call if the request is too long or too late.

        While a request is awaited, its peer could send headers of one byte instead. The event loop
        takes 1 µs for each of them. So only orders may be larger than the bytes that each
        connection may send in any case.

        Args:
            context: The gRPC call.
            right: The right that the call needs.
            peer: Counters of the peer's calls.
            parse: Parses the request.
        """
        calls = self._calls[right]
        largest = LARGEST_REQUEST if right == "operators" else LARGEST_QUESTION
        pending = LARGEST_REQUEST if right == "operators" else 0
        data: Any = b""
        late = ""
        address = context.peer()
        self._rights.observe_request(address, pending)
        try:
            async with asyncio.timeout(READING_TIME):
                if self._shared:  # peers take turns
                    async with peer.reading, calls.reading, asyncio.timeout(TURN):
                        data = await context.read()
                else:
                    data = await context.read()
        except TimeoutError:
            late = "the request did not arrive in time"
        finally:
            sent = 0 if data is grpc.aio.EOF else len(data)
            self._rights.observe_request(address, -pending, sent)
        if late:
            gc_tuning.trim_soon()
            await abort(context, grpc.StatusCode.DEADLINE_EXCEEDED, late)
        if data is grpc.aio.EOF:
            await abort(context, grpc.StatusCode.INVALID_ARGUMENT, "the call has no request")
        if len(data) > largest:
            size = len(data)
            del data
            gc_tuning.trim_soon()
            await abort(
                context,
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"a request of {size:,} bytes; at most {largest:,} are accepted",
            )
        try:
            return parse(data)
        except DecodeError as error:
            await abort(context, grpc.StatusCode.INVALID_ARGUMENT, f"no request: {error}")
