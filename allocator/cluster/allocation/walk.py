"""Going through the tree of users in order, past those who cannot get anything."""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import TypeAlias

from allocator.cluster.agents import Agent
from allocator.cluster.allocation.filling import Branch, Node
from allocator.cluster.allocation.order import LocalFront, Order
from allocator.cluster.allocation.portions import Leaf
from allocator.cluster.allocation.taking import ones
from allocator.cluster.allocation.wanting import Wanting
from allocator.cluster.clients import Clients
from allocator.cluster.frameworks import Client
from allocator.cluster.users import User
from allocator.fairness.front import Front
from allocator.fairness.quantities import Quantities

Leaves: TypeAlias = Callable[[Client, bool], Leaf | None]
"""Makes a leaf of a client, which competes below others or not; None: it gets nothing."""

_FEW = 8
"""So many passed over cost as much as one that is found and sorted."""


class Walk:
    """The users of one run, seen from an agent."""

    def __init__(self, clients: Clients, order: Order, wanting: Wanting) -> None:
        self._all = clients
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
        front = self._order.on(user, agent, self._held(agent))
        for name, below in self._present(user, front, live):
            if below in self._wanting.client:
                yield self._wanting.client[below]
                continue
            child = user.children.get(name, user)
            if child is not user and child.below is not None:
                yield from self._clients(child, agent, below)
            else:
                yield from self._own(child, self._order.own(child), below)

    def _tree(
        self, user: User, agent: Agent, live: int, leaves: Leaves, *, nested: bool
    ) -> Node | None:
        front = self._order.on(user, agent, self._held(agent))
        present = self._present(user, front, live)
        first = next(present, None)
        if first is not None and first[1] == live:
            return self._member(user, first[0], agent, live, leaves, nested=nested, among=False)
        members = chain([first] if first is not None else [], present)
        return Branch(self._members(user, members, agent, leaves, nested=nested), front)

    def _members(
        self,
        user: User,
        present: Iterable[tuple[str, int]],
        agent: Agent,
        leaves: Leaves,
        *,
        nested: bool,
    ) -> Iterator[tuple[str, Node]]:
        for name, below in present:
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
        return Branch(self._leaves(child, own, live, leaves, nested=nested), own)

    def _leaves(
        self, user: User, own: Front[Client], live: int, leaves: Leaves, *, nested: bool
    ) -> Iterator[tuple[Client, Node]]:
        for client in self._own(user, own, live):
            leaf = leaves(client, nested)
            if leaf is not None:
                yield client, leaf

    def _present(
        self, user: User, front: Front[str] | LocalFront, live: int
    ) -> Iterator[tuple[str, int]]:
        """Go through members of a user's pool, the next one first, with those of a set below."""
        of, depth = self._wanting.of, len(user.line)
        if not self._few(live, of[user.name] if depth else self._wanting.everybody):
            for name in front:
                below = of.get(name, 0) & live
                if below:
                    yield name, below
            return
        found: dict[str, int] = {}
        for bit in ones(live):
            line = self._all.node(self._wanting.client[bit]).line
            name = line[-1 - depth] if len(line) > depth else user.leaf
            found[name] = found.get(name, 0) | bit
        for name in sorted(found, key=lambda name: front.place(name).position):
            yield name, found[name]

    def _own(self, user: User, own: Front[Client], live: int) -> Iterator[Client]:
        """Go through a user's own clients that are of a set, the next one first."""
        if self._few(live, self._wanting.of[user.leaf]):
            those = [self._wanting.client[bit] for bit in ones(live)]
            yield from sorted(those, key=lambda client: own.place(client).position)
        else:
            for client in own:
                if self._wanting.bit.get(client, 0) & live:
                    yield client

    @staticmethod
    def _few(live: int, of: int) -> bool:
        """Whether it is less work to find those of a set than to pass over all others."""
        return live.bit_count() * _FEW < of.bit_count()

    def _held(self, agent: Agent) -> dict[Client, Quantities]:
        if not self._users.per_machine:
            return {}
        return {Client(role, name): held.scalars for name, role, held in agent.allocations()}
