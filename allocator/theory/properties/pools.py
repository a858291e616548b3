"""What users run in pools of their own, and the weights that follow from that.

Weights are kᵢ / hᵢ for a user that runs kᵢ tasks in its pool (Theorem 1 of the TSF paper), and
kᵢ / gᵢ for CDRF, whose own theorem (15) says so. Where everybody has an equal part of every
machine and may use all, Theorem 1 gives equal weights: the claim that is made for other policies.
"""

from collections.abc import Mapping
from fractions import Fraction
from math import gcd, lcm

from allocator.theory.divisible.problem import Problem, ProblemUser
from allocator.theory.properties.case import Pool


def in_pools(problem: Problem, pools: Mapping[str, Pool]) -> dict[str, Fraction]:
    """Return kᵢ by user: how many tasks it runs in its pool, on machines that it may use."""
    return {user.name: _fit(user, pools.get(user.name, {}), problem) for user in problem.users}


def weighted(problem: Problem, alone: Mapping[str, Fraction], *, constrained: bool) -> Problem:
    """Return the problem with weights that follow from what users run in their pools.

    Only ratios of weights matter, so they are made whole numbers.

    Args:
        problem: Who shares what; its weights do not count.
        alone: kᵢ by user, more than 0.
        constrained: Monopolies know of constraints (Theorem 15).
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
    """Return pools in words."""
    return "; ".join(f"{owner}: {_shown(pool)}" for owner, pool in pools.items())


def _shown(pool: Pool) -> str:
    return ", ".join(
        f"{' and '.join(f'{n} {name}' for name, n in parts.items() if n)} of {machine}"
        for machine, parts in pool.items()
        if any(parts.values())
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
