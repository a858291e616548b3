"""Progressive filling: how many tasks each gets, were they given one by one to whoever is next.

Between two bends of the order everybody's next positions are known, so all that is given before
somebody reaches a *level* (a position in the order) can be counted by search. The outcome is that
of giving one by one, to the last tie; the work is bounded by who gets something, not by how much.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator
from typing import Generic, Literal, NamedTuple, Protocol, TypeAlias, TypeVar

from allocator.cluster.allocation.budgets import Before, Budget, Count
from allocator.cluster.allocation.levels import Way, reached
from allocator.cluster.allocation.portions import NONE, Leaf, Name, Portion, together
from allocator.cluster.steps import Steps, finished
from allocator.fairness.front import Place, Position
from allocator.fairness.quantities import Quantities

User = TypeVar("User")
User_contra = TypeVar("User_contra", contravariant=True)


class Places(Protocol[User_contra]):
    """The order of a pool, as `Front` has it."""

    def place(self, user: User_contra) -> Place:
        """Return where a user stands now."""

    def after(self, user: User_contra, more: Quantities, times: int) -> Place:
        """Return where a user would stand after so many gifts that amount to this."""

    def held(self, user: User_contra) -> Quantities:
        """Return what a user holds now."""

    def holding(self, user: User_contra, total: Quantities, times: int) -> Place:
        """Return where a user would stand if it held so much, after so many gifts more."""


_STRETCH = 50
"""Members that are counted in a step."""
_SAMPLE = 8
"""Tasks by which is told what one is like where those below an entry differ."""
_CAREFUL = 0.95
"""The part of what there is that is given by what tasks are like, so that it is not too much."""
_MORE_CAREFUL = 0.7
"""Of that, where it was too much."""
_FAR = 1 << 40
"""More tasks than there are."""


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
        self._numbers: list[int] = []
        self._fillings: dict[int, _Filling[User]] = {}
        """How that came about, by number."""

    def portion(self, number: int) -> Portion:
        """Return what so many tasks come to; fewer, where that cannot be counted ahead."""
        return self._portions.get(number) or finished(self.counting(number))

    def counting(self, number: int) -> Steps[Portion]:
        """Return the same in steps; it is known afterwards."""
        portion = self._portions.get(number)
        if portion is None:
            before = bisect_left(self._numbers, number) - 1
            if before >= 0:
                some = self._numbers[before]
                filling = self._fillings[some].copy(Count(number - some))
            else:
                filling = _Filling(self, Count(number))
            if before >= 0 and number - some == 1:
                portion = filling.one_more()
            else:
                portion = yield from filling.run(1)
            self._portions[number] = portion
            if portion.number == number:
                insort(self._numbers, number)
                self._fillings[number] = filling
        return portion

    def within(self, taken: Portion, budget: Budget) -> Steps[Portion]:
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

    def fill(self, budget: Budget, stride: int = 0) -> Portion:
        """Return what can be given until it is the turn of who cannot have one more task.

        Args:
            budget: How much may be given.
            stride: How many tasks the first is likely to get; 0: that is to be foreseen from where
                all stand. The outcome does not depend on it.
        """
        return finished(self.filling(budget, stride))

    def filling(self, budget: Budget, stride: int = 0) -> Steps[Portion]:
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

    def place(self, user: User, portion: Portion) -> Place:
        """Return where a member would stand."""
        if not portion.number:
            return self._places.place(user)
        return self._places.after(user, portion.scalars, portion.gifts)

    def before(self, user: User, level: Place, budget: Budget, portion: Portion) -> Before:
        """Return how much a member may get after a portion so that it stays before a level."""
        holds = self._places.held(user) + portion.scalars

        def holding(total: Quantities, gifts: int) -> Place:
            return self._places.holding(user, total, gifts)

        return Before(level, holding, holds, portion.gifts, budget)


Node: TypeAlias = Leaf | Branch  # type: ignore[type-arg]  # of any users
_End: TypeAlias = Literal["level", "special", "full"]


class _Entry(Generic[User]):
    """A member with what it has got so far."""

    __slots__ = ("node", "place", "taken", "user")

    def __init__(self, user: User, node: Node, place: Place) -> None:
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
    portion: Portion
    """All that it has got then."""
    place: Place
    end: _End
    """Whether it has reached the level, cannot be counted further, or gets too much."""


class _Filling(Generic[User]):
    """One way through a branch, from nothing given to all that is within the budget.

    It gives up to a level that who is next reaches with a stride of so many tasks. What is left
    then tells how long the next stride may be; one that was too long is halved. Where no stride is
    told, much is to be given, and the level is foreseen: with some care where those below a member
    differ, and with more if it was too much.
    """

    def __init__(self, branch: Branch[User], budget: Budget) -> None:
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

    def run(self, stride: int) -> Steps[Portion]:
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

    def one_more(self) -> Portion:
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

    def _count(self, entry: _Entry[User], number: int) -> Steps[None]:
        """Count so many tasks more for an entry, which may take long where others are below it."""
        if isinstance(entry.node, Branch):
            yield
            yield from entry.node.counting(entry.taken.number + number)

    def _ahead(self, entry: _Entry[User], number: int) -> Steps[Place]:
        """Return where an entry would stand with so many tasks more, or as many as are known."""
        yield from self._count(entry, number)
        return self._place(entry, entry.node.portion(entry.taken.number + number))

    def _foreseen(self, first: _Entry[User], pick: _Entry[User], number: int) -> Steps[Place]:
        """Return a level before which there would be enough, if everybody went on as it begins.

        It is at most that of an entry with so many tasks more.
        """
        here = pick.place
        stride, _ = yield from self._typical(pick)
        end = here.priority + number * stride
        ways: dict[Name, list[Way]] = {}
        self._rough = False
        count = 0
        while (
            stride
            and (entry := self._entry(count)) is not None
            and entry.place.position[:2] < (here.position[0], end)
        ):
            count += 1
            if not count % _STRETCH:
                yield
            stride, parts = yield from self._typical(entry)
            if stride and entry.place.position[0] == here.position[0]:
                self._rough = self._rough or isinstance(entry.node, Branch)
                for name, part in parts.items():
                    ways.setdefault(name, []).append(Way(entry.place.priority, stride, part))
        yield
        for those in ways.values():
            end = yield from reached(those, end, self._part if self._rough else 1.0)
        there = Place((here.position[0], end), 0.0)
        if ways and first.place.position < there.position < self._too_far:
            return there
        return (yield from self._ahead(pick, number))

    def _typical(self, entry: _Entry[User]) -> Steps[tuple[float, dict[Name, float]]]:
        """Return how far a task moves an entry, and which part it takes of what is left, by name.

        Where those below an entry differ it is what several tasks come to; 0: nobody can tell.
        """
        here, before = entry.place, entry.taken
        if not isinstance(entry.node, Branch):
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

    def _try(self, level: Place) -> Steps[tuple[list[_Step[User]], _Step[User] | None]]:
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
                if not number % _STRETCH:
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

    def _reach(self, entry: _Entry[User], level: Place, left: Budget) -> Steps[_Step[User]]:
        """Return how many tasks an entry gets before it reaches a level, and what ends that."""
        node, taken = entry.node, entry.taken
        if isinstance(node, Branch):
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
        self, entry: _Entry[User], number: int, level: Place, left: Budget
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

    def _surely_goes_on(self, entry: _Entry[User], number: int, level: Place, left: Budget) -> bool:
        """Whether an entry's way is not over with so many tasks, however arithmetic rounds."""
        total = entry.taken.number + number
        portion = entry.node.portion(total)
        return (
            portion.number == total
            and self._place(entry, portion).surely_before(level)
            and left.admits(portion, entry.taken)
        )

    def _guess(self, entry: _Entry[User], level: Place) -> int:
        """Return how many tasks it would be if each moved the entry as far as the next one does."""
        one = entry.node.portion(entry.taken.number + 1)
        stride, way = entry.place.to(self._place(entry, one)), entry.place.to(level)
        if not stride or way is None or way < stride:
            return 1
        return round(min(way / stride, _FAR))

    def _place(self, entry: _Entry[User], portion: Portion) -> Place:
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
