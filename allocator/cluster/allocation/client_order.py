"""The sorter order of users and clients during one allocation cycle."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Final, TypeAlias, TypeVar

from allocator.cluster.agents.agent import Agent
from allocator.cluster.allocation.client_index import ClientIndex, ClientMask, ones
from allocator.cluster.allocation.progressive_filling import ClientNode, InnerNode, Node
from allocator.cluster.frameworks.clients import Clients
from allocator.cluster.frameworks.framework import Client
from allocator.cluster.users import User
from allocator.fairness.pool import Pool
from allocator.fairness.quantities import Quantities
from allocator.fairness.sorter_snapshot import SorterSnapshot, SortKey
from allocator.users.tree import NO_REPEATS, Repeats


@dataclass(frozen=True, slots=True)
class LocalSorterSnapshot:
    """A sorter snapshot as seen from one agent, for a policy whose order differs by agent.

    Users are ranked by their holdings on this agent instead of in the whole cluster.
    """

    snapshot: SorterSnapshot[str]
    pool: Pool[str]
    machine: Quantities
    held_here: Mapping[str, Quantities]
    """Quantities that each user holds on the agent; users without an entry hold nothing there."""

    def __iter__(self) -> Iterator[str]:
        """Yield active users in sorter order.

        Users without resources on the agent come first, then the others by their share of the
        agent.
        """
        holders = []
        for user in self.snapshot:
            if user in self.held_here:
                holders.append(user)
            else:
                yield user
        yield from sorted(holders, key=lambda user: self.sort_key(user).position)

    def sort_key(self, user: str) -> SortKey:
        """Return a user's current sort key, which depends first on its share of this agent."""
        sort_key = self.snapshot.sort_key(user)
        if user not in self.held_here:
            return SortKey((0, 0.0, *sort_key.position), sort_key.tolerance)
        share = self.pool.local_share(user, self.held_here[user], self.machine)
        return SortKey((1, share, *sort_key.position), sort_key.tolerance)

    def sort_key_after(self, user: str, more: Quantities, times: int) -> SortKey:
        """Return the sort key that a user would have after further allocations on this agent.

        Args:
            user: The user to rank.
            more: The total quantities of these allocations.
            times: The number of these allocations.
        """
        sort_key = self.snapshot.sort_key_after(user, more, times)
        held_here = self.held_here.get(user, Quantities()) + more
        share = self.pool.local_share(user, held_here, self.machine)
        return SortKey((1, share, *sort_key.position), sort_key.tolerance)

    def held(self, user: str) -> Quantities:
        """Return the quantities that a user holds now in the whole cluster."""
        return self.snapshot.held(user)

    def holding(self, user: str, total: Quantities, times: int) -> SortKey:
        """Return the sort key that a user would have if its holdings were `total`.

        Args:
            user: The user to rank.
            total: The quantities that the user would hold in the whole cluster.
            times: The number of further allocations by which the user reaches these holdings.
        """
        return self.sort_key_after(user, total - self.held(user), times)


class CycleSorters:
    """Copies of the sorters, for the tentative allocations of one cycle.

    Mesos calls an order of clients or roles a sorter. The sorters of Longshare are pools (of users)
    and framework sorters (of one user's clients). Allocations change only the copies. At the end of
    the cycle, `commit` applies all of them to the sorters at once.
    """

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._own: dict[User, SorterSnapshot[Client]] = {}
        self._below: dict[User, SorterSnapshot[str]] = {}
        self._above: dict[User, list[tuple[SorterSnapshot[str], str]]] = {}
        """Results of `_snapshots`, by user. The tree of users does not change during a cycle."""

    def own(self, user: User) -> SorterSnapshot[Client]:
        """Return the sorter snapshot of a user's own clients."""
        snapshot = self._own.get(user)
        if snapshot is None:
            snapshot = self._own[user] = SorterSnapshot(self._clients.users.clients_of(user))
        return snapshot

    def below(self, user: User) -> SorterSnapshot[str]:
        """Return the sorter snapshot of a user's sub-users and its virtual leaf (`ROLE/.`)."""
        snapshot = self._below.get(user)
        if snapshot is None:
            assert user.sub_pool is not None
            snapshot = self._below[user] = SorterSnapshot(user.sub_pool)
        return snapshot

    def on(
        self, user: User, agent: Agent, held: Mapping[Client, Quantities]
    ) -> SorterSnapshot[str] | LocalSorterSnapshot:
        """Return the sorter snapshot of a user's sub-users, as seen from an agent.

        The snapshot differs between agents only under a policy that ranks users on each machine
        separately.

        Args:
            user: A user with sub-users.
            agent: The agent to allocate.
            held: The quantities that clients hold on the agent.
        """
        users = self._clients.users
        if not users.per_machine:
            return self.below(user)
        assert user.sub_pool is not None
        held_on_agent = users.allocations_on(user, held, agent.id)
        return LocalSorterSnapshot(
            self.below(user), user.sub_pool, agent.total.scalars, held_on_agent
        )

    def allocate(
        self, client: Client, quantities: Quantities, count: int, repeats: Repeats = NO_REPEATS
    ) -> None:
        """Count allocations to a client in all snapshots that include the client.

        Args:
            client: The client that was allocated resources.
            quantities: The total quantities of these allocations.
            count: The number of allocations.
            repeats: By user, quantities of shared volumes that other clients of the user hold
                already. They are not counted again.
        """
        user = self._clients.node(client)
        snapshot_own = self.own(user)
        before = snapshot_own.held(client)
        after = before + quantities
        snapshot_own.set_held(client, after, count)
        above = self._above.get(user)
        if above is None:
            above = self._above[user] = list(self._snapshots(user))
        for snapshot, name in above:
            if snapshot.alone and name not in repeats:
                snapshot.allocate_later(name, quantities, count)
                continue
            held = snapshot.held(name)  # the same object if the user has no other client
            if name in repeats:
                repeated, single = repeats[name]
                snapshot.set_held(name, held + quantities + single - repeated, count)
            else:
                snapshot.set_held(name, after if held is before else held + quantities, count)

    def commit(self) -> None:
        """Apply the cycle's allocations to the pools and framework sorters.

        The caller does this once, at the end of a cycle.
        """
        roles = self._clients.roles
        for user, own in self._own.items():
            for client, quantities, count in own.changed():
                if roles is not None:
                    now, before = self._clients.users.now, user.clients.held(client)
                    roles.note(client.role, now, quantities, before)
                user.clients.hold(client, quantities, count)
        for user, below in self._below.items():
            assert user.sub_pool is not None
            for name, quantities, count in below.changed():
                user.sub_pool.hold(name, quantities, count)

    def _snapshots(self, user: User) -> Iterator[tuple[SorterSnapshot[str], str]]:
        """Yield each snapshot of a pool in which a user's own clients count, up to the top level.

        Yields pairs of the snapshot and the name under which the clients count. This name is the
        virtual leaf of the user, the user itself, or one of its ancestors.
        """
        if user.sub_pool is not None:
            yield self.below(user), user.leaf
        while user.parent is not None:
            yield self.below(user.parent), user.name
            user = user.parent


MakeNode: TypeAlias = Callable[[Client, bool], ClientNode | None]
"""Creates the node of a client; None if the client can be allocated nothing.

The flag is true if the client's user competes below another member of the role tree."""

Member = TypeVar("Member")
_FEW: Final = 8
"""Skipping this many clients costs as much as sorting one client."""


_NAMES_OF_USER: Final = 2
"""A top-level user is in `ClientIndex.by_user` under its name and that of its virtual leaf."""


class ClientOrder:
    """The order of all clients in one cycle: users of the role tree, and clients of each user.

    `clients` yields the order, for `FairShareStage` when it allocates one share at a time. `tree`
    returns the same order as a tree of nodes, for progressive filling.
    """

    def __init__(self, clients: Clients, sorters: CycleSorters, index: ClientIndex) -> None:
        self._registered = clients
        self._users = clients.users
        self._sorters = sorters
        self._index = index

    @property
    def per_machine(self) -> bool:
        """Whether the sorter order depends on the quantities held on the agent to allocate."""
        return self._users.per_machine

    def first(self, agent: Agent, eligible: ClientMask) -> Client | None:
        """Return the first client of `clients`; None if no client is eligible.

        Before any allocation of a cycle, `first_client` finds it without sorter snapshots.

        Args:
            agent: The agent to allocate.
            eligible: The clients to consider, as a mask.
        """
        if len(self._index.by_user) == _NAMES_OF_USER:  # the only user; its rank does not matter
            user = self._registered.node(next(iter(self._index.bit)))
            return next(self._own_clients(user, self._sorters.own(user), eligible), None)
        user, held, remaining = self._users.root, self._held(agent), eligible
        client = self._index.client.get(remaining)
        while client is None:  # the path of `clients` to its first result, in fewer steps
            snapshot = self._sorters.on(user, agent, held)
            first = next(self._present(user, snapshot, remaining), None)
            if first is None:
                return next(self.clients(agent, eligible), None)
            name, remaining = first
            child, client = user.children.get(name, user), self._index.client.get(remaining)
            if client is None and (child is user or child.sub_pool is None):
                client = next(self._own_clients(child, self._sorters.own(child), remaining), None)
                return next(self.clients(agent, eligible), None) if client is None else client
            user = child
        return client

    def clients(self, agent: Agent, eligible: ClientMask) -> Iterator[Client]:
        """Yield eligible clients in sorter order. The sorter must not change during the iteration.

        Args:
            agent: The agent to allocate.
            eligible: The clients to yield, as a mask.
        """
        for client, _deep in self.clients_with_depth(agent, eligible):
            yield client

    def clients_with_depth(
        self, agent: Agent, eligible: ClientMask
    ) -> Iterator[tuple[Client, bool]]:
        """Yield the clients as `clients` does, each with the flag that `tree` passes to `nodes`.

        Args:
            agent: The agent to allocate.
            eligible: The clients to yield, as a mask.
        """
        client = self._index.client.get(eligible)
        if client is not None:
            yield client, False
        else:
            yield from self._clients(self._users.root, agent, eligible, nested=False)

    def tree(self, agent: Agent, eligible: ClientMask, nodes: MakeNode) -> Node | None:
        """Return the tree of eligible clients for progressive filling of an agent.

        The result is None if no client can be allocated anything.

        Args:
            agent: The agent to allocate.
            eligible: The clients in the tree, as a mask.
            nodes: Creates the node of a client; None for a client that cannot use the agent.
        """
        client = self._index.client.get(eligible)
        if client is not None:
            return nodes(client, False)
        return self._node(self._users.root, agent, eligible, nodes, nested=False)

    def _clients(
        self, user: User, agent: Agent, eligible: ClientMask, *, nested: bool
    ) -> Iterator[tuple[Client, bool]]:
        """Yield the eligible clients of a user and of its sub-users, in sorter order.

        Args:
            user: The user whose pool of sub-users is visited.
            agent: The agent to allocate.
            eligible: The eligible clients below the user.
            nested: Whether the pool is below a member that has competing siblings.

        Yields:
            Each client, and whether its user competes below another member of the role tree.
        """
        snapshot = self._sorters.on(user, agent, self._held(agent))
        for name, mask in self._present(user, snapshot, eligible):
            if mask in self._index.client:
                yield self._index.client[mask], nested
                continue
            deep = nested or mask != eligible
            child = user.children.get(name, user)
            if child is not user and child.sub_pool is not None:
                yield from self._clients(child, agent, mask, nested=deep)
            else:
                for client in self._own_clients(child, self._sorters.own(child), mask):
                    yield client, deep

    def _node(
        self, user: User, agent: Agent, eligible: ClientMask, nodes: MakeNode, *, nested: bool
    ) -> Node | None:
        """Return the tree node for a user's pool of sub-users, with all eligible members.

        The result is None if no member can be allocated anything.

        Args:
            user: The user that the pool belongs to.
            agent: The agent to allocate.
            eligible: The eligible clients below the user.
            nodes: Creates the node of a client.
            nested: Whether the pool is below a member that has competing siblings.
        """
        snapshot = self._sorters.on(user, agent, self._held(agent))
        present = self._present(user, snapshot, eligible)
        first = next(present, None)
        if first is not None and first[1] == eligible:
            return self._member(user, first[0], agent, eligible, nodes, nested=nested, shared=False)
        members = chain([first] if first is not None else [], present)
        return InnerNode(self._members(user, members, agent, nodes, nested=nested), snapshot)

    def _members(
        self,
        user: User,
        present: Iterable[tuple[str, ClientMask]],
        agent: Agent,
        nodes: MakeNode,
        *,
        nested: bool,
    ) -> Iterator[tuple[str, Node]]:
        """Yield the members of a user's pool that can be allocated resources, with their nodes.

        Args:
            user: The user that the pool belongs to.
            present: Members in sorter order, each with its eligible clients.
            agent: The agent to allocate.
            nodes: Creates the node of a client.
            nested: Whether the pool is below a member that has competing siblings.
        """
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
        """Return the tree node of a member of a user's pool; None if none of its clients fits.

        Args:
            user: The user that the pool belongs to.
            name: The member: a sub-user or the virtual leaf.
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
        if child is not user and child.sub_pool is not None:
            return self._node(child, agent, eligible, nodes, nested=nested)
        own = self._sorters.own(child)
        return InnerNode(self._client_nodes(child, own, eligible, nodes, nested=nested), own)

    def _client_nodes(
        self,
        user: User,
        own: SorterSnapshot[Client],
        eligible: ClientMask,
        nodes: MakeNode,
        *,
        nested: bool,
    ) -> Iterator[tuple[Client, Node]]:
        """Yield a user's own eligible clients in sorter order, each with its tree node.

        Args:
            user: The user whose clients are visited.
            own: The sorter snapshot of the user's own clients.
            eligible: The clients to consider.
            nodes: Creates the node of a client; a client without a node is skipped.
            nested: Whether the user competes below another member of the role tree.
        """
        for client in self._own_clients(user, own, eligible):
            node = nodes(client, nested)
            if node is not None:
                yield client, node

    def _present(
        self, user: User, snapshot: SorterSnapshot[str] | LocalSorterSnapshot, eligible: ClientMask
    ) -> Iterator[tuple[str, ClientMask]]:
        """Yield pool members that have eligible clients, in sorter order, with these clients.

        Args:
            user: The user that the pool belongs to.
            snapshot: The sorter snapshot of the pool.
            eligible: The clients to consider.
        """
        by_user, depth = self._index.by_user, len(user.ancestry)
        if not self._is_small(eligible, by_user[user.name] if depth else self._index.wanting):
            for name in snapshot:
                mask = by_user.get(name, 0) & eligible
                if mask:
                    yield name, mask
            return
        masks: dict[str, ClientMask] = {}
        for bit in ones(eligible):
            line = self._registered.node(self._index.client[bit]).ancestry
            name = line[-1 - depth] if len(line) > depth else user.leaf
            masks[name] = masks.get(name, 0) | bit
        for name in sorted(masks, key=lambda name: snapshot.sort_key(name).position):
            yield name, masks[name]

    def _own_clients(
        self, user: User, own: SorterSnapshot[Client], eligible: ClientMask
    ) -> Iterator[Client]:
        """Yield a user's own clients that are eligible, in the order of the snapshot `own`."""
        if self._is_small(eligible, self._index.by_user[user.leaf]):
            clients = [self._index.client[bit] for bit in ones(eligible)]
            yield from sorted(clients, key=lambda client: own.sort_key(client).position)
        else:
            for client in own:
                if self._index.bit.get(client, 0) & eligible:
                    yield client

    @staticmethod
    def _is_small(few: ClientMask, total: ClientMask) -> bool:
        """Return whether sorting the eligible clients costs less than searching all sorted clients.

        Args:
            few: The eligible clients.
            total: All clients of the user.
        """
        return few != total and few.bit_count() * _FEW < total.bit_count()

    def _held(self, agent: Agent) -> dict[Client, Quantities]:
        """Return the quantities that each client holds on an agent.

        The result is empty, because it is not needed, unless the policy ranks users on each machine
        separately.
        """
        if not self._users.per_machine:
            return {}
        return {Client(role, name): held.scalars for name, role, held in agent.allocations()}


def first_client(clients: Clients, index: ClientIndex, eligible: ClientMask) -> Client | None:
    """Return the first of the eligible clients before any allocation of a cycle.

    This function reads the pools, so a cycle with one allocation needs no sorter snapshots.
    `ClientOrder.first` reads the cycle's snapshots. Both find the same client, unless the policy
    ranks users on each machine separately.

    Args:
        clients: All clients.
        index: The clients that want offers.
        eligible: The clients to consider, as a mask.

    Returns:
        The client. None: no client is eligible, or `ClientOrder` must find the first one, because
            few of a user's clients are eligible.
    """
    users, all_clients = clients.users, index.wanting
    user, has_members = users.root, True
    if len(index.by_user) == _NAMES_OF_USER:  # the only user; its rank does not matter
        user, has_members = clients.node(next(iter(index.bit))), False
    while (client := index.client.get(eligible)) is None:
        if eligible != all_clients and eligible.bit_count() * _FEW < all_clients.bit_count():
            return None
        if not has_members:
            return _first_of(users.clients_of(user), index.bit, eligible)
        assert user.sub_pool is not None
        name = _first_of(user.sub_pool, index.by_user, eligible)
        if name is None:
            return None
        child = user.children.get(name, user)
        has_members = child is not user and child.sub_pool is not None
        all_clients = index.by_user[name if has_members else child.leaf]
        eligible &= index.by_user[name]
        user = child
    return client


def _first_of(
    members: Iterable[Member], masks: Mapping[Member, ClientMask], eligible: ClientMask
) -> Member | None:
    """Return the first member, in the given order, with eligible clients; None if none has any."""
    for member in members:
        if masks.get(member, 0) & eligible:
            return member
    return None
