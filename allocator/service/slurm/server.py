"""Assembles and runs the service for Slurm: gRPC for operators, HTTP for metrics and pages."""

import asyncio
from contextlib import AsyncExitStack

import structlog
from prometheus_client import CollectorRegistry

from allocator.service.listening import listening
from allocator.service.loop.loop_latency import LoopLatency
from allocator.service.shared_parts import opening, raise_file_limit, stop_signal
from allocator.service.show.metric_definitions import register
from allocator.service.slurm.config import SlurmConfig
from allocator.service.slurm.follower import SlurmFollower
from allocator.service.slurm.metrics import CONTACT, STATE
from allocator.service.supervision import systemd_notifications

_log = structlog.get_logger(__name__)


async def serve(config: SlurmConfig, latency: LoopLatency, *, dry_run: bool) -> None:
    """Follow one Slurm until SIGTERM or SIGINT; SIGHUP reopens the recorder's file.

    Args:
        config: The configuration.
        latency: Measurement of the event loop that runs the service, for the metrics.
        dry_run: Whether to set no site factors although the configuration allows them.

    Raises:
        ConfigError: an address, the recorder's file, the store or the accounts cannot be used.
        StoreUnavailable: the store does not answer.
    """
    raise_file_limit()
    stop = stop_signal()
    async with AsyncExitStack() as stack:
        parts = await stack.enter_async_context(opening(config))
        follower = SlurmFollower(config, parts, dry_run=dry_run)
        adapter, contact = follower.adapter, follower.contact
        await parts.keep(stack, adapter, contact)
        registry = CollectorRegistry()
        register(registry, (CONTACT, contact), (STATE, follower.bridge.state))
        admin = await parts.show(stack, adapter, contact, follower.trail, registry, latency)
        await stack.enter_async_context(
            listening(config.listen, None, admin, parts.rights, parts.connections)
        )
        _log.info(
            "ready", policy=adapter.pool.policy.name, dry_run=follower.bridge.settings.dry_run
        )
        await stack.enter_async_context(systemd_notifications())
        following = asyncio.create_task(follower.run(stop))
        await stop.wait()
        _log.info("stopping")
        await following
