"""Where tasks may be: of all ways to run as many as everybody runs, one that gains most."""

from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import TypeAlias

from allocator.theory.divisible.certificate import Program
from allocator.theory.divisible.problem import Machine, Problem, ProblemUser
from allocator.theory.divisible.progressive_filling import solve
from allocator.theory.properties.case import Placement, UndecidedError

Gains: TypeAlias = Mapping[tuple[str, str], Fraction]
"""Of a task, by user and machine; absent: 0."""

_Row: TypeAlias = dict[int, Fraction]
_Place: TypeAlias = tuple[ProblemUser, Machine]

_ZERO, _ONE = Fraction(0), Fraction(1)


def best_placement(
    problem: Problem, tasks: Mapping[str, Fraction], gains: Gains, *, or_more: bool = False
) -> Placement:
    """Return tasks by user and machine that gain as much as can be; proved in fractions.

    Args:
        problem: Machines, and who may use them.
        tasks: Of each user: so many as some placement has room for.
        gains: Not negative.
        or_more: Users may run more than that.

    Raises:
        UndecidedError: no proof was found.
    """
    places = [
        (user, machine)
        for user in problem.users
        for machine in problem.machines
        if user.may_use(machine) and user.fit(machine)
    ]
    constraints = [
        *_of_users(problem, places, tasks, or_more=or_more),
        *_of_machines(problem, places),
        (_gained(places, gains), _ZERO),
    ]
    rows, bounds = ([*column] for column in zip(*constraints, strict=True))
    try:
        proof = solve(Program.of(rows, bounds, len(places) + 1)).proof
    except ArithmeticError as error:
        raise UndecidedError(str(error)) from None
    if proof is None:
        raise UndecidedError("the best placement is not proved in fractions")
    placed: dict[str, dict[str, Fraction]] = {user.name: {} for user in problem.users}
    for (user, machine), amount in zip(places, proof.point[:-1], strict=True):
        if amount:
            placed[user.name][machine.name] = amount
    return placed


def _of_users(
    problem: Problem, places: list[_Place], tasks: Mapping[str, Fraction], *, or_more: bool
) -> Iterator[tuple[_Row, Fraction]]:
    for user in problem.users:
        mine = dict.fromkeys((i for i, (owner, _m) in enumerate(places) if owner is user), _ONE)
        if mine:
            yield dict.fromkeys(mine, -_ONE), -tasks[user.name]
            most = user.tasks if or_more else tasks[user.name]
            if most is not None:
                yield mine, most


def _of_machines(problem: Problem, places: list[_Place]) -> Iterator[tuple[_Row, Fraction]]:
    for machine in problem.machines:
        for resource, amount in machine.resources.items():
            needs = {
                i: user.demand[resource]
                for i, (user, place) in enumerate(places)
                if place is machine and user.demand.get(resource)
            }
            if needs:
                yield needs, amount * machine.count


def _gained(places: list[_Place], gains: Gains) -> _Row:
    gained = ((i, gains.get((user.name, machine.name))) for i, (user, machine) in enumerate(places))
    return {i: -gain for i, gain in gained if gain} | {len(places): _ONE}
