"""Single-resource fairness: with one resource it is CMMF (Definition 6 of the TSF paper)."""

from dataclasses import replace
from random import Random

from allocator.theory.divisible.optimum import DivisiblePolicy, cmmf
from allocator.theory.properties.case import Case, Property, Violation
from allocator.theory.properties.drawing import Size, draw_problem
from allocator.theory.properties.reduction import differing


def violation(policy: DivisiblePolicy, case: Case) -> Violation | None:
    """Return who runs more or less than CMMF would let it; debts count for both or none.

    Raises:
        UndecidedError: see `proved`.
    """
    if len(case.problem.resources) > 1:
        return None
    reference = replace(cmmf(), remembers=policy.remembers)
    return differing(policy, reference, "CMMF", case.problem)


def _draw(rng: Random, size: float, debts: bool) -> Case:  # noqa: FBT001 - Property.draw's
    return Case(draw_problem(rng, replace(Size.of(size), resources=1), debts=debts))


PROPERTY = Property("single-resource", "with one resource it is CMMF", _draw, violation)
