"""Volcano emulated: use decays once per cycle; tasks that run at a cycle count for all of it."""

from dataclasses import dataclass
from typing import ClassVar

from typing_extensions import override

from allocator.fairness.policies.rivals import volcano
from allocator.fairness.quantities import Quantities
from allocator.simulation.originals.metered import Meter, less
from allocator.simulation.originals.original import Key, Periodic


@dataclass(slots=True)
class _Namespace:
    weight: float
    use: float
    held: float = 0.0


class EmulatedVolcano(Periodic):
    """Volcano's accounting: `OnSessionOpen` in `plugins/fairshare/fairshare.go`.

    A cycle computes U ← U·2^(−Δ/h) + held·Δ for each user. U is the user's decayed use, Δ the
    period, h the half-life, and held the amount held at the cycle. Earlier allocations since the
    last cycle do not count, so a task that begins and ends between two cycles costs nothing. Among
    equal users, the user that holds less now is first. Volcano also treats uses as equal if they
    differ by less than a resource-second; the emulation does not.
    """

    PERIOD: ClassVar[float] = 1.0

    def __init__(self, policy: volcano.Volcano, capacity: Quantities, period: float) -> None:
        super().__init__(period)
        self._meter = Meter(policy, capacity)
        self._decay = 2.0 ** (-period / policy.half_life)
        self._per_share = policy.tau
        self._users: dict[int, _Namespace] = {}

    @override
    def join(self, user: int, weight: float, commitment: float) -> None:
        self._users[user] = _Namespace(weight, commitment * self._per_share)

    @override
    def started(self, user: int, demand: Quantities, now: float) -> None:
        self._users[user].held += self._meter.rate(demand)

    @override
    def ended(self, user: int, demand: Quantities, since: float, now: float) -> None:
        account = self._users[user]
        account.held = less(account.held, self._meter.rate(demand))

    @override
    def sample(self, count: int) -> None:
        decay = self._decay**count
        cycles = (1.0 - decay) / (1.0 - self._decay)
        for account in self._users.values():
            account.use = account.use * decay + account.held * self.period * cycles

    @override
    def key(self, user: int) -> Key:
        account = self._users[user]
        return account.use / account.weight, account.held
