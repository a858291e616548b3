"""Settings of Python's garbage collector that keep collections from blocking the event loop.

A full collection visits every object: 0.2 s at 10,000 agents × 1,000 frameworks. Objects that
survive a full collection are frozen, so that later collections skip them. Each snapshot replaces
most objects; then all objects are unfrozen and collected once. Objects without references are freed
at once in any case.
"""

import asyncio
import ctypes
import gc
import math
import resource
import time
from pathlib import Path

THRESHOLDS = 5000, 1, 1
"""Thresholds for `gc.set_threshold`.

The first is the number of new containers before a collection of the youngest generation. The others
are numbers of collections of a generation before the next generation is collected.
"""
MIN_SECONDS_BETWEEN_COLLECTIONS = 10.0
"""Minimum number of seconds between full collections. Otherwise each of several consecutive
snapshots would cause a full collection."""

_TRIM_AFTER = 1.0
"""Seconds from the rejection of a large message until its memory is returned to the system."""

_GROWTH = 1.25, 16 * 2**20
"""Memory is returned to the system when the process takes more than this multiple of the least
in a window, plus these bytes."""
_WINDOW = 60.0
"""Seconds of a window; grown memory that is still in use after it counts as needed."""
_RETURN_EVERY = 5.0
"""Minimum seconds between two returns because of growth."""

_last_collection = -MIN_SECONDS_BETWEEN_COLLECTIONS
"""Monotonic time of the latest full collection by `collect_after_snapshot`, in seconds."""
_trimming = False
_least_resident = math.inf
"""Least resident memory in the present window, in bytes."""
_window_end = _next_return = -math.inf
"""Monotonic times, in seconds."""


def enable() -> None:
    """Make the garbage collector block less: frequent small collections, few full ones.

    Objects that survived a full collection are skipped by later collections. `run` in
    `loop_latency` calls this function once.
    """
    gc.set_threshold(*THRESHOLDS)
    if _freeze_after_full not in gc.callbacks:
        gc.callbacks.append(_freeze_after_full)


def collect_after_snapshot() -> None:
    """Run a full garbage collection after a snapshot, because a snapshot replaces most objects.

    Nothing happens if a collection has run within `MIN_SECONDS_BETWEEN_COLLECTIONS`, or if `enable`
    has not been called.
    """
    global _last_collection  # noqa: PLW0603 - there is one collector in a process
    now = time.monotonic()
    if (
        _freeze_after_full in gc.callbacks
        and now >= _last_collection + MIN_SECONDS_BETWEEN_COLLECTIONS
    ):
        _last_collection = now
        gc.unfreeze()
        gc.collect()


def trim_soon() -> None:
    """Schedule the return of free heap memory to the system in one second, at most once a second.

    Otherwise glibc would keep the memory of gRPC's many small allocations for later use.
    """
    global _trimming  # noqa: PLW0603 - there is one heap in a process
    if not _trimming:
        _trimming = True
        asyncio.get_running_loop().call_later(_TRIM_AFTER, _trim)


def trim_if_grown() -> None:
    """Return free heap memory to the system soon, if the process has grown; call this regularly.

    The process's memory is compared with its smallest size in the present time window (`_GROWTH`,
    `_WINDOW`).
    """
    global _least_resident, _window_end, _next_return  # noqa: PLW0603 - there is one heap
    now, resident = time.monotonic(), _resident()
    if now >= _window_end:
        _window_end, _least_resident = now + _WINDOW, resident
    _least_resident = min(_least_resident, resident)
    multiple, more = _GROWTH
    if resident > multiple * _least_resident + more and now >= _next_return:
        _next_return = now + _RETURN_EVERY
        trim_soon()


def _resident() -> int:
    """Return the process's resident memory in bytes; 0 on systems without /proc."""
    try:
        statistics = Path("/proc/self/statm").read_bytes()
    except OSError:
        return 0
    return int(statistics.split()[1]) * resource.getpagesize()


def _trim() -> None:
    """Return free heap memory to the system, in another thread."""
    global _trimming  # noqa: PLW0603 - there is one heap in a process
    _trimming = False
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # a function of glibc
    if trim is not None:
        asyncio.get_running_loop().run_in_executor(None, trim, 0)


def _freeze_after_full(phase: str, info: dict[str, int]) -> None:
    """After a full garbage collection, exempt all surviving objects from later collections.

    Python's collector calls this function at the start and end of each collection.

    Args:
        phase: "start" or "stop" of a collection.
        info: Description of the collection, with its "generation".
    """
    if phase == "stop" and info["generation"] == len(THRESHOLDS) - 1:
        gc.freeze()
