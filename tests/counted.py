"""Measure work and memory in numbers that do not depend on the machine or its load."""

import gc
import sys
from collections import deque
from collections.abc import Callable, Generator
from types import FrameType
from typing import TypeVar

import pytest

from allocator import build
from allocator.cluster.resources.cache import Cache


def counted(work: Callable[[], object]) -> int:
    """Return the number of function calls during the work, including C functions.

    Garbage collection is off meanwhile: its time is random, and its calls belong to other tests.
    Skips the test if modules are compiled, because calls within them are not seen.
    """
    if build() == "compiled":
        pytest.skip("calls within compiled modules cannot be counted")
    calls = 0

    def count(_: FrameType, event: str, __: object) -> None:
        nonlocal calls
        calls += event in {"call", "c_call"}

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


T = TypeVar("T")


def counted_steps(work: Generator[object, None, T]) -> tuple[list[int], T]:
    """Return the number of function calls of each cooperative step, and the result of the work."""
    costs, results = list[int](), list[T]()

    def step() -> None:
        try:
            next(work)
        except StopIteration as end:
            results.append(end.value)

    while not results:
        costs.append(counted(step))
    return costs, results[0]


def things(*roots: object) -> int:
    """Return the number of reachable objects of the project and entries of collections."""
    seen, waiting, number = set[int](), list(roots), 0
    while waiting:
        item = waiting.pop()
        ours = type(item).__module__.startswith("allocator") and not isinstance(item, Cache)
        if id(item) in seen or not (ours or isinstance(item, dict | list | tuple | set | deque)):
            continue
        seen.add(id(item))
        number += len(item) if isinstance(item, dict | list | set | deque) else 1
        waiting.extend(gc.get_referents(item))
    return number
