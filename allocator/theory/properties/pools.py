"""Tasks of users in their own pools, and the weights derived from these tasks.

The weight is kᵢ / hᵢ for a user that runs kᵢ tasks in its pool (TSF paper, Theorem 1). For CDRF it
is kᵢ / gᵢ, by the TSF paper's Theorem 15. If all users have an equal part of every machine and may
use all machines, Theorem 1 gives equal weights, as assumed for other policies.
"""

from collections.abc import Mapping
from fractions import Fraction
from math import gcd, lcm

from allocator.theory.divisible.problem import Problem, ProblemUser
from allocator.theory.properties.case import Pool


def in_pools(problem: Problem, pools: Mapping[str, Pool]) -> dict[str, Fraction]:
    """Return kᵢ by user: the number of tasks in its pool, on machines that it may use."""
    return {user.name: _fit(user, pools.get(user.name, {}), problem) for user in problem.users}


def weighted(problem: Problem, alone: Mapping[str, Fraction], *, constrained: bool) -> Problem:
    """Return the problem with the weights that follow from the pools.

    Only ratios of weights matter, so weights are scaled to whole numbers.

    Args:
        problem: The machines and users; its weights are ignored.
        alone: kᵢ by user, more than 0.
        constrained: Whether monopolies respect placement constraints (Theorem 15).
    """
    monopoly = problem.constrained_monopoly if constrained else problem.monopoly
    weights = [alone[user.name] / monopoly(user) for user in problem.users]
    denominator = lcm(*(weight.denominator for weight in weights))
    unit = Fraction(gcd(*(int(weight * denominator) for weight in weights)), denominator)
    users = tuple(
        user.model_copy(update={"weight": weight / unit})
        for user, weight in zip(problem.users, weights, strict=True)
    )
    return Problem(machines=problem.machines, users=users)


def shown(pools: Mapping[str, Pool]) -> str:
    """Describe pools as text, such as "u1: 2 cpu and 1 mem of m1"."""
    return "; ".join(f"{owner}: {_shown(amounts)}" for owner, amounts in pools.items())


def _shown(pool: Pool) -> str:
    return ", ".join(
        f"{' and '.join(f'{n} {name}' for name, n in amounts.items() if n)} of {machine}"
        for machine, amounts in pool.items()
        if any(amounts.values())
    )


def _fit(user: ProblemUser, pool: Pool, problem: Problem) -> Fraction:
    return sum(
        (
            min(
                Fraction(pool.get(machine.name, {}).get(name, 0)) / amount
                for name, amount in user.demand.items()
                if amount
            )
            for machine in problem.machines
            if user.may_use(machine)
        ),
        Fraction(0),
    )
