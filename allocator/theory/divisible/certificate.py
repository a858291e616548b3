"""Proof in exact fractions that a linear program's floating-point solution is optimal."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

_LARGEST_DENOMINATOR = 1_000_000
_ZERO = Fraction(0)


@dataclass(frozen=True, slots=True)
class Program:
    """Maximise the last variable, where rows · x ≤ bounds and x ≥ 0."""

    rows: tuple[tuple[tuple[int, Fraction], ...], ...]
    """Numbers of variables with their coefficients, by row."""
    bounds: tuple[Fraction, ...]
    variables: int

    @classmethod
    def of(
        cls, rows: Iterable[Mapping[int, Fraction]], bounds: Iterable[Fraction], variables: int
    ) -> "Program":
        """Make one of coefficients by number of the variable, by row."""
        return cls(tuple(tuple(row.items()) for row in rows), tuple(bounds), variables)

    @property
    def coefficients(self) -> int:
        """How many there are."""
        return sum(map(len, self.rows))


@dataclass(frozen=True, slots=True)
class Solution:
    """An optimal point, and prices that prove it."""

    point: tuple[Fraction, ...]
    """Of each variable."""
    prices: tuple[Fraction, ...]
    """Of each row: what the maximum would gain by one more unit of its bound."""


def certify(program: Program, point: Sequence[float], prices: Sequence[float]) -> Solution | None:
    """Return the simple fractions next to a point and its prices if they are an exact optimum.

    A feasible point and feasible prices of equal value prove each other optimal (strong
    duality). None: they are not, which says nothing about the floating-point solution. Costs one
    fraction's multiplication for each coefficient.
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
    worth = sum((b * p for b, p in zip(program.bounds, proof, strict=True)), _ZERO)
    if min(columns) < 0 or columns[-1] < 1 or worth != exact[-1]:
        return None
    return Solution(exact, proof)


def _simple(value: float) -> Fraction:
    return Fraction(value).limit_denominator(_LARGEST_DENOMINATOR)
