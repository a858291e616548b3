"""Sharing incentive: no user would run more tasks in a private pool (TSF paper, Definition 1).

The pools divide the machines in any way, and the users' weights follow from the pools.
"""

from random import Random

from allocator.theory.divisible.optimum import DivisiblePolicy
from allocator.theory.properties.case import Case, Property, Violation, in_words, proved
from allocator.theory.properties.drawing import Size, draw_with_pools
from allocator.theory.properties.pools import in_pools, shown, weighted


def violation(policy: DivisiblePolicy, case: Case) -> Violation | None:
    """Return a user that runs fewer tasks than it would in its private pool, or None.

    Raises:
        UndecidedError: The policy's allocation was not proved exactly.
    """
    if case.pools is None:
        return None
    alone = in_pools(case.problem, case.pools)
    if not all(alone.values()):
        return None
    problem = weighted(case.problem, alone, constrained=policy.name == "cdrf")
    allocation = proved(problem, policy)
    for name, before in alone.items():
        has = allocation.tasks(name)
        if has < before:
            pools = shown(case.pools)
            text = (
                f"{name} runs {in_words(has)}, and {before} in a pool of its own (pools: {pools})"
            )
            return Violation(name, has, before, text, problem)
    return None


def _draw(rng: Random, size: float, commitments: bool) -> Case:  # noqa: FBT001 - signature of Property.draw
    return draw_with_pools(rng, Size.of(size), commitments=commitments)


PROPERTY = Property(
    "sharing-incentive",
    "no user runs more tasks in a pool of its own, if weights follow from the pools",
    _draw,
    violation,
)
