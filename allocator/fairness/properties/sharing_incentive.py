"""Sharing incentive: nobody ran more tasks in a pool of its own (Definition 1 of the TSF paper).

Pools are arbitrary, and weights follow from them: wᵢ = kᵢ / hᵢ for a user that runs kᵢ tasks in its
pool (Theorem 1), and kᵢ / gᵢ for CDRF, whose own theorem (15) says so. Where everybody has an equal
part of every machine, weights by Theorem 1 are equal: the claim that is made for other policies.
"""

from fractions import Fraction
from math import gcd, lcm
from random import Random

from allocator.fairness.divisible.optimum import DivisiblePolicy
from allocator.fairness.divisible.problem import Problem, User
from allocator.fairness.properties.case import (
    Case,
    Pool,
    Property,
    Violation,
    in_words,
    proved,
)
from allocator.fairness.properties.drawing import Size, draw_pools, draw_problem


def violation(policy: DivisiblePolicy, case: Case) -> Violation | None:
    """Return who runs fewer tasks than in its pool.

    Raises:
        UndecidedError: see `proved`.
    """
    if case.pools is None:
        return None
    pools = case.pools
    alone = {u.name: in_pool(u, pools.get(u.name, {}), case.problem) for u in case.problem.users}
    if not all(alone.values()):
        return None
    problem = weighted(case.problem, alone, constrained=policy.name == "cdrf")
    allocation = proved(problem, policy)
    for name, before in alone.items():
        has = allocation.tasks(name)
        if has < before:
            whole = "; ".join(f"{owner}: {_shown(pool)}" for owner, pool in pools.items())
            text = (
                f"{name} runs {in_words(has)}, and {before} in a pool of its own (pools: {whole})"
            )
            return Violation(name, has, before, text, problem)
    return None


def in_pool(user: User, pool: Pool, problem: Problem) -> Fraction:
    """Return kᵢ: how many tasks a user runs in its pool, on machines that it may use."""
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


def weighted(problem: Problem, alone: dict[str, Fraction], *, constrained: bool) -> Problem:
    """Return the problem with weights by Theorem 1, or 15 if monopolies know of constraints.

    Only ratios of weights matter, so they are made whole numbers.
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


def _shown(pool: Pool) -> str:
    return ", ".join(
        f"{' and '.join(f'{n} {name}' for name, n in parts.items() if n)} of {machine}"
        for machine, parts in pool.items()
        if any(parts.values())
    )


def _draw(rng: Random, size: float, debts: bool) -> Case:  # noqa: FBT001 - Property.draw's
    of = Size.of(size)
    while True:
        problem = draw_problem(rng, of, debts=debts)
        pools = draw_pools(rng, problem)
        owners = tuple(u for u in problem.users if in_pool(u, pools[u.name], problem))
        if owners:
            kept = Problem(machines=problem.machines, users=owners)
            return Case(kept, pools={user.name: pools[user.name] for user in owners})


PROPERTY = Property(
    "sharing-incentive",
    "nobody ran more tasks in a pool of its own, if weights follow from the pools",
    _draw,
    violation,
)
