"""Progressive filling: the max-min fair shares of users who may use some machines (TSF, Alg. 1).

Each round raises the least share of all active users as far as it goes, by a linear program, and
freezes users that cannot go on. Who these are is read from the program's prices: by
complementary slackness, a user whose share has a price has that same share in every optimum. One
whose price is 0 stays active, even if it cannot go on either; a later round freezes it at the
same level. So nobody is frozen by comparing floating-point levels, and small problems are solved
in exact fractions.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csr_array

from allocator.theory.divisible.certificate import Program, Solution, certify

Number: TypeAlias = Fraction | float
Watch: TypeAlias = Callable[[int, int], None]
"""Told after each round how many users are frozen, of how many."""

_CERTIFIED = 2000
"""Coefficients up to which a program is proved in fractions; that costs some milliseconds."""
_DENSE = 2000
"""Coefficients, zeros included, up to which these are cheaper than what SciPy does to leave them
out."""
_PRICED = 1e-6
"""Prices of shares add up to 1 and are exact to about 1e-9."""
_REMEMBERED = 1024
"""Small programs that are not solved again. Nearly alike problems, as where lies are looked for or
policies are compared, lead to the same ones again and again."""
_SMALL = 64
"""Coefficients of such a program at most."""
_TOLERANCE = 1e-10
_ZERO = Fraction(0)


@dataclass(frozen=True, slots=True)
class Tank:
    """Users that are all alike, and rise together."""

    share: Fraction
    """Of one task of one user, over its weight; more than 0."""
    base: Fraction
    """What the share begins at: a commitment, over the weight."""
    limit: Fraction | None
    """Tasks that a user has at most."""
    takes: dict[int, dict[str, Fraction]]
    """By place where its tasks may run, one at least: what part of the place's resources a task
    takes."""
    users: int = 1


@dataclass(frozen=True, slots=True)
class Filled:
    """The max-min fair allocation."""

    tasks: list[Number]
    """Of one of the users of each tank."""
    placed: list[dict[int, Number]]
    """The same by place; there may be other ways to place them."""
    exact: bool
    """All numbers are proved fractions; else they are floating-point numbers."""


def fill(tanks: Sequence[Tank], watch: Watch = lambda _frozen, _all: None) -> Filled:
    """Raise the least share, then the second least, and so on, until nobody can go on.

    Args:
        tanks: Who shares the places.
        watch: Told how it gets on.

    Returns:
        The allocation. It takes one linear program for each tank at most, and fewer if many stop
        together; what is filled for good takes no part in the next one.

    Raises:
        ArithmeticError: the solver gave up.
    """
    filling = _Filling(tanks)
    while filling.active:
        filling.round()
        watch(len(tanks) - len(filling.active), len(tanks))
    number: Callable[[Fraction], Number] = Fraction if filling.exact else float
    return Filled(
        [number(filling.tasks[t]) for t in range(len(tanks))],
        [
            {place: number(amount) for place, amount in filling.placed[t].items() if amount}
            for t in range(len(tanks))
        ],
        filling.exact,
    )


class _Filling:
    """Where filling stands between two rounds."""

    def __init__(self, tanks: Sequence[Tank]) -> None:
        self.active = set(range(len(tanks)))
        self.tasks: dict[int, Fraction] = {}
        """Of frozen tanks."""
        self.placed: list[dict[int, Fraction]] = [{} for _ in tanks]
        self.exact = True
        self._tanks = tanks
        self._open = {t: list(tank.takes) for t, tank in enumerate(tanks)}
        """By tank that takes part in the next round: places where it may have tasks still."""
        self._alone = [
            sum((1 / max(parts.values()) for parts in tank.takes.values()), _ZERO) for tank in tanks
        ]
        """Tasks that a tank's user could run alone: variables are in this unit, from 0 to 1."""

    def round(self) -> None:
        """Find the highest level for all active tanks, and freeze those it stops."""
        unit = max(self._tanks[t].base + self._tanks[t].share * self._alone[t] for t in self.active)
        variables = [(t, place) for t, places in self._open.items() for place in places]
        program, rising = self._program(variables, unit)
        solved = solve(program, proved=self.exact and program.coefficients <= _CERTIFIED)
        self.exact = solved.proof is not None
        if solved.proof is not None:
            point, prices, least_price = solved.proof.point, solved.proof.prices, 0.0
        else:
            point = tuple(Fraction(value) for value in solved.point)
            prices = tuple(Fraction(value) for value in solved.prices)
            least_price = _PRICED
        for (t, place), amount in zip(variables, point[:-1], strict=True):
            self.placed[t][place] = amount * self._alone[t]
        for row, t in rising.items():
            if prices[row] > least_price:
                self._freeze(t, point[-1] * unit)
        self._close(variables, solved.slopes)

    def _freeze(self, t: int, level: Fraction) -> None:
        tank = self._tanks[t]
        tasks = max(_ZERO, (level - tank.base) / tank.share)
        self.tasks[t] = tasks if tank.limit is None else min(tasks, tank.limit)
        self.active.remove(t)

    def _program(
        self, variables: list[tuple[int, int]], unit: Fraction
    ) -> tuple[Program, dict[int, int]]:
        """Return a round's program (Eq. 1 to 4), and the active tanks by row of their level."""
        level = len(variables)
        capacity: dict[tuple[int, str], dict[int, Fraction]] = {}
        mine: dict[int, dict[int, Fraction]] = {}
        for column, (t, place) in enumerate(variables):
            tank = self._tanks[t]
            mine.setdefault(t, {})[column] = Fraction(-1)
            for resource, part in tank.takes[place].items():
                row = capacity.setdefault((place, resource), {})
                row[column] = part * tank.users * self._alone[t]
        rows = list(capacity.values())
        bounds = [Fraction(1)] * len(rows)
        rising = {}
        for t in self._open:
            tank, tasks = self._tanks[t], mine.get(t, {})
            if t in self.active:
                rising[len(rows)] = t
                rise = tank.share * self._alone[t] / unit
                rows.append(dict.fromkeys(tasks, -rise) | {level: Fraction(1)})
                bounds.append(tank.base / unit)
            else:
                rows.append(tasks)
                bounds.append(-self.tasks[t] / self._alone[t])
            if tank.limit is not None:
                rows.append(dict.fromkeys(tasks, Fraction(1)))
                bounds.append(tank.limit / self._alone[t])
        return Program.of(rows, bounds, level + 1), rising

    def _close(self, variables: list[tuple[int, int]], slopes: Sequence[float]) -> None:
        """Leave out what no later round can change.

        A variable that would lower the level has the value 0 in every optimum of this round, and
        later rounds look for one among these.
        """
        users: dict[int, set[int]] = {}
        for t in self._open:
            self._open[t] = []
        for (t, place), slope in zip(variables, slopes, strict=True):
            if slope <= _PRICED:
                self._open[t].append(place)
                users.setdefault(place, set()).add(t)
        reached, ahead = set(self.active), list(self.active)
        while ahead:
            for place in self._open[ahead.pop()]:
                new = users.pop(place, set()) - reached
                reached |= new
                ahead.extend(new)
        self._open = {t: places for t, places in self._open.items() if t in reached}


@dataclass(frozen=True, slots=True)
class Solved:
    """What the solver has found."""

    point: tuple[float, ...]
    """An optimal one."""
    prices: tuple[float, ...]
    """Of the rows."""
    slopes: tuple[float, ...]
    """By how much variables but the last cost."""
    proof: Solution | None
    """In fractions, if that was wanted and is one."""


def solve(program: Program, *, proved: bool = True) -> Solved:
    """Find an optimal point, and prove it if that is wanted.

    Raises:
        ArithmeticError: the solver gave up.
    """
    if program.coefficients <= _SMALL:
        return _remembered(program, proved=proved)
    return _solve(program, proved=proved)


def _solve(program: Program, *, proved: bool) -> Solved:
    columns = [column for row in program.rows for column, _factor in row]
    values = [float(factor) for row in program.rows for _column, factor in row]
    starts = np.cumsum([0, *map(len, program.rows)])
    cost = np.zeros(program.variables)
    cost[-1] = -1.0
    matrix = csr_array((values, columns, starts), shape=(len(program.rows), program.variables))
    found = linprog(
        cost,
        A_ub=matrix.toarray() if math.prod(matrix.shape) <= _DENSE else matrix,
        b_ub=[float(bound) for bound in program.bounds],
        method="highs-ds",
        options={
            "primal_feasibility_tolerance": _TOLERANCE,
            "dual_feasibility_tolerance": _TOLERANCE,
        },
    )
    if found.x is None:
        raise ArithmeticError(f"the linear program was not solved: {found.message}")
    point = tuple(max(0.0, value) for value in found.x.tolist())
    prices = tuple(max(0.0, -price) for price in found.ineqlin.marginals.tolist())
    slopes = tuple(found.lower.marginals.tolist()[:-1])
    return Solved(point, prices, slopes, certify(program, point, prices) if proved else None)


_remembered = lru_cache(_REMEMBERED)(_solve)
