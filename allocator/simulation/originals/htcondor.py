"""HTCondor emulated: user priorities change only when the negotiator begins a cycle."""

from dataclasses import dataclass
from typing import ClassVar

from typing_extensions import override

from allocator.fairness.policies.rivals.htcondor import HtCondor
from allocator.fairness.quantities import Quantities
from allocator.simulation.originals.metered import Meter, less
from allocator.simulation.originals.original import Key, Periodic


@dataclass(slots=True)
class _Customer:
    weight: float
    priority: float
    used: float = 0.0
    """Slots held now, as a fraction of the cluster."""
    uncharged: float = 0.0
    """Correction in slot-seconds that the next sample adds to `used` × period (`UnchargedTime`)."""


class Condor(Periodic):
    """HTCondor's accounting: `AddMatch`, `RemoveMatch`, `UpdatePriorities` in `Accountant.cpp`.

    A match is the allocation of a slot to a user. Each sample computes π ← π·β + ρ·(1 − β) for each
    user. π is the user's priority, at least half a slot. β is 0.5^(δt/h), with the half-life h. ρ
    is the mean number of held slots since the last sample, in whole seconds. Matches that begin or
    end between two samples correct ρ. A match that begins subtracts the seconds since the last
    sample. A match that ends adds the seconds since its start, or since the last sample if the
    match began before. HTCondor therefore charges too little for a match that begins and ends
    between two samples.
    """

    PERIOD: ClassVar[float] = 60.0

    def __init__(self, policy: HtCondor, capacity: Quantities, period: float) -> None:
        super().__init__(period)
        self._meter = Meter(policy, capacity)
        self._aging = 0.5 ** (period / policy.half_life)
        self._least = policy.least
        self._users: dict[int, _Customer] = {}

    @override
    def join(self, user: int, weight: float, commitment: float) -> None:
        self._users[user] = _Customer(weight, max(commitment, self._least))

    @override
    def started(self, user: int, demand: Quantities, now: float) -> None:
        account, rate = self._users[user], self._meter.rate(demand)
        account.used += rate
        account.uncharged -= (int(now) - int(self.last)) * rate

    @override
    def ended(self, user: int, demand: Quantities, since: float, now: float) -> None:
        account, rate = self._users[user], self._meter.rate(demand)
        account.used = less(account.used, rate)
        account.uncharged += (int(now) - max(int(since), int(self.last))) * rate

    @override
    def sample(self, count: int) -> None:
        aging, later = self._aging, self._aging ** (count - 1)
        for account in self._users.values():
            recent = account.used + account.uncharged / self.period
            account.uncharged = 0.0
            priority = max(account.priority * aging + recent * (1.0 - aging), self._least)
            priority = priority * later + account.used * (1.0 - later)
            account.priority = max(priority, self._least)

    @override
    def key(self, user: int) -> Key:
        account = self._users[user]
        return (account.priority / account.weight,)
