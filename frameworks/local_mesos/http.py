"""The embedded master's HTTP face: the v1 scheduler API and what people and tools look at.

Status codes and their occasions are those of `src/master/http.cpp` in Mesos 1.8.
"""

import asyncio
import uuid

from aiohttp import web

from frameworks.local_mesos import reports, wire
from frameworks.local_mesos import scheduler_pb2 as v1
from frameworks.local_mesos.bag import Bag
from frameworks.local_mesos.link import AllocatorLink
from frameworks.local_mesos.master import Master

STREAM_ID = "Mesos-Stream-Id"


class Stream:
    """A subscribed scheduler's stream: events queued here, written by its HTTP handler."""

    def __init__(self, content_type: str) -> None:
        self.stream_id = str(uuid.uuid4())
        self._content_type = content_type
        self._queue: list[bytes] = []
        self._wake = asyncio.Event()
        self._closed = False

    def send(self, event: v1.Event) -> None:
        """Queue an event."""
        self._queue.append(wire.record(wire.encode(event, self._content_type)))
        self._wake.set()

    def close(self) -> None:
        """End the stream after what is queued."""
        self._closed = True
        self._wake.set()

    async def write_to(self, response: web.StreamResponse) -> None:
        """Write events as they come, many at once when they come fast, until closed."""
        while not self._closed or self._queue:
            await self._wake.wait()
            self._wake.clear()
            queued, self._queue = self._queue, []
            if queued:
                await response.write(b"".join(queued))


def application(master: Master, link: AllocatorLink) -> web.Application:
    """Return the web application of a master."""
    face = _Face(master, link)
    app = web.Application(client_max_size=64 * 2**20)
    app.router.add_route("*", "/api/v1/scheduler", face.scheduler)
    for path, handler in {
        "/version": face.version,
        "/health": face.health,
        "/state": face.state,
        "/state-summary": face.state_summary,
        "/slaves": face.agents,
        "/metrics/snapshot": face.metrics,
    }.items():
        app.router.add_get(path, handler)
        app.router.add_get(f"/master{path}", handler)
    return app


class _Face:
    def __init__(self, master: Master, link: AllocatorLink) -> None:
        self._master = master
        self._link = link

    async def scheduler(self, request: web.Request) -> web.StreamResponse:
        if request.method != "POST":
            raise web.HTTPMethodNotAllowed(request.method, ["POST"])
        content_type = request.headers.get("Content-Type")
        if content_type is None:
            raise web.HTTPBadRequest(text="Expecting 'Content-Type' to be present")
        if content_type not in {wire.JSON, wire.PROTOBUF}:
            raise web.HTTPUnsupportedMediaType(
                text=f"Expecting 'Content-Type' of {wire.JSON} or {wire.PROTOBUF}"
            )
        try:
            call = wire.decode(await request.read(), content_type, v1.Call)
            _validate(call)
        except wire.Malformed as error:
            raise web.HTTPBadRequest(text=str(error)) from error
        if call.type == v1.Call.SUBSCRIBE:
            return await self._subscribe(request, call)
        return self._call(request, call)

    def _call(self, request: web.Request, call: v1.Call) -> web.Response:
        framework = self._master.frameworks.get(call.framework_id.value)
        if framework is None:
            raise web.HTTPBadRequest(text="Framework cannot be found")
        if framework.subscriber is None:
            raise web.HTTPForbidden(text="Framework is not subscribed")
        stream_id = request.headers.get(STREAM_ID)
        if stream_id is None:
            raise web.HTTPBadRequest(
                text=f"All non-subscribe calls should include the '{STREAM_ID}' header"
            )
        if stream_id != framework.subscriber.stream_id:
            raise web.HTTPBadRequest(
                text=f"The stream ID '{stream_id}' is not the one currently associated with "
                f"framework {framework.id}"
            )
        self._master.call(framework, call)
        return web.Response(status=202)

    async def _subscribe(self, request: web.Request, call: v1.Call) -> web.StreamResponse:
        if STREAM_ID in request.headers:
            raise web.HTTPBadRequest(
                text=f"Subscribe calls should not include the '{STREAM_ID}' header"
            )
        stream = Stream(_acceptable(request.headers.get("Accept", "*/*")))
        response = web.StreamResponse(
            headers={
                "Content-Type": stream._content_type,  # noqa: SLF001 - this module's
                STREAM_ID: stream.stream_id,
            }
        )
        response.enable_chunked_encoding()
        await response.prepare(request)
        framework = self._master.subscribe(call, stream)
        try:
            await stream.write_to(response)
            await response.write_eof()
        finally:
            if framework is not None:
                self._master.disconnected(framework.id, stream)
        return response

    async def version(self, _: web.Request) -> web.Response:
        return web.json_response(reports.version())

    async def health(self, _: web.Request) -> web.Response:
        return web.Response()

    async def state(self, _: web.Request) -> web.Response:
        return web.json_response(reports.state(self._master))

    async def state_summary(self, _: web.Request) -> web.Response:
        return web.json_response(reports.state_summary(self._master))

    async def agents(self, _: web.Request) -> web.Response:
        return web.json_response({"slaves": reports.agents(self._master)})

    async def metrics(self, _: web.Request) -> web.Response:
        return web.json_response(
            reports.metrics(self._master)
            | {
                "longshare/connected": int(self._link.connected),
                "longshare/resyncs_total": self._link.resyncs,
            }
        )


def _acceptable(accept: str) -> str:
    kinds = [kind.split(";")[0].strip() for kind in accept.split(",")]
    if wire.JSON in kinds or "*/*" in kinds or "application/*" in kinds:
        return wire.JSON
    if wire.PROTOBUF in kinds:
        return wire.PROTOBUF
    raise web.HTTPNotAcceptable(
        text=f"Expecting 'Accept' to allow '{wire.PROTOBUF}' or '{wire.JSON}'"
    )


def _validate(call: v1.Call) -> None:
    """Refuse what `validation::scheduler::call` does.

    Raises:
        Malformed: the call lacks its type, its framework or its own part, or a resource in it
            has a value that none can have.
    """
    problem = None
    kind = v1.Call.Type.Name(call.type).lower()
    field = v1.Call.DESCRIPTOR.fields_by_name.get(kind)
    if not call.HasField("type") or call.type == v1.Call.UNKNOWN:
        problem = "Expecting 'type' to be present"
    elif call.type != v1.Call.SUBSCRIBE and not call.HasField("framework_id"):
        problem = "Expecting 'framework_id' to be present"
    elif (
        field is not None and kind not in {"revive", "suppress"} and not call.HasField(kind)  # type: ignore[arg-type]  # a field of Call
    ):
        problem = f"Expecting '{kind}' to be present"
    else:
        try:
            for operation in call.accept.operations:
                for task in operation.launch.task_infos:
                    Bag(task.resources)
                    Bag(task.executor.resources)
        except ValueError as error:
            problem = f"a resource of a task is invalid: {error}"
    if problem is not None:
        raise wire.Malformed(f"Failed to validate scheduler::Call: {problem}")
