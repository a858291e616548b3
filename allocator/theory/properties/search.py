"""Searches random cases for a violation of a property, and simplifies the violation found."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import TypeAlias

from allocator.theory.divisible.optimum import DivisiblePolicy
from allocator.theory.properties import (
    envy_freeness,
    pareto,
    pooled_strategy_proofness,
    sharing_incentive,
    single_machine,
    single_resource,
    strategy_proofness,
)
from allocator.theory.properties.case import Case, Property, UndecidedError, Violation
from allocator.theory.properties.shrinking import extent, simpler

PROPERTIES = (
    sharing_incentive.PROPERTY,
    strategy_proofness.PROPERTY,
    envy_freeness.PROPERTY,
    pareto.PROPERTY,
    single_machine.PROPERTY,
    single_resource.PROPERTY,
    pooled_strategy_proofness.PROPERTY,
)
"""All properties, in the order of the TSF paper's Table I; the last one is its Theorem 3."""

Watch: TypeAlias = Callable[[int, int], None]
"""Progress callback: receives the number of cases tried so far and the total number."""


@dataclass(frozen=True, slots=True)
class PropertySearchOutcome:
    """Result of `search`: the violation found, if any, and how many cases were tried."""

    tried: int
    """Number of cases tried. The search stops at the first violation."""
    undecided: int
    """Number of tried cases without an answer: the policy is not defined for them, or no proof was
    found."""
    violation: Violation | None
    """The violation found, in the simplest form reached; None if no case violates the property."""


def search(
    policy: DivisiblePolicy,
    wanted: Property,
    *,
    trials: int,
    seed: int,
    watch: Watch = lambda _tried, _of: None,
) -> PropertySearchOutcome:
    """Search for a case in which a policy violates a property; then simplify that case.

    Random cases are drawn in order of size, small cases first. The same seed gives the same
    outcome. A case takes some milliseconds; the simplification tries some hundred cases.

    Some violations occur only if the policy places tasks in a certain way. Such a violation is
    reported only if no case has a violation that occurs with every placement.

    Args:
        policy: The policy to test.
        wanted: The property to test.
        trials: Maximum number of cases to draw.
        seed: Seed of the random generator.
        watch: Progress callback.
    """
    rng = Random(f"{seed} {wanted.name}")  # noqa: S311 - a search, not a secret
    undecided = 0
    doubtful: tuple[Case, Violation] | None = None
    for trial in range(trials):
        case = wanted.draw(rng, trial / trials, policy.remembers)
        try:
            violation = _violation(policy, wanted, case)
        except UndecidedError:
            undecided += 1
            continue
        finally:
            watch(trial + 1, trials)
        if violation is not None and violation.certain:
            return PropertySearchOutcome(
                trial + 1, undecided, smallest(policy, wanted, case, violation)
            )
        if violation is not None and doubtful is None:
            doubtful = case, violation
    return PropertySearchOutcome(
        trials, undecided, doubtful and smallest(policy, wanted, *doubtful)
    )


def smallest(
    policy: DivisiblePolicy, wanted: Property, case: Case, violation: Violation
) -> Violation:
    """Simplify a case that violates a property, step by step, as long as it violates the property.

    Some violations occur only if the policy places tasks in a certain way. Such a violation never
    replaces a violation that occurs with every placement.

    Args:
        policy: The policy under test.
        wanted: The property that the case violates.
        case: The case to simplify.
        violation: The violation in this case.

    Returns:
        The violation in the simplest case reached.
    """
    while True:
        for candidate in simpler(case):
            if extent(candidate) < extent(case):
                try:
                    simpler_violation = _violation(policy, wanted, candidate)
                except UndecidedError:
                    continue
                if simpler_violation is not None and simpler_violation.certain >= violation.certain:
                    case, violation = candidate, simpler_violation
                    break
        else:
            return violation


def _violation(policy: DivisiblePolicy, wanted: Property, case: Case) -> Violation | None:
    """Return the violation of a property in a case, or None.

    The shares of a policy written as code are measured, and so inexact. If this error could explain
    a violation, the case is undecided.

    Raises:
        UndecidedError: The policy is undefined for the case, no proof was found, or the violation
            may be caused by rounding.
    """
    violation = wanted.violation(policy, case)
    if violation is None or not policy.coarse:
        return violation
    if abs(violation.instead - violation.has) <= _ERROR_FACTOR * policy.coarse * max(
        violation.has, violation.instead
    ):
        raise UndecidedError("the violation may be caused by rounding")
    return violation


_ERROR_FACTOR = 20
"""Assumed maximum of an optimum's relative error divided by the relative error of a share."""
