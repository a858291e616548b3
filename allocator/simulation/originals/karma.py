"""Karma as it is: credits are settled once a quantum, in whole slices."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from allocator.fairness.policies.rivals import karma
from allocator.fairness.quantities import Quantities
from allocator.simulation.originals.original import Key, Periodic

_SLICES = 2**16
"""Of the cluster; so fine that hardly any task is less."""
_PLENTY = 10**6
"""Quanta for which credits pay the whole cluster: nobody is to be refused for want of them."""


@dataclass(slots=True)
class Quantum:
    """What a quantum comes to, in slices, by user."""

    allocations: list[int]
    credits: list[int]


def quantum(
    credits: Sequence[int],  # noqa: A002 - the field's word
    demands: Sequence[int],
    slices: int,
    public: int,
) -> Quantum:
    """Settle a quantum (Karma, OSDI 2023, Algorithm 1).

    Everybody gets a part of the public slices as credits, and as many slices as it wants up to its
    guarantee. Who wants more borrows what others leave and what is public, a credit a slice: all of
    it if there is enough, and then those lend first who are poorest; else those borrow first who
    are richest. One slice at a time; of equals the one first that has least left to lend or borrow.

    Args:
        credits: Of each user, at least 0.
        demands: Of each user, in slices.
        slices: Of the cluster.
        public: Those that nobody is guaranteed.
    """
    users = range(len(credits))
    guaranteed = (slices - public) // len(credits)
    has = [amount + public // len(credits) for amount in credits]
    got = [min(demand, guaranteed) for demand in demands]
    lends = [max(guaranteed - demand, 0) for demand in demands]
    wants = [
        min(max(demand - guaranteed, 0), amount)
        for demand, amount in zip(demands, has, strict=True)
    ]
    supply, wanted = sum(lends) + public, sum(wants)
    if supply >= wanted:
        lent = _levelled(has, lends, min(wanted, sum(lends)))  # what is public is lent last
        borrowed = wants
    else:
        lent = lends
        borrowed = _levelled([-amount for amount in has], wants, supply)
    return Quantum(
        [got[u] + borrowed[u] for u in users],
        [has[u] + lent[u] - borrowed[u] for u in users],
    )


def _levelled(start: Sequence[int], most: Sequence[int], total: int) -> list[int]:
    """Raise the lowest, one unit at a time, by no more than their most, by so much in total."""
    begin, room = np.array(start, np.int64), np.array(most, np.int64)

    def raised(level: int) -> NDArray[np.int64]:
        return np.clip(level - begin, 0, room)

    low, high = int(begin.min()), int(begin.max() + room.max())
    while low < high:  # the highest level that does not take more than there is
        level = (low + high + 1) // 2
        if int(raised(level).sum()) <= total:
            low = level
        else:
            high = level - 1
    rises = raised(low)
    left = room - rises
    next_up = np.flatnonzero((left > 0) & (begin + rises == low))
    next_up = next_up[np.argsort(left[next_up], kind="stable")]
    rises[next_up[: total - int(rises.sum())]] += 1
    return [int(rise) for rise in rises]


class OriginalKarma(Periodic):
    """Credits by quanta, in slices of 1/65,536 of the cluster.

    What a user holds cannot be taken from it for the next quantum, so its demand is what it
    holds, or its guarantee if it has less and a task that waits. Everybody's weight is 1.

    Within a quantum Karma hands out slices one by one, and each borrowed slice costs a credit at
    once. So the order within a quantum counts what a user has borrowed since the last look.
    """

    PERIOD: ClassVar[float] = 60.0

    def __init__(self, policy: karma.Karma, capacity: Quantities, period: float) -> None:
        super().__init__(period)
        self._resource = policy.resource
        self._capacity = max(capacity[policy.resource], 1)
        self._public = int((1.0 - policy.alpha) * _SLICES)
        self._places: dict[int, int] = {}
        self._credits: list[int] = []
        self._held: list[int] = []
        self._wants: list[bool] = []
        self._charged: list[int] = []
        """Borrowed slices by user that the last look has charged for."""

    @override
    def join(self, user: int, weight: float, owed: float) -> None:
        self._places[user] = len(self._places)
        mean = sum(self._credits) // len(self._credits) if self._credits else 0
        self._credits.append(mean if self._credits else _PLENTY * _SLICES)
        self._held.append(0)
        self._wants.append(False)
        self._charged.append(0)

    @override
    def started(self, user: int, demand: Quantities, now: float) -> None:
        self._held[self._places[user]] += demand[self._resource]

    @override
    def ended(self, user: int, demand: Quantities, since: float, now: float) -> None:
        self._held[self._places[user]] -= demand[self._resource]

    @override
    def wants(self, user: int, *, more: bool) -> None:
        self._wants[self._places[user]] = more

    @override
    def look(self, times: int) -> None:
        guaranteed = self._guaranteed
        held = [self._in_slices(amount) for amount in self._held]
        self._charged = [self._borrowed(slices) for slices in held]
        demands = [
            max(slices, guaranteed) if wants else slices
            for slices, wants in zip(held, self._wants, strict=True)
        ]
        if not demands or max(demands) <= guaranteed:
            return  # nobody borrows: everybody gets the same, which changes no order
        for _ in range(times):
            self._credits = quantum(self._credits, demands, _SLICES, self._public).credits

    @override
    def key(self, user: int) -> Key:
        place = self._places[user]
        slices = self._in_slices(self._held[place])
        fresh = max(self._borrowed(slices) - self._charged[place], 0)
        return float(slices >= self._guaranteed), float(fresh - self._credits[place])

    def _borrowed(self, slices: int) -> int:
        """Return how many of a user's slices are beyond its guarantee."""
        return max(slices - self._guaranteed, 0)

    def _in_slices(self, held: int) -> int:
        return round(held * _SLICES / self._capacity)

    @property
    def _guaranteed(self) -> int:
        return (_SLICES - self._public) // max(len(self._credits), 1)
