"""A case that a property is tried on, and what is wrong with it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from random import Random
from typing import TypeAlias

from allocator.fairness.plugin_sandbox import PolicyFailedError
from allocator.theory.divisible.optimum import DivisiblePolicy, optimum
from allocator.theory.divisible.problem import Problem, ProblemUser

Pool: TypeAlias = Mapping[str, Mapping[str, int]]
"""What a user has for itself: amounts by machine and resource."""
Placement: TypeAlias = Mapping[str, Mapping[str, Fraction]]
"""Tasks by user and machine."""


@dataclass(frozen=True, slots=True)
class Case:
    """A problem, and what some properties ask about besides."""

    problem: Problem
    lie: ProblemUser | None = None
    """What the user of this name claims to be."""
    pools: Mapping[str, Pool] | None = None
    """By user; all of them together are no more than what there is."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A case in which a policy lacks a property."""

    user: str
    """Who has a reason to complain."""
    has: Fraction
    """Tasks that it runs."""
    instead: Fraction
    """Tasks that the property tells of: more than it has, or other than it has."""
    text: str
    """The same in words."""
    problem: Problem
    """Who shares what: its divisible optimum is what is wrong."""
    lie: Problem | None = None
    """The same with the lie, if the violation is one that pays."""
    placement: Placement | None = None
    """Where tasks are, where it matters: of all places that the optimum leaves open."""
    certain: bool = True
    """It is one wherever the tasks are."""


@dataclass(frozen=True, slots=True)
class Property:
    """What should hold whatever the machines and users."""

    name: str
    claim: str
    """In one sentence."""
    draw: Callable[[Random, float, bool], Case]
    """Draw a case: of how large a size (0 … 1), and with commitments or without."""
    violation: Callable[[DivisiblePolicy, Case], Violation | None]
    """Return what is wrong; None: nothing. Raises Undecided."""


class UndecidedError(Exception):
    """The policy cannot be asked about this case, or its answer is not proved in fractions."""


@dataclass(frozen=True, slots=True)
class Allocation:
    """Who runs how much, proved."""

    problem: Problem
    placed: Placement
    """One way to place the tasks."""
    movable: bool
    """The policy says how many tasks users run, and leaves open where."""

    def tasks(self, user: str) -> Fraction:
        """Return what a user runs on all machines."""
        return total(self.placed[user])


def proved(problem: Problem, policy: DivisiblePolicy) -> Allocation:
    """Return the divisible optimum, in fractions.

    Raises:
        UndecidedError: there is none, or no proof of it.
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


def total(where: Mapping[str, Fraction]) -> Fraction:
    """Return the tasks on all machines."""
    return sum(where.values(), Fraction(0))


def in_words(tasks: Fraction) -> str:
    """Return a number of tasks in words."""
    return f"{tasks} task" if tasks == 1 else f"{tasks} tasks"
