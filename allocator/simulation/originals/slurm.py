"""Slurm emulated: use decays and priorities change once per PriorityCalcPeriod."""

from dataclasses import dataclass, field
from typing import ClassVar

from typing_extensions import override

from allocator.fairness.policies.rivals.slurm_fair_tree import SlurmFairTree
from allocator.fairness.quantities import Quantities
from allocator.simulation.originals.metered import Meter, less
from allocator.simulation.originals.original import Key, Periodic

_ALMOST_LN_2 = 0.693
"""Slurm's approximation of ln 2: use decays per second by the factor 1 − 0.693 / half-life.

The exact factor would be e^(−ln 2 / half-life).
"""


@dataclass(slots=True)
class _Association:
    weight: float
    use: float
    """Decayed use: billed units × seconds, as a fraction of the cluster's."""
    running: float = 0.0
    """Usage rate of the jobs that were already running at the last sample."""
    fresh: list[tuple[float, float]] = field(default_factory=list)
    """(start in seconds, usage rate) of each job that has started since the last sample."""
    key: float = 0.0


class Slurm(Periodic):
    """Slurm's accounting: `_decay_thread`, `_apply_new_usage` in `priority_multifactor.c`.

    A sample multiplies users' recorded usage by d^Δ: d is the decay per second, Δ the period. Then
    each running job adds r·d^r times its billed units per second. Here r is the number of whole
    seconds that the job ran since the last sample. A job that ends adds its use at once. The order
    changes only at samples.
    """

    PERIOD: ClassVar[float] = 300.0

    def __init__(self, policy: SlurmFairTree, capacity: Quantities, period: float) -> None:
        super().__init__(period)
        self._meter = Meter(policy, capacity)
        self._decay = 1.0 - _ALMOST_LN_2 / policy.half_life
        self._per_share = policy.tau
        self._users: dict[int, _Association] = {}

    @override
    def join(self, user: int, weight: float, commitment: float) -> None:
        use = commitment * self._per_share
        self._users[user] = _Association(weight, use, key=use / weight)

    @override
    def started(self, user: int, demand: Quantities, now: float) -> None:
        self._users[user].fresh.append((now, self._meter.rate(demand)))

    @override
    def ended(self, user: int, demand: Quantities, since: float, now: float) -> None:
        account, rate = self._users[user], self._meter.rate(demand)
        if (since, rate) in account.fresh:
            account.fresh.remove((since, rate))
        else:
            account.running = less(account.running, rate)
        account.use += self._charge(max(since, self.last), now) * rate

    @override
    def sample(self, count: int) -> None:
        first = self.last - (count - 1) * self.period
        decay = self._decay**self.period
        later = decay ** (count - 1)
        for account in self._users.values():
            added = self.period * decay * account.running
            for since, rate in account.fresh:
                added += self._charge(since, first) * rate
                account.running += rate
            account.fresh.clear()
            use = account.use * decay + added
            full = self.period * decay * account.running
            account.use = use * later + full * (1.0 - later) / (1.0 - decay)
            account.key = account.use / account.weight

    @override
    def key(self, user: int) -> Key:
        return (self._users[user].key,)

    def _charge(self, since: float, until: float) -> float:
        """Return how many seconds of use Slurm charges for the time between two instants.

        Slurm counts only whole seconds.

        Args:
            since: The earlier instant, in seconds since the trace's origin.
            until: The later instant.
        """
        ran = max(int(until) - int(since), 0)
        return float(ran * self._decay**ran)
