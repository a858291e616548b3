"""The divisible optimum of a policy, and cases in which it lacks a property."""

from collections.abc import Mapping
from typing import Any

from allocator import plugins
from allocator.theory.divisible import optimum as divisible
from allocator.theory.divisible.measured import measured
from allocator.theory.divisible.problem import Problem, read_problem
from allocator.theory.properties.case import Violation
from allocator.theory.properties.search import PROPERTIES, search


def optimum(
    problem: Problem | Mapping[str, Any], policy: str, **parameters: object
) -> divisible.Shared:
    """Share machines as a policy would if tasks could be divided at will.

    Args:
        problem: Machines and users, also as a problem's file says them:
            `{"machines": [{"name": "m", "resources": {"cpus": 4}}], "users": [{"name": "a",
            "demand": {"cpus": 1}}]}`.
        policy: Its name.
        parameters: The policy's own.

    Returns:
        Tasks and shares by user; in exact fractions, and proved, where `exact`.

    Raises:
        ValueError: the problem or the policy cannot be used.
        ArithmeticError: the solver gave up.
    """
    if not isinstance(problem, Problem):
        problem = read_problem(problem)
    return divisible.optimum(problem, _divisible(policy, parameters))


def violation(
    policy: str, wanted: str, *, trials: int = 1000, seed: int = 1, **parameters: object
) -> Violation | None:
    """Search for a case in which a policy lacks a property; return the smallest found.

    Args:
        policy: Its name.
        wanted: The property, such as `"sharing-incentive"`.
        trials: Random cases, from small to large.
        seed: Other seeds try other cases.
        parameters: The policy's own.

    Raises:
        ValueError: there is no such policy, parameter or property.
    """
    found = {each.name: each for each in PROPERTIES}
    if wanted not in found:
        raise ValueError(f"there is no property {wanted!r}; there are: {', '.join(found)}")
    chosen = _divisible(policy, parameters)
    return search(chosen, found[wanted], trials=trials, seed=seed).violation


def _divisible(policy: str, parameters: Mapping[str, object]) -> divisible.DivisiblePolicy:
    if policy in divisible.names() or not plugins.is_known(policy):
        return divisible.create(policy, parameters)
    return measured(plugins.create(policy, parameters))
