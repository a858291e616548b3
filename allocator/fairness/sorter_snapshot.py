"""A sorter snapshot: the order of a pool during one allocation cycle, without changing the pool.

An allocation cycle makes thousands of allocations at one time. The pool is updated once, at the end
of the cycle. Meanwhile the snapshot keeps the order, and computes the rank of a user after any
number of allocations. A rank is here the sort key of a priority (`Rank`), not a place in the order.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar, cast

from allocator.fairness.framework_sorter import FrameworkSorter
from allocator.fairness.pool import Pool
from allocator.fairness.priorities import Rank
from allocator.fairness.quantities import Quantities

User = TypeVar("User", bound=Hashable)
Position: TypeAlias = tuple[object, ...]
"""Sorts the users of a pool at a time: rank, allocation count, user."""


@dataclass(slots=True, init=False)  # with a compiled constructor, a fifth as long as a NamedTuple
class SortKey:
    """A user's sort key, with a bound of the rounding error in its priority."""

    position: Position
    tolerance: float
    """Tolerance: more than rounding can move equal priorities apart."""

    def __init__(self, position: Position, tolerance: float) -> None:
        self.position, self.tolerance = position, tolerance

    @property
    def priority(self) -> float:
        """The priority value: the second component of the position.

        The first component is an integer that takes precedence, for example to place users below
        their guarantee before all others.
        """
        return cast("float", self.position[1])

    def distance_to(self, key: "SortKey") -> float | None:
        """Return the other key's priority minus this key's.

        None: the first components of the positions differ, so priorities do not determine the
        order.
        """
        if self.position[0] != key.position[0]:
            return None
        return key.priority - self.priority

    def surely_before(self, key: "SortKey") -> bool:
        """Return whether this key comes first, however large the rounding errors are."""
        tolerance = self.tolerance + key.tolerance
        if not tolerance:
            return self.position < key.position
        mine, theirs = self.position, key.position
        return (mine[0], mine[1] + tolerance) < (theirs[0], theirs[1])  # type: ignore[operator]


class _RankedAllocation:
    """An allocation, and the rank that a user of a rank class has with this allocation.

    A rank class contains all users that get equal ranks for equal allocations. Allocations that
    result from adding resources are cached by the identity of the added object.
    This works because a cycle adds few different objects. The allocation has no reference to its
    rank class, which refers to it: both are freed without the garbage collector.
    """

    __slots__ = ("quantities", "rank", "successors", "tolerance")

    def __init__(self, quantities: Quantities, rank: tuple[Rank, float]) -> None:
        self.quantities = quantities
        self.rank, self.tolerance = rank
        self.successors: dict[int, tuple[Quantities, _RankedAllocation]] = {}


class _RankClass:
    """A set of users that get equal ranks for equal allocations; each rank is computed once."""

    __slots__ = ("_held", "rank_of")

    def __init__(self, rank_of: Callable[[Quantities], tuple[Rank, float]]) -> None:
        self.rank_of = rank_of
        self._held: dict[frozenset[tuple[str, int]], _RankedAllocation] = {}

    def held(self, quantities: Quantities) -> _RankedAllocation:
        """Return the given allocation with its rank, which is computed at the first call."""
        key = frozenset(quantities.items())
        held = self._held.get(key)
        if held is None:
            held = self._held[key] = _RankedAllocation(quantities, self.rank_of(quantities))
        return held

    def plus(self, held: _RankedAllocation, added: Quantities) -> _RankedAllocation:
        """Return an allocation after adding quantities, with its rank, which is cached."""
        if not added:
            return self.held(held.quantities)
        successor = held.successors.get(id(added))
        if successor is None:
            later = self.held(held.quantities + added)
            successor = held.successors[id(added)] = added, later  # keeps the id unique
        return successor[1]


class _UserState(Generic[User]):
    """The sort key and allocation of a user, as far as the snapshot has computed them.

    Args:
        user: A user of the pool.
        total: The user's present allocation.
        count: The user's present allocation count.
    """

    rank_class: _RankClass | None = None
    held: _RankedAllocation | None = None
    """The user's allocation with its rank. None: not computed since the last change."""
    key: SortKey | None = None
    """The sort key when it was last computed."""
    unsorted = False
    """Whether the user has a new allocation and has not been sorted in since."""
    sorted = False

    def __init__(self, user: User, total: Quantities, count: int) -> None:
        self.user, self.total, self.count = user, total, count


class SorterSnapshot(Generic[User]):
    """Keeps a pool's active users in order during one allocation cycle, without changing the pool.

    The cycle records its allocations here. The pool must not change until the caller writes the
    allocations (`changed`) to the pool at the end of the cycle.

    An allocation costs O(m + log n) in m resources and n users with allocations of this cycle.
    """

    __slots__ = (
        "_changed",
        "_later",
        "_only",
        "_pool",
        "_rank_classes",
        "_remaining",
        "_sorted_positions",
        "_states",
        "_unmoved",
        "_unsorted",
        "alone",
    )

    def __init__(self, pool: Pool[User] | FrameworkSorter[User]) -> None:
        self._pool = pool
        self.alone = pool.active == 1
        """Whether the pool has a single active user. One user needs no order."""
        self._only: User | None = None
        """The only active user; None if there are several, or if it has not been read."""
        self._remaining: Iterator[User] | None = None
        self._unmoved: list[User] = []
        """Users without an allocation in this cycle, in order, as far as they have been read."""
        self._sorted_positions: list[Position] = []
        """Positions of users with an allocation in this cycle, sorted."""
        self._changed: dict[User, _UserState[User]] = {}
        """All users with an allocation in this cycle, sorted or not."""
        self._unsorted: list[_UserState[User]] = []
        self._states: dict[User, _UserState[User]] = {}
        self._rank_classes: dict[Hashable, _RankClass] = {}
        self._later: dict[tuple[User, int], tuple[Quantities, int, int]] = {}
        """Allocations to add at the next read: user and id of quantities → quantities, number of
        allocations, increase of the allocation count."""

    def __iter__(self) -> Iterator[User]:
        """Iterate over active users in order. No allocation may change during the iteration."""
        if self.alone:
            if self._only is None:
                self._only = next(iter(self._pool))
            yield self._only
            return
        self._sort()
        index = 0
        for position in self._sorted_positions:
            while (user := self._unmoved_user(index)) is not None and self._before(user, position):
                yield user
                index += 1
            yield position[-1]  # type: ignore[misc]  # the last element is the user
        while (user := self._unmoved_user(index)) is not None:
            yield user
            index += 1

    def sort_key(self, user: User) -> SortKey:
        """Return a user's sort key for its present allocation."""
        state = self._state(user)  # may leave allocations to sort
        if self._unsorted:
            self._sort()
        if state.key is None:
            state.key = self._compute_key(state)
        return state.key

    def sort_key_after(self, user: User, added: Quantities, times: int) -> SortKey:
        """Return the sort key that a user would have after further allocations.

        Args:
            user: A user of the pool.
            added: The resources to add to the user's allocation.
            times: The number to add to the allocation count.
        """
        state = self._state(user)
        present = self._held(state)
        held = self._rank_class(state).plus(present, added)
        return self._key_after(state, held.rank, held.tolerance, times)

    def holding(self, user: User, total: Quantities, times: int) -> SortKey:
        """Return the sort key that a user would have with another allocation.

        Use this method for amounts that no other user will hold: it caches nothing, unlike
        `sort_key_after`.

        Args:
            user: A user of the pool.
            total: The user's whole allocation.
            times: The number to add to the allocation count.
        """
        state = self._state(user)
        rank, tolerance = self._rank_class(state).rank_of(total)
        return self._key_after(state, rank, tolerance, times)

    def held(self, user: User) -> Quantities:
        """Return a user's allocation, including allocations of this cycle."""
        return self._state(user).total

    def set_held(self, user: User, quantities: Quantities, times: int) -> None:
        """Replace a user's allocation, and add `times` to its allocation count."""
        state = self._state(user)
        state.total, state.held, state.count = quantities, None, state.count + times
        if user not in self._changed:
            self._changed[user] = state
            if user in self._unmoved:  # most often near the begin
                self._unmoved.remove(user)
        if not state.unsorted:
            state.unsorted = True
            self._unsorted.append(state)

    def allocate_later(self, user: User, added: Quantities, times: int) -> None:
        """Add to a user's allocation and allocation count, as `set_held` does, at the next read.

        Many allocations of the same object are added at once. The user must be `alone`.

        Args:
            user: A user of the pool.
            added: The quantities to add.
            times: The number to add to the allocation count.
        """
        key = user, id(added)
        _, number, count = self._later.get(key, (added, 0, 0))
        self._later[key] = added, number + 1, count + times  # keeps the id unique

    def changed(self) -> Iterator[tuple[User, Quantities, int]]:
        """Yield each user with allocations in this cycle, its allocation and allocation count."""
        if self._later:
            self._add_up()
        for user, state in self._changed.items():
            yield user, state.total, state.count

    def _state(self, user: User) -> _UserState[User]:
        """Return a user's state; create the state from the pool if necessary."""
        if self._later:
            self._add_up()
        state = self._states.get(user)
        if state is None:
            state = self._states[user] = _UserState(user, *self._pool.holding(user))
        return state

    def _add_up(self) -> None:
        """Carry out the allocations that `allocate_later` has recorded."""
        later, self._later = self._later, {}
        for (user, _), (added, number, count) in later.items():
            self.set_held(user, self.held(user) + added.times(number), count)

    def _held(self, state: _UserState[User]) -> _RankedAllocation:
        """Return a user's present allocation with its rank."""
        held = state.held
        if held is None:
            rank_class = self._rank_class(state)  # may set `state.held`, too
            held = state.held
            if held is None:
                held = state.held = rank_class.held(state.total)
        return held

    def _rank_class(self, state: _UserState[User]) -> _RankClass:
        """Return the rank class of a user: all users with the same rank for the same allocation."""
        if state.rank_class is None:
            preview = self._pool.prospect(state.user)
            state.rank_class = self._rank_classes.get(preview.likeness)
            if state.rank_class is None:
                state.rank_class = self._rank_classes[preview.likeness] = _RankClass(
                    preview.rank_of
                )
            if state.user not in self._changed:
                state.held = _RankedAllocation(state.total, preview.rank)
        return state.rank_class

    def _compute_key(self, state: _UserState[User]) -> SortKey:
        """Return a user's sort key for its present allocation."""
        held = self._held(state)
        return SortKey((*held.rank, state.count, state.user), held.tolerance)

    def _key_after(
        self, state: _UserState[User], rank: Rank, tolerance: float, times: int
    ) -> SortKey:
        """Return the sort key that a user has with a new rank and allocation count.

        If the new priority equals the present one, the key's tolerance is 0, because no rounding
        occurs.

        Args:
            state: The user's state.
            rank: Rank for the new allocation.
            tolerance: Tolerance of this rank.
            times: The number to add to the allocation count.
        """
        if tolerance:
            present = self._held(state).rank
            if rank[1] == present[1] and rank[2] == present[2]:
                tolerance = 0.0
        return SortKey((*rank, state.count + times, state.user), tolerance)

    def _unmoved_user(self, index: int) -> User | None:
        """Return the user at an index in the pool's order, not counting users that have changed.

        Users have changed if this cycle has replaced their allocations.

        Returns:
            The user. None: there are not more than `index` such users.
        """
        if self._remaining is None:
            self._remaining = iter(self._pool)
        while index >= len(self._unmoved):
            user = next(self._remaining, None)
            if user is None:
                return None
            if user not in self._changed:
                self._unmoved.append(user)
        return self._unmoved[index]

    def _before(self, user: User, position: Position) -> bool:
        """Return whether a user's present position is before another position."""
        return self.sort_key(user).position < position

    def _sort(self) -> None:
        """Move users whose allocation has changed since the last read to their new positions."""
        for state in self._unsorted:
            if state.sorted:
                assert state.key is not None
                del self._sorted_positions[bisect_left(self._sorted_positions, state.key.position)]
            state.key = self._compute_key(state)
            insort(self._sorted_positions, state.key.position)
            state.sorted, state.unsorted = True, False
        self._unsorted.clear()
