"""How much may be given: of what an agent has, so many tasks, or what leaves one before a level."""

from collections.abc import Callable, Iterable
from math import inf
from typing import Protocol, Self

from allocator.cluster.allocation.portions import Name, Portion
from allocator.fairness.front import Place
from allocator.fairness.quantities import Quantities


class Budget(Protocol):
    """How much may be given."""

    depth: int
    """How many levels are to be kept."""

    def copy(self) -> Self:
        """Return one of its own."""

    def admits(self, portion: Portion, before: Portion) -> bool:
        """Whether there is enough for a portion, of which a part has been given before."""

    def spend(self, portion: Portion, before: Portion) -> None:
        """Give it."""

    def of(self, before: Self) -> float:
        """Return how often what has been spent since may be spent again."""

    def parts(self, portion: Portion, before: Portion) -> dict[Name, float]:
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
    depth = 0

    def __init__(self, left: Iterable[tuple[Name, int]], unasked: Callable[[Name], int]) -> None:
        self.left = _Left(left, unasked)

    def copy(self) -> "Room":
        """Return one of its own."""
        return Room(self.left.items(), self.left.unasked)

    def admits(self, portion: Portion, before: Portion) -> bool:
        """Whether there is enough for a portion, of which a part has been given before."""
        given = before.needs
        for name, amount in portion.needs.items():
            if amount - given.get(name, 0) > self.left[name]:
                return False
        return True

    def spend(self, portion: Portion, before: Portion) -> None:
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

    def parts(self, portion: Portion, before: Portion) -> dict[Name, float]:
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
    depth = 0

    def __init__(self, left: int) -> None:
        self.left = left

    def copy(self) -> "Count":
        """Return one of its own."""
        return Count(self.left)

    def admits(self, portion: Portion, before: Portion) -> bool:
        """Whether there are enough for a portion, of which a part has been given before."""
        return portion.number - before.number <= self.left

    def spend(self, portion: Portion, before: Portion) -> None:
        """Give it."""
        self.left -= portion.number - before.number

    def of(self, before: "Count") -> float:
        """Return how often what has been spent since may be spent again."""
        return self.left / (before.left - self.left)

    def parts(self, portion: Portion, before: Portion) -> dict[Name, float]:
        """Return which part of all that is left a portion takes; likewise."""
        return {"": (portion.number - before.number) / self.left}


class Before:
    """What leaves a member of a branch before a level, within another budget.

    Args:
        level: Before which it surely stays, however arithmetic rounds.
        holding: Returns where it stands if it holds so much, after so many gifts.
        holds: What it holds.
        gifts: How many it has got.
        within: The other budget.
    """

    __slots__ = ("_asked", "_gifts", "_holding", "_holds", "_level", "_place", "_within", "depth")

    def __init__(
        self,
        level: Place,
        holding: Callable[[Quantities, int], Place],
        holds: Quantities,
        gifts: int,
        within: Budget,
    ) -> None:
        self._level = level
        self._holding = holding
        self._holds = holds
        self._gifts = gifts
        self._within = within
        self._place: Place | None = None
        """Where it stands; None: nobody has asked."""
        self._asked: tuple[Portion, Portion, tuple[Quantities, int, Place]] | None = None
        """What was asked for last, which as a rule is spent then."""
        self.depth = within.depth + 1

    def copy(self) -> "Before":
        """Return one of its own."""
        within = self._within.copy()
        other = Before(self._level, self._holding, self._holds, self._gifts, within)
        other._place = self._place
        return other

    def admits(self, portion: Portion, before: Portion) -> bool:
        """Whether there is enough for a portion, of which a part has been given before."""
        return self._within.admits(portion, before) and self._there(portion, before).surely_before(
            self._level
        )

    def spend(self, portion: Portion, before: Portion) -> None:
        """Give it."""
        self._within.spend(portion, before)
        self._holds, self._gifts, self._place = self._with(portion, before)
        self._asked = None

    def of(self, before: "Before") -> float:
        """Return how often what has been spent since may be spent again."""
        often = self._within.of(before._within)  # noqa: SLF001 - of its own kind
        moved, left = before._here().to(self._here()), self._here().to(self._level)  # noqa: SLF001
        return often if not moved or left is None else min(often, left / moved)

    def parts(self, portion: Portion, before: Portion) -> dict[Name, float]:
        """Return which part of all that is left a portion takes; likewise."""
        parts = self._within.parts(portion, before)
        here, left = self._here(), self._here().to(self._level)
        if left is not None:
            way = here.to(self._there(portion, before))
            parts["", str(self.depth)] = way / left if left and way is not None else inf
        return parts

    def _here(self) -> Place:
        if self._place is None:
            self._place = self._holding(self._holds, self._gifts)
        return self._place

    def _there(self, portion: Portion, before: Portion) -> Place:
        """Return where it would stand with a portion."""
        holds, gifts, place = self._with(portion, before)
        if place is None:
            place = self._holding(holds, gifts)
            self._asked = portion, before, (holds, gifts, place)
        return place

    def _with(self, portion: Portion, before: Portion) -> tuple[Quantities, int, Place | None]:
        """Return what it would hold with a portion, after how many gifts, and where, if known."""
        asked = self._asked
        if asked is not None and asked[0] is portion and asked[1] is before:
            return asked[2]
        gifts = self._gifts + portion.gifts - before.gifts
        return self._holds.exchanged(before.scalars, portion.scalars), gifts, None
