"""Sets of integers, which are the amounts of Mesos's RANGES: intervals, or a bit mask.

A set of few intervals is a tuple of them, and a dense set of many intervals is a `Mask`. An
operation on masks takes microseconds, even if each second port of a machine is used. The
representation depends only on the members, so equal sets are equal objects of Python.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from itertools import chain, compress, count, pairwise
from typing import NamedTuple, TypeAlias


class Mask(NamedTuple):
    """A set of integers as a bit mask."""

    base: int
    """The lowest integer of the set."""
    bits: int
    """Bit n is set if `base + n` is a member; bit 0 is always set."""


Intervals: TypeAlias = tuple[tuple[int, int], ...]
"""Sorted, inclusive intervals with gaps between them."""
Ranges: TypeAlias = Intervals | Mask

_FEW = 16
"""Number of intervals below which a set is not a mask."""
_SPARSE = 512
"""Bits of a mask for each interval; a sparser set is not a mask. An interval takes 1,000 bits."""
_LONGEST_MASK = 2**20
"""Maximum number of bits of a mask; the ports of a machine take 65,536."""
_SPLICED = 8
"""One of two sets has this many times more intervals: the few intervals are spliced into them."""
_FLAGS = bytes.maketrans(b"01", b"\0\1")
_ONE = ord("1")


def coalesced(entries: Iterable[tuple[int, int]]) -> Ranges:
    """Sort intervals that do not overlap, and join adjacent intervals (1-2, 3-4 → 1-4).

    Raises:
        ValueError: An interval ends before it begins, or two intervals overlap.
    """
    ordered = sorted(entries)
    joined: list[tuple[int, int]] = []
    last = -2
    for interval in ordered:
        begin, end = interval
        if end < begin or begin <= last:
            raise ValueError(_flaw(ordered))
        if begin == last + 1:
            joined[-1] = (joined[-1][0], end)
        else:
            joined.append(interval)
        last = end
    return _canonical(joined)


def intervals(a: Ranges) -> Intervals:
    """Return the intervals of a set; O(bits) for a mask."""
    return _intervals(a.base, a.bits) if isinstance(a, Mask) else a


def union(*sets: Ranges) -> Ranges:
    """Return the integers that are in any of the sets.

    Costs O(n log n) in the number of intervals, O(bits) for each mask, and less if a set has far
    more intervals than another.
    """
    masks = [numbers for numbers in sets if isinstance(numbers, Mask)]
    plain = [numbers for numbers in sets if not isinstance(numbers, Mask)]
    if len(sets) == 2 and not masks and _is_far_longer(plain[0], plain[1]):
        return _spliced(plain[0], plain[1])
    result = _joined(sorted(chain.from_iterable(plain)))
    for mask in masks:
        result = _union(result, mask) if result else mask
    return result


def difference(a: Ranges, b: Ranges) -> Ranges:
    """Return the integers of `a` that are not in `b`; costs as for `union`."""
    if not a or not b:
        return a
    if isinstance(a, Mask) or isinstance(b, Mask):
        begin, end = _begin(a), _end(a)
        if end - begin < _LONGEST_MASK:
            length = end - begin + 1
            bits = _bits(a, begin, length)
            return _from_bits(begin, bits ^ (bits & _bits(b, begin, length)))
        a, b = intervals(a), intervals(b)
    return _without(a, b) if _is_far_longer(a, b) else _difference(a, b)


def contains(a: Ranges, b: Ranges) -> bool:
    """Return whether `a` has all integers of `b`; costs as for `union`, less if it has not."""
    if isinstance(a, Mask) and isinstance(b, Mask):
        return is_within(b, a)
    if not b:
        return True
    if not a or _begin(b) < _begin(a) or _end(a) < _end(b):
        return False
    if isinstance(a, Mask) or isinstance(b, Mask):
        begin, length = _begin(b), _end(b) - _begin(b) + 1
        if length <= _LONGEST_MASK:
            present = _bits(a, begin, length)
            return present | _bits(b, begin, length) == present
        a, b = intervals(a), intervals(b)
    return _has_few(a, b) if _is_far_longer(a, b) else _has_all(a, b)


def is_within(part: Mask, whole: Mask) -> bool:
    """Return whether one mask has all integers of another."""
    base, bits = whole
    distance = part.base - base
    return 0 <= distance < _LONGEST_MASK and part.bits << distance | bits == bits


def first(a: Ranges, number: int) -> Ranges:
    """Return the `number` lowest integers of a set, or all if there are fewer."""
    if isinstance(a, Mask):
        bits = a.bits
        if number >= bits.bit_count():
            return a
        lengths = range(bits.bit_length())
        length = bisect_left(lengths, number, key=lambda n: (bits & (1 << n) - 1).bit_count())
        return _from_bits(a.base, bits & (1 << length) - 1)
    taken: list[tuple[int, int]] = []
    for begin, end in a:
        if number <= 0:
            break
        taken.append((begin, min(end, begin + number - 1)))
        number -= end - begin + 1
    return _canonical(taken)


def size(a: Ranges) -> int:
    """Return the number of integers in a set."""
    if isinstance(a, Mask):
        return a.bits.bit_count()
    return sum(end - begin + 1 for begin, end in a)


def _begins(interval: tuple[int, int]) -> int:
    return interval[0]


def _ends(interval: tuple[int, int]) -> int:
    return interval[1]


def _begin(a: Ranges) -> int:
    return a.base if isinstance(a, Mask) else a[0][0]


def _end(a: Ranges) -> int:
    return a.base + a.bits.bit_length() - 1 if isinstance(a, Mask) else a[-1][1]


def _flaw(ordered: list[tuple[int, int]]) -> str:
    """Return a description of intervals of which one is reversed, or two overlap."""
    for begin, end in ordered:
        if begin > end:
            return f"range {begin}-{end} ends before it begins"
    for (begin, end), (next_begin, next_end) in pairwise(ordered):
        if next_begin <= end:
            return f"ranges {begin}-{end} and {next_begin}-{next_end} overlap"
    raise AssertionError("the intervals are valid")


def _joined(ordered: Iterable[tuple[int, int]]) -> Ranges:
    joined: list[tuple[int, int]] = []
    for begin, end in ordered:
        if joined and begin <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((begin, end))
    return _canonical(joined)


def _canonical(entries: list[tuple[int, int]]) -> Ranges:
    """Return the set that has these intervals, which are sorted and have gaps between them."""
    if len(entries) < _FEW:
        return tuple(entries)
    begin, length = entries[0][0], entries[-1][1] - entries[0][0] + 1
    if length > min(_SPARSE * len(entries), _LONGEST_MASK):
        return tuple(entries)
    return Mask(begin, _bits(tuple(entries), begin, length))


def _from_bits(base: int, bits: int) -> Ranges:
    """Return the set of the integers `base + n` for each bit n that is set."""
    if not bits:
        return ()
    zeros = (bits & -bits).bit_length() - 1
    base, bits = base + zeros, bits >> zeros
    number = (bits ^ bits << 1).bit_count() // 2  # of the places where a one follows a zero
    if number < _FEW or bits.bit_length() > _SPARSE * number:
        return _intervals(base, bits)
    return Mask(base, bits)


def _intervals(base: int, bits: int) -> Intervals:
    changes = bin(bits ^ bits << 1)[:1:-1].encode().translate(_FLAGS)
    bounds = list(compress(count(base), changes))
    return tuple([(bounds[i], bounds[i + 1] - 1) for i in range(0, len(bounds), 2)])


def _bits(a: Ranges, base: int, length: int) -> int:
    """Return the members from `base` on as a bit mask of some length; O(length + intervals)."""
    if isinstance(a, Mask):
        distance = a.base - base
        if distance >= length:
            return 0
        bits = a.bits << distance if distance >= 0 else a.bits >> -distance
        return bits & (1 << length) - 1
    last = base + length - 1
    start = bisect_left(a, base, key=_ends)
    stop = bisect_right(a, last, start, key=_begins)
    if stop - start < _FEW:
        bits = 0
        for begin, end in a[start:stop]:
            low, high = max(begin, base), min(end, last)
            bits |= ((2 << high - low) - 1) << low - base
        return bits
    # A difference of powers of two is a run of ones: 2⁵ − 2² has the bits 2, 3 and 4.
    begins, ends = bytearray(b"0") * (length + 1), bytearray(b"0") * (length + 1)
    begins[last + 1 - max(a[start][0], base)] = ends[last - min(a[stop - 1][1], last)] = _ONE
    for n in range(start + 1, stop):
        begins[last + 1 - a[n][0]] = ends[last - a[n - 1][1]] = _ONE
    return int(ends, 2) - int(begins, 2)


def _difference(a: Intervals, b: Intervals) -> Ranges:
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
    return _canonical(remaining)


def _has_all(a: Intervals, b: Intervals) -> bool:
    """Return whether `a` has all integers of `b`, of which the last is not beyond the last of `a`.

    Costs O(len(a) + len(b)).
    """
    entries = iter(a)
    first_in, last_in = next(entries)
    for begin, end in b:
        while last_in < begin:
            first_in, last_in = next(entries)
        if begin < first_in or last_in < end:
            return False
    return True


def _has_few(a: Intervals, b: Intervals) -> bool:
    """Return the same for few intervals `b`, of which the first is not before the first of `a`."""
    return all(a[bisect_right(a, begin, key=_begins) - 1][1] >= end for begin, end in b)


def _union(a: Ranges, mask: Mask) -> Ranges:
    """Return the union of a set that is not empty and a mask."""
    begin = min(_begin(a), mask.base)
    length = max(_end(a), _end(mask)) - begin + 1
    if length > _LONGEST_MASK:
        return _joined(sorted(chain(intervals(a), intervals(mask))))
    return _from_bits(begin, _bits(a, begin, length) | _bits(mask, begin, length))


def _is_far_longer(a: Intervals, b: Intervals) -> bool:
    return len(a) > _FEW and len(a) > _SPLICED * len(b)


def _spliced(a: Intervals, b: Intervals) -> Ranges:
    """Return the union of many intervals and few intervals; O(len(a)), but faster than sorting."""
    joined = list(a)
    for begin, end in b:
        start = bisect_left(joined, begin - 1, key=_ends)
        stop = bisect_right(joined, end + 1, start, key=_begins)
        low, high = begin, end
        if start < stop:
            low, high = min(begin, joined[start][0]), max(end, joined[stop - 1][1])
        joined[start:stop] = [(low, high)]
    return _canonical(joined)


def _without(a: Intervals, b: Intervals) -> Ranges:
    """Return many intervals without few intervals; O(len(a)), but faster than a loop over them."""
    remaining = list(a)
    for begin, end in b:
        start = bisect_left(remaining, begin, key=_ends)
        stop = bisect_right(remaining, end, start, key=_begins)
        if start == stop:
            continue
        low, high = remaining[start][0], remaining[stop - 1][1]
        parts = [(low, begin - 1)] if low < begin else []
        remaining[start:stop] = [*parts, (end + 1, high)] if end < high else parts
    return _canonical(remaining)
