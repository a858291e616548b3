"""Notifications to systemd (sd_notify(3)): readiness, and a watchdog of the event loop."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress

import structlog

_log = structlog.get_logger(__name__)


@asynccontextmanager
async def systemd_notifications(environment: Mapping[str, str] = os.environ) -> AsyncIterator[None]:
    """Notify systemd when the service is ready, regularly while it runs, and when it stops.

    The event loop sends WATCHDOG=1 twice per requested period. If the loop hangs, the notifications
    end, and systemd restarts the service. Without NOTIFY_SOCKET nothing is sent.

    Args:
        environment: Environment variables; systemd sets NOTIFY_SOCKET and WATCHDOG_USEC
            (microseconds).
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
            _log.warning("systemd cannot be notified", socket=address, reason=error.strerror)
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
    """Send WATCHDOG=1 once per period, until cancelled.

    Args:
        notify: Socket connected to systemd.
        period: Seconds between two notifications.
    """
    while True:
        _notify(notify, "WATCHDOG=1")
        await asyncio.sleep(period)


def _notify(notify: socket.socket, state: str) -> None:
    # A busy or restarting systemd must not delay the service; the next notification follows soon.
    """Send a state, such as `READY=1`, to systemd; ignore errors."""
    with suppress(OSError):
        notify.send(state.encode())
