"""Sets of integers as sorted, inclusive intervals with gaps between them: Mesos's RANGES."""

from collections.abc import Iterable
from itertools import chain, pairwise
from typing import TypeAlias

Ranges: TypeAlias = tuple[tuple[int, int], ...]
_LONGEST_MASK = 65536
"""Maximum number of bits of a mask: the number of ports of a machine."""


def coalesced(intervals: Iterable[tuple[int, int]]) -> Ranges:
    """Sort intervals that do not overlap, and join adjacent intervals (1-2, 3-4 → 1-4).

    Raises:
        ValueError: An interval ends before it begins, or two intervals overlap.
    """
    ordered = sorted(intervals)
    for begin, end in ordered:
        if begin > end:
            raise ValueError(f"range {begin}-{end} ends before it begins")
    for (begin, end), (next_begin, next_end) in pairwise(ordered):
        if next_begin <= end:
            raise ValueError(f"ranges {begin}-{end} and {next_begin}-{next_end} overlap")
    return _joined(ordered)


def union(*sets: Ranges) -> Ranges:
    """Return the integers that are in any of the sets; O(n log n) in the number of intervals."""
    return _joined(sorted(chain.from_iterable(sets)))


def difference(a: Ranges, b: Ranges) -> Ranges:
    """Return the integers of `a` that are not in `b`; O(len(a) + len(b))."""
    remaining: list[tuple[int, int]] = []
    holes = iter(b)
    hole = next(holes, None)
    for begin, end in a:
        start = begin
        while hole is not None and hole[0] <= end:
            if hole[1] >= start:
                if hole[0] > start:
                    remaining.append((start, hole[0] - 1))
                start = hole[1] + 1
            if hole[1] > end:
                break  # the hole may reach into the next interval, too
            hole = next(holes, None)
        if start <= end:
            remaining.append((start, end))
    return tuple(remaining)


def contains(a: Ranges, b: Ranges) -> bool:
    """Return whether `a` has all integers of `b`; O(len(a) + len(b)), less if it has not."""
    if not b:
        return True
    if not a or b[0][0] < a[0][0] or a[-1][1] < b[-1][1]:
        return False
    intervals = iter(a)
    first_in, last_in = next(intervals)
    for begin, end in b:
        while last_in < begin:
            first_in, last_in = next(intervals)
        if begin < first_in or last_in < end:
            return False
    return True


def first(a: Ranges, count: int) -> Ranges:
    """Return the `count` lowest integers of a set, or all if there are fewer."""
    taken: list[tuple[int, int]] = []
    for begin, end in a:
        if count <= 0:
            break
        taken.append((begin, min(end, begin + count - 1)))
        count -= end - begin + 1
    return tuple(taken)


def size(a: Ranges) -> int:
    """Return the number of integers in a set."""
    return sum(end - begin + 1 for begin, end in a)


def mask(a: Ranges) -> tuple[int, int] | None:
    """Return a set of integers as a bit mask, and the integer of its bit 0.

    The result is None for an empty set, and for a set whose mask would be too long.
    """
    if not a or a[-1][1] - a[0][0] >= _LONGEST_MASK:
        return None
    bits, base = 0, a[0][0]
    for begin, end in a:
        bits |= ((2 << end - begin) - 1) << begin - base
    return bits, base


def mask_contains(a: tuple[int, int], b: tuple[int, int]) -> bool:
    """Return whether the set of the first mask has all integers of the second."""
    (bits, base), (part, part_base) = a, b
    distance = part_base - base
    return 0 <= distance < _LONGEST_MASK and part << distance | bits == bits


def _joined(ordered: Iterable[tuple[int, int]]) -> Ranges:
    joined: list[tuple[int, int]] = []
    for begin, end in ordered:
        if joined and begin <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((begin, end))
    return tuple(joined)
