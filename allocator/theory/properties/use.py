"""Computes how many tasks one user could run with the resources allocated to another user."""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from fractions import Fraction

from allocator.theory.divisible.problem import ProblemUser
from allocator.theory.properties.case import Allocation, Placement
from allocator.theory.properties.placement import best_placement

_ZERO, _ONE = Fraction(0), Fraction(1)


@dataclass(frozen=True, slots=True)
class Use:
    """Number of tasks that a user could run on another user's allocation, and their placement."""

    tasks: Fraction
    placement: Placement
    certain: bool
    """True if the number exceeds the threshold for every placement, not only for this placement."""


def luckiest(
    allocation: Allocation, owner: ProblemUser, user: ProblemUser, *, more_than: Fraction
) -> Use | None:
    """Return how many tasks a user could run on another user's allocation.

    The result is None if the number does not exceed a threshold.

    On each machine, the owner's tasks hold some resources. The user could run its own tasks with
    these resources, if it may use the machine. The scarcest resource limits their number. If the
    owner's tasks can be placed in several optimal ways, the best one for the user counts.

    Args:
        allocation: The allocation of all users.
        owner: The user to which the compared allocation belongs.
        user: The user that would run tasks on the owner's allocation.
        more_than: The threshold, a number of tasks.

    Raises:
        UndecidedError: A placement was not proved exactly.
    """
    tasks_per_task = min(
        owner.demand.get(name, _ZERO) / amount for name, amount in user.demand.items() if amount
    )
    if tasks_per_task * allocation.tasks(owner.name) <= more_than:
        return None
    useful = {m.name for m in allocation.problem.machines if user.may_use(m)}
    if not allocation.movable:
        tasks = tasks_per_task * _tasks_on(useful, allocation.placed[owner.name])
        return Use(tasks, allocation.placed, certain=True) if tasks > more_than else None
    best = _placement_with_most_on(useful, owner, allocation)
    tasks = tasks_per_task * _tasks_on(useful, best[owner.name])
    if tasks <= more_than:
        return None
    useless = {m.name for m in allocation.problem.machines} - useful
    worst = _placement_with_most_on(useless, owner, allocation)
    return Use(
        tasks, best, certain=tasks_per_task * _tasks_on(useful, worst[owner.name]) > more_than
    )


def _placement_with_most_on(
    machines: AbstractSet[str], owner: ProblemUser, allocation: Allocation
) -> Placement:
    """Place as many of the owner's tasks as possible on some machines. Return the placement.

    All users keep the number of tasks that the policy gives them.

    Args:
        machines: Names of the machines.
        owner: The user whose tasks should run on these machines.
        allocation: The allocation of all users, with their numbers of tasks.
    """
    return best_placement(
        allocation.problem,
        {name: allocation.tasks(name) for name in allocation.placed},
        {(owner.name, machine): _ONE for machine in machines},
    )


def _tasks_on(machines: AbstractSet[str], placed: Mapping[str, Fraction]) -> Fraction:
    return sum((tasks for machine, tasks in placed.items() if machine in machines), _ZERO)
