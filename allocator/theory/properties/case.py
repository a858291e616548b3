"""A case that tests a property, and the violation that a test may report."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from random import Random
from typing import TypeAlias

from allocator.fairness.plugin_sandbox import PolicyFailedError
from allocator.theory.divisible.optimum import DivisiblePolicy, optimum
from allocator.theory.divisible.problem import Problem, ProblemUser

Pool: TypeAlias = Mapping[str, Mapping[str, int]]
"""Resources reserved for one user: amounts by machine and resource."""
Placement: TypeAlias = Mapping[str, Mapping[str, Fraction]]
"""Tasks by user and machine."""


@dataclass(frozen=True, slots=True)
class Case:
    """A problem, with a lie or pools where a property needs them."""

    problem: Problem
    lie: ProblemUser | None = None
    """A false description of the user with the same name."""
    pools: Mapping[str, Pool] | None = None
    """Pools by user; all pools together are at most the machines' resources."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A case in which a policy violates a property."""

    user: str
    """Name of the user that has a reason to complain."""
    has: Fraction
    """Number of tasks that the user runs."""
    instead: Fraction
    """Number of tasks that the property requires, or that the user could run."""
    text: str
    """Description of the violation."""
    problem: Problem
    """The problem whose divisible optimum violates the property."""
    lie: Problem | None = None
    """The problem as seen with the lie, if the violation is a profitable lie."""
    placement: Placement | None = None
    """Placement of the tasks, if the violation depends on the placement; one of all placements of
    the optimum."""
    certain: bool = True
    """True if the violation holds for every placement of the tasks."""


@dataclass(frozen=True, slots=True)
class Property:
    """A statement that should hold for all machines and users."""

    name: str
    claim: str
    """The property in one sentence."""
    draw: Callable[[Random, float, bool], Case]
    """Draw a random case from a size in 0 … 1, with commitments if the last argument is true."""
    violation: Callable[[DivisiblePolicy, Case], Violation | None]
    """Return the violation in a case, or None. Raises UndecidedError."""


class UndecidedError(Exception):
    """The policy is not defined for this case, or its allocation is not proved in fractions."""


@dataclass(frozen=True, slots=True)
class Allocation:
    """An allocation proved in exact fractions."""

    problem: Problem
    placed: Placement
    """One possible placement of the tasks."""
    movable: bool
    """True if the policy fixes the number of tasks of each user but not their placement."""

    def tasks(self, user: str) -> Fraction:
        """Return the number of tasks of a user on all machines."""
        return total(self.placed[user])


def proved(problem: Problem, policy: DivisiblePolicy) -> Allocation:
    """Return the divisible optimum in exact fractions.

    Raises:
        UndecidedError: The optimum is undefined or not proved.
        PolicyFailedError: The policy failed.
    """
    try:
        shared = optimum(problem, policy)
    except PolicyFailedError:
        raise
    except (ValueError, ArithmeticError) as error:
        raise UndecidedError(str(error)) from None
    if not shared.exact:
        raise UndecidedError("the optimum is not proved in fractions")
    placed = {
        name: {machine: Fraction(tasks) for machine, tasks in part.machines.items()}
        for name, part in shared.users.items()
    }
    return Allocation(problem, placed, movable=not policy.per_machine)


def total(machines: Mapping[str, Fraction]) -> Fraction:
    """Return the number of tasks on all machines."""
    return sum(machines.values(), Fraction(0))


def in_words(tasks: Fraction) -> str:
    """Return a number of tasks as text, such as "1 task" or "3/2 tasks"."""
    return f"{tasks} task" if tasks == 1 else f"{tasks} tasks"
