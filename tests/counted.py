"""Work and memory in numbers, which are the same on every machine and beside every load."""

import gc
import sys
from collections import deque
from collections.abc import Callable
from types import FrameType

from allocator.cluster.resources.cache import Cache


def counted(work: Callable[[], object]) -> int:
    """Return how many functions, C's as well, are called in the work.

    Nothing is collected meanwhile: it is chance when, and what it calls belongs to other tests.
    """
    calls = 0

    def count(_: FrameType, what: str, __: object) -> None:
        nonlocal calls
        calls += what in {"call", "c_call"}

    former, collecting = sys.getprofile(), gc.isenabled()
    gc.disable()
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(former)
        if collecting:
            gc.enable()
    return calls


def things(*roots: object) -> int:
    """Return how many objects of ours, and entries of collections, can be reached."""
    seen, waiting, number = set[int](), list(roots), 0
    while waiting:
        one = waiting.pop()
        ours = type(one).__module__.startswith("allocator") and not isinstance(one, Cache)
        if id(one) in seen or not (ours or isinstance(one, dict | list | tuple | set | deque)):
            continue
        seen.add(id(one))
        number += len(one) if isinstance(one, dict | list | set | deque) else 1
        waiting.extend(gc.get_referents(one))
    return number
