"""Users whose next task fits nowhere, and the first of them for whom a machine has room again."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from allocator.simulation.kernels.compiled import kernel, wide
from allocator.simulation.kernels.free_capacity import FreeCapacityArrays, allows, bit, fits, mask
from allocator.simulation.kernels.tournament import NOBODY, Tournament, precedes

_TOO_MUCH = np.iinfo(np.int64).max


class Stuck(NamedTuple):
    """Beside a tournament's matches what its stuck users need, to pass over whole subtrees."""

    least: NDArray[np.int64]
    """Shape (nodes, resources): the least that any stuck user below needs."""
    kinds: NDArray[np.int64]
    """By node, classes of machines that any of them may use, as bits."""
    stack: NDArray[np.int64]
    """Scratch."""


def new_stuck(tree: Tournament, resources: int) -> Stuck:
    """Return nobody."""
    nodes = len(tree.winner)
    return Stuck(
        np.full((nodes, resources), _TOO_MUCH), np.zeros(nodes, np.int64), np.empty(nodes, np.int64)
    )


@kernel
def set_aside(
    stuck: Stuck, room: FreeCapacityArrays, user: int, need: NDArray[np.int64], constraint: int
) -> None:
    """Say that a user is stuck. O(log n)."""
    k = len(stuck.least) // 2 + user
    for r in range(len(need)):
        stuck.least[k, r] = need[r]
    stuck.kinds[k] = mask(room, constraint)
    _renew_minima(stuck, k)


@kernel
def take_back(stuck: Stuck, user: int) -> None:
    """Say that a user is not stuck, or no longer. O(log n)."""
    k = len(stuck.least) // 2 + user
    if stuck.kinds[k] != 0:
        stuck.least[k, :] = _TOO_MUCH
        stuck.kinds[k] = 0
        _renew_minima(stuck, k)


@kernel
def _renew_minima(stuck: Stuck, leaf: int) -> None:
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
    room: FreeCapacityArrays,
    constraint: NDArray[np.int64],
    machine: int,
    before: int,
    s: float,
) -> int:
    """Return the first stuck user who could run on a machine, if it precedes a user, or NOBODY.

    Args:
        stuck: Who is stuck.
        tree: Must stand at s.
        lines: Priorities.
        room: Machines.
        constraint: By user, that of the next task.
        machine: Where something has become free.
        before: A user, or NOBODY.
        s: The present.
    """
    leaves = len(tree.winner) // 2
    free = room.free[len(room.free) // 2 + machine]
    kind = bit(room.kind[machine])
    best, found = before, wide(NOBODY)
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
            and allows(room, constraint[first], machine)
        ):
            best = found = first
        elif k < leaves:
            stuck.stack[depth] = 2 * k + 1
            stuck.stack[depth + 1] = 2 * k
            depth += 2
    return found
