"""Exact values of lines A + M·s, as tuples of floats that sort as the exact values do.

A value A + M·s of floats is a sum of at most three floats. The sum is built greedily: the float
nearest to the value, the float nearest to the remainder, and the final remainder. Such sums compare
like the exact values, and the first float is the rounded value. This costs a tenth of rational
arithmetic (exact product: T. J. Dekker, "A floating-point technique for extending the available
precision", 1971).
"""

import math
from fractions import Fraction
from typing import TypeAlias

Exact: TypeAlias = tuple[float, float, float | Fraction]
"""The rounded value and its remainder in two parts. Tuples sort as the exact values do."""

_SPLITTER = 2.0**27 + 1.0
_LARGE, _SMALL = 2.0**900, 2.0**-900
"""Factors and products between these bounds lose nothing to overflow or underflow."""


def value(level: float, slope: float, s: float) -> Exact:
    """Return level + slope · s exactly, as three floats whose sum is this value.

    `level` and `slope` describe a priority, and `s` is the decay factor e^(−t/τ). Such tuples
    compare as the exact values do.
    """
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
    remainder = math.fsum((level, product, error, -rounded))
    if remainder == 0.0:
        return rounded, 0.0, 0.0
    return rounded, remainder, math.fsum((level, product, error, -rounded, -remainder))


def _rational(level: float, slope: float, s: float) -> Exact:
    """Return level + slope · s exactly, by slow rational arithmetic.

    `value` calls this function in the rare cases in which floating-point arithmetic is not exact.
    """
    exact = Fraction(level) + Fraction(slope) * Fraction(s)
    rounded = float(exact)
    remainder = exact - Fraction(rounded)
    nearest = float(remainder)
    return rounded, nearest, remainder - Fraction(nearest)
