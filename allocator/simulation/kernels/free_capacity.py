"""Free capacity of machines in arrays, with a tree of maxima to find a machine for a task fast."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from allocator.simulation.kernels.compiled import kernel

NOWHERE = -1
"""Machine number that means "no machine"."""
_BITS = 63


class FreeCapacityArrays(NamedTuple):
    """All machines, numbered class by class, with capacity, free amounts and constraints."""

    free: NDArray[np.int64]
    """Free amounts in parts as a tree of maxima, shape (nodes, resources).

    Machine i is leaf L + i. Node k < L has the maxima of its children 2k and 2k + 1.
    """
    kind: NDArray[np.int64]
    """Machine class of each machine."""
    first: NDArray[np.int64]
    """Number of the first machine of each class; the last entry is the number of all machines."""
    capacity: NDArray[np.int64]
    """Capacity of one machine of each class, shape (classes, resources)."""
    allowed: NDArray[np.int64]
    """Allowed classes of all constraints, concatenated; ascending within a constraint."""
    begin: NDArray[np.int64]
    """By constraint: index in `allowed` of its first class.

    The last constraint allows all classes.
    """


def new_free_capacity(
    capacity: NDArray[np.int64], counts: list[int], constraints: list[list[int]]
) -> FreeCapacityArrays:
    """Return the arrays for machines that run no tasks yet.

    Args:
        capacity: Capacity of one machine of each class, shape (classes, resources).
        counts: Number of machines in each class.
        constraints: For each placement constraint, the indices of the machine classes on which its
            tasks may run. The function appends one more constraint, with which tasks may run on
            all machines.
    """
    kind = np.repeat(np.arange(len(counts), dtype=np.int64), counts)
    leaves = 1
    while leaves < len(kind):
        leaves *= 2
    free = np.full((2 * leaves, capacity.shape[1]), -1, np.int64)
    free[leaves : leaves + len(kind)] = capacity[kind]
    for k in range(leaves - 1, 0, -1):
        free[k] = np.maximum(free[2 * k], free[2 * k + 1])
    all_constraints = [*map(sorted, constraints), list(range(len(counts)))]
    return FreeCapacityArrays(
        free=free,
        kind=kind,
        first=np.cumsum([0, *counts]),
        capacity=capacity,
        allowed=np.array([c for classes in all_constraints for c in classes], np.int64),
        begin=np.cumsum([0, *map(len, all_constraints)]),
    )


@kernel
def fits(need: NDArray[np.int64], free: NDArray[np.int64]) -> bool:
    """Return whether a task's demand is at most the free amount of every resource.

    Args:
        need: The demand by resource, in the whole-number units of `Parts`.
        free: Free amounts of a machine by resource, in the whole-number units of `Parts`.
    """
    enough = True
    for r in range(len(need)):
        enough &= need[r] <= free[r]
    return enough


@kernel
def first_fit(machines: FreeCapacityArrays, need: NDArray[np.int64], constraint: int) -> int:
    """Return the lowest-numbered machine on which a task fits and may run, or NOWHERE.

    The search costs O(log n) for n machines. It costs more if a tree node's maxima belong to
    different machines, none of which has enough of every resource.

    Args:
        machines: All machines.
        need: The task's demand by resource, in the whole-number units of `Parts`.
        constraint: Number of the task's placement constraint.
    """
    if len(machines.kind) == 1 and machines.begin[constraint + 1] > machines.begin[constraint]:
        return 0 if fits(need, machines.free[1]) else NOWHERE
    i, end = machines.begin[constraint], machines.begin[constraint + 1]
    while i < end:
        first = last = machines.allowed[i]
        i += 1
        while i < end and machines.allowed[i] == last + 1:  # search successive classes together
            last += 1
            i += 1
        machine = _first_in_range(
            machines.free, need, machines.first[first], machines.first[last + 1]
        )
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
        while k % 2 == 1:  # no fit in this subtree: continue to its right
            k //= 2
            below += 1
        if k == 0:
            return NOWHERE
        k += 1
    return NOWHERE


@kernel
def take(machines: FreeCapacityArrays, machine: int, amounts: NDArray[np.int64]) -> None:
    """Subtract a starting task's demand from a machine's free capacity. O(log n) for n machines.

    Args:
        machines: All machines.
        machine: The machine's number.
        amounts: The demand by resource, in the whole-number units of `Parts`.
    """
    k = len(machines.free) // 2 + machine
    for r in range(len(amounts)):
        machines.free[k, r] -= amounts[r]
    _update_maxima(machines.free, k)


@kernel
def give_back(machines: FreeCapacityArrays, machine: int, amounts: NDArray[np.int64]) -> None:
    """Add an ended task's demand back to a machine's free capacity. O(log n) for n machines.

    Args:
        machines: All machines.
        machine: The machine's number.
        amounts: The demand by resource, in the whole-number units of `Parts`.
    """
    k = len(machines.free) // 2 + machine
    for r in range(len(amounts)):
        machines.free[k, r] += amounts[r]
    _update_maxima(machines.free, k)


@kernel
def _update_maxima(free: NDArray[np.int64], leaf: int) -> None:
    k = leaf // 2
    while k > 0:
        for r in range(free.shape[1]):
            free[k, r] = max(free[2 * k, r], free[2 * k + 1, r])
        k //= 2


@kernel
def could_ever_fit(machines: FreeCapacityArrays, need: NDArray[np.int64], constraint: int) -> bool:
    """Return whether a task would fit on an empty machine on which its constraint lets it run.

    Args:
        machines: All machines.
        need: The task's demand by resource, in the whole-number units of `Parts`.
        constraint: Number of the task's placement constraint.
    """
    fitting = False
    for kind in machines.allowed[machines.begin[constraint] : machines.begin[constraint + 1]]:
        fitting |= machines.first[kind] < machines.first[kind + 1] and fits(
            need, machines.capacity[kind]
        )
    return fitting


@kernel
def monopoly(machines: FreeCapacityArrays, need: NDArray[np.int64], constraint: int) -> int:
    """Return how many copies of a task the cluster could run if it ran nothing else.

    Args:
        machines: All machines.
        need: The task's demand by resource, in the whole-number units of `Parts`.
        constraint: Number of the task's placement constraint; other machines do not count.
    """
    total = 0
    for kind in machines.allowed[machines.begin[constraint] : machines.begin[constraint + 1]]:
        tasks = np.iinfo(np.int64).max
        for r in range(len(need)):
            if need[r] > 0:
                tasks = min(tasks, machines.capacity[kind, r] // need[r])
        total += tasks * (machines.first[kind + 1] - machines.first[kind])
    return total


@kernel
def allows(machines: FreeCapacityArrays, constraint: int, machine: int) -> bool:
    """Return whether tasks with a placement constraint may run on a machine.

    Args:
        machines: All machines.
        constraint: The constraint's number.
        machine: The machine's number.
    """
    allowed = False
    for kind in machines.allowed[machines.begin[constraint] : machines.begin[constraint + 1]]:
        allowed |= kind == machines.kind[machine]
    return allowed


@kernel
def bit(kind: int) -> int:
    """Return a 64-bit mask with only the bit of one machine class.

    Classes from the 63rd on share bits, so a mask may show too many classes, but never too few.

    Args:
        kind: The class's index.
    """
    return 1 << (kind % _BITS)


@kernel
def mask(machines: FreeCapacityArrays, constraint: int) -> int:
    """Return a 64-bit mask with the bit of each machine class on which tasks may run.

    Args:
        machines: All machines.
        constraint: Number of the tasks' placement constraint.
    """
    bits = 0
    for kind in machines.allowed[machines.begin[constraint] : machines.begin[constraint + 1]]:
        bits |= bit(kind)
    return bits
