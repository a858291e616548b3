"""Progressive filling: the client that is first in order gets the next task, until none fits."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import inf
from typing import Generic, Literal, NamedTuple, Protocol, Self, TypeAlias, TypeVar

from allocator.cluster.cooperative import Cooperative, run_to_completion
from allocator.cluster.frameworks.framework import Client
from allocator.fairness.quantities import Quantities
from allocator.fairness.sorter_snapshot import Position, SortKey

Name: TypeAlias = str | tuple[str, str]
"""Of what there is only so much: a resource, or a resource within the limits of a role."""
Needs: TypeAlias = dict[Name, int]
"""In thousandths."""


class ClientTask:
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
class TaskBatch:
    """What a number of tasks, given one by one, comes to."""

    number: int
    leaves: "dict[ClientNode, int]"
    needs: Needs
    """What they take of an agent, by name."""
    scalars: Quantities
    """What of that counts as held."""
    gifts: int
    """How many of the tasks have scalars: only these are seen by the order."""


NONE = TaskBatch(0, {}, {}, Quantities(), 0)
"""No task."""


class ClientNode:
    """A client, each of whose tasks needs the same; without a task, it is not known ahead.

    Args:
        client: Who it is.
        task: What it gets next, and after that; None: nothing that can be counted ahead.
    """

    __slots__ = ("_portions", "client", "task")

    def __init__(self, client: Client, task: ClientTask | None) -> None:
        self.client = client
        self.task = task
        self._portions: dict[int, TaskBatch] = {0: NONE}

    def portion(self, number: int) -> TaskBatch:
        """Return what so many tasks come to; nothing without a task."""
        portion = self._portions.get(number)
        if portion is None:
            if self.task is None:
                return NONE
            needs, scalars, gifts = self.task.multiple(number)
            portion = self._portions[number] = TaskBatch(
                number, {self: number}, needs, scalars, gifts
            )
        return portion

    def fill(self, room: "CapacityBudget", _stride: int = 0) -> TaskBatch:
        """Return as many tasks as there is room for."""
        if self.task is None:
            return NONE
        most = min(room.left[name] // amount for name, amount in self.task.needs.items())
        return self.portion(max(most, 0))


def together(portions: list[TaskBatch]) -> TaskBatch:
    """Return what portions come to together."""
    portions = [portion for portion in portions if portion.number]
    if len(portions) == 1:
        return portions[0]
    leaves: dict[ClientNode, int] = {}
    tasks: dict[ClientTask, int] = {}
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
    return TaskBatch(sum(leaves.values()), leaves, needs, scalars, gifts)


class Budget(Protocol):
    """How much may be given."""

    depth: int
    """How many levels are to be kept."""

    def copy(self) -> Self:
        """Return one of its own."""

    def admits(self, portion: TaskBatch, before: TaskBatch) -> bool:
        """Whether there is enough for a portion, of which a part has been given before."""

    def spend(self, portion: TaskBatch, before: TaskBatch) -> None:
        """Give it."""

    def of(self, before: Self) -> float:
        """Return how often what has been spent since may be spent again."""

    def parts(self, portion: TaskBatch, before: TaskBatch) -> dict[Name, float]:
        """Return which part of all that is left a portion takes; likewise."""


class _Left(dict[Name, int]):
    """What is left, by name; what has not been asked for is looked up."""

    __slots__ = ("unasked",)

    def __init__(self, left: Iterable[tuple[Name, int]], unasked: Callable[[Name], int]) -> None:
        super().__init__(left)
        self.unasked = unasked

    def __missing__(self, name: Name) -> int:
        return self.unasked(name)


class CapacityBudget:
    """What an agent has left, by name.

    Args:
        left: How much of what it has, by name.
        unasked: Returns how much there is of anything else, as within the limits of a role.
    """

    __slots__ = ("left",)
    depth = 0

    def __init__(self, left: Iterable[tuple[Name, int]], unasked: Callable[[Name], int]) -> None:
        self.left = _Left(left, unasked)

    def copy(self) -> "CapacityBudget":
        """Return one of its own."""
        return CapacityBudget(self.left.items(), self.left.unasked)

    def admits(self, portion: TaskBatch, before: TaskBatch) -> bool:
        """Whether there is enough for a portion, of which a part has been given before."""
        given = before.needs
        for name, amount in portion.needs.items():
            if amount - given.get(name, 0) > self.left[name]:
                return False
        return True

    def spend(self, portion: TaskBatch, before: TaskBatch) -> None:
        """Give it."""
        given = before.needs
        for name, amount in portion.needs.items():
            if amount:
                self.left[name] -= amount - given.get(name, 0)

    def of(self, before: "CapacityBudget") -> float:
        """Return how often what has been spent since may be spent again."""
        return min(
            left / (before.left[name] - left)
            for name, left in self.left.items()
            if left < before.left[name]
        )

    def parts(self, portion: TaskBatch, before: TaskBatch) -> dict[Name, float]:
        """Return which part of all that is left a portion takes; likewise."""
        given = before.needs
        return {
            name: (amount - given.get(name, 0)) / left if (left := self.left[name]) else inf
            for name, amount in portion.needs.items()
            if amount > given.get(name, 0)
        }


class CountBudget:
    """A number of tasks."""

    __slots__ = ("left",)
    depth = 0

    def __init__(self, left: int) -> None:
        self.left = left

    def copy(self) -> "CountBudget":
        """Return one of its own."""
        return CountBudget(self.left)

    def admits(self, portion: TaskBatch, before: TaskBatch) -> bool:
        """Whether there are enough for a portion, of which a part has been given before."""
        return portion.number - before.number <= self.left

    def spend(self, portion: TaskBatch, before: TaskBatch) -> None:
        """Give it."""
        self.left -= portion.number - before.number

    def of(self, before: "CountBudget") -> float:
        """Return how often what has been spent since may be spent again."""
        return self.left / (before.left - self.left)

    def parts(self, portion: TaskBatch, before: TaskBatch) -> dict[Name, float]:
        """Return which part of all that is left a portion takes; likewise."""
        return {"": (portion.number - before.number) / self.left}


class LevelBudget:
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
        level: SortKey,
        holding: Callable[[Quantities, int], SortKey],
        holds: Quantities,
        gifts: int,
        within: Budget,
    ) -> None:
        self._level = level
        self._holding = holding
        self._holds = holds
        self._gifts = gifts
        self._within = within
        self._place: SortKey | None = None
        """Where it stands; None: nobody has asked."""
        self._asked: tuple[TaskBatch, TaskBatch, tuple[Quantities, int, SortKey]] | None = None
        """What was asked for last, which as a rule is spent then."""
        self.depth = within.depth + 1

    def copy(self) -> "LevelBudget":
        """Return one of its own."""
        within = self._within.copy()
        other = LevelBudget(self._level, self._holding, self._holds, self._gifts, within)
        other._place = self._place
        return other

    def admits(self, portion: TaskBatch, before: TaskBatch) -> bool:
        """Whether there is enough for a portion, of which a part has been given before."""
        return self._within.admits(portion, before) and self._there(portion, before).surely_before(
            self._level
        )

    def spend(self, portion: TaskBatch, before: TaskBatch) -> None:
        """Give it."""
        self._within.spend(portion, before)
        self._holds, self._gifts, self._place = self._with(portion, before)
        self._asked = None

    def of(self, before: "LevelBudget") -> float:
        """Return how often what has been spent since may be spent again."""
        often = self._within.of(before._within)  # noqa: SLF001 - of its own kind
        moved, left = before._here().to(self._here()), self._here().to(self._level)  # noqa: SLF001
        return often if not moved or left is None else min(often, left / moved)

    def parts(self, portion: TaskBatch, before: TaskBatch) -> dict[Name, float]:
        """Return which part of all that is left a portion takes; likewise."""
        parts = self._within.parts(portion, before)
        here, left = self._here(), self._here().to(self._level)
        if left is not None:
            way = here.to(self._there(portion, before))
            parts["", str(self.depth)] = way / left if left and way is not None else inf
        return parts

    def _here(self) -> SortKey:
        if self._place is None:
            self._place = self._holding(self._holds, self._gifts)
        return self._place

    def _there(self, portion: TaskBatch, before: TaskBatch) -> SortKey:
        """Return where it would stand with a portion."""
        holds, gifts, place = self._with(portion, before)
        if place is None:
            place = self._holding(holds, gifts)
            self._asked = portion, before, (holds, gifts, place)
        return place

    def _with(
        self, portion: TaskBatch, before: TaskBatch
    ) -> tuple[Quantities, int, SortKey | None]:
        """Return what it would hold with a portion, after how many gifts, and where, if known."""
        asked = self._asked
        if asked is not None and asked[0] is portion and asked[1] is before:
            return asked[2]
        gifts = self._gifts + portion.gifts - before.gifts
        return self._holds.exchanged(before.scalars, portion.scalars), gifts, None


_HALVINGS = 20
_TRAJECTORIES_A_STEP = 50
"""Ways beyond which each look at all of them is a step."""


class Trajectory(NamedTuple):
    """How one goes on."""

    begin: float
    """Where it stands."""
    stride: float
    """How far a task moves it."""
    part: float
    """Of what there is, what a task takes."""


def find_water_level(
    ways: Sequence[Trajectory], end: float, part: float = 1.0
) -> Cooperative[float]:
    """Return how far there is enough for all until each is there, at most to an end.

    Args:
        ways: Of those who stand before the end; by where they do.
        end: Where it is far enough.
        part: Of what there is, what all may take.
    """
    low, middle = ways[0].begin, end
    for _ in range(_HALVINGS):
        if _taken(ways, middle) > part:
            end = middle
        elif middle == end:
            return end
        else:
            low = middle
        if len(ways) > _TRAJECTORIES_A_STEP:
            yield
        middle = (low + end) / 2
    return low


def _taken(ways: Sequence[Trajectory], end: float) -> float:
    """Return which part of what there is all take until each has reached an end."""
    return sum([part * -((begin - end) // stride) for begin, stride, part in ways if begin < end])


User = TypeVar("User")
User_contra = TypeVar("User_contra", contravariant=True)


class Ranks(Protocol[User_contra]):
    """The order of a pool, as `Front` has it."""

    def place(self, user: User_contra) -> SortKey:
        """Return where a user stands now."""

    def after(self, user: User_contra, more: Quantities, times: int) -> SortKey:
        """Return where a user would stand after so many gifts that amount to this."""

    def held(self, user: User_contra) -> Quantities:
        """Return what a user holds now."""

    def holding(self, user: User_contra, total: Quantities, times: int) -> SortKey:
        """Return where a user would stand if it held so much, after so many gifts more."""


_MEMBERS_A_STEP = 50
"""Members that are counted in a step."""
_SAMPLE = 8
"""Tasks by which is told what one is like where those below an entry differ."""
_CAREFUL = 0.95
"""The part of what there is that is given by what tasks are like, so that it is not too much."""
_MORE_CAREFUL = 0.7
"""Of that, where it was too much."""
_FAR = 1 << 40
"""More tasks than there are."""


class RoleNode(Generic[User]):
    """Users of one pool, and what is below them.

    Args:
        members: In order; those without anybody who could get something left out.
        places: The order they are in.
    """

    def __init__(self, members: Iterator[tuple[User, "Node"]], places: Ranks[User]) -> None:
        self._coming = members
        self._members: list[tuple[User, Node]] = []
        self._places = places
        self._portions: dict[int, TaskBatch] = {}
        self._numbers: list[int] = []
        self._fillings: dict[int, _Filling[User]] = {}
        """How that came about, by number."""

    def portion(self, number: int) -> TaskBatch:
        """Return what so many tasks come to; fewer, where that cannot be counted ahead."""
        return self._portions.get(number) or run_to_completion(self.counting(number))

    def counting(self, number: int) -> Cooperative[TaskBatch]:
        """Return the same in steps; it is known afterwards."""
        portion = self._portions.get(number)
        if portion is None:
            before = bisect_left(self._numbers, number) - 1
            if before >= 0:
                some = self._numbers[before]
                filling = self._fillings[some].copy(CountBudget(number - some))
            else:
                filling = _Filling(self, CountBudget(number))
            if before >= 0 and number - some == 1:
                portion = filling.one_more()
            else:
                portion = yield from filling.run(1)
            self._portions[number] = portion
            if portion.number == number:
                insort(self._numbers, number)
                self._fillings[number] = filling
        return portion

    def within(self, taken: TaskBatch, budget: Budget) -> Cooperative[TaskBatch]:
        """Return what a portion comes to with all that can be given after it, in steps.

        Args:
            taken: One that has been counted.
            budget: How much may be given after it; it is spent.
        """

        def too_much(number: int) -> bool:
            return not budget.admits(self._portions[number], taken)

        low = bisect_right(self._numbers, taken.number)
        after = bisect_left(self._numbers, True, low, key=too_much)
        before = taken if after == low else self._portions[self._numbers[after - 1]]
        budget.spend(before, taken)
        filling = _Filling(self, budget)
        if before.number:
            filling = self._fillings[before.number].copy(budget)
        portion = yield from filling.run(0)
        if portion.number not in self._portions:
            insort(self._numbers, portion.number)
            self._portions[portion.number] = portion
            self._fillings[portion.number] = filling
        return portion

    def fill(self, budget: Budget, stride: int = 0) -> TaskBatch:
        """Return what can be given until it is the turn of who cannot have one more task.

        Args:
            budget: How much may be given.
            stride: How many tasks the first is likely to get; 0: that is to be foreseen from where
                all stand. The outcome does not depend on it.
        """
        return run_to_completion(self.filling(budget, stride))

    def filling(self, budget: Budget, stride: int = 0) -> Cooperative[TaskBatch]:
        """Return the same in steps, for a few members each; what is below them is, too."""
        return _Filling(self, budget).run(stride)

    def member(self, number: int) -> "tuple[User, Node] | None":
        """Return a member by its place in the order; None: there are not so many."""
        while number >= len(self._members):
            member = next(self._coming, None)
            if member is None:
                return None
            self._members.append(member)
        return self._members[number]

    def place(self, user: User, portion: TaskBatch) -> SortKey:
        """Return where a member would stand."""
        if not portion.number:
            return self._places.place(user)
        return self._places.after(user, portion.scalars, portion.gifts)

    def before(self, user: User, level: SortKey, budget: Budget, portion: TaskBatch) -> LevelBudget:
        """Return how much a member may get after a portion so that it stays before a level."""
        holds = self._places.held(user) + portion.scalars

        def holding(total: Quantities, gifts: int) -> SortKey:
            return self._places.holding(user, total, gifts)

        return LevelBudget(level, holding, holds, portion.gifts, budget)


Node: TypeAlias = ClientNode | RoleNode  # type: ignore[type-arg]  # of any users
_End: TypeAlias = Literal["level", "special", "full"]


class _Entry(Generic[User]):
    """A member with what it has got so far."""

    __slots__ = ("node", "place", "taken", "user")

    def __init__(self, user: User, node: Node, place: SortKey) -> None:
        self.user = user
        self.node = node
        self.taken = NONE
        self.place = place

    def copy(self) -> "_Entry[User]":
        """Return one of its own."""
        other = _Entry(self.user, self.node, self.place)
        other.taken = self.taken
        return other


class _Step(NamedTuple, Generic[User]):
    """What an entry would get before it reaches a level."""

    entry: _Entry[User]
    number: int
    """Of tasks; where these are too many, the first number that is."""
    portion: TaskBatch
    """All that it has got then."""
    place: SortKey
    end: _End
    """Whether it has reached the level, cannot be counted further, or gets too much."""


class _Filling(Generic[User]):
    """One way through a branch, from nothing given to all that is within the budget.

    It gives up to a level that who is next reaches with a stride of so many tasks. What is left
    then tells how long the next stride may be; one that was too long is halved. Where no stride is
    told, much is to be given, and the level is foreseen: with some care where those below a member
    differ, and with more if it was too much.
    """

    def __init__(self, branch: RoleNode[User], budget: Budget) -> None:
        self._branch = branch
        self._budget = budget
        self._entries: list[_Entry[User]] = []
        """Members that have been looked at, in order."""
        self._served: dict[_Entry[User], None] = {}
        """Those that get something, in the order of the first of it."""
        self._number = 0
        """Of the first member that has not been looked at."""
        self._pending: _Entry[User] | None = None
        """That member."""
        self._too_far: Position = (_FAR,)
        """A level that is known to be."""
        self._rough = False
        """Whether what was foreseen goes by what tasks are like that differ."""
        self._part = _CAREFUL
        """Of what there is, what is given then."""

    def copy(self, budget: Budget) -> "_Filling[User]":
        """Return one that goes on from here with a budget of its own."""
        other = _Filling(self._branch, budget)
        copies = {entry: entry.copy() for entry in self._entries}
        other._entries = list(copies.values())
        other._served = {copies[entry]: None for entry in self._served}
        other._number = self._number
        if self._pending is not None:
            other._pending = self._pending.copy()
        return other

    def run(self, stride: int) -> Cooperative[TaskBatch]:
        pick: _Entry[User] | None = None
        far = foresee = not stride
        while True:
            first = self._entry(0)
            if first is None:
                break
            one = first.node.portion(first.taken.number + 1)
            if one.number == first.taken.number or not self._budget.admits(one, first.taken):
                break
            if foresee:
                alone = int(1 / max(self._budget.parts(one, first.taken).values()))
                level = yield from self._foreseen(first, pick or first, stride or alone)
            else:
                level = yield from self._ahead(pick or first, stride)
            trial, failed = yield from self._try(level)
            if failed is not None:
                self._too_far = min(self._too_far, level.position)
                self._part *= _MORE_CAREFUL
                foresee = foresee and self._rough
            if failed is None:
                self._part = _CAREFUL
                # where rounding has put the level before everybody, it is one task
                trial = trial or [self._one(first)]
                before = self._budget.copy()
                self._give(trial)
                again = self._budget.of(before)
                # what bends is told by what it came to, not by how it begins
                foresee = far and (again < 1 or not foresee)
                again = min(trial[0].number * again, _FAR)
                pick, stride = None, 1 + int(2 * again) if foresee else max(1, int(again))
            elif all(step.number == 1 for step in trial):
                self._give(trial)
                if failed.number == 1:
                    break
                pick, stride = None, failed.number // 2
            else:
                longest = max([*trial, failed], key=lambda step: step.number)
                pick, stride = longest.entry, longest.number // 2
        return together([entry.taken for entry in self._served])

    def one_more(self) -> TaskBatch:
        """Give one task, if that can be counted; return all that has been given."""
        first = self._entry(0)
        if first is not None:
            self._give([self._one(first)])
        return together([entry.taken for entry in self._served])

    def _entry(self, number: int) -> _Entry[User] | None:
        """Return an entry by its place in the order; those before it have been looked at."""
        pending = self._pending
        if pending is None:
            member = self._branch.member(self._number)
            if member is not None:
                user, node = member
                pending = _Entry(user, node, self._branch.place(user, NONE))
        if pending is not None and (
            number == len(self._entries)
            or pending.place.position < self._entries[number].place.position
        ):
            self._entries.insert(number, pending)
            self._number += 1
            pending = None
        self._pending = pending
        return self._entries[number] if number < len(self._entries) else None

    def _count(self, entry: _Entry[User], number: int) -> Cooperative[None]:
        """Count so many tasks more for an entry, which may take long where others are below it."""
        if isinstance(entry.node, RoleNode):
            yield
            yield from entry.node.counting(entry.taken.number + number)

    def _ahead(self, entry: _Entry[User], number: int) -> Cooperative[SortKey]:
        """Return where an entry would stand with so many tasks more, or as many as are known."""
        yield from self._count(entry, number)
        return self._place(entry, entry.node.portion(entry.taken.number + number))

    def _foreseen(
        self, first: _Entry[User], pick: _Entry[User], number: int
    ) -> Cooperative[SortKey]:
        """Return a level before which there would be enough, if everybody went on as it begins.

        It is at most that of an entry with so many tasks more.
        """
        here = pick.place
        stride, _ = yield from self._typical(pick)
        end = here.priority + number * stride
        ways: dict[Name, list[Trajectory]] = {}
        self._rough = False
        count = 0
        while (
            stride
            and (entry := self._entry(count)) is not None
            and entry.place.position[:2] < (here.position[0], end)
        ):
            count += 1
            if not count % _MEMBERS_A_STEP:
                yield
            stride, parts = yield from self._typical(entry)
            if stride and entry.place.position[0] == here.position[0]:
                self._rough = self._rough or isinstance(entry.node, RoleNode)
                for name, part in parts.items():
                    ways.setdefault(name, []).append(Trajectory(entry.place.priority, stride, part))
        yield
        for those in ways.values():
            end = yield from find_water_level(those, end, self._part if self._rough else 1.0)
        there = SortKey((here.position[0], end), 0.0)
        if ways and first.place.position < there.position < self._too_far:
            return there
        return (yield from self._ahead(pick, number))

    def _typical(self, entry: _Entry[User]) -> Cooperative[tuple[float, dict[Name, float]]]:
        """Return how far a task moves an entry, and which part it takes of what is left, by name.

        Where those below an entry differ it is what several tasks come to; 0: nobody can tell.
        """
        here, before = entry.place, entry.taken
        if not isinstance(entry.node, RoleNode):
            some = entry.node.portion(before.number + 1)
        elif before.number < _SAMPLE:
            some = yield from entry.node.counting(before.number + _SAMPLE)
        else:
            here, before, some = self._place(entry, NONE), NONE, entry.taken
        number, way = some.number - before.number, here.to(self._place(entry, some))
        if not number or way is None:
            return 0.0, {}
        parts = self._budget.parts(some, before)
        return max(way, 0.0) / number, {name: part / number for name, part in parts.items()}

    def _try(self, level: SortKey) -> Cooperative[tuple[list[_Step[User]], _Step[User] | None]]:
        """Count what everybody gets before a level, which is lowered to where counting ends.

        Returns who would get how much, in the order of the first of it, and who would be the first
        to get too much; None: nobody.
        """
        while True:
            left = self._budget.copy()
            trial: list[_Step[User]] = []
            lowered = False
            failed: _Step[User] | None = None
            number = 0
            while True:
                entry = self._entry(number)
                if entry is None or not entry.place.position < level.position:
                    break
                number += 1
                if not number % _MEMBERS_A_STEP:
                    yield
                step = yield from self._reach(entry, level, left)
                if step.end == "full":
                    failed = step
                    break
                if step.end == "special":
                    level, lowered = step.place, True
                if step.number:
                    left.spend(step.portion, entry.taken)
                    trial.append(step)
            if not lowered:
                return trial, failed

    def _one(self, entry: _Entry[User]) -> _Step[User]:
        """Count one task for who is next, which fits; if none moves it, as of ports, all."""
        number = _first_not(lambda number: self._moves_nobody(entry, number), 1) - 1
        if number > 1:
            portion = entry.node.portion(entry.taken.number + number)
            return _Step(entry, number, portion, entry.place, "level")
        portion = entry.node.portion(entry.taken.number + 1)
        return _Step(entry, 1, portion, self._place(entry, portion), "level")

    def _moves_nobody(self, entry: _Entry[User], number: int) -> bool:
        """Whether so many tasks may be given, and the order does not see them."""
        total = entry.taken.number + number
        portion = entry.node.portion(total)
        unseen = portion.number == total and portion.gifts == entry.taken.gifts
        return unseen and self._budget.admits(portion, entry.taken)

    def _reach(self, entry: _Entry[User], level: SortKey, left: Budget) -> Cooperative[_Step[User]]:
        """Return how many tasks an entry gets before it reaches a level, and what ends that."""
        node, taken = entry.node, entry.taken
        if isinstance(node, RoleNode):
            budget = self._branch.before(entry.user, level, left.copy(), taken)
            some = yield from node.within(taken, budget)
            number = some.number - taken.number + 1
        else:
            guess = self._guess(entry, level)
            number = _first_not(
                lambda number: self._surely_goes_on(entry, number, level, left), guess
            )
        while (step := self._step(entry, number, level, left)) is None:
            number += 1  # where rounding may have the last word, each is asked
        return step

    def _step(
        self, entry: _Entry[User], number: int, level: SortKey, left: Budget
    ) -> _Step[User] | None:
        """Return what ends an entry's way, if that is over with so many tasks."""
        total = entry.taken.number + number
        portion = entry.node.portion(total)
        place = self._place(entry, portion)
        if portion.number < total:
            return _Step(entry, portion.number - entry.taken.number, portion, place, "special")
        if not left.admits(portion, entry.taken):
            return _Step(entry, number, portion, place, "full")
        if place.position < level.position:
            return None
        return _Step(entry, number, portion, place, "level")

    def _surely_goes_on(
        self, entry: _Entry[User], number: int, level: SortKey, left: Budget
    ) -> bool:
        """Whether an entry's way is not over with so many tasks, however arithmetic rounds."""
        total = entry.taken.number + number
        portion = entry.node.portion(total)
        return (
            portion.number == total
            and self._place(entry, portion).surely_before(level)
            and left.admits(portion, entry.taken)
        )

    def _guess(self, entry: _Entry[User], level: SortKey) -> int:
        """Return how many tasks it would be if each moved the entry as far as the next one does."""
        one = entry.node.portion(entry.taken.number + 1)
        stride, way = entry.place.to(self._place(entry, one)), entry.place.to(level)
        if not stride or way is None or way < stride:
            return 1
        return round(min(way / stride, _FAR))

    def _place(self, entry: _Entry[User], portion: TaskBatch) -> SortKey:
        """Return where an entry would stand with a portion."""
        return self._branch.place(entry.user, portion)

    def _give(self, trial: list[_Step[User]]) -> None:
        for step in trial:
            entry = step.entry
            self._served[entry] = None
            self._budget.spend(step.portion, entry.taken)
            entry.taken, entry.place = step.portion, step.place
        self._entries.sort(key=lambda entry: entry.place.position)


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
