"""Envy-freeness: nobody would run more on what another has (Definition 3, TSF paper)."""

from allocator.theory.divisible.optimum import DivisiblePolicy
from allocator.theory.properties.case import Case, Property, Violation, in_words, proved
from allocator.theory.properties.drawing import draw
from allocator.theory.properties.use import luckiest


def violation(policy: DivisiblePolicy, case: Case) -> Violation | None:
    """Return an envious user: n_i < (w_i / w_j) · what i could run on what j has, somewhere.

    Raises:
        UndecidedError: see `proved` and `best_placement`.
    """
    problem = case.problem
    allocation = proved(problem, policy)
    for user in problem.users:
        has = allocation.tasks(user.name)
        for other in problem.users:
            scale = user.weight / other.weight
            found = luckiest(allocation, other, user, more_than=has / scale)
            if found is not None:
                could = found.tasks * scale
                scaled = "" if scale == 1 else ", scaled to its weight,"
                text = (
                    f"{user.name} runs {in_words(has)}, and on what {other.name} has{scaled} "
                    f"it could run {could}"
                )
                return Violation(
                    user.name,
                    has,
                    could,
                    text,
                    problem,
                    placement=found.placement,
                    certain=found.certain,
                )
    return None


PROPERTY = Property(
    "envy-freeness", "nobody would run more tasks on what another has", draw, violation
)
