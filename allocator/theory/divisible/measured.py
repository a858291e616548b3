"""The divisible optimum of a policy that is there as code: its measure is asked of the live pool.

A divisible policy raises the least share, and a share grows with the tasks in proportion. Where a
policy's priorities do so (or as a power of it: the order is the same), what one task counts is
read from the priority of a user that runs some. Problems are scaled so that whole tasks, which is
what pools count, are whole.
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
"""Tasks, of which the priorities must be in proportion, or in a power of it."""
_EXACT = 1e-9
_ROUNDING = 1e-14
_DENOMINATOR = 10**6
"""Up to which a floating-point number that is as good as a fraction is taken for it."""
_COARSE = Fraction(1, 1000)
"""Within which other numbers are taken for simple fractions, so that optima can be proved."""


def measured(policy: Policy) -> DivisiblePolicy:
    """Return what a policy does if tasks can be divided at will.

    Raises:
        ValueError: it ranks each machine apart, or by who came first, or its priorities drift while
            nobody owes anything.
    """
    if policy.queues:
        raise ValueError(
            f"policy {policy.name!r} has no divisible optimum: it goes by who came first"
        )
    if policy.per_machine:
        raise ValueError(f"policy {policy.name!r} ranks each machine apart, and has no measure")
    if not isinstance(policy, KeyPolicy | Sdrf):
        raise ValueError(  # noqa: TRY004 - of all that may be wrong with a policy
            f"policy {policy.name!r} ranks by lines in time, and has no optimum at an instant; "
            "'longshare simulate' shows what it does"
        )

    def share(problem: Problem, user: ProblemUser) -> Fraction:
        return _share(policy, problem, user)

    remembers = isinstance(policy, Sdrf)
    return DivisiblePolicy(policy.name, share, remembers=remembers, coarse=_COARSE)


def _share(policy: Policy, problem: Problem, user: ProblemUser) -> Fraction:
    """Return what one task of a user counts, before its weight.

    Raises:
        ValueError: priorities are not in proportion to tasks, nor to a power of them.
        PolicyFailedError: The policy failed.
    """
    scale = _scale(problem)
    said = _priorities(policy, problem, user, scale)
    require_success(policy)
    one = said[1]
    power = math.log2(said[2] / one) if min(one, said[2]) > 0.0 else 0.0
    if said[0] != 0.0 or power <= _EXACT:
        raise ValueError(_strange(policy, user, said))
    for tasks in _TRIED:
        if not math.isclose(said[tasks], one * tasks**power, rel_tol=_EXACT):
            raise ValueError(_strange(policy, user, said))
    return _simple(one ** (1.0 / power)) * user.weight * scale


def _simple(value: float) -> Fraction:
    """Return the fraction that a number stands for; else the simplest that is near."""
    exact = Fraction(value).limit_denominator(_DENOMINATOR)
    if math.isclose(exact, value, rel_tol=_ROUNDING) and exact.numerator < _DENOMINATOR:
        return exact
    denominator = 10
    while abs(Fraction(value).limit_denominator(denominator) - value) > value * _COARSE:
        denominator *= 2
    return Fraction(value).limit_denominator(denominator)


def _strange(policy: Policy, user: ProblemUser, said: dict[int, float]) -> str:
    told = ", ".join(f"{tasks}: {priority:.6g}" for tasks, priority in said.items())
    return (
        f"policy {policy.name!r} has no divisible optimum: its priorities do not begin at 0 and "
        f"grow with the tasks, in proportion or as a power (user {user.name!r}, by tasks: {told}); "
        "'longshare simulate' shows what it does"
    )


def _priorities(
    policy: Policy, problem: Problem, user: ProblemUser, scale: int
) -> dict[int, float]:
    """Return a user's priority by how many tasks it runs, on machines so many times as large."""
    machines: Machines[str] = Machines()
    for machine in problem.machines:
        for number in range(machine.count):
            machines.put(f"{machine.name}\0{number}", _whole(machine.resources, scale))
    if user.machines is not None:
        machines.restrict(user.name, lambda name: name.partition("\0")[0] in user.machines)  # type: ignore[operator]  # not None
    capacity = _whole(problem.capacity, scale)
    pool: Pool[str] = Pool(policy, capacity=capacity, machines=machines)
    for each in problem.users:
        pool.add(each.name, weight=float(each.weight))
    demand = _whole(user.demand, 1)
    pool.set_demand(user.name, demand)
    pool.set_active(user.name, True)
    said, runs = {}, 0
    for tasks in _TRIED:
        pool.allocate(user.name, demand.times(tasks - runs))
        runs = tasks
        said[tasks] = pool.standing(user.name).priority
    return said


def _scale(problem: Problem) -> int:
    """Return by what machines are multiplied so that each task fits a whole number of times."""
    amounts = {amount for user in problem.users for amount in user.demand.values() if amount}
    has = {amount for machine in problem.machines for amount in machine.resources.values()}
    fits = {h / amount for h in has for amount in amounts}
    return math.lcm(*(fit.denominator for fit in fits))


def _whole(amounts: dict[str, Fraction], scale: int) -> Quantities:
    return Quantities.from_doubles({name: float(a * scale) for name, a in amounts.items()})
