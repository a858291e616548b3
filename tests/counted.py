"""Measure work and memory in numbers that do not depend on the machine or its load."""

import gc
import sys
from collections import deque
from collections.abc import Callable
from types import FrameType

from allocator.cluster.resources.cache import Cache


def counted(work: Callable[[], object]) -> int:
    """Return the number of function calls during the work, including C functions.

    Garbage collection is off meanwhile: its time is random, and its calls belong to other tests.
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
    """Return the number of reachable objects of the project and entries of collections."""
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
