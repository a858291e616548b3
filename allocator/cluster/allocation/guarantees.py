"""The first stage of a run: quota guarantees (§3.3)."""

from allocator.cluster.agents import Agent
from allocator.cluster.allocation.books import Books
from allocator.cluster.allocation.walk import Walk
from allocator.cluster.allocation.wanting import Wanting
from allocator.cluster.frameworks import Client


class Guarantees:
    """Gives clients of roles that lack some of their guarantee what they lack."""

    def __init__(self, books: Books, wanting: Wanting, walk: Walk) -> None:
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
        books, headroom = self._books, self._books.headroom
        usable = books.usable(agent, client)
        if usable is None:
            return False
        reserved = usable.where(lambda kind: kind.reservation == client.role and not kind.revocable)
        plain = usable.plain
        towards = plain.shrunk(headroom.missing(client.role))
        if not reserved and not towards:
            return False
        guaranteed = headroom.guarantees[client.role]
        others = plain.where(lambda kind: kind.name not in guaranteed)
        company = others.shrunk(headroom.spare()) + plain.where(lambda kind: not kind.scalar)
        give = reserved + towards + company
        if not books.wanted(agent, client, give):
            return False
        headroom.give_guaranteed(client.role, towards.scalars, give.plain.scalars)
        books.give(agent, client, give)
        return True
