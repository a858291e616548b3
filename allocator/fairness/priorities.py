"""Priorities as functions of time: exact comparison, and the next crossing of two priorities.

Coefficients and times are floats, and therefore exact rationals. Two priorities are compared in
floating point if their difference exceeds any rounding error, else in rational arithmetic. So the
Live Tree and a plain scan give the same order to the last tie.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final, NamedTuple, TypeAlias

from typing_extensions import override

from allocator.fairness import exact
from allocator.fairness.account import Account
from allocator.fairness.live_tree import Node, Priorities

_ULP: Final = 2.0**-53
_DOUBT: Final = 8 * _ULP
"""Two priorities that differ by less than this number, times the operands, are compared exactly."""
_EARLY: Final = 1.0 + 8 * _ULP
_LATE: Final = 1.0 - 8 * _ULP
"""`_EARLY` and `_LATE` bound the rounding error of a crossing: of two rounded differences and a
rounded quotient."""


@dataclass(frozen=True, slots=True)
class PriorityLine:
    """A priority that changes at a constant rate: value + slope × t."""

    value: int | Fraction
    slope: int | Fraction


class StraightLines(Priorities[PriorityLine]):
    """The family of priorities that are straight lines in time, compared in exact arithmetic."""

    @override
    def compare(self, a: PriorityLine, b: PriorityLine, now: float) -> int:
        """Compare two lines by their values at `now`, then by slope, the smaller first."""
        numerator, denominator = now.as_integer_ratio()
        ahead = (a.value - b.value) * denominator + (a.slope - b.slope) * numerator
        ahead = ahead or a.slope - b.slope
        return (ahead > 0) - (ahead < 0)

    @override
    def crossing(self, a: PriorityLine, b: PriorityLine, now: float) -> float | None:
        """Return the time after `now` at which the two lines meet, rounded down; None: never."""
        if a.slope == b.slope:
            return None
        meeting = Fraction(b.value - a.value) / Fraction(a.slope - b.slope)
        if meeting <= now:
            return None
        when = float(meeting)
        return max(when if when <= meeting else math.nextafter(when, now), now)


Segment: TypeAlias = tuple[float, float]
"""(A, M): the line A + M·s."""

Rank: TypeAlias = tuple[int, float, tuple[float | Fraction, ...], float]
"""Sort key of a priority at one time: class, rounded value, remainder of the value, growth.

This key is not the rank of the glossary and of displays, which is a user's place, from 1, in the
order of these keys."""

_CONSTANT_BELOW: Final = 2.0**-42
"""A quarter of a step of `in_steps`. A priority that moves by at most this amount is constant."""
_TOLERANCE: Final = 2.0**-40
"""Relative tolerance: far more than the rounding error of equal priorities, times the operands."""


@dataclass(slots=True, init=False)  # not frozen, and with a compiled constructor: both are slow
class Envelope:
    """A priority under SDRF: the maximum of straight lines A + M·s.

    s = e^(−t/τ) is the decay factor, which falls from 1 towards 0 as time passes. Between two
    changes of the allocation, each commitment c moves exponentially towards its over-use ō (SDRF
    paper, Eq. 12). So the sum of a share o and its commitment is A + M·s with A = o + ō and M = c −
    ō. The maximum over resources is an upper envelope of lines (SDRF paper, Eq. 13).
    """

    lines: tuple[Segment, ...]
    """At least one line, the highest at s = 0 first. Lines that are never the maximum for s > 0 are
    left out."""
    count: int
    """Breaks ties: fewer allocations first."""
    held: float
    """Breaks ties before the count, if lines do not depend on the allocation: the smaller
    allocation first."""
    level: float
    """A of the first line. Compiled code reads such attributes faster than items of tuples."""
    slope: float
    """M of the first line."""
    is_line: bool
    """Whether the first line is the only one."""

    def __init__(self, lines: tuple[Segment, ...], count: int = 0, held: float = 0.0) -> None:
        self.lines, self.count, self.held = lines, count, held
        self.level, self.slope = lines[0]
        self.is_line = len(lines) == 1

    def constant_if_decayed(self, s: float) -> "Envelope":
        """Return this envelope, or a constant priority if commitments have almost decayed.

        A constant is returned if each line A + M·s differs from A by less than a tiny bound now. As
        s only falls, it differs even less later.

        Args:
            s: Present decay factor e^(−t/τ), which falls from 1 towards 0.
        """
        for _, slope in self.lines:
            if abs(slope * s) > _CONSTANT_BELOW:
                return self
        return Envelope(((self.level, 0.0),), self.count, self.held)

    def at(self, s: float) -> float:
        """Return the priority when the decay factor e^(−t/τ) is `s`, rounded to a float."""
        if self.is_line:
            return self.level + self.slope * s
        return max([a + m * s for a, m in self.lines])


def envelope(lines: list[Segment], s: float, count: int = 0) -> Envelope:
    """Return a priority from now on: the maximum of lines in the decay factor s = e^(−t/τ).

    s falls from its present value towards 0. A line is left out if another line is above it at the
    present s and at 0, because it can never be the maximum.

    Args:
        lines: Pairs (A, M) for the lines A + M·s.
        s: Present decay factor.
        count: Allocation count of the user, which breaks ties.
    """
    if len(lines) == 2:  # most users have CPUs and memory
        first, second = lines
        if first[0] < second[0] or (first[0] == second[0] and first[1] < second[1]):
            first, second = second, first
        if first[1] >= second[1] or _above(first, second, s):
            return Envelope((first,), count)
        return Envelope((first, second), count)
    if lines.count(lines[0]) == len(lines):
        return Envelope((lines[0],), count)
    kept: list[Segment] = []
    for line in sorted(set(lines), reverse=True):
        for upper_line in kept:
            if upper_line[1] >= line[1] or _above(upper_line, line, s):
                break
        else:
            kept.append(line)
    return Envelope(tuple(kept), count)


def commitment_envelope(account: Account, stretch: float, s: float, *, thesis: bool) -> Envelope:
    """Return a user's SDRF priority from now on, as a function of the decay factor.

    Args:
        account: The user's account.
        stretch: Factor of the slopes: `DecayPolicy.stretch`, divided by the user's weight.
        s: Present decay factor e^(−t/τ).
        thesis: Whether the priority has the form max (o + c), instead of max o + max c.
    """
    weight, measured, commitments = account.weight, account.measured, account.commitments
    overuse, dominant, lines = account.overuse, 0.0, list[Segment]()
    for share in measured.values():  # one `max` of all values is slower in compiled code
        dominant = max(dominant, share)
    for name, part in measured.items():
        rate, share = overuse[name], part if thesis else dominant
        lines.append(((share + rate) / weight, (commitments[name] - rate) * stretch))
    return envelope(lines or [(0.0, 0.0)], s, account.count)


def _above(upper: Segment, lower: Segment, s: float) -> bool:
    """Return whether the line `upper` is above `lower` at s by more than any rounding error.

    Args:
        upper: A pair (A, M) for the line A + M·s.
        lower: Another such pair.
        s: The decay factor e^(−t/τ).
    """
    (a, m), (b, n) = upper, lower
    upper_rise, lower_rise = m * s, n * s
    # The error follows the operands: their sums may be far smaller.
    size = abs(a) + abs(upper_rise) + abs(b) + abs(lower_rise)
    return (a + upper_rise) - (b + lower_rise) > 16 * _ULP * size


class Envelopes(Priorities[Envelope]):
    """The family of SDRF priorities, for the Live Tree.

    Its time is −s, where the decay factor s = e^(−t/τ) falls from 1 towards 0 as time passes.
    """

    @override
    def compare(self, a: Envelope, b: Envelope, now: float) -> int:
        """Compare by value, then by growth just after `now`, then by allocation count.

        `now` is −s, the negative decay factor. As time passes, s falls, so a line A + M·s grows if
        M is negative. If several lines meet at the maximum, the line with the least M is the
        maximum afterwards.
        """
        ahead = 0.0
        if a.lines != b.lines:
            s = -now
            ahead = _difference(a, b, s) or _slope_after(b, s) - _slope_after(a, s)
        ahead = ahead or a.held - b.held or float(a.count - b.count)
        return (ahead > 0) - (ahead < 0)

    @override
    def precedes(self, a: Node[Any, Envelope], b: Node[Any, Envelope], now: float) -> bool:
        first, second = a.attribute, b.attribute
        if first.level == second.level and first.lines == second.lines:
            return (first.held, first.count, a.id) < (second.held, second.count, b.id)
        if first.is_line and second.is_line:
            moved, shifted = first.slope * now, second.slope * now
            ahead = (first.level - moved) - (second.level - shifted)
            size = abs(first.level) + abs(moved) + abs(second.level) + abs(shifted)
            if abs(ahead) > _DOUBT * size:
                return ahead < 0
        return super().precedes(a, b, now)

    @override
    def same_line(self, a: Envelope, b: Envelope) -> bool:
        return a.lines == b.lines

    @override
    def near(self, a: Envelope, b: Envelope, now: float) -> bool:
        if a.is_line and b.is_line:
            moved, shifted = a.slope * now, b.slope * now
            size = abs(a.level) + abs(moved) + abs(b.level) + abs(shifted) + 1.0
            return (b.level - shifted) - (a.level - moved) <= NEAR * size
        (value, size), (later, later_size) = _value(a, -now), _value(b, -now)
        return later - value <= NEAR * (size + later_size + 1.0)

    def rank(self, a: Envelope, now: float) -> tuple[Rank, float]:
        """Return the sort key of a priority at the time `now`, and the key's tolerance.

        `now` is −s, the negative decay factor.
        The key orders as `compare` does, without allocation counts. The tolerance exceeds any
        difference that rounding makes between equal priorities.
        """
        s = -now
        value, *remainder = _exact(a, s)
        size = max([abs(level) + abs(slope * s) for level, slope in a.lines])
        return (0, value, tuple(remainder), -_slope_after(a, s)), _TOLERANCE * size

    @override
    def position(
        self,
        nodes: list[Node[Any, Envelope]],
        node: Node[Any, Envelope],
        now: float,
    ) -> int:
        s, index, end = -now, 0, len(nodes)
        value, size = _value(node.attribute, s)
        while index < end:
            middle = (index + end) // 2
            other, other_size = _value(nodes[middle].attribute, s)
            is_certain = abs(value - other) > _DOUBT * (size + other_size)
            if other < value if is_certain else self.precedes(nodes[middle], node, now):
                index = middle + 1
            else:
                end = middle
        return index

    @override
    def crossing(self, a: Envelope, b: Envelope, now: float) -> float | None:
        """Return the time after `now` at which two priorities next meet (SDRF paper, Eq. 14, 15).

        Times are −s, the negative decay factor, which grows from −1 towards 0. The result is
        rounded towards `now`, so it may be too early but never too late. The priorities may only
        touch at this time without a change of the order.

        Returns:
            The time. None: the priorities do not meet any more.
        """
        if a.is_line and b.is_line:
            return _meeting(a.level, a.slope, b.level, b.slope, now)
        if a.lines == b.lines:
            return None
        first: float | None = None
        for line in a.lines:
            for second in b.lines:
                when = _meeting(line[0], line[1], second[0], second[1], now)
                if when is None or (first is not None and when >= first):
                    continue
                s = (second[0] - line[0]) / (line[1] - second[1])
                if not (_hidden(line, s, a) or _hidden(second, s, b)):
                    first = when
        return first


def _meeting(
    level: float, slope: float, second: float, second_slope: float, now: float
) -> float | None:
    """Return the time after `now` at which two lines meet, rounded towards `now`.

    Args:
        level: A of the line A + M·s.
        slope: M of this line.
        second: A of another line.
        second_slope: M of the other line.
        now: The present time as −s, the negative decay factor.

    Returns:
        The time as −s. None: the lines do not meet after `now`.
    """
    if slope == second_slope:
        return None
    s, s_now = (second - level) / (slope - second_slope), -now
    if s <= 0 or s * _LATE >= s_now:
        return None
    early = s * _EARLY
    if early >= s_now:
        meeting = (Fraction(second) - Fraction(level)) / (Fraction(slope) - Fraction(second_slope))
        return None if meeting >= s_now else now
    return -early


def _value(envelope: Envelope, s: float) -> tuple[float, float]:
    """Return the priority at the decay factor s, and a number that bounds its rounding error.

    The second number is the largest |A| + |M·s| of the lines A + M·s. The rounding error is at most
    a small multiple of it.
    """
    if envelope.is_line:
        moved = envelope.slope * s
        return envelope.level + moved, abs(envelope.level) + abs(moved)
    value, size = -math.inf, 0.0
    for level, slope in envelope.lines:
        moved = slope * s
        value = max(value, level + moved)
        size = max(size, abs(level) + abs(moved))
    return value, size


def _difference(a: Envelope, b: Envelope, s: float) -> float:
    """Return a number with the sign of the difference a − b at the decay factor s.

    It is the floating-point difference if this exceeds any rounding error, else the exact sign.
    """
    if a.is_line and b.is_line:
        moved, shifted = a.slope * s, b.slope * s
        ahead = (a.level + moved) - (b.level + shifted)
        size = abs(a.level) + abs(moved) + abs(b.level) + abs(shifted)
        return ahead if abs(ahead) > _DOUBT * size else _exact_sign(a, b, s)
    high_a, size_a = _value(a, s)
    high_b, size_b = _value(b, s)
    ahead = high_a - high_b
    return ahead if abs(ahead) > _DOUBT * max(size_a, size_b) else _exact_sign(a, b, s)


def _exact_sign(a: Envelope, b: Envelope, s: float) -> int:
    """Return the sign of a − b at the decay factor s, in exact arithmetic: −1, 0 or 1."""
    exact_a, exact_b = _exact(a, s), _exact(b, s)
    return (exact_a > exact_b) - (exact_a < exact_b)


def _exact(envelope: Envelope, s: float) -> exact.Exact:
    """Return the priority at the decay factor s without rounding."""
    if envelope.is_line:
        return exact.value(envelope.level, envelope.slope, s)
    return max([exact.value(level, slope, s) for level, slope in envelope.lines])


def _slope_after(envelope: Envelope, s: float) -> float:
    """Return M of the line A + M·s that is the maximum just after now.

    Just after now, the decay factor is slightly below its present value s.
    """
    if envelope.is_line:
        return envelope.slope
    values = [(exact.value(level, slope, s), slope) for level, slope in envelope.lines]
    highest = max(value for value, _ in values)
    return min(slope for value, slope in values if value == highest)


def _hidden(line: Segment, s: float, inside: Envelope) -> bool:
    """Return whether a line of a priority is surely not its maximum at the decay factor s.

    Surely: the line is below another line of `inside` by more than any rounding error.
    """
    return any(_above(candidate, line, s) for candidate in inside.lines)


NEAR: Final = 2.0**-39
"""Two priorities are equal except for rounding if they differ by less than this number, times their
size if the size exceeds 1. A step of `Level.key` is half as long."""
_STEPS: Final = 6144.0
"""Floats near this number are 2^-40 apart."""
OFFSET: Final = (math.sqrt(5.0) - 2.0) / 2.0 * 2.0**-40
"""A number that is subtracted before rounding to steps of 2^-40.

Values after whole half-lives are often multiples of a power of 2. Without this number, some of them
are half a step, and rounding errors decide between two steps. With it, no simple fraction is near
the bounds between steps."""
_INTEGERS: Final = 1.5 * 2.0**52
"""Floats near this number are integers."""


class Level(NamedTuple):
    """A user's priority at one time, for comparing users that are equal except for rounding."""

    rank: int
    """Class of the priority; the lowest is first."""
    value: float
    """Priority within the class."""
    growth: float
    """Tie-breaker: of equal priorities, the one with the lowest growth is first. The growth is over
    time, or with the allocation."""

    @property
    def key(self) -> tuple[int, float, float]:
        """The result of `key_after` for steps that begin at 0."""
        return self.key_after(0.0)

    def key_after(self, offset: float) -> tuple[int, float, float]:
        """Return the sort key of this priority, in steps that hide most rounding errors.

        Values below 1 are rounded to multiples of 2^-40, all other numbers to 40 significant bits.

        Args:
            offset: The value minus this number is rounded; see `OFFSET`.
        """
        return self.rank, in_steps(self.value - offset), forty_bits(self.growth)


def level_key(priority: Envelope, offset: float = 0.0) -> tuple[int, float, float]:
    """Return the key of the level of an SDRF priority whose present decay factor is 1.

    Args:
        priority: The priority.
        offset: Values minus this number are rounded; see `OFFSET`.
    """
    value, growth = _level(priority, offset)
    return 0, in_steps(value - offset), forty_bits(growth)


def level_of(priority: Envelope) -> Level:
    """Return the level of an SDRF priority whose present decay factor is 1."""
    return Level(0, *_level(priority))


def _level(priority: Envelope, offset: float = 0.0) -> tuple[float, float]:
    """Return value and growth of an SDRF priority whose present decay factor is 1."""
    constant = priority.constant_if_decayed(1.0)
    begin, slope = constant.level, constant.slope
    if not constant.is_line:  # of equal lines, the fastest-growing, as in `Envelopes.compare`
        begin, slope = max(
            constant.lines, key=lambda line: (in_steps(line[0] + line[1] - offset), -line[1])
        )
    return begin + slope, in_steps(-slope - offset)


def in_steps(value: float) -> float:
    """Round a number below 1 to a multiple of 2^-40, and any other to 40 significant bits."""
    return (value + _STEPS) - _STEPS if abs(value) < 1.0 else forty_bits(value)


def forty_bits(value: float) -> float:
    """Round a number to 40 significant bits, so that the bits with rounding errors are dropped."""
    mantissa, exponent = math.frexp(value)
    return math.ldexp((mantissa * 2.0**40 + _INTEGERS) - _INTEGERS, exponent - 40)


@dataclass(slots=True)
class Drift:
    """A priority that is a straight line in time, for policies that accumulate allocations.

    Users that hold less than their guarantee come before all others.
    """

    guaranteed: bool
    """Whether the user is below its guarantee. Such users come before all others."""
    value: float
    """Priority at time 0."""
    slope: float
    """Growth per second."""
    count: int = 0
    """Breaks ties: fewer allocations first."""


class Drifts(Priorities[Drift]):
    """The family of linear priorities for the Live Tree. Its time is in seconds from 0.

    Policies that accumulate allocations over time use this family.
    """

    @override
    def compare(self, a: Drift, b: Drift, now: float) -> int:
        """Compare two priorities: users below their guarantee come first, then the lowest value.

        Equal values are compared by slope, then by allocation count; the lowest comes first.
        """
        if a.guaranteed != b.guaranteed:
            return -1 if a.guaranteed else 1
        if a.value == b.value and a.slope == b.slope:
            return (a.count > b.count) - (a.count < b.count)
        rise_a, rise_b = a.slope * now, b.slope * now
        rounded = (a.value + rise_a) - (b.value + rise_b)
        size = abs(a.value) + abs(rise_a) + abs(b.value) + abs(rise_b)
        ahead: float = rounded
        if abs(rounded) <= _DOUBT * size:
            exact_a = exact.value(a.value, a.slope, now)
            exact_b = exact.value(b.value, b.slope, now)
            ahead = float((exact_a > exact_b) - (exact_a < exact_b))
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
        """Return a priority's sort key at `now` in seconds, and the key's tolerance.

        The key orders as `compare` does, without allocation counts.
        """
        value, *remainder = exact.value(a.value, a.slope, now)
        rank = (0 if a.guaranteed else 1, value, tuple(remainder), a.slope)
        return rank, _TOLERANCE * (abs(a.value) + abs(a.slope * now))

    @override
    def position(self, nodes: list[Node[Any, Drift]], node: Node[Any, Drift], now: float) -> int:
        guaranteed, rise = node.attribute.guaranteed, node.attribute.slope * now
        value = node.attribute.value + rise
        size = abs(node.attribute.value) + abs(rise)
        low, high = 0, len(nodes)
        while low < high:
            middle = (low + high) // 2
            attribute = nodes[middle].attribute
            rise = attribute.slope * now
            ahead = attribute.value + rise - value
            doubt = _DOUBT * (size + abs(attribute.value) + abs(rise))
            if attribute.guaranteed == guaranteed and abs(ahead) > doubt:
                precedes = ahead < 0
            else:
                precedes = self.precedes(nodes[middle], node, now)
            if precedes:
                low = middle + 1
            else:
                high = middle
        return low

    @override
    def crossing(self, a: Drift, b: Drift, now: float) -> float | None:
        """Return the time in seconds at which the lines next meet; None: never."""
        if a.guaranteed != b.guaranteed or a.slope == b.slope:
            return None
        when = (b.value - a.value) / (a.slope - b.slope)
        if not now < when * _EARLY < math.inf:
            return None
        if now < when * _LATE:
            return when * _LATE
        meeting = (Fraction(b.value) - Fraction(a.value)) / (Fraction(a.slope) - Fraction(b.slope))
        return now if meeting > now else None
