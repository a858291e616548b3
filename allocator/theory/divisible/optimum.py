"""The ideal allocation of machines among users, for each policy, if tasks could be divided.

A policy only defines the share of one task. The same solver then makes the users' shares max-min
fair for all policies.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

from allocator.complaints import alternatives
from allocator.theory.divisible.problem import Machine, Problem, ProblemUser
from allocator.theory.divisible.progressive_filling import Number, ProgressCallback, Tank, fill

SharePerTask: TypeAlias = Callable[[Problem, ProblemUser], Fraction]


@dataclass(frozen=True, slots=True)
class DivisiblePolicy:
    """A policy for divisible tasks, given by the share that it assigns to one task.

    The policy's allocation makes these shares, divided by the users' weights, max-min fair.
    """

    name: str
    share: SharePerTask
    """Function that returns the share of one task, before division by the user's weight.

    The share is above 0 if the user can run tasks at all.
    """
    remembers: bool = False
    """True if a user's commitment counts as a share that the user already holds."""
    per_machine: bool = False
    """True if the users share each machine separately."""
    coarse: Fraction = Fraction(0)
    """Largest relative error of `share`, for policies whose share is measured; 0 if exact."""


@dataclass(frozen=True, slots=True)
class Part:
    """One user's allocation in the optimum: its number of tasks and where the tasks run."""

    tasks: Number
    share: Number
    """The user's share by the policy's definition, divided by the weight; excludes commitments."""
    machines: dict[str, Number]
    """Number of tasks by machine name.

    Tasks on a class of machines are spread evenly over the class.
    """


@dataclass(frozen=True, slots=True)
class Shared:
    """The optimum: allocations of all users, by user name."""

    users: dict[str, Part]
    exact: bool
    """True if all numbers are proved fractions; False if they are floating-point numbers."""


def _task_share(problem: Problem, user: ProblemUser) -> Fraction:
    return 1 / problem.monopoly(user)


def _slowdown(problem: Problem, user: ProblemUser) -> Fraction:
    return 1 / problem.constrained_monopoly(user)


def _dominant_share(problem: Problem, user: ProblemUser) -> Fraction:
    return problem.dominant_share(user)


_POLICIES = (
    DivisiblePolicy("tsf", _task_share),
    DivisiblePolicy("stsf", _task_share, remembers=True),
    DivisiblePolicy("cdrf", _slowdown),
    DivisiblePolicy("drfh", _dominant_share),
    DivisiblePolicy("drf", _dominant_share),
    DivisiblePolicy("sdrf", _dominant_share, remembers=True),
    DivisiblePolicy("per-machine-drf", _dominant_share, per_machine=True),
)


def cmmf(resource: str | None = None) -> DivisiblePolicy:
    """Create the policy CMMF (constrained max-min fairness, Choosy), which shares one resource.

    Args:
        resource: Name of the resource; None selects the first resource of the problem.
    """

    def share(problem: Problem, user: ProblemUser) -> Fraction:
        shared = problem.resources[0] if resource is None else resource
        amount = user.demand.get(shared)
        if not amount:
            raise ValueError(
                f"cmmf shares {shared!r}, and {user.name!r} does not need this resource; "
                "choose a resource that every user needs"
            )
        return amount / problem.capacity[shared]

    return DivisiblePolicy("cmmf", share)


def names() -> list[str]:
    """Return the names that `create` accepts."""
    return sorted([*(policy.name for policy in _POLICIES), "cmmf"])


def create(name: str, parameters: Mapping[str, object]) -> DivisiblePolicy:
    """Create a policy from its name and parameters. Only `cmmf` has a parameter: `resource`.

    Raises:
        ValueError: The policy or the parameter does not exist.
    """
    known = {"resource"} if name == "cmmf" else set()
    for parameter in parameters:
        if parameter not in known:
            raise ValueError(
                f"policy {name!r} has no parameter {parameter!r} here "
                f"(parameters: {', '.join(known) or 'none'})"
            )
    if name == "cmmf":
        resource = parameters.get("resource")
        return cmmf(None if resource is None else str(resource))
    for policy in _POLICIES:
        if policy.name == name:
            return policy
    raise ValueError(f"policy {name!r} has no exact optimum here{alternatives(name, names())}")


def optimum(
    problem: Problem, policy: DivisiblePolicy, watch: ProgressCallback = lambda _frozen, _all: None
) -> Shared:
    """Compute the allocation that a policy would reach if tasks could be divided arbitrarily.

    The solver merges machines with the same resources and the same allowed users. It also merges
    users that differ only in their names. A user gets nothing if its tasks fit on none of its
    allowed machines.

    Args:
        problem: The machines and users.
        policy: The policy.
        watch: Progress callback: receives the number of users whose share is final, and of all
            users.

    Returns:
        Each user's number of tasks in total and on each machine.

    Raises:
        ValueError: The policy is not defined for this problem.
        ArithmeticError: The solver failed.
    """
    places = _places(problem)
    shares = {
        user.name: policy.share(problem, user)
        for user in problem.users
        if any(place.fits(user) for place in places)
    }
    if policy.per_machine:
        placed, exact = _on_each_machine(problem, places, watch)
    else:
        placed, exact = _together(problem, places, shares, watch, remembers=policy.remembers)
    return Shared(
        {
            user.name: _part(user, shares.get(user.name, Fraction(0)), placed, places, exact=exact)
            for user in problem.users
        },
        exact,
    )


@dataclass(frozen=True, slots=True)
class _Place:
    """A group of machines that the solver treats as one: same resources, same allowed users."""

    machines: list[Machine]
    users: frozenset[str]

    @property
    def count(self) -> int:
        return sum(machine.count for machine in self.machines)

    def fits(self, user: ProblemUser) -> bool:
        return user.name in self.users and user.fit(self.machines[0]) > 0

    def takes(self, user: ProblemUser, count: int) -> dict[str, Fraction]:
        """Return the resources that one task of a user needs, as fractions of the group's.

        Args:
            user: The user that runs the task.
            count: Number of machines in the group.
        """
        available = self.machines[0].resources
        return {
            name: amount / (available[name] * count)
            for name, amount in user.demand.items()
            if amount
        }


_Placed: TypeAlias = dict[str, dict[int, Number]]
"""Number of tasks by user name and index of the place (a group of like machines)."""


def _places(problem: Problem) -> list[_Place]:
    everywhere = {user.name for user in problem.users if user.machines is None}
    chosen: dict[str, set[str]] = defaultdict(set)
    for user in problem.users:
        for name in user.machines or ():
            chosen[name].add(user.name)
    groups: dict[object, list[Machine]] = defaultdict(list)
    for machine in problem.machines:
        resources = frozenset(
            (name, amount) for name, amount in machine.resources.items() if amount
        )
        groups[resources, frozenset(chosen[machine.name])].append(machine)
    return [
        _Place(machines, frozenset(everywhere | chosen[machines[0].name]))
        for machines in groups.values()
    ]


def _together(
    problem: Problem,
    places: list[_Place],
    shares: dict[str, Fraction],
    watch: ProgressCallback,
    *,
    remembers: bool,
) -> tuple[_Placed, bool]:
    groups: dict[object, list[ProblemUser]] = defaultdict(list)
    usable: dict[str, list[int]] = {}
    for user in problem.users:
        if user.name in shares:
            indices = [index for index, place in enumerate(places) if place.fits(user)]
            usable[user.name] = indices
            demand = frozenset(user.demand.items())
            groups[
                demand, tuple(indices), user.weight, user.tasks, remembers and user.commitment
            ].append(user)
    tanks = [
        Tank(
            share=shares[user.name] / user.weight,
            base=user.commitment / user.weight if remembers else Fraction(0),
            limit=user.tasks,
            takes={
                index: places[index].takes(user, places[index].count) for index in usable[user.name]
            },
            users=len(group),
        )
        for group in groups.values()
        for user in group[:1]
    ]
    filled = fill(tanks, watch)
    placed = {
        user.name: by_place
        for group, by_place in zip(groups.values(), filled.placed, strict=True)
        for user in group
    }
    return placed, filled.exact


def _on_each_machine(
    problem: Problem, places: list[_Place], watch: ProgressCallback
) -> tuple[_Placed, bool]:
    for user in problem.users:
        if user.tasks is not None:
            raise ValueError(
                f"per-machine-drf looks at each machine alone, and so cannot keep {user.name!r} to "
                "a number of tasks; leave out 'tasks' or take another policy"
            )
    placed: _Placed = defaultdict(dict)
    exact = True
    for index, place in enumerate(places):
        users = [user for user in problem.users if place.fits(user)]
        takes = [place.takes(user, 1) for user in users]
        filled = fill(
            [
                Tank(max(parts.values()) / user.weight, Fraction(0), None, {0: parts})
                for user, parts in zip(users, takes, strict=True)
            ]
        )
        exact = exact and filled.exact
        for user, tasks in zip(users, filled.tasks, strict=True):
            placed[user.name][index] = tasks * place.count
        watch(index + 1, len(places))
    return placed, exact


def _part(
    user: ProblemUser, share: Fraction, placed: _Placed, places: list[_Place], *, exact: bool
) -> Part:
    machines: dict[str, Number] = {}
    for index, tasks in placed.get(user.name, {}).items():
        for machine in places[index].machines:
            machines[machine.name] = tasks * machine.count / places[index].count
    total: Number = sum(machines.values(), Fraction(0))
    return Part(
        _number(total, exact=exact),
        _number(total * share / user.weight, exact=exact),
        {name: _number(tasks, exact=exact) for name, tasks in machines.items()},
    )


def _number(value: Number, *, exact: bool) -> Number:
    return value if exact else float(value)
