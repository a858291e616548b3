"""What is free on machines, and the first one that a task fits on: a tree of maxima in arrays."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from allocator.simulation.kernels.compiled import kernel

NOWHERE = -1
"""No machine."""
_BITS = 63


class FreeCapacityArrays(NamedTuple):
    """Machines, numbered through their classes. A pool is one machine."""

    free: NDArray[np.int64]
    """Shape (nodes, resources): of machine i at leaf L + i; of node k < L the maxima of its
    children 2k and 2k + 1."""
    kind: NDArray[np.int64]
    """Class of each machine."""
    first: NDArray[np.int64]
    """By class, its first machine; at the end, how many machines there are."""
    capacity: NDArray[np.int64]
    """By class, shape (classes, resources)."""
    allowed: NDArray[np.int64]
    """Classes that constraints allow, in order, one constraint after the other."""
    begin: NDArray[np.int64]
    """By constraint, where its classes begin; the last constraint allows all."""


def new_room(
    capacity: NDArray[np.int64], counts: list[int], constraints: list[list[int]]
) -> FreeCapacityArrays:
    """Return empty machines.

    Args:
        capacity: Of a machine of each class, shape (classes, resources).
        counts: Machines in each class.
        constraints: The classes that each allows; one more is added, which allows all.
    """
    kind = np.repeat(np.arange(len(counts), dtype=np.int64), counts)
    leaves = 1
    while leaves < len(kind):
        leaves *= 2
    free = np.full((2 * leaves, capacity.shape[1]), -1, np.int64)
    free[leaves : leaves + len(kind)] = capacity[kind]
    for k in range(leaves - 1, 0, -1):
        free[k] = np.maximum(free[2 * k], free[2 * k + 1])
    every = [*map(sorted, constraints), list(range(len(counts)))]
    return FreeCapacityArrays(
        free=free,
        kind=kind,
        first=np.cumsum([0, *counts]),
        capacity=capacity,
        allowed=np.array([c for classes in every for c in classes], np.int64),
        begin=np.cumsum([0, *map(len, every)]),
    )


@kernel
def fits(need: NDArray[np.int64], free: NDArray[np.int64]) -> bool:
    """Whether there is as much of everything."""
    enough = True
    for r in range(len(need)):
        enough &= need[r] <= free[r]
    return enough


@kernel
def first_fit(room: FreeCapacityArrays, need: NDArray[np.int64], constraint: int) -> int:
    """Return the first machine that is allowed and has room, or NOWHERE.

    O(log n) in n machines, if the maxima do not mislead.
    """
    if len(room.kind) == 1 and room.begin[constraint + 1] > room.begin[constraint]:
        return 0 if fits(need, room.free[1]) else NOWHERE
    i, end = room.begin[constraint], room.begin[constraint + 1]
    while i < end:
        first = last = room.allowed[i]
        i += 1
        while i < end and room.allowed[i] == last + 1:  # classes in a row are one search
            last += 1
            i += 1
        machine = _first_in_range(room.free, need, room.first[first], room.first[last + 1])
        if machine != NOWHERE:
            return machine
    return NOWHERE


@kernel
def _first_in_range(free: NDArray[np.int64], need: NDArray[np.int64], low: int, high: int) -> int:
    leaves = len(free) // 2
    k, below = leaves + low, 0
    while (k << below) - leaves < high:
        if fits(need, free[k]):
            if below == 0:
                return k - leaves
            k *= 2
            below -= 1
            continue
        while k % 2 == 1:  # nothing here: on to what is right of it
            k //= 2
            below += 1
        if k == 0:
            return NOWHERE
        k += 1
    return NOWHERE


@kernel
def take(room: FreeCapacityArrays, machine: int, amounts: NDArray[np.int64]) -> None:
    """Take from what is free on a machine. O(log n)."""
    k = len(room.free) // 2 + machine
    for r in range(len(amounts)):
        room.free[k, r] -= amounts[r]
    _renew_maxima(room.free, k)


@kernel
def give_back(room: FreeCapacityArrays, machine: int, amounts: NDArray[np.int64]) -> None:
    """Add to what is free on a machine. O(log n)."""
    k = len(room.free) // 2 + machine
    for r in range(len(amounts)):
        room.free[k, r] += amounts[r]
    _renew_maxima(room.free, k)


@kernel
def _renew_maxima(free: NDArray[np.int64], leaf: int) -> None:
    k = leaf // 2
    while k > 0:
        for r in range(free.shape[1]):
            free[k, r] = max(free[2 * k, r], free[2 * k + 1, r])
        k //= 2


@kernel
def could_ever_fit(room: FreeCapacityArrays, need: NDArray[np.int64], constraint: int) -> bool:
    """Whether an empty machine that is allowed has room."""
    could = False
    for kind in room.allowed[room.begin[constraint] : room.begin[constraint + 1]]:
        could |= room.first[kind] < room.first[kind + 1] and fits(need, room.capacity[kind])
    return could


@kernel
def monopoly(room: FreeCapacityArrays, need: NDArray[np.int64], constraint: int) -> int:
    """Return how many whole tasks fit on all machines that are allowed, if they are empty."""
    total = 0
    for kind in room.allowed[room.begin[constraint] : room.begin[constraint + 1]]:
        each = np.iinfo(np.int64).max
        for r in range(len(need)):
            if need[r] > 0:
                each = min(each, room.capacity[kind, r] // need[r])
        total += each * (room.first[kind + 1] - room.first[kind])
    return total


@kernel
def allows(room: FreeCapacityArrays, constraint: int, machine: int) -> bool:
    """Whether tasks with a constraint may run on a machine."""
    may = False
    for kind in room.allowed[room.begin[constraint] : room.begin[constraint + 1]]:
        may |= kind == room.kind[machine]
    return may


@kernel
def bit(kind: int) -> int:
    """Return the bit of a class in a mask; classes beyond the 63rd share bits."""
    return 1 << (kind % _BITS)


@kernel
def mask(room: FreeCapacityArrays, constraint: int) -> int:
    """Return the bits of all classes that a constraint allows."""
    bits = 0
    for kind in room.allowed[room.begin[constraint] : room.begin[constraint + 1]]:
        bits |= bit(kind)
    return bits
