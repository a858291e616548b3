"""Of what use to a user is what somebody with another demand was given."""

from dataclasses import dataclass
from fractions import Fraction

from allocator.fairness.divisible.problem import User
from allocator.fairness.properties.case import Allocation, Placement
from allocator.fairness.properties.placement import best_placement

_ZERO = Fraction(0)


@dataclass(frozen=True, slots=True)
class Use:
    """What can be run, and where everybody's tasks are then."""

    tasks: Fraction
    placement: Placement


def luckiest(allocation: Allocation, owner: User, user: User, *, more_than: Fraction) -> Use | None:
    """Return how many tasks a user can run on what another was given, if it is more than so many.

    On each machine the owner has what its tasks there need. It is of use where the user may run
    tasks, as far as the scarcest of what a task of it needs goes. If the policy leaves open where
    tasks are, the placement counts that is of most use.

    Raises:
        UndecidedError: see `best_placement`.
    """
    part = min(
        owner.demand.get(name, _ZERO) / amount for name, amount in user.demand.items() if amount
    )
    if part * allocation.tasks(owner.name) <= more_than:
        return None
    placed, problem = allocation.placed, allocation.problem
    there = {machine.name for machine in problem.machines if user.may_use(machine)}
    if allocation.movable:
        gains = {(owner.name, machine): part for machine in there}
        placed = best_placement(problem, {name: allocation.tasks(name) for name in placed}, gains)
    tasks_there = (amount for name, amount in placed[owner.name].items() if name in there)
    found = part * sum(tasks_there, _ZERO)
    return Use(found, placed) if found > more_than else None
