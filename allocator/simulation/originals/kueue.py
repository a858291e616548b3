"""Kueue emulated: each queue is sampled at its own instants, and admission costs a penalty."""

import heapq
from collections.abc import Collection
from dataclasses import dataclass
from typing import ClassVar

from typing_extensions import override

from allocator.fairness.policies.rivals.kueue_afs import KueueAfs
from allocator.fairness.quantities import Quantities
from allocator.simulation.originals.metered import Meter, less
from allocator.simulation.originals.original import EmulatedScheduler, Key

_NOTHING = 1e-15
"""Consumed use below this value counts as 0: queues with less no longer differ."""


@dataclass(slots=True)
class _LocalQueue:
    weight: float
    consumed: float
    last: float = 0.0
    held: float = 0.0
    due: bool = False
    """True if the queue's next sample is scheduled."""


class Kueue(EmulatedScheduler):
    """Kueue's accounting: `admission_fair_sharing.go` and the controllers of queues and workloads.

    The controllers are `localqueue_controller.go` and `workload_controller.go`. A sample treats the
    held resources U as held since the queue's last sample, t seconds ago. The consumed use becomes
    A ← A·(1 − α(t)) + U·α(t), with α(t) = 1 − 0.5^(t/h) and the half-life h. A queue is sampled
    when a workload is admitted, and one interval after its last sample. An admission also adds
    α(interval) times the workload's request.
    """

    PERIOD: ClassVar[float] = 300.0

    def __init__(self, policy: KueueAfs, capacity: Quantities, period: float) -> None:
        self.period = period
        self._meter = Meter(policy, capacity)
        self._half_life = policy.half_life
        self._penalty = 1.0 - 0.5 ** (period / policy.half_life)
        self._users: dict[int, _LocalQueue] = {}
        self._schedule_heap: list[tuple[float, int]] = []

    @override
    def join(self, user: int, weight: float, commitment: float) -> None:
        self._users[user] = queue = _LocalQueue(weight, commitment)
        self._schedule(user, queue)

    @override
    def started(self, user: int, demand: Quantities, now: float) -> None:
        queue, rate = self._users[user], self._meter.rate(demand)
        queue.held += rate
        if not queue.due:  # samples of an unused queue were skipped
            queue.last += (now - queue.last) // self.period * self.period
        self._sample(queue, now)
        queue.consumed += self._penalty * rate
        self._schedule(user, queue)

    @override
    def ended(self, user: int, demand: Quantities, since: float, now: float) -> None:
        queue = self._users[user]
        queue.held = less(queue.held, self._meter.rate(demand))

    @override
    def renewed(self, now: float) -> Collection[int] | None:
        changed = []
        while self._schedule_heap and self._schedule_heap[0][0] <= now:
            when, user = heapq.heappop(self._schedule_heap)
            queue = self._users[user]
            queue.due = False
            # Otherwise an admission has sampled the queue since.
            if queue.last + self.period <= when:
                samples = max((now - queue.last) // self.period, 1.0)
                self._sample(queue, queue.last + samples * self.period)
                changed.append(user)
            self._schedule(user, queue)
        return changed

    @override
    def key(self, user: int) -> Key:
        queue = self._users[user]
        return (queue.consumed / queue.weight,)

    def _sample(self, queue: _LocalQueue, now: float) -> None:
        remaining = 0.5 ** (max(now - queue.last, 0.0) / self._half_life)
        queue.consumed = queue.consumed * remaining + queue.held * (1.0 - remaining)
        queue.last = now

    def _schedule(self, user: int, queue: _LocalQueue) -> None:
        if not queue.due and (queue.held or queue.consumed > _NOTHING):
            queue.due = True
            heapq.heappush(self._schedule_heap, (queue.last + self.period, user))
