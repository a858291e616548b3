"""Draws random test cases with few machines, few users and small whole numbers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from random import Random

from allocator.theory.divisible.problem import Machine, Problem, ProblemUser
from allocator.theory.properties.case import Case, Pool
from allocator.theory.properties.pools import in_pools

_RESOURCES = ("cpu", "mem", "gpu")


@dataclass(frozen=True, slots=True)
class Size:
    """Upper limits for the numbers in a random case, such as the number of users."""

    users: int
    machines: int
    resources: int
    has: int
    """Largest amount of a resource that a machine has."""
    needs: int
    """Largest amount of a resource that a task needs."""

    @classmethod
    def of(cls, size: float) -> "Size":
        """Return the limits for a complexity from 0 (smallest cases) to 1 (largest cases)."""
        return cls(
            users=2 + round(3 * size),
            machines=2 + round(2 * size),
            resources=2 + round(size),
            has=3 + round(9 * size),
            needs=2 + round(3 * size),
        )


def draw(rng: Random, size: float, commitments: bool) -> Case:  # noqa: FBT001 - signature of Property.draw
    """Draw a case that has only a problem, without a lie and without pools.

    Args:
        rng: The random generator.
        size: Complexity of the case, from 0 (smallest) to 1 (largest).
        commitments: True to draw commitments of the users; False: no user has any.
    """
    return Case(draw_problem(rng, Size.of(size), commitments=commitments))


def draw_problem(rng: Random, size: Size, *, commitments: bool) -> Problem:
    """Draw an allocation problem: different machines, and users that may use some of them.

    Args:
        rng: The random generator.
        size: Upper limits for the numbers in the problem.
        commitments: True to draw commitments of the users; False: no user has any.
    """
    resources = _RESOURCES[: rng.randint(1, size.resources)]
    machines = tuple(
        Machine(
            name=f"m{number}",
            resources={name: Fraction(rng.randint(1, size.has)) for name in resources},
        )
        for number in range(1, rng.randint(1, size.machines) + 1)
    )
    return Problem(
        machines=machines,
        users=tuple(
            ProblemUser(
                name=f"u{number}",
                demand=draw_demand(rng, resources, size),
                machines=draw_machines(rng, machines),
                weight=Fraction(rng.choice((1, 1, 1, 2, 3))),
                commitment=Fraction(rng.randrange(4), 4) if commitments else Fraction(0),
            )
            for number in range(1, rng.randint(2, size.users) + 1)
        ),
    )


def draw_demand(rng: Random, resources: Sequence[str], size: Size) -> dict[str, Fraction]:
    """Draw the resources that a task needs: at least one, and often all."""
    demand = {
        name: Fraction(rng.randint(1, size.needs) if rng.random() < 0.85 else 0)
        for name in resources
    }
    if not any(demand.values()):
        demand[rng.choice(list(resources))] = Fraction(1)
    return demand


def draw_machines(rng: Random, machines: Sequence[Machine]) -> tuple[str, ...] | None:
    """Draw a placement constraint: names of at least one machine, or None for all machines."""
    chosen = tuple(machine.name for machine in machines if rng.random() < 0.6)
    if len(chosen) == len(machines):
        return None
    return chosen or (rng.choice(machines).name,)


def draw_with_pools(rng: Random, size: Size, *, commitments: bool) -> Case:
    """Draw a problem, and divide its machines into private pools of the users.

    Some machines belong entirely to one user; others are divided at random. Users that could run
    nothing in their pool are removed.

    Args:
        rng: The random generator.
        size: Upper limits for the numbers in the problem.
        commitments: True to draw commitments of the users; False: no user has any.
    """
    while True:
        problem = draw_problem(rng, size, commitments=commitments)
        pools = _pools(rng, problem)
        alone = in_pools(problem, pools)
        owners = tuple(user for user in problem.users if alone[user.name])
        if owners:
            kept = Problem(machines=problem.machines, users=owners)
            return Case(kept, pools={user.name: pools[user.name] for user in owners})


def _pools(rng: Random, problem: Problem) -> Mapping[str, Pool]:
    pools: dict[str, dict[str, dict[str, int]]] = {user.name: {} for user in problem.users}
    for machine in problem.machines:
        allowed = [user.name for user in problem.users if user.may_use(machine)]
        if not allowed:
            continue
        if rng.random() < 0.5:
            resources = {name: int(amount) for name, amount in machine.resources.items()}
            pools[rng.choice(allowed)][machine.name] = resources
        else:
            for name, amount in machine.resources.items():
                for _unit in range(int(amount)):
                    amounts = pools[rng.choice(allowed)].setdefault(machine.name, {})
                    amounts[name] = amounts.get(name, 0) + 1
    return pools
