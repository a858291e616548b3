"""Places given numbers of tasks on machines, so that the sum of the tasks' gains is largest.

The caller defines the gain of placing a task of a user on a machine.
"""

from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import TypeAlias

from allocator.theory.divisible.certificate import Program
from allocator.theory.divisible.problem import Machine, Problem, ProblemUser
from allocator.theory.divisible.progressive_filling import solve
from allocator.theory.properties.case import Placement, UndecidedError

Gains: TypeAlias = Mapping[tuple[str, str], Fraction]
"""Gain of placing one task, by (user name, machine name); a missing entry means 0."""

_Row: TypeAlias = dict[int, Fraction]
_Place: TypeAlias = tuple[ProblemUser, Machine]

_ZERO, _ONE = Fraction(0), Fraction(1)


def best_placement(
    problem: Problem, tasks: Mapping[str, Fraction], gains: Gains, *, or_more: bool = False
) -> Placement:
    """Return the placement with the largest total gain, proved in exact fractions.

    The total gain is the sum, over all tasks, of the gain of placing the task on its machine.

    Args:
        problem: The machines, and the users that may use them.
        tasks: Number of tasks of each user, by user name. All these tasks fit together.
        gains: Gain of placing one task, by (user name, machine name); at least 0, and 0 if missing.
        or_more: True if users may run more tasks than given.

    Returns:
        Number of tasks by user name and machine name.

    Raises:
        UndecidedError: The solver failed, or its result could not be proved optimal.
    """
    places = [
        (user, machine)
        for user in problem.users
        for machine in problem.machines
        if user.may_use(machine) and user.fit(machine)
    ]
    constraints = [
        *_user_constraints(problem, places, tasks, or_more=or_more),
        *_machine_constraints(problem, places),
        (_gain_constraint(places, gains), _ZERO),
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


def _user_constraints(
    problem: Problem, places: list[_Place], tasks: Mapping[str, Fraction], *, or_more: bool
) -> Iterator[tuple[_Row, Fraction]]:
    for user in problem.users:
        columns = dict.fromkeys(
            (i for i, (owner, _machine) in enumerate(places) if owner is user), _ONE
        )
        if columns:
            yield dict.fromkeys(columns, -_ONE), -tasks[user.name]
            maximum = user.tasks if or_more else tasks[user.name]
            if maximum is not None:
                yield columns, maximum


def _machine_constraints(problem: Problem, places: list[_Place]) -> Iterator[tuple[_Row, Fraction]]:
    for machine in problem.machines:
        for resource, amount in machine.resources.items():
            needs = {
                i: user.demand[resource]
                for i, (user, place) in enumerate(places)
                if place is machine and user.demand.get(resource)
            }
            if needs:
                yield needs, amount * machine.count


def _gain_constraint(places: list[_Place], gains: Gains) -> _Row:
    gained = ((i, gains.get((user.name, machine.name))) for i, (user, machine) in enumerate(places))
    return {i: -gain for i, gain in gained if gain} | {len(places): _ONE}
