"""The order of clients in one allocation cycle, and the iteration over the role tree."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import TypeAlias

from allocator.cluster.agents.agent import Agent
from allocator.cluster.agents.shared_volumes import NO_REPEATS, Repeats
from allocator.cluster.allocation.client_index import ClientIndex, ClientMask, ones
from allocator.cluster.allocation.progressive_filling import ClientNode, Node, RoleNode
from allocator.cluster.frameworks.clients import Clients
from allocator.cluster.frameworks.framework import Client
from allocator.cluster.users import User
from allocator.fairness.pool import Pool
from allocator.fairness.quantities import Quantities
from allocator.fairness.sorter_snapshot import SorterSnapshot, SortKey


@dataclass(frozen=True, slots=True)
class LocalSorterSnapshot:
    """A sorter snapshot on one agent, under a policy that ranks users on each machine apart."""

    snapshot: SorterSnapshot[str]
    pool: Pool[str]
    machine: Quantities
    held_here: Mapping[str, Quantities]
    """Quantities of the machine that each user holds; users without an entry hold nothing."""

    def __iter__(self) -> Iterator[str]:
        """Yield active users: users without resources here first, then holders by share."""
        holders = []
        for user in self.snapshot:
            if user in self.held_here:
                holders.append(user)
            else:
                yield user
        yield from sorted(holders, key=lambda user: self.place(user).position)

    def place(self, user: str) -> SortKey:
        """Return the current sort key of a user."""
        sort_key = self.snapshot.place(user)
        if user not in self.held_here:
            return SortKey((0, 0.0, *sort_key.position), sort_key.blur)
        share = self.pool.local_share(user, self.held_here[user], self.machine)
        return SortKey((1, share, *sort_key.position), sort_key.blur)

    def after(self, user: str, more: Quantities, times: int) -> SortKey:
        """Return the sort key of a user after further allocations.

        Args:
            user: The user.
            more: The quantities of these allocations in total.
            times: The number of allocations.
        """
        sort_key = self.snapshot.after(user, more, times)
        held_here = self.held_here.get(user, Quantities()) + more
        share = self.pool.local_share(user, held_here, self.machine)
        return SortKey((1, share, *sort_key.position), sort_key.blur)

    def held(self, user: str) -> Quantities:
        """Return the quantities that a user holds now in the whole cluster."""
        return self.snapshot.held(user)

    def holding(self, user: str, total: Quantities, times: int) -> SortKey:
        """Return the sort key that a user would have with given holdings after further allocations.

        Args:
            user: The user.
            total: The quantities that the user would hold in the whole cluster.
            times: The number of further allocations.
        """
        return self.after(user, total - self.held(user), times)


class SorterView:
    """The order of users and clients during one allocation cycle.

    Allocations change only the snapshots of this view. `commit` moves users in their pools once, at
    the end of the cycle.
    """

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._own: dict[User, SorterSnapshot[Client]] = {}
        self._below: dict[User, SorterSnapshot[str]] = {}

    def own(self, user: User) -> SorterSnapshot[Client]:
        """Return the sorter snapshot of a user's own clients."""
        snapshot = self._own.get(user)
        if snapshot is None:
            snapshot = self._own[user] = SorterSnapshot(self._clients.users.clients_of(user))
        return snapshot

    def below(self, user: User) -> SorterSnapshot[str]:
        """Return the sorter snapshot of a user's sub-users and its virtual leaf."""
        snapshot = self._below.get(user)
        if snapshot is None:
            assert user.below is not None
            snapshot = self._below[user] = SorterSnapshot(user.below)
        return snapshot

    def on(
        self, user: User, agent: Agent, held: Mapping[Client, Quantities]
    ) -> SorterSnapshot[str] | LocalSorterSnapshot:
        """Return the sorter snapshot of a user's sub-users, as seen from an agent.

        Args:
            user: A user with sub-users.
            agent: The agent.
            held: The quantities that clients hold on the agent.
        """
        users = self._clients.users
        if not users.per_machine:
            return self.below(user)
        assert user.below is not None
        held_on_agent = users.held_below(user, held, agent.id)
        return LocalSorterSnapshot(self.below(user), user.below, agent.total.scalars, held_on_agent)

    def allocate(
        self, client: Client, quantities: Quantities, count: int, repeats: Repeats = NO_REPEATS
    ) -> None:
        """Record allocations to a client.

        Args:
            client: The client.
            quantities: The quantities of these allocations in total.
            count: The number of allocations.
            repeats: By user, quantities of shared volumes that other clients of the user hold
                already.
        """
        user = self._clients.node(client)
        snapshot_own = self.own(user)
        before = snapshot_own.held(client)
        after = before + quantities
        snapshot_own.hold(client, after, count)
        for snapshot, name in self._snapshots(user):
            held = snapshot.held(name)  # the same object if the user has no other client
            if name in repeats:
                repeated, single = repeats[name]
                snapshot.hold(name, held + quantities + single - repeated, count)
            else:
                snapshot.hold(name, after if held is before else held + quantities, count)

    def commit(self) -> None:
        """Record the cycle's allocations in the pools and framework sorters."""
        roles = self._clients.roles
        for user, own in self._own.items():
            for client, quantities, count in own.changed():
                if roles is not None:
                    now, before = self._clients.users.now, user.clients.held(client)
                    roles.note(client.role, now, quantities, before)
                user.clients.hold(client, quantities, count)
        for user, below in self._below.items():
            assert user.below is not None
            for name, quantities, count in below.changed():
                user.below.hold(name, quantities, count)

    def _snapshots(self, user: User) -> Iterator[tuple[SorterSnapshot[str], str]]:
        """Yield each snapshot that counts a user's own clients, and their member name."""
        if user.below is not None:
            yield self.below(user), user.leaf
        while user.parent is not None:
            yield self.below(user.parent), user.name
            user = user.parent


MakeNode: TypeAlias = Callable[[Client, bool], ClientNode | None]
"""Creates the node of a client; None if the client can be allocated nothing.

The flag is true if the client's user competes below another member of the role tree."""

_FEW = 8
"""Passing over this many clients costs as much as sorting in one client."""


class RoleTreeIterator:
    """Iterates over the role tree in sorter order during one allocation cycle."""

    def __init__(self, clients: Clients, sorter: SorterView, index: ClientIndex) -> None:
        self._registered = clients
        self._users = clients.users
        self._sorter = sorter
        self._index = index

    @property
    def per_machine(self) -> bool:
        """Whether the order depends on the quantities that users hold on an agent."""
        return self._users.per_machine

    def clients(self, agent: Agent, eligible: ClientMask) -> Iterator[Client]:
        """Yield eligible clients in sorter order. The sorter must not change during the iteration.

        Args:
            agent: The agent to allocate.
            eligible: The clients to yield.
        """
        client = self._index.client.get(eligible)
        if client is not None:
            yield client
        else:
            yield from self._clients(self._users.root, agent, eligible)

    def tree(self, agent: Agent, eligible: ClientMask, nodes: MakeNode) -> Node | None:
        """Return the tree of the eligible clients that compete for an agent.

        The result is None if no client can be allocated anything.

        Args:
            agent: The agent to allocate.
            eligible: The clients in the tree.
            nodes: Creates the node of a client.
        """
        client = self._index.client.get(eligible)
        if client is not None:
            return nodes(client, False)
        return self._node(self._users.root, agent, eligible, nodes, nested=False)

    def _clients(self, user: User, agent: Agent, eligible: ClientMask) -> Iterator[Client]:
        """Yield the eligible clients below a user, in order."""
        snapshot = self._sorter.on(user, agent, self._held(agent))
        for name, mask in self._present(user, snapshot, eligible):
            if mask in self._index.client:
                yield self._index.client[mask]
                continue
            child = user.children.get(name, user)
            if child is not user and child.below is not None:
                yield from self._clients(child, agent, mask)
            else:
                yield from self._own_clients(child, self._sorter.own(child), mask)

    def _node(
        self, user: User, agent: Agent, eligible: ClientMask, nodes: MakeNode, *, nested: bool
    ) -> Node | None:
        """Return the node of a user's pool with its eligible members."""
        snapshot = self._sorter.on(user, agent, self._held(agent))
        present = self._present(user, snapshot, eligible)
        first = next(present, None)
        if first is not None and first[1] == eligible:
            return self._member(user, first[0], agent, eligible, nodes, nested=nested, shared=False)
        members = chain([first] if first is not None else [], present)
        return RoleNode(self._members(user, members, agent, nodes, nested=nested), snapshot)

    def _members(
        self,
        user: User,
        present: Iterable[tuple[str, ClientMask]],
        agent: Agent,
        nodes: MakeNode,
        *,
        nested: bool,
    ) -> Iterator[tuple[str, Node]]:
        """Yield the members of a user's pool with their nodes, in order."""
        for name, mask in present:
            node = self._member(user, name, agent, mask, nodes, nested=nested, shared=True)
            if node is not None:
                yield name, node

    def _member(  # noqa: PLR0913 - passes the recursion's state
        self,
        user: User,
        name: str,
        agent: Agent,
        eligible: ClientMask,
        nodes: MakeNode,
        *,
        nested: bool,
        shared: bool,
    ) -> Node | None:
        """Return the node of a member of a user's pool.

        Args:
            user: The user that the pool belongs to.
            name: The member.
            agent: The agent to allocate.
            eligible: The eligible clients below the member.
            nodes: Creates the node of a client.
            nested: Whether the pool is below a member that has competing siblings.
            shared: Whether the pool has other members with eligible clients.
        """
        client = self._index.client.get(eligible)
        if client is not None:
            return nodes(client, nested)
        nested = nested or shared
        child = user.children.get(name, user)
        if child is not user and child.below is not None:
            return self._node(child, agent, eligible, nodes, nested=nested)
        own = self._sorter.own(child)
        return RoleNode(self._client_nodes(child, own, eligible, nodes, nested=nested), own)

    def _client_nodes(
        self,
        user: User,
        own: SorterSnapshot[Client],
        eligible: ClientMask,
        nodes: MakeNode,
        *,
        nested: bool,
    ) -> Iterator[tuple[Client, Node]]:
        """Yield a user's own eligible clients with their nodes, in order."""
        for client in self._own_clients(user, own, eligible):
            node = nodes(client, nested)
            if node is not None:
                yield client, node

    def _present(
        self, user: User, snapshot: SorterSnapshot[str] | LocalSorterSnapshot, eligible: ClientMask
    ) -> Iterator[tuple[str, ClientMask]]:
        """Yield the members of a user's pool with eligible clients, in order, and these clients."""
        by_user, depth = self._index.by_user, len(user.line)
        if not self._is_small(eligible, by_user[user.name] if depth else self._index.candidates):
            for name in snapshot:
                mask = by_user.get(name, 0) & eligible
                if mask:
                    yield name, mask
            return
        masks: dict[str, ClientMask] = {}
        for bit in ones(eligible):
            line = self._registered.node(self._index.client[bit]).line
            name = line[-1 - depth] if len(line) > depth else user.leaf
            masks[name] = masks.get(name, 0) | bit
        for name in sorted(masks, key=lambda name: snapshot.place(name).position):
            yield name, masks[name]

    def _own_clients(
        self, user: User, own: SorterSnapshot[Client], eligible: ClientMask
    ) -> Iterator[Client]:
        """Yield a user's own clients that are eligible, in order."""
        if self._is_small(eligible, self._index.by_user[user.leaf]):
            clients = [self._index.client[bit] for bit in ones(eligible)]
            yield from sorted(clients, key=lambda client: own.place(client).position)
        else:
            for client in own:
                if self._index.bit.get(client, 0) & eligible:
                    yield client

    @staticmethod
    def _is_small(few: ClientMask, total: ClientMask) -> bool:
        """Return whether sorting the eligible clients costs less than skipping all others."""
        return few.bit_count() * _FEW < total.bit_count()

    def _held(self, agent: Agent) -> dict[Client, Quantities]:
        """Return what clients hold on an agent, if the policy ranks users on each machine apart."""
        if not self._users.per_machine:
            return {}
        return {Client(role, name): held.scalars for name, role, held in agent.allocations()}
