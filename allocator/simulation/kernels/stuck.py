"""Finds a *stuck* user whose next task fits after a machine was freed.

A user is stuck if its next task fitted on no machine when it was last tried. The simulation need
not try a stuck user again before some machine has more free capacity.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from allocator.simulation.kernels.compiled import kernel, wide
from allocator.simulation.kernels.free_capacity import FreeCapacityArrays, allows, bit, fits, mask
from allocator.simulation.kernels.tournament import NOBODY, Tournament, precedes

_TOO_MUCH = np.iinfo(np.int64).max


class Stuck(NamedTuple):
    """All stuck users, as minima of their demands in a binary tree.

    The tree has the shape of a tournament: one leaf per user. Each node has the smallest demand of
    the stuck users below it. If the smallest demand does not fit, a search skips the subtree.
    """

    least: NDArray[np.int64]
    """For each node and resource, the smallest amount that a stuck user below the node needs.

    The shape is (nodes, resources).
    """
    kinds: NDArray[np.int64]
    """For each node, a mask of the machine classes that any stuck user below may use."""
    stack: NDArray[np.int64]
    """Scratch space of a search."""


def new_stuck(tree: Tournament, resources: int) -> Stuck:
    """Return the arrays for a simulation in which no user is stuck yet.

    Args:
        tree: The tournament among the same users.
        resources: Number of resources.
    """
    nodes = len(tree.winner)
    return Stuck(
        np.full((nodes, resources), _TOO_MUCH), np.zeros(nodes, np.int64), np.empty(nodes, np.int64)
    )


@kernel
def set_aside(
    stuck: Stuck, machines: FreeCapacityArrays, user: int, need: NDArray[np.int64], constraint: int
) -> None:
    """Mark a user as stuck, because its next task fits on no machine. O(log n) for n users.

    Args:
        stuck: The stuck users.
        machines: The machines.
        user: The user's number.
        need: Demand of the user's next task by resource, in the whole-number units of `Parts`.
        constraint: Number of the placement constraint of the user's next task.
    """
    k = len(stuck.least) // 2 + user
    for r in range(len(need)):
        stuck.least[k, r] = need[r]
    stuck.kinds[k] = mask(machines, constraint)
    _update_minima(stuck, k)


@kernel
def take_back(stuck: Stuck, user: int) -> None:
    """Mark a user as not stuck, because its next task changed or started. O(log n) for n users.

    Without effect if the user is not stuck.
    """
    k = len(stuck.least) // 2 + user
    if stuck.kinds[k] != 0:
        stuck.least[k, :] = _TOO_MUCH
        stuck.kinds[k] = 0
        _update_minima(stuck, k)


@kernel
def _update_minima(stuck: Stuck, leaf: int) -> None:
    k = leaf // 2
    while k > 0:
        kinds = stuck.kinds[2 * k] | stuck.kinds[2 * k + 1]
        same = kinds == stuck.kinds[k]
        stuck.kinds[k] = kinds
        for r in range(stuck.least.shape[1]):
            least = min(stuck.least[2 * k, r], stuck.least[2 * k + 1, r])
            same &= least == stuck.least[k, r]
            stuck.least[k, r] = least
        if same:
            return
        k //= 2


@kernel
def first_unstuck(
    stuck: Stuck,
    tree: Tournament,
    lines: NDArray[np.float64],
    machines: FreeCapacityArrays,
    constraint: NDArray[np.int64],
    machine: int,
    before: int,
    s: float,
) -> int:
    """Return the first stuck user in the policy's order whose next task fits on a machine.

    The result is NOBODY if there is no such user. The user remains marked as stuck.

    Args:
        stuck: The stuck users.
        tree: The tournament; must be up to date at s.
        lines: Lines (value, slope) of all users, shape (users, lines, 2). A user's priority is the
            maximum of value + slope·s over its lines.
        machines: The machines.
        constraint: For each user, the number of the placement constraint of its next task.
        machine: The machine with new free capacity.
        before: Only users before this user in the policy's order are considered; NOBODY: all users.
        s: The decay factor e^(−t/τ) at the current time t.
    """
    leaves = len(tree.winner) // 2
    free = machines.free[len(machines.free) // 2 + machine]
    kind = bit(machines.kind[machine])
    best, result = before, wide(NOBODY)
    stuck.stack[0] = 1
    depth = 1
    while depth > 0:
        depth -= 1
        k = stuck.stack[depth]
        if stuck.kinds[k] & kind == 0 or not fits(stuck.least[k], free):
            continue
        first = tree.winner[k]
        if best != NOBODY and (first == best or precedes(lines, best, first, s)):
            continue
        leaf = leaves + first
        if (
            stuck.kinds[leaf] & kind != 0
            and fits(stuck.least[leaf], free)
            and allows(machines, constraint[first], machine)
        ):
            best = result = first
        elif k < leaves:
            stuck.stack[depth] = 2 * k + 1
            stuck.stack[depth + 1] = 2 * k
            depth += 2
    return result
