"""The machines of a cluster, by class: how many tasks a user could run if it were alone."""

from collections import Counter
from collections.abc import Callable, Hashable
from typing import Generic, TypeAlias, TypeVar

from allocator.fairness.quantities import Quantities

User = TypeVar("User", bound=Hashable)
Machine: TypeAlias = str
MayUse: TypeAlias = Callable[[Machine], bool]
"""Whether a user's tasks may run on a machine, by the machine's name."""

_Class: TypeAlias = frozenset[tuple[str, int]]
"""What machines of one class have, or a task needs: (resource, thousandths)."""


class Machines(Generic[User]):
    """Machines grouped by what they have, and which of them each user may use.

    A machine's coming or going costs O(1), and a question to each user with constraints; a
    monopoly costs O(classes), however many machines there are.
    """

    def __init__(self) -> None:
        self._machines: dict[Machine, _Class] = {}
        self._all: Counter[_Class] = Counter()
        self._restricted: dict[User, tuple[MayUse, dict[Machine, _Class]]] = {}
        self._usable: dict[User, Counter[_Class]] = {}
        self._monopolies: dict[_Class, int] = {}
        """Of all machines, by demand: many users have tasks alike."""

    def put(self, machine: Machine, capacity: Quantities) -> None:
        """Make a machine known, or say anew what it has."""
        self.discard(machine)
        self._monopolies.clear()
        kind = frozenset(capacity.items())
        self._machines[machine] = kind
        self._all[kind] += 1
        for user, (may_use, usable) in self._restricted.items():
            if may_use(machine):
                usable[machine] = kind
                self._usable[user][kind] += 1

    def discard(self, machine: Machine) -> None:
        """Forget a machine, if it is known."""
        kind = self._machines.pop(machine, None)
        if kind is None:
            return
        self._monopolies.clear()
        _take(self._all, kind)
        for user, (_may_use, usable) in self._restricted.items():
            if usable.pop(machine, None) is not None:
                _take(self._usable[user], kind)

    def restrict(self, user: User, may_use: MayUse | None) -> None:
        """Say on which machines a user's tasks may run; None: on all. O(machines)."""
        self._restricted.pop(user, None)
        self._usable.pop(user, None)
        if may_use is not None:
            usable = {name: kind for name, kind in self._machines.items() if may_use(name)}
            self._restricted[user] = may_use, usable
            self._usable[user] = Counter(usable.values())

    def monopoly(self, demand: Quantities) -> int:
        """Return how many whole tasks fit on all machines: h of the TSF paper (§V-A)."""
        needs = frozenset(demand.items())
        if needs not in self._monopolies:
            self._monopolies[needs] = _fit(self._all, demand)
        return self._monopolies[needs]

    def constrained_monopoly(self, user: User, demand: Quantities) -> int:
        """Return how many whole tasks fit on the machines that a user may use."""
        usable = self._usable.get(user)
        return self.monopoly(demand) if usable is None else _fit(usable, demand)


def _fit(classes: "Counter[_Class]", demand: Quantities) -> int:
    total = 0
    for kind, count in classes.items():
        has = dict(kind)
        total += count * min((has.get(n, 0) // amount for n, amount in demand.items()), default=0)
    return total


def _take(classes: "Counter[_Class]", kind: _Class) -> None:
    classes[kind] -= 1
    if not classes[kind]:
        del classes[kind]
