"""KAI as it is: each cycle divides the cluster anew, by weights that past use shrinks."""

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

    It is no ranking of its own, so it is there for simulations by cycles alone. Between cycles the
    order is that of max_r oᵣ / Fᵣ, with F the fair share of the last cycle; without cycles F is w.
    """

    name: ClassVar[str] = "kai"

    half_life: HalfLife = 604800.0
    """Time in which what was used counts half: seconds, or such as `"4h"`, `"7d"`."""
    k: Annotated[float, Field(ge=0.0, allow_inf_nan=False)] = 1.0
    """How much use in the past shrinks a weight."""
    slots: Annotated[float, Field(gt=0.0, allow_inf_nan=False)] = 1000.0
    """Whole units of each resource that the cluster has; fair shares are such."""

    @override
    def key(self, account: Account) -> float:
        return account.share / account.weight


@dataclass(slots=True)
class Request:
    """What a queue asks a division for, in units."""

    weight: float
    used: float
    """In the past, as a fraction of the capacity."""
    wanted: float


def division(total: float, requests: Sequence[Request], k: float) -> list[float]:
    """Return the fair share of each of some queues without a deserved quota, of one priority.

    In rounds, over those who lack something: P = max(0, W + k·(W − U)) with W the part of the
    weights of who lacks something; each gets what is left · P / ΣP, in whole units unless that is
    all it wants; another round if somebody wanted less. What rounding has left goes out by single
    units, to those first who lost most by it.
    """
    shares = [0.0] * len(requests)
    lost: dict[int, float] = {}
    while True:
        lacking = [q for q, request in enumerate(requests) if request.wanted > shares[q]]
        weights = sum(requests[q].weight for q in lacking)
        parts = {}
        for q in lacking:
            own = requests[q].weight / weights
            parts[q] = max(0.0, own + k * (own - requests[q].used))
        of_all, giving, again = sum(parts.values()), total, False
        if not of_all or not total:
            break
        for q, part in parts.items():
            fair, wanted = giving * part / of_all, requests[q].wanted - shares[q]
            given = wanted if wanted <= fair else math.floor(fair)
            lost.pop(q, None)
            if wanted > fair > given:
                lost[q] = fair - given
            shares[q] += given
            total -= given
            again = again or 0.0 < wanted < fair
        if not again:
            break
    for q in sorted(lost, key=lambda q: (-lost[q], q)):
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
    """Fraction × seconds of what was held since the last cycle, by resource."""
    fair: dict[str, float] = field(default_factory=dict)
    wants: bool = False
    since: float = 0.0


class KaiCycles(Periodic):
    """Fair shares of every cycle. Who has a task that waits asks for the whole cluster."""

    PERIOD: ClassVar[float] = 60.0

    def __init__(self, policy: Kai, capacity: Quantities, period: float) -> None:
        super().__init__(period)
        self._policy = policy
        self._capacity = capacity
        self._decay = 0.5 ** (period / policy.half_life)
        self._users: dict[int, _Queue] = {}

    @override
    def join(self, user: int, weight: float, owed: float) -> None:
        names = list(self._capacity)
        nothing = dict.fromkeys(names, 0.0)
        self._users[user] = _Queue(
            weight, dict.fromkeys(names, owed), dict(nothing), dict(nothing), since=self.last
        )

    @override
    def started(self, user: int, demand: Quantities, now: float) -> None:
        self._hold(user, demand.shares(self._capacity), now, 1)

    @override
    def ended(self, user: int, demand: Quantities, since: float, now: float) -> None:
        self._hold(user, demand.shares(self._capacity), now, -1)

    @override
    def wants(self, user: int, *, more: bool) -> None:
        self._users[user].wants = more

    @override
    def look(self, times: int) -> None:
        first, later = self.last - (times - 1) * self.period, self._decay ** (times - 1)
        for queue in self._users.values():
            for name, held in queue.held.items():
                mean = (queue.area[name] + held * (first - queue.since)) / self.period
                used = queue.used[name] * self._decay + mean * (1.0 - self._decay)
                queue.used[name] = used * later + held * (1.0 - later)
                queue.area[name] = 0.0
            queue.since = self.last
        for name in self._capacity:
            asked = [self._request(queue, name) for queue in self._users.values()]
            shares = division(self._policy.slots, asked, self._policy.k)
            for queue, share in zip(self._users.values(), shares, strict=True):
                queue.fair[name] = share / self._policy.slots

    @override
    def key(self, user: int) -> Key:
        queue = self._users[user]
        fair = queue.fair or dict.fromkeys(queue.held, queue.weight)
        return (max((_over(held, fair[name]) for name, held in queue.held.items()), default=0.0),)

    def _request(self, queue: _Queue, name: str) -> Request:
        slots = self._policy.slots
        wanted = slots if queue.wants else queue.held[name] * slots
        return Request(queue.weight, queue.used[name], wanted)

    def _hold(self, user: int, shares: Mapping[str, float], now: float, sign: int) -> None:
        queue = self._users[user]
        for name, held in queue.held.items():
            queue.area[name] += held * (now - queue.since)
            rest = held + sign * shares.get(name, 0.0)
            queue.held[name] = rest if rest > 1e-12 else 0.0
        queue.since = now


def _over(held: float, fair: float) -> float:
    if fair:
        return held / fair
    return math.inf if held else 0.0
