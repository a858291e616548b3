"""Who is first among users whose priorities drift: a tournament whose results have an expiry.

A Live Tree keeps all users in order, and follows every change of places. To know the first one
less is enough: a tree of matches, in which the winner of each stays until the two could change
places. Matches are decided exactly, so the first user is that of the Live Tree and of a scan.

A priority is the maximum of lines value + slope·s, s > 0, where s falls as time passes; without
drift there is one line, of slope 0.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from allocator.simulation.kernels.compiled import kernel
from allocator.simulation.kernels.exact import ULP, order

NOBODY = -1
NO_EXPIRY = -1.0
"""An s that never comes."""


class Tournament(NamedTuple):
    """A binary tree in arrays: the children of match k are 2k and 2k + 1; leaves are users."""

    winner: NDArray[np.int64]
    match_until: NDArray[np.float64]
    """s down to which the match's own result surely holds."""
    until: NDArray[np.float64]
    """s down to which all results below hold as well: the maximum of theirs."""
    due: NDArray[np.int64]
    """Scratch."""
    replayed: NDArray[np.int64]
    """One entry: how many matches were played again because time passed."""


def new_tournament(users: int) -> Tournament:
    """Return a tournament in which nobody takes part."""
    leaves = 1
    while leaves < users:
        leaves *= 2
    leaves = max(leaves, 2)
    return Tournament(
        winner=np.full(2 * leaves, NOBODY, np.int64),
        match_until=np.full(2 * leaves, NO_EXPIRY),
        until=np.full(2 * leaves, NO_EXPIRY),
        due=np.empty(2 * leaves, np.int64),
        replayed=np.zeros(1, np.int64),
    )


@kernel
def precedes(lines: NDArray[np.float64], u: int, v: int, s: float) -> bool:
    """Whether user u comes before user v just after s.

    By value, then by who grows slower, then by number.

    Args:
        lines: Shape (users, lines, 2): value and slope.
        u: A user.
        v: Another.
        s: Where they are compared.
    """
    high_u = high_v = -np.inf
    size = 0.0
    for r in range(lines.shape[1]):
        moved = lines[u, r, 1] * s
        high_u = max(high_u, lines[u, r, 0] + moved)
        size = max(size, abs(lines[u, r, 0]) + abs(moved))
        moved = lines[v, r, 1] * s
        high_v = max(high_v, lines[v, r, 0] + moved)
        size = max(size, abs(lines[v, r, 0]) + abs(moved))
    ahead = high_u - high_v
    if abs(ahead) > 16 * ULP * size:
        return ahead < 0.0
    sign = _order_exactly(lines, u, v, s)
    return u < v if sign == 0 else sign < 0


@kernel
def _order_exactly(lines: NDArray[np.float64], u: int, v: int, s: float) -> int:
    alike = True
    for r in range(lines.shape[1]):
        alike &= lines[u, r, 0] == lines[v, r, 0] and lines[u, r, 1] == lines[v, r, 1]
    if alike:
        return 0
    i, j = _highest(lines, u, s), _highest(lines, v, s)
    sign = order(lines[u, i, 0], lines[u, i, 1], lines[v, j, 0], lines[v, j, 1], s)
    if sign != 0:
        return sign
    # As s falls a line grows by minus its slope.
    return 1 if lines[u, i, 1] < lines[v, j, 1] else int(-(lines[u, i, 1] > lines[v, j, 1]))


@kernel
def _highest(lines: NDArray[np.float64], u: int, s: float) -> int:
    """Return the line that is the maximum just after s."""
    best = 0
    for r in range(1, lines.shape[1]):
        sign = order(lines[u, r, 0], lines[u, r, 1], lines[u, best, 0], lines[u, best, 1], s)
        if sign > 0 or (sign == 0 and lines[u, r, 1] < lines[u, best, 1]):
            best = r
    return best


@kernel
def holds_until(lines: NDArray[np.float64], winner: int, loser: int, s: float) -> float:
    """Return down to which s the winner at s surely stays first; may be early, never late.

    The winner falls behind where one of its lines rises over all of the loser's, so not before
    that line rises over the one that is the loser's maximum at s.
    """
    best = 0
    high = lines[loser, 0, 0] + lines[loser, 0, 1] * s
    for r in range(1, lines.shape[1]):
        value = lines[loser, r, 0] + lines[loser, r, 1] * s
        if value > high:
            high, best = value, r
    b, n = lines[loser, best, 0], lines[loser, best, 1]
    soon = np.nextafter(s, 0.0)
    until = NO_EXPIRY
    for r in range(lines.shape[1]):
        a, m = lines[winner, r, 0], lines[winner, r, 1]
        if m < n:
            if a > b:
                until = max(until, min((a - b) / (n - m) * (1.0 + 8 * ULP), soon))
        elif order(a, m, b, n, s) > 0:
            until = soon  # b + n·s is not the maximum, only close to it
    return until


@kernel
def _play(tree: Tournament, lines: NDArray[np.float64], k: int, s: float) -> None:
    u, v = tree.winner[2 * k], tree.winner[2 * k + 1]
    if min(u, v) == NOBODY:
        tree.winner[k] = max(u, v)
        tree.match_until[k] = NO_EXPIRY
    elif precedes(lines, u, v, s):
        tree.winner[k] = u
        tree.match_until[k] = holds_until(lines, u, v, s)
    else:
        tree.winner[k] = v
        tree.match_until[k] = holds_until(lines, v, u, s)
    tree.until[k] = _earliest(tree, k)


@kernel
def _earliest(tree: Tournament, k: int) -> float:
    """Return the s, as it falls, at which the first result at or below a match expires."""
    until: float = max(tree.match_until[k], tree.until[2 * k], tree.until[2 * k + 1])
    return until


@kernel
def play_all(
    tree: Tournament,
    lines: NDArray[np.float64],
    active: NDArray[np.bool_],
    s: float,
) -> None:
    """Let all active users, and nobody else, take part. O(n)."""
    leaves = len(tree.winner) // 2
    for u in range(len(active)):
        tree.winner[leaves + u] = u if active[u] else NOBODY
    for k in range(leaves - 1, 0, -1):
        _play(tree, lines, k, s)


@kernel
def advance(tree: Tournament, lines: NDArray[np.float64], s: float) -> None:
    """Move to a later s. O(1) if nothing is due, else O(log n) for each match that is."""
    if tree.until[1] < s:
        return
    leaves = len(tree.winner) // 2
    tree.due[0] = 1
    found, looked = 1, 0
    while looked < found:
        k = tree.due[looked]
        looked += 1
        for child in (2 * k, 2 * k + 1):
            if child < leaves and tree.until[child] >= s:
                tree.due[found] = child
                found += 1
    tree.replayed[0] += found
    for i in range(found - 1, -1, -1):  # children before parents
        _play(tree, lines, tree.due[i], s)


@kernel
def change(
    tree: Tournament,
    lines: NDArray[np.float64],
    user: int,
    active: bool,
    s: float,
) -> None:
    """Follow a user whose lines have changed, who comes or who goes. O(log n).

    The tournament must have been moved to s.
    """
    leaves = len(tree.winner) // 2
    k = leaves + user
    tree.winner[k] = user if active else NOBODY
    concerned = True
    while k > 1:
        k //= 2
        if concerned:
            before = tree.winner[k]
            _play(tree, lines, k, s)
            after = tree.winner[k]
            concerned = before != after or after == user
        else:
            until = _earliest(tree, k)
            if until == tree.until[k]:
                return
            tree.until[k] = until
