"""A seeded search for the smallest case in which a policy lacks a property."""

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
"""In the order of Table I of the TSF paper; the last one is of its Theorem 3."""

Watch: TypeAlias = Callable[[int, int], None]
"""Told how many cases were tried, of how many."""


@dataclass(frozen=True, slots=True)
class PropertySearchOutcome:
    """What a search has come to."""

    tried: int
    """Cases, up to the violation if there is one."""
    undecided: int
    """Of these: the policy could not be asked, or nothing was proved."""
    violation: Violation | None
    """The smallest found: no simpler case next to it is one."""


def search(
    policy: DivisiblePolicy,
    wanted: Property,
    *,
    trials: int,
    seed: int,
    watch: Watch = lambda _tried, _of: None,
) -> PropertySearchOutcome:
    """Draw cases, from small to large, until one violates the property; then make it smaller.

    A violation for some placements of the tasks only is kept for when there is no better one.

    The same seed gives the same outcome. A case takes some milliseconds, and making one smaller
    takes some hundred cases.
    """
    rng = Random(f"{seed} {wanted.name}")  # noqa: S311 - a search, not a secret
    undecided = 0
    doubtful: tuple[Case, Violation] | None = None
    for trial in range(trials):
        case = wanted.draw(rng, trial / trials, policy.remembers)
        try:
            found = _violation(policy, wanted, case)
        except UndecidedError:
            undecided += 1
            continue
        finally:
            watch(trial + 1, trials)
        if found is not None and found.certain:
            return PropertySearchOutcome(
                trial + 1, undecided, smallest(policy, wanted, case, found)
            )
        if found is not None and doubtful is None:
            doubtful = case, found
    return PropertySearchOutcome(
        trials, undecided, doubtful and smallest(policy, wanted, *doubtful)
    )


def smallest(
    policy: DivisiblePolicy, wanted: Property, case: Case, violation: Violation
) -> Violation:
    """Walk to simpler cases that violate the property too, until none is next to the last one.

    What is certain stays so.
    """
    while True:
        for other in simpler(case):
            if extent(other) < extent(case):
                try:
                    found = _violation(policy, wanted, other)
                except UndecidedError:
                    continue
                if found is not None and found.certain >= violation.certain:
                    case, violation = other, found
                    break
        else:
            return violation


def _violation(policy: DivisiblePolicy, wanted: Property, case: Case) -> Violation | None:
    """Return what is wrong, if it is more than the policy's shares may be wrong by.

    Raises:
        UndecidedError: see `Property.violation`, or it is not.
    """
    found = wanted.violation(policy, case)
    if found is None or not policy.coarse:
        return found
    if abs(found.instead - found.has) <= _DOUBT * policy.coarse * max(found.has, found.instead):
        raise UndecidedError("the violation is no larger than what rounding may have made")
    return found


_DOUBT = 20
"""How much larger than the error of one share that of an optimum is taken to be at most."""
