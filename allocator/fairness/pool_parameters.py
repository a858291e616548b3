"""What holds for all users of a pool alike, and what it makes of what each of them holds."""

import math
from collections.abc import Collection, Hashable, Mapping
from copy import copy, deepcopy
from fractions import Fraction
from typing import Generic, TypeVar

from allocator.fairness.account import Account
from allocator.fairness.counting import CountedUser, counted_weight
from allocator.fairness.machines import Machines
from allocator.fairness.policies.policy import KeyPolicy, Policy
from allocator.fairness.quantities import Quantities

User = TypeVar("User", bound=Hashable)


class PoolParameters(Generic[User]):
    """Rates accounts: shares, over-use, tasks; and settles them.

    Args:
        policy: Says what counts.
        capacity: What is shared.
        excluded: Resources that do not count in shares.
        machines: Of which the capacity is the sum; for policies that count tasks.
        counts_for: How many times its use a user counts for at most (`counting.py`). Infinite:
            every known user counts whole, as in the papers.
    """

    def __init__(
        self,
        policy: Policy,
        capacity: Quantities,
        excluded: Collection[str],
        machines: Machines[User],
        counts_for: float = math.inf,
    ) -> None:
        self._policy = policy
        self.counts_for = counts_for
        self.excluded = frozenset(excluded)
        self.machines = machines
        self._has_memory = policy.tau is not None
        self._least = policy.least
        self._adds_up = type(policy).rate_of_use is not Policy.rate_of_use
        self.remembers = not isinstance(policy, KeyPolicy)
        """Whether what a user held before may matter."""
        self.tau = policy.tau
        """With which debts fade, in seconds; None: they do not."""
        self.charging = True
        """Whether over-use makes debts."""
        self.part = 1.0
        """The part of the capacity to which the users are entitled together."""
        self.weights = 0.0
        """The sum over all users, as they count."""
        self._weights = Fraction(0)
        """The same without rounding, so that nothing is left of those who have gone."""
        self.capacity = capacity

    def twin(self) -> "PoolParameters[User]":
        """Return terms that are as these are, whatever happens to these."""
        twin = copy(self)
        if self._policy.counts_tasks:
            twin.machines = deepcopy(self.machines)
        return twin

    @property
    def capacity(self) -> Quantities:
        """What is shared."""
        return self._capacity

    @capacity.setter
    def capacity(self, capacity: Quantities) -> None:
        self._capacity = capacity
        self._counted: list[tuple[str, int]] | None = None
        """What of it counts; None: nobody has asked since it changed."""

    def reweigh(self, more: float, less: float) -> None:
        """Follow that users weigh so much more, and less, together."""
        self._weights += Fraction(more) - Fraction(less)
        if self.counts_for == math.inf:
            self.weights = float(self._weights)

    def count_users(self, accounts: Mapping[User, Account]) -> tuple[float, dict[User, float]]:
        """Return the weight that users count for by what they use: together, and each.

        Users that count for nothing, and did so before, are left out.
        """
        users = {
            user: CountedUser(
                account.weight, max(account.in_use, account.mean_use) / self.part, account.named
            )
            for user, account in accounts.items()
            if account.in_use or account.mean_use or account.named or account.counted
        }
        times = self.counts_for
        total = counted_weight(users.values(), times)
        return total, {
            user: counted_user.weight_of(total, times) for user, counted_user in users.items()
        }

    def dominant_share(self, quantities: Quantities) -> float:
        """Return the largest part of the capacity that quantities are, of what counts."""
        return max(quantities.parts_of(self._counting()).values(), default=0.0)

    def counted(self, demand: Quantities | None) -> Quantities | None:
        """Return what counts of a task's demand; None: nothing."""
        counted = {n: a for n, a in (demand or {}).items() if n not in self.excluded}
        return Quantities(counted) if counted else None

    def entitlement(self, account: Account) -> float:
        """Return the part of the capacity that a user is entitled to.

        If users count by their use, this is the entitlement of a user that counts with its whole
        weight, while all other users count as they do now.
        """
        weight, weights = account.weight, self.weights
        if self.counts_for < math.inf and account.counted != weight:
            weights += weight - account.counted
        return self.part * weight / weights

    def rate(self, account: Account) -> None:
        """Work out what is made of what a user holds. O(m) in m resources."""
        account.entitlement = self.entitlement(account)
        account.shares = account.allocation.parts_of(self._counting())
        measured = self._policy.measure(account)
        if self._has_memory:
            free = self._policy.free_of_charge(account) if self.charging else math.inf
            account.owe(measured, free, self._least)
        else:
            account.measured = measured
        if self._adds_up:
            account.rate_of_use = self._policy.rate_of_use(account)

    def _counting(self) -> list[tuple[str, int]]:
        """Return what of the capacity counts."""
        if self._counted is None:
            self._counted = [(n, a) for n, a in self._capacity.items() if n not in self.excluded]
        return self._counted

    def count_tasks(self, user: User, account: Account) -> None:
        """Work out how many tasks a user could run if it were alone, if the policy asks."""
        if not self._policy.counts_tasks:
            return
        demand = account.demand
        if demand is None:
            account.monopoly = account.constrained_monopoly = 0
        else:
            account.monopoly = self.machines.monopoly(demand)
            account.constrained_monopoly = self.machines.constrained_monopoly(user, demand)
