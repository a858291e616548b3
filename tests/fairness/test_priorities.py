"""A crossing may be announced early, but never late, whatever the coefficients."""

import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocator.fairness.priorities import (
    Drift,
    Drifts,
    Envelope,
    Envelopes,
    Segment,
    envelope,
)
from tests.fairness.reference import envelope_order

slopes = st.sampled_from([-1e8, -3.0, -1.0, -0.5, -1e-3, 0.0, 1e-3, 0.5, 1.0, 3.0, 1e8])


@st.composite
def bundles(draw: st.DrawFn) -> tuple[list[Segment], list[Segment], float]:
    """Draw two sets of lines that all but meet in one point, and where that is."""
    height, where = draw(st.floats(0.01, 1.0)), draw(st.floats(0.01, 0.99))

    def lines() -> list[Segment]:
        return [
            (math.nextafter(height - slope * where, draw(st.sampled_from([-1e9, 1e9]))), slope)
            for slope in draw(st.lists(slopes, min_size=1, max_size=3))
        ]

    return lines(), lines(), where


def order_changes(a: Envelope, b: Envelope, s: float) -> list[Fraction]:
    """Return the instants below s at which the order changes, in rational arithmetic."""
    lines = [(Fraction(level), Fraction(slope)) for level, slope in (*a.lines, *b.lines)]
    meetings = {
        (level - other) / (tilt - slope)
        for level, slope in lines
        for other, tilt in lines
        if slope != tilt
    }
    both = {0: a, 1: b}
    now = envelope_order(both, s)
    return [at for at in meetings if 0 < at < s and envelope_order(both, at) != now]


@given(bundles(), st.sampled_from([1.0, 1.0 + 2**-52, 1.0 - 2**-53, 2.0]))
@settings(max_examples=1000, deadline=None)
def test_a_crossing_is_never_announced_late(
    bundle: tuple[list[Segment], list[Segment], float], factor: float
) -> None:
    first, second, where = bundle
    s = min(where * factor, 1.0)
    a, b = envelope(first, 1.0), envelope(second, 1.0)
    announced = Envelopes().crossing(a, b, -s)
    assert announced is None or announced >= -s
    changes = order_changes(a, b, s)
    if changes:
        assert announced is not None
        assert -announced >= max(changes)


@given(slopes, slopes, st.floats(0.0, 1.0), st.floats(1.0, 1e6), st.sampled_from([0.0, 0.5, 1.0]))
def test_nor_is_the_meeting_of_two_straight_lines_in_time(
    slope: float, other: float, height: float, where: float, part: float
) -> None:
    a, b = Drift(False, height, slope), Drift(False, height + (slope - other) * where, other)
    now = where * part
    announced = Drifts().crossing(a, b, now)
    if slope != other:
        meeting = (Fraction(b.value) - Fraction(a.value)) / (Fraction(slope) - Fraction(other))
        if meeting > now:
            assert announced is not None
            assert now <= announced <= meeting


@pytest.mark.parametrize(
    ("segment", "other", "s"),
    [
        ((0.3, 0.0), (0.3003184519259858, -0.0009553557779573523), 1 / 3),
        ((0.3, 0.5702712329895328), (0.36702712329895326, -0.1), 0.1),
    ],
)
def test_lines_whose_rounded_values_are_the_same_are_told_apart(
    segment: Segment, other: Segment, s: float
) -> None:
    assert segment[0] + segment[1] * s == other[0] + other[1] * s
    exact = [Fraction(level) + Fraction(slope) * Fraction(s) for level, slope in (segment, other)]
    found = Envelopes().compare(Envelope((segment,)), Envelope((other,)), -s)
    assert found == (exact[0] > exact[1]) - (exact[0] < exact[1])


def test_a_line_that_is_never_the_highest_is_left_out() -> None:
    highest, below, rising = (2.0, 1.0), (1.0, 1.5), (1.0, 2.5)
    assert envelope([below, highest], 1.0).lines == (highest,)
    assert envelope([rising, highest], 1.0).lines == (highest, rising)
    assert envelope([rising, highest], 0.5).lines == (highest,)


def test_two_that_meet_now_do_not_meet_after_now() -> None:
    rising, falling = envelope([(0.5, 0.5)], 1.0), envelope([(1.0, -0.5)], 1.0)
    assert Envelopes().crossing(rising, falling, -0.5) is None
    assert Envelopes().crossing(rising, falling, -0.75) is not None
    level = envelope([(0.5, -0.5)], 1.0)
    assert Envelopes().crossing(rising, level, -0.5) is None, "they only come nearer, for ever"
