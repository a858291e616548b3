"""Of what use to a user is what somebody with another demand was given."""

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
    """What can be run, and where everybody's tasks are then."""

    tasks: Fraction
    placement: Placement
    certain: bool
    """It is more wherever tasks are."""


def luckiest(
    allocation: Allocation, owner: ProblemUser, user: ProblemUser, *, more_than: Fraction
) -> Use | None:
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
    useful = {m.name for m in allocation.problem.machines if user.may_use(m)}
    if not allocation.movable:
        found = part * _on(useful, allocation.placed[owner.name])
        return Use(found, allocation.placed, certain=True) if found > more_than else None
    best = _with_most_on(useful, owner, allocation)
    found = part * _on(useful, best[owner.name])
    if found <= more_than:
        return None
    useless = {m.name for m in allocation.problem.machines} - useful
    worst = _with_most_on(useless, owner, allocation)
    return Use(found, best, certain=part * _on(useful, worst[owner.name]) > more_than)


def _with_most_on(
    machines: AbstractSet[str], owner: ProblemUser, allocation: Allocation
) -> Placement:
    """Return a placement with as much of a user's on some machines as can be."""
    return best_placement(
        allocation.problem,
        {name: allocation.tasks(name) for name in allocation.placed},
        {(owner.name, machine): _ONE for machine in machines},
    )


def _on(machines: AbstractSet[str], where: Mapping[str, Fraction]) -> Fraction:
    return sum((tasks for machine, tasks in where.items() if machine in machines), _ZERO)
