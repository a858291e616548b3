"""Commitments decay as Eq. 6, 7 and 12 say, however time is cut up."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.fairness.commitment import (
    decayed,
    overuse,
    time_constant,
    time_constant_of_half_life,
)

shares = st.floats(0.0, 1.0)
steps = st.lists(st.floats(0.0, 1000.0), min_size=1, max_size=20)
taus = st.floats(0.1, 1e7)


@given(shares, shares, steps, taus)
def test_many_short_intervals_equal_one_long_interval(
    start: float, towards: float, intervals: list[float], tau: float
) -> None:
    piecewise = start
    for interval in intervals:
        piecewise = decayed(piecewise, towards, interval, tau)
    assert piecewise == pytest.approx(decayed(start, towards, math.fsum(intervals), tau), abs=1e-12)


@given(st.lists(shares, min_size=1, max_size=50), st.floats(0.01, 0.9999))
def test_whole_intervals_give_the_sum_of_equation_6(over: list[float], delta: float) -> None:
    c = 0.0
    for o in over:
        c = decayed(c, o, 1.0, time_constant(delta))
    last = len(over) - 1
    closed = (1 - delta) * math.fsum(delta ** (last - k) * o for k, o in enumerate(over))
    assert c == pytest.approx(closed, rel=1e-9, abs=1e-12)


@given(shares, shares, st.floats(0.0, 1e9), taus)
def test_a_commitment_stays_between_its_start_and_its_limit(
    start: float, towards: float, elapsed: float, tau: float
) -> None:
    c = decayed(start, towards, elapsed, tau)
    assert min(start, towards) - 1e-15 <= c <= max(start, towards) + 1e-15


def test_a_user_alone_among_four_has_a_commitment_of_58_percent_after_150_seconds() -> None:
    c = decayed(0.0, overuse(1.0, 1 / 4), 150.0, time_constant(0.99))
    assert c == pytest.approx(0.75 * (1 - 0.99**150))
    assert c == pytest.approx(0.58, abs=0.005)


def test_very_slow_decay_loses_no_digits() -> None:
    tau = time_constant(1 - 1e-7)
    assert decayed(0.0, 0.5, 1e-3, tau) == pytest.approx(0.5e-3 / tau, rel=1e-9)


def test_only_usage_above_the_entitlement_is_overuse() -> None:
    assert overuse(0.2, 0.25) == 0.0
    assert overuse(0.75, 0.25) == 0.5


def test_half_of_a_commitment_remains_after_a_half_life() -> None:
    assert decayed(0.8, 0.0, 600.0, time_constant_of_half_life(600.0)) == pytest.approx(0.4)


@pytest.mark.parametrize("delta", [0.0, 1.0, -0.5, 1.5, math.nan])
def test_a_delta_that_disables_fairness_is_rejected(delta: float) -> None:
    with pytest.raises(ValueError, match="switch long-term fairness off"):
        time_constant(delta)


@pytest.mark.parametrize("seconds", [0.0, -1.0, math.inf, math.nan])
def test_a_half_life_that_disables_fairness_is_rejected(seconds: float) -> None:
    with pytest.raises(ValueError, match="switch long-term fairness off"):
        time_constant_of_half_life(seconds)
