"""Input of a divisible optimum: machines and the users that share them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from typing import Annotated, Any, Self, TypeAlias

from pydantic import Field, model_validator

from allocator.complaints import did_you_mean, require_one_spelling
from allocator.theory.divisible.content import Amount, FileModel, Name, Positive, validated


class Machine(FileModel):
    """A machine, or a class of `count` identical machines."""

    name: Name
    resources: dict[Name, Amount]
    """Resources of one machine, by resource name."""
    count: Annotated[int, Field(ge=1, strict=True)] = 1
    """Number of machines in the class."""


class ProblemUser(FileModel):
    """A user whose tasks are identical and can be divided arbitrarily."""

    name: Name
    demand: dict[Name, Amount]
    """Resources that one task needs, by name; at least one amount is positive."""
    machines: tuple[Name, ...] | None = None
    """Names of the machines that the user may use; None allows all machines."""
    weight: Positive = Fraction(1)
    tasks: Amount | None = None
    """Number of tasks that the user wants to run; None: as many as possible."""
    commitment: Amount = Fraction(0)
    """The user's commitment, as a share that counts as held; policies without memory ignore it."""

    @model_validator(mode="after")
    def _demands_something(self) -> Self:
        if not any(self.demand.values()):
            raise ValueError("demand: a task must need more than 0 of some resource")
        return self

    def may_use(self, machine: Machine) -> bool:
        """Return whether the user's constraints allow a machine; resources are not compared."""
        return self.machines is None or machine.name in self.machines

    def fit(self, machine: Machine) -> Fraction:
        """Return how many of the user's tasks fit on one empty machine, ignoring constraints."""
        return min(
            machine.resources.get(name, Fraction(0)) / amount
            for name, amount in self.demand.items()
            if amount
        )


class Problem(FileModel):
    """An allocation problem with divisible tasks: the machines, and the users that share them."""

    machines: Annotated[tuple[Machine, ...], Field(min_length=1)]
    users: Annotated[tuple[ProblemUser, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _names_are_known(self) -> Self:
        for table, entries in (("machines", self.machines), ("users", self.users)):
            for name, count in Counter(entry.name for entry in entries).items():
                if count > 1:
                    raise ValueError(
                        f"{table}: {count} have the name {name!r}; names must be unique"
                    )
        require_one_spelling(
            (f"machines[{index}].resources", name)
            for index, machine in enumerate(self.machines)
            for name in machine.resources
        )
        machines = [machine.name for machine in self.machines]
        known = set(machines)
        for index, user in enumerate(self.users):
            for name in user.machines or ():
                if name not in known:
                    raise ValueError(
                        f"users[{index}].machines: {user.name!r} may use {name!r}, "
                        f"and there is no such machine; there are: {_listed(machines)}"
                    )
            for name, amount in user.demand.items():
                if amount and not self.capacity.get(name):
                    raise ValueError(
                        f"users[{index}].demand: {user.name!r} needs {name!r}, which no machine "
                        f"has; there are: {_listed(self.resources)}"
                        f"{did_you_mean(name, self.resources)}"
                    )
        return self

    @cached_property
    def resources(self) -> tuple[str, ...]:
        """Names of all resources, in the order in which machines name them."""
        return tuple(dict.fromkeys(name for machine in self.machines for name in machine.resources))

    @cached_property
    def capacity(self) -> dict[str, Fraction]:
        """Resources of all machines together, by resource name."""
        return {
            name: sum(
                (
                    machine.count * machine.resources.get(name, Fraction(0))
                    for machine in self.machines
                ),
                _ZERO,
            )
            for name in self.resources
        }

    @cached_property
    def _by_name(self) -> dict[str, Machine]:
        return {machine.name: machine for machine in self.machines}

    @cached_property
    def _all(self) -> "_Kinds":
        return _kinds(self.machines)

    def monopoly(self, user: ProblemUser) -> Fraction:
        """Return h: how many tasks the user could run alone if it could use all machines."""
        return _fit(user, self._all)

    def constrained_monopoly(self, user: ProblemUser) -> Fraction:
        """Return how many tasks the user could run alone on the machines that it may use."""
        if user.machines is None:
            return self.monopoly(user)
        return _fit(user, _kinds([self._by_name[name] for name in dict.fromkeys(user.machines)]))

    def dominant_share(self, user: ProblemUser) -> Fraction:
        """Return the largest fraction of a resource's capacity that one task needs."""
        return max(amount / self.capacity[name] for name, amount in user.demand.items() if amount)


_ZERO = Fraction(0)
_Kinds: TypeAlias = dict[frozenset[tuple[str, Fraction]], tuple[Machine, int]]


def _kinds(machines: Sequence[Machine]) -> _Kinds:
    """Group machines with equal resources, because each group needs only one computation.

    Returns:
        For each group, one of its machines and the number of machines.
    """
    kinds: _Kinds = {}
    for machine in machines:
        resources = frozenset(machine.resources.items())
        kinds[resources] = machine, kinds.get(resources, (machine, 0))[1] + machine.count
    return kinds


def _fit(user: ProblemUser, kinds: _Kinds) -> Fraction:
    return sum((count * user.fit(machine) for machine, count in kinds.values()), _ZERO)


def read_problem(content: Mapping[str, Any]) -> Problem:
    """Build and validate a problem from the content of a problem file.

    Raises:
        ValueError: A value is invalid; the message names its key in the file, the value and what is
            accepted.
    """
    return validated(Problem, content)


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:10])
    return f"{shown} and {len(names) - 10} more" if len(names) > 10 else shown
