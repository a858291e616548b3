"""Whether a policy does the same as another one."""

from allocator.theory.divisible.optimum import DivisiblePolicy
from allocator.theory.divisible.problem import Problem
from allocator.theory.properties.case import Violation, in_words, proved


def differing(
    policy: DivisiblePolicy, reference: DivisiblePolicy, called: str, problem: Problem
) -> Violation | None:
    """Return who runs more or fewer tasks than the reference would let it.

    Raises:
        UndecidedError: see `proved`.
    """
    ours, theirs = proved(problem, policy), proved(problem, reference)
    for name in ours.placed:
        has, instead = ours.tasks(name), theirs.tasks(name)
        if has != instead:
            text = f"{name} runs {in_words(has)}, and {instead} under {called}"
            return Violation(name, has, instead, text, problem)
    return None
