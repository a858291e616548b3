"""KAI emulated: each cycle divides the whole cluster by weights that past use reduces."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from pydantic import Field
from typing_extensions import override

from allocator.fairness.account import Account
from allocator.fairness.policies.policy import KeyPolicy
from allocator.fairness.policies.rivals.decayed_use import HalfLife
from allocator.fairness.quantities import Quantities
from allocator.simulation.originals.original import Key, Periodic


class Kai(KeyPolicy):
    """KAI's time-based fair share (`resource_division.go`, `queue_order.go`, v0.17).

    The policy has no continuous ranking, so it exists only for simulations in cycles. Between
    cycles, queues are ordered by max_r oᵣ / Fᵣ: o is the held fraction of resource r, F the fair
    share of the last cycle. Before the first cycle, F is the queue's weight.
    """

    name: ClassVar[str] = "kai"

    half_life: HalfLife = 604800.0
    """Half-life of past use: seconds, or a duration such as `"7d"`."""
    k: Annotated[float, Field(ge=0.0, allow_inf_nan=False)] = 1.0
    """Strength with which past use reduces a queue's weight; 0 ignores past use."""
    slots: Annotated[float, Field(gt=0.0, allow_inf_nan=False)] = 1000.0
    """Number of whole units into which each resource is divided; fair shares are whole units."""

    @override
    def key(self, account: Account) -> float:
        return account.share / account.weight


@dataclass(slots=True)
class Request:
    """One queue's request for a resource in a cycle: weight, past use and requested amount."""

    weight: float
    used: float
    """Past use of the queue, as a fraction of the capacity."""
    wanted: float


def division(total: float, requests: Sequence[Request], k: float) -> list[float]:
    """Divide a resource among queues as KAI does. Return the fair share of each queue, in units.

    All queues have the same priority and no deserved quota.

    The division goes in rounds over the queues that want more than they have. Let W be a queue's
    fraction of these queues' weights. Its factor is P = max(0, W + k·(W − U)), where U is its past
    use. Each queue gets the remaining units · P / ΣP, in whole units, unless it wants less. If a
    queue wanted less, another round follows. Finally, units that remain because of rounding are
    given one by one, first to queues that lost most by rounding.

    Args:
        total: Number of units to divide.
        requests: One request per queue.
        k: Strength with which past use reduces a weight.
    """
    shares = [0.0] * len(requests)
    rounding_loss: dict[int, float] = {}
    while True:
        wanting = [q for q, request in enumerate(requests) if request.wanted > shares[q]]
        weights = sum(requests[q].weight for q in wanting)
        factors = {}
        for q in wanting:
            own = requests[q].weight / weights
            factors[q] = max(0.0, own + k * (own - requests[q].used))
        total_factor, available, another_round = sum(factors.values()), total, False
        if not total_factor or not total:
            break
        for q, factor in factors.items():
            fair, wanted = available * factor / total_factor, requests[q].wanted - shares[q]
            given = wanted if wanted <= fair else math.floor(fair)
            rounding_loss.pop(q, None)
            if wanted > fair > given:
                rounding_loss[q] = fair - given
            shares[q] += given
            total -= given
            another_round = another_round or 0.0 < wanted < fair
        if not another_round:
            break
    for q in sorted(rounding_loss, key=lambda q: (-rounding_loss[q], q)):
        given = min(1.0, max(total, 0.0))
        shares[q] += given
        total -= given
    return shares


@dataclass(slots=True)
class _Queue:
    weight: float
    used: dict[str, float]
    held: dict[str, float]
    area: dict[str, float]
    """For each resource, the fraction held, integrated over the seconds since the last cycle."""
    fair: dict[str, float] = field(default_factory=dict)
    wants: bool = False
    since: float = 0.0


class KaiCycles(Periodic):
    """Emulates KAI: every cycle computes the queues' fair shares.

    A user is a queue. With a waiting task, the queue requests the whole cluster.
    """

    PERIOD: ClassVar[float] = 60.0

    def __init__(self, policy: Kai, capacity: Quantities, period: float) -> None:
        super().__init__(period)
        self._policy = policy
        self._capacity = capacity
        self._decay = 0.5 ** (period / policy.half_life)
        self._users: dict[int, _Queue] = {}

    @override
    def join(self, user: int, weight: float, commitment: float) -> None:
        names = list(self._capacity)
        zero = dict.fromkeys(names, 0.0)
        self._users[user] = _Queue(
            weight, dict.fromkeys(names, commitment), dict(zero), dict(zero), since=self.last
        )

    @override
    def started(self, user: int, demand: Quantities, now: float) -> None:
        self._hold(user, demand.shares(self._capacity), now, 1)

    @override
    def ended(self, user: int, demand: Quantities, since: float, now: float) -> None:
        self._hold(user, demand.shares(self._capacity), now, -1)

    @override
    def wants(self, user: int, *, waiting: bool) -> None:
        self._users[user].wants = waiting

    @override
    def sample(self, count: int) -> None:
        first, later = self.last - (count - 1) * self.period, self._decay ** (count - 1)
        for queue in self._users.values():
            for name, held in queue.held.items():
                mean = (queue.area[name] + held * (first - queue.since)) / self.period
                used = queue.used[name] * self._decay + mean * (1.0 - self._decay)
                queue.used[name] = used * later + held * (1.0 - later)
                queue.area[name] = 0.0
            queue.since = self.last
        for name in self._capacity:
            requests = [self._request(queue, name) for queue in self._users.values()]
            shares = division(self._policy.slots, requests, self._policy.k)
            for queue, share in zip(self._users.values(), shares, strict=True):
                queue.fair[name] = share / self._policy.slots

    @override
    def key(self, user: int) -> Key:
        queue = self._users[user]
        fair = queue.fair or dict.fromkeys(queue.held, queue.weight)
        return (max((_ratio(held, fair[name]) for name, held in queue.held.items()), default=0.0),)

    def _request(self, queue: _Queue, name: str) -> Request:
        slots = self._policy.slots
        wanted = slots if queue.wants else queue.held[name] * slots
        return Request(queue.weight, queue.used[name], wanted)

    def _hold(self, user: int, shares: Mapping[str, float], now: float, sign: int) -> None:
        queue = self._users[user]
        for name, held in queue.held.items():
            queue.area[name] += held * (now - queue.since)
            remaining = held + sign * shares.get(name, 0.0)
            queue.held[name] = remaining if remaining > 1e-12 else 0.0
        queue.since = now


def _ratio(held: float, fair: float) -> float:
    if fair:
        return held / fair
    return math.inf if held else 0.0
