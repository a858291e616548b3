"""A heap of running tasks, to find the next task that finishes."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from allocator.simulation.kernels.compiled import kernel


class Finishes(NamedTuple):
    """Running tasks in a binary heap, ordered by finish time, then by start.

    A task has a slot, an index into the arrays with its data. Slots are reused, so only as many
    entries are touched as tasks run at the same time.
    """

    finish: NDArray[np.int64]
    serial: NDArray[np.int64]
    """Serial number of the task's start.

    Among tasks with the same finish time, the lowest is first.
    """
    slot: NDArray[np.int64]
    """Slots in heap order, followed by the free slots."""
    user: NDArray[np.int64]
    """By slot: number of the task's user."""
    machine: NDArray[np.int64]
    """By slot: number of the task's machine."""
    held: NDArray[np.int64]
    """By slot: resources that the task holds, in parts; shape (slots, resources)."""


def new_finishes(capacity: int, resources: int) -> Finishes:
    """Return an empty heap of running tasks.

    Args:
        capacity: Maximum number of tasks that run at the same time.
        resources: Number of resources.
    """
    return Finishes(
        finish=np.empty(capacity, np.int64),
        serial=np.empty(capacity, np.int64),
        slot=np.empty(capacity, np.int64),
        user=np.empty(capacity, np.int64),
        machine=np.empty(capacity, np.int64),
        held=np.empty((capacity, resources), np.int64),
    )


@kernel
def push(heap: Finishes, size: int, used: int, finish: int, serial: int) -> int:
    """Add a task that starts to the heap, and return the slot for the task's data.

    The caller fills the slot's entries of `user`, `machine` and `held`.

    Args:
        heap: All running tasks.
        size: Number of running tasks before the call.
        used: Number of slots that were ever used. Higher slots are free, but not listed in `slot`
            yet.
        finish: The task's finish time in microseconds.
        serial: Serial number of the start; later starts have higher numbers.
    """
    slot = heap.slot[size] if size < used else size
    i = size
    while i > 0:
        parent = (i - 1) // 2
        if heap.finish[parent] <= finish:  # the latest start comes after equal finishes
            break
        heap.finish[i] = heap.finish[parent]
        heap.serial[i] = heap.serial[parent]
        heap.slot[i] = heap.slot[parent]
        i = parent
    heap.finish[i] = finish
    heap.serial[i] = serial
    heap.slot[i] = slot
    return slot


@kernel
def pop(heap: Finishes, size: int) -> int:
    """Remove the task that finishes first, and return its slot.

    The slot's data stays readable until `push` returns the slot again.

    Args:
        heap: All running tasks.
        size: Number of running tasks before the call, above 0.
    """
    first: int = heap.slot[0]
    last = size - 1
    finish, serial, slot = heap.finish[last], heap.serial[last], heap.slot[last]
    i = 0
    while True:
        child = 2 * i + 1
        if child >= last:
            break
        sibling = child + 1
        if sibling < last and (
            heap.finish[sibling] < heap.finish[child]
            or (
                heap.finish[sibling] == heap.finish[child]
                and heap.serial[sibling] < heap.serial[child]
            )
        ):
            child = sibling
        if finish < heap.finish[child] or (
            finish == heap.finish[child] and serial < heap.serial[child]
        ):
            break
        heap.finish[i] = heap.finish[child]
        heap.serial[i] = heap.serial[child]
        heap.slot[i] = heap.slot[child]
        i = child
    heap.finish[i] = finish
    heap.serial[i] = serial
    heap.slot[i] = slot
    heap.slot[last] = first
    return first
