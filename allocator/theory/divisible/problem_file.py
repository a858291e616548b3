"""Writes problems in the format of problem files, the reverse of `read_problem`."""

from decimal import Decimal
from fractions import Fraction
from typing import Any, TypeAlias

from allocator.theory.divisible.problem import Problem, ProblemUser

Number: TypeAlias = int | Decimal


def file_of(problem: Problem) -> dict[str, Any]:
    """Convert a problem to the content of a problem file.

    Values equal to their default are omitted.

    Raises:
        ValueError: A number has no finite decimal representation.
    """
    return {
        "machines": [
            {
                "name": machine.name,
                "resources": _numbers(machine.resources),
                **({"count": machine.count} if machine.count > 1 else {}),
            }
            for machine in problem.machines
        ],
        "users": [_user(user) for user in problem.users],
    }


def _user(user: ProblemUser) -> dict[str, Any]:
    content: dict[str, Any] = {"name": user.name, "demand": _numbers(user.demand)}
    if user.machines is not None:
        content["machines"] = list(user.machines)
    if user.weight != 1:
        content["weight"] = _number(user.weight)
    if user.tasks is not None:
        content["tasks"] = _number(user.tasks)
    if user.commitment:
        content["commitment"] = _number(user.commitment)
    return content


def _numbers(amounts: dict[str, Fraction]) -> dict[str, Number]:
    return {name: _number(amount) for name, amount in amounts.items()}


def _number(value: Fraction) -> Number:
    if value.denominator == 1:
        return int(value)
    decimal = Decimal(value.numerator) / Decimal(value.denominator)
    if Fraction(decimal) != value:
        raise ValueError(f"{value} has no finite decimal representation")
    return decimal
