"""Tasks, many of them at a time: whose they are, what they need, what of that the order sees."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from allocator.cluster.frameworks import Client
from allocator.fairness.quantities import Quantities

if TYPE_CHECKING:
    from allocator.cluster.allocation.budgets import Room

Name: TypeAlias = str | tuple[str, str]
"""Of what there is only so much: a resource, or a resource within the limits of a role."""
Needs: TypeAlias = dict[Name, int]
"""In thousandths."""


class Task:
    """What a task takes, and multiples of that; each is made once, and known by what it is.

    Args:
        needs: Thousandths by name, whole ones of what is counted.
        scalars: What of it counts as held.
    """

    __slots__ = ("_multiples", "needs", "scalars")

    def __init__(self, needs: Needs, scalars: Quantities) -> None:
        self.needs = needs
        self.scalars = scalars
        self._multiples: dict[int, tuple[Needs, Quantities, int]] = {}

    def multiple(self, number: int) -> tuple[Needs, Quantities, int]:
        """Return what so many tasks take, what of it counts as held, and in how many gifts."""
        found = self._multiples.get(number)
        if found is None:
            needs = {name: number * amount for name, amount in self.needs.items()}
            scalars = self.scalars.times(number)
            found = self._multiples[number] = needs, scalars, number if scalars else 0
        return found


@dataclass(frozen=True, slots=True, eq=False)
class Portion:
    """What a number of tasks, given one by one, comes to."""

    number: int
    leaves: "dict[Leaf, int]"
    needs: Needs
    """What they take of an agent, by name."""
    scalars: Quantities
    """What of that counts as held."""
    gifts: int
    """How many of the tasks have scalars: only these are seen by the order."""


NONE = Portion(0, {}, {}, Quantities(), 0)
"""No task."""


class Leaf:
    """A client, each of whose tasks needs the same; without a task, it is not known ahead.

    Args:
        client: Who it is.
        task: What it gets next, and after that; None: nothing that can be counted ahead.
    """

    __slots__ = ("_portions", "client", "task")

    def __init__(self, client: Client, task: Task | None) -> None:
        self.client = client
        self.task = task
        self._portions: dict[int, Portion] = {0: NONE}

    def portion(self, number: int) -> Portion:
        """Return what so many tasks come to; nothing without a task."""
        portion = self._portions.get(number)
        if portion is None:
            if self.task is None:
                return NONE
            needs, scalars, gifts = self.task.multiple(number)
            portion = self._portions[number] = Portion(
                number, {self: number}, needs, scalars, gifts
            )
        return portion

    def fill(self, room: "Room", _stride: int = 0) -> Portion:
        """Return as many tasks as there is room for."""
        if self.task is None:
            return NONE
        most = min(room.left[name] // amount for name, amount in self.task.needs.items())
        return self.portion(max(most, 0))


def together(portions: list[Portion]) -> Portion:
    """Return what portions come to together."""
    portions = [portion for portion in portions if portion.number]
    if len(portions) == 1:
        return portions[0]
    leaves: dict[Leaf, int] = {}
    tasks: dict[Task, int] = {}
    for portion in portions:
        for leaf, number in portion.leaves.items():
            assert leaf.task is not None
            leaves[leaf] = number
            tasks[leaf.task] = tasks.get(leaf.task, 0) + number
    needs: Needs = {}
    scalars, gifts = Quantities(), 0
    for task, number in tasks.items():  # which are few: many have tasks alike
        more, held, times = task.multiple(number)
        scalars, gifts = scalars + held, gifts + times
        for name, amount in more.items():
            needs[name] = needs.get(name, 0) + amount
    return Portion(sum(leaves.values()), leaves, needs, scalars, gifts)
