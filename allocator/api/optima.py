"""Exact shares under a policy if tasks are divisible, and counterexamples to its properties."""

from collections.abc import Mapping
from typing import Any

from allocator import plugins
from allocator.complaints import unknown
from allocator.theory.divisible import optimum as divisible
from allocator.theory.divisible.measured import measured
from allocator.theory.divisible.problem import Problem, read_problem
from allocator.theory.properties.case import Violation
from allocator.theory.properties.search import PROPERTIES, search


def optimum(
    problem: Problem | Mapping[str, Any], policy: str, **parameters: object
) -> divisible.Shared:
    """Return how a policy would share machines if tasks could be divided arbitrarily.

    Args:
        problem: Machines and users, as an object or as in a problem's file: `{"machines": [{"name":
            "m", "resources": {"cpus": 4}}], "users": [{"name": "a", "demand": {"cpus": 1}}]}`.
        policy: The policy's name.
        parameters: The policy's parameters.

    Returns:
        Tasks and shares by user. If the result's `exact` is true, they are fractions, proved to be
        exact; otherwise they are floating-point numbers.

    Raises:
        ValueError: the problem or the policy cannot be used.
        ArithmeticError: the solver failed.
    """
    if not isinstance(problem, Problem):
        problem = read_problem(problem)
    return divisible.optimum(problem, _divisible(policy, parameters))


def violation(
    policy: str, wanted: str, *, trials: int = 1000, seed: int = 1, **parameters: object
) -> Violation | None:
    """Search for a case in which a policy violates a property, and reduce it to a small case.

    Args:
        policy: The policy's name.
        wanted: Name of the property, such as `"sharing-incentive"`.
        trials: Number of random cases, from small to large.
        seed: Seed of the random cases.
        parameters: The policy's parameters.

    Returns:
        The smallest case found; None if no case violates the property.

    Raises:
        ValueError: there is no such policy, parameter or property.
    """
    properties = {candidate.name: candidate for candidate in PROPERTIES}
    if wanted not in properties:
        raise ValueError(unknown("property", wanted, properties))
    divisible_policy = _divisible(policy, parameters)
    return search(divisible_policy, properties[wanted], trials=trials, seed=seed).violation


def _divisible(policy: str, parameters: Mapping[str, object]) -> divisible.DivisiblePolicy:
    if policy in divisible.names() or not plugins.is_known(policy):
        return divisible.create(policy, parameters)
    return measured(plugins.create(policy, parameters))
