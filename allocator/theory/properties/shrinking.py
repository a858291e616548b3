"""Simpler cases next to one: fewer users and machines, smaller numbers."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import chain
from typing import Any

from allocator.theory.divisible.problem import Machine, Problem, ProblemUser
from allocator.theory.properties.case import Case

_ZERO = Fraction(0)


def simpler(case: Case) -> Iterator[Case]:
    """Yield cases that differ from one in one respect, those that save most first."""
    return filter(_makes_sense, chain.from_iterable(change(case) for change in _CHANGES))


def extent(case: Case) -> tuple[int, int, int, int, Fraction]:
    """Return what makes a case large: users, machines, resources, constraints, then numbers."""
    problem = case.problem
    told = [*problem.users, *_lies(case)]
    numbers = sum(chain.from_iterable(m.resources.values() for m in problem.machines), _ZERO)
    numbers += sum(chain.from_iterable(user.demand.values() for user in told), _ZERO)
    numbers += sum((user.weight + user.commitment for user in told), _ZERO)
    numbers += sum(
        amount
        for pool in (case.pools or {}).values()
        for parts in pool.values()
        for amount in parts.values()
    )
    for lie in _lies(case):  # the fewer things are lied about, the better
        truth = _truth(case, lie)
        numbers += 10 * ((truth.demand != lie.demand) + (truth.machines != lie.machines))
    return (
        len(problem.users),
        len(problem.machines),
        len(problem.resources),
        sum(user.machines is not None for user in told),
        numbers,
    )


def _without_a_user(case: Case) -> Iterator[Case]:
    for user in case.problem.users:
        if case.lie is None or case.lie.name != user.name:
            kept = tuple(other for other in case.problem.users if other is not user)
            pools = case.pools and {n: pool for n, pool in case.pools.items() if n != user.name}
            problem = Problem.model_construct(machines=case.problem.machines, users=kept)
            yield replace(case, problem=problem, pools=pools)


def _without_a_machine(case: Case) -> Iterator[Case]:
    for machine in case.problem.machines:
        kept = tuple(other for other in case.problem.machines if other is not machine)

        def elsewhere(
            user: ProblemUser, gone: str = machine.name, left: int = len(kept)
        ) -> ProblemUser:
            if user.machines is None:
                return user
            names = tuple(name for name in user.machines if name != gone)
            return user.model_copy(update={"machines": None if len(names) == left else names})

        changed = _changed(case, kept, elsewhere)
        if case.pools is not None:
            gone = machine.name
            pools = {
                n: {m: p for m, p in pool.items() if m != gone} for n, pool in case.pools.items()
            }
            changed = replace(changed, pools=pools)
        yield changed


def _without_a_resource(case: Case) -> Iterator[Case]:
    for gone in case.problem.resources:

        def left(amounts: Mapping[str, Any], gone: str = gone) -> dict[str, Any]:
            return {name: amount for name, amount in amounts.items() if name != gone}

        def needing(
            user: ProblemUser, left: Callable[[Mapping[str, Any]], dict[str, Any]] = left
        ) -> ProblemUser:
            return user.model_copy(update={"demand": left(user.demand)})

        machines = [
            m.model_copy(update={"resources": left(m.resources)}) for m in case.problem.machines
        ]
        changed = _changed(case, machines, needing)
        if case.pools is not None:
            pools = {n: {m: left(p) for m, p in pool.items()} for n, pool in case.pools.items()}
            changed = replace(changed, pools=pools)
        yield changed


def _changed(
    case: Case, machines: Sequence[Machine], change: Callable[[ProblemUser], ProblemUser]
) -> Case:
    """Return a case with other machines, and everybody and the lie changed."""
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
            for fewer in _less_of_one(parts):
                smaller = {**pool, machine: {name: int(amount) for name, amount in fewer.items()}}
                yield replace(case, pools={**pools, owner: smaller})


def _with_smaller_machines(case: Case) -> Iterator[Case]:
    machines, users = case.problem.machines, case.problem.users
    for place, machine in enumerate(machines):
        for resources in _less_of_one(machine.resources):
            other = machine.model_copy(update={"resources": resources})
            put = (*machines[:place], other, *machines[place + 1 :])
            yield replace(case, problem=Problem.model_construct(machines=put, users=users))


def _with_smaller_users(case: Case) -> Iterator[Case]:
    machines, users = case.problem.machines, case.problem.users
    for place, user in enumerate(users):
        for changes in _less(user):
            less = user.model_copy(update=changes)
            everybody = (*users[:place], less, *users[place + 1 :])
            problem = Problem.model_construct(machines=machines, users=everybody)
            lie = case.lie
            if lie is not None and lie.name == user.name:  # what is not lied about stays true
                kept = {name: new for name, new in changes.items() if _same(user, lie, name)}
                lie = lie.model_copy(update=kept)
            yield replace(case, problem=problem, lie=lie)


def _with_smaller_lies(case: Case) -> Iterator[Case]:
    for lie in _lies(case):
        truth = _truth(case, lie)
        truer: list[dict[str, Any]] = [{"demand": truth.demand}, {"machines": truth.machines}]
        for changes in (*truer, *_less(lie)):
            if "weight" not in changes and "commitment" not in changes:
                yield replace(case, lie=lie.model_copy(update=changes))


def _same(user: ProblemUser, lie: ProblemUser, field: str) -> bool:
    return bool(getattr(user, field) == getattr(lie, field))


def _less(user: ProblemUser) -> Iterator[dict[str, Any]]:
    if user.machines is not None:
        yield {"machines": None}
    if user.weight > 1:
        yield {"weight": Fraction(1)}
        yield {"weight": user.weight - 1}
    if user.commitment:
        yield {"commitment": _ZERO}
    for demand in _less_of_one(user.demand):
        yield {"demand": demand}


def _less_of_one(amounts: Mapping[str, Any]) -> Iterator[dict[str, Fraction]]:
    for name, amount in amounts.items():
        for less in dict.fromkeys((0, 1, amount // 2, amount - 1)):
            if 0 <= less < amount:
                yield {**amounts, name: Fraction(less)}


def _makes_sense(case: Case) -> bool:
    """Return whether the case is one: its problem valid, and pools no more than there is."""
    told = [*case.problem.users, *_lies(case)]
    if not all(any(user.demand.values()) for user in told):
        return False
    try:
        Problem(machines=case.problem.machines, users=case.problem.users)
        for lie in _lies(case):
            Problem(machines=case.problem.machines, users=(lie,))
    except ValueError:
        return False
    return all(
        sum(pool.get(m.name, {}).get(name, 0) for pool in (case.pools or {}).values()) <= amount
        for m in case.problem.machines
        for name, amount in m.resources.items()
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
