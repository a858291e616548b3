"""The Live Tree in arrays, to count its events, and to say who is first where it is kept anyway.

The steps of allocator.fairness.live_tree on the envelopes of allocator.fairness.priorities, to the
last bit of every crossing: of crossings it is only their order that counts, but that has ties.
Its time is s, which falls.
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

SIZE, BOOKED, SERIAL, EVENTS = range(4)
"""Places in `LiveTreeArrays.numbers`: users in the tree, events to come, events ever booked,
and events processed."""


class LiveTreeArrays(NamedTuple):
    """Users in order, and for each the event with its successor, if there is to be one."""

    users: NDArray[np.int64]
    """In order of priority at s."""
    envelope: NDArray[np.float64]
    """By user, shape (users, lines, 2): value and slope of the lines that can be the maximum when
    it was put in; the rest repeats the first."""
    straight: NDArray[np.bool_]
    """By user, whether there is one such line only."""
    heap: NDArray[np.int64]
    """Users with an event, that with the largest s first."""
    place: NDArray[np.int64]
    """By user, the place in the heap or −1."""
    when: NDArray[np.float64]
    """By user, the event's s."""
    serial: NDArray[np.int64]
    """By user; of events at the same s that which was booked first is first."""
    moved: NDArray[np.int64]
    """Scratch."""
    numbers: NDArray[np.int64]
    s: NDArray[np.float64]
    """One entry: the present."""


def new_live_tree(users: int, lines: int) -> LiveTreeArrays:
    """Return an empty tree for so many users, with room for so many lines each."""
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
    """Begin anew with an empty tree."""
    tree.numbers[SIZE] = tree.numbers[BOOKED] = 0
    tree.place[:] = _NONE
    tree.s[0] = s


@part
def update(tree: LiveTreeArrays, s: float) -> None:
    """LiveTree.update."""
    if s < tree.s[0]:
        if tree.numbers[BOOKED] > 0 and tree.when[tree.heap[0]] >= s:
            _pass_events(tree, s)
        tree.s[0] = s


@kernel
def _pass_events(tree: LiveTreeArrays, s: float) -> None:
    """Move to a later s, before which there is at least one event."""
    if _swap(tree, s):
        return
    moved = 0
    while tree.numbers[BOOKED] > 0 and tree.when[tree.heap[0]] >= s:
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
    """Process the first event where it stands, if it is the only one until s; return whether it is.

    Taken out and put in again, its two users would come between the same neighbours, and their
    events be booked in the order in which they are booked here.
    """
    for i in range(1, min(3, tree.numbers[BOOKED])):
        if tree.when[tree.heap[i]] >= s:
            return False
    users, envelope = tree.users, tree.envelope
    first = _position(tree, tree.heap[0])
    u, v = users[first], users[first + 1]
    turned = precedes(envelope, v, u, s)
    front, back = (v, u) if turned else (u, v)
    left, right = first > 0, first + 2 < tree.numbers[SIZE]
    if left and not precedes(envelope, users[first - 1], front, s):
        return False
    if right and not precedes(envelope, back, users[first + 2], s):
        return False
    if left and right and _meet(tree, users[first - 1], users[first + 2]) >= s:
        return False
    tree.numbers[EVENTS] += 1
    tree.s[0] = s
    users[first], users[first + 1] = front, back
    places = (first + 1, first - 1, first) if turned else (first - 1, first, first + 1)
    for i in places:
        _renew_at(tree, i)
    return True


@kernel
def insert(tree: LiveTreeArrays, lines: NDArray[np.float64], u: int) -> None:
    """LiveTree.insert, of a user with the lines that it has now."""
    _prune(tree, lines, u, tree.s[0])
    _put(tree, u)


@kernel
def delete(tree: LiveTreeArrays, u: int) -> None:
    """LiveTree.delete."""
    _take_out(tree, _position(tree, u), 1)


@part
def replace(tree: LiveTreeArrays, lines: NDArray[np.float64], u: int) -> None:
    """LiveTree.replace, of a user by itself with the lines that it has now."""
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
        _renew_at(tree, i)


@kernel
def _put(tree: LiveTreeArrays, u: int) -> None:
    users = tree.users
    position = _place(users, tree.envelope, tree.s[0], u, 0, tree.numbers[SIZE])
    tree.numbers[SIZE] += 1
    _shift_right(users[position : tree.numbers[SIZE]])
    users[position] = u
    _renew(tree, position - 1, position + 1)


@kernel
def _take_out(tree: LiveTreeArrays, position: int, number: int) -> None:
    """LiveTree._take_out, of so many successive users."""
    for i in range(position, position + number):
        _cancel(tree, tree.users[i])
    _shift_left(tree.users[position : tree.numbers[SIZE]], number)
    tree.numbers[SIZE] -= number
    _renew(tree, position - 1, position)


@part
def _shift_left(window: NDArray[np.int64], number: int) -> None:
    """Move a window's users to its begin; a window of its own, so that no place is below 0."""
    for i in range(len(window) - number):
        window[i] = window[i + number]


@part
def _shift_right(window: NDArray[np.int64]) -> None:
    for i in range(len(window) - 1, 0, -1):
        window[i] = window[i - 1]


@part
def _prune(tree: LiveTreeArrays, lines: NDArray[np.float64], u: int, s: float) -> None:
    """priorities.envelope."""
    kept = tree.envelope[u]
    size = len(kept)
    for i in range(size):  # sorted, the highest value and then slope first
        value, slope = lines[u, i, 0], lines[u, i, 1]
        j = i
        while j > 0 and (
            kept[j - 1, 0] < value or (kept[j - 1, 0] == value and kept[j - 1, 1] < slope)
        ):
            kept[j, 0], kept[j, 1] = kept[j - 1, 0], kept[j - 1, 1]
            j -= 1
        kept[j, 0], kept[j, 1] = value, slope
    count = 0
    for i in range(size):
        value, slope = kept[i, 0], kept[i, 1]
        needed = True
        for j in range(count):
            needed &= not (
                kept[j, 0] >= value
                and (kept[j, 1] >= slope or _above(kept[j, 0], kept[j, 1], value, slope, s))
            )
        if needed:
            kept[count, 0], kept[count, 1] = value, slope
            count += 1
    for i in range(count, size):
        kept[i, 0], kept[i, 1] = kept[0, 0], kept[0, 1]
    tree.straight[u] = count == 1


@kernel
def _above(a: float, m: float, b: float, n: float, s: float) -> bool:
    """priorities._above: a + m·s over b + n·s beyond any rounding."""
    rise, other = m * s, n * s
    size = abs(a) + abs(rise) + abs(b) + abs(other)
    return (a + rise) - (b + other) > 16 * ULP * size


@part
def _position(tree: LiveTreeArrays, u: int) -> int:
    """Return where a user of the tree is; mostly it is the first that has changed. O(log n)."""
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
    """Envelopes.position: the first of successive places whose user does not precede one.

    Args:
        users: Those of the tree.
        envelope: Theirs.
        s: The present.
        u: A user, with the lines that it has now.
        low: The first place.
        high: The place after the last.
    """
    own, own_size = _value(envelope[u], s)
    while low < high:
        middle = (low + high) // 2
        v = users[middle]
        other, size = _value(envelope[v], s)
        doubt = 16 * ULP * (own_size + size)
        if other - own > doubt:
            high = middle
        elif own - other > doubt or (v != u and precedes(envelope, v, u, s)):
            low = middle + 1
        else:
            high = middle
    return low


@part
def _value(envelope: NDArray[np.float64], s: float) -> tuple[float, float]:
    """priorities._value."""
    value, size = -np.inf, 0.0
    for r in range(len(envelope)):
        moved = envelope[r, 1] * s
        value = max(value, envelope[r, 0] + moved)
        size = max(size, abs(envelope[r, 0]) + abs(moved))
    return value, size


@kernel
def _renew(tree: LiveTreeArrays, first: int, end: int) -> None:
    """Follow new successors of users at successive places."""
    for i in range(first, end):
        _renew_at(tree, i)


@part
def _renew_at(tree: LiveTreeArrays, i: int) -> None:
    """LiveTree._update_event, of the user at a place, if there is such a place."""
    if i >= 0:
        left = tree.users[i]
        when = _NEVER
        if i + 1 < tree.numbers[SIZE]:
            when = _meet(tree, left, tree.users[i + 1])
        if when == _NEVER:
            _cancel(tree, left)
        else:
            tree.when[left] = when
            tree.serial[left] = tree.numbers[SERIAL]
            tree.numbers[SERIAL] += 1
            if tree.place[left] == _NONE:
                tree.place[left] = tree.numbers[BOOKED]
                tree.numbers[BOOKED] += 1
            _sift(tree, left, tree.place[left])


@part
def _meet(tree: LiveTreeArrays, left: int, right: int) -> float:
    """Return the s at which a user falls behind one that comes after it, or never."""
    a, b = tree.envelope[left], tree.envelope[right]
    if tree.straight[left] and tree.straight[right]:
        return _meeting(a[0, 0], a[0, 1], b[0, 0], b[0, 1], tree.s[0])
    return _crossing(a, b, tree.s[0])


@kernel
def _cancel(tree: LiveTreeArrays, u: int) -> None:
    """LiveTree._cancel_event."""
    gap = tree.place[u]
    if gap == _NONE:
        return
    tree.place[u] = _NONE
    tree.numbers[BOOKED] -= 1
    last = tree.numbers[BOOKED]
    if gap != last:
        _sift(tree, tree.heap[last], gap)


@kernel
def _sift(tree: LiveTreeArrays, u: int, gap: int) -> None:
    """Put a user into a gap in the heap, or where it belongs from there."""
    i, size = gap, tree.numbers[BOOKED]
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
    """Envelopes.crossing."""
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
    """Return the s at which a + m·s and b + n·s meet after `now`, rounded towards it; or never."""
    if m == n or a == b or (a < b) != (n < m):  # also before s = 0
        return _NEVER
    s = (b - a) / (m - n)
    early = s * _EARLY
    if s <= 0.0 or s * _LATE >= now:
        return _NEVER
    if early >= now:
        ahead = order(a, m, b, n, now)
        if (ahead if m < n else -ahead) >= 0:  # they have met already
            return _NEVER
        return now
    return early


@part
def _hidden(envelope: NDArray[np.float64], line: int, s: float) -> bool:
    """priorities._hidden."""
    hidden = False
    for other in range(len(envelope)):
        hidden |= _above(
            envelope[other, 0], envelope[other, 1], envelope[line, 0], envelope[line, 1], s
        )
    return hidden
