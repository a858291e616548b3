"""Strategy-proofness: no lie about demand or constraints pays (TSF paper, Definition 2)."""

from dataclasses import replace
from fractions import Fraction
from random import Random

from allocator.theory.divisible.optimum import DivisiblePolicy
from allocator.theory.divisible.problem import Problem, ProblemUser
from allocator.theory.properties.case import Case, Property, Violation, in_words, proved
from allocator.theory.properties.drawing import Size, draw_demand, draw_machines, draw_problem
from allocator.theory.properties.use import luckiest


def violation(policy: DivisiblePolicy, case: Case) -> Violation | None:
    """Return a user that runs more useful tasks under a policy by lying, or None.

    A task is useful if it has the user's real demand and runs on a machine that the user can use. A
    lie does not change the user's weight (TSF paper, Theorem 2).

    Raises:
        UndecidedError: An allocation was not proved exactly.
    """
    claimed = case.lie
    if claimed is None:
        return None
    return paying(policy, case.problem, problem_with(case.problem, claimed), claimed)


def paying(
    policy: DivisiblePolicy, problem: Problem, lie: Problem, claimed: ProblemUser
) -> Violation | None:
    """Return the violation if a given lie lets the liar run more useful tasks, or None.

    A task is useful if it has the user's real demand and runs on a machine that the user can use.

    Args:
        policy: The policy to test.
        problem: The problem with true descriptions.
        lie: The same problem with the lie, as the policy sees it.
        claimed: The false description of the liar.

    Raises:
        UndecidedError: An allocation was not proved exactly.
    """
    user = next(user for user in problem.users if user.name == claimed.name)
    has = proved(problem, policy).tasks(user.name)
    if has == user.tasks:
        return None
    use = luckiest(proved(lie, policy), claimed, user, more_than=has)
    if use is None:
        return None
    text = (
        f"{user.name} runs {in_words(has)}, and {use.tasks} "
        f"if it claims {_difference(user, claimed)}"
    )
    return Violation(
        user.name,
        has,
        use.tasks,
        text,
        problem,
        lie=lie,
        placement=use.placement,
        certain=use.certain,
    )


def problem_with(problem: Problem, claimed: ProblemUser) -> Problem:
    """Return a copy of a problem as the policy sees it if a user lies.

    Args:
        problem: The problem with true descriptions.
        claimed: The false description, which replaces the user of the same name.
    """
    return Problem(
        machines=problem.machines,
        users=tuple(claimed if user.name == claimed.name else user for user in problem.users),
    )


def with_lie(rng: Random, case: Case, size: Size) -> Case:
    """Return a case with a random lie of one user, about its demand, its constraints, or both."""
    problem = case.problem
    user = rng.choice(problem.users)
    demand, machines = user.demand, user.machines
    choice = rng.randrange(3)
    if choice != 0:
        machines = draw_machines(rng, problem.machines)
    if choice != 1:
        demand = _another_demand(rng, user, problem, size)
    claimed = user.model_copy(update={"demand": demand, "machines": machines})
    return replace(case, lie=claimed)


def _another_demand(
    rng: Random, user: ProblemUser, problem: Problem, size: Size
) -> dict[str, Fraction]:
    if rng.random() < 0.5:
        return draw_demand(rng, problem.resources, size)
    demand = {name: user.demand.get(name, Fraction(0)) for name in problem.resources}
    name = rng.choice(problem.resources)
    demand[name] = max(Fraction(0), demand[name] + rng.choice((-1, 1, 2)))
    return demand if any(demand.values()) else dict(user.demand)


def _difference(user: ProblemUser, claimed: ProblemUser) -> str:
    parts = []
    if user.demand != claimed.demand:
        needs = ", ".join(f"{amount} {name}" for name, amount in claimed.demand.items())
        parts.append(f"to need {needs}")
    if user.machines != claimed.machines:
        machines = "all machines" if claimed.machines is None else ", ".join(claimed.machines)
        parts.append(f"to run on {machines}")
    return " and ".join(parts)


def _draw(rng: Random, size: float, commitments: bool) -> Case:  # noqa: FBT001 - signature of Property.draw
    limits = Size.of(size)
    return with_lie(rng, Case(draw_problem(rng, limits, commitments=commitments)), limits)


PROPERTY = Property(
    "strategy-proofness",
    "no user runs more useful tasks by lying about its demand or constraints",
    _draw,
    violation,
)
