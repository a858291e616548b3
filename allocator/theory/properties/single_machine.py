"""Single-machine fairness: on one machine, the policy equals DRF (TSF paper, Definition 5)."""

from dataclasses import replace
from random import Random

from allocator.theory.divisible.optimum import DivisiblePolicy, create
from allocator.theory.properties.case import Case, Property, Violation
from allocator.theory.properties.drawing import Size, draw_problem
from allocator.theory.properties.reduction import differing


def violation(policy: DivisiblePolicy, case: Case) -> Violation | None:
    """Return a user that runs more or fewer tasks than under DRF, or None.

    If users have commitments, the policy is compared with SDRF instead.

    Raises:
        UndecidedError: An allocation was not proved exactly.
    """
    if len(case.problem.machines) > 1 or case.problem.machines[0].count > 1:
        return None
    reference = replace(create("drf", {}), remembers=policy.remembers)
    return differing(policy, reference, "SDRF" if policy.remembers else "DRF", case.problem)


def _draw(rng: Random, size: float, commitments: bool) -> Case:  # noqa: FBT001 - signature of Property.draw
    return Case(draw_problem(rng, replace(Size.of(size), machines=1), commitments=commitments))


PROPERTY = Property("single-machine", "on one machine it is DRF", _draw, violation)
