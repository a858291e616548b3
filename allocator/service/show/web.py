"""The service's HTTP server: metrics for Prometheus, health checks, and the status page."""

import asyncio
import errno
import ipaddress
import math
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from importlib.resources import files

import structlog
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from allocator.formatting import bind_error
from allocator.palette import style
from allocator.service.accounting.accountant import Accountant
from allocator.service.config import ConfigError, MetricsSection
from allocator.service.loop.cooperative import SharedComputation, Work, run_in_slices, run_in_thread
from allocator.service.loop.engine_lock import EngineLock
from allocator.service.show.curves import Curves, encoding
from allocator.service.show.guard import BACKLOG, EACH_TURN, Guard
from allocator.service.show.label_limiter import LabelLimiter
from allocator.service.show.metric_definitions import register
from allocator.service.show.metrics import HTTP
from allocator.service.show.status import Status
from allocator.service.show.user_metrics import exposition
from allocator.users.adapter import SchedulerAdapter

_PAGE = {
    "/": ("index.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    **{f"/{name}.js": (f"{name}.js", "text/javascript") for name in ("common", "users", "page")},
}
_PROTECTION = {
    # Only this page's own files and answers may load; no frame may contain the page.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
LISTEN_EVERY = 5.0
"""Seconds between two attempts to listen while another program has the port."""

_log = structlog.get_logger(__name__)


@asynccontextmanager
async def serving(  # noqa: PLR0913, PLR0917 - every source of the pages
    section: MetricsSection,
    adapter: SchedulerAdapter,
    registry: CollectorRegistry,
    status: Status,
    curves: Curves,
    engine_lock: EngineLock,
    accountant: Accountant | None = None,
) -> AsyncIterator[None]:
    """Serve metrics, health checks and the status page over HTTP while the block runs.

    Args:
        section: The settings `[metrics]`.
        adapter: The adapter to read.
        registry: Metrics that are not about single users.
        status: Data of the status page.
        curves: Data of the page's charts.
        engine_lock: Lock acquired before the engine is read.
        accountant: Source of the users' usage; None without accounting.

    Raises:
        ConfigError: the address cannot be used.
    """
    guard = Guard(lambda: runner.server)
    register(registry, (HTTP, guard))
    app = web.Application(middlewares=[guard.pace, _require_known_host(section)])
    app.add_routes(
        [
            web.get(
                "/metrics",
                _scrape(adapter, registry, engine_lock, status, accountant, section.users),
            ),
            web.get("/healthz", _health(status)),
            web.get("/api/status", _status(status, engine_lock)),
            web.get("/api/explain", _explain(status, engine_lock)),
            web.get("/api/past", _past(curves)),
            *(web.get(path, _file(name, kind)) for path, (name, kind) in _PAGE.items()),
        ]
    )
    app.on_response_prepare.append(_protect)
    app.on_response_prepare.append(guard.answered)
    # A closed connection ends its request, so the limit of connections limits requests.
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True)
    await runner.setup()
    server = _Listener(section, guard)
    try:
        await server.begin()
    except ConfigError:
        await runner.cleanup()
        raise
    try:
        yield
    finally:
        server.close()
        await runner.cleanup()


class _Listener:
    """Listens for HTTP connections, at once or as soon as another program leaves the port.

    Args:
        section: The settings `[metrics]`.
        guard: Makes the protocol of a connection.
    """

    def __init__(self, section: MetricsSection, guard: Guard) -> None:
        self._address = section.address
        self._guard = guard
        self._server: asyncio.Server | None = None
        self._waiting: asyncio.Task[None] | None = None
        """Tries again while another program has the port; None if the port was free."""

    async def begin(self) -> None:
        """Listen, or log that another program has the port, and try again regularly.

        Any user of this machine may take a port while no service runs. So a taken port stops the
        metrics, but no offers.

        Raises:
            ConfigError: the address cannot be used.
        """
        try:
            await self._listen()
        except OSError as error:
            refusal = (
                f"metrics.address: cannot listen on {self._address}: {bind_error(error)}; stop the "
                "other program, or choose another address"
            )
            if error.errno != errno.EADDRINUSE:
                raise ConfigError(refusal) from error
            _log.error("no metrics and no status page until the port is free", reason=refusal)
            self._waiting = asyncio.create_task(self._wait())

    def close(self) -> None:
        """Stop to listen, or to try."""
        if self._waiting is not None:
            self._waiting.cancel()
        if self._server is not None:
            self._server.close()

    async def _wait(self) -> None:
        while self._server is None:
            await asyncio.sleep(LISTEN_EVERY)
            with suppress(OSError):
                await self._listen()

    async def _listen(self) -> None:
        host, _, port = self._address.rpartition(":")
        # A restarted service can bind the port although browsers still hold old connections.
        self._server = await asyncio.get_running_loop().create_server(
            self._guard, host.strip("[]"), int(port), reuse_address=True, backlog=EACH_TURN
        )
        for accepting in self._server.sockets:  # asyncio has one number for both
            with accepting.dup() as second:
                second.listen(BACKLOG)
        bound = self._server.sockets[0].getsockname()[1]
        _log.info("serving metrics", url=f"http://{host}:{bound}/metrics")


_Handler = Callable[[web.Request], Awaitable[web.Response]]


def _require_known_host(section: MetricsSection) -> Middleware:
    """Return middleware that rejects requests whose Host header does not name this service.

    Otherwise a foreign web page could read this service's data, by resolving its own name to this
    machine (DNS rebinding). An IP address as Host is accepted, because it cannot be redirected in
    this way.
    """
    own = section.address.rpartition(":")[0].strip("[]")
    names = {name.lower() for name in ("localhost", own, socket.gethostname(), *section.hosts)}

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        name = _hostname(request.headers.get("Host", ""))
        if name and name not in names and not _is_address(name):
            raise web.HTTPMisdirectedRequest(
                text="this service does not serve that host name; add it to metrics.hosts\n"
            )
        return await handler(request)

    return check


def _hostname(header: str) -> str:
    name, _, port = header.lower().rpartition(":")
    return (name if name and port.isdigit() else header.lower()).strip("[]").rstrip(".")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


async def _protect(_: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(_PROTECTION)


def _scrape(  # noqa: PLR0913, PLR0917 - every source of the pages
    adapter: SchedulerAdapter,
    registry: CollectorRegistry,
    engine_lock: EngineLock,
    status: Status,
    accountant: Accountant | None,
    most_users: int,
) -> _Handler:
    users, roles = LabelLimiter(most_users), LabelLimiter(most_users)

    def write() -> Work[bytes]:
        waits, shadows = status.waits, status.shadows
        return exposition(
            adapter, registry, waits, shadows, accountant, listed=users, listed_roles=roles
        )

    cached_text = SharedComputation(lambda: run_in_slices(write(), engine_lock))

    async def scrape(_: web.Request) -> web.Response:
        return web.Response(
            body=await cached_text.get(), headers={"Content-Type": CONTENT_TYPE_LATEST}
        )

    return scrape


def _health(status: Status) -> _Handler:
    async def health(_: web.Request) -> web.Response:
        return web.json_response({"status": "ok", "connected": status.connected})

    return health


def _status(status: Status, engine_lock: EngineLock) -> _Handler:
    async def make() -> str:
        cached_text = await run_in_slices(status.first_view(), engine_lock)
        return await asyncio.to_thread(run_in_thread, encoding(cached_text))

    cached_text = SharedComputation(make)

    async def look(_: web.Request) -> web.Response:
        return web.Response(text=await cached_text.get(), content_type="application/json")

    return look


def _explain(status: Status, engine_lock: EngineLock) -> _Handler:
    rows = SharedComputation(lambda: run_in_slices(status.rows(), engine_lock))

    async def explain(request: web.Request) -> web.Response:
        user, as_of = request.query.get("user", ""), status.time
        words = await engine_lock.answer(status.explanation(user, await rows.get()))
        if words is None:
            hint = await engine_lock.answer(status.about_unknown_user(user))
            return web.json_response({"error": f"no such user: {user}{hint}"}, status=404)
        return web.json_response({"user": user, "time": as_of, "words": words})

    return explain


def _past(curves: Curves) -> _Handler:
    async def past(request: web.Request) -> web.Response:
        try:
            seconds = float(request.query.get("seconds", "3600"))
        except ValueError:
            seconds = math.nan
        if not 0.0 < seconds < math.inf:
            return web.json_response({"error": "seconds must be a positive number"}, status=400)
        text = await curves.read(request.query.getall("user", []), seconds)
        return web.Response(text=text, content_type="application/json")

    return past


def _file(name: str, kind: str) -> _Handler:
    text = files("allocator.service.show").joinpath("page", name).read_text(encoding="utf-8")
    if name == "page.css":
        text = style() + text

    async def read(_: web.Request) -> web.Response:
        return web.Response(text=text, content_type=kind, charset="utf-8")

    return read
