"""The allocation run: which free resources are offered to whom (§3)."""

from collections.abc import Iterable
from random import Random

from allocator.cluster.agents import Agent
from allocator.cluster.clients import Client, Clients
from allocator.cluster.filters import OfferFilters
from allocator.cluster.frameworks import Alternatives, Framework
from allocator.cluster.ledger import Ledger
from allocator.cluster.resources import Resources
from allocator.contract import allocator_pb2 as contract


class AllocationRun:
    """One pass over candidate agents; books what it offers.

    Cost: O(candidates) for those with nothing free, plus for each of the others the clients
    looked at before the agent is empty, each O(kinds of resources).
    """

    def __init__(
        self,
        ledger: Ledger,
        filters: OfferFilters,
        *,
        min_allocatable: Alternatives,
        filter_gpus: bool,
    ) -> None:
        self._ledger = ledger
        self._clients: Clients = ledger.clients
        self._filters = filters
        self._min_allocatable = min_allocatable
        self._filter_gpus = filter_gpus

    def run(self, candidates: Iterable[str], random: Random) -> list[contract.Offers]:
        """Offer what the candidates have free; at most one `Offers` for each framework.

        Agents are visited in random order, so that no agent is always the first to be used.
        """
        agents = [
            agent
            for name in sorted(candidates)
            if (agent := self._ledger.agents.get(name)) is not None
            and agent.active
            and agent.available
        ]
        random.shuffle(agents)
        made: dict[str, contract.Offers] = {}
        for agent in agents:
            self._offer(agent, made)
        return list(made.values())

    def _offer(self, agent: Agent, made: dict[str, contract.Offers]) -> None:
        """Go through the clients in order until the agent has nothing left (§3.4)."""
        order = self._clients.order()
        while (client := next(order, None)) is not None:
            framework = self._ledger.frameworks[client.framework]
            give = self._give(agent, client, framework)
            if give is None:
                continue
            # The order of the agent's turn outlives the booking, which changes the ranking.
            order = iter(list(order)) if give != agent.available else iter(())
            self._ledger.allocate(agent, client, give)
            offers = made.setdefault(
                client.framework, contract.Offers(framework_id=client.framework)
            )
            offers.offers.add(
                role=client.role, agent_id=agent.id, resources=give.messages(client.role)
            )

    def _give(self, agent: Agent, client: Client, framework: Framework) -> Resources | None:
        if not framework.can_use(agent, client.role, filter_gpus=self._filter_gpus):
            return None
        give = framework.share_of(agent.available, client.role)
        alternatives = framework.min_allocatable.get(client.role, self._min_allocatable)
        if not give or not _reaches(give, alternatives):
            return None
        if self._filters.refuses(client.framework, client.role, agent.id, give):
            return None
        return give


def _reaches(give: Resources, alternatives: Alternatives) -> bool:
    return not alternatives or any(give.quantities.contains(minimum) for minimum in alternatives)
