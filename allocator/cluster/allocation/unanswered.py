"""Whoever leaves offers unanswered gets only so much of the cluster.

An allocator cannot take an offer back, so what it can do against hoarding is to stop giving. It
knows what is only offered where the master tells (since Mesos 1.10), and may presume it elsewhere.
"""

from collections.abc import Iterable, Mapping

from allocator.cluster.allocation.wanting import Wanting
from allocator.cluster.frameworks import Client
from allocator.cluster.state import Cluster
from allocator.fairness.quantities import Quantities


class Unanswered:
    """Who may get no more in a run, because it has not answered so much.

    Asks O(clients) at the beginning, and nothing where nobody is bounded.
    """

    full = 0
    """Clients of frameworks that have reached the bound."""
    kept = False
    """Whether anybody has been passed over on an agent."""

    def __init__(self, cluster: Cluster, wanting: Wanting) -> None:
        self._bound = bound(cluster)
        if self._bound is None:
            return
        self._offered: dict[str, Quantities] = {}
        """By framework."""
        self._clients: dict[str, int] = {}
        for client, bit in wanting.bit.items():
            self._clients[client.framework] = self._clients.get(client.framework, 0) | bit
        for framework in self._clients:
            self._note(framework, offered(cluster, framework))

    def without(self, may: int) -> int:
        """Return those of a set who may get more."""
        if may & self.full:
            self.kept = True
        return may & ~self.full

    def admits(self, gifts: Iterable[tuple[Client, Quantities]]) -> bool:
        """Whether nobody reaches the bound with all of this."""
        if self._bound is None:
            return True
        offered = dict(self._offered)
        for client, quantities in gifts:
            offered[client.framework] += quantities
            if reached(offered[client.framework], self._bound):
                return False
        return True

    def give(self, client: Client, quantities: Quantities) -> None:
        """Note that a client is offered something."""
        if self._bound is not None and client.framework in self._clients:
            self._note(client.framework, self._offered[client.framework] + quantities)

    def _note(self, framework: str, quantities: Quantities) -> None:
        self._offered[framework] = quantities
        if self._bound is not None and reached(quantities, self._bound):
            self.full |= self._clients[framework]


def bound(cluster: Cluster) -> Mapping[str, float] | None:
    """Return of how much one framework may leave offers unanswered; None: of all there is."""
    part = cluster.limits.unanswered
    if part >= 1.0 or not (cluster.tells_running or cluster.ledger.presumed is not None):
        return None
    capacity = cluster.ledger.clients.users.pool.capacity
    return {name: part * amount for name, amount in capacity.items()}


def offered(cluster: Cluster, framework: str) -> Quantities:
    """Return what a framework has been offered and has not answered."""
    clients, total = cluster.ledger.clients, Quantities()
    for client in clients.of(framework):
        total += clients.held(client) - cluster.ledger.running.of(client)
    return total


def reached(quantities: Quantities, most: Mapping[str, float]) -> bool:
    """Whether a bound is reached in some resource."""
    return any(amount >= most.get(name, amount + 1) for name, amount in quantities.items())
