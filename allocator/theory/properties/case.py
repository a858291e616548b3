"""Types of the property tests: a test case, a property, and a violation of it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from random import Random
from typing import TypeAlias

from allocator.fairness.plugin_sandbox import PolicyFailedError
from allocator.theory.divisible.optimum import DivisiblePolicy, optimum
from allocator.theory.divisible.problem import Problem, ProblemUser

Pool: TypeAlias = Mapping[str, Mapping[str, int]]
"""Resources that belong to one user: amounts by machine name and resource."""
Placement: TypeAlias = Mapping[str, Mapping[str, Fraction]]
"""Number of tasks by user name and machine name."""


@dataclass(frozen=True, slots=True)
class Case:
    """A test case of a property: an allocation problem, and a lie or private pools if needed."""

    problem: Problem
    lie: ProblemUser | None = None
    """A false description of one user, which replaces the user with the same name."""
    pools: Mapping[str, Pool] | None = None
    """Each user's private pool, by user name. All pools together fit into the machines."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A user for whom an allocation violates a property, with numbers that prove the violation."""

    user: str
    """Name of the user whose allocation violates the property."""
    has: Fraction
    """Number of tasks that the policy lets the user run."""
    instead: Fraction
    """Larger number of tasks that the property requires, or that the user could run otherwise."""
    text: str
    """The violation in words."""
    problem: Problem
    """The problem whose divisible optimum violates the property."""
    lie: Problem | None = None
    """The problem with the false description, if the violation is a lie that pays."""
    placement: Placement | None = None
    """One placement of the tasks that shows the violation.

    None if the placement does not matter.
    """
    certain: bool = True
    """True if every placement of the tasks violates the property, False if only some do."""


@dataclass(frozen=True, slots=True)
class Property:
    """A fairness property, with functions that draw test cases and find violations."""

    name: str
    claim: str
    """The property in one sentence, for reports."""
    draw: Callable[[Random, float, bool], Case]
    """Function that draws a random case.

    Its arguments: the random generator, the size from 0 to 1, and whether users have commitments.
    """
    violation: Callable[[DivisiblePolicy, Case], Violation | None]
    """Function that returns the violation in a case, or None. It may raise UndecidedError."""


class UndecidedError(Exception):
    """Raised if a test case shows neither that a property holds nor that it is violated.

    Reasons: the policy is not defined for the case, or no exact proof was found.
    """


@dataclass(frozen=True, slots=True)
class Allocation:
    """A policy's allocation for a problem, proved in exact fractions."""

    problem: Problem
    placed: Placement
    """One optimal placement of the tasks."""
    movable: bool
    """True if other placements of the same numbers of tasks are optimal too."""

    def tasks(self, user: str) -> Fraction:
        """Return the number of tasks of a user on all machines."""
        return total(self.placed[user])


def proved(problem: Problem, policy: DivisiblePolicy) -> Allocation:
    """Compute a policy's divisible optimum for a problem, in exact fractions.

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
    """Return one user's number of tasks on all machines together.

    Args:
        machines: Number of tasks by machine name.
    """
    return sum(machines.values(), Fraction(0))


def in_words(tasks: Fraction) -> str:
    """Return a number of tasks as text, such as "1 task" or "3/2 tasks"."""
    return f"{tasks} task" if tasks == 1 else f"{tasks} tasks"
