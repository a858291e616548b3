"""Values of lines without rounding: sums of floats, which sort as the exact values do.

A value A + M·s of floats is a sum of at most three floats. Taken greedily (the float nearest to it,
the float nearest to what is left, the rest) they compare like the values themselves, and the first
is what rounding would give. That costs a tenth of what rational arithmetic does (T. J. Dekker, "A
floating-point technique for extending the available precision", 1971, has the exact product).
"""

import math
from fractions import Fraction
from typing import TypeAlias

Exact: TypeAlias = tuple[float, float, float | Fraction]
"""What it is rounded to, and what is left of it in two parts. Sorts as the values do."""

_SPLITTER = 2.0**27 + 1.0
_LARGE, _SMALL = 2.0**900, 2.0**-900
"""Factors and products between these lose nothing to overflow or underflow."""


def value(level: float, slope: float, s: float) -> Exact:
    """Return level + slope · s."""
    product = slope * s
    if product == 0.0 and (slope == 0.0 or s == 0.0):
        return level, 0.0, 0.0
    if not (_SMALL < abs(product) < _LARGE and abs(slope) < _LARGE and abs(s) < _LARGE):
        return _rational(level, slope, s)
    split = _SPLITTER * slope
    high = split - (split - slope)
    low = slope - high
    split = _SPLITTER * s
    upper = split - (split - s)
    lower = s - upper
    error = ((high * upper - product) + high * lower + low * upper) + low * lower
    rounded = math.fsum((level, product, error))
    rest = math.fsum((level, product, error, -rounded))
    if rest == 0.0:
        return rounded, 0.0, 0.0
    return rounded, rest, math.fsum((level, product, error, -rounded, -rest))


def _rational(level: float, slope: float, s: float) -> Exact:
    exact = Fraction(level) + Fraction(slope) * Fraction(s)
    rounded = float(exact)
    rest = exact - Fraction(rounded)
    nearest = float(rest)
    return rounded, nearest, rest - Fraction(nearest)
