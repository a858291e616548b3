"""The first stage of a run: quota guarantees (§3.3)."""

from allocator.cluster.agents.agent import Agent
from allocator.cluster.allocation.client_index import ClientIndex
from allocator.cluster.allocation.offer_builder import OfferBuilder
from allocator.cluster.allocation.sorter_view import RoleTreeIterator
from allocator.cluster.frameworks.framework import Client
from allocator.cluster.resources import NOTHING, Resources


class QuotaStage:
    """Gives clients of roles that lack some of their guarantee what they lack."""

    def __init__(self, books: OfferBuilder, wanting: ClientIndex, walk: RoleTreeIterator) -> None:
        self._books = books
        self._wanting = wanting
        self._walk = walk
        self._guaranteed = sum(
            mask for role, mask in wanting.by_role.items() if role in books.quotas
        )

    def serve(self, agent: Agent, may: int) -> None:
        """Give what an agent has to those who may use it and lack some of it."""
        left = self._guaranteed & may
        while left and agent.available:
            for client in self._walk.clients(agent, left):
                left &= ~self._wanting.bit[client]
                if self._give(agent, client):
                    break
            else:
                return

    def _give(self, agent: Agent, client: Client) -> bool:
        usable = self._books.usable(agent, client)
        if usable is None:
            return False
        towards, give = self._part(client.role, usable)
        if not give or not self._books.wanted(agent, client, give):
            return False
        self._books.headroom.give_guaranteed(client.role, towards.scalars, give.plain.scalars)
        self._books.give(agent, client, give)
        return True

    def _part(self, role: str, usable: Resources) -> tuple[Resources, Resources]:
        """Return what helps a role to its guarantee, and that with all that comes along."""
        headroom, plain = self._books.headroom, usable.plain
        towards = plain.shrunk(headroom.missing(role))
        if headroom.divisible:
            if not towards:
                return NOTHING, NOTHING
            scalars = plain.where(lambda kind: kind.scalar)
            special = usable.where(
                lambda kind: kind.reservation == role or not kind.scalar or kind.revocable
            )
            more = headroom.within(role, scalars - towards, besides=towards)
            return towards, special + towards + more
        reserved = usable.where(lambda kind: kind.reservation == role and not kind.revocable)
        if not reserved and not towards:
            return NOTHING, NOTHING
        guaranteed = headroom.quotas[role].guarantees
        others = plain.where(lambda kind: kind.name not in guaranteed)
        company = others.shrunk(headroom.spare()) + plain.where(lambda kind: not kind.scalar)
        return towards, reserved + towards + company
