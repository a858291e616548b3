"""Exact comparison of two users' priorities, each of the form value + slope·s.

s is the decay factor e^(−t/τ), which falls from 1 towards 0 as time t passes.
"""

from typing import TypeAlias

from allocator.simulation.kernels.compiled import kernel

ULP = 2.0**-53
_SPLITTER = 2.0**27 + 1.0

_Six: TypeAlias = tuple[float, float, float, float, float, float]


@kernel
def order(a: float, m: float, b: float, n: float, s: float) -> int:
    """Compare two priorities exactly: return the sign of (a + m·s) − (b + n·s).

    Floats count as exact rationals, as in allocator.fairness.priorities. If the rounded difference
    is within its error bound, the sum is computed exactly (J. R. Shewchuk, Adaptive Precision
    Floating-Point Arithmetic, 1997).

    Args:
        a: Value of the first priority.
        m: Slope of the first priority.
        b: Value of the second priority.
        n: Slope of the second priority.
        s: The decay factor e^(−t/τ), above 0. The products m·s and n·s must be 0 or at least 10⁻²⁹⁰
            in size, unless only their signs matter.
    """
    if m == n:
        return (a > b) - (a < b)
    if a == b:
        return (m > n) - (m < n)
    moved, shifted = m * s, n * s
    difference = (a + moved) - (b + shifted)
    if abs(difference) > 8 * ULP * (abs(a) + abs(moved) + abs(b) + abs(shifted)):
        return 1 if difference > 0 else -1
    return _sign_of_sum(
        (a, -b, moved, _error_of_product(m, s, moved), -shifted, -_error_of_product(n, s, shifted))
    )


@kernel
def _error_of_product(x: float, y: float, product: float) -> float:
    """Return the rounding error of a product: the exact x·y minus the rounded `product`.

    The result is always a float (algorithm of Dekker and Veltkamp).
    """
    t = _SPLITTER * x
    x_high = t - (t - x)
    x_low = x - x_high
    t = _SPLITTER * y
    y_high = t - (t - y)
    y_low = y - y_high
    remainder = product - x_high * y_high
    remainder -= x_low * y_high
    remainder -= x_high * y_low
    return x_low * y_low - remainder


@kernel
def _sign_of_sum(terms: _Six) -> int:
    """Return the sign of the exact sum of six numbers: −1, 0 or 1 (Shewchuk's Grow-Expansion)."""
    e1, e0 = _two_sum(terms[0], terms[1])
    q, e0 = _two_sum(terms[2], e0)
    e2, e1 = _two_sum(q, e1)
    q, e0 = _two_sum(terms[3], e0)
    q, e1 = _two_sum(q, e1)
    e3, e2 = _two_sum(q, e2)
    q, e0 = _two_sum(terms[4], e0)
    q, e1 = _two_sum(q, e1)
    q, e2 = _two_sum(q, e2)
    e4, e3 = _two_sum(q, e3)
    q, e0 = _two_sum(terms[5], e0)
    q, e1 = _two_sum(q, e1)
    q, e2 = _two_sum(q, e2)
    q, e3 = _two_sum(q, e3)
    e5, e4 = _two_sum(q, e4)
    for e in (e5, e4, e3, e2, e1, e0):  # each component exceeds the sum of all later components
        if e != 0.0:
            return 1 if e > 0.0 else -1
    return 0


@kernel
def _two_sum(a: float, b: float) -> tuple[float, float]:
    """Return (rounded, error): the rounded sum a + b, and the exact sum minus the rounded sum."""
    total = a + b
    virtual = total - a
    return total, (a - (total - virtual)) + (b - virtual)
