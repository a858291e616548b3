"""First stage of an allocation cycle: quota guarantees (Mesos semantics, §3.3)."""

from allocator.cluster.agents.agent import Agent
from allocator.cluster.allocation.client_index import ClientIndex, ClientMask
from allocator.cluster.allocation.client_order import ClientOrder
from allocator.cluster.allocation.offer_builder import OfferBuilder
from allocator.cluster.frameworks.framework import Client
from allocator.cooperative import Cooperative

_CLIENTS_A_STEP = 50
"""Clients in a cooperative step."""


class QuotaStage:
    """Allocates agents to clients whose roles hold less than their quota guarantee."""

    def __init__(self, builder: OfferBuilder, index: ClientIndex, order: ClientOrder) -> None:
        self._builder = builder
        self._index = index
        self._order = order
        self.guaranteed = sum(index.by_role.get(role, 0) for role, _ in builder.quotas.items())
        """Clients of roles with a quota."""

    def serve(self, agent: Agent, eligible: ClientMask) -> Cooperative[None]:
        """Allocate an agent's resources towards the unmet guarantees of eligible clients' roles.

        Generator for cooperative steps.

        Args:
            agent: The agent to allocate.
            eligible: Clients in `guaranteed` that may be allocated the agent.
        """
        builder, index = self._builder, self._index
        declining = yield from builder.declining(agent, eligible, index, tasks=False)
        remaining = eligible & ~declining
        if remaining & index.choosy:
            remaining &= ~builder.hopeless(agent, index)[0]
        while remaining and agent.available:
            for number, client in enumerate(self._order.clients(agent, remaining), 1):
                if not number % _CLIENTS_A_STEP:
                    yield
                remaining &= ~index.bit[client]
                if self._allocate(agent, client):
                    break
            else:
                return

    def _allocate(self, agent: Agent, client: Client) -> bool:
        """Allocate to a client the part of an agent that its role lacks to reach its guarantee.

        Returns:
            True if a share was allocated and offered; False if the client cannot use or does not
            accept it.
        """
        usable = self._builder.usable(agent, client)
        if usable is None:
            return False
        counted, share = self._builder.headroom.guarantee_share(client.role, usable)
        if not share or not self._builder.wanted(agent, client, share):
            return False
        self._builder.headroom.allocate_guarantee(client.role, counted.scalars, share.plain.scalars)
        self._builder.allocate(agent, client, share)
        return True
