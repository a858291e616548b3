"""Going through the tree of users in order, past those who cannot get anything."""

from collections.abc import Callable, Iterator
from typing import TypeAlias

from allocator.cluster.agents import Agent
from allocator.cluster.allocation.filling import Branch, Leaf, Node
from allocator.cluster.allocation.order import LocalFront, Order
from allocator.cluster.allocation.wanting import Wanting
from allocator.cluster.clients import Clients
from allocator.cluster.frameworks import Client
from allocator.cluster.users import User
from allocator.fairness.front import Front
from allocator.fairness.quantities import Quantities

Leaves: TypeAlias = Callable[[Client, bool], Leaf | None]
"""Makes a leaf of a client, which competes below others or not; None: it gets nothing."""


class Walk:
    """The users of one run, seen from an agent."""

    def __init__(self, clients: Clients, order: Order, wanting: Wanting) -> None:
        self._users = clients.users
        self._order = order
        self._wanting = wanting

    @property
    def per_machine(self) -> bool:
        """Whether the order depends on what is held on an agent."""
        return self._users.per_machine

    def clients(self, agent: Agent, live: int) -> Iterator[Client]:
        """Go through clients of a set, the next one first; nobody may get anything meanwhile."""
        only = self._wanting.client.get(live)
        if only is not None:
            yield only
        else:
            yield from self._clients(self._users.root, agent, live)

    def tree(self, agent: Agent, live: int, leaves: Leaves) -> Node | None:
        """Return those of a set who compete for an agent; None: none of them can use it."""
        only = self._wanting.client.get(live)
        if only is not None:
            return leaves(only, False)
        return self._tree(self._users.root, agent, live, leaves, nested=False)

    def _clients(self, user: User, agent: Agent, live: int) -> Iterator[Client]:
        of = self._wanting.of
        for name in self._order.on(user, agent.total.scalars, self._held(agent)):
            below = of.get(name, 0) & live
            if not below:
                continue
            if below in self._wanting.client:
                yield self._wanting.client[below]
                continue
            child = user.children.get(name, user)
            if child is not user and child.below is not None:
                yield from self._clients(child, agent, live)
            else:
                for client in self._order.own(child):
                    if self._wanting.bit.get(client, 0) & live:
                        yield client

    def _tree(
        self, user: User, agent: Agent, live: int, leaves: Leaves, *, nested: bool
    ) -> Node | None:
        of = self._wanting.of
        front = self._order.on(user, agent.total.scalars, self._held(agent))
        all_below = live & of[user.name] if user is not self._users.root else live
        for name in front:
            below = of.get(name, 0) & live
            if below == all_below:
                return self._member(user, name, agent, below, leaves, nested=nested, among=False)
            if below:
                break
        return Branch(self._members(user, front, agent, live, leaves, nested=nested), front)

    def _members(  # noqa: PLR0913 - where it is, and what is asked
        self,
        user: User,
        front: Front[str] | LocalFront,
        agent: Agent,
        live: int,
        leaves: Leaves,
        *,
        nested: bool,
    ) -> Iterator[tuple[str, Node]]:
        for name in front:
            below = self._wanting.of.get(name, 0) & live
            if not below:
                continue
            node = self._member(user, name, agent, below, leaves, nested=nested, among=True)
            if node is not None:
                yield name, node

    def _member(  # noqa: PLR0913 - likewise
        self,
        user: User,
        name: str,
        agent: Agent,
        live: int,
        leaves: Leaves,
        *,
        nested: bool,
        among: bool,
    ) -> Node | None:
        """Return what competes as a member of a user's pool.

        Args:
            user: Whose pool.
            name: The member.
            agent: Where.
            live: Those below the member who can get something.
            leaves: Makes leaves.
            nested: Whether the pool itself is below members of another who compete.
            among: Whether there are others in this pool.
        """
        only = self._wanting.client.get(live)
        if only is not None:
            return leaves(only, nested)
        nested = nested or among
        child = user.children.get(name, user)
        if child is not user and child.below is not None:
            return self._tree(child, agent, live, leaves, nested=nested)
        own = self._order.own(child)
        return Branch(self._leaves(own, live, leaves, nested=nested), own)

    def _leaves(
        self, own: Front[Client], live: int, leaves: Leaves, *, nested: bool
    ) -> Iterator[tuple[Client, Node]]:
        for client in own:
            if self._wanting.bit.get(client, 0) & live:
                leaf = leaves(client, nested)
                if leaf is not None:
                    yield client, leaf

    def _held(self, agent: Agent) -> dict[Client, Quantities]:
        if not self._users.per_machine:
            return {}
        return {Client(role, name): held.scalars for name, role, held in agent.allocations()}
