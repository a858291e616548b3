"""The framework sorter: orders the frameworks of a role by their present dominant shares.

Past use does not matter.
"""

import heapq
from bisect import bisect_left, insort
from collections.abc import Collection, Hashable, Iterator
from typing import Any, Generic, TypeAlias, TypeVar

from allocator.fairness.priorities import Rank
from allocator.fairness.quantities import Quantities
from allocator.fairness.rank_preview import RankPreview

User = TypeVar("User", bound=Hashable)
_Allocation: TypeAlias = frozenset[tuple[str, int]]

_ROUNDING_MARGIN = 1.0 - 2.0**-40
"""A factor below 1 by far more than the rounding error of a product of a few numbers."""
_RESORT_RATIO = 1.05
"""If one resource grows by more than this factor against another, all users are sorted again."""


class _FrameworkState:
    """A framework's allocation, its number of allocations, and whether it wants offers."""

    __slots__ = ("active", "allocation", "count")

    def __init__(self) -> None:
        self.allocation = Quantities()
        self.count = 0
        self.active = False


class _Group(Generic[User]):
    """Active users with equal allocations: their shares are equal whatever the capacity is."""

    __slots__ = ("members", "share", "version")

    def __init__(self) -> None:
        self.members: list[tuple[int, User]] = []
        """Pairs of allocation count and user, sorted."""
        self.share = 0.0
        self.version = -1
        """The capacity version that `share` was computed for."""


class FrameworkSorter(Generic[User]):
    """Orders users of equal weight as DRF does: by dominant share, then by allocation count.

    The users are frameworks. Users with equal allocations are ranked as a group. An allocation or a
    change of the capacity costs O(1). The next iteration then sorts each user whose allocation
    changed, in O(log n).

    Iterating costs O(log n) a user. If the capacity of some resources has changed more than that of
    others, dominant shares may have changed their order. Then an iteration examines further users.

    Args:
        capacity: The resources that are shared.
        excluded: Names of resources that do not count in shares.
    """

    def __init__(self, capacity: Quantities, excluded: Collection[str] = ()) -> None:
        self._capacity = self._sorted_by = capacity
        self._version = 0
        self._least_ratio = _ROUNDING_MARGIN
        """Lower bound of a user's present share divided by its share at the last full sort."""
        self._excluded = frozenset(excluded)
        self._states: dict[User, _FrameworkState] = {}
        self._active = 0
        self._unsorted: dict[User, None] = {}
        """Active users that the next read must put into the order."""
        self._groups: dict[_Allocation, _Group[User]] = {}
        self._order: list[tuple[float, int, _Group[User]]] = []
        """Groups by their share at the last full sort; the number in the middle breaks ties."""

    def __contains__(self, user: object) -> bool:
        return user in self._states

    def __len__(self) -> int:
        return len(self._states)

    @property
    def active(self) -> int:
        """The number of active users, which want offers."""
        return self._active

    def set_capacity(self, capacity: Quantities) -> None:
        """Replace the resources that are shared, for example after agents were added."""
        if capacity == self._capacity:
            return
        self._capacity = capacity
        self._version += 1
        sorted_by = self._sorted_by
        ratios = [sorted_by[name] / amount for name, amount in capacity.items()]
        smallest = min(ratios, default=0.0)
        if sorted_by.keys() == capacity.keys() and max(ratios) < _RESORT_RATIO * smallest:
            self._least_ratio = smallest * _ROUNDING_MARGIN
        else:
            self._sorted_by, self._least_ratio = capacity, _ROUNDING_MARGIN
            self._order = sorted(
                (self._share(dict(holding)), id(group), group)
                for holding, group in self._groups.items()
            )

    def add(self, user: User) -> None:
        """Make a user known. The user is not active yet, so it is not ranked."""
        self._states[user] = _FrameworkState()

    def remove(self, user: User) -> None:
        """Forget a user.

        Raises:
            KeyError: the user is not known.
            ValueError: the user still has an allocation.
        """
        if self._states[user].allocation:
            raise ValueError(f"user {user!r} still holds {self._states[user].allocation}")
        self.set_active(user, False)
        del self._states[user]

    def set_active(self, user: User, active: bool) -> bool:  # noqa: FBT001 - a setter
        """Set whether a user is active. Only active users, which want offers, are ranked.

        Returns:
            True if this has changed.
        """
        state = self._states[user]
        if state.active == active:
            return False
        if active:
            self._unsorted[user] = None
        else:
            self._remove_from_order(user, state)
            del self._unsorted[user]
        state.active = active
        self._active += 1 if active else -1
        return True

    def allocate(self, user: User, quantities: Quantities, *, times: int = 1) -> None:
        """Add resources to a user's allocation, and `times` to its number of allocations.

        Among users with equal shares, the user with the fewest allocations comes first.
        """
        state = self._states[user]
        self._hold(user, state, state.allocation + quantities, state.count + times)

    def release(self, user: User, quantities: Quantities) -> None:
        """Subtract resources from a user's allocation.

        Raises:
            ValueError: the allocation is smaller than the quantities; nothing has changed.
        """
        state = self._states[user]
        self._hold(user, state, state.allocation - quantities, state.count)

    def hold(self, user: User, quantities: Quantities, gifts: int) -> None:
        """Replace a user's allocation by `quantities`, and its number of allocations by `gifts`."""
        self._hold(user, self._states[user], quantities, gifts)

    def held(self, user: User | None = None) -> Quantities:
        """Return the allocation of a user, or without an argument the sum of all allocations."""
        if user is not None:
            return self._states[user].allocation
        return sum((state.allocation for state in self._states.values()), start=Quantities())

    def holding(self, user: User) -> tuple[Quantities, int]:
        """Return a user's allocation, and how often resources were allocated to the user."""
        state = self._states[user]
        return state.allocation, state.count

    def prospect(self, user: User) -> RankPreview:
        """Return a user's present rank, and a function for its rank with another allocation.

        The function takes an allocation, returns its rank and changes nothing. `SorterSnapshot`
        calls it.
        """
        return RankPreview(self._rank(self._states[user].allocation), (), self._rank)

    def __iter__(self) -> Iterator[User]:
        """Iterate over active users, lowest share first. The sorter must not change meanwhile."""
        if self._active == len(self._unsorted) == 1:
            yield from self._unsorted
            return
        for user in self._unsorted:
            self._insert_into_order(user, self._states[user])
        self._unsorted.clear()
        heap: list[tuple[float, tuple[int, Any], int, int, _Group[User]]] = []
        order, next_group = self._order, 0
        while True:
            while next_group < len(order) and (
                not heap or order[next_group][0] * self._least_ratio <= heap[0][0]
            ):
                group = order[next_group][2]
                share = self._present_share(group)
                heapq.heappush(heap, (share, group.members[0], 0, next_group, group))
                next_group += 1
            if not heap:
                return
            share, member, index, group_number, group = heap[0]
            yield member[1]
            if index + 1 < len(group.members):
                successor = group.members[index + 1]
                heapq.heapreplace(heap, (share, successor, index + 1, group_number, group))
            else:
                heapq.heappop(heap)

    def _hold(self, user: User, state: _FrameworkState, allocation: Quantities, count: int) -> None:
        """Store a user's new allocation and number of allocations; the next read sorts the user."""
        if state.active:
            self._remove_from_order(user, state)
        state.allocation, state.count = allocation, count

    def _insert_into_order(self, user: User, state: _FrameworkState) -> None:
        """Add a user to the group of users with the same allocation."""
        holding = frozenset(state.allocation.items())
        group = self._groups.get(holding)
        if group is None:
            group = self._groups[holding] = _Group()
            insort(self._order, (self._share(state.allocation), id(group), group))
        insort(group.members, (state.count, user))

    def _remove_from_order(self, user: User, state: _FrameworkState) -> None:
        """Remove a user from the order, if the user is in the order."""
        if user in self._unsorted:
            return
        self._unsorted[user] = None
        holding = frozenset(state.allocation.items())
        group = self._groups[holding]
        del group.members[bisect_left(group.members, (state.count, user))]
        if not group.members:
            del self._groups[holding]
            entry = (self._share(state.allocation), id(group), group)
            del self._order[bisect_left(self._order, entry)]

    def _present_share(self, group: _Group[User]) -> float:
        """Return the dominant share of the users of a group, at the present capacity; cached."""
        if group.version != self._version:
            group.share = self._rank(self._states[group.members[0][1]].allocation)[0][1]
            group.version = self._version
        return group.share

    def _share(self, allocation: "Quantities | dict[str, int]") -> float:
        """Return the dominant share by which the stored order of groups (`_order`) is sorted.

        Its capacity is that of the last full sort, which may differ from the present capacity.
        """
        return _dominant(allocation, self._sorted_by, self._excluded)

    def _rank(self, allocation: Quantities) -> tuple[Rank, float]:
        """Return the sort key of a user with this allocation, and the key's tolerance.

        The tolerance is the largest rounding error of the key: here 0.
        """
        return (0, _dominant(allocation, self._capacity, self._excluded), (), 0.0), 0.0


def _dominant(
    allocation: "Quantities | dict[str, int]", capacity: Quantities, excluded: Collection[str]
) -> float:
    """Return an allocation's dominant share of a capacity, without the excluded resources."""
    largest = 0.0
    for name, amount in allocation.items():
        total = capacity[name]
        if total and name not in excluded:
            largest = max(largest, amount / total)
    return largest
