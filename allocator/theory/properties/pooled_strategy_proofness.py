"""Strategy-proofness if the users' weights follow from their private pools.

A lie then also changes the liar's weight (TSF paper, Theorem 3). Without pools, weights do not
depend on the lie (Theorem 2).
"""

from random import Random

from allocator.theory.divisible.optimum import DivisiblePolicy
from allocator.theory.properties.case import Case, Property, Violation
from allocator.theory.properties.drawing import Size, draw_with_pools
from allocator.theory.properties.pools import in_pools, weighted
from allocator.theory.properties.strategy_proofness import paying, problem_with, with_lie


def violation(policy: DivisiblePolicy, case: Case) -> Violation | None:
    """Return a user that runs more useful tasks by lying about its demand or constraints, or None.

    A task is useful if it has the user's real demand and runs on a machine that the user can use.
    The lie also changes how many tasks the user could run in its private pool, and so its weight.

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
    "no lie pays, if weights follow from the pools and the lie",
    _draw,
    violation,
)
