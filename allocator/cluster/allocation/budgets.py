"""How much may be given: of what an agent has, or so many tasks."""

from collections.abc import Callable, Iterable
from math import inf
from typing import TYPE_CHECKING, Protocol, Self, TypeAlias

if TYPE_CHECKING:
    from allocator.cluster.allocation.filling import Portion

Name: TypeAlias = str | tuple[str, str]
"""Of what there is only so much: a resource, or a resource within the limits of a role."""
Needs: TypeAlias = dict[Name, int]
"""In thousandths."""


class Budget(Protocol):
    """How much may be given."""

    def copy(self) -> Self:
        """Return one of its own."""

    def admits(self, portion: "Portion", before: "Portion") -> bool:
        """Whether there is enough for a portion, of which a part has been given before."""

    def spend(self, portion: "Portion", before: "Portion") -> None:
        """Give it."""

    def of(self, before: Self) -> float:
        """Return how often what has been spent since may be spent again."""

    def parts(self, portion: "Portion", before: "Portion") -> dict[Name, float]:
        """Return which part of all that is left a portion takes; likewise."""


class _Left(dict[Name, int]):
    """What is left, by name; what has not been asked for is looked up."""

    __slots__ = ("unasked",)

    def __init__(self, left: Iterable[tuple[Name, int]], unasked: Callable[[Name], int]) -> None:
        super().__init__(left)
        self.unasked = unasked

    def __missing__(self, name: Name) -> int:
        return self.unasked(name)


class Room:
    """What an agent has left, by name.

    Args:
        left: How much of what it has, by name.
        unasked: Returns how much there is of anything else, as within the limits of a role.
    """

    __slots__ = ("left",)

    def __init__(self, left: Iterable[tuple[Name, int]], unasked: Callable[[Name], int]) -> None:
        self.left = _Left(left, unasked)

    def copy(self) -> "Room":
        """Return one of its own."""
        return Room(self.left.items(), self.left.unasked)

    def admits(self, portion: "Portion", before: "Portion") -> bool:
        """Whether there is enough for a portion, of which a part has been given before."""
        given = before.needs
        for name, amount in portion.needs.items():
            if amount - given.get(name, 0) > self.left[name]:
                return False
        return True

    def spend(self, portion: "Portion", before: "Portion") -> None:
        """Give it."""
        given = before.needs
        for name, amount in portion.needs.items():
            if amount:
                self.left[name] -= amount - given.get(name, 0)

    def of(self, before: "Room") -> float:
        """Return how often what has been spent since may be spent again."""
        return min(
            left / (before.left[name] - left)
            for name, left in self.left.items()
            if left < before.left[name]
        )

    def parts(self, portion: "Portion", before: "Portion") -> dict[Name, float]:
        """Return which part of all that is left a portion takes; likewise."""
        given = before.needs
        return {
            name: (amount - given.get(name, 0)) / left if (left := self.left[name]) else inf
            for name, amount in portion.needs.items()
            if amount > given.get(name, 0)
        }


class Count:
    """A number of tasks."""

    __slots__ = ("left",)

    def __init__(self, left: int) -> None:
        self.left = left

    def copy(self) -> "Count":
        """Return one of its own."""
        return Count(self.left)

    def admits(self, portion: "Portion", before: "Portion") -> bool:
        """Whether there are enough for a portion, of which a part has been given before."""
        return portion.number - before.number <= self.left

    def spend(self, portion: "Portion", before: "Portion") -> None:
        """Give it."""
        self.left -= portion.number - before.number

    def of(self, before: "Count") -> float:
        """Return how often what has been spent since may be spent again."""
        return self.left / (before.left - self.left)

    def parts(self, portion: "Portion", before: "Portion") -> dict[Name, float]:
        """Return which part of all that is left a portion takes; likewise."""
        return {"": (portion.number - before.number) / self.left}
