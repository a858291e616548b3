"""Finds the divisible optimum of any policy written as code, without knowing its formula.

A divisible policy gives each user a share that is proportional to its number of tasks. It raises
the smallest share first. To find the share of one task, this module lets a user run some tasks in a
live pool, and reads the user's priority.

The priority must be proportional to the number of tasks, or to a power of it. A power is allowed
because it does not change the order of users.

Pools count whole tasks, so machines are enlarged until each task fits a whole number of times.
"""

import math
from fractions import Fraction

from allocator.fairness.machines import Machines
from allocator.fairness.plugin_sandbox import require_success
from allocator.fairness.policies import Policy
from allocator.fairness.policies.policy import KeyPolicy
from allocator.fairness.policies.sdrf import Sdrf
from allocator.fairness.pool import Pool
from allocator.fairness.quantities import Quantities
from allocator.theory.divisible.optimum import DivisiblePolicy
from allocator.theory.divisible.problem import Problem, ProblemUser

_TRIED = (0, 1, 2, 3, 5)
"""Task counts at which a user's priority is measured."""
_EXACT = 1e-9
_ROUNDING = 1e-14
_DENOMINATOR = 10**6
"""Largest denominator up to which a float is taken for the fraction closest to it."""
_COARSE = Fraction(1, 1000)
"""Relative error allowed when a priority that is no simple fraction is rounded to one.

Proofs of optima need simple fractions.
"""


def measured(policy: Policy) -> DivisiblePolicy:
    """Derive the divisible form of a policy: measure its share of one task in a live pool.

    Raises:
        ValueError: The policy ranks users separately on each machine, or in order of arrival. Also
            if its priorities change over time although all commitments are zero.
    """
    if policy.queues:
        raise ValueError(
            f"policy {policy.name!r} has no divisible optimum: it ranks users by arrival"
        )
    if policy.per_machine:
        raise ValueError(
            f"policy {policy.name!r} ranks users on each machine separately, so it has no measure"
        )
    if not isinstance(policy, KeyPolicy | Sdrf):
        raise ValueError(  # noqa: TRY004 - one of several reasons why a policy is unsuitable
            f"policy {policy.name!r} has priorities that change over time, so it has no "
            "optimum at an instant; "
            "'longshare simulate' shows what it does"
        )

    def share(problem: Problem, user: ProblemUser) -> Fraction:
        return _share(policy, problem, user)

    remembers = isinstance(policy, Sdrf)
    return DivisiblePolicy(policy.name, share, remembers=remembers, coarse=_COARSE)


def _share(policy: Policy, problem: Problem, user: ProblemUser) -> Fraction:
    """Measure the share of one task: by how much a task increases a user's share.

    The result is multiplied by the user's weight, because priorities are shares divided by weights.

    Args:
        policy: The policy that computes priorities.
        problem: The machines and users.
        user: The user that runs the task.

    Raises:
        ValueError: Priorities are proportional neither to the number of tasks nor to a power of it.
        PolicyFailedError: The policy failed.
    """
    scale = _scale(problem)
    priorities = _priorities(policy, problem, user, scale)
    require_success(policy)
    unit = priorities[1]
    power = math.log2(priorities[2] / unit) if min(unit, priorities[2]) > 0.0 else 0.0
    if priorities[0] != 0.0 or power <= _EXACT:
        raise ValueError(_not_proportional(policy, user, priorities))
    for tasks in _TRIED:
        if not math.isclose(priorities[tasks], unit * tasks**power, rel_tol=_EXACT):
            raise ValueError(_not_proportional(policy, user, priorities))
    return _simple_fraction(unit ** (1.0 / power)) * user.weight * scale


def _simple_fraction(value: float) -> Fraction:
    """Return a measured number as a fraction with a small denominator.

    If the number is such a fraction, except for floating-point rounding, the result is exact. Else
    it is a simpler fraction with a relative error of at most `_COARSE`.
    """
    exact = Fraction(value).limit_denominator(_DENOMINATOR)
    if math.isclose(exact, value, rel_tol=_ROUNDING) and exact.numerator < _DENOMINATOR:
        return exact
    denominator = 10
    while abs(Fraction(value).limit_denominator(denominator) - value) > value * _COARSE:
        denominator *= 2
    return Fraction(value).limit_denominator(denominator)


def _not_proportional(policy: Policy, user: ProblemUser, priorities: dict[int, float]) -> str:
    listed = ", ".join(f"{tasks}: {priority:.6g}" for tasks, priority in priorities.items())
    return (
        f"policy {policy.name!r} has no divisible optimum: its priorities do not begin at 0 and "
        f"grow with the tasks, in proportion or as a power (user {user.name!r}, by tasks: {listed}"
        "); 'longshare simulate' shows what it does"
    )


def _priorities(
    policy: Policy, problem: Problem, user: ProblemUser, scale: int
) -> dict[int, float]:
    """Measure a user's priority for each number of running tasks in `_TRIED`.

    Args:
        policy: The policy that computes priorities.
        problem: The machines and users.
        user: The user that runs tasks; all other users run none.
        scale: Factor by which machines are enlarged, so that whole tasks fit.

    Returns:
        Priority by number of tasks.
    """
    machines: Machines[str] = Machines()
    for machine in problem.machines:
        for number in range(machine.count):
            machines.put(f"{machine.name}\0{number}", _whole(machine.resources, scale))
    if user.machines is not None:
        machines.restrict(user.name, lambda name: name.partition("\0")[0] in user.machines)  # type: ignore[operator]  # not None
    capacity = _whole(problem.capacity, scale)
    pool: Pool[str] = Pool(policy, capacity=capacity, machines=machines)
    for member in problem.users:
        pool.add(member.name, weight=float(member.weight))
    demand = _whole(user.demand, 1)
    pool.set_demand(user.name, demand)
    pool.set_active(user.name, True)
    priorities, running = {}, 0
    for tasks in _TRIED:
        pool.allocate(user.name, demand.times(tasks - running))
        running = tasks
        priorities[tasks] = pool.standing(user.name).priority
    return priorities


def _scale(problem: Problem) -> int:
    """Return a factor by which to enlarge machines, so that they hold whole numbers of tasks.

    With the factor, each amount on a machine is a multiple of each amount that a task needs.
    """
    amounts = {amount for user in problem.users for amount in user.demand.values() if amount}
    available = {amount for machine in problem.machines for amount in machine.resources.values()}
    fits = {amount_available / amount for amount_available in available for amount in amounts}
    return math.lcm(*(fit.denominator for fit in fits))


def _whole(amounts: dict[str, Fraction], scale: int) -> Quantities:
    return Quantities.from_doubles(
        {name: float(amount * scale) for name, amount in amounts.items()}
    )
