"""Parameters of a whole pool, and the values of accounts that are computed from them."""

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
    """Rates accounts: computes shares, over-use and task counts from allocations.

    Args:
        policy: Defines the values that are compared with entitlements, and the over-use.
        capacity: The resources that are shared.
        excluded: Names of resources that do not count in shares.
        machines: The machines that make up the capacity; for policies that count tasks.
        counts_for: A user's fraction of n is at most this multiple of its use (`counting.py`).
            Infinite: every known user counts with its whole weight, as in the papers.
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
        self.counts_by_use = counts_for < math.inf
        """Whether users count by their use, so that users without use concern no others."""
        self._has_memory = policy.tau is not None
        self._least = policy.least
        self._adds_up = type(policy).rate_of_use is not Policy.rate_of_use
        self.remembers = not isinstance(policy, KeyPolicy)
        """Whether priorities may depend on earlier allocations."""
        self.tau = policy.tau
        """Time constant of the decay of commitments in seconds. None: commitments do not decay."""
        self.charging = True
        """Whether over-use makes commitments."""
        self.part = 1.0
        """The fraction of the capacity that the users are entitled to together."""
        self.weights = 0.0
        """The sum of the weights that users count with."""
        self._weights = Fraction(0)
        """The sum of all users' weights without rounding, so that users that are removed leave no
        residue."""
        self.capacity = capacity

    def twin(self) -> "PoolParameters[User]":
        """Return a copy that later changes of this object do not affect."""
        duplicate = copy(self)
        if self._policy.counts_tasks:
            duplicate.machines = deepcopy(self.machines)
        return duplicate

    @property
    def capacity(self) -> Quantities:
        """The resources that are shared."""
        return self._capacity

    @capacity.setter
    def capacity(self, capacity: Quantities) -> None:
        self._capacity = capacity
        self._counted_amounts: list[tuple[str, int]] | None = None
        """Amounts of the capacity that count in shares. None: not computed since the last
        change."""

    def reweigh(self, added: float, removed: float) -> None:
        """Change the total weight of all users after users came, left or got other weights.

        Args:
            added: Weight to add to the total.
            removed: Weight to subtract from the total.
        """
        self._weights += Fraction(added) - Fraction(removed)
        if self.counts_for == math.inf:
            self.weights = float(self._weights)

    def count_users(self, accounts: Mapping[User, Account]) -> tuple[float, dict[User, float]]:
        """Compute from the users' use the weights with which they count in n (SDRF paper, Eq. 7).

        Returns:
            The total weight, and weights by user, except users whose weight is and was 0.
        """
        counted_users = {
            user: CountedUser(
                account.weight, max(account.in_use, account.mean_use) / self.part, account.named
            )
            for user, account in accounts.items()
            if account.in_use or account.mean_use or account.named or account.counted
        }
        times = self.counts_for
        total = counted_weight(counted_users.values(), times)
        return total, {
            user: counted_user.weight_of(total, times)
            for user, counted_user in counted_users.items()
        }

    def dominant_share(self, quantities: Quantities) -> float:
        """Return the largest fraction of a resource's capacity, of resources that count."""
        return max(quantities.parts_of(self._amounts_that_count()).values(), default=0.0)

    def counted(self, demand: Quantities | None) -> Quantities | None:
        """Return a task's demand without resources that do not count in shares; None if empty."""
        counted = {
            name: amount for name, amount in (demand or {}).items() if name not in self.excluded
        }
        return Quantities(counted) if counted else None

    def entitlement(self, account: Account) -> float:
        """Return the fraction of the capacity to which a user is entitled.

        If users count by their use, the result assumes that this user counts with its whole weight,
        and that all other users count as now.
        """
        weight, weights = account.weight, self.weights
        if self.counts_for < math.inf and account.counted != weight:
            weights += weight - account.counted
        return self.part * weight / weights

    def rate(self, account: Account) -> None:
        """Compute an account's entitlement, shares and over-use from its allocation. O(m).

        m is the number of resources.
        """
        account.entitlement = self.entitlement(account)
        account.shares = account.allocation.parts_of(self._amounts_that_count())
        measured = self._policy.measure(account)
        if self._has_memory:
            free = self._policy.free_of_charge(account) if self.charging else math.inf
            account.owe(measured, free, self._least)
        else:
            account.measured = measured
        if self._adds_up:
            account.rate_of_use = self._policy.rate_of_use(account)

    def _amounts_that_count(self) -> list[tuple[str, int]]:
        """Return the amounts of the capacity that count in shares."""
        if self._counted_amounts is None:
            self._counted_amounts = [
                (name, amount)
                for name, amount in self._capacity.items()
                if name not in self.excluded
            ]
        return self._counted_amounts

    def count_tasks(self, user: User, account: Account) -> None:
        """Set how many tasks a user could run alone in its account, if the policy counts tasks."""
        if not self._policy.counts_tasks:
            return
        demand = account.demand
        if demand is None:
            account.monopoly = account.constrained_monopoly = 0
        else:
            account.monopoly = self.machines.monopoly(demand)
            account.constrained_monopoly = self.machines.constrained_monopoly(user, demand)
