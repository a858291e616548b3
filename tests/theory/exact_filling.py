"""Algorithm 1 of the TSF paper word for word, over a simplex in exact fractions: slow, and sure."""

from collections.abc import Sequence
from fractions import Fraction

from allocator.theory.divisible.progressive_filling import Tank

ZERO, ONE = Fraction(0), Fraction(1)
Row = list[Fraction]


def levels(tanks: Sequence[Tank]) -> list[Fraction]:
    """Return the tasks of a user of each tank."""
    active, frozen = set(range(len(tanks))), dict[int, Fraction]()
    while active:
        level = highest(tanks, active, frozen)
        counts = {t: tasks_at(tanks[t], level) for t in active}
        stopped = {t for t in active if highest(tanks, {t}, frozen | without(counts, t)) == level}
        assert stopped
        frozen |= {t: counts[t] for t in stopped}
        active -= stopped
    return [frozen[t] for t in range(len(tanks))]


def without(tasks: dict[int, Fraction], left_out: int) -> dict[int, Fraction]:
    return {t: n for t, n in tasks.items() if t != left_out}


def tasks_at(tank: Tank, level: Fraction) -> Fraction:
    return max(ZERO, (level - tank.base) / tank.share)


def highest(tanks: Sequence[Tank], active: set[int], frozen: dict[int, Fraction]) -> Fraction:
    """Return the highest level of active tanks, while frozen tanks keep their tasks."""
    columns = [(t, place) for t, tank in enumerate(tanks) for place in tank.takes]
    rows: list[Row] = []
    bounds: Row = []
    for place, resource in {
        (place, r) for tank in tanks for place, parts in tank.takes.items() for r in parts
    }:
        rows.append(
            [
                tanks[t].takes[p].get(resource, ZERO) * tanks[t].users if p == place else ZERO
                for t, p in columns
            ]
            + [ZERO]
        )
        bounds.append(ONE)
    for t, tank in enumerate(tanks):
        mine = [ONE if owner == t else ZERO for owner, _place in columns]
        if t in active:
            rows.append([-tank.share * value for value in mine] + [ONE])
            bounds.append(tank.base)
        else:
            rows.append([-value for value in mine] + [ZERO])
            bounds.append(-frozen[t])
        if tank.limit is not None:
            rows.append([*mine, ZERO])
            bounds.append(tank.limit)
    return maximum(rows, bounds, [ZERO] * len(columns) + [ONE])


def maximum(rows: list[Row], bounds: Row, gains: Row) -> Fraction:
    """Return max gains · x where rows · x ≤ bounds and x ≥ 0, which must be feasible.

    The textbook's dictionary method with Bland's rule; an auxiliary variable finds a first point.
    """
    count = len(gains)
    table = [[bound, *(-f for f in row), ONE] for row, bound in zip(rows, bounds, strict=True)]
    basis = [count + 1 + i for i in range(len(rows))]
    free = list(range(count + 1))
    if min(bounds) < 0:
        worst = min(range(len(table)), key=lambda i: table[i][0])
        aim = [ZERO] * (count + 1) + [-ONE]
        pivot(table, aim, basis, free, row=worst, column=count)
        climb(table, aim, basis, free)
        assert aim[0] == 0, "infeasible"
        if count in basis:
            row = basis.index(count)
            column = next(j for j in range(count + 1) if table[row][j + 1])
            pivot(table, aim, basis, free, row=row, column=column)
    aim = [ZERO] * (count + 2)
    for variable, gain in enumerate(gains):
        if variable in free:
            aim[free.index(variable) + 1] += gain
        else:
            known = table[basis.index(variable)]
            aim = [a + gain * f for a, f in zip(aim, known, strict=True)]
    nothing = free.index(count) + 1
    for line in [*table, aim]:
        line[nothing] = ZERO
    climb(table, aim, basis, free)
    return aim[0]


def climb(table: list[Row], aim: Row, basis: list[int], free: list[int]) -> None:
    while True:
        gainful = [j for j in range(len(free)) if aim[j + 1] > 0]
        if not gainful:
            return
        column = min(gainful, key=lambda j: free[j])
        bounding = [i for i, row in enumerate(table) if row[column + 1] < 0]
        row = min(bounding, key=lambda i: (-table[i][0] / table[i][column + 1], basis[i]))
        pivot(table, aim, basis, free, row=row, column=column)


def pivot(
    table: list[Row], aim: Row, basis: list[int], free: list[int], *, row: int, column: int
) -> None:
    factor = table[row][column + 1]
    solved = [-value / factor for value in table[row]]
    solved[column + 1] = 1 / factor
    table[row] = solved
    for line in [*(row for row in table if row is not solved), aim]:
        by = line[column + 1]
        if by:
            line[column + 1] = ZERO
            for j, value in enumerate(solved):
                line[j] += by * value
    basis[row], free[column] = free[column], basis[row]
