"""gRPC without a network: the same handlers, over pipes with delays and failures."""

import asyncio
import contextvars
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NoReturn, TypeAlias

import grpc
from google.protobuf.message_factory import GetMessageClass
from typing_extensions import override

from allocator.contract import admin_pb2 as admin

ROOM = 65536
"""Bytes under way in each direction before the sender has to wait, as in HTTP/2."""
CLIENT_NOTICES = 15.0
"""Seconds until a master detects that the service has vanished: keepalive time and timeout."""
SERVER_NOTICES = 30.0
"""Likewise, of the service."""

_ADMIN = admin.DESCRIPTOR.services_by_name["Admin"]
_REPLIES: dict[str, Any] = {
    f"/{_ADMIN.full_name}/{method.name}": GetMessageClass(method.output_type)
    for method in _ADMIN.methods
}

Status: TypeAlias = tuple[grpc.StatusCode, str]
Latency: TypeAlias = Callable[[], float]


class Broken(Exception):  # noqa: N818 - it is a state of the stream
    """The stream is gone."""


class Pipe:
    """A direction of a stream, which keeps messages in order."""

    def __init__(self, latency: Latency) -> None:
        self._loop = asyncio.get_running_loop()
        self._latency = latency
        self._queue: deque[tuple[float, bytes | Status | None]] = deque()
        self._bytes = 0
        self._arrival = 0.0
        self._cut = self._lost = False
        self._waiting: list[asyncio.Future[None]] = []

    async def send(self, data: bytes) -> None:
        """Send a message; waits while too much is under way."""
        while self._bytes > ROOM and not self._cut:
            await self._change()
        self._put(data)
        self._bytes += len(data)

    def end(self, how: Status | None = None) -> None:
        """Announce the end of the messages, with a status."""
        self._put(how)

    def cut(self) -> None:
        """Lose messages under way and all later messages."""
        self._cut = True
        self._queue.clear()
        self._wake()

    def swallow(self) -> None:
        """Lose messages under way and all later messages, silently."""
        self._queue.clear()
        self._lost = True

    async def receive(self) -> bytes | Status | None:
        """Return the next message, or the end.

        Raises:
            Broken: The stream was broken.
        """
        while True:
            if self._queue:
                arrival, item = self._queue[0]
                if arrival <= self._loop.time():
                    self._queue.popleft()
                    if isinstance(item, bytes):
                        self._bytes -= len(item)
                    self._wake()
                    return item
                await self._change(arrival)
            elif self._cut:
                raise Broken
            else:
                await self._change()

    def _put(self, item: bytes | Status | None) -> None:
        if self._cut:
            raise Broken
        if self._lost:
            return
        self._arrival = max(self._arrival, self._loop.time() + self._latency())
        self._queue.append((self._arrival, item))
        self._wake()

    async def _change(self, until: float | None = None) -> None:
        changed: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append(changed)
        timer = self._loop.call_at(until, _resolve, changed) if until is not None else None
        try:
            await changed
        finally:
            if timer is not None:
                timer.cancel()
            if changed in self._waiting:
                self._waiting.remove(changed)

    def _wake(self) -> None:
        for changed in self._waiting:
            _resolve(changed)


def _resolve(changed: "asyncio.Future[None]") -> None:
    if not changed.done():
        changed.set_result(None)


@dataclass
class Peer:
    """Who calls."""

    name: str
    auth: dict[str, list[bytes]] = field(default_factory=dict)
    """The contents of the peer's certificate."""


class Context:
    """A call as a handler sees the call: the part of gRPC's interface that handlers may use."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self.status: Status | None = None
        self.callbacks: list[Callable[..., object]] = []
        self.requests: AsyncIterator[Any] | None = None
        """The client's messages, once the call is served."""

    async def read(self) -> Any:  # noqa: ANN401 - gRPC's own
        """Return the next message of the client, or gRPC's mark for the end."""
        assert self.requests is not None
        return await anext(self.requests, grpc.aio.EOF)

    def peer(self) -> str:
        """Return the caller's name."""
        return self._peer.name

    def auth_context(self) -> dict[str, list[bytes]]:
        """Return the authentication data of the caller."""
        return self._peer.auth

    def peer_identities(self) -> list[bytes] | None:
        """Return the names in the caller's certificate."""
        return self._peer.auth.get("x509_subject_alternative_name")

    def invocation_metadata(self) -> tuple[()]:
        """Return the metadata of the call, always empty."""
        return ()

    def add_done_callback(self, callback: Callable[..., object]) -> None:
        """Have a callback called when the call is over."""
        self.callbacks.append(callback)

    def set_code(self, code: grpc.StatusCode) -> None:
        """Say how the call ends."""
        self.status = (code, self.status[1] if self.status is not None else "")

    def set_details(self, details: str) -> None:
        """Say why the call ends."""
        code = self.status[0] if self.status is not None else grpc.StatusCode.OK
        self.status = (code, details)

    async def abort(self, code: grpc.StatusCode, details: str = "", *_: object) -> NoReturn:
        """End the call."""
        self.status = (code, details)
        raise grpc.aio.AbortError("Locally aborted.")


class Requests(AsyncIterator[Any]):
    """A client's messages, as a handler reads them."""

    def __init__(self, pipe: Pipe, parse: Callable[[bytes], Any] | None, largest: int) -> None:
        self._pipe = pipe
        self._parse = parse
        self._largest = largest

    @override
    async def __anext__(self) -> Any:
        item = await self._pipe.receive()
        if item is None:
            raise StopAsyncIteration
        assert isinstance(item, bytes)
        if len(item) > self._largest:
            raise TooLarge(f"Received message larger than max ({len(item)} vs. {self._largest})")
        return self._parse(item) if self._parse is not None else item


class TooLarge(Exception):  # noqa: N818 - as gRPC says it
    """A message is larger than the server takes."""


class Call:
    """A stream, as its client sees the stream."""

    def __init__(self, network: "Network", peer: Peer) -> None:
        self._network = network
        self.peer = peer
        self.up, self.down = Pipe(network.latency), Pipe(network.latency)
        self.task: asyncio.Task[None] | None = None
        self.over = False

    async def write(self, data: bytes) -> None:
        """Send a message.

        Raises:
            Broken: the stream is gone.
        """
        await self.up.send(data)

    async def read(self) -> bytes | Status:
        """Return the next message, or how the stream has ended."""
        try:
            item = await self.down.receive()
        except Broken:
            return grpc.StatusCode.UNAVAILABLE, "the connection is lost"
        assert item is not None
        return item

    def reset(self) -> None:
        """Break the stream: messages under way are lost, and both ends notice."""
        self.up.cut()
        self.down.cut()
        self._end()

    def vanish(self) -> None:
        """Break the stream so that each end notices only at its next keepalive."""
        loop = asyncio.get_running_loop()
        self.up.swallow()
        self.down.swallow()
        loop.call_later(CLIENT_NOTICES, self.down.cut)
        loop.call_later(SERVER_NOTICES, self.reset)

    def _end(self) -> None:
        self.over = True
        if self.task is not None:
            self.task.cancel()


class Server:
    """The server of `grpc.aio`, as far as the service uses its interface."""

    def __init__(
        self,
        network: "Network",
        options: Sequence[tuple[str, Any]] = (),
        interceptors: Sequence[grpc.aio.ServerInterceptor] = (),
        maximum_concurrent_rpcs: int | None = None,
    ) -> None:
        self._network = network
        self._largest = dict(options).get("grpc.max_receive_message_length", 4 * 2**20)
        self._interceptors = interceptors
        self._most = maximum_concurrent_rpcs
        self._handlers: list[grpc.GenericRpcHandler] = []
        self._addresses: list[str] = []
        self.calls: dict[Call, None] = {}
        self.context = contextvars.copy_context()
        """The context of the service."""

    def add_generic_rpc_handlers(self, handlers: Iterable[grpc.GenericRpcHandler]) -> None:
        """Take handlers."""
        self._handlers.extend(handlers)

    def add_registered_method_handlers(self, _service: str, _handlers: object) -> None:
        """Ignore a second registration of the same handlers."""

    def add_insecure_port(self, address: str) -> int:
        """Register an address, on which `start` will listen."""
        self._addresses.append(address)
        return int(address.rpartition(":")[2])

    async def start(self) -> None:
        """Let clients in."""
        for address in self._addresses:
            self._network.servers[address] = self

    async def stop(self, grace: float | None) -> None:
        """Refuse new calls, and end calls under way after `grace` seconds."""
        self.unlisten()
        tasks = [call.task for call in self.calls if call.task is not None]
        if tasks and grace:
            await asyncio.wait(tasks, timeout=grace)
        for call in list(self.calls):
            if call.task is not None and not call.task.done():
                call.task.cancel()

    def unlisten(self) -> None:
        """Refuse new calls."""
        for address in self._addresses:
            if self._network.servers.get(address) is self:
                del self._network.servers[address]

    async def handler(self, method: str) -> Any:  # noqa: ANN401 - gRPC's types have no public name
        """Return the handler of a method, after all interceptors."""

        async def found(details: Any) -> Any:  # noqa: ANN401 - likewise
            handlers = (handler.service(details) for handler in self._handlers)
            return next((handler for handler in handlers if handler is not None), None)

        continuation: Any = found
        for interceptor in reversed(self._interceptors):
            continuation = partial(interceptor.intercept_service, continuation)
        return await continuation(_Details(method, ()))

    async def serve(self, method: str, call: Call) -> None:
        """Serve a stream to its end."""
        context = Context(call.peer)
        self.calls[call] = None
        try:
            how = await self._served(method, call, context)
            call.down.end(how)
        except Broken:
            pass
        except asyncio.CancelledError:
            call.down.cut()
            raise
        finally:
            self.calls.pop(call, None)
            call.over = True
            for callback in context.callbacks:
                callback(context)

    async def _served(self, method: str, call: Call, context: Context) -> Status:
        if self._most is not None and len(self.calls) > self._most:
            return grpc.StatusCode.RESOURCE_EXHAUSTED, "Concurrent RPC limit exceeded!"
        handler = await self.handler(method)
        if handler is None:
            return grpc.StatusCode.UNIMPLEMENTED, "Method not found!"
        try:
            await self._handled(method, handler, call, context)
        except grpc.aio.AbortError:
            assert context.status is not None
        except TooLarge as error:
            context.status = grpc.StatusCode.RESOURCE_EXHAUSTED, str(error)
        except Broken:
            context.status = grpc.StatusCode.CANCELLED, "the client is gone"
        except Exception as error:  # noqa: BLE001 - as gRPC does
            self._network.on_error(method, error)
            context.status = grpc.StatusCode.UNKNOWN, f"Unexpected {type(error)}: {error}"
        return context.status or (grpc.StatusCode.OK, "")

    async def _handled(self, method: str, handler: Any, call: Call, context: Context) -> None:  # noqa: ANN401
        requests = Requests(call.up, handler.request_deserializer, self._largest)
        context.requests = requests
        if handler.stream_stream is None:
            data = await handler.stream_unary(requests, context)
            if data is not None:
                self._network.on_answer(_REPLIES[method].FromString(data))
                await call.down.send(data)
            return
        answers = handler.stream_stream(requests, context)
        try:
            async for answer in answers:
                await call.down.send(handler.response_serializer(answer))
        finally:
            await answers.aclose()


@dataclass
class _Details:
    method: str
    invocation_metadata: tuple[()]


class Network:
    """A network with servers and message latencies.

    Args:
        latency: Seconds for a message in each direction.
    """

    def __init__(self, latency: Latency) -> None:
        self.latency = latency
        self.servers: dict[str, Server] = {}
        self.on_error: Callable[[str, Exception], None] = lambda _method, _error: None
        """Called with unexpected exceptions of handlers."""
        self.on_answer: Callable[[Any], None] = lambda _answer: None
        """Called with each answer to an operator, at the instant of the answer."""

    def server(self, *_: object, **options: Any) -> Server:  # noqa: ANN401 - gRPC's own
        """Stand in for `grpc.aio.server`."""
        return Server(self, **options)

    def call(self, address: str, method: str, peer: Peer) -> Call:
        """Begin a call.

        Raises:
            Broken: No server listens at the address.
        """
        server = self.servers.get(address)
        if server is None:
            raise Broken
        call = Call(self, peer)
        serving = server.serve(method, call)
        call.task = asyncio.get_running_loop().create_task(serving, context=server.context.copy())
        return call
