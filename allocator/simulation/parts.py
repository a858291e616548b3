"""Amounts as whole numbers, so that nothing is lost when tasks come and go."""

import math
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from allocator.simulation.trace import Trace

_EXACT = 2**53
"""Up to here every whole number is a double."""
_DECIMAL = (1e3, 1e6, 1e9)
_LARGEST = 2.0**62

Amounts: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True)
class Parts:
    """How many parts of each resource make one unit.

    Of each resource these are thousandths, as Mesos counts, or millionths or billionths,
    if all demands and capacities are whole numbers of them. If not, so many that the
    capacity is a whole number between 2⁵² and 2⁵³; demands are rounded down to parts, but
    never to none. Whole capacities are below 2⁵³ either way, hence exact as doubles as well.
    """

    per_unit: tuple[float, ...]

    @classmethod
    def of(cls, trace: Trace, machines: NDArray[np.float64]) -> "Parts":
        """Choose parts for a trace's demands on machines, one row of capacities each."""
        return cls(
            tuple(
                _per_unit(demands, capacities)
                for demands, capacities in zip(trace.demand.T, machines.T, strict=True)
            )
        )

    @property
    def rounded(self) -> tuple[bool, ...]:
        """Of each resource, whether amounts are rounded to the nearest part, and not down."""
        return tuple(per_unit in _DECIMAL for per_unit in self.per_unit)

    def whole(self, amounts: NDArray[np.float64]) -> Amounts:
        """Return amounts, one row each, in parts; what is too large for them as 2⁶²."""
        whole = np.empty(amounts.shape, np.int64)
        for place, (per_unit, rounded) in enumerate(zip(self.per_unit, self.rounded, strict=True)):
            with np.errstate(over="ignore"):
                scaled = amounts[:, place] * per_unit
            if rounded:
                np.rint(scaled, out=scaled)
            np.floor(scaled, out=scaled)
            np.minimum(scaled, _LARGEST, out=scaled)
            scaled[(scaled == 0.0) & (amounts[:, place] > 0.0)] = 1.0
            whole[:, place] = scaled
        return whole


def _per_unit(demands: NDArray[np.float64], capacities: NDArray[np.float64]) -> float:
    total = math.fsum(capacities)
    for per_unit in _DECIMAL:
        if (
            total * per_unit < _EXACT
            and _are_whole(capacities, per_unit)
            and _are_whole(demands, per_unit)
        ):
            return per_unit
    _mantissa, exponent = math.frexp(total)
    return math.ldexp(1.0, min(53 - exponent, 1023))


def _are_whole(values: NDArray[np.float64], per_unit: float) -> bool:
    """Whether all values are what a decimal number of so many digits is read as."""
    with np.errstate(over="ignore"):
        return all(
            bool((np.rint(some * per_unit) / per_unit == some).all())
            for some in (values[:1000], values[1000:])  # the first mostly tell
        )
