"""Strategy-proofness where weights follow from pools: then a lie changes the weight as well.

Theorem 3 of the TSF paper is about this, Theorem 2 about weights that are given.
"""

from random import Random

from allocator.theory.divisible.optimum import DivisiblePolicy
from allocator.theory.properties.case import Case, Property, Violation
from allocator.theory.properties.drawing import Size, draw_with_pools
from allocator.theory.properties.pools import in_pools, weighted
from allocator.theory.properties.strategy_proofness import paying, problem_with, with_lie


def violation(policy: DivisiblePolicy, case: Case) -> Violation | None:
    """Return who runs more useful tasks by lying, about what it runs in its pool too.

    Raises:
        UndecidedError: see `proved`.
    """
    claimed, pools = case.lie, case.pools
    if claimed is None or pools is None:
        return None
    constrained = policy.name == "cdrf"
    told = []
    for problem in (case.problem, problem_with(case.problem, claimed)):
        alone = in_pools(problem, pools)
        if not all(alone.values()):
            return None
        told.append(weighted(problem, alone, constrained=constrained))
    truth, lie = told
    return paying(policy, truth, lie, claimed)


def _draw(rng: Random, size: float, debts: bool) -> Case:  # noqa: FBT001 - Property.draw's
    of = Size.of(size)
    return with_lie(rng, draw_with_pools(rng, of, debts=debts), of)


PROPERTY = Property(
    "pooled-strategy-proofness",
    "no lie pays either if weights follow from pools, and from the lie",
    _draw,
    violation,
)
