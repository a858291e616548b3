"""Sets of clients, a bit for each: who wants offers, who may use an agent, whose task fits."""

from bisect import bisect_right
from collections.abc import Collection, Container, Iterator, Mapping

from allocator.cluster.agents.ledger import Ledger
from allocator.cluster.frameworks.framework import Client
from allocator.cluster.offers.filters import OfferFilters
from allocator.fairness.quantities import Quantities


class ClientIndex:
    """All that can be known of clients before an agent is looked at.

    Made anew when any of it has changed, O(clients · log clients); a question costs
    O(m + constraints) operations on sets for m resources, whatever the number of clients.
    """

    def __init__(self, ledger: Ledger, filters: OfferFilters) -> None:
        self.everybody = 0
        """All who want offers."""
        self.unknown = 0
        """Of whom it is not known what a task needs."""
        self.of: dict[str, int] = {}
        """Those below each user, and each virtual leaf, by name."""
        self.by_role: dict[str, int] = {}
        self.client = dict[int, Client]()
        """By bit."""
        self.bit = dict[Client, int]()
        self.tasks = dict[Client, Quantities]()
        """What one task needs, where it is known; the same object where it is the same."""
        of_framework: dict[str, int] = {}
        alike: dict[frozenset[tuple[str, int]], Quantities] = {}
        for client in ledger.clients.wanting:
            bit = 1 << filters.slot(client)
            self.client[bit], self.bit[client] = client, bit
            self.everybody |= bit
            of_framework[client.framework] = of_framework.get(client.framework, 0) | bit
            self.by_role[client.role] = self.by_role.get(client.role, 0) | bit
            for name in ledger.clients.node(client).names:
                self.of[name] = self.of.get(name, 0) | bit
            task = ledger.task(client)
            if task is None:
                self.unknown |= bit
            else:
                self.tasks[client] = alike.setdefault(frozenset(task.items()), task)
        self._elsewhere: list[tuple[Collection[str], int]] = [
            (agents, sum(of_framework.get(framework, 0) for framework in frameworks))
            for agents, frameworks in ledger.placements.groups()
        ]
        self._exclusions = ledger.exclusions
        self._fitting = self._sorted()
        self._least = [
            (name, min(amounts))
            for name, (amounts, masks) in self._fitting.items()
            if not masks[0] & ~self.unknown
        ]
        """Of what every task needs, the least that one does."""

    def unguaranteed(self, guaranteed: Container[str]) -> int:
        """Return those whose roles have no quota."""
        mask = self.everybody
        if guaranteed:
            for role, clients in self.by_role.items():
                if role in guaranteed:
                    mask &= ~clients
        return mask

    def not_on(self, agent: str) -> int:
        """Return those whose constraint an agent does not meet, or who wish to keep off it."""
        mask = 0
        for agents, clients in self._elsewhere:
            if agent not in agents:
                mask |= clients
        for client in self._exclusions.of(agent):
            mask |= self.bit.get(client, 0)
        return mask

    def fitting(self, room: Mapping[str, int]) -> int:
        """Return those one task of whom would fit, of those of whom that is known."""
        mask = self.everybody & ~self.unknown
        for name, (amounts, masks) in self._fitting.items():
            mask &= masks[bisect_right(amounts, room.get(name, 0))]
        return mask

    def room_for_two(self, room: Mapping[str, int]) -> bool:
        """Whether two tasks may fit together, for all that is known of them."""
        return all(room.get(name, 0) >= 2 * least for name, least in self._least)

    def _sorted(self) -> dict[str, tuple[list[int], list[int]]]:
        """Return by name the amounts that tasks need, and who needs no more than each."""
        needed: dict[str, dict[int, int]] = {}
        for client, task in self.tasks.items():
            for name, amount in task.items():
                by_amount = needed.setdefault(name, {})
                by_amount[amount] = by_amount.get(amount, 0) | self.bit[client]
        fitting = {}
        for name, by_amount in needed.items():
            amounts = sorted(by_amount)
            everybody = self.everybody
            masks = [everybody & ~sum(by_amount.values())]
            for amount in amounts:
                masks.append(masks[-1] | by_amount[amount])
            fitting[name] = amounts, masks
        return fitting


def ones(bits: int) -> Iterator[int]:
    """Go through the bits of a number."""
    while bits:
        low = bits & -bits
        yield low
        bits ^= low
