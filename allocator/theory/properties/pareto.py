"""Pareto optimality: no user could run more unless another ran fewer (TSF paper, Definition 4)."""

from fractions import Fraction

from allocator.theory.divisible.optimum import DivisiblePolicy
from allocator.theory.properties.case import Case, Property, Violation, in_words, proved, total
from allocator.theory.properties.drawing import draw
from allocator.theory.properties.placement import best_placement


def violation(policy: DivisiblePolicy, case: Case) -> Violation | None:
    """Return a user that could run more tasks without loss for any other user, or None.

    Raises:
        UndecidedError: The policy's allocation or the better one was not proved exactly.
    """
    problem = case.problem
    allocation = proved(problem, policy)
    has = {name: total(machines) for name, machines in allocation.placed.items()}
    gains = {
        (user.name, machine.name): Fraction(1)
        for user in problem.users
        for machine in problem.machines
    }
    better = best_placement(problem, has, gains, or_more=True)
    for name, before in has.items():
        could = total(better[name])
        if could > before:
            text = (
                f"{name} runs {in_words(before)}, and could run {could} while no other user runs "
                "fewer"
            )
            return Violation(name, before, could, text, problem, placement=better)
    return None


PROPERTY = Property(
    "pareto-optimality",
    "no user could run more tasks unless another user ran fewer",
    draw,
    violation,
)
