"""Quotas of docs/explanation/mesos-semantics.md §3.2 to §3.4, in whole thousandths by name.

The reference adds up the agents' totals and allocations itself. It shares no code with the
allocator's `Headroom` and `QuotaStage`.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import TypeAlias

from allocator.cluster.agents.agent import Agent
from allocator.cluster.quota import Quota
from allocator.cluster.resources import Kind, Resources
from allocator.cluster.resources.amounts import Amount

Thousandths: TypeAlias = Counter[str]
"""Thousandths of scalar resources by name; an absent name is 0."""


class QuotaReference:
    """Consumed quotas and headroom during one allocation cycle.

    Args:
        quotas: Quotas by top-level role.
        agents: All agents of the cluster, also inactive ones.
    """

    def __init__(self, quotas: Iterable[tuple[str, Quota]], agents: Iterable[Agent]) -> None:
        self._quotas = dict(quotas)
        self.guarantee_is_limit = any(quota.capped for quota in self._quotas.values())
        """True until Mesos 1.8; since Mesos 1.9 the limit is a value of its own."""
        self._consumed = {role: Thousandths() for role in self._quotas}
        free = Thousandths()
        for agent in agents:
            free.update(scalars(agent.total, unreserved))
            for kind in agent.total:
                top = top_level(kind.reservation or "")
                if top in self._quotas:
                    self._consumed[top].update(scalars(agent.total, kind.__eq__))
            for _framework, role, held in agent.allocations():
                free.subtract(scalars(held, unreserved))
                if top_level(role) in self._quotas:
                    self._consumed[top_level(role)].update(scalars(held, unreserved))
        self._free = +free
        """Available headroom: free, unreserved, non-revocable resources of the cluster."""
        self._required = Thousandths()
        """Required headroom: the unsatisfied parts of all guarantees."""
        for role in self._quotas:
            self._required.update(self._unsatisfied(role))

    def guarantee(self, role: str, usable: Resources) -> tuple[Resources, Thousandths]:
        """Return an allocation of the first stage, and the part of it towards the guarantee.

        Args:
            role: Top-level role with a quota.
            usable: Resources of an agent that a client of the role can use.
        """
        give: dict[Kind, Amount] = {}
        unsatisfied = self._unsatisfied(role)
        towards = cut(usable, unsatisfied, give)
        reserved = [kind for kind in usable if kind.reservation == role and not kind.revocable]
        if self.guarantee_is_limit:
            if not towards and not reserved:
                return Resources(), towards
            granted = [*reserved, *(k for k in usable if unreserved(k) and not k.scalar)]
            names = {kind.name for kind in usable} - self._quotas[role].guarantees.keys()
            beyond = Thousandths({n: self._free[n] - self._required[n] for n in names})
        else:
            if not towards:
                return Resources(), towards
            granted = [k for k in usable if k.reservation == role or k.revocable or not k.scalar]
            beyond = self._beyond(role, usable, towards)
        rest = Resources(
            {k: remainder for k, a in usable.items() if (remainder := remaining(a, give.get(k)))}
        )
        cut(rest, beyond, give)
        give.update((kind, usable[kind]) for kind in granted)
        return Resources(give), towards

    def book_guarantee(self, role: str, give: Resources, towards: Thousandths) -> None:
        """Count an allocation of the first stage."""
        self._required -= towards
        self.book(role, give)

    def book(self, role: str, give: Resources) -> None:
        """Count an allocation in the headroom, and against the quota of its top-level role."""
        counted = scalars(give, unreserved)
        self._free -= counted
        if top_level(role) in self._quotas:
            self._consumed[top_level(role)].update(counted)

    def admits(self, role: str, give: Resources) -> bool:
        """Return whether limits allow the allocation, and the required headroom remains."""
        counted = scalars(give, unreserved)
        return all(
            self._below_limit(role, name, amount) >= amount for name, amount in counted.items()
        ) and all(
            self._free[name] - counted[name] >= required
            for name, required in self._required.items()
        )

    def admitted(self, role: str, usable: Resources) -> Resources:
        """Return the part of resources that the second stage can allocate as a whole."""
        if self.admits(role, usable):
            return usable
        give = {k: amount for k, amount in usable.items() if not unreserved(k) or not k.scalar}
        if not self.guarantee_is_limit:
            cut(usable, self._beyond(role, usable, Thousandths()), give)
        return Resources(give)

    def _beyond(self, role: str, usable: Resources, towards: Thousandths) -> Thousandths:
        """Return how much limits and headroom allow beside an allocation towards a guarantee."""
        beyond = Thousandths()
        for name, amount in scalars(usable, unreserved).items():
            most = self._below_limit(role, name, amount + towards[name]) - towards[name]
            if +self._required:
                most = min(most, self._free[name] - self._required[name])
            beyond[name] = most
        return beyond

    def _below_limit(self, role: str, name: str, unlimited: int) -> int:
        """Return how much of a resource a role can get below its limit, if it has a limit."""
        quota = self._quotas.get(top_level(role))
        if quota is None or name not in quota.limits:
            return unlimited
        return quota.limits[name] - self._consumed[top_level(role)][name]

    def _unsatisfied(self, role: str) -> Thousandths:
        return Thousandths(dict(self._quotas[role].guarantees)) - self._consumed[role]


def top_level(role: str) -> str:
    """Return the first part of a role's path."""
    return role.partition("/")[0]


def unreserved(kind: Kind) -> bool:
    """Return whether quotas and headroom count a resource of this kind when it is allocated."""
    return kind.reservation is None and not kind.revocable


def scalars(resources: Resources, keep: Callable[[Kind], bool]) -> Thousandths:
    """Add up scalars by name; a shared volume counts once."""
    total = Thousandths()
    for kind, amount in resources.items():
        if isinstance(amount, int) and keep(kind):
            size = 1 if kind.whole is None else kind.whole
            total[kind.name] += size * (1 if kind.shared else amount)
    return total


def cut(resources: Resources, budget: Thousandths, give: dict[Kind, Amount]) -> Thousandths:
    """Add unreserved scalars within a budget to an allocation; return the added thousandths.

    An indivisible resource is added in whole copies, as many as the budget allows.
    """
    added = Thousandths()
    for kind, amount in resources.items():
        if isinstance(amount, int) and unreserved(kind):
            size = kind.whole or 1
            copies = min(amount, max(budget[kind.name] - added[kind.name], 0) // size)
            if copies:
                present = give.get(kind, 0)
                assert isinstance(present, int)
                give[kind] = present + copies
                added[kind.name] += copies * size
    return added


def remaining(amount: Amount, given: Amount | None) -> Amount:
    """Return the rest of a scalar; other resources are allocated as a whole."""
    return amount - given if isinstance(amount, int) and isinstance(given, int) else amount
