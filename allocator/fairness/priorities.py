"""Priority functions of time, compared exactly, and when two of them next cross.

Coefficients and times are floats, that is, exact rationals. Two priorities are told apart in
floating point where the difference is beyond any rounding, and in rational arithmetic where
it is not. So the order of the Live Tree and that of a plain scan are the same to the last tie.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

_ULP = 2.0**-53
_EARLY, _LATE = 1.0 + 8 * _ULP, 1.0 - 8 * _ULP
"""A crossing is two rounded differences and a rounded quotient away from its operands."""


@dataclass(frozen=True, slots=True)
class Line:
    """A priority that changes at a constant rate: value + slope × t."""

    value: int | Fraction
    slope: int | Fraction


class StraightLines:
    """Priorities that are straight lines in time, in exact arithmetic."""

    def compare(self, a: Line, b: Line, now: int | Fraction) -> int:
        """Order by value at `now`, then by slope."""
        ahead = (a.value - b.value) + (a.slope - b.slope) * now or a.slope - b.slope
        return (ahead > 0) - (ahead < 0)

    def crossing(self, a: Line, b: Line, now: int | Fraction) -> Fraction | None:
        """Return when the lines meet after `now`; None: never."""
        if a.slope == b.slope:
            return None
        when = Fraction(b.value - a.value) / Fraction(a.slope - b.slope)
        return when if when > now else None


Segment: TypeAlias = tuple[float, float]
"""(A, M): the line A + M·s."""

Rank: TypeAlias = tuple[int, float, float | Fraction, float]
"""Sorts priorities at one instant: class, value rounded, value, how it goes on from there."""

_BLUR = 2.0**-40
"""Of the operands: far more than rounding can do to what should be the same priority."""


@dataclass(frozen=True, slots=True)
class Envelope:
    """A priority under SDRF: the maximum of straight lines in s = e^(−t/τ).

    Between two changes of allocation each commitment moves exponentially towards its over-use
    (Eq. 12), so o + c = A + M·s with A = o + ō and M = c − ō, and the maximum over resources
    is an upper envelope (Eq. 13).
    """

    lines: tuple[Segment, ...]
    """At least one; those that can never be the maximum for s > 0 are left out."""
    count: int = 0
    """Breaks ties: fewer allocations first."""

    def at(self, s: float) -> float:
        """Return the priority, rounded."""
        return max(a + m * s for a, m in self.lines)


def envelope(lines: list[Segment], s: float, count: int = 0) -> Envelope:
    """Build an envelope for (0, s]: drop lines that another is above of at both ends."""
    kept: list[Segment] = []
    for line in sorted(set(lines), reverse=True):
        if not any(
            other[0] >= line[0] and (other[1] >= line[1] or _above(other, line, s))
            for other in kept
        ):
            kept.append(line)
    return Envelope(tuple(kept), count)


def _above(upper: Segment, lower: Segment, s: float) -> bool:
    """Whether a line is above another at s, beyond any rounding, that of s included."""
    (a, m), (b, n) = upper, lower
    rise, other = m * s, n * s
    # Operands, not sums: these may be far smaller, and their errors are not.
    size = abs(a) + abs(rise) + abs(b) + abs(other)
    return (a + rise) - (b + other) > 16 * _ULP * size


class Envelopes:
    """The family of SDRF's priorities; its time is −s, which grows from −1 towards 0."""

    def compare(self, a: Envelope, b: Envelope, now: float) -> int:
        """Order by value, then by who grows slower just after, then by count.

        As s falls, A + M·s grows by −M; of several lines that meet at a maximum the one with
        the least M takes over.
        """
        ahead: float | Fraction = 0
        if a.lines != b.lines:
            s = -now
            ahead = _difference(a, b, s) or _slope_after(b, s) - _slope_after(a, s)
        ahead = ahead or a.count - b.count
        return (ahead > 0) - (ahead < 0)

    def rank(self, a: Envelope, now: float) -> tuple[Rank, float]:
        """Return what sorts as `compare` does at `now`, counts aside, and how blurred it is.

        The blur is beyond any difference that rounding makes to one and the same priority.
        """
        s = -now
        exact = _exact(a, s)
        size = max(abs(value) + abs(slope * s) for value, slope in a.lines)
        return (0, float(exact), exact, -_slope_after(a, s)), _BLUR * size

    def crossing(self, a: Envelope, b: Envelope, now: float) -> float | None:
        """Return the first meeting of the two envelopes after `now` (Eq. 14, 15).

        Rounded towards `now`. Meetings of lines that are below either envelope are left out;
        one where the envelopes only touch may be returned.
        """
        if a.lines == b.lines:
            return None
        s_now = -now
        first: float | None = None
        for a_value, a_slope in a.lines:
            for b_value, b_slope in b.lines:
                if a_slope == b_slope:
                    continue
                s = (b_value - a_value) / (a_slope - b_slope)
                early = s * _EARLY
                if s <= 0 or (first is not None and early <= first):
                    continue
                if s * _LATE >= s_now:
                    continue
                if early >= s_now:
                    exact = _exact_meeting((a_value, a_slope), (b_value, b_slope))
                    if exact >= s_now:
                        continue
                    early = s_now
                if not (_hidden((a_value, a_slope), s, a) or _hidden((b_value, b_slope), s, b)):
                    first = early
        return None if first is None else -first


def _difference(a: Envelope, b: Envelope, s: float) -> float | Fraction:
    """Return a − b at s with the right sign: rounded where that is safe, else exact."""
    if len(a.lines) == len(b.lines) == 1:
        ((value, slope),), ((other, tilt),) = a.lines, b.lines
        moved, shifted = slope * s, tilt * s
        ahead = (value + moved) - (other + shifted)
        size = abs(value) + abs(moved) + abs(other) + abs(shifted)
        return ahead if abs(ahead) > 8 * _ULP * size else _exact(a, s) - _exact(b, s)
    high_a = high_b = -math.inf
    size = 0.0
    for value, slope in a.lines:
        moved = slope * s
        high_a = max(high_a, value + moved)
        size = max(size, abs(value) + abs(moved))
    for value, slope in b.lines:
        moved = slope * s
        high_b = max(high_b, value + moved)
        size = max(size, abs(value) + abs(moved))
    ahead = high_a - high_b
    if abs(ahead) > 8 * _ULP * size:
        return ahead
    return _exact(a, s) - _exact(b, s)


def _exact(envelope: Envelope, s: float) -> Fraction:
    at = Fraction(s)
    return max(Fraction(a) + Fraction(m) * at for a, m in envelope.lines)


def _slope_after(envelope: Envelope, s: float) -> float:
    """Return M of the line that is the maximum just after s, towards smaller s."""
    if len(envelope.lines) == 1:
        return envelope.lines[0][1]
    at = Fraction(s)
    values = [(Fraction(a) + Fraction(m) * at, m) for a, m in envelope.lines]
    highest = max(value for value, _ in values)
    return min(m for value, m in values if value == highest)


def _exact_meeting(a: Segment, b: Segment) -> Fraction:
    return (Fraction(b[0]) - Fraction(a[0])) / (Fraction(a[1]) - Fraction(b[1]))


def _hidden(line: Segment, s: float, inside: Envelope) -> bool:
    """Whether the line is below its envelope at s, beyond any rounding."""
    return any(_above(other, line, s) for other in inside.lines)


@dataclass(frozen=True, slots=True)
class Drift:
    """A priority that is a straight line in time, unless a guarantee puts it first."""

    guaranteed: bool
    """Comes before all that are not."""
    value: float
    """At time 0."""
    slope: float
    """In a second."""
    count: int = 0
    """Breaks ties: fewer allocations first."""


class Drifts:
    """The family of priorities that add up what was allocated; its time is in seconds, from 0."""

    def compare(self, a: Drift, b: Drift, now: float) -> int:
        """Order by guarantee, then by value, then by who grows slower, then by count."""
        if a.guaranteed != b.guaranteed:
            return -1 if a.guaranteed else 1
        if a.value == b.value and a.slope == b.slope:
            return (a.count > b.count) - (a.count < b.count)
        rise, other = a.slope * now, b.slope * now
        rounded = (a.value + rise) - (b.value + other)
        size = abs(a.value) + abs(rise) + abs(b.value) + abs(other)
        ahead: float | Fraction = rounded
        if abs(rounded) <= 8 * _ULP * size:
            ahead = (Fraction(a.value) - Fraction(b.value)) + (
                Fraction(a.slope) - Fraction(b.slope)
            ) * Fraction(now)
        ahead = ahead or a.slope - b.slope
        return (ahead > 0) - (ahead < 0)

    def rank(self, a: Drift, now: float) -> tuple[Rank, float]:
        """Return what sorts as `compare` does at `now`, counts aside, and how blurred it is."""
        exact = Fraction(a.value) + Fraction(a.slope) * Fraction(now)
        rank = (0 if a.guaranteed else 1, float(exact), exact, a.slope)
        return rank, _BLUR * (abs(a.value) + abs(a.slope * now))

    def crossing(self, a: Drift, b: Drift, now: float) -> float | None:
        """Return when the lines meet after `now`, rounded towards it; None: never."""
        if a.guaranteed != b.guaranteed or a.slope == b.slope:
            return None
        when = (b.value - a.value) / (a.slope - b.slope)
        if not now < when * _EARLY < math.inf:
            return None
        if now < when * _LATE:
            return when * _LATE
        exact = (Fraction(b.value) - Fraction(a.value)) / (Fraction(a.slope) - Fraction(b.slope))
        return now if exact > now else None
