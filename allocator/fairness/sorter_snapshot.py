"""The order of a pool at one instant while users get more and more, without moving any of them.

A run of the allocator gives thousands of times at one instant. The pool itself follows once, when
the run is over; meanwhile a front says who is next, and who would be after any number of gifts.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Hashable, Iterator
from typing import Generic, NamedTuple, TypeAlias, TypeVar, cast

from allocator.fairness.framework_sorter import FrameworkSorter
from allocator.fairness.pool import Pool
from allocator.fairness.priorities import Rank
from allocator.fairness.quantities import Quantities

User = TypeVar("User", bound=Hashable)
Position: TypeAlias = tuple[object, ...]
"""Sorts the users of a pool at an instant: rank, count, user."""


class SortKey(NamedTuple):
    """Where a user stands, or would stand after some gifts."""

    position: Position
    blur: float
    """How far rounding may shift what should be the same priority, and far more."""

    @property
    def priority(self) -> float:
        """The number by which it is compared with others of its class."""
        return cast("float", self.position[1])

    def to(self, other: "SortKey") -> float | None:
        """Return how far it is to another place of the same class; None: it is of another."""
        if self.position[0] != other.position[0]:
            return None
        return other.priority - self.priority

    def surely_before(self, other: "SortKey") -> bool:
        """Whether this comes first, however arithmetic rounds."""
        blur = self.blur + other.blur
        if not blur:
            return self.position < other.position
        mine, others = self.position, other.position
        return (mine[0], mine[1] + blur) < (others[0], others[1])  # type: ignore[operator]


class _Held:
    """What users of one kind may hold, where they rank then, and what they hold with more.

    Gifts are few different objects, so where a gift leads is known by what it is.
    """

    __slots__ = ("_kind", "_next", "blur", "quantities", "rank")

    def __init__(
        self, kind: "_Kind", quantities: Quantities, rank: tuple[Rank, float] | None
    ) -> None:
        self._kind = kind
        self.quantities = quantities
        self.rank, self.blur = rank if rank is not None else kind.rank_of(quantities)
        self._next: dict[int, tuple[Quantities, _Held]] = {}

    def plus(self, more: Quantities) -> "_Held":
        if not more:
            return self._kind.held(self.quantities)
        found = self._next.get(id(more))
        if found is None:
            held = self._kind.held(self.quantities + more)
            found = self._next[id(more)] = more, held  # so that the id stays its own
        return found[1]


class _Kind:
    """Users who rank alike where they hold alike."""

    __slots__ = ("_held", "rank_of")

    def __init__(self, rank_of: Callable[[Quantities], tuple[Rank, float]]) -> None:
        self.rank_of = rank_of
        self._held: dict[frozenset[tuple[str, int]], _Held] = {}

    def held(self, quantities: Quantities) -> _Held:
        key = frozenset(quantities.items())
        held = self._held.get(key)
        if held is None:
            held = self._held[key] = _Held(self, quantities, None)
        return held


class _Spot(Generic[User]):
    """A user that the front has had to look at."""

    kind: _Kind | None = None
    held: _Held | None = None
    """Where what it holds ranks it; None: nobody has asked since that changed."""
    place: SortKey | None = None
    """Where it stood when that was last worked out."""
    late = False
    """Whether it has got something and has not been sorted in since."""
    sorted = False

    def __init__(self, user: User, total: Quantities, gifts: int) -> None:
        self.user = user
        self.total = total
        """What it holds now."""
        self.gifts = gifts


class SorterSnapshot(Generic[User]):
    """Active users of a pool in order; the pool must not change before what they hold is told it.

    A gift costs O(m + log n) in m resources and n users that have got something. What a user's
    rank would be is worked out once for all users who stand alike.
    """

    __slots__ = ("_changed", "_coming", "_kinds", "_late", "_moved", "_pool", "_spots", "_still")

    def __init__(self, pool: Pool[User] | FrameworkSorter[User]) -> None:
        self._pool = pool
        self._coming: Iterator[User] | None = None
        self._still: list[User] = []
        """Those who have got nothing, in order, as far as anybody has looked."""
        self._moved: list[Position] = []
        """Those who have got something, sorted."""
        self._changed: dict[User, _Spot[User]] = {}
        """Those who have got something, sorted or not."""
        self._late: list[_Spot[User]] = []
        self._spots: dict[User, _Spot[User]] = {}
        self._kinds: dict[Hashable, _Kind] = {}

    def __iter__(self) -> Iterator[User]:
        """Go through active users, the next one first; nobody must get anything meanwhile."""
        if self._pool.active == 1:
            yield from self._pool
            return
        self._sort()
        number = 0
        for position in self._moved:
            while (user := self._at(number)) is not None and self._before(user, position):
                yield user
                number += 1
            yield position[-1]  # type: ignore[misc]  # it is the user
        while (user := self._at(number)) is not None:
            yield user
            number += 1

    def place(self, user: User) -> SortKey:
        """Return where a user stands now."""
        self._sort()
        spot = self._spot(user)
        if spot.place is None:
            spot.place = self._placed(spot)
        return spot.place

    def after(self, user: User, more: Quantities, times: int) -> SortKey:
        """Return where a user would stand after some gifts that amount to this."""
        spot = self._spot(user)
        held = self._held(spot).plus(more)
        return self._led(spot, held.rank, held.blur, times)

    def holding(self, user: User, total: Quantities, times: int) -> SortKey:
        """Return where a user would stand if it held so much, after so many gifts more.

        Unlike `after` it remembers nothing: it is for amounts that nobody else will hold.
        """
        spot = self._spot(user)
        rank, blur = self._kind(spot).rank_of(total)
        return self._led(spot, rank, blur, times)

    def held(self, user: User) -> Quantities:
        """Return what a user holds now."""
        return self._spot(user).total

    def hold(self, user: User, quantities: Quantities, times: int) -> None:
        """Say what a user holds now, after so many gifts more."""
        spot = self._spot(user)
        spot.total, spot.held = quantities, None
        spot.gifts += times
        if user not in self._changed:
            self._changed[user] = spot
            if user in self._still:  # as a rule among the first
                self._still.remove(user)
        if not spot.late:
            spot.late = True
            self._late.append(spot)

    def changed(self) -> Iterator[tuple[User, Quantities, int]]:
        """Go through those to whom something was given: what they hold, and how many gifts had."""
        for user, spot in self._changed.items():
            yield user, spot.total, spot.gifts

    def _spot(self, user: User) -> _Spot[User]:
        spot = self._spots.get(user)
        if spot is None:
            spot = self._spots[user] = _Spot(user, *self._pool.holding(user))
        return spot

    def _held(self, spot: _Spot[User]) -> _Held:
        if spot.held is None:
            kind = self._kind(spot)  # where that is new, so is what is held
            if spot.held is None:
                spot.held = kind.held(spot.total)
        return spot.held

    def _kind(self, spot: _Spot[User]) -> _Kind:
        if spot.kind is None:
            prospect = self._pool.prospect(spot.user)
            spot.kind = self._kinds.get(prospect.likeness)
            if spot.kind is None:
                spot.kind = self._kinds[prospect.likeness] = _Kind(prospect.rank_of)
            if spot.user not in self._changed:
                spot.held = _Held(spot.kind, spot.total, prospect.rank)
        return spot.kind

    def _placed(self, spot: _Spot[User]) -> SortKey:
        held = self._held(spot)
        return SortKey((*held.rank, spot.gifts, spot.user), held.blur)

    def _led(self, spot: _Spot[User], rank: Rank, blur: float, times: int) -> SortKey:
        """Return where gifts lead; where they do not move a priority, nor does rounding."""
        if blur:
            present = self._held(spot).rank
            if rank[1] == present[1] and rank[2] == present[2]:
                blur = 0.0
        return SortKey((*rank, spot.gifts + times, spot.user), blur)

    def _at(self, number: int) -> User | None:
        """Return one of those who have got nothing, by its place among them."""
        if self._coming is None:
            self._coming = iter(self._pool)
        while number >= len(self._still):
            user = next(self._coming, None)
            if user is None:
                return None
            if user not in self._changed:
                self._still.append(user)
        return self._still[number]

    def _before(self, user: User, position: Position) -> bool:
        return self.place(user).position < position

    def _sort(self) -> None:
        """Put those in their places who have got something since somebody looked."""
        for spot in self._late:
            if spot.sorted:
                assert spot.place is not None
                del self._moved[bisect_left(self._moved, spot.place.position)]
            spot.place = self._placed(spot)
            insort(self._moved, spot.place.position)
            spot.sorted, spot.late = True, False
        self._late.clear()
