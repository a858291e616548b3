"""Progressive filling: max-min fair shares of users with placement constraints (TSF, Algorithm 1).

Each round raises the smallest share of all active users as far as possible, by a linear program.
The round then freezes users whose share cannot rise further: they get no more tasks.

The program's prices (dual variables) identify these users. By complementary slackness, a user whose
share has a positive price has the same share in every optimum. A user whose price is 0 stays
active, even if its share cannot rise; a later round freezes it at the same share.

So the algorithm never compares floating-point shares, and small problems are solved in exact
fractions.
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
ProgressCallback: TypeAlias = Callable[[int, int], None]
"""Progress callback: receives the number of frozen users and of all users after each round."""

_CERTIFIED = 2000
"""Maximum number of coefficients of a program whose optimum is proved in exact fractions.

A proof takes some milliseconds.
"""
_DENSE = 2000
"""Maximum number of coefficients, zeros included, for which SciPy gets a dense matrix.

Below this number, SciPy's sparse matrices cost more.
"""
_PRICED = 1e-6
"""Smallest price that counts as positive.

Prices of shares add up to 1, with errors of about 1e-9.
"""
_REMEMBERED = 1024
"""Number of small programs whose solutions are cached.

Searches for lies and comparisons of policies solve the same small programs again and again.
"""
_SMALL = 64
"""Largest number of coefficients for which a program's solution is cached."""
_TOLERANCE = 1e-10
_ZERO = Fraction(0)


@dataclass(frozen=True, slots=True)
class Tank:
    """A group of identical users, pictured as a tank: their shares rise together like its water."""

    share: Fraction
    """Share of one task, divided by the user's weight; positive."""
    base: Fraction
    """Share at which the tank starts: the commitment divided by the weight."""
    limit: Fraction | None
    """Maximum number of tasks of one user; None sets no maximum."""
    takes: dict[int, dict[str, Fraction]]
    """By index of a place where a task may run, the fraction of each resource that one task needs.

    At least one place is given. A place is a group of machines that the solver treats as one.
    """
    users: int = 1


@dataclass(frozen=True, slots=True)
class Filled:
    """A max-min fair allocation; lists have one entry per tank."""

    tasks: list[Number]
    """Number of tasks of one user of the tank."""
    placed: list[dict[int, Number]]
    """The same tasks by index of the place. Other placements of the same tasks may exist."""
    exact: bool
    """True if all numbers are proved fractions; False if they are floating-point numbers."""


def fill(tanks: Sequence[Tank], watch: ProgressCallback = lambda _frozen, _all: None) -> Filled:
    """Compute the max-min fair allocation of places (machine groups) to tanks (user groups).

    The smallest share is raised first, then the second smallest, and so on. At most one linear
    program is solved for each tank, fewer if the shares of many tanks stop rising together. Later
    programs leave out tanks that they cannot change.

    Args:
        tanks: Groups of users that share the places.
        watch: Progress callback: receives the number of tanks with a final share, and of all tanks.

    Returns:
        The max-min fair allocation.

    Raises:
        ArithmeticError: The solver failed.
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
    """State of `fill` between two rounds.

    A tank is a group of identical users. The tanks' shares rise in each round; a tank whose share
    cannot rise further is frozen with its final number of tasks.
    """

    def __init__(self, tanks: Sequence[Tank]) -> None:
        self.active = set(range(len(tanks)))
        self.tasks: dict[int, Fraction] = {}
        """For each frozen tank, the final number of tasks of one user."""
        self.placed: list[dict[int, Fraction]] = [{} for _ in tanks]
        self.exact = True
        self._tanks = tanks
        self._open = {t: list(tank.takes) for t, tank in enumerate(tanks)}
        """For each tank in the next round, the places whose number of tasks may still change."""
        self._alone = [
            sum((1 / max(parts.values()) for parts in tank.takes.values()), _ZERO) for tank in tanks
        ]
        """For each tank, the number of tasks that one user could run alone.

        Program variables use this unit.
        """

    def round(self) -> None:
        """Raise the shares of all active tanks (user groups) together, as far as possible.

        Tanks whose shares cannot rise further are then frozen with their final number of tasks.
        """
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
        """Build the linear program of the next round (TSF paper, Eq. 1 to 4).

        The program maximises the level, which is the smallest share of an active tank. A tank is a
        group of identical users; a place is a group of identical machines.

        Args:
            variables: (tank, place) of each variable. The variable is the number of tasks of one
                user of the tank at that place, in units of the number that the user could run
                alone.
            unit: Share that corresponds to the value 1 of the level, the program's last variable.

        Returns:
            The program. Also, for each row that keeps a tank's share at or above the level, the
            index of the tank by the index of the row.
        """
        level = len(variables)
        capacity: dict[tuple[int, str], dict[int, Fraction]] = {}
        own_columns: dict[int, dict[int, Fraction]] = {}
        for column, (t, place) in enumerate(variables):
            tank = self._tanks[t]
            own_columns.setdefault(t, {})[column] = Fraction(-1)
            for resource, part in tank.takes[place].items():
                row = capacity.setdefault((place, resource), {})
                row[column] = part * tank.users * self._alone[t]
        rows = list(capacity.values())
        bounds = [Fraction(1)] * len(rows)
        rising = {}
        for t in self._open:
            tank, tasks = self._tanks[t], own_columns.get(t, {})
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
        """Remove variables and tanks that later rounds cannot change, to make programs smaller.

        A variable that would lower the level has the value 0 in every optimum of this round. Later
        rounds choose among the optima of this round, so the variable stays 0.

        Args:
            variables: (tank, place) of each variable of the last program, as in `_program`.
            slopes: Reduced cost of each variable: how much the level would fall per unit of the
                variable.
        """
        users: dict[int, set[int]] = {}
        for t in self._open:
            self._open[t] = []
        for (t, place), slope in zip(variables, slopes, strict=True):
            if slope <= _PRICED:
                self._open[t].append(place)
                users.setdefault(place, set()).add(t)
        connected, pending = set(self.active), list(self.active)
        while pending:
            for place in self._open[pending.pop()]:
                new = users.pop(place, set()) - connected
                connected |= new
                pending.extend(new)
        self._open = {t: places for t, places in self._open.items() if t in connected}


@dataclass(frozen=True, slots=True)
class Solved:
    """Solution of a linear program by SciPy, with a proof of optimality if requested."""

    point: tuple[float, ...]
    """Value of each variable at an optimal point."""
    prices: tuple[float, ...]
    """Price (dual variable) of each row."""
    slopes: tuple[float, ...]
    """Reduced cost of each variable except the last."""
    proof: Solution | None
    """Proof in exact fractions; None if it was not requested or could not be found."""


def solve(program: Program, *, proved: bool = True) -> Solved:
    """Solve a linear program.

    Args:
        program: The linear program.
        proved: True to prove the optimum in exact fractions.

    Raises:
        ArithmeticError: The solver failed.
    """
    if program.coefficients <= _SMALL:
        return _solve_cached(program, proved=proved)
    return _solve(program, proved=proved)


def _solve(program: Program, *, proved: bool) -> Solved:
    columns = [column for row in program.rows for column, _factor in row]
    values = [float(factor) for row in program.rows for _column, factor in row]
    starts = np.cumsum([0, *map(len, program.rows)])
    cost = np.zeros(program.variables)
    cost[-1] = -1.0
    matrix = csr_array((values, columns, starts), shape=(len(program.rows), program.variables))
    result = linprog(
        cost,
        A_ub=matrix.toarray() if math.prod(matrix.shape) <= _DENSE else matrix,
        b_ub=[float(bound) for bound in program.bounds],
        method="highs-ds",
        options={
            "primal_feasibility_tolerance": _TOLERANCE,
            "dual_feasibility_tolerance": _TOLERANCE,
        },
    )
    if result.x is None:
        raise ArithmeticError(f"the linear program was not solved: {result.message}")
    point = tuple(max(0.0, value) for value in result.x.tolist())
    prices = tuple(max(0.0, -price) for price in result.ineqlin.marginals.tolist())
    slopes = tuple(result.lower.marginals.tolist()[:-1])
    return Solved(point, prices, slopes, certify(program, point, prices) if proved else None)


_solve_cached = lru_cache(_REMEMBERED)(_solve)
