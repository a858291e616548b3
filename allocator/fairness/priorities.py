"""Priority functions of time, compared exactly, and when two of them next cross.

Coefficients and times are floats, that is, exact rationals. Two priorities are told apart in
floating point where the difference is beyond any rounding, and in rational arithmetic where
it is not. So the order of the Live Tree and that of a plain scan are the same to the last tie.
"""

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple, TypeAlias

from typing_extensions import override

from allocator.fairness import exact
from allocator.fairness.live_tree import Node, Priorities

_ULP = 2.0**-53
_DOUBT = 8 * _ULP
"""Two priorities that differ by less than this, times the operands, are told apart exactly."""
_EARLY, _LATE = 1.0 + 8 * _ULP, 1.0 - 8 * _ULP
"""A crossing is two rounded differences and a rounded quotient away from its operands."""


@dataclass(frozen=True, slots=True)
class PriorityLine:
    """A priority that changes at a constant rate: value + slope × t."""

    value: int | Fraction
    slope: int | Fraction


class StraightLines(Priorities[PriorityLine, int | Fraction]):
    """Priorities that are straight lines in time, in exact arithmetic."""

    @override
    def compare(self, a: PriorityLine, b: PriorityLine, now: int | Fraction) -> int:
        """Order by value at `now`, then by slope."""
        ahead = (a.value - b.value) + (a.slope - b.slope) * now or a.slope - b.slope
        return (ahead > 0) - (ahead < 0)

    @override
    def crossing(self, a: PriorityLine, b: PriorityLine, now: int | Fraction) -> Fraction | None:
        """Return when the lines meet after `now`; None: never."""
        if a.slope == b.slope:
            return None
        when = Fraction(b.value - a.value) / Fraction(a.slope - b.slope)
        return when if when > now else None


Segment: TypeAlias = tuple[float, float]
"""(A, M): the line A + M·s."""

Rank: TypeAlias = tuple[int, float, tuple[float | Fraction, ...], float]
"""Sorts priorities at one instant: class, value rounded, what is left of it, how it goes on."""

_STILL = 2.0**-42
"""A quarter of a step of `in_steps`: a priority that moves by no more is constant."""
_BLUR = 2.0**-40
"""Of the operands: far more than rounding can do to what should be the same priority."""


@dataclass(slots=True)  # not frozen, which takes three times as long to make; nobody changes one
class Envelope:
    """A priority under SDRF: the maximum of straight lines in s = e^(−t/τ).

    Between two changes of allocation each commitment moves exponentially towards its over-use
    (Eq. 12), so o + c = A + M·s with A = o + ō and M = c − ō, and the maximum over resources
    is an upper envelope (Eq. 13).
    """

    lines: tuple[Segment, ...]
    """At least one, the highest at s = 0 first; those that can never be the maximum for s > 0 are
    left out."""
    count: int = 0
    """Breaks ties: fewer allocations first."""
    held: float = 0.0
    """Breaks ties before the count, where lines do not tell what a user holds: less first."""

    def faded(self, s: float) -> "Envelope":
        """Return this envelope, or a constant if it moves by almost nothing from s on."""
        if any(abs(slope * s) > _STILL for _, slope in self.lines):
            return self
        return Envelope(((self.lines[0][0], 0.0),), self.count, self.held)

    def at(self, s: float) -> float:
        """Return the priority, rounded."""
        if len(self.lines) == 1:
            ((a, m),) = self.lines
            return a + m * s
        return max([a + m * s for a, m in self.lines])


def envelope(lines: list[Segment], s: float, count: int = 0) -> Envelope:
    """Build an envelope for (0, s]: drop lines that another is above of at both ends."""
    if lines.count(lines[0]) == len(lines):
        return Envelope((lines[0],), count)
    kept: list[Segment] = []
    for line in sorted(set(lines), reverse=True):
        for other in kept:
            if other[1] >= line[1] or _above(other, line, s):
                break
        else:
            kept.append(line)
    return Envelope(tuple(kept), count)


def _above(upper: Segment, lower: Segment, s: float) -> bool:
    """Whether a line is above another at s, beyond any rounding, that of s included."""
    (a, m), (b, n) = upper, lower
    rise, other = m * s, n * s
    # Operands, not sums: these may be far smaller, and their errors are not.
    size = abs(a) + abs(rise) + abs(b) + abs(other)
    return (a + rise) - (b + other) > 16 * _ULP * size


class Envelopes(Priorities[Envelope, float]):
    """The family of SDRF's priorities; its time is −s, which grows from −1 towards 0."""

    @override
    def compare(self, a: Envelope, b: Envelope, now: float) -> int:
        """Order by value, then by who grows slower just after, then by count.

        As s falls, A + M·s grows by −M; of several lines that meet at a maximum the one with
        the least M takes over.
        """
        ahead = 0.0
        if a.lines != b.lines:
            s = -now
            ahead = _difference(a, b, s) or _slope_after(b, s) - _slope_after(a, s)
        ahead = ahead or a.held - b.held or float(a.count - b.count)
        return (ahead > 0) - (ahead < 0)

    @override
    def same_line(self, a: Envelope, b: Envelope) -> bool:
        return a.lines == b.lines

    @override
    def near(self, a: Envelope, b: Envelope, now: float) -> bool:
        if len(a.lines) == len(b.lines) == 1:
            ((value, slope),), ((later, tilt),) = a.lines, b.lines
            size = abs(value) + abs(slope * now) + abs(later) + abs(tilt * now) + 1.0
            return (later - tilt * now) - (value - slope * now) <= NEAR * size
        (value, size), (later, later_size) = _value(a, -now), _value(b, -now)
        return later - value <= NEAR * (size + later_size + 1.0)

    def rank(self, a: Envelope, now: float) -> tuple[Rank, float]:
        """Return what sorts as `compare` does at `now`, counts aside, and how blurred it is.

        The blur is beyond any difference that rounding makes to one and the same priority.
        """
        s = -now
        value, *rest = _exact(a, s)
        size = max([abs(level) + abs(slope * s) for level, slope in a.lines])
        return (0, value, tuple(rest), -_slope_after(a, s)), _BLUR * size

    @override
    def position(
        self,
        nodes: Sequence[Node[Any, Envelope, float]],
        node: Node[Any, Envelope, float],
        now: float,
    ) -> int:
        s, attribute = -now, node.attribute
        value, size = _value(attribute, s)
        place = bisect_left(
            nodes,
            (value, attribute.held, attribute.count, node.id),
            key=lambda n: (n.attribute.at(s), n.attribute.held, n.attribute.count, n.id),
        )
        # Each neighbour was compared with the node: if that was safe, all that came of it was.
        for neighbour in nodes[max(place - 1, 0) : place + 1]:
            other, other_size = _value(neighbour.attribute, s)
            close = abs(other - value) <= _DOUBT * (size + other_size)
            if close and neighbour.attribute.lines != attribute.lines:
                return super().position(nodes, node, now)
        return place

    @override
    def crossing(self, a: Envelope, b: Envelope, now: float) -> float | None:
        """Return the first meeting of the two envelopes after `now` (Eq. 14, 15).

        Rounded towards `now`. Meetings of lines that are below either envelope are left out;
        one where the envelopes only touch may be returned.
        """
        if a.lines == b.lines:
            return None
        if len(a.lines) == len(b.lines) == 1:
            return _meeting(a.lines[0], b.lines[0], now)
        first: float | None = None
        for line in a.lines:
            for other in b.lines:
                when = _meeting(line, other, now)
                if when is None or (first is not None and when >= first):
                    continue
                s = (other[0] - line[0]) / (line[1] - other[1])
                if not (_hidden(line, s, a) or _hidden(other, s, b)):
                    first = when
        return first


def _meeting(a: Segment, b: Segment, now: float) -> float | None:
    """Return when, after `now`, two lines meet, rounded towards it; None: never."""
    (value, slope), (other, tilt) = a, b
    if slope == tilt:
        return None
    s, s_now = (other - value) / (slope - tilt), -now
    if s <= 0 or s * _LATE >= s_now:
        return None
    early = s * _EARLY
    if early >= s_now:
        meeting = (Fraction(other) - Fraction(value)) / (Fraction(slope) - Fraction(tilt))
        return None if meeting >= s_now else now
    return -early


def _value(envelope: Envelope, s: float) -> tuple[float, float]:
    """Return the value at s, rounded, and the size of what went into it."""
    if len(envelope.lines) == 1:
        ((level, slope),) = envelope.lines
        moved = slope * s
        return level + moved, abs(level) + abs(moved)
    value, size = -math.inf, 0.0
    for level, slope in envelope.lines:
        moved = slope * s
        value = max(value, level + moved)
        size = max(size, abs(level) + abs(moved))
    return value, size


def _difference(a: Envelope, b: Envelope, s: float) -> float:
    """Return a − b at s with the right sign: rounded where that is safe, else exact."""
    if len(a.lines) == len(b.lines) == 1:
        ((value, slope),), ((other, tilt),) = a.lines, b.lines
        moved, shifted = slope * s, tilt * s
        ahead = (value + moved) - (other + shifted)
        size = abs(value) + abs(moved) + abs(other) + abs(shifted)
        return ahead if abs(ahead) > _DOUBT * size else _apart(a, b, s)
    high_a, size_a = _value(a, s)
    high_b, size_b = _value(b, s)
    ahead = high_a - high_b
    return ahead if abs(ahead) > _DOUBT * max(size_a, size_b) else _apart(a, b, s)


def _apart(a: Envelope, b: Envelope, s: float) -> int:
    """Return the sign of a − b at s."""
    one, other = _exact(a, s), _exact(b, s)
    return (one > other) - (one < other)


def _exact(envelope: Envelope, s: float) -> exact.Exact:
    if len(envelope.lines) == 1:
        return exact.value(*envelope.lines[0], s)
    return max([exact.value(level, slope, s) for level, slope in envelope.lines])


def _slope_after(envelope: Envelope, s: float) -> float:
    """Return M of the line that is the maximum just after s, towards smaller s."""
    if len(envelope.lines) == 1:
        return envelope.lines[0][1]
    values = [(exact.value(level, slope, s), slope) for level, slope in envelope.lines]
    highest = max(value for value, _ in values)
    return min(slope for value, slope in values if value == highest)


def _hidden(line: Segment, s: float, inside: Envelope) -> bool:
    """Whether the line is below its envelope at s, beyond any rounding."""
    return any(_above(other, line, s) for other in inside.lines)


NEAR = 2.0**-39
"""Two priorities that differ by less than this, times their size if that is above 1, are equal but
for rounding; a step of `Level.key` is half as long."""
_STEPS = 6144.0
"""Floats near this number are 2^-40 apart."""


class Level(NamedTuple):
    """Priority of a user at an instant, to compare users who may be equal but for rounding."""

    rank: int
    """Class of the priority; the lowest is first."""
    value: float
    """Priority within the class."""
    growth: float
    """Decides between equal priorities: the lowest is first. It says how the priority grows, by
    itself or by what the user holds."""

    @property
    def key(self) -> tuple[int, float, float]:
        """The sort key of levels, in which differences by rounding alone are removed.

        Values below 1 are in steps of 2^-40, all other numbers have 40 bits.
        """
        return self.rank, in_steps(self.value), forty_bits(self.growth)


def in_steps(value: float) -> float:
    """Return a number in steps of 2^-40 if it is below 1, or with 40 bits."""
    return (value + _STEPS) - _STEPS if abs(value) < 1.0 else forty_bits(value)


def forty_bits(value: float) -> float:
    """Return a number without the last bits, which rounding makes different."""
    mantissa, exponent = math.frexp(value)
    return math.ldexp(round(math.ldexp(mantissa, 40)), exponent - 40)


@dataclass(slots=True)
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


class Drifts(Priorities[Drift, float]):
    """The family of priorities that add up what was allocated; its time is in seconds, from 0."""

    @override
    def compare(self, a: Drift, b: Drift, now: float) -> int:
        """Order by guarantee, then by value, then by who grows slower, then by count."""
        if a.guaranteed != b.guaranteed:
            return -1 if a.guaranteed else 1
        if a.value == b.value and a.slope == b.slope:
            return (a.count > b.count) - (a.count < b.count)
        rise, other = a.slope * now, b.slope * now
        rounded = (a.value + rise) - (b.value + other)
        size = abs(a.value) + abs(rise) + abs(b.value) + abs(other)
        ahead: float = rounded
        if abs(rounded) <= _DOUBT * size:
            one = exact.value(a.value, a.slope, now)
            two = exact.value(b.value, b.slope, now)
            ahead = float((one > two) - (one < two))
        ahead = ahead or a.slope - b.slope
        return (ahead > 0) - (ahead < 0)

    @override
    def same_line(self, a: Drift, b: Drift) -> bool:
        return (a.guaranteed, a.value, a.slope) == (b.guaranteed, b.value, b.slope)

    @override
    def near(self, a: Drift, b: Drift, now: float) -> bool:
        rise, later_rise = a.slope * now, b.slope * now
        size = abs(a.value) + abs(rise) + abs(b.value) + abs(later_rise)
        ahead = (b.value + later_rise) - (a.value + rise)
        return a.guaranteed == b.guaranteed and ahead <= NEAR * (size + 1.0)

    def rank(self, a: Drift, now: float) -> tuple[Rank, float]:
        """Return what sorts as `compare` does at `now`, counts aside, and how blurred it is."""
        value, *rest = exact.value(a.value, a.slope, now)
        rank = (0 if a.guaranteed else 1, value, tuple(rest), a.slope)
        return rank, _BLUR * (abs(a.value) + abs(a.slope * now))

    @override
    def position(
        self, nodes: Sequence[Node[Any, Drift, float]], node: Node[Any, Drift, float], now: float
    ) -> int:
        guaranteed, rise = node.attribute.guaranteed, node.attribute.slope * now
        value = node.attribute.value + rise
        size = abs(node.attribute.value) + abs(rise)
        low, high = 0, len(nodes)
        while low < high:
            middle = (low + high) // 2
            other = nodes[middle].attribute
            rise = other.slope * now
            ahead = other.value + rise - value
            doubt = _DOUBT * (size + abs(other.value) + abs(rise))
            if other.guaranteed == guaranteed and abs(ahead) > doubt:
                before = ahead < 0
            else:
                before = self.precedes(nodes[middle], node, now)
            if before:
                low = middle + 1
            else:
                high = middle
        return low

    @override
    def crossing(self, a: Drift, b: Drift, now: float) -> float | None:
        """Return when the lines meet after `now`, rounded towards it; None: never."""
        if a.guaranteed != b.guaranteed or a.slope == b.slope:
            return None
        when = (b.value - a.value) / (a.slope - b.slope)
        if not now < when * _EARLY < math.inf:
            return None
        if now < when * _LATE:
            return when * _LATE
        meeting = (Fraction(b.value) - Fraction(a.value)) / (Fraction(a.slope) - Fraction(b.slope))
        return now if meeting > now else None
