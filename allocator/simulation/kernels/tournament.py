"""Finds the first user in the policy's order, by a tournament whose results expire.

Priorities drift as commitments decay. A Live Tree keeps all users sorted and processes every swap.
Finding only the first user takes less work: a binary tree of matches between two users. The winner
of a match comes first in the order, until the loser overtakes it. Matches are decided exactly, so
the first user is the same as with a Live Tree or a scan.

A priority is the maximum of lines value + slope·s; the lowest priority is first. The decay factor
s = e^(−t/τ) is positive and falls as time t passes. Without drift there is one line with slope 0.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from allocator.simulation.kernels.compiled import kernel
from allocator.simulation.kernels.exact import ULP, order

NOBODY = -1
NO_EXPIRY = -1.0
"""Expiry of a result that stays valid forever, as s never reaches this value."""


class Tournament(NamedTuple):
    """A binary tree in arrays. Match k has the children 2k and 2k + 1; leaves are users.

    The result of a match is valid while the decay factor s is at least the stored limit. At a later
    time, when s is lower, the match must be played again.
    """

    winner: NDArray[np.int64]
    match_until: NDArray[np.float64]
    """By match: lowest s down to which the match's own result is certain."""
    until: NDArray[np.float64]
    """By match: lowest s down to which its own result and all results below it are certain."""
    due: NDArray[np.int64]
    """Scratch space of `advance`."""
    replayed: NDArray[np.int64]
    """Array with one entry: how many matches were played again because their result expired."""


def new_tournament(users: int) -> Tournament:
    """Return a tournament in which no user participates yet.

    Args:
        users: Maximum number of users.
    """
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
    """Return whether user u comes before user v in the policy's order, at s and just after.

    Lower priority is first. Among equal priorities, the one that grows more slowly over time is
    first; if they also grow equally, the lower user number.

    Args:
        lines: Lines (value, slope) of all users, shape (users, lines, 2). A user's priority is the
            maximum of value + slope·s over its lines.
        u: Number of one user.
        v: Number of the other user.
        s: The decay factor e^(−t/τ) at the time t of the comparison.
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
    difference = high_u - high_v
    if abs(difference) > 16 * ULP * size:
        return difference < 0.0
    sign = _order_exactly(lines, u, v, s)
    return u < v if sign == 0 else sign < 0


@kernel
def _order_exactly(lines: NDArray[np.float64], u: int, v: int, s: float) -> int:
    same = True
    for r in range(lines.shape[1]):
        same &= lines[u, r, 0] == lines[v, r, 0] and lines[u, r, 1] == lines[v, r, 1]
    if same:
        return 0
    i, j = _highest(lines, u, s), _highest(lines, v, s)
    sign = order(lines[u, i, 0], lines[u, i, 1], lines[v, j, 0], lines[v, j, 1], s)
    if sign != 0:
        return sign
    # As s falls a line grows by minus its slope.
    return 1 if lines[u, i, 1] < lines[v, j, 1] else int(-(lines[u, i, 1] > lines[v, j, 1]))


@kernel
def _highest(lines: NDArray[np.float64], u: int, s: float) -> int:
    """Return the index of the line that determines user u's priority at s and just after.

    "Just after" means at a slightly lower s, as s falls when time passes.
    """
    best = 0
    for r in range(1, lines.shape[1]):
        sign = order(lines[u, r, 0], lines[u, r, 1], lines[u, best, 0], lines[u, best, 1], s)
        if sign > 0 or (sign == 0 and lines[u, r, 1] < lines[u, best, 1]):
            best = r
    return best


@kernel
def holds_until(lines: NDArray[np.float64], winner: int, loser: int, s: float) -> float:
    """Return a limit: while s is at least the limit, the match's winner stays ahead of the loser.

    As time passes, s falls below the limit, and the match must be played again. The limit may be
    too high (an early replay), but never too low.

    The winner falls behind when one of its lines rises above all of the loser's lines. The line
    must first rise above the loser's maximum at s, so that crossing is a safe limit.

    Args:
        lines: Lines (value, slope) of all users, shape (users, lines, 2). A user's priority is the
            maximum of value + slope·s over its lines.
        winner: Number of the user that is ahead at s.
        loser: Number of the other user.
        s: The decay factor e^(−t/τ) at the current time t.
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
    """Return the s at which match k, or a match below it, must be played again first.

    This is the highest of the matches' limits, because s falls as time passes.
    """
    until: float = max(tree.match_until[k], tree.until[2 * k], tree.until[2 * k + 1])
    return until


@kernel
def play_all(
    tree: Tournament,
    lines: NDArray[np.float64],
    active: NDArray[np.bool_],
    s: float,
) -> None:
    """Start the tournament again, with the active users as participants. O(n) for n users.

    Args:
        tree: The tournament to restart.
        lines: Lines (value, slope) of all users, shape (users, lines, 2). A user's priority is the
            maximum of value + slope·s over its lines.
        active: By user: True if the user has a waiting task.
        s: The decay factor e^(−t/τ) at the current time t.
    """
    leaves = len(tree.winner) // 2
    for u in range(len(active)):
        tree.winner[leaves + u] = u if active[u] else NOBODY
    for k in range(leaves - 1, 0, -1):
        _play(tree, lines, k, s)


@kernel
def advance(tree: Tournament, lines: NDArray[np.float64], s: float) -> None:
    """Advance the clock to a later time, and play the expired matches again.

    Costs O(1) if no result has expired, else O(log n) for each expired result.

    Args:
        tree: The tournament.
        lines: Lines (value, slope) of all users, shape (users, lines, 2). A user's priority is the
            maximum of value + slope·s over its lines.
        s: The decay factor e^(−t/τ) at the new time t, not above the former s.
    """
    if tree.until[1] < s:
        return
    leaves = len(tree.winner) // 2
    tree.due[0] = 1
    count, looked = 1, 0
    while looked < count:
        k = tree.due[looked]
        looked += 1
        for child in (2 * k, 2 * k + 1):
            if child < leaves and tree.until[child] >= s:
                tree.due[count] = child
                count += 1
    tree.replayed[0] += count
    for i in range(count - 1, -1, -1):  # children before parents
        _play(tree, lines, tree.due[i], s)


@kernel
def change(
    tree: Tournament,
    lines: NDArray[np.float64],
    user: int,
    active: bool,
    s: float,
) -> None:
    """Update the tournament after a user's priority changed, or it began or ceased to wait.

    Costs O(log n) for n users.

    Args:
        tree: The tournament; must be up to date at s.
        lines: Lines (value, slope) of all users, shape (users, lines, 2). A user's priority is the
            maximum of value + slope·s over its lines.
        user: The user that changed.
        active: True if the user has a waiting task from now on.
        s: The decay factor e^(−t/τ) at the current time t.
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
