"""Simplifies a case that violates a property, so that people can understand the violation."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import chain
from typing import Any

from allocator.theory.divisible.problem import Machine, Problem, ProblemUser
from allocator.theory.properties.case import Case

_ZERO = Fraction(0)


def simpler(case: Case) -> Iterator[Case]:
    """Yield all cases that are one step simpler than a case, largest simplification first."""
    return filter(_makes_sense, chain.from_iterable(change(case) for change in _CHANGES))


def extent(case: Case) -> tuple[int, int, int, int, Fraction]:
    """Return a sort key that is lower for simpler cases.

    The key has the numbers of users, machines, resources and constraints, and the sum of all
    numbers.
    """
    problem = case.problem
    users = [*problem.users, *_lies(case)]
    numbers = sum(
        chain.from_iterable(machine.resources.values() for machine in problem.machines), _ZERO
    )
    numbers += sum(chain.from_iterable(user.demand.values() for user in users), _ZERO)
    numbers += sum((user.weight + user.commitment for user in users), _ZERO)
    numbers += sum(
        amount
        for pool in (case.pools or {}).values()
        for parts in pool.values()
        for amount in parts.values()
    )
    for lie in _lies(case):  # a lie about fewer fields is simpler
        truth = _truth(case, lie)
        numbers += 10 * ((truth.demand != lie.demand) + (truth.machines != lie.machines))
    return (
        len(problem.users),
        len(problem.machines),
        len(problem.resources),
        sum(user.machines is not None for user in users),
        numbers,
    )


def _without_a_user(case: Case) -> Iterator[Case]:
    for user in case.problem.users:
        if case.lie is None or case.lie.name != user.name:
            kept = tuple(other for other in case.problem.users if other is not user)
            pools = case.pools and {
                name: pool for name, pool in case.pools.items() if name != user.name
            }
            problem = Problem.model_construct(machines=case.problem.machines, users=kept)
            yield replace(case, problem=problem, pools=pools)


def _without_a_machine(case: Case) -> Iterator[Case]:
    for machine in case.problem.machines:
        kept = tuple(other for other in case.problem.machines if other is not machine)

        def elsewhere(
            user: ProblemUser, gone: str = machine.name, remaining: int = len(kept)
        ) -> ProblemUser:
            if user.machines is None:
                return user
            names = tuple(name for name in user.machines if name != gone)
            return user.model_copy(update={"machines": None if len(names) == remaining else names})

        changed = _changed(case, kept, elsewhere)
        if case.pools is not None:
            gone = machine.name
            pools = {
                owner: {
                    machine_name: amounts
                    for machine_name, amounts in pool.items()
                    if machine_name != gone
                }
                for owner, pool in case.pools.items()
            }
            changed = replace(changed, pools=pools)
        yield changed


def _without_a_resource(case: Case) -> Iterator[Case]:
    for gone in case.problem.resources:

        def without(amounts: Mapping[str, Any], gone: str = gone) -> dict[str, Any]:
            return {name: amount for name, amount in amounts.items() if name != gone}

        def needing(
            user: ProblemUser, without: Callable[[Mapping[str, Any]], dict[str, Any]] = without
        ) -> ProblemUser:
            return user.model_copy(update={"demand": without(user.demand)})

        machines = [
            machine.model_copy(update={"resources": without(machine.resources)})
            for machine in case.problem.machines
        ]
        changed = _changed(case, machines, needing)
        if case.pools is not None:
            pools = {
                owner: {machine_name: without(amounts) for machine_name, amounts in pool.items()}
                for owner, pool in case.pools.items()
            }
            changed = replace(changed, pools=pools)
        yield changed


def _changed(
    case: Case, machines: Sequence[Machine], change: Callable[[ProblemUser], ProblemUser]
) -> Case:
    """Return a copy of a case with other machines, and with `change` applied to users and lie."""
    users = tuple(change(user) for user in case.problem.users)
    return replace(
        case,
        problem=Problem.model_construct(machines=tuple(machines), users=users),
        lie=case.lie and change(case.lie),
    )


def _with_smaller_pools(case: Case) -> Iterator[Case]:
    pools = case.pools or {}
    for owner, pool in pools.items():
        for machine, parts in pool.items():
            for fewer in _with_one_amount_less(parts):
                smaller = {**pool, machine: {name: int(amount) for name, amount in fewer.items()}}
                yield replace(case, pools={**pools, owner: smaller})


def _with_smaller_machines(case: Case) -> Iterator[Case]:
    machines, users = case.problem.machines, case.problem.users
    for index, machine in enumerate(machines):
        for resources in _with_one_amount_less(machine.resources):
            smaller = machine.model_copy(update={"resources": resources})
            changed = (*machines[:index], smaller, *machines[index + 1 :])
            yield replace(case, problem=Problem.model_construct(machines=changed, users=users))


def _with_smaller_users(case: Case) -> Iterator[Case]:
    machines, users = case.problem.machines, case.problem.users
    for index, user in enumerate(users):
        for changes in _smaller_users(user):
            smaller = user.model_copy(update=changes)
            changed = (*users[:index], smaller, *users[index + 1 :])
            problem = Problem.model_construct(machines=machines, users=changed)
            lie = case.lie
            if lie is not None and lie.name == user.name:  # a field without a lie stays truthful
                kept = {name: new for name, new in changes.items() if _same(user, lie, name)}
                lie = lie.model_copy(update=kept)
            yield replace(case, problem=problem, lie=lie)


def _with_smaller_lies(case: Case) -> Iterator[Case]:
    for lie in _lies(case):
        truth = _truth(case, lie)
        truer: list[dict[str, Any]] = [{"demand": truth.demand}, {"machines": truth.machines}]
        for changes in (*truer, *_smaller_users(lie)):
            if "weight" not in changes and "commitment" not in changes:
                yield replace(case, lie=lie.model_copy(update=changes))


def _same(user: ProblemUser, lie: ProblemUser, field: str) -> bool:
    return bool(getattr(user, field) == getattr(lie, field))


def _smaller_users(user: ProblemUser) -> Iterator[dict[str, Any]]:
    if user.machines is not None:
        yield {"machines": None}
    if user.weight > 1:
        yield {"weight": Fraction(1)}
        yield {"weight": user.weight - 1}
    if user.commitment:
        yield {"commitment": _ZERO}
    for demand in _with_one_amount_less(user.demand):
        yield {"demand": demand}


def _with_one_amount_less(amounts: Mapping[str, Any]) -> Iterator[dict[str, Fraction]]:
    for name, amount in amounts.items():
        for smaller in dict.fromkeys((0, 1, amount // 2, amount - 1)):
            if 0 <= smaller < amount:
                yield {**amounts, name: Fraction(smaller)}


def _makes_sense(case: Case) -> bool:
    """Return whether a simplified case is still valid.

    In a valid case, every user needs some resource, and the problem passes validation with the
    truth and with the lie. The private pools together do not exceed the machines' resources.
    """
    users = [*case.problem.users, *_lies(case)]
    if not all(any(user.demand.values()) for user in users):
        return False
    try:
        Problem(machines=case.problem.machines, users=case.problem.users)
        for lie in _lies(case):
            Problem(machines=case.problem.machines, users=(lie,))
    except ValueError:
        return False
    return all(
        sum(pool.get(machine.name, {}).get(name, 0) for pool in (case.pools or {}).values())
        <= amount
        for machine in case.problem.machines
        for name, amount in machine.resources.items()
    )


def _lies(case: Case) -> list[ProblemUser]:
    return [] if case.lie is None else [case.lie]


def _truth(case: Case, lie: ProblemUser) -> ProblemUser:
    return next(user for user in case.problem.users if user.name == lie.name)


_CHANGES = (
    _without_a_user,
    _without_a_machine,
    _without_a_resource,
    _with_smaller_pools,
    _with_smaller_machines,
    _with_smaller_users,
    _with_smaller_lies,
)
