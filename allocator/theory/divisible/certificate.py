"""Proves that a floating-point solution of a linear program is optimal, in exact fractions."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

_LARGEST_DENOMINATOR = 1_000_000
_ZERO = Fraction(0)


@dataclass(frozen=True, slots=True)
class Program:
    """A linear program: maximise the last variable, subject to rows · x ≤ bounds and x ≥ 0."""

    rows: tuple[tuple[tuple[int, Fraction], ...], ...]
    """For each constraint, (variable index, coefficient) of its nonzero coefficients."""
    bounds: tuple[Fraction, ...]
    variables: int

    @classmethod
    def of(
        cls, rows: Iterable[Mapping[int, Fraction]], bounds: Iterable[Fraction], variables: int
    ) -> "Program":
        """Build a program from coefficients by variable index.

        Args:
            rows: For each constraint, coefficients by variable index.
            bounds: Upper bound of each constraint.
            variables: Number of variables.
        """
        return cls(tuple(tuple(row.items()) for row in rows), tuple(bounds), variables)

    @property
    def coefficients(self) -> int:
        """Total number of nonzero coefficients, to estimate the cost of a proof."""
        return sum(map(len, self.rows))


@dataclass(frozen=True, slots=True)
class Solution:
    """An optimal point of a program, and the prices (dual variables) that prove its optimality."""

    point: tuple[Fraction, ...]
    """Value of each variable at the optimal point."""
    prices: tuple[Fraction, ...]
    """Price of each row: how much the maximum would rise per unit added to the row's bound."""


def certify(program: Program, point: Sequence[float], prices: Sequence[float]) -> Solution | None:
    """Turn a floating-point solution into a proved exact solution, if possible.

    The values of the variables and the prices (dual variables) are rounded to simple fractions,
    which are then checked exactly. If both are feasible and their objectives are equal, they prove
    each other optimal (strong duality). The cost is one multiplication of fractions for each
    coefficient.

    Args:
        program: The linear program.
        point: Value of each variable, from a floating-point solver.
        prices: Dual variable of each row (constraint), from the same solver.

    Returns:
        The exact solution; None if the rounded numbers are not an optimum. In the latter case, the
        floating-point solution may still be optimal.
    """
    exact = tuple(_simple(value) for value in point)
    proof = tuple(_simple(value) for value in prices)
    if min(exact) < 0 or min(proof) < 0:
        return None
    columns = [_ZERO] * program.variables
    for row, bound, price in zip(program.rows, program.bounds, proof, strict=True):
        if sum((factor * exact[column] for column, factor in row), _ZERO) > bound:
            return None
        if price:
            for column, factor in row:
                columns[column] += price * factor
    worth = sum((bound * price for bound, price in zip(program.bounds, proof, strict=True)), _ZERO)
    if min(columns) < 0 or columns[-1] < 1 or worth != exact[-1]:
        return None
    return Solution(exact, proof)


def _simple(value: float) -> Fraction:
    return Fraction(value).limit_denominator(_LARGEST_DENOMINATOR)
