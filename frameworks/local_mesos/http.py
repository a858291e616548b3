"""HTTP server of the embedded master: the v1 scheduler API, and endpoints for people and tools.

The status codes and their conditions are those of `src/master/http.cpp` in Mesos 1.8. The status
503 is never needed, because this master has no stored state to recover before it can answer.
"""

import asyncio
import math
import uuid
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import parse_qsl

from aiohttp import web

from allocator.contract import mesos_pb2 as mesos
from frameworks.local_mesos import reports, wire
from frameworks.local_mesos import scheduler_pb2 as v1
from frameworks.local_mesos.link import AllocatorLink
from frameworks.local_mesos.master import Master
from frameworks.local_mesos.validation import Refused

STREAM_ID = "Mesos-Stream-Id"
MAX_BACKLOG_BYTES = 16 * 2**20
"""Maximum number of bytes queued for a scheduler.

A scheduler that reads too slowly is disconnected.
"""
REJECTED_STREAM_PAUSE_S = 1.0
"""Minimum real time in seconds between two answers that reject a subscription."""
_LARGEST_BODY = 64 * 2**20
_WITHOUT_PART = {v1.Call.UNKNOWN, v1.Call.TEARDOWN, v1.Call.REVIVE, v1.Call.SUPPRESS}
"""Call types that consist of the type alone. All other types need a message field."""


class Stream:
    """Event stream to a subscribed scheduler: queues events until its HTTP handler writes them.

    Args:
        content_type: Encoding of the events, JSON or protobuf.
    """

    def __init__(self, content_type: str) -> None:
        self.stream_id = str(uuid.uuid4())
        self.content_type = content_type
        self._queue: list[bytes] = []
        self.backlog = 0
        """Number of bytes that are queued or being written."""
        self._wake = asyncio.Event()
        self._closed = False
        self._drop: Callable[[], object] | None = None

    def send(self, event: v1.Event) -> None:
        """Queue an event for the scheduler.

        If more than `MAX_BACKLOG_BYTES` are unsent, drop the queue and break the connection
        instead.
        """
        if self._closed:
            return
        record = wire.record(wire.encode(event, self.content_type))
        self.backlog += len(record)
        if self.backlog > MAX_BACKLOG_BYTES:
            self._queue, self.backlog = [], 0
            self.close()
            if self._drop is not None:
                self._drop()
            return
        self._queue.append(record)
        self._wake.set()

    def dropped_by(self, drop: Callable[[], object]) -> None:
        """Set the function that `send` calls to break the connection of a slow scheduler.

        The function must work even while a write is blocked.
        """
        self._drop = drop

    def close(self) -> None:
        """End the stream after all events queued so far have been written."""
        self._closed = True
        self._wake.set()

    async def write_to(self, response: web.StreamResponse) -> None:
        """Write events to an HTTP response until the stream is closed.

        Queued events are written together.
        """
        while not self._closed or self._queue:
            await self._wake.wait()
            self._wake.clear()
            queued, self._queue = b"".join(self._queue), []
            if queued:
                await response.write(queued)
                self.backlog -= len(queued)


def application(master: Master, link: AllocatorLink) -> web.Application:
    """Return the web application that serves a master.

    Args:
        master: The embedded master.
        link: The master's connection to the allocator, for metrics.
    """
    schedulers = _Schedulers(master)
    answers: dict[str, Callable[[], Any]] = {
        "/version": reports.version,
        "/state": lambda: reports.state(master),
        "/state-summary": lambda: reports.state_summary(master),
        "/slaves": lambda: {"slaves": reports.agents(master), "recovered_slaves": []},
        "/metrics/snapshot": lambda: reports.metrics(master) | link.metrics(),
    }
    app = web.Application(client_max_size=_LARGEST_BODY, middlewares=[_explain_absence])
    for prefix in ("", "/master"):
        app.router.add_route("*", f"{prefix}/api/v1/scheduler", schedulers.answer)
        app.router.add_get(f"{prefix}/health", _health)
        for path, answer in answers.items():
            app.router.add_get(prefix + path, _json(answer))
        for path in ("/quota", "/quota/{role}"):
            app.router.add_route("*", prefix + path, _quotas(master))
        app.router.add_post(f"{prefix}/teardown", _tearing_down(master))
    app.router.add_post("/longshare/expect", _expecting(master))
    return app


class _Schedulers:
    """Handler of `/api/v1/scheduler`: subscriptions and calls of schedulers."""

    def __init__(self, master: Master) -> None:
        self._master = master
        self._rejected_at = -math.inf
        """Time of the latest answer that rejected a subscription, on the event loop's clock."""

    async def _slow_down(self) -> None:
        """Delay the answer to a rejected subscription.

        Some schedulers, such as those of pymesos, retry at once and would keep the master busy.
        """
        now = asyncio.get_running_loop().time()
        repeated = now - self._rejected_at < REJECTED_STREAM_PAUSE_S
        self._rejected_at = now
        if repeated:
            await asyncio.sleep(REJECTED_STREAM_PAUSE_S)
            self._rejected_at = asyncio.get_running_loop().time()

    async def answer(self, request: web.Request) -> web.StreamResponse:
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
        except wire.Malformed as error:
            if STREAM_ID not in request.headers:  # the call may be a subscription
                await self._slow_down()
            raise web.HTTPBadRequest(text=str(error)) from error
        problem = _problem(call)
        if problem is not None:
            if call.type == v1.Call.SUBSCRIBE:
                await self._slow_down()
            raise web.HTTPBadRequest(text=f"Failed to validate scheduler::Call: {problem}")
        if call.type == v1.Call.SUBSCRIBE:
            try:
                return await self._subscribe(request, call)
            except web.HTTPClientError:
                await self._slow_down()
                raise
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
        if call.type == v1.Call.UNKNOWN:
            raise web.HTTPNotImplemented
        self._master.call(framework, call)
        return web.Response(status=202)

    async def _subscribe(self, request: web.Request, call: v1.Call) -> web.StreamResponse:
        stream = Stream(_acceptable(request.headers.get("Accept", "*/*")))
        if STREAM_ID in request.headers:
            raise web.HTTPBadRequest(
                text=f"Subscribe calls should not include the '{STREAM_ID}' header"
            )
        response = web.StreamResponse(
            headers={"Content-Type": stream.content_type, STREAM_ID: stream.stream_id}
        )
        response.enable_chunked_encoding()
        await response.prepare(request)
        if request.transport is not None:
            stream.dropped_by(request.transport.abort)
        framework = self._master.subscribe(call, stream)
        try:
            await stream.write_to(response)
            if framework is None:
                await self._slow_down()
            await response.write_eof()
        finally:
            if framework is not None:
                self._master.disconnected(framework.id, stream)
        return response


@web.middleware
async def _explain_absence(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Say that the embedded master lacks a requested endpoint which a Mesos master may have."""
    try:
        return await handler(request)
    except web.HTTPNotFound as error:
        raise web.HTTPNotFound(
            text=f"404: 'longshare local-mesos' has no {request.path}: it knows schedulers "
            "(/api/v1/scheduler), and of operators only /quota and /teardown. Make other calls "
            "on a real Mesos master.\n"
        ) from error


async def _health(_: web.Request) -> web.Response:
    return web.Response()


def _quotas(master: Master) -> Callable[[web.Request], Any]:
    """Return the handler of `/quota`: GET, POST of a QuotaInfo, and DELETE of `/quota/ROLE`."""

    async def handler(request: web.Request) -> web.Response:
        try:
            if request.method == "POST":
                master.set_quota(wire.decode(await request.read(), wire.JSON, mesos.QuotaInfo))
            elif request.method == "DELETE":
                master.remove_quota(request.match_info.get("role", ""))
            elif request.method == "GET":
                return web.json_response({"infos": list(map(wire.to_dict, master.quotas.values()))})
            else:
                raise web.HTTPMethodNotAllowed(request.method, ["DELETE", "GET", "POST"])
        except (wire.Malformed, Refused) as error:
            raise web.HTTPBadRequest(text=f"{error}\n") from error
        return web.Response()

    return handler


def _tearing_down(master: Master) -> Callable[[web.Request], Any]:
    """Return the handler of `/teardown`, whose POST removes the framework in `frameworkId`."""

    async def handler(request: web.Request) -> web.Response:
        framework_id = dict(parse_qsl(await request.text())).get("frameworkId")
        if framework_id is None:
            raise web.HTTPBadRequest(
                text="Missing 'frameworkId' query parameter in the request body\n"
            )
        try:
            master.tear_down(framework_id)
        except Refused as error:
            raise web.HTTPBadRequest(text=f"{error}\n") from error
        return web.Response()

    return handler


def _expecting(master: Master) -> Callable[[web.Request], Any]:
    """Return the handler of `/longshare/expect`, with which an experiment announces a framework.

    If the framework has not subscribed at the announced uptime, the master's clock stops until it
    does. Mesos has no such endpoint.
    """

    async def handler(request: web.Request) -> web.Response:
        try:
            name, uptime_s = request.query["framework"], float(request.query["uptime"])
        except (KeyError, ValueError) as error:
            raise web.HTTPBadRequest(text="Expecting framework=NAME and uptime=SECONDS") from error
        if not 0.0 <= uptime_s < math.inf:
            raise web.HTTPBadRequest(text=f"Expecting an uptime in seconds, not {uptime_s}")
        master.expect(name, uptime_s)
        return web.Response(status=202)

    return handler


def _json(answer: Callable[[], Any]) -> Callable[[web.Request], Any]:
    async def handler(_: web.Request) -> web.Response:
        return web.json_response(answer())

    return handler


def _acceptable(accept: str) -> str:
    kinds = {kind.split(";")[0].strip() for kind in accept.split(",")}
    if kinds & {wire.JSON, "application/*", "*/*"}:
        return wire.JSON
    if wire.PROTOBUF in kinds:
        return wire.PROTOBUF
    raise web.HTTPNotAcceptable(
        text=f"Expecting 'Accept' to allow '{wire.PROTOBUF}' or '{wire.JSON}'"
    )


def _problem(call: v1.Call) -> str | None:
    """Return an error message if a call lacks a required field, else None.

    The rules are those of Mesos's `validation::scheduler::call`.
    """
    if not call.HasField("type"):
        return "Expecting 'type' to be present"
    part = v1.Call.Type.Name(call.type).lower()
    if call.type != v1.Call.SUBSCRIBE and not call.HasField("framework_id"):
        return "Expecting 'framework_id' to be present"
    if call.type not in _WITHOUT_PART and not call.HasField(part):  # type: ignore[arg-type]  # a field of Call
        return f"Expecting '{part}' to be present"
    if call.type == v1.Call.SUBSCRIBE and call.subscribe.framework_info.id != call.framework_id:
        return "'framework_id' differs from 'subscribe.framework_info.id'"
    if call.type == v1.Call.ACKNOWLEDGE and len(call.acknowledge.uuid) != 16:
        return f"'acknowledge.uuid' must be 16 bytes long, not {len(call.acknowledge.uuid)}"
    return None
