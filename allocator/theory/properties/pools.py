"""Derives users' weights from the number of tasks that each could run in a private pool.

A user's weight is kᵢ / hᵢ (TSF paper, Theorem 1). kᵢ is the number of tasks in its pool; hᵢ is the
number in the whole cluster without constraints. For CDRF the weight is kᵢ / gᵢ (Theorem 15), where
gᵢ respects constraints. Weights are equal if all users have an equal part of every machine and may
use all machines.
"""

from collections.abc import Mapping
from fractions import Fraction
from math import gcd, lcm

from allocator.theory.divisible.problem import Problem, ProblemUser
from allocator.theory.properties.case import Pool


def in_pools(problem: Problem, pools: Mapping[str, Pool]) -> dict[str, Fraction]:
    """Return, by user name, kᵢ: how many tasks each user could run alone in its private pool."""
    return {user.name: _fit(user, pools.get(user.name, {}), problem) for user in problem.users}


def weighted(problem: Problem, alone: Mapping[str, Fraction], *, constrained: bool) -> Problem:
    """Return a copy of a problem with weights kᵢ / hᵢ, which follow from users' private pools.

    kᵢ is the number of tasks that user i could run in its pool, hᵢ the number in the whole cluster.
    Weights are scaled to whole numbers, because only their ratios matter.

    Args:
        problem: The machines and users; their weights are ignored.
        alone: kᵢ by user name, above 0.
        constrained: True if hᵢ counts only machines that the user's placement constraints allow
            (TSF paper, Theorem 15).
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
