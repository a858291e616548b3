"""The machines of a cluster, by class: how many tasks a user could run if it were alone."""

from collections import Counter
from collections.abc import Callable, Hashable
from typing import Generic, TypeAlias, TypeVar

from allocator.fairness.quantities import Quantities

User = TypeVar("User", bound=Hashable)
Machine: TypeAlias = str
MayUse: TypeAlias = Callable[[Machine], bool]
"""Whether a user's tasks may run on a machine, by the machine's name. What is equal admits the
same; it is asked when a machine is put, and when a user is first restricted to it."""

_Class: TypeAlias = frozenset[tuple[str, int]]
"""What machines of one class have, or a task needs: (resource, thousandths)."""

_REMEMBERED = 1000
"""Demands of which it is remembered how many tasks fit, as many users have tasks alike."""


class Machines(Generic[User]):
    """Machines grouped by what they have, and which of them each user may use.

    A machine's coming or going costs a question to each different constraint, and as much as that
    for each user with several kinds of tasks under such a constraint. A monopoly costs O(1) where
    it has been asked about, else O(classes), however many machines there are.
    """

    def __init__(self) -> None:
        self._machines: dict[Machine, _Class] = {}
        self._all = _Group()
        self._meeting: dict[MayUse, _Meeting] = {}
        self._allowed: dict[User, _Allowed] = {}

    def put(self, machine: Machine, capacity: Quantities) -> None:
        """Make a machine known, or say anew what it has."""
        self.discard(machine)
        kind = frozenset(capacity.items())
        self._machines[machine] = kind
        self._all.add(kind)
        for may_use, meeting in self._meeting.items():
            if may_use(machine):
                meeting.put(machine, kind)

    def discard(self, machine: Machine) -> None:
        """Forget a machine, if it is known."""
        kind = self._machines.pop(machine, None)
        if kind is not None:
            self._all.take(kind)
            for meeting in self._meeting.values():
                meeting.discard(machine)

    def restrict(self, user: User, may_use: MayUse | None) -> None:
        """Say on which machines all of a user's tasks may run; None: on all. O(machines)."""
        allowed = self._allowed.pop(user, _Allowed())
        for each in allowed.kinds:
            if each is not None:
                self._leave(allowed, each)
        if may_use is not None:
            self.admit(user, may_use)

    def admit(self, user: User, may_use: MayUse | None) -> None:
        """Say that a user has one more kind of tasks, and where they may run; None: on all.

        O(machines) where it has none like that, else O(1). A user of whom nothing is said may use
        all.
        """
        allowed = self._allowed.setdefault(user, _Allowed())
        allowed.kinds[may_use] += 1
        if may_use is not None and allowed.kinds[may_use] == 1:
            meeting = self._meeting.get(may_use)
            if meeting is None:
                meeting = self._meeting[may_use] = _Meeting()
                for machine, kind in self._machines.items():
                    if may_use(machine):
                        meeting.put(machine, kind)
            allowed.join(meeting)

    def withdraw(self, user: User, may_use: MayUse | None) -> None:
        """Say that a user has one kind of tasks less, of those that were admitted.

        Raises:
            KeyError: none like that was.
        """
        allowed = self._allowed[user]
        _take(allowed.kinds, may_use)
        if may_use is not None and may_use not in allowed.kinds:
            self._leave(allowed, may_use)
        if not allowed.kinds:
            del self._allowed[user]

    def monopoly(self, demand: Quantities) -> int:
        """Return how many whole tasks fit on all machines: h of the TSF paper (§V-A)."""
        return self._all.fit(demand)

    def constrained_monopoly(self, user: User, demand: Quantities) -> int:
        """Return how many whole tasks fit on the machines that a user may use."""
        allowed = self._allowed.get(user)
        if allowed is None or None in allowed.kinds:
            return self._all.fit(demand)
        return allowed.group.fit(demand)

    def _leave(self, allowed: "_Allowed", may_use: MayUse) -> None:
        meeting = self._meeting[may_use]
        allowed.leave(meeting)
        if not meeting.used_by:
            del self._meeting[may_use]


class _Group:
    """Machines by class."""

    def __init__(self) -> None:
        self._classes: Counter[_Class] = Counter()
        self._fitting: dict[_Class, int] = {}

    def add(self, kind: _Class) -> None:
        """Have one more of a class."""
        self._classes[kind] += 1
        self._follow(kind, 1)

    def take(self, kind: _Class) -> None:
        """Have one less."""
        _take(self._classes, kind)
        self._follow(kind, -1)

    def _follow(self, kind: _Class, more: int) -> None:
        """Follow in what is remembered, unless it is less work to count it when somebody asks."""
        if len(self._fitting) > len(self._classes):
            self._fitting.clear()
        has = dict(kind)
        for needs in self._fitting:
            self._fitting[needs] += more * _tasks(has, needs)

    def fit(self, demand: Quantities) -> int:
        """Return how many whole tasks fit."""
        needs = frozenset(demand.items())
        known = self._fitting.get(needs)
        if known is None:
            if len(self._fitting) >= _REMEMBERED:
                self._fitting.clear()
            known = self._fitting[needs] = sum(
                count * _tasks(dict(kind), needs) for kind, count in self._classes.items()
            )
        return known


class _Meeting(_Group):
    """The machines that meet one constraint, whosever it is."""

    def __init__(self) -> None:
        super().__init__()
        self.machines: dict[Machine, _Class] = {}
        self.used_by: dict[_Allowed, None] = {}

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


class _Allowed:
    """What one user may use: machines that meet some constraint of its tasks.

    While there is one constraint alone, its machines are these; else they are counted.
    """

    def __init__(self) -> None:
        self.kinds: Counter[MayUse | None] = Counter()
        self._meetings: dict[_Meeting, None] = {}
        self._number: Counter[Machine] = Counter()
        """Of constraints that a machine meets, where there are several."""
        self._several = _Group()

    @property
    def group(self) -> _Group:
        """The machines by class."""
        return next(iter(self._meetings)) if len(self._meetings) == 1 else self._several

    def join(self, meeting: _Meeting) -> None:
        """May use what meets one more constraint."""
        meeting.used_by[self] = None
        self._meetings[meeting] = None
        for each in self._meetings if len(self._meetings) == 2 else (meeting,):
            for machine, kind in each.machines.items():
                self.put(machine, kind)

    def leave(self, meeting: _Meeting) -> None:
        """May use what meets one less."""
        del meeting.used_by[self]
        for machine, kind in meeting.machines.items():
            self.discard(machine, kind)
        del self._meetings[meeting]
        if len(self._meetings) == 1:
            self._number, self._several = Counter(), _Group()

    def put(self, machine: Machine, kind: _Class) -> None:
        """Have a machine meet one more of several constraints."""
        if len(self._meetings) > 1:
            self._number[machine] += 1
            if self._number[machine] == 1:
                self._several.add(kind)

    def discard(self, machine: Machine, kind: _Class) -> None:
        """Have it meet one less."""
        if len(self._meetings) > 1:
            _take(self._number, machine)
            if machine not in self._number:
                self._several.take(kind)


def _tasks(has: dict[str, int], needs: _Class) -> int:
    return min((has.get(name, 0) // amount for name, amount in needs), default=0)


Counted = TypeVar("Counted", bound=Hashable)


def _take(counts: "Counter[Counted]", one: Counted) -> None:
    if one not in counts:
        raise KeyError(one)
    counts[one] -= 1
    if not counts[one]:
        del counts[one]
