"""Progressive filling: how many tasks each gets, were they given one by one to whoever is next.

Between two bends of the order everybody's next positions are known, so all that is given before
somebody reaches a *level* (a position in the order) can be counted by search. The outcome is that
of giving one by one, to the last tie; the work is bounded by who gets something, not by how much.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, Literal, Protocol, Self, TypeAlias, TypeVar, cast

from allocator.cluster.frameworks import Client
from allocator.fairness.front import Place
from allocator.fairness.quantities import Quantities

User = TypeVar("User")
User_contra = TypeVar("User_contra", contravariant=True)
Name: TypeAlias = str | tuple[str, str]
"""Of what there is only so much: a resource, or a resource within the limits of a role."""
Needs: TypeAlias = dict[Name, int]
"""In thousandths."""


class Places(Protocol[User_contra]):
    """The order of a pool, as `Front` has it."""

    def place(self, user: User_contra) -> Place:
        """Return where a user stands now."""

    def after(self, user: User_contra, more: Quantities, times: int) -> Place:
        """Return where a user would stand after so many gifts that amount to this."""


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


_FAR = 1 << 40
"""More tasks than there are."""
_EMPTY = Portion(0, {}, {}, Quantities(), 0)


class Leaf:
    """A client, each of whose tasks needs the same.

    Args:
        client: Who it is.
        needs: What a task takes: thousandths by name, whole ones of what is counted.
        scalars: What of it counts as held.
        special: Whether what it gets next is nothing that can be counted ahead.
    """

    __slots__ = ("_one", "client", "needs", "scalars", "special")

    def __init__(self, client: Client, needs: Needs, scalars: Quantities, *, special: bool) -> None:
        self.client = client
        self.needs = needs
        self.scalars = scalars
        self.special = special
        self._one: Portion | None = None

    def portion(self, number: int) -> Portion:
        """Return what so many tasks come to; none of who is special."""
        if self.special or not number:
            return _EMPTY
        if number > 1:
            return self._portion(number)
        if self._one is None:
            self._one = self._portion(1)
        return self._one

    def fill(self, room: "Room") -> Portion:
        """Return as many tasks as there is room for."""
        if self.special:
            return _EMPTY
        most = min(room.left.get(name, 0) // amount for name, amount in self.needs.items())
        return self.portion(max(most, 0))

    def _portion(self, number: int) -> Portion:
        return Portion(
            number,
            {self: number},
            {name: number * amount for name, amount in self.needs.items()},
            self.scalars.times(number),
            number if self.scalars else 0,
        )


class Budget(Protocol):
    """How much may be given."""

    def copy(self) -> Self:
        """Return one of its own."""

    def admits(self, portion: Portion, before: Portion) -> bool:
        """Whether there is enough for a portion, of which a part has been given before."""

    def spend(self, portion: Portion, before: Portion) -> None:
        """Give it."""

    def of(self, before: Self) -> float:
        """Return how often what has been spent since may be spent again."""


class Room:
    """What an agent has left, by name."""

    __slots__ = ("left",)

    def __init__(self, left: Needs) -> None:
        self.left = left

    def copy(self) -> "Room":
        """Return one of its own."""
        return Room(dict(self.left))

    def admits(self, portion: Portion, before: Portion) -> bool:
        """Whether there is enough for a portion, of which a part has been given before."""
        given = before.needs
        for name, amount in portion.needs.items():
            if amount - given.get(name, 0) > self.left.get(name, 0):
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


class _Count:
    """A number of tasks."""

    __slots__ = ("left",)

    def __init__(self, left: int) -> None:
        self.left = left

    def copy(self) -> "_Count":
        return _Count(self.left)

    def admits(self, portion: Portion, before: Portion) -> bool:
        return portion.number - before.number <= self.left

    def spend(self, portion: Portion, before: Portion) -> None:
        self.left -= portion.number - before.number

    def of(self, before: "_Count") -> float:
        return self.left / (before.left - self.left)


class Branch(Generic[User]):
    """Users of one pool, and what is below them.

    Args:
        members: In order; those without anybody who could get something left out.
        places: The order they are in.
    """

    def __init__(self, members: Iterator[tuple[User, "Node"]], places: Places[User]) -> None:
        self._coming = members
        self._members: list[tuple[User, Node]] = []
        self._places = places
        self._portions: dict[int, Portion] = {}

    def portion(self, number: int) -> Portion:
        """Return what so many tasks come to; fewer, where that cannot be counted ahead."""
        portion = self._portions.get(number)
        if portion is None:
            portion = self._portions[number] = self.fill(_Count(number))
        return portion

    def fill(self, budget: Budget) -> Portion:
        """Return what can be given until it is the turn of who cannot have one more task."""
        return _Filling(self, budget).run()

    def member(self, number: int) -> "tuple[User, Node] | None":
        """Return a member by its place in the order; None: there are not so many."""
        while number >= len(self._members):
            member = next(self._coming, None)
            if member is None:
                return None
            self._members.append(member)
        return self._members[number]

    def place(self, user: User, portion: Portion) -> Place:
        """Return where a member would stand."""
        if not portion.number:
            return self._places.place(user)
        return self._places.after(user, portion.scalars, portion.gifts)


Node: TypeAlias = Leaf | Branch  # type: ignore[type-arg]  # of any users
_End: TypeAlias = Literal["level", "special", "full"]


class _Entry(Generic[User]):
    """A member with what it has got so far."""

    __slots__ = ("node", "place", "taken", "user")

    def __init__(self, user: User, node: Node, place: Place) -> None:
        self.user = user
        self.node = node
        self.taken = _EMPTY
        self.place = place

    def __lt__(self, other: "_Entry[User]") -> bool:
        return self.place.position < other.place.position


_Trial: TypeAlias = list[tuple[_Entry[User], int]]
"""Who would get how many tasks more, in the order of the first of these."""


class _Filling(Generic[User]):
    """One way through a branch, from nothing given to all that is within the budget.

    It gives up to a level that who is next reaches with a stride of so many tasks. What is left
    then tells how long the next stride may be; one that was too long is halved.
    """

    def __init__(self, branch: Branch[User], budget: Budget) -> None:
        self._branch = branch
        self._budget = budget
        self._entries: list[_Entry[User]] = []
        """Members that have been looked at, in order."""
        self._served: dict[_Entry[User], None] = {}
        """Those that get something, in the order of the first of it."""
        self._next = 0
        """Number of the first member that has not."""

    def run(self) -> Portion:
        stride = 1
        pick: _Entry[User] | None = None
        while True:
            first = self._first()
            if first is None or first.node.portion(first.taken.number + 1).number == (
                first.taken.number
            ):
                break
            level = self._ahead(pick or first, stride)
            trial, failed = self._try(level)
            if failed is None and not trial:  # rounding has put the level before everybody
                trial, failed = self._one(first)
            if failed is None:
                before = self._budget.copy()
                self._give(trial)
                pick, stride = None, max(1, min(round(trial[0][1] * self._budget.of(before)), _FAR))
                continue
            number = failed[1]
            if all(got == 1 for _entry, got in trial):
                self._give(trial)
                if number == 1:
                    break
                pick, stride = None, number // 2
            else:
                pick, most = max([*trial, failed], key=lambda got: got[1])
                stride = most // 2
        return _sum([entry.taken for entry in self._served])

    def _first(self) -> _Entry[User] | None:
        return self._entry(0)

    def _entry(self, number: int) -> _Entry[User] | None:
        """Return an entry by its place in the order; those before it have been looked at."""
        member = self._branch.member(self._next)
        if member is not None:
            user, node = member
            entry = _Entry(user, node, self._branch.place(user, _EMPTY))
            if number == len(self._entries) or entry < self._entries[number]:
                self._entries.insert(number, entry)
                self._next += 1
        return self._entries[number] if number < len(self._entries) else None

    def _ahead(self, entry: _Entry[User], number: int) -> Place:
        """Return where an entry would stand with so many tasks more, or as many as are known."""
        return self._branch.place(entry.user, entry.node.portion(entry.taken.number + number))

    def _try(self, level: Place) -> tuple[_Trial[User], tuple[_Entry[User], int] | None]:
        """Count what everybody gets before a level, which is lowered to where counting ends.

        Returns who would get how much, and who would be the first to get too much, how many
        tasks being too many; None: nobody.
        """
        while True:
            left = self._budget.copy()
            trial: _Trial[User] = []
            lowered = False
            failed: tuple[_Entry[User], int] | None = None
            number = 0
            while True:
                entry = self._entry(number)
                if entry is None or not entry.place.position < level.position:
                    break
                number += 1
                got, end = self._reach(entry, level, left)
                if end == "full":
                    failed = entry, got
                    break
                if end == "special":
                    level, lowered = self._ahead(entry, got) if got else entry.place, True
                if got:
                    left.spend(entry.node.portion(entry.taken.number + got), entry.taken)
                    trial.append((entry, got))
            if not lowered:
                return trial, failed

    def _one(self, entry: _Entry[User]) -> tuple[_Trial[User], tuple[_Entry[User], int] | None]:
        """Count one task for who is next."""
        if self._budget.admits(entry.node.portion(entry.taken.number + 1), entry.taken):
            return [(entry, 1)], None
        return [], (entry, 1)

    def _reach(self, entry: _Entry[User], level: Place, left: Budget) -> tuple[int, _End]:
        """Return how many tasks an entry gets before it reaches a level, and what ends that."""
        taken, node = entry.taken, entry.node
        base = taken.number

        def ends(number: int) -> _End | None:
            portion = node.portion(base + number)
            if portion.number < base + number:
                return "special"
            if not left.admits(portion, taken):
                return "full"
            place = self._branch.place(entry.user, portion)
            return None if place.position < level.position else "level"

        def surely_goes_on(number: int) -> bool:
            portion = node.portion(base + number)
            return (
                portion.number == base + number
                and left.admits(portion, taken)
                and self._branch.place(entry.user, portion).surely_before(level)
            )

        end = ends(1)
        if end is None:
            number = _first_not(surely_goes_on, self._guess(entry, level))
            while (end := ends(number)) is None:  # where rounding may have the last word
                number += 1
        else:
            number = 1
        return (number - 1 if end == "special" else number), end

    def _guess(self, entry: _Entry[User], level: Place) -> int:
        """Return how many tasks it would be if each moved the entry as far as the next one does."""
        here = entry.place.position
        there = self._branch.place(entry.user, entry.node.portion(entry.taken.number + 1)).position
        if here[0] != there[0] or there[0] != level.position[0]:
            return 1
        begin, stride = cast("float", here[1]), cast("float", there[1]) - cast("float", here[1])
        way = cast("float", level.position[1]) - begin
        return round(min(way / stride, _FAR)) if way > stride > 0.0 else 1

    def _give(self, trial: _Trial[User]) -> None:
        for entry, number in trial:
            self._served[entry] = None
            portion = entry.node.portion(entry.taken.number + number)
            self._budget.spend(portion, entry.taken)
            entry.taken = portion
            entry.place = self._branch.place(entry.user, portion)
        self._entries.sort()


def _first_not(holds: Callable[[int], bool], guess: int) -> int:
    """Return a number from 1 for which something does not hold, though it does for the one before.

    It is taken to hold for 0, and looked for around a guess.
    """
    low, high, step = 0, guess, 1
    if holds(guess):
        low, high = guess, guess + 1
        while holds(high):
            step *= 2
            low, high = high, high + step
    else:
        while high > 1 and not holds(max(high - step, 1)):
            high = max(high - step, 1)
            step *= 2
        low = max(high - step, 0 if high == 1 else 1)
    while high - low > 1:
        middle = (low + high) // 2
        if holds(middle):
            low = middle
        else:
            high = middle
    return high


def _sum(portions: list[Portion]) -> Portion:
    """Return what portions come to together."""
    portions = [portion for portion in portions if portion.number]
    if len(portions) == 1:
        return portions[0]
    leaves: dict[Leaf, int] = {}
    needs: Needs = {}
    scalars = Quantities()
    for portion in portions:
        leaves |= portion.leaves
        scalars = scalars + portion.scalars
        for name, amount in portion.needs.items():
            needs[name] = needs.get(name, 0) + amount
    number = sum(portion.number for portion in portions)
    gifts = sum(portion.gifts for portion in portions)
    return Portion(number, leaves, needs, scalars, gifts)
