"""Tells systemd when the service is ready, and that its event loop still turns: sd_notify(3)."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress

import structlog

_log = structlog.get_logger(__name__)


@asynccontextmanager
async def supervised(environment: Mapping[str, str] = os.environ) -> AsyncIterator[None]:
    """Say READY, then WATCHDOG at twice the frequency that is asked for, and STOPPING at the end.

    Without NOTIFY_SOCKET in the environment nobody is told anything. The watchdog is fed from the
    event loop: one that hangs falls silent, and systemd starts the service again.

    Args:
        environment: Where systemd has put NOTIFY_SOCKET and WATCHDOG_USEC (microseconds).
    """
    address = environment.get("NOTIFY_SOCKET")
    if not address:
        yield
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        notify.setblocking(False)
        try:
            notify.connect(f"\0{address[1:]}" if address.startswith("@") else address)
        except OSError as error:
            _log.warning("systemd cannot be told", socket=address, reason=error.strerror)
            yield
            return
        _tell(notify, "READY=1")
        period = int(environment.get("WATCHDOG_USEC", "0")) / 2e6
        feeding = asyncio.create_task(_feed(notify, period)) if period > 0 else None
        try:
            yield
        finally:
            if feeding is not None:
                feeding.cancel()
            _tell(notify, "STOPPING=1")


async def _feed(notify: socket.socket, period: float) -> None:
    while True:
        _tell(notify, "WATCHDOG=1")
        await asyncio.sleep(period)


def _tell(notify: socket.socket, state: str) -> None:
    # A supervisor that is busy, or being replaced, must make nobody wait; the next word comes soon.
    with suppress(OSError):
        notify.send(state.encode())
