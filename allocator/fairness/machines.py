"""Counts how many tasks a user could run if it had the cluster's machines alone."""

from collections import Counter
from collections.abc import Callable, Collection, Hashable
from typing import Generic, TypeAlias, TypeVar

from allocator.fairness.quantities import Quantities

User = TypeVar("User", bound=Hashable)
Machine: TypeAlias = str
MayUse: TypeAlias = Callable[[Machine], bool]
"""Returns whether a user's tasks may run on a machine, by the machine's name. Equal functions must
admit the same machines. The function is called at the first count of tasks after a machine was
added, and when a user is first restricted to it."""

_Class: TypeAlias = frozenset[tuple[str, int]]
"""Amounts of a machine class or of a task: pairs of resource name and thousandths."""


class AllExcept:
    """Predicate: the machines that another predicate admits, except some.

    Args:
        base: Admits machines; None: all.
        excluded: Names of machines that are not admitted. The owner may change the collection if it
            restricts the users again.
    """

    def __init__(self, base: MayUse | None, excluded: Collection[Machine]) -> None:
        self.base = base
        self.excluded = excluded

    def __call__(self, machine: Machine) -> bool:
        """Return whether a machine is admitted."""
        return machine not in self.excluded and (self.base is None or self.base(machine))


_MOST_CACHED = 1000
"""Maximum number of demands with a cached task count. Many users have equal demands."""


class Machines(Generic[User]):
    """The machines of a cluster, and the machines that each user may use.

    A *class* contains machines with equal resources. A *monopoly* is the number of tasks that a
    user could run if it had the machines alone. It costs O(1) if it is cached, else O(classes), for
    any number of machines. When a machine is added or removed, each different constraint is
    evaluated once.
    """

    def __init__(self) -> None:
        self._machines: dict[Machine, _Class] = {}
        self._all = _Group()
        self._groups: dict[MayUse, _ConstraintGroup] = {}
        self._allowed: dict[User, _AllowedMachines] = {}
        self._changes: dict[Machine, Quantities | None] = {}
        """Resources of machines that were added since `_settle`; None for machines that are gone.

        Most policies never count tasks, and then no call settles the changes."""

    def put(self, machine: Machine, capacity: Quantities) -> None:
        """Add a machine, or replace the resources of a known machine."""
        self._changes[machine] = capacity

    def discard(self, machine: Machine) -> None:
        """Forget a machine, if it is known."""
        if machine in self._machines:
            self._changes[machine] = None
        else:
            self._changes.pop(machine, None)

    def _settle(self) -> None:
        """Add the machines of `_changes` to the counts, and subtract removed machines."""
        if not self._changes:
            return
        changes, self._changes = self._changes, {}
        for machine, capacity in changes.items():
            former = self._machines.pop(machine, None)
            if former is not None:
                self._all.take(former)
                for group in self._groups.values():
                    group.discard(machine)
            if capacity is not None:
                kind = frozenset(capacity.items())
                self._machines[machine] = kind
                self._all.add(kind)
                for may_use, group in self._groups.items():
                    if may_use(machine):
                        group.put(machine, kind)

    def restrict(self, user: User, may_use: MayUse | None) -> None:
        """Set the only placement constraint of a user, in place of all former ones. O(machines).

        Args:
            user: Any user.
            may_use: Returns whether a machine is allowed. None: all machines.
        """
        allowed = self._allowed.pop(user, _AllowedMachines())
        for constraint in allowed.kinds:
            if constraint is not None:
                self._drop_constraint(allowed, constraint)
        if may_use is not None:
            self.admit(user, may_use)

    def admit(self, user: User, may_use: MayUse | None) -> None:
        """Add a placement constraint to a user, for one kind of its tasks.

        The user may then also use the machines that meet this constraint. A user without any
        constraint may use all machines. O(machines) if the constraint is new for the user, else
        O(1).

        Args:
            user: Any user.
            may_use: The constraint of these tasks. None: these tasks may run on all machines.
        """
        allowed = self._allowed.setdefault(user, _AllowedMachines())
        allowed.kinds[may_use] += 1
        if may_use is not None and allowed.kinds[may_use] == 1:
            group = self._groups.get(may_use)
            if group is None:
                group = self._groups[may_use] = self._new_group(may_use)
            allowed.join(group)

    def withdraw(self, user: User, may_use: MayUse | None) -> None:
        """Remove a placement constraint from a user: undo one call of `admit`.

        Raises:
            KeyError: the user does not have this constraint.
        """
        allowed = self._allowed[user]
        _subtract_one(allowed.kinds, may_use)
        if may_use is not None and may_use not in allowed.kinds:
            self._drop_constraint(allowed, may_use)
        if not allowed.kinds:
            del self._allowed[user]

    def monopoly(self, demand: Quantities) -> int:
        """Return how many whole tasks with this demand fit on all machines: h (TSF paper, §V-A)."""
        self._settle()
        return self._all.fit(demand)

    def constrained_monopoly(self, user: User, demand: Quantities) -> int:
        """Return how many whole tasks with this demand fit on the machines that a user may use."""
        self._settle()
        allowed = self._allowed.get(user)
        if allowed is None or None in allowed.kinds:
            return self._all.fit(demand)
        return allowed.group.fit(demand)

    def _new_group(self, may_use: MayUse) -> "_ConstraintGroup":
        """Return the machines that meet a constraint.

        If the constraint only excludes machines, Python code runs for the excluded machines alone.
        """
        group = _ConstraintGroup()
        if isinstance(may_use, AllExcept) and may_use.base is None:
            group.machines = dict(self._machines)
            group.copy_from(self._all)
            for machine in may_use.excluded:
                group.discard(machine)
            return group
        for machine, kind in self._machines.items():
            if may_use(machine):
                group.put(machine, kind)
        return group

    def _drop_constraint(self, allowed: "_AllowedMachines", may_use: MayUse) -> None:
        """Remove a constraint from a user; delete the constraint's group after its last user."""
        group = self._groups[may_use]
        allowed.leave(group)
        if not group.used_by:
            del self._groups[may_use]


class _Group:
    """A set of machines, which counts machines with equal resources (a class) only.

    It caches how many tasks of each demand fit on these machines.
    """

    def __init__(self) -> None:
        self._classes: Counter[_Class] = Counter()
        self._task_counts: dict[_Class, int] = {}

    def copy_from(self, other: "_Group") -> None:
        """Count the same machines as another set."""
        self._classes = Counter(other._classes)  # noqa: SLF001 - of the same class
        self._task_counts = dict(other._task_counts)  # noqa: SLF001

    def add(self, kind: _Class) -> None:
        """Add one machine of a class, given by its resources."""
        self._classes[kind] += 1
        self._update_cache(kind, 1)

    def take(self, kind: _Class) -> None:
        """Remove one machine of a class, given by its resources."""
        _subtract_one(self._classes, kind)
        self._update_cache(kind, -1)

    def _update_cache(self, kind: _Class, change: int) -> None:
        """Update the cached numbers of tasks that fit, or clear them if recounting is cheaper.

        Args:
            kind: Resources of the machine that is added or removed.
            change: 1 if the machine is added, −1 if it is removed.
        """
        if len(self._task_counts) > len(self._classes):
            self._task_counts.clear()
        if self._task_counts:
            amounts = dict(kind)
            for needs in self._task_counts:
                self._task_counts[needs] += change * _whole_tasks(amounts, needs)

    def fit(self, demand: Quantities) -> int:
        """Return how many whole tasks with this demand fit on the machines of this set; cached."""
        needs = frozenset(demand.items())
        tasks = self._task_counts.get(needs)
        if tasks is None:
            if len(self._task_counts) >= _MOST_CACHED:
                self._task_counts.clear()
            tasks = self._task_counts[needs] = sum(
                count * _whole_tasks(dict(kind), needs) for kind, count in self._classes.items()
            )
        return tasks


class _ConstraintGroup(_Group):
    """The machines that meet one constraint, shared by all users with this constraint."""

    def __init__(self) -> None:
        super().__init__()
        self.machines: dict[Machine, _Class] = {}
        self.used_by: dict[_AllowedMachines, None] = {}

    def put(self, machine: Machine, kind: _Class) -> None:
        self.machines[machine] = kind
        self.add(kind)
        for allowed in self.used_by:
            allowed.put(machine, kind)

    def discard(self, machine: Machine) -> None:
        kind = self.machines.pop(machine, None)
        if kind is not None:
            self.take(kind)
            for allowed in self.used_by:
                allowed.discard(machine, kind)


class _AllowedMachines:
    """The machines that one user may use: each meets at least one constraint of the user's tasks.

    With a single constraint, this is the constraint's own group of machines. With several
    constraints, the machines are counted here.
    """

    def __init__(self) -> None:
        self.kinds: Counter[MayUse | None] = Counter()
        self._groups: dict[_ConstraintGroup, None] = {}
        self._constraints_met: Counter[Machine] = Counter()
        """With several constraints: the number of constraints that each machine meets."""
        self._union = _Group()

    @property
    def group(self) -> _Group:
        """The machines that the user may use, counted by class."""
        return next(iter(self._groups)) if len(self._groups) == 1 else self._union

    def join(self, group: _ConstraintGroup) -> None:
        """Add the machines that meet a further constraint to the machines that the user may use."""
        group.used_by[self] = None
        self._groups[group] = None
        if len(self._groups) == 1:
            return
        for counted in self._groups if len(self._groups) == 2 else (group,):
            for machine, kind in counted.machines.items():
                self.put(machine, kind)

    def leave(self, group: _ConstraintGroup) -> None:
        """Remove a constraint of the user, and the machines that meet no other of its constraints.

        Args:
            group: The machines that meet the constraint.
        """
        del group.used_by[self]
        if len(self._groups) > 1:
            for machine, kind in group.machines.items():
                self.discard(machine, kind)
        del self._groups[group]
        if len(self._groups) == 1:
            self._constraints_met, self._union = Counter(), _Group()

    def put(self, machine: Machine, kind: _Class) -> None:
        """Record that a machine meets one more of the user's constraints.

        Args:
            machine: The machine.
            kind: Its class: its resources.
        """
        if len(self._groups) > 1:
            self._constraints_met[machine] += 1
            if self._constraints_met[machine] == 1:
                self._union.add(kind)

    def discard(self, machine: Machine, kind: _Class) -> None:
        """Record that a machine meets one fewer of the user's constraints.

        Args:
            machine: The machine; with no constraint left, the user may not use it any more.
            kind: Its class: its resources.
        """
        if len(self._groups) > 1:
            _subtract_one(self._constraints_met, machine)
            if machine not in self._constraints_met:
                self._union.take(kind)


def _whole_tasks(amounts: dict[str, int], needs: _Class) -> int:
    """Return how many whole tasks fit on one machine.

    Args:
        amounts: Resources of the machine.
        needs: Resources of one task.
    """
    return min((amounts.get(name, 0) // amount for name, amount in needs), default=0)


Counted = TypeVar("Counted", bound=Hashable)


def _subtract_one(counts: "Counter[Counted]", key: Counted) -> None:
    """Subtract 1 from a count, and delete the key at 0.

    Raises:
        KeyError: the count is 0.
    """
    if key not in counts:
        raise KeyError(key)
    counts[key] -= 1
    if not counts[key]:
        del counts[key]
