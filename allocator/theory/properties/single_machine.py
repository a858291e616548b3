"""Single-machine fairness: on one machine it is DRF (Definition 5 of the TSF paper)."""

from dataclasses import replace
from random import Random

from allocator.theory.divisible.optimum import DivisiblePolicy, create
from allocator.theory.properties.case import Case, Property, Violation
from allocator.theory.properties.drawing import Size, draw_problem
from allocator.theory.properties.reduction import differing


def violation(policy: DivisiblePolicy, case: Case) -> Violation | None:
    """Return who runs more or less than DRF would let it; with debts, than SDRF would.

    Raises:
        UndecidedError: see `proved`.
    """
    if len(case.problem.machines) > 1 or case.problem.machines[0].count > 1:
        return None
    reference = replace(create("drf", {}), remembers=policy.remembers)
    return differing(policy, reference, "SDRF" if policy.remembers else "DRF", case.problem)


def _draw(rng: Random, size: float, debts: bool) -> Case:  # noqa: FBT001 - Property.draw's
    return Case(draw_problem(rng, replace(Size.of(size), machines=1), debts=debts))


PROPERTY = Property("single-machine", "on one machine it is DRF", _draw, violation)
