"""What is to be shared and by whom: the problem that a divisible optimum solves, validated."""

from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from typing import Annotated, Any, Self, TypeAlias

from pydantic import Field, model_validator

from allocator.theory.divisible.content import Amount, FileModel, Name, Positive, validated


class Machine(FileModel):
    """A machine, or a class of machines that are all alike."""

    name: Name
    resources: dict[Name, Amount]
    """What one machine has."""
    count: Annotated[int, Field(ge=1, strict=True)] = 1
    """How many there are."""


class ProblemUser(FileModel):
    """A user whose tasks are all alike and can be divided at will."""

    name: Name
    demand: dict[Name, Amount]
    """What one task needs; of one resource more than 0."""
    machines: tuple[Name, ...] | None = None
    """Names of the machines that it may use; None: all."""
    weight: Positive = Fraction(1)
    tasks: Amount | None = None
    """How many it has at most; None: without end."""
    commitment: Amount = Fraction(0)
    """What it owes, as a share; policies without memory do not ask."""

    @model_validator(mode="after")
    def _demands_something(self) -> Self:
        if not any(self.demand.values()):
            raise ValueError("demand: a task must need more than 0 of some resource")
        return self

    def may_use(self, machine: Machine) -> bool:
        """Return whether its tasks may run there, whether or not they fit."""
        return self.machines is None or machine.name in self.machines

    def fit(self, machine: Machine) -> Fraction:
        """Return how many of its tasks fill one such machine, constraints aside."""
        return min(
            machine.resources.get(name, Fraction(0)) / amount
            for name, amount in self.demand.items()
            if amount
        )


class Problem(FileModel):
    """Machines and the users that share them."""

    machines: Annotated[tuple[Machine, ...], Field(min_length=1)]
    users: Annotated[tuple[ProblemUser, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _names_are_known(self) -> Self:
        for what, things in (("machines", self.machines), ("users", self.users)):
            for name, times in Counter(thing.name for thing in things).items():
                if times > 1:
                    raise ValueError(f"{what}: {times} have the name {name!r}; one may")
        machines = [machine.name for machine in self.machines]
        known = set(machines)
        for place, user in enumerate(self.users):
            for name in user.machines or ():
                if name not in known:
                    raise ValueError(
                        f"users[{place}].machines: {user.name!r} may use {name!r}, "
                        f"and there is no such machine; there are: {_some(machines)}"
                    )
            for name, amount in user.demand.items():
                if amount and not self.capacity.get(name):
                    raise ValueError(
                        f"users[{place}].demand: {user.name!r} needs {name!r}, which no machine "
                        f"has; there are: {_some(self.resources)}"
                    )
        return self

    @cached_property
    def resources(self) -> tuple[str, ...]:
        """Names of all resources, in the order in which machines name them."""
        return tuple(dict.fromkeys(name for m in self.machines for name in m.resources))

    @cached_property
    def capacity(self) -> dict[str, Fraction]:
        """What all machines have together."""
        return {
            name: sum((m.count * m.resources.get(name, Fraction(0)) for m in self.machines), _ZERO)
            for name in self.resources
        }

    @cached_property
    def _by_name(self) -> dict[str, Machine]:
        return {machine.name: machine for machine in self.machines}

    @cached_property
    def _all(self) -> "_Kinds":
        return _kinds(self.machines)

    def monopoly(self, user: ProblemUser) -> Fraction:
        """Return h: how many tasks it could run if it were alone and had no constraints."""
        return _fit(user, self._all)

    def constrained_monopoly(self, user: ProblemUser) -> Fraction:
        """Return how many tasks it could run if it were alone, on machines that it may use."""
        if user.machines is None:
            return self.monopoly(user)
        return _fit(user, _kinds([self._by_name[name] for name in dict.fromkeys(user.machines)]))

    def dominant_share(self, user: ProblemUser) -> Fraction:
        """Return what one task takes of the resource that it takes most of, as a fraction."""
        return max(amount / self.capacity[r] for r, amount in user.demand.items() if amount)


_ZERO = Fraction(0)
_Kinds: TypeAlias = dict[frozenset[tuple[str, Fraction]], tuple[Machine, int]]


def _kinds(machines: Sequence[Machine]) -> _Kinds:
    """Return one machine of each that have the same, and how many there are."""
    found: _Kinds = {}
    for machine in machines:
        has = frozenset(machine.resources.items())
        found[has] = machine, found.get(has, (machine, 0))[1] + machine.count
    return found


def _fit(user: ProblemUser, kinds: _Kinds) -> Fraction:
    return sum((count * user.fit(machine) for machine, count in kinds.values()), _ZERO)


def read_problem(content: Mapping[str, Any]) -> Problem:
    """Make a problem of what a problem file holds.

    Raises:
        ValueError: something in it cannot be used; the message says what, where, and what would
            do.
    """
    return validated(Problem, content)


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:10])
    return f"{shown} and {len(names) - 10} more" if len(names) > 10 else shown
