"""The service's HTTP face: /metrics for Prometheus, /healthz for whoever watches over it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import structlog
from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from allocator.service.config import ConfigError, MetricsSection
from allocator.service.session import SessionStatistics

_log = structlog.get_logger(__name__)


@asynccontextmanager
async def serving(
    section: MetricsSection, registry: CollectorRegistry, statistics: SessionStatistics
) -> AsyncIterator[None]:
    """Answer HTTP requests while the block runs.

    Raises:
        ConfigError: the address cannot be used.
    """

    async def scrape(_: web.Request) -> web.Response:
        return web.Response(
            body=generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_LATEST}
        )

    async def health(_: web.Request) -> web.Response:
        return web.json_response({"status": "ok", "connected": statistics.connected})

    app = web.Application()
    app.add_routes([web.get("/metrics", scrape), web.get("/healthz", health)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    host, _, port = section.address.rpartition(":")
    site = web.TCPSite(runner, host.strip("[]"), int(port))
    try:
        await site.start()
    except OSError as error:
        await runner.cleanup()
        raise ConfigError(
            f"metrics.address: cannot listen on {section.address}: {error.strerror}"
        ) from error
    bound = runner.addresses[0][1]
    _log.info("serving metrics", url=f"http://{host}:{bound}/metrics")
    try:
        yield
    finally:
        await runner.cleanup()
