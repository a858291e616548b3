"""Slow, exact references for priorities and their order, written from the equations alone."""

from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from functools import cmp_to_key
from typing import Any

from allocator.fairness.pool import Pool
from allocator.fairness.priorities import Envelope, PriorityLine


def line_order(lines: Mapping[int, PriorityLine], now: float) -> list[int]:
    """Order straight lines just after an instant: by value, then slope, then id."""
    at = Fraction(now)
    return sorted(lines, key=lambda i: (lines[i].value + lines[i].slope * at, lines[i].slope, i))


def envelope_order(envelopes: Mapping[Any, Envelope], s: float | Fraction) -> list[Any]:
    """Order SDRF priorities just after s (towards smaller s), in rational arithmetic."""
    at = Fraction(s)
    exact: dict[Any, tuple[Fraction, Fraction, int]] = {}
    for i, envelope in envelopes.items():
        values = [(Fraction(a) + Fraction(m) * at, Fraction(m)) for a, m in envelope.lines]
        top = max(value for value, _ in values)
        growth = max(-m for value, m in values if value == top)
        exact[i] = (top, growth, envelope.count)
    return sorted(exact, key=lambda i: (*exact[i], i))


def scan(elements: Iterable[Any], compare: Any) -> list[Any]:  # noqa: ANN401 - any family
    """Sort by pairwise comparison."""
    return sorted(elements, key=cmp_to_key(compare))


def priority_in(pool: Pool[str], user: str) -> tuple[object, ...]:
    """Return the exact priority of a user now, without its class and its future."""
    return pool.prospect(user).rank[0][1:3]


def after_gifts(
    pool: Pool[str], users: Iterable[str], at_first: Callable[[str], tuple[object, ...]]
) -> list[str]:
    """Return the order of users after allocations at this instant.

    If the policy's priorities do not change at once with allocations, the initial priorities count,
    because rounding must not decide.
    """
    if pool.policy.moves_at_once:
        return list(users)

    def place(user: str) -> tuple[object, ...]:
        first, *_, growth = pool.prospect(user).rank[0]
        return first, *at_first(user), growth, pool.holding(user)[1], user

    return sorted(users, key=place)
