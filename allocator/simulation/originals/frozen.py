"""Simulates sampled usage for policies that have no emulated scheduler.

Priorities are computed only when usage is sampled, and stay fixed in between.
"""

from typing import ClassVar

from typing_extensions import override

from allocator.fairness.policies import Policy
from allocator.fairness.pool import Pool
from allocator.fairness.quantities import Quantities
from allocator.simulation.originals.original import Key, Periodic


class SampledPolicy(Periodic):
    """Any policy of the live cluster, with priorities that stay fixed between two samples."""

    PERIOD: ClassVar[float] = 300.0

    def __init__(self, policy: Policy, capacity: Quantities, period: float) -> None:
        super().__init__(period)
        self._pool: Pool[int] = Pool(policy, capacity=capacity)
        self._keys: dict[int, float] = {}

    @override
    def join(self, user: int, weight: float, commitment: float) -> None:
        self._pool.add(user, weight=weight, commitment=commitment)
        self._keys[user] = self._pool.standing(user).priority

    @override
    def started(self, user: int, demand: Quantities, now: float) -> None:
        self._pool.advance(now)
        self._pool.allocate(user, demand, times=0)

    @override
    def ended(self, user: int, demand: Quantities, since: float, now: float) -> None:
        self._pool.advance(now)
        self._pool.release(user, demand)

    @override
    def sample(self, count: int) -> None:
        self._pool.advance(self.last)
        for standing in self._pool.still().standings_at(self.last):
            self._keys[standing.user] = standing.priority

    @override
    def key(self, user: int) -> Key:
        return (self._keys[user],)
