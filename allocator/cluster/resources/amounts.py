"""Arithmetic of a resource's amount: a number, a number of copies, intervals, or items of a set."""

from functools import reduce
from typing import TypeAlias

from allocator.cluster.resources import ranges

Amount: TypeAlias = int | ranges.Ranges | frozenset[str]
"""Thousandths of a scalar, copies of an indivisible resource, intervals, or items of a set."""


def plus(a: Amount, b: Amount) -> Amount:
    """Return the sum of two amounts.

    Raises:
        TypeError: The amounts differ in type.
    """
    if isinstance(a, int) and isinstance(b, int):
        return a + b
    if isinstance(a, tuple) and isinstance(b, tuple):
        return ranges.union(a, b)
    if isinstance(a, frozenset) and isinstance(b, frozenset):
        return a | b
    raise TypeError(f"amounts of one kind differ in type: {a!r}, {b!r}")


def total(amounts: list[Amount]) -> Amount:
    """Return the sum of several amounts; intervals and sets are joined in one step.

    Args:
        amounts: At least one amount.

    Raises:
        TypeError: The amounts differ in type.
    """
    intervals = [amount for amount in amounts if isinstance(amount, tuple)]
    items = [amount for amount in amounts if isinstance(amount, frozenset)]
    if len(intervals) == len(amounts):
        return ranges.union(*intervals)
    if len(items) == len(amounts):
        return items[0].union(*items)
    return reduce(plus, amounts)


def minus(a: Amount, b: Amount) -> Amount:
    """Return the first amount minus the second, clipped at zero.

    Raises:
        TypeError: The amounts differ in type.
    """
    if isinstance(a, int) and isinstance(b, int):
        return max(a - b, 0)
    if isinstance(a, tuple) and isinstance(b, tuple):
        return ranges.difference(a, b)
    if isinstance(a, frozenset) and isinstance(b, frozenset):
        return a - b
    raise TypeError(f"amounts of one kind differ in type: {a!r}, {b!r}")


def covers(a: Amount, b: Amount) -> bool:
    """Return whether the first amount contains the second; False if their types differ.

    Offers call this function more often than any other arithmetic. `type` is faster than
    `isinstance` in interpreted code.
    """
    if type(a) is int:
        return type(b) is int and a >= b
    if type(a) is ranges.Mask and type(b) is ranges.Mask:
        return ranges.is_within(b, a)
    if isinstance(a, tuple):
        return isinstance(b, tuple) and ranges.contains(a, b)
    return isinstance(a, frozenset) and isinstance(b, frozenset) and a >= b


def portion(amount: Amount, wanted: int) -> tuple[Amount, int]:
    """Take a part of an amount, up to a size.

    Args:
        amount: The amount to take from.
        wanted: Maximum size of the part in thousandths. An integer of a range or an item of a set
            has size 1000, and `wanted` is rounded up.

    Returns:
        The part, and its size in thousandths.
    """
    if isinstance(amount, int):
        return min(amount, wanted), min(amount, wanted)
    count = -(-wanted // 1000)
    if isinstance(amount, tuple):
        part = ranges.first(amount, count)
        return part, 1000 * ranges.size(part)
    items = frozenset(sorted(amount)[:count])
    return items, 1000 * len(items)
