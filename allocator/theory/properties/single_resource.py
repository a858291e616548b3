"""Single-resource fairness: with one resource, the policy equals CMMF (TSF paper, Definition 6)."""

from dataclasses import replace
from random import Random

from allocator.theory.divisible.optimum import DivisiblePolicy, cmmf
from allocator.theory.properties.case import Case, Property, Violation
from allocator.theory.properties.drawing import Size, draw_problem
from allocator.theory.properties.reduction import differing


def violation(policy: DivisiblePolicy, case: Case) -> Violation | None:
    """Return a user that runs more or fewer tasks than under CMMF, or None.

    CMMF (constrained max-min fairness) shares a single resource. If the policy takes commitments
    into account, so does the CMMF allocation to which it is compared.

    Raises:
        UndecidedError: An allocation was not proved exactly.
    """
    if len(case.problem.resources) > 1:
        return None
    reference = replace(cmmf(), remembers=policy.remembers)
    return differing(policy, reference, "CMMF", case.problem)


def _draw(rng: Random, size: float, commitments: bool) -> Case:  # noqa: FBT001 - signature of Property.draw
    return Case(draw_problem(rng, replace(Size.of(size), resources=1), commitments=commitments))


PROPERTY = Property("single-resource", "with one resource it is CMMF", _draw, violation)
