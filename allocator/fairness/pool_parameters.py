"""Parameters of a whole pool, such as its capacity and total weight, and how they rate accounts.

Rating an account means to compute its shares, entitlement and over-use from its allocation.
"""

import math
from collections.abc import Collection, Hashable, Mapping
from copy import copy, deepcopy
from fractions import Fraction
from typing import Generic, TypeVar

from allocator.compilation import mypyc_attr
from allocator.cooperative import Cooperative
from allocator.fairness.account import ANY, Account
from allocator.fairness.counting import CountedUser, counted_weight
from allocator.fairness.machines import Machines
from allocator.fairness.policies.policy import KeyPolicy, Policy, accumulates
from allocator.fairness.policies.stsf import Stsf
from allocator.fairness.policies.tsf import TASKS
from allocator.fairness.quantities import Quantities

User = TypeVar("User", bound=Hashable)


@mypyc_attr(allow_interpreted_subclasses=True, serializable=True)
class PoolParameters(Generic[User]):
    """Rates accounts: computes shares, over-use and task counts from allocations.

    Args:
        policy: Defines the values that are compared with entitlements, and the over-use.
        capacity: The resources that are shared.
        excluded: Names of resources that do not count in shares.
        machines: The machines that make up the capacity; for policies that count tasks.
        counts_for: For each resource, a user's fraction of n is at most this multiple of its use
            (`counting.py`). Infinite: every known user counts with its whole weight, as in the
            papers.
        keeps_share_commitments: Whether users of policies with commitments in task shares keep
            commitments by resource, too (`renew_task_commitment`).
        compares_by_resource: Whether values are compared with entitlements by resource. If false,
            policies compare with the entitlement to the user's dominant resource.
    """

    def __init__(  # noqa: PLR0913 - the last is an optional keyword
        self,
        policy: Policy,
        capacity: Quantities,
        excluded: Collection[str],
        machines: Machines[User],
        counts_for: float = math.inf,
        *,
        keeps_share_commitments: bool = False,
        compares_by_resource: bool = False,
    ) -> None:
        self._policy = policy
        self.counts_for = counts_for
        self.excluded = frozenset(excluded)
        self.machines = machines
        self.counts_by_use = counts_for < math.inf
        """Whether users count by their use, so that users without use concern no others."""
        self._has_memory = policy.tau is not None
        self._least = policy.least
        self._measures_shares = type(policy).measure is Policy.measure
        self._entitlement_is_free = type(policy).free_of_charge is Policy.free_of_charge
        self._charges_by_resource = self.counts_by_use and self._entitlement_is_free
        self._accumulates = accumulates(policy)
        self.keeps_share_commitments = keeps_share_commitments
        self._measures_task_shares = (
            isinstance(policy, Stsf) and type(policy).measure is Stsf.measure
        )
        self._keeps_both_commitments = keeps_share_commitments and self._measures_task_shares
        self.compares_by_resource = compares_by_resource
        self.remembers = not isinstance(policy, KeyPolicy)
        """Whether priorities may depend on earlier allocations."""
        self.tau = policy.tau
        """Time constant of the decay of commitments in seconds. None: commitments do not decay."""
        self.charging = True
        """Whether over-use makes commitments."""
        self.part = 1.0
        """The fraction of the capacity that the users are entitled to together."""
        self.parts: Mapping[str, float] = {}
        """Likewise by resource, if users count by their use. Empty: the same for all resources."""
        self.weights = 0.0
        """The sum of all users' weights, if every user counts with its whole weight."""
        self.totals: Mapping[str, float] = {}
        """The sum of the weights that users count with, by resource, the most used resource first.
        The entry of `ANY` holds for all other resources."""
        self._weights = Fraction(0)
        """The exact sum of all users' weights, so that a removed user leaves no rounding error."""
        self.capacity = capacity

    def copy(self) -> "PoolParameters[User]":
        """Return a copy that later changes of this object do not affect."""
        duplicate = copy(self)
        if self._policy.counts_tasks:
            self.machines._settle()  # noqa: SLF001 - Quantities cannot be copied
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
        if not self.counts_by_use:
            self.weights = float(self._weights)

    def count_users(
        self, accounts: Mapping[User, Account]
    ) -> Cooperative[tuple[dict[str, float], dict[User, dict[str, float]]]]:
        """Compute the weight with which each user counts in n, from its use of each resource.

        n is the total weight of the pool's users. `counted_weight` explains the computation. Each
        resource takes one cooperative step.

        Args:
            accounts: Accounts of all users, with the use that `Pool.look` has sampled.

        Returns:
            The total of these weights by resource, and the weights by user and resource. Users
            whose weights were 0 and stay 0 are left out.
        """
        times = self.counts_for
        claimants = [
            (user, account, account.in_use, account.mean_use)
            for user, account in accounts.items()
            if account.in_use or account.mean_use or account.named or account.counted
        ]
        counted: dict[User, dict[str, float]] = {user: {} for user, *_ in claimants}
        used, totals = dict[str, float](), dict[str, float]()
        for name in (*(name for name, _ in self._amounts_that_count()), ANY):
            part = self.part_of(name)
            users = [
                CountedUser(
                    account.weight,
                    self._use_that_counts(in_use.get(name, 0.0), mean_use.get(name, 0.0)) / part,
                    account.named,
                )
                for _, account, in_use, mean_use in claimants
            ]
            used[name] = math.fsum(user.use for user in users)
            total = totals[name] = counted_weight(users, times)
            for (claimant, *_), user in zip(claimants, users, strict=True):
                if weight := user.weight_of(total, times):
                    counted[claimant][name] = weight
            yield
        by_use = sorted(totals, key=lambda name: -used[name])
        return {name: totals[name] for name in by_use}, counted

    def _use_that_counts(self, now: float, mean: float) -> float:
        """Return the use by which a user is counted: half its present use and half its mean use.

        So users that take turns count for no more than one user with the same use. The larger of
        both would count each twice. Policies without a half-life keep no means.
        """
        return now if self.tau is None else (now + mean) / 2.0

    def part_of(self, name: str) -> float:
        """Return the fraction of a resource to which all users of the pool together are entitled.

        In a role tree, this is the entitlement of the parent.
        """
        return self.parts.get(name, self.parts[ANY]) if self.parts else self.part

    def shares(self, quantities: Quantities) -> dict[str, float]:
        """Return quantities as fractions of the capacity, without the excluded resources."""
        return quantities.parts_of(self._amounts_that_count())

    def counted(self, demand: Quantities | None) -> Quantities | None:
        """Return a task's demand without resources that do not count in shares; None if empty."""
        counted = {
            name: amount for name, amount in (demand or {}).items() if name not in self.excluded
        }
        return Quantities(counted) if counted else None

    def entitlement(self, account: Account) -> float:
        """Return the fraction of the capacity to which a user is entitled.

        If users count by their use, this is the entitlement to the user's dominant resource. For a
        user without an allocation, it is the entitlement to the most used resource.
        """
        if not self.counts_by_use:
            return self.part * account.weight / self.weights
        shares = account.allocation.parts_of(self._amounts_that_count())
        return self._entitlement_to_dominant(self.entitlements(account), shares)

    def entitlements(self, account: Account) -> dict[str, float]:
        """Return the fraction of each resource to which a user is entitled, if users count by use.

        The user itself counts with its whole weight, while all other users count as they do now.
        The entry of `ANY` holds for resources without an entry.
        """
        weight, counted, totals = account.weight, account.counted, self.totals
        entitlements = {}
        for name in (*(name for name, _ in self._amounts_that_count()), ANY):
            key = name if name in totals else ANY
            others = totals.get(key, 0.0) - counted.get(key, 0.0)
            entitlements[name] = self.part_of(name) * weight / (weight + max(others, 0.0))
        return entitlements

    def _entitlement_to_dominant(
        self, entitlements: dict[str, float], shares: dict[str, float]
    ) -> float:
        """Return the entitlement to the resource of which a user holds the largest share."""
        dominant, largest = "", 0.0
        for name, share in shares.items():
            if share > largest:
                dominant, largest = name, share
        if not largest:
            dominant = next(iter(self.totals), ANY)
        return entitlements.get(dominant, entitlements[ANY])

    def _entitlement_to_measured(self, account: Account) -> float:
        """Return the entitlement with which values that are no shares of resources are compared.

        If all entitlements are equal, this is the entitlement. Otherwise:

        * A task share is compared with the dominant share, in proportion to the demand, at which
          the user reaches its entitlement to the first resource. So a user without over-use holds
          at most its entitlement to each resource that its tasks need.
        * Values of other policies are compared with the least entitlement to a held resource.
        """
        entitlements = account.entitlements
        if self._measures_task_shares and account.demand is not None:
            needed = account.demand.parts_of(self._amounts_that_count())
            dominant = max(needed.values())
            ratios = [
                entitlements[name] * (dominant / part) for name, part in needed.items() if part
            ]
        else:
            ratios = [entitlements[name] for name, share in account.shares.items() if share]
        return min(ratios, default=account.entitlement)

    def rate(self, account: Account) -> None:
        """Set an account's entitlement, shares and over-use, computed from its allocation. O(m).

        m is the number of resources.
        """
        if self.counts_by_use:
            account.entitlements = self.entitlements(account)
        self.rate_allocation(account)

    def rate_allocation(self, account: Account) -> None:
        """Rate an account again, of which only the allocation or the demand has changed. O(m)."""
        account.shares = account.allocation.parts_of(self._amounts_that_count())
        if not self.counts_by_use:
            account.entitlement = self.part * account.weight / self.weights
        else:
            account.entitlement = self._entitlement_to_dominant(
                account.entitlements, account.shares
            )
        measured = account.shares if self._measures_shares else self._policy.measure(account)
        if self._has_memory:
            free = account.entitlement if self.charging else math.inf
            if self.charging and not self._entitlement_is_free:
                free = self._policy.free_of_charge(account)
            parts = account.entitlements if self._charges_by_resource and self.charging else {}
            if parts and self.compares_by_resource and measured is not account.shares:
                free = self._entitlement_to_measured(account)
            account.owe(measured, free, self._least, parts)
            if self._keeps_both_commitments and measured is not account.shares:
                account.owe_for_shares(free, parts)
        else:
            account.measured = measured
        if self._accumulates:
            account.rate_of_use = self._policy.rate_of_use(account)

    def renew_task_commitment(self, account: Account, former: Quantities | None) -> None:
        """Replace an account's commitment in task shares after a change of its demand.

        A commitment in task shares depends on the demand, so a new demand ends the commitment. The
        new commitment begins with the dominant commitment by resource. If the demand was unknown, a
        restored commitment remains, unless it is smaller.

        Args:
            account: The account, with its new demand and with commitments up to now.
            former: The demand before the change; None: unknown.
        """
        if not self._keeps_both_commitments:
            return
        commitments = dict(account.commitments)
        restored = commitments.pop(TASKS, account.inherited)
        if account.demand is not None:
            amounts = [
                commitments.get(name, account.inherited) for name, _ in self._amounts_that_count()
            ]
            dominant = max(amounts, default=account.inherited)
            commitments[TASKS] = max(restored, dominant) if former is None else dominant
        account.commitments = commitments

    def _amounts_that_count(self) -> list[tuple[str, int]]:
        """Return the capacity as pairs of name and thousandths, without the excluded resources."""
        if self._counted_amounts is None:
            self._counted_amounts = [
                (name, amount)
                for name, amount in self._capacity.items()
                if name not in self.excluded
            ]
        return self._counted_amounts

    def count_tasks(self, user: User, account: Account) -> None:
        """Set `monopoly` and `constrained_monopoly` of an account, if the policy counts tasks.

        They are the numbers of tasks that the user could run if it had the machines alone.
        """
        if not self._policy.counts_tasks:
            return
        demand = account.demand
        if demand is None:
            account.monopoly = account.constrained_monopoly = 0
        else:
            account.monopoly = self.machines.monopoly(demand)
            account.constrained_monopoly = self.machines.constrained_monopoly(user, demand)
