"""Tests whether a policy gives the same allocation as a reference policy, such as DRF."""

from allocator.theory.divisible.optimum import DivisiblePolicy
from allocator.theory.divisible.problem import Problem
from allocator.theory.properties.case import Violation, in_words, proved


def differing(
    policy: DivisiblePolicy, reference: DivisiblePolicy, called: str, problem: Problem
) -> Violation | None:
    """Return a user that runs more or fewer tasks than under the reference policy, or None.

    Args:
        policy: The policy to test.
        reference: The policy to compare with.
        called: Name of the reference policy in the text of the violation.
        problem: The machines and users.

    Raises:
        UndecidedError: An allocation was not proved exactly.
    """
    allocation, expected = proved(problem, policy), proved(problem, reference)
    for name in allocation.placed:
        has, instead = allocation.tasks(name), expected.tasks(name)
        if has != instead:
            text = f"{name} runs {in_words(has)}, and {instead} under {called}"
            return Violation(name, has, instead, text, problem)
    return None
