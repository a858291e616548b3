"""A crossing may be announced early, but never late, for any coefficients."""

import math
import random
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.fairness.live_tree import Node
from allocator.fairness.priorities import (
    Drift,
    Drifts,
    Envelope,
    Envelopes,
    Segment,
    envelope,
)
from tests.examples import examples
from tests.fairness.reference import envelope_order

slopes = st.sampled_from([-1e8, -3.0, -1.0, -0.5, -1e-3, 0.0, 1e-3, 0.5, 1.0, 3.0, 1e8])


@st.composite
def bundles(draw: st.DrawFn) -> tuple[list[Segment], list[Segment], float]:
    """Draw two sets of lines that almost meet in one point; return its position too."""
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
        (level - second_level) / (tilt - slope)
        for level, slope in lines
        for second_level, tilt in lines
        if slope != tilt
    }
    both = {0: a, 1: b}
    now = envelope_order(both, s)
    return [at for at in meetings if 0 < at < s and envelope_order(both, at) != now]


@given(bundles(), st.sampled_from([1.0, 1.0 + 2**-52, 1.0 - 2**-53, 2.0]))
@examples(1000)
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
def test_the_meeting_of_two_straight_lines_in_time_is_never_announced_late(
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
def test_lines_with_equal_rounded_values_are_distinguished(
    segment: Segment, other: Segment, s: float
) -> None:
    assert segment[0] + segment[1] * s == other[0] + other[1] * s
    exact = [Fraction(level) + Fraction(slope) * Fraction(s) for level, slope in (segment, other)]
    order = Envelopes().compare(Envelope((segment,)), Envelope((other,)), -s)
    assert order == (exact[0] > exact[1]) - (exact[0] < exact[1])


def test_a_line_that_is_never_the_highest_is_left_out() -> None:
    highest, below, rising = (2.0, 1.0), (1.0, 1.5), (1.0, 2.5)
    assert envelope([below, highest], 1.0).lines == (highest,)
    assert envelope([rising, highest], 1.0).lines == (highest, rising)
    assert envelope([rising, highest], 0.5).lines == (highest,)


def test_envelopes_that_meet_now_do_not_meet_after_now() -> None:
    rising, falling = envelope([(0.5, 0.5)], 1.0), envelope([(1.0, -0.5)], 1.0)
    assert Envelopes().crossing(rising, falling, -0.5) is None
    assert Envelopes().crossing(rising, falling, -0.75) is not None
    level = envelope([(0.5, -0.5)], 1.0)
    assert Envelopes().crossing(rising, level, -0.5) is None, (
        "the envelopes only approach each other"
    )


Key: TypeAlias = tuple[Any, ...]
"""A sort key in the order of priorities, without rounding."""
EXACTNESS = 2.0**-46
"""Far above the rounding error of a few operations, far below differences of drawn values."""


def lines_near(chance: random.Random, height: float, where: float) -> list[Segment]:
    """Draw lines that pass through a point, close to the point, or far away."""
    lines = []
    for _ in range(chance.choice([1, 1, 2, 3])):
        slope = chance.choice([-0.5, 0.0, 0.25, 0.5, 1.0, 1e6, chance.uniform(-1.0, 1.0)])
        level = height - slope * where
        for _ in range(chance.choice([0, 0, 1, 3])):
            level = math.nextafter(level, chance.choice([-math.inf, math.inf]))
        lines.append((level + chance.choice([0.0, 0.0, 0.0, 0.1, -0.1]), slope))
    return lines


def envelopes(chance: random.Random) -> tuple[list[Envelope], float]:
    height, where = chance.choice([0.5, chance.random()]), chance.choice([0.5, chance.random()])
    s = chance.choice([where, where, 1.0, min(1.0, where * (1 + 2**-52))])
    made = [
        envelope(lines_near(chance, height, where), 1.0, chance.choice([0, 1])) for _ in range(5)
    ]
    return made, s


def drifts(chance: random.Random) -> tuple[list[Drift], float]:
    height, where = chance.choice([4.0, chance.random()]), chance.choice([8.0, chance.random()])
    now = chance.choice([where, where, 0.0, where * (1 - 2**-53), where * 2.0])
    return [
        Drift(chance.random() < 0.2, *lines_near(chance, height, where)[0], chance.choice([0, 1]))
        for _ in range(5)
    ], now


def exact_envelope(envelope: Envelope, s: float) -> Key:
    """Return a sort key in the order of priorities, in rational arithmetic."""
    at = [
        (Fraction(level) + Fraction(slope) * Fraction(s), -Fraction(slope))
        for level, slope in envelope.lines
    ]
    return (*max(at), envelope.count)


def exact_drift(drift: Drift, now: float) -> Key:
    value = Fraction(drift.value) + Fraction(drift.slope) * Fraction(now)
    return not drift.guaranteed, value, Fraction(drift.slope), drift.count


def in_order(
    family: Envelopes | Drifts,
    made: Sequence[Any],
    keys: list[Key],
    now: float,
) -> None:
    """Compare comparisons, ranks and positions with exact sort keys."""
    for first, key in zip(made, keys, strict=True):
        for second, other_key in zip(made, keys, strict=True):
            sign = (key > other_key) - (key < other_key)
            assert family.compare(first, second, now) == sign
            rank, rank_of_other = family.rank(first, now)[0], family.rank(second, now)[0]
            assert (rank > rank_of_other) - (rank < rank_of_other) == (
                (key[:-1] > other_key[:-1]) - (key[:-1] < other_key[:-1])
            )
    nodes: list[Node[int, Any]] = [Node(number, key) for number, key in enumerate(made)]
    order = sorted(nodes, key=lambda node: (keys[node.id], node.id))
    for place, node in enumerate(order):
        assert family.position(order, node, now) == place
        assert family.position([*order[:place], *order[place + 1 :]], node, now) == place


@pytest.mark.parametrize("seed", range(2))
def test_envelopes_are_in_the_order_of_rational_arithmetic_however_close_they_are(
    seed: int,
) -> None:
    chance = random.Random(seed)
    for _ in range(150):
        made, s = envelopes(chance)
        in_order(Envelopes(), made, [exact_envelope(envelope, s) for envelope in made], -s)
        for candidate in made:
            assert candidate.at(s) == pytest.approx(float(exact_envelope(candidate, s)[0]))
            size = max(abs(level) + abs(slope * s) for level, slope in candidate.lines)
            assert 1e-13 * size <= Envelopes().rank(candidate, -s)[1] <= 1e-11 * size


@pytest.mark.parametrize("seed", range(2))
def test_lines_in_time_are_in_exact_order_and_guarantees_come_first(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(150):
        made, now = drifts(chance)
        in_order(Drifts(), made, [exact_drift(drift, now) for drift in made], now)
        for drift in made:
            size = abs(drift.value) + abs(drift.slope * now)
            assert 1e-13 * size <= Drifts().rank(drift, now)[1] <= 1e-11 * size


def test_an_absent_allocation_count_equals_a_count_of_zero() -> None:
    assert Envelopes().compare(Envelope(((1.0, 0.0),)), Envelope(((1.0, 0.0),), 0), -1.0) == 0
    assert Drifts().compare(Drift(False, 1.0, 0.0), Drift(False, 1.0, 0.0, 0), 1.0) == 0


def steep_lines(chance: random.Random, where: float, number: int) -> list[Segment]:
    """Draw lines, most of them steep, that meet in one point except for rounding."""
    height = chance.random()
    slopes = [chance.choice([-1e6, 1e6, 1.0]) * chance.random() for _ in range(number)]
    return [(height - slope * where, slope) for slope in slopes]


@pytest.mark.parametrize("seed", range(3))
def test_steep_lines_that_differ_by_less_than_a_rounding_error_are_in_exact_order(
    seed: int,
) -> None:
    chance = random.Random(seed)
    for _ in range(60):
        s = chance.random()
        lines = steep_lines(chance, s, 6)
        made = [Envelope((line,)) for line in lines[:3]] + [
            Envelope(tuple(lines[at : at + 2])) for at in (1, 3)
        ]
        in_order(Envelopes(), made, [exact_envelope(envelope, s) for envelope in made], -s)
        drifts = [Drift(False, *line) for line in lines]
        in_order(Drifts(), drifts, [exact_drift(drift, s) for drift in drifts], s)
        for at in range(5):
            whole, kept = Envelope(tuple(lines[at:])), envelope(lines[at:], s)
            assert exact_envelope(kept, s)[0] == exact_envelope(whole, s)[0]


@pytest.mark.parametrize("seed", range(2))
def test_an_envelope_is_the_maximum_of_its_lines_and_has_no_superfluous_lines(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(300):
        lines, s = lines_near(chance, 0.5, 0.5) + lines_near(chance, 0.5, 0.75), 0.75
        kept = envelope(lines, s).lines
        for at in (0.0, 0.25, 0.5, math.nextafter(0.5, 1.0), s):
            whole, part = (
                exact_envelope(Envelope(tuple(segments)), at) for segments in (lines, kept)
            )
            assert part[0] == whole[0]
        for level, slope in kept:
            for second_level, tilt in kept:
                least = min(second_level - level, (second_level + tilt * s) - (level + slope * s))
                assert least <= EXACTNESS * (
                    abs(level) + abs(slope) + abs(second_level) + abs(tilt)
                )


def meetings(a: Envelope, b: Envelope, s: float) -> Iterator[float]:
    """Yield meetings below s of lines that are both on their envelopes, except for rounding."""
    for level, slope in a.lines:
        for second_level, tilt in b.lines:
            if slope != tilt:
                meeting = (Fraction(second_level) - Fraction(level)) / (
                    Fraction(slope) - Fraction(tilt)
                )
                at = float(meeting)
                height = level + slope * at
                size = sum(abs(value) + abs(steep * at) for value, steep in (*a.lines, *b.lines))
                if 0 < meeting < s and height >= max(a.at(at), b.at(at)) - EXACTNESS * size:
                    yield at


@pytest.mark.parametrize("seed", range(2))
def test_an_announced_crossing_is_a_meeting_except_for_rounding(seed: int) -> None:
    chance, announced = random.Random(seed), 0
    for _ in range(400):
        (a, b, *_), s = envelopes(chance)
        crossing = Envelopes().crossing(a, b, -s)
        if crossing is not None:
            announced += 1
            assert -s <= crossing
            assert any(
                at <= -crossing * (1 + EXACTNESS) and -crossing <= at * (1 + EXACTNESS)
                for at in meetings(a, b, s)
            )
    assert announced > 50


@pytest.mark.parametrize("seed", range(2))
def test_lines_in_time_cross_only_at_meetings_after_now(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(400):
        (a, b, *_), now = drifts(chance)
        crossing = Drifts().crossing(a, b, now)
        meeting = None
        if a.slope != b.slope and a.guaranteed == b.guaranteed:
            meeting = (Fraction(b.value) - Fraction(a.value)) / (
                Fraction(a.slope) - Fraction(b.slope)
            )
        if meeting is None or meeting <= now:
            assert crossing is None
        else:
            assert crossing is not None
            assert now <= crossing <= meeting <= crossing + EXACTNESS * abs(crossing)
