"""Test suite for policies, to be called from the tests of your own policy.

With pytest::

    def test_my_policy_is_sound() -> None:
        check_policy(MyPolicy(power=3))
"""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Final

from allocator.conformance import claims
from allocator.fairness.plugin_sandbox import contained
from allocator.fairness.policies import Policy, ours
from allocator.fairness.policies.policy import Origin

__all__ = ["Complaint", "check_policy", "complaints"]

_CLAIMS: Final[dict[str, Callable[[Policy, Random], str | None]]] = {
    "it returns numbers for all holdings, weights and demands": claims.priorities_are_numbers,
    "it does not change accounts": claims.leaves_accounts,
    "it returns the same values when asked again": claims.is_repeatable,
    "it uses only the holdings, weight, demand and commitments of a user": claims.goes_by_holdings,
    "a user that holds more does not come sooner": claims.more_is_not_sooner,
    "a user with a larger weight does not come later": claims.weight_is_not_later,
    "users are ordered by priority, by scan and by Live Tree, now and later": claims.orders,
}


@dataclass(frozen=True, slots=True)
class Complaint:
    """A requirement of Longshare that a policy violates, and a cluster that shows the violation."""

    claim: str
    """The violated requirement, as a sentence."""
    case: str
    """Description of the cluster and users in which the policy violates the requirement."""


def complaints(policy: Policy, *, trials: int = 50, seed: int = 1) -> list[Complaint]:
    """Test a policy against all of Longshare's requirements with random clusters.

    Args:
        policy: A policy of Longshare, a policy read from a file, or an instance of your own class.
        trials: Number of random clusters for each requirement; 50 take about a second.
        seed: Seed of the random clusters.

    Returns:
        The violated requirements, each with a case; empty if the policy passes.

    Raises:
        ValueError: the policy cannot calculate priorities; the message says how to correct it.
    """
    tested = policy
    if policy.origin is None and getattr(type(policy), "name", None) not in ours():
        kind = contained(type(policy), Origin(type(policy).__module__, "", ""))
        tested = kind.model_validate(policy.model_dump())
    violations = []
    for claim, find_violation in _CLAIMS.items():
        random = Random(f"{seed} {claim}")  # noqa: S311 - a search, not a secret
        for _trial in range(trials):
            case = find_violation(tested, random)
            if case is None and tested.faults.count:
                case = f"the policy failed: {tested.faults.latest}"
            if case is not None:
                violations.append(Complaint(claim, case))
                tested.faults.count = 0
                break
    return violations


def check_policy(policy: Policy, *, trials: int = 50, seed: int = 1) -> None:
    """Raise an error if a policy violates one of Longshare's requirements; for use in a test.

    Args:
        policy: A policy of Longshare, a policy read from a file, or an instance of your own class.
        trials: Number of random clusters for each requirement; 50 take about a second.
        seed: Seed of the random clusters.

    Raises:
        AssertionError: a requirement is violated; the message names the requirement and the case.
        ValueError: the policy cannot calculate priorities, as in `complaints`.
    """
    violations = complaints(policy, trials=trials, seed=seed)
    if violations:
        lines = "".join(
            f"\n- rule broken: {violation.claim}\n  {violation.case}" for violation in violations
        )
        raise AssertionError(f"policy {policy.name!r}:{lines}")
