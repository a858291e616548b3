"""Strategy-proofness when a lie also changes the weight, because weights follow from pools.

This is Theorem 3 of the TSF paper; in Theorem 2, weights do not depend on the lie.
"""

from random import Random

from allocator.theory.divisible.optimum import DivisiblePolicy
from allocator.theory.properties.case import Case, Property, Violation
from allocator.theory.properties.drawing import Size, draw_with_pools
from allocator.theory.properties.pools import in_pools, weighted
from allocator.theory.properties.strategy_proofness import paying, problem_with, with_lie


def violation(policy: DivisiblePolicy, case: Case) -> Violation | None:
    """Return a user that runs more useful tasks by lying about its demand or constraints, or None.

    The lie also changes the user's number of tasks in its pool, and so its weight.

    Raises:
        UndecidedError: An allocation was not proved exactly.
    """
    claimed, pools = case.lie, case.pools
    if claimed is None or pools is None:
        return None
    constrained = policy.name == "cdrf"
    problems = []
    for problem in (case.problem, problem_with(case.problem, claimed)):
        alone = in_pools(problem, pools)
        if not all(alone.values()):
            return None
        problems.append(weighted(problem, alone, constrained=constrained))
    truth, lie = problems
    return paying(policy, truth, lie, claimed)


def _draw(rng: Random, size: float, commitments: bool) -> Case:  # noqa: FBT001 - signature of Property.draw
    limits = Size.of(size)
    return with_lie(rng, draw_with_pools(rng, limits, commitments=commitments), limits)


PROPERTY = Property(
    "pooled-strategy-proofness",
    "no lie pays either if weights follow from pools, and from the lie",
    _draw,
    violation,
)
