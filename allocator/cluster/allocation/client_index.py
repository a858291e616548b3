"""Client masks: sets of clients as integers with one bit a client, for fast filtering."""

from bisect import bisect_right
from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from functools import cached_property
from typing import TypeAlias

from allocator.cluster.agents.agent import Agent
from allocator.cluster.agents.ledger import Ledger
from allocator.cluster.frameworks.framework import Client, Framework, OfferRules
from allocator.cluster.frameworks.subscription import Alternatives
from allocator.cluster.offers.filters import OfferFilters
from allocator.cluster.quota import top_level
from allocator.fairness.quantities import Quantities

_FEW = 16
"""With more roles than this, `reserved_for` returns the clients of their top-level roles."""

ClientMask: TypeAlias = int
"""A set of clients: an integer in which each client of `ClientIndex` has one bit.

The type is an alias of int, so set operations are plain integer operations without a call. A name
of this type is a set of clients; a plain int in this package is a number or an amount."""


class ClientIndex:
    """The clients that want offers, as client masks, indexed by role, constraint and task size.

    A client mask is a set of clients: an integer with one bit for each client. The clients of the
    index are called *candidates*.

    The index holds all facts about clients that do not depend on an agent. When one of these facts
    has changed, the allocator builds a new index in O(clients · log clients). For m resources, a
    query costs O(m + constraints) operations on masks, whatever the number of clients.
    """

    def __init__(self, ledger: Ledger, filters: OfferFilters) -> None:
        self.candidates: ClientMask = 0
        """All clients that want offers."""
        self.unknown_demand: ClientMask = 0
        """Clients that want offers, and whose resource needs per task are unknown."""
        self.by_user: dict[str, ClientMask] = {}
        """Clients that want offers, by the name of each user above them, and of virtual leaves."""
        self.by_role: dict[str, ClientMask] = {}
        self.client = dict[ClientMask, Client]()
        """The client that each bit represents."""
        self.bit = dict[Client, ClientMask]()
        self.tasks = dict[Client, Quantities]()
        """Resource needs of one task, for clients with a known demand. Equal demands are one
        object."""
        by_framework: dict[str, ClientMask] = {}
        equal_demands: dict[frozenset[tuple[str, int]], Quantities] = {}
        for client in ledger.clients.wanting_offers:
            bit = 1 << filters.slot(client)
            self.client[bit], self.bit[client] = client, bit
            self.candidates |= bit
            by_framework[client.framework] = by_framework.get(client.framework, 0) | bit
            self.by_role[client.role] = self.by_role.get(client.role, 0) | bit
            for name in ledger.clients.node(client).names:
                self.by_user[name] = self.by_user.get(name, 0) | bit
            task = ledger.batch_demand(client)
            if task is None:
                self.unknown_demand |= bit
            else:
                self.tasks[client] = equal_demands.setdefault(frozenset(task.items()), task)
        self._agents_by_constraint: list[tuple[Collection[str], ClientMask]] = [
            (agents, sum(by_framework.get(framework, 0) for framework in frameworks))
            for agents, frameworks in ledger.placements.groups()
        ]
        self._exclusions = ledger.exclusions
        self._frameworks = ledger.frameworks
        self._below_role: dict[str, ClientMask] = {}
        self.choosy: ClientMask = sum(
            mask for name, mask in by_framework.items() if ledger.frameworks[name].min_allocatable
        )
        """Clients of frameworks that state minimum allocatable resources."""
        self._fitting = self._sorted()
        self._least = [
            (name, min(amounts))
            for name, (amounts, masks) in self._fitting.items()
            if not masks[0] & ~self.unknown_demand
        ]
        """Smallest need of any task, for each resource that every task with a known demand
        needs."""

    def unguaranteed(self, guaranteed: Container[str]) -> ClientMask:
        """Return the clients that want offers and whose top-level roles have no quota.

        Args:
            guaranteed: The top-level roles that have a quota.
        """
        unguaranteed = self.candidates
        if guaranteed:
            for role, clients in self.by_role.items():
                if role in guaranteed:
                    unguaranteed &= ~clients
        return unguaranteed

    def excluded_from(self, agent: str) -> ClientMask:
        """Return the clients that must not be offered an agent, although they want offers.

        Either the agent does not meet the client's placement constraint, or the client's offer
        constraints exclude the agent.

        Args:
            agent: The agent's ID.
        """
        not_allowed = 0
        for agents, excluded in self._agents_by_constraint:
            if agent not in agents:
                not_allowed |= excluded
        for client in self._exclusions.of(agent):
            not_allowed |= self.bit.get(client, 0)
        return not_allowed

    def fitting(self, capacity: Mapping[str, int]) -> ClientMask:
        """Return the clients that want offers and whose next task fits into a capacity.

        Clients with unknown demand are not included.

        Args:
            capacity: Thousandths of each resource, by name.
        """
        fitting = self.candidates & ~self.unknown_demand
        for name, (amounts, masks) in self._fitting.items():
            fitting &= masks[bisect_right(amounts, capacity.get(name, 0))]
        return fitting

    def unreached(self, capacity: Quantities, default: Alternatives) -> ClientMask:
        """Return the clients whose minimum offer (`min_allocatable`) exceeds the given quantities.

        No part of the quantities could be offered to these clients. Costs O(different minimums),
        whatever the number of clients.

        Args:
            capacity: An upper bound of the contents of one offer.
            default: The master's minimum, for clients without a minimum of their own.
        """
        if not capacity:
            return self.candidates
        contains = capacity.contains
        with_default, without, minimums = self._minimums
        reached = without
        if not default or any(map(contains, default)):
            reached |= with_default
        for minimum, clients in minimums:
            if contains(minimum):
                reached |= clients
        return self.candidates & ~reached

    def incapable(self, agent: Agent, rules: OfferRules) -> ClientMask:
        """Return the clients whose frameworks lack a capability that an agent requires.

        Costs O(different combinations of capabilities).

        Args:
            agent: An agent to offer.
            rules: The master's flags that restrict offers (Mesos semantics, §3.6).
        """
        mask = 0
        for framework, role, clients in self._alike.values():
            if not framework.can_use(agent, role, rules):
                mask |= clients
        return mask

    def alike(self, client: Client) -> ClientMask:
        """Return the clients with the same relevant capabilities as a client.

        These clients can use the same agents and kinds of resources.
        """
        return self._alike[self._capabilities(client)][2]

    def reserved_for(self, roles: Collection[str]) -> ClientMask:
        """Return the clients that can be offered resources reserved for these roles, perhaps more.

        With few roles, the result has the clients of the roles and of their descendants. With many
        roles, the result has all clients of their top-level roles, to save time.

        Args:
            roles: The roles that an agent's resources are reserved for.
        """
        mask = 0
        for role in roles:
            mask |= (
                self._below(role) if len(roles) <= _FEW else self._by_top.get(top_level(role), 0)
            )
        return mask

    def _below(self, role: str) -> ClientMask:
        """Return the clients that want offers and have a role or one of its sub-roles."""
        mask = self._below_role.get(role)
        if mask is None:
            prefix = f"{role}/"
            mask = self.by_role.get(role, 0)
            for name, clients in self.by_role.items():
                if name.startswith(prefix):
                    mask |= clients
            self._below_role[role] = mask
        return mask

    def _capabilities(self, client: Client) -> tuple[bool, frozenset[int]]:
        """Return a key of a client's capabilities that decide which agents it can use.

        Clients with equal keys can use the same agents.
        """
        return "/" in client.role, self._frameworks[client.framework].placing_capabilities

    def in_quota(self, top: str | None, quotas: Iterable[str]) -> ClientMask:
        """Return the clients of one top-level role, or of all roles without a quota.

        Args:
            top: A top-level role; None: all roles without a quota.
            quotas: The roles that have a quota; used only if `top` is None.
        """
        if top is not None:
            return self._by_top.get(top, 0)
        mask = self.candidates
        for role in quotas:
            mask &= ~self._by_top.get(role, 0)
        return mask

    @cached_property
    def _alike(self) -> dict[tuple[bool, frozenset[int]], tuple[Framework, str, ClientMask]]:
        """The clients grouped by capabilities, to check each group once instead of each client.

        Each group has a framework and a role as a representative, and the mask of its clients.
        """
        alike: dict[tuple[bool, frozenset[int]], tuple[Framework, str, ClientMask]] = {}
        for client, bit in self.bit.items():
            key = self._capabilities(client)
            known = alike.get(key)
            if known is None:
                alike[key] = self._frameworks[client.framework], client.role, bit
            else:
                alike[key] = known[0], known[1], known[2] | bit
        return alike

    @cached_property
    def _by_top(self) -> dict[str, ClientMask]:
        """The clients that want offers, by top-level role."""
        clients: dict[str, ClientMask] = {}
        for role, mask in self.by_role.items():
            top = top_level(role)
            clients[top] = clients.get(top, 0) | mask
        return clients

    @cached_property
    def _minimums(self) -> tuple[ClientMask, ClientMask, list[tuple[Quantities, ClientMask]]]:
        """Clients that want offers, grouped by their minimum offer (`min_allocatable`).

        `unreached` uses these groups.

        Returns:
            Clients with the master's minimum; clients without a minimum; and each other minimum
            with the mask of its clients.
        """
        with_default = without = 0
        by_tuple: dict[int, tuple[Alternatives, ClientMask]] = {}
        for client, bit in self.bit.items():
            alternatives = self._frameworks[client.framework].min_allocatable.get(client.role)
            if alternatives is None:
                with_default |= bit
            elif not alternatives:
                without |= bit
            else:
                _, mask = by_tuple.get(id(alternatives), (alternatives, 0))
                by_tuple[id(alternatives)] = alternatives, mask | bit
        minimums: dict[frozenset[tuple[str, int]], tuple[Quantities, ClientMask]] = {}
        for alternatives, clients in by_tuple.values():
            for minimum in alternatives:
                key = frozenset(minimum.items())
                _, mask = minimums.get(key, (minimum, 0))
                minimums[key] = minimum, mask | clients
        return with_default, without, list(minimums.values())

    def room_for_two(self, capacity: Mapping[str, int]) -> bool:
        """Return whether a capacity may suffice for two tasks, of any clients that want offers.

        If the result is False, two tasks surely do not fit. If the result is True, they may still
        not fit, because the method compares only the smallest needs of all tasks.

        Args:
            capacity: Thousandths of each resource, by name.
        """
        return all(capacity.get(name, 0) >= 2 * least for name, least in self._least)

    def _sorted(self) -> dict[str, tuple[list[int], list[ClientMask]]]:
        """The lookup table that `fitting` searches: for each resource, sorted needs and masks.

        The needs are the distinct amounts that tasks need of the resource, in ascending order. The
        mask with index i holds the clients that need no more than the first i of these amounts.
        """
        needed: dict[str, dict[int, ClientMask]] = {}
        for client, task in self.tasks.items():
            for name, amount in task.items():
                by_amount = needed.setdefault(name, {})
                by_amount[amount] = by_amount.get(amount, 0) | self.bit[client]
        fitting = {}
        for name, by_amount in needed.items():
            amounts = sorted(by_amount)
            candidates = self.candidates
            masks = [candidates & ~sum(by_amount.values())]
            for amount in amounts:
                masks.append(masks[-1] | by_amount[amount])
            fitting[name] = amounts, masks
        return fitting


def ones(bits: ClientMask) -> Iterator[ClientMask]:
    """Yield each set bit of a client mask as a mask of its own, lowest bit first."""
    while bits:
        lowest = bits & -bits
        yield lowest
        bits ^= lowest
