"""Keeps Python's collector of cyclic garbage from holding the loop, however much there is to know.

A full collection goes through every object: a fifth of a second at 10,000 agents × 1,000
frameworks. What has outlived one is taken to be there to stay, and is not looked at again until the
next snapshot, which replaces it; what is no longer referred to is freed at once in any case.
"""

import asyncio
import ctypes
import gc
import time

THRESHOLDS = 1000, 5, 3
"""New containers until the young are looked at; rounds of that until the next generation is."""
REST = 10.0
"""Seconds: a master that sends one snapshot after the other makes the loop stand still no more."""

_TRIM_AFTER = 1.0
"""Seconds from when a large message was refused until its memory goes back to the system."""

_settled = -REST
_trimming = False


def tame() -> None:
    """Collect from now on in small portions."""
    gc.set_threshold(*THRESHOLDS)
    if _keep not in gc.callbacks:
        gc.callbacks.append(_keep)


def settle() -> None:
    """Look at everything once, as after a snapshot, though not again within seconds.

    Does nothing in a process that is not tame.
    """
    global _settled  # noqa: PLW0603 - there is one collector in a process
    now = time.monotonic()
    if _keep in gc.callbacks and now >= _settled + REST:
        _settled = now
        gc.unfreeze()
        gc.collect()


def trim_soon() -> None:
    """Give free memory back to the system a second from now, at most once a second.

    glibc keeps what gRPC received in many small pieces for its own later use.
    """
    global _trimming  # noqa: PLW0603 - there is one heap in a process
    if not _trimming:
        _trimming = True
        asyncio.get_running_loop().call_later(_TRIM_AFTER, _begin_trimming)


def _begin_trimming() -> None:
    global _trimming  # noqa: PLW0603 - likewise
    _trimming = False
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's
    if trim is not None:
        asyncio.get_running_loop().run_in_executor(None, trim, 0)


def _keep(phase: str, told: dict[str, int]) -> None:
    if phase == "stop" and told["generation"] == len(THRESHOLDS) - 1:
        gc.freeze()
