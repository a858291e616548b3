"""Exact values of lines equal rational arithmetic, and sort in the same order."""

import math
import random
from fractions import Fraction

from hypothesis import assume, given
from hypothesis import strategies as st

from allocator.fairness import exact

numbers = st.floats(-1e6, 1e6) | st.floats(-1e150, 1e150) | st.sampled_from([0.0, 5e-324, 1 / 3])
instants = st.floats(0.0, 1.0) | st.sampled_from([5e-324, 1e-130, 1.0])


def rational(level: float, slope: float, s: float) -> Fraction:
    return Fraction(level) + Fraction(slope) * Fraction(s)


@given(numbers, numbers, instants)
def test_the_parts_add_up_and_the_first_part_is_the_rounded_value(
    level: float, slope: float, s: float
) -> None:
    parts = exact.value(level, slope, s)
    assert sum(Fraction(part) for part in parts) == rational(level, slope, s)
    assert parts[0] == float(rational(level, slope, s))


@given(numbers, instants, st.integers(-3, 3), st.sampled_from([-math.inf, 0.0, math.inf]))
def test_values_that_almost_meet_sort_like_rationals(
    slope: float, s: float, ulps: int, towards: float
) -> None:
    level = -slope * s
    nearby = level + ulps * math.ulp(level)
    tilt = math.nextafter(slope, towards) if towards else slope
    assume(math.isfinite(tilt))
    mine, theirs = exact.value(level, slope, s), exact.value(nearby, tilt, s)
    first, second = rational(level, slope, s), rational(nearby, tilt, s)
    assert (mine < theirs) == (first < second)
    assert (mine == theirs) == (first == second)


def test_numbers_with_all_digits_of_a_double_lose_no_digit() -> None:
    chance = random.Random(0)
    for _ in range(500):
        level, slope, s = (
            (2**52 + chance.getrandbits(52)) * 2.0 ** chance.randint(-60, -53) for _ in range(3)
        )
        parts = exact.value(level, -slope, s)
        assert sum(Fraction(part) for part in parts) == rational(level, -slope, s)


def test_the_remainder_may_be_as_large_as_one() -> None:
    assert exact.value(2.0**53, 1.0, 1.0) == (2.0**53, 1.0, 0.0)
