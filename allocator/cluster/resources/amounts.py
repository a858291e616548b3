"""How much of a resource there is: a number, copies, intervals or items, and sums of them."""

from typing import TypeAlias

from allocator.cluster.resources import ranges

Amount: TypeAlias = int | ranges.Ranges | frozenset[str]
"""Thousandths of a scalar, copies of something indivisible, intervals, or items."""


def plus(a: Amount, b: Amount) -> Amount:
    """Return both together.

    Raises:
        TypeError: they are not of one type.
    """
    if isinstance(a, int) and isinstance(b, int):
        return a + b
    if isinstance(a, tuple) and isinstance(b, tuple):
        return ranges.union(a, b)
    if isinstance(a, frozenset) and isinstance(b, frozenset):
        return a | b
    raise TypeError(f"amounts of one kind differ in type: {a!r}, {b!r}")


def minus(a: Amount, b: Amount) -> Amount:
    """Return what is left of one without the other, at least nothing.

    Raises:
        TypeError: they are not of one type.
    """
    if isinstance(a, int) and isinstance(b, int):
        return max(a - b, 0)
    if isinstance(a, tuple) and isinstance(b, tuple):
        return ranges.difference(a, b)
    if isinstance(a, frozenset) and isinstance(b, frozenset):
        return a - b
    raise TypeError(f"amounts of one kind differ in type: {a!r}, {b!r}")


def covers(a: Amount, b: Amount) -> bool:
    """Return whether one has all of the other."""
    if isinstance(a, int) and isinstance(b, int):
        return a >= b
    if isinstance(a, tuple) and isinstance(b, tuple):
        return not ranges.difference(b, a)
    return isinstance(a, frozenset) and isinstance(b, frozenset) and a >= b


def portion(amount: Amount, wanted: int) -> tuple[Amount, int]:
    """Take up to so many thousandths; return the part and its size in thousandths."""
    if isinstance(amount, int):
        return min(amount, wanted), min(amount, wanted)
    count = -(-wanted // 1000)
    if isinstance(amount, tuple):
        part = ranges.first(amount, count)
        return part, 1000 * ranges.size(part)
    items = frozenset(sorted(amount)[:count])
    return items, 1000 * len(items)
