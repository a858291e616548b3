"""The Live Tree on arrays: keeps users sorted while priorities drift, and counts swaps.

Time enters as the decay factor s = e^(−t/τ), which falls as time t passes. A user's priority is its
*envelope*: the maximum of the user's lines value + slope·s. An *event* is a possible swap of two
neighbours in the order, due at the s at which their priorities are equal.

The module computes the same as `allocator.fairness.live_tree` and `allocator.fairness.priorities`.
Due times must agree to the last bit, so that ties are resolved equally.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from allocator.simulation.kernels.compiled import kernel, part
from allocator.simulation.kernels.exact import ULP, order
from allocator.simulation.kernels.tournament import precedes

_EARLY, _LATE = 1.0 + 8 * ULP, 1.0 - 8 * ULP
_NEVER = -1.0
_NONE = -1

SIZE, PENDING, SERIAL, EVENTS = range(4)
"""Indices in `LiveTreeArrays.numbers`.

SIZE: users in the tree. PENDING: pending events. SERIAL: events ever scheduled. EVENTS: processed
events.
"""


class LiveTreeArrays(NamedTuple):
    """Users sorted by priority, and a heap of events (possible swaps of two neighbours).

    The event of two neighbours belongs to the user in front. It is due when this user falls behind
    its successor.
    """

    users: NDArray[np.int64]
    """Users in order of priority at the current s."""
    envelope: NDArray[np.float64]
    """Lines of each user's priority as (value, slope), shape (users, lines, 2).

    Only lines are stored that could be the user's maximum after its insertion. Unused entries
    repeat the first line.
    """
    straight: NDArray[np.bool_]
    """By user: True if the envelope has only one line."""
    heap: NDArray[np.int64]
    """Heap of users that have an event.

    The event with the largest s, which is due first, is on top.
    """
    place: NDArray[np.int64]
    """By user: index of its event in the heap, or −1 without an event."""
    when: NDArray[np.float64]
    """By user: the s at which the event is due."""
    serial: NDArray[np.int64]
    """By user: serial number of the event. Among events at the same s, the lowest number is first.
    """
    moved: NDArray[np.int64]
    """Scratch space of the functions, without meaning between calls."""
    numbers: NDArray[np.int64]
    s: NDArray[np.float64]
    """Array with one entry, the current s."""


def new_live_tree(users: int, lines: int) -> LiveTreeArrays:
    """Return a tree without users, with s = 1.

    Args:
        users: Maximum number of users.
        lines: Maximum number of lines (value + slope·s) in a user's priority.
    """
    return LiveTreeArrays(
        users=np.empty(users, np.int64),
        envelope=np.empty((users, lines, 2)),
        straight=np.empty(users, np.bool_),
        heap=np.empty(users, np.int64),
        place=np.full(users, _NONE, np.int64),
        when=np.empty(users),
        serial=np.empty(users, np.int64),
        moved=np.empty(users, np.int64),
        numbers=np.zeros(4, np.int64),
        s=np.ones(1),
    )


@kernel
def clear(tree: LiveTreeArrays, s: float) -> None:
    """Remove all users and events, and set the current decay factor s."""
    tree.numbers[SIZE] = tree.numbers[PENDING] = 0
    tree.place[:] = _NONE
    tree.s[0] = s


@part
def update(tree: LiveTreeArrays, s: float) -> None:
    """Advance the clock to a later time, and process the swaps that are due until then.

    Python counterpart: `LiveTree.update`.

    Args:
        tree: The sorted users.
        s: The decay factor e^(−t/τ) at the new time t. Calls with an s that is not lower than the
            current s change nothing.
    """
    if s < tree.s[0]:
        if tree.numbers[PENDING] > 0 and tree.when[tree.heap[0]] >= s:
            _pass_events(tree, s)
        tree.s[0] = s


@kernel
def _pass_events(tree: LiveTreeArrays, s: float) -> None:
    """Advance the clock to a later time and process its due swaps, for `update`.

    Args:
        tree: The sorted users. At least one event must be due.
        s: The decay factor e^(−t/τ) at the new time t.
    """
    if _swap(tree, s):
        return
    moved = 0
    while tree.numbers[PENDING] > 0 and tree.when[tree.heap[0]] >= s:
        position = _position(tree, tree.heap[0])
        tree.moved[moved] = tree.users[position]
        tree.moved[moved + 1] = tree.users[position + 1]
        tree.numbers[EVENTS] += 1
        _take_out(tree, position, 2)
        moved += 2
    tree.s[0] = s
    for i in range(moved):
        _put(tree, tree.moved[i])


@part
def _swap(tree: LiveTreeArrays, s: float) -> bool:
    """Try a shortcut for `_pass_events`: swap two users in place. Return whether it was possible.

    The shortcut is possible if only one event (a possible swap of two neighbours) is due, and both
    users stay between the same neighbours. The general method, which removes and inserts both
    users, would then schedule their events in the same order.

    Args:
        tree: The sorted users. At least one event must be due.
        s: The decay factor e^(−t/τ) at the new time t.
    """
    for i in range(1, min(3, tree.numbers[PENDING])):
        if tree.when[tree.heap[i]] >= s:
            return False
    users, envelope = tree.users, tree.envelope
    first = _position(tree, tree.heap[0])
    u, v = users[first], users[first + 1]
    swapped = precedes(envelope, v, u, s)
    front, back = (v, u) if swapped else (u, v)
    has_left, has_right = first > 0, first + 2 < tree.numbers[SIZE]
    if has_left and not precedes(envelope, users[first - 1], front, s):
        return False
    if has_right and not precedes(envelope, back, users[first + 2], s):
        return False
    if has_left and has_right and _meet(tree, users[first - 1], users[first + 2]) >= s:
        return False
    tree.numbers[EVENTS] += 1
    tree.s[0] = s
    users[first], users[first + 1] = front, back
    positions = (first + 1, first - 1, first) if swapped else (first - 1, first, first + 1)
    for i in positions:
        _update_event(tree, i)
    return True


@kernel
def insert(tree: LiveTreeArrays, lines: NDArray[np.float64], u: int) -> None:
    """Insert a user that is not in the tree yet.

    Python counterpart: `LiveTree.insert`.

    Args:
        tree: The sorted users.
        lines: Lines (value, slope) of all users, shape (users, lines, 2). A user's priority is the
            maximum of value + slope·s over its lines.
        u: The user's number.
    """
    _prune(tree, lines, u, tree.s[0])
    _put(tree, u)


@kernel
def delete(tree: LiveTreeArrays, u: int) -> None:
    """Remove user u from the tree, with its event.

    Python counterpart: `LiveTree.delete`.
    """
    _take_out(tree, _position(tree, u), 1)


@part
def replace(tree: LiveTreeArrays, lines: NDArray[np.float64], u: int) -> None:
    """Move a user to its new position after its priority changed.

    Python counterpart: `LiveTree.replace`.

    Args:
        tree: The sorted users.
        lines: Lines (value, slope) of all users, shape (users, lines, 2). A user's priority is the
            maximum of value + slope·s over its lines.
        u: The user's number.
    """
    users, size = tree.users, tree.numbers[SIZE]
    before = _position(tree, u)
    _prune(tree, lines, u, tree.s[0])
    if before > 0 and not precedes(tree.envelope, users[before - 1], u, tree.s[0]):
        after = _place(users, tree.envelope, tree.s[0], u, 0, before - 1)
        _shift_right(users[after : before + 1])
        gap = before
    else:
        after = _place(users, tree.envelope, tree.s[0], u, before + 1, size) - 1
        _shift_left(users[before : after + 1], 1)
        gap = before - 1 if after > before else _NONE
    users[after] = u
    for i in (gap, after - 1, after):
        _update_event(tree, i)


@kernel
def _put(tree: LiveTreeArrays, u: int) -> None:
    users = tree.users
    position = _place(users, tree.envelope, tree.s[0], u, 0, tree.numbers[SIZE])
    tree.numbers[SIZE] += 1
    _shift_right(users[position : tree.numbers[SIZE]])
    users[position] = u
    _update_events(tree, position - 1, position + 1)


@kernel
def _take_out(tree: LiveTreeArrays, position: int, number: int) -> None:
    """Remove users from consecutive positions of the order, and close the gap.

    Args:
        tree: The sorted users.
        position: Position of the first user to remove.
        number: Number of users to remove.
    """
    for i in range(position, position + number):
        _cancel(tree, tree.users[i])
    _shift_left(tree.users[position : tree.numbers[SIZE]], number)
    tree.numbers[SIZE] -= number
    _update_events(tree, position - 1, position)


@part
def _shift_left(window: NDArray[np.int64], number: int) -> None:
    """Move all entries of an array `number` places to the left; the first `number` are lost.

    The last `number` entries keep their values. Callers pass a slice of the array of users.
    """
    for i in range(len(window) - number):
        window[i] = window[i + number]


@part
def _shift_right(window: NDArray[np.int64]) -> None:
    for i in range(len(window) - 1, 0, -1):
        window[i] = window[i - 1]


@part
def _prune(tree: LiveTreeArrays, lines: NDArray[np.float64], u: int, s: float) -> None:
    """Copy a user's lines to the tree, without lines that can no longer be the maximum.

    Python counterpart: `priorities.envelope`.

    Args:
        tree: The sorted users.
        lines: Lines (value, slope) of all users, shape (users, lines, 2). A user's priority is the
            maximum of value + slope·s over its lines.
        u: The user's number.
        s: The decay factor e^(−t/τ) at the current time t. A line is left out if others are higher
            now and at all later times, when s is lower.
    """
    envelope = tree.envelope[u]
    size = len(envelope)
    for i in range(size):  # sort by value, then slope, highest first
        value, slope = lines[u, i, 0], lines[u, i, 1]
        j = i
        while j > 0 and (
            envelope[j - 1, 0] < value
            or (envelope[j - 1, 0] == value and envelope[j - 1, 1] < slope)
        ):
            envelope[j, 0], envelope[j, 1] = envelope[j - 1, 0], envelope[j - 1, 1]
            j -= 1
        envelope[j, 0], envelope[j, 1] = value, slope
    count = 0
    for i in range(size):
        value, slope = envelope[i, 0], envelope[i, 1]
        needed = True
        for j in range(count):
            needed &= not (
                envelope[j, 0] >= value
                and (
                    envelope[j, 1] >= slope
                    or _above(envelope[j, 0], envelope[j, 1], value, slope, s)
                )
            )
        if needed:
            envelope[count, 0], envelope[count, 1] = value, slope
            count += 1
    for i in range(count, size):
        envelope[i, 0], envelope[i, 1] = envelope[0, 0], envelope[0, 1]
    tree.straight[u] = count == 1


@kernel
def _above(a: float, m: float, b: float, n: float, s: float) -> bool:
    """Return whether a + m·s exceeds b + n·s by more than the rounding error of both sums.

    The error bound is the same as in `allocator.fairness.priorities`.
    """
    rise, other_rise = m * s, n * s
    size = abs(a) + abs(rise) + abs(b) + abs(other_rise)
    return (a + rise) - (b + other_rise) > 16 * ULP * size


@part
def _position(tree: LiveTreeArrays, u: int) -> int:
    """Return the position of user u, which is in the tree; 0 is the first user in the order.

    Costs O(log n) for n users, but O(1) for the first user, which is the usual case.
    """
    if tree.users[0] == u:
        return 0
    return _place(tree.users, tree.envelope, tree.s[0], u, 0, tree.numbers[SIZE])


@kernel
def _place(
    users: NDArray[np.int64],
    envelope: NDArray[np.float64],
    s: float,
    u: int,
    low: int,
    high: int,
) -> int:
    """Return the position in the order at which a user belongs, by binary search.

    Python counterpart: `Envelopes.position`.

    Args:
        users: Users in order of priority.
        envelope: Lines (value, slope) of all users, shape (users, lines, 2). A user's priority is
            the maximum of value + slope·s over its lines.
        s: The decay factor e^(−t/τ) at the current time t.
        u: The user to place.
        low: First position of the search.
        high: Position after the last position of the search.
    """
    own, own_size = _value(envelope[u], s)
    while low < high:
        middle = (low + high) // 2
        v = users[middle]
        other_value, size = _value(envelope[v], s)
        doubt = 16 * ULP * (own_size + size)
        if other_value - own > doubt:
            high = middle
        elif own - other_value > doubt or (v != u and precedes(envelope, v, u, s)):
            low = middle + 1
        else:
            high = middle
    return low


@part
def _value(envelope: NDArray[np.float64], s: float) -> tuple[float, float]:
    """Return (value, size): a user's priority at s, and the scale of its rounding error.

    The size is the largest |value| + |slope·s| of the user's lines. The priority's rounding error
    is at most a few units in the last place of the size.

    Args:
        envelope: The user's lines (value, slope). Its priority is the maximum of value + slope·s
            over these lines.
        s: The decay factor e^(−t/τ) at the current time t.
    """
    value, size = -np.inf, 0.0
    for r in range(len(envelope)):
        moved = envelope[r, 1] * s
        value = max(value, envelope[r, 0] + moved)
        size = max(size, abs(envelope[r, 0]) + abs(moved))
    return value, size


@kernel
def _update_events(tree: LiveTreeArrays, first: int, end: int) -> None:
    """Schedule the swaps of neighbours again, after users were moved.

    Args:
        tree: The sorted users.
        first: First position in the order whose user may swap with its successor.
        end: Position after the last such position.
    """
    for i in range(first, end):
        _update_event(tree, i)


@part
def _update_event(tree: LiveTreeArrays, i: int) -> None:
    """Schedule the swap of the users at positions i and i + 1, or cancel it if they never meet.

    A negative position is ignored.
    """
    if i >= 0:
        user = tree.users[i]
        when = _NEVER
        if i + 1 < tree.numbers[SIZE]:
            when = _meet(tree, user, tree.users[i + 1])
        if when == _NEVER:
            _cancel(tree, user)
        else:
            tree.when[user] = when
            tree.serial[user] = tree.numbers[SERIAL]
            tree.numbers[SERIAL] += 1
            if tree.place[user] == _NONE:
                tree.place[user] = tree.numbers[PENDING]
                tree.numbers[PENDING] += 1
            _sift(tree, user, tree.place[user])


@part
def _meet(tree: LiveTreeArrays, u: int, v: int) -> float:
    """Return the s at which user u falls behind its successor v, or _NEVER.

    The search begins at the tree's current s and goes down, forward in time.
    """
    a, b = tree.envelope[u], tree.envelope[v]
    if tree.straight[u] and tree.straight[v]:
        return _meeting(a[0, 0], a[0, 1], b[0, 0], b[0, 1], tree.s[0])
    return _crossing(a, b, tree.s[0])


@kernel
def _cancel(tree: LiveTreeArrays, u: int) -> None:
    """Remove the event of user u from the heap, if there is one: the swap with its successor."""
    gap = tree.place[u]
    if gap == _NONE:
        return
    tree.place[u] = _NONE
    tree.numbers[PENDING] -= 1
    last = tree.numbers[PENDING]
    if gap != last:
        _sift(tree, tree.heap[last], gap)


@kernel
def _sift(tree: LiveTreeArrays, u: int, gap: int) -> None:
    """Put a user's event into the entry `gap` of the heap, and restore the order of the heap.

    Args:
        tree: The sorted users, with the heap of events.
        u: The user in front of the two neighbours. Its due time in `when` must be set.
        gap: Index of the heap entry to fill, whose former event is moved or removed.
    """
    i, size = gap, tree.numbers[PENDING]
    while i > 0 and _sooner(tree, u, tree.heap[(i - 1) // 2]):
        tree.heap[i] = tree.heap[(i - 1) // 2]
        tree.place[tree.heap[i]] = i
        i = (i - 1) // 2
    while 2 * i + 1 < size:
        child = 2 * i + 1
        if child + 1 < size and _sooner(tree, tree.heap[child + 1], tree.heap[child]):
            child += 1
        if not _sooner(tree, tree.heap[child], u):
            break
        tree.heap[i] = tree.heap[child]
        tree.place[tree.heap[i]] = i
        i = child
    tree.heap[i] = u
    tree.place[u] = i


@kernel
def _sooner(tree: LiveTreeArrays, u: int, v: int) -> bool:
    if tree.when[u] != tree.when[v]:
        return tree.when[u] > tree.when[v]  # type: ignore[no-any-return]
    return tree.serial[u] < tree.serial[v]  # type: ignore[no-any-return]


@part
def _crossing(a: NDArray[np.float64], b: NDArray[np.float64], now: float) -> float:
    """Return the s at which the user in front falls behind its successor, or _NEVER.

    Python counterpart: `Envelopes.crossing`. If there are several crossings, the result is the
    highest s, as this is the earliest in time.

    Args:
        a: Lines (value, slope) of the user in front.
        b: Lines (value, slope) of its successor.
        now: The decay factor e^(−t/τ) at the current time t.
    """
    first = _NEVER
    same = True
    for i in range(len(a)):
        same &= a[i, 0] == b[i, 0] and a[i, 1] == b[i, 1]
    if same:
        return first
    for i in range(len(a)):
        for j in range(len(b)):
            when = _meeting(a[i, 0], a[i, 1], b[j, 0], b[j, 1], now)
            if when > first:
                s = (b[j, 0] - a[i, 0]) / (a[i, 1] - b[j, 1])
                if not (_hidden(a, i, s) or _hidden(b, j, s)):
                    first = when
    return first


@kernel
def _meeting(a: float, m: float, b: float, n: float, now: float) -> float:
    """Return the s at which the lines a + m·s and b + n·s are equal in future, or _NEVER.

    The result is between 0 and `now`, and rounded up, so that the event is rather too early than
    too late.

    Args:
        a: Value of the first line.
        m: Slope of the first line.
        b: Value of the second line.
        n: Slope of the second line.
        now: The decay factor e^(−t/τ) at the current time t.
    """
    if m == n or a == b or (a < b) != (n < m):  # parallel, or meeting at s ≤ 0
        return _NEVER
    s = (b - a) / (m - n)
    early = s * _EARLY
    if s <= 0.0 or s * _LATE >= now:
        return _NEVER
    if early >= now:
        ahead = order(a, m, b, n, now)
        if (ahead if m < n else -ahead) >= 0:  # they have already met
            return _NEVER
        return now
    return early


@part
def _hidden(envelope: NDArray[np.float64], line: int, s: float) -> bool:
    """Return whether a line of an envelope is below the envelope's maximum at s.

    Rounding errors are taken into account, as in `allocator.fairness.priorities`.

    Args:
        envelope: The user's lines (value, slope). Its priority is the maximum of value + slope·s
            over these lines.
        line: Index of the line.
        s: The decay factor e^(−t/τ) at the current time t.
    """
    hidden = False
    for index in range(len(envelope)):
        hidden |= _above(
            envelope[index, 0], envelope[index, 1], envelope[line, 0], envelope[line, 1], s
        )
    return hidden
