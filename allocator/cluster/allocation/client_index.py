"""Client masks: sets of clients as integers with one bit a client, for fast filtering."""

from bisect import bisect_right
from collections.abc import Collection, Container, Iterator, Mapping
from typing import TypeAlias

from allocator.cluster.agents.ledger import Ledger
from allocator.cluster.frameworks.framework import Client
from allocator.cluster.offers.filters import OfferFilters
from allocator.fairness.quantities import Quantities

ClientMask: TypeAlias = int
"""A set of clients: an integer in which each client of `ClientIndex` has one bit.

The type is an alias of int, so set operations are plain integer operations without a call. A name
of this type is a set of clients; a plain int in this package is a number or an amount."""


class ClientIndex:
    """The candidates for offers as client masks, indexed by role, constraint and task size.

    The index holds all facts about clients that do not depend on an agent. When one of these facts
    has changed, the allocator builds a new index in O(clients · log clients). For m resources, a
    query costs O(m + constraints) operations on masks, whatever the number of clients.
    """

    def __init__(self, ledger: Ledger, filters: OfferFilters) -> None:
        self.candidates: ClientMask = 0
        """All clients that want offers."""
        self.unknown_demand: ClientMask = 0
        """Candidates whose resource needs per task are unknown."""
        self.by_user: dict[str, ClientMask] = {}
        """Candidates below each user and each virtual leaf, by the name of the user or leaf."""
        self.by_role: dict[str, ClientMask] = {}
        self.client = dict[ClientMask, Client]()
        """The client that each bit represents."""
        self.bit = dict[Client, ClientMask]()
        self.tasks = dict[Client, Quantities]()
        """Resource needs of one task, for clients with a known demand. Equal demands are one
        object."""
        by_framework: dict[str, ClientMask] = {}
        equal_demands: dict[frozenset[tuple[str, int]], Quantities] = {}
        for client in ledger.clients.wanting:
            bit = 1 << filters.slot(client)
            self.client[bit], self.bit[client] = client, bit
            self.candidates |= bit
            by_framework[client.framework] = by_framework.get(client.framework, 0) | bit
            self.by_role[client.role] = self.by_role.get(client.role, 0) | bit
            for name in ledger.clients.node(client).names:
                self.by_user[name] = self.by_user.get(name, 0) | bit
            task = ledger.task(client)
            if task is None:
                self.unknown_demand |= bit
            else:
                self.tasks[client] = equal_demands.setdefault(frozenset(task.items()), task)
        self._agents_by_constraint: list[tuple[Collection[str], ClientMask]] = [
            (agents, sum(by_framework.get(framework, 0) for framework in frameworks))
            for agents, frameworks in ledger.placements.groups()
        ]
        self._exclusions = ledger.exclusions
        self._fitting = self._sorted()
        self._least = [
            (name, min(amounts))
            for name, (amounts, masks) in self._fitting.items()
            if not masks[0] & ~self.unknown_demand
        ]
        """Smallest need of any task, for each resource that every task with a known demand
        needs."""

    def unguaranteed(self, guaranteed: Container[str]) -> ClientMask:
        """Return the candidates whose top-level roles have no quota.

        Args:
            guaranteed: The roles that have a quota.
        """
        unguaranteed = self.candidates
        if guaranteed:
            for role, clients in self.by_role.items():
                if role in guaranteed:
                    unguaranteed &= ~clients
        return unguaranteed

    def not_on(self, agent: str) -> ClientMask:
        """Return the candidates that may not be offered an agent.

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
        """Return the candidates whose next task fits into a capacity.

        Candidates with unknown demand are not included.

        Args:
            capacity: Thousandths of each resource, by name.
        """
        fitting = self.candidates & ~self.unknown_demand
        for name, (amounts, masks) in self._fitting.items():
            fitting &= masks[bisect_right(amounts, capacity.get(name, 0))]
        return fitting

    def room_for_two(self, capacity: Mapping[str, int]) -> bool:
        """Return whether a capacity may suffice for two tasks, of any candidates.

        False is certain. True is not certain, because the method compares only the smallest needs
        of all tasks.

        Args:
            capacity: Thousandths of each resource, by name.
        """
        return all(capacity.get(name, 0) >= 2 * least for name, least in self._least)

    def _sorted(self) -> dict[str, tuple[list[int], list[ClientMask]]]:
        """Return the lookup table of `fitting`: distinct task needs in ascending order, and masks.

        The table has an entry for each resource. The mask with index i holds the clients that need
        no more than the first i of these amounts.
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
    """Yield each set bit of a mask as a mask of its own, lowest first."""
    while bits:
        lowest = bits & -bits
        yield lowest
        bits ^= lowest
