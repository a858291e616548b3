"""Running tasks, the next one to finish first: a binary heap in arrays."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from allocator.simulation.kernels.compiled import kernel


class Finishes(NamedTuple):
    """A heap by (finish, serial) of slots, in which tasks that run keep what they hold.

    Only as much of the arrays is ever touched as tasks run at a time.
    """

    when: NDArray[np.int64]
    serial: NDArray[np.int64]
    """Of equal finishes the task that was started first is first."""
    slot: NDArray[np.int64]
    """From the heap's size on: free slots."""
    user: NDArray[np.int64]
    """By slot."""
    machine: NDArray[np.int64]
    """By slot."""
    held: NDArray[np.int64]
    """By slot, shape (slots, resources)."""


def new_finishes(most: int, resources: int) -> Finishes:
    """Return an empty heap for at most so many tasks."""
    return Finishes(
        when=np.empty(most, np.int64),
        serial=np.empty(most, np.int64),
        slot=np.empty(most, np.int64),
        user=np.empty(most, np.int64),
        machine=np.empty(most, np.int64),
        held=np.empty((most, resources), np.int64),
    )


@kernel
def push(heap: Finishes, size: int, used: int, when: int, serial: int) -> int:
    """Add a task to a heap of a size; return its slot.

    Args:
        heap: The heap.
        size: How many tasks run.
        used: How many slots have ever been used; from there on they are not in `slot` yet.
        when: Its finish.
        serial: Which start it is.
    """
    slot = heap.slot[size] if size < used else size
    i = size
    while i > 0:
        parent = (i - 1) // 2
        if heap.when[parent] <= when:  # it is the latest start, so behind its equals
            break
        heap.when[i] = heap.when[parent]
        heap.serial[i] = heap.serial[parent]
        heap.slot[i] = heap.slot[parent]
        i = parent
    heap.when[i] = when
    heap.serial[i] = serial
    heap.slot[i] = slot
    return slot


@kernel
def pop(heap: Finishes, size: int) -> int:
    """Take the first task out of a heap of a size above 0; return its slot, which is free now."""
    first: int = heap.slot[0]
    last = size - 1
    when, serial, slot = heap.when[last], heap.serial[last], heap.slot[last]
    i = 0
    while True:
        child = 2 * i + 1
        if child >= last:
            break
        other = child + 1
        if other < last and (
            heap.when[other] < heap.when[child]
            or (heap.when[other] == heap.when[child] and heap.serial[other] < heap.serial[child])
        ):
            child = other
        if when < heap.when[child] or (when == heap.when[child] and serial < heap.serial[child]):
            break
        heap.when[i] = heap.when[child]
        heap.serial[i] = heap.serial[child]
        heap.slot[i] = heap.slot[child]
        i = child
    heap.when[i] = when
    heap.serial[i] = serial
    heap.slot[i] = slot
    heap.slot[last] = first
    return first
