"""Random cases: few machines and users, small whole numbers."""

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
    """How large a case may be."""

    users: int
    machines: int
    resources: int
    has: int
    """Of one resource, on one machine."""
    needs: int
    """Of one resource, for one task."""

    @classmethod
    def of(cls, size: float) -> "Size":
        """Return the size of cases from 0, the smallest, to 1."""
        return cls(
            users=2 + round(3 * size),
            machines=2 + round(2 * size),
            resources=2 + round(size),
            has=3 + round(9 * size),
            needs=2 + round(3 * size),
        )


def draw(rng: Random, size: float, debts: bool) -> Case:  # noqa: FBT001 - Property.draw's
    """Draw a case that is nothing but a problem."""
    return Case(draw_problem(rng, Size.of(size), debts=debts))


def draw_problem(rng: Random, size: Size, *, debts: bool) -> Problem:
    """Draw machines that differ, and users that may use some of them."""
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
                commitment=Fraction(rng.randrange(4), 4) if debts else Fraction(0),
            )
            for number in range(1, rng.randint(2, size.users) + 1)
        ),
    )


def draw_demand(rng: Random, resources: Sequence[str], size: Size) -> dict[str, Fraction]:
    """Draw what one task needs: not always of every resource, and of one at least."""
    demand = {
        name: Fraction(rng.randint(1, size.needs) if rng.random() < 0.85 else 0)
        for name in resources
    }
    if not any(demand.values()):
        demand[rng.choice(list(resources))] = Fraction(1)
    return demand


def draw_machines(rng: Random, machines: Sequence[Machine]) -> tuple[str, ...] | None:
    """Draw constraints: names of one machine at least; None: all."""
    chosen = tuple(machine.name for machine in machines if rng.random() < 0.6)
    if len(chosen) == len(machines):
        return None
    return chosen or (rng.choice(machines).name,)


def draw_with_pools(rng: Random, size: Size, *, debts: bool) -> Case:
    """Draw a problem and divide its machines among users that can run something in their part.

    Some machines belong to one user whole, others are cut at random.
    """
    while True:
        problem = draw_problem(rng, size, debts=debts)
        pools = _pools(rng, problem)
        alone = in_pools(problem, pools)
        owners = tuple(user for user in problem.users if alone[user.name])
        if owners:
            kept = Problem(machines=problem.machines, users=owners)
            return Case(kept, pools={user.name: pools[user.name] for user in owners})


def _pools(rng: Random, problem: Problem) -> Mapping[str, Pool]:
    pools: dict[str, dict[str, dict[str, int]]] = {user.name: {} for user in problem.users}
    for machine in problem.machines:
        here = [user.name for user in problem.users if user.may_use(machine)]
        if not here:
            continue
        if rng.random() < 0.5:
            whole = {name: int(amount) for name, amount in machine.resources.items()}
            pools[rng.choice(here)][machine.name] = whole
        else:
            for name, amount in machine.resources.items():
                for _unit in range(int(amount)):
                    part = pools[rng.choice(here)].setdefault(machine.name, {})
                    part[name] = part.get(name, 0) + 1
    return pools
