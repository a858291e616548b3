"""Who shares what one user gets: ranked by dominant share, without weights, debts or time."""

import heapq
from bisect import bisect_left, insort
from collections.abc import Collection, Hashable, Iterator
from typing import Any, Generic, TypeAlias, TypeVar

from allocator.fairness.priorities import Rank
from allocator.fairness.quantities import Quantities
from allocator.fairness.rank_preview import RankPreview

User = TypeVar("User", bound=Hashable)
_Holding: TypeAlias = frozenset[tuple[str, int]]

_SAFE = 1.0 - 2.0**-40
"""Far more than rounding does to a product of a few numbers."""
_DRIFT = 1.05
"""How much more one resource may have grown than another before all are sorted anew."""


class _Peer:
    __slots__ = ("active", "allocation", "count")

    def __init__(self) -> None:
        self.allocation = Quantities()
        self.count = 0
        self.active = False


class _Alike(Generic[User]):
    """Active peers that hold the same: they are in order whatever the capacity is."""

    __slots__ = ("members", "now", "share")

    def __init__(self) -> None:
        self.members: list[tuple[int, User]] = []
        """(count, user), sorted"""
        self.share = 0.0
        self.now = -1
        """Which capacity that is the share of."""


class FrameworkSorter(Generic[User]):
    """Users of equal weight in the order of DRF: dominant share, then who got something less often.

    A gift costs O(1) until somebody looks, then O(log n) for each who got something; a change of
    the capacity costs O(1). Those who hold the same are ranked as one, and one alone is not ranked.
    To go through peers costs O(log n) for each, and a look at those whose place is in doubt
    because the capacity has changed in some resources more than in others.

    Args:
        capacity: What is shared.
        excluded: Resources that do not count in shares.
    """

    def __init__(self, capacity: Quantities, excluded: Collection[str] = ()) -> None:
        self._capacity = self._sorted_by = capacity
        self._version = 0
        self._slowest = _SAFE
        """At least so much of a share is left of what it was when all were sorted."""
        self._excluded = frozenset(excluded)
        self._peers: dict[User, _Peer] = {}
        self._active = 0
        self._late: dict[User, None] = {}
        """Active users who have no place in the order until somebody looks."""
        self._alike: dict[_Holding, _Alike[User]] = {}
        self._order: list[tuple[float, int, _Alike[User]]] = []
        """By share of the capacity by which all are sorted; the number only tells equals apart."""

    def __contains__(self, user: object) -> bool:
        return user in self._peers

    def __len__(self) -> int:
        return len(self._peers)

    @property
    def active(self) -> int:
        """How many are active."""
        return self._active

    def set_capacity(self, capacity: Quantities) -> None:
        """Change what is shared."""
        if capacity == self._capacity:
            return
        self._capacity = capacity
        self._version += 1
        before = self._sorted_by
        ratios = [before[name] / amount for name, amount in capacity.items()]
        slowest = min(ratios, default=0.0)
        if before.keys() == capacity.keys() and max(ratios) < _DRIFT * slowest:
            self._slowest = slowest * _SAFE
        else:
            self._sorted_by, self._slowest = capacity, _SAFE
            self._order = sorted(
                (self._share(dict(holding)), id(alike), alike)
                for holding, alike in self._alike.items()
            )

    def add(self, user: User) -> None:
        """Make a user known; it is not active yet."""
        self._peers[user] = _Peer()

    def remove(self, user: User) -> None:
        """Forget a user.

        Raises:
            KeyError: the user is not known.
            ValueError: it still holds something.
        """
        if self._peers[user].allocation:
            raise ValueError(f"user {user!r} still holds {self._peers[user].allocation}")
        self.set_active(user, False)
        del self._peers[user]

    def set_active(self, user: User, active: bool) -> None:  # noqa: FBT001 - a setter
        """Say whether a user is to be ranked."""
        peer = self._peers[user]
        if peer.active == active:
            return
        if active:
            self._late[user] = None
        else:
            self._leave(user, peer)
            del self._late[user]
        peer.active = active
        self._active += 1 if active else -1

    def allocate(self, user: User, quantities: Quantities, *, times: int = 1) -> None:
        """Give a user more, which counts as so many gifts."""
        peer = self._peers[user]
        self._hold(user, peer, peer.allocation + quantities, peer.count + times)

    def release(self, user: User, quantities: Quantities) -> None:
        """Take back from a user.

        Raises:
            ValueError: it does not hold that much; nothing has changed.
        """
        peer = self._peers[user]
        self._hold(user, peer, peer.allocation - quantities, peer.count)

    def hold(self, user: User, quantities: Quantities, gifts: int) -> None:
        """Say what a user holds from now on, and how often something was allocated to it."""
        self._hold(user, self._peers[user], quantities, gifts)

    def held(self, user: User | None = None) -> Quantities:
        """Return what a user holds, or all users together."""
        if user is not None:
            return self._peers[user].allocation
        return sum((peer.allocation for peer in self._peers.values()), start=Quantities())

    def holding(self, user: User) -> tuple[Quantities, int]:
        """Return what a user holds, and how often something was allocated to it."""
        peer = self._peers[user]
        return peer.allocation, peer.count

    def prospect(self, user: User) -> RankPreview:
        """Return where a user stands in order, and would if it held more."""
        return RankPreview(self._rank(self._peers[user].allocation), (), self._rank)

    def __iter__(self) -> Iterator[User]:
        """Go through active users, the next one first; nothing must change meanwhile."""
        if self._active == len(self._late) == 1:
            yield from self._late
            return
        for user in self._late:
            self._join(user, self._peers[user])
        self._late.clear()
        heap: list[tuple[float, tuple[int, Any], int, int, _Alike[User]]] = []
        order, number = self._order, 0
        while True:
            while number < len(order) and (
                not heap or order[number][0] * self._slowest <= heap[0][0]
            ):
                alike = order[number][2]
                share = self._present_share(alike)
                heapq.heappush(heap, (share, alike.members[0], 0, number, alike))
                number += 1
            if not heap:
                return
            share, member, place, serial, alike = heap[0]
            yield member[1]
            if place + 1 < len(alike.members):
                following = alike.members[place + 1]
                heapq.heapreplace(heap, (share, following, place + 1, serial, alike))
            else:
                heapq.heappop(heap)

    def _hold(self, user: User, peer: _Peer, allocation: Quantities, count: int) -> None:
        if peer.active:
            self._leave(user, peer)
        peer.allocation, peer.count = allocation, count

    def _join(self, user: User, peer: _Peer) -> None:
        holding = frozenset(peer.allocation.items())
        alike = self._alike.get(holding)
        if alike is None:
            alike = self._alike[holding] = _Alike()
            insort(self._order, (self._share(peer.allocation), id(alike), alike))
        insort(alike.members, (peer.count, user))

    def _leave(self, user: User, peer: _Peer) -> None:
        """Take a user out of the order, if it has a place there."""
        if user in self._late:
            return
        self._late[user] = None
        holding = frozenset(peer.allocation.items())
        alike = self._alike[holding]
        del alike.members[bisect_left(alike.members, (peer.count, user))]
        if not alike.members:
            del self._alike[holding]
            place = (self._share(peer.allocation), id(alike), alike)
            del self._order[bisect_left(self._order, place)]

    def _present_share(self, alike: _Alike[User]) -> float:
        if alike.now != self._version:
            alike.share = self._rank(self._peers[alike.members[0][1]].allocation)[0][1]
            alike.now = self._version
        return alike.share

    def _share(self, allocation: "Quantities | dict[str, int]") -> float:
        """Return the dominant share of the capacity by which all are sorted."""
        return _dominant(allocation, self._sorted_by, self._excluded)

    def _rank(self, allocation: Quantities) -> tuple[Rank, float]:
        return (0, _dominant(allocation, self._capacity, self._excluded), (), 0.0), 0.0


def _dominant(
    allocation: "Quantities | dict[str, int]", capacity: Quantities, excluded: Collection[str]
) -> float:
    largest = 0.0
    for name, amount in allocation.items():
        total = capacity[name]
        if total and name not in excluded:
            largest = max(largest, amount / total)
    return largest
