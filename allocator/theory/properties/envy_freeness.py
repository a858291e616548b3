"""Envy-freeness: no user would run more tasks on another's allocation (TSF paper, Definition 3)."""

from allocator.theory.divisible.optimum import DivisiblePolicy
from allocator.theory.properties.case import Case, Property, Violation, in_words, proved
from allocator.theory.properties.drawing import draw
from allocator.theory.properties.use import luckiest


def violation(policy: DivisiblePolicy, case: Case) -> Violation | None:
    """Return a violation of envy-freeness: a user that envies another user. Without envy, None.

    User i envies user j if nᵢ < (wᵢ / wⱼ) · (tasks that i could run on the allocation of j). Here n
    is a number of tasks, and w a weight. If tasks can be placed in several optimal ways, envy in
    one of them suffices.

    Raises:
        UndecidedError: The policy's allocation or its placement was not proved exactly.
    """
    problem = case.problem
    allocation = proved(problem, policy)
    for user in problem.users:
        has = allocation.tasks(user.name)
        for other in problem.users:
            scale = user.weight / other.weight
            envied_use = luckiest(allocation, other, user, more_than=has / scale)
            if envied_use is not None:
                could = envied_use.tasks * scale
                scaled = "" if scale == 1 else ", scaled to its weight,"
                text = (
                    f"{user.name} runs {in_words(has)}, and on the resources of "
                    f"{other.name}{scaled} it could run {could}"
                )
                return Violation(
                    user.name,
                    has,
                    could,
                    text,
                    problem,
                    placement=envied_use.placement,
                    certain=envied_use.certain,
                )
    return None


PROPERTY = Property(
    "envy-freeness",
    "no user could run more tasks on the resources of another user",
    draw,
    violation,
)
