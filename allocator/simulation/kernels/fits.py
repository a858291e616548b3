"""The first user whose next task fits, without looking at everybody."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from allocator.simulation.kernels.compiled import kernel
from allocator.simulation.kernels.tournament import NOBODY, Tournament, precedes

_TOO_MUCH = np.iinfo(np.int64).max


class Needs(NamedTuple):
    """Beside a tournament's matches the least that any user below needs of each resource."""

    least: NDArray[np.int64]
    """Shape (matches and leaves, resources)."""
    stack: NDArray[np.int32]
    """Scratch."""


def new_needs(tree: Tournament, resources: int) -> Needs:
    """Return the needs of a tournament in which nobody takes part."""
    nodes = len(tree.winner)
    return Needs(np.full((nodes, resources), _TOO_MUCH), np.empty(nodes, np.int32))


@kernel
def set_need(needs: Needs, user: int, need: NDArray[np.int64], waiting: bool) -> None:
    """Follow a user's next task. O(log n)."""
    k = len(needs.least) // 2 + user
    for r in range(len(need)):
        needs.least[k, r] = need[r] if waiting else _TOO_MUCH
    while k > 1:
        k //= 2
        same = True
        for r in range(len(need)):
            least = min(needs.least[2 * k, r], needs.least[2 * k + 1, r])
            same &= least == needs.least[k, r]
            needs.least[k, r] = least
        if same:
            return


@kernel
def first_that_fits(
    needs: Needs,
    tree: Tournament,
    lines: NDArray[np.float64],
    free: NDArray[np.int64],
    s: float,
) -> int:
    """Return the first user whose need is free, or NOBODY; the tournament must stand at s.

    Subtrees in which nobody's need is free, or whose first user is behind one that was found,
    are passed over.
    """
    leaves = len(tree.winner) // 2
    best = NOBODY
    needs.stack[0] = 1
    depth = 1
    while depth > 0:
        depth -= 1
        k = needs.stack[depth]
        if tree.winner[k] == NOBODY or not fits(needs.least[k], free):
            continue
        first = tree.winner[k]
        if best != NOBODY and precedes(lines, best, first, s):
            continue
        if fits(needs.least[leaves + first], free):
            best = first
        else:  # not a leaf: that one's least is its user's need
            needs.stack[depth] = 2 * k
            needs.stack[depth + 1] = 2 * k + 1
            depth += 2
    return best


@kernel
def fits(need: NDArray[np.int64], free: NDArray[np.int64]) -> bool:
    """Whether there is as much of everything."""
    enough = True
    for r in range(len(need)):
        enough &= need[r] <= free[r]
    return enough
