"""Notifications to systemd (sd_notify(3)): readiness, and a watchdog of the event loop."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress

import structlog

_log = structlog.get_logger(__name__)


@asynccontextmanager
async def supervised(environment: Mapping[str, str] = os.environ) -> AsyncIterator[None]:
    """Notify READY, WATCHDOG twice per requested period, and STOPPING when the block ends.

    Without NOTIFY_SOCKET in the environment nothing is sent. The event loop sends the watchdog
    notifications. If the loop hangs, they stop, and systemd restarts the service.

    Args:
        environment: The variables NOTIFY_SOCKET and WATCHDOG_USEC (microseconds) from systemd.
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
        _notify(notify, "READY=1")
        period = int(environment.get("WATCHDOG_USEC", "0")) / 2e6
        feeding = asyncio.create_task(_notify_regularly(notify, period)) if period > 0 else None
        try:
            yield
        finally:
            if feeding is not None:
                feeding.cancel()
            _notify(notify, "STOPPING=1")


async def _notify_regularly(notify: socket.socket, period: float) -> None:
    """Send WATCHDOG once per period.

    Args:
        notify: The socket.
        period: Seconds.
    """
    while True:
        _notify(notify, "WATCHDOG=1")
        await asyncio.sleep(period)


def _notify(notify: socket.socket, state: str) -> None:
    # A busy or restarting systemd must not delay the service; the next notification follows soon.
    """Send a state to systemd; errors are ignored."""
    with suppress(OSError):
        notify.send(state.encode())
