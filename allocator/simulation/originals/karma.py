"""Karma emulated: users' credits change once per quantum, in whole slices of the cluster."""

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
"""Number of slices in the cluster, so large that hardly any task is smaller than a slice."""
_PLENTY = 10**6
"""Initial credits of a user, in quanta of the whole cluster; enough never to run out."""


@dataclass(slots=True)
class Quantum:
    """Result of one quantum, with one entry per user.

    Args:
        allocations: Slices allocated to each user.
        credits: Each user's credits after the quantum.
    """

    allocations: list[int]
    credits: list[int]


def quantum(
    credits: Sequence[int],  # noqa: A002 - Karma's term
    demands: Sequence[int],
    slices: int,
    public: int,
) -> Quantum:
    """Compute the allocations and credits of one quantum (Karma, OSDI 2023, Algorithm 1).

    Each user gets an equal part of the public slices as credits. Each user is allocated as many
    slices as it demands, up to its guarantee. Users with higher demands borrow donated and public
    slices, at one credit a slice. If supply exceeds demand, the lenders with the fewest credits
    lend first. Otherwise the borrowers with the most credits borrow first. Slices are moved one at
    a time. Among users with equal credits, the user with the fewest slices left to lend or borrow
    is first.

    Args:
        credits: Each user's credits before the quantum, at least 0.
        demands: Demand of each user, in slices.
        slices: Total number of slices in the cluster.
        public: Number of slices that are not guaranteed to any user.
    """
    users = range(len(credits))
    guaranteed = (slices - public) // len(credits)
    balances = [amount + public // len(credits) for amount in credits]
    own = [min(demand, guaranteed) for demand in demands]
    lendable = [max(guaranteed - demand, 0) for demand in demands]
    borrowing = [
        min(max(demand - guaranteed, 0), amount)
        for demand, amount in zip(demands, balances, strict=True)
    ]
    supply, wanted = sum(lendable) + public, sum(borrowing)
    if supply >= wanted:
        # Public slices are lent last.
        lent = _levelled(balances, lendable, min(wanted, sum(lendable)))
        borrowed = borrowing
    else:
        lent = lendable
        borrowed = _levelled([-amount for amount in balances], borrowing, supply)
    return Quantum(
        [own[u] + borrowed[u] for u in users],
        [balances[u] + lent[u] - borrowed[u] for u in users],
    )


def _levelled(start: Sequence[int], limits: Sequence[int], total: int) -> list[int]:
    """Raise the lowest values unit by unit, until a total is distributed or all limits are reached.

    Args:
        start: Initial values.
        limits: Largest increase of each value.
        total: Units to distribute.

    Returns:
        The increase of each value.
    """
    values, limit_array = np.array(start, np.int64), np.array(limits, np.int64)

    def increases(level: int) -> NDArray[np.int64]:
        return np.clip(level - values, 0, limit_array)

    low, high = int(values.min()), int(values.max() + limit_array.max())
    while low < high:  # the highest level that needs at most `total`
        level = (low + high + 1) // 2
        if int(increases(level).sum()) <= total:
            low = level
        else:
            high = level - 1
    result = increases(low)
    remaining = limit_array - result
    next_in_line = np.flatnonzero((remaining > 0) & (values + result == low))
    next_in_line = next_in_line[np.argsort(remaining[next_in_line], kind="stable")]
    result[next_in_line[: total - int(result.sum())]] += 1
    return [int(rise) for rise in result]


class EmulatedKarma(Periodic):
    """Emulates Karma's credits, with slices of 1/65,536 of the cluster.

    Karma cannot take held resources from a user in the next quantum. A user's demand is therefore
    the slices it holds. With a waiting task, the demand is at least the guarantee. All weights are
    1.

    Within a quantum, Karma allocates slices one by one, and each borrowed slice costs a credit at
    once. The order within a quantum therefore counts the slices borrowed since the last sample.
    """

    PERIOD: ClassVar[float] = 60.0

    def __init__(self, policy: karma.Karma, capacity: Quantities, period: float) -> None:
        super().__init__(period)
        self._resource = policy.resource
        self._capacity = max(capacity[policy.resource], 1)
        self._public = int((1.0 - policy.alpha) * _SLICES)
        self._indices: dict[int, int] = {}
        self._credits: list[int] = []
        self._held: list[int] = []
        self._wants: list[bool] = []
        self._charged: list[int] = []
        """For each user, the number of borrowed slices that the last sample charged."""

    @override
    def join(self, user: int, weight: float, commitment: float) -> None:
        self._indices[user] = len(self._indices)
        mean = sum(self._credits) // len(self._credits) if self._credits else 0
        self._credits.append(mean if self._credits else _PLENTY * _SLICES)
        self._held.append(0)
        self._wants.append(False)
        self._charged.append(0)

    @override
    def started(self, user: int, demand: Quantities, now: float) -> None:
        self._held[self._indices[user]] += demand[self._resource]

    @override
    def ended(self, user: int, demand: Quantities, since: float, now: float) -> None:
        self._held[self._indices[user]] -= demand[self._resource]

    @override
    def wants(self, user: int, *, waiting: bool) -> None:
        self._wants[self._indices[user]] = waiting

    @override
    def sample(self, count: int) -> None:
        guaranteed = self._guaranteed
        held = [self._in_slices(amount) for amount in self._held]
        self._charged = [self._borrowed(slices) for slices in held]
        demands = [
            max(slices, guaranteed) if wants else slices
            for slices, wants in zip(held, self._wants, strict=True)
        ]
        if not demands or max(demands) <= guaranteed:
            return  # no user borrows: all users get equal credits, so the order stays
        for _ in range(count):
            self._credits = quantum(self._credits, demands, _SLICES, self._public).credits

    @override
    def key(self, user: int) -> Key:
        index = self._indices[user]
        slices = self._in_slices(self._held[index])
        fresh = max(self._borrowed(slices) - self._charged[index], 0)
        return float(slices >= self._guaranteed), float(fresh - self._credits[index])

    def _borrowed(self, slices: int) -> int:
        """Return how many slices a user has borrowed: those that it holds beyond its guarantee.

        Args:
            slices: Slices that the user holds.
        """
        return max(slices - self._guaranteed, 0)

    def _in_slices(self, held: int) -> int:
        return round(held * _SLICES / self._capacity)

    @property
    def _guaranteed(self) -> int:
        return (_SLICES - self._public) // max(len(self._credits), 1)
