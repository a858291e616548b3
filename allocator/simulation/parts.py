"""Converts resource amounts to whole numbers of small units; sums then have no rounding errors."""

import math
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from allocator.simulation.trace import Trace

_EXACT = 2**53
"""Limit up to which a double represents every whole number exactly."""
_DECIMAL = (1e3, 1e6, 1e9)
_LARGEST = 2.0**62

Amounts: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True)
class Parts:
    """A whole-number unit ("part") for each resource.

    A part is a thousandth of a unit (as in Mesos), a millionth or a billionth. The first of these
    is chosen for which all demands and capacities of the resource are whole numbers of parts. If no
    such part exists, the parts per unit are a power of two, and the total capacity lies between 2⁵²
    and 2⁵³ parts. Demands are then rounded down, but a positive demand never to 0. In both cases
    the total capacity is below 2⁵³ parts, so amounts are exact as doubles too.

    Args:
        per_unit: Number of parts per unit of the trace, for each resource.
    """

    per_unit: tuple[float, ...]

    @classmethod
    def of(cls, trace: Trace, machines: NDArray[np.float64]) -> "Parts":
        """Choose the unit of each resource, as the class describes, for a trace and its machines.

        Args:
            trace: The tasks.
            machines: Capacities in the trace's units, one row per machine.
        """
        return cls(
            tuple(
                _per_unit(demands, capacities)
                for demands, capacities in zip(trace.demand.T, machines.T, strict=True)
            )
        )

    @property
    def rounded(self) -> tuple[bool, ...]:
        """By resource: True if `whole` rounds to the nearest part, False if it rounds down."""
        return tuple(per_unit in _DECIMAL for per_unit in self.per_unit)

    def whole(self, amounts: NDArray[np.float64]) -> Amounts:
        """Convert amounts to parts, rounded as `rounded` says. Amounts above 2⁶² parts become 2⁶².

        Args:
            amounts: Amounts in the trace's units, one column per resource.
        """
        whole = np.empty(amounts.shape, np.int64)
        for index, (per_unit, rounded) in enumerate(zip(self.per_unit, self.rounded, strict=True)):
            with np.errstate(over="ignore"):
                scaled = amounts[:, index] * per_unit
            if rounded:
                np.rint(scaled, out=scaled)
            np.floor(scaled, out=scaled)
            np.minimum(scaled, _LARGEST, out=scaled)
            scaled[(scaled == 0.0) & (amounts[:, index] > 0.0)] = 1.0
            whole[:, index] = scaled
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
    """Return whether all amounts are whole numbers of parts.

    Args:
        values: Amounts in the trace's units.
        per_unit: Number of parts per unit.
    """
    with np.errstate(over="ignore"):
        return all(
            bool((np.rint(chunk * per_unit) / per_unit == chunk).all())
            for chunk in (values[:1000], values[1000:])  # the first chunk usually decides
        )
